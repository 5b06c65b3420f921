//! Events: the history of all nodes, followed in one order.

use async_recursion::async_recursion as boxed;
use gpuaas_types::event::{EventCursor, NodeEvent};

use crate::error::StoreError;
use crate::event::rows as event;
use crate::store::Store;

impl Store {
    /// At most `limit` events after a cursor, in their order. What was deleted because it was old is
    /// left out. An event appears above every cursor that was answered before.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn events_after(
        &self,
        after: EventCursor,
        limit: i64,
    ) -> Result<Vec<NodeEvent>, StoreError> {
        event::events_after(&mut self.reader().await?, after, limit).await
    }

    /// After every event that [`Store::events_after`] answers now, and before every later one.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn event_end(&self) -> Result<EventCursor, StoreError> {
        event::event_end(&mut self.reader().await?).await
    }
}
