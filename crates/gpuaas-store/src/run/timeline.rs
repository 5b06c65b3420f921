//! History of nodes: append-only.

use async_recursion::async_recursion as boxed;
use std::sync::Arc;

use gpuaas_types::api::TimelineEvent;
use gpuaas_types::{NodeId, RunId};

use crate::database::{GroupHints, Row, args};
use crate::error::StoreError;
use crate::run::timeline_rows::{append, read_timeline_event};
use crate::store::Store;

/// One stored line of history.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTimelineEvent {
    /// Position: pages and streams go on after it.
    ///
    /// PostgreSQL hands positions out before it commits, so a line may appear with a position a
    /// little below one already seen. A follower that must not miss any reads its last page
    /// again.
    pub id: i64,
    /// The line itself.
    pub event: TimelineEvent,
}

macro_rules! timeline_select {
    ($filter:literal) => {
        concat!(
            "SELECT id, at, run_id, step, source, code, text FROM timeline_event WHERE ",
            $filter,
            " AND id > $2 ORDER BY id LIMIT $3"
        )
    };
}

fn read_line(row: &Row) -> Result<StoredTimelineEvent, StoreError> {
    let mut cols = row.cols();
    Ok(StoredTimelineEvent { id: cols.next()?, event: read_timeline_event(&mut cols)? })
}

impl Store {
    /// Adds to the history of a node, and does nothing else.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn append_timeline(
        &self,
        node_id: NodeId,
        events: Vec<TimelineEvent>,
    ) -> Result<(), StoreError> {
        let events = Arc::new(events);
        self.write_grouped(GroupHints::default(), move |conn| {
            let events = Arc::clone(&events);
            Box::pin(async move { append(conn, events.iter().map(|event| (node_id, event))).await })
        })
        .await
    }

    /// History of a node in the order it was written, at most `limit` lines after position
    /// `after` (0: from the beginning).
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn timeline_of_node(
        &self,
        node_id: NodeId,
        after: i64,
        limit: i64,
    ) -> Result<Vec<StoredTimelineEvent>, StoreError> {
        self.timeline(timeline_select!("node_id = $1"), node_id.0, after, limit).await
    }

    /// The last `limit` lines of the history of a node, in the order they were written.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn last_timeline_of_node(
        &self,
        node_id: NodeId,
        limit: i64,
    ) -> Result<Vec<StoredTimelineEvent>, StoreError> {
        let sql = "SELECT id, at, run_id, step, source, code, text FROM timeline_event \
                   WHERE node_id = $1 ORDER BY id DESC LIMIT $2";
        let rows = self.reader().await?.all(sql, args![node_id.0, limit]).await?;
        rows.iter().rev().map(read_line).collect()
    }

    /// History of a run; otherwise as [`Self::timeline_of_node`].
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn timeline_of_run(
        &self,
        run_id: RunId,
        after: i64,
        limit: i64,
    ) -> Result<Vec<StoredTimelineEvent>, StoreError> {
        self.timeline(timeline_select!("run_id = $1"), run_id.0, after, limit).await
    }

    async fn timeline(
        &self,
        sql: &'static str,
        key: uuid::Uuid,
        after: i64,
        limit: i64,
    ) -> Result<Vec<StoredTimelineEvent>, StoreError> {
        let rows = self.reader().await?.all(sql, args![key, after, limit]).await?;
        rows.iter().map(read_line).collect()
    }
}
