//! Who did what, and requests that may be repeated.

use gpuaas_types::Timestamp;
use serde::de::DeserializeOwned;

use crate::database::args;
use crate::error::StoreError;
use crate::store::Store;
use crate::tables::audit::{self, IdempotencyKey, NewAuditEntry};

/// A stored entry of the audit log.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// Position in the log: pages go on after it.
    pub id: i64,
    /// Moment of the action.
    pub at: Timestamp,
    /// Actor, action, subject and detail.
    pub entry: NewAuditEntry,
}

impl Store {
    /// Writes an action down.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn append_audit_entry(
        &self,
        now: Timestamp,
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        self.write(move |conn| Box::pin(async move { audit::append(conn, now, &entry).await }))
            .await
    }

    /// What was written down, oldest first, after position `after`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn audit_entries(
        &self,
        after: i64,
        limit: i64,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let rows = self
            .reader()
            .await?
            .all(
                "SELECT id, at, actor, action, subject, detail FROM audit_entry \
                 WHERE id > $1 ORDER BY id LIMIT $2",
                args![after, limit],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let mut cols = row.cols();
                Ok(AuditEntry {
                    id: cols.next()?,
                    at: cols.at()?,
                    entry: NewAuditEntry {
                        actor: cols.next()?,
                        action: cols.next()?,
                        subject: cols.next()?,
                        detail: cols.json()?,
                    },
                })
            })
            .collect()
    }

    /// The answer given to a request with this key before, if any.
    ///
    /// # Errors
    /// `idempotency_key_reused` when the earlier request was another one;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn replayed_response<T: DeserializeOwned + 'static>(
        &self,
        key: &IdempotencyKey,
    ) -> Result<Option<T>, StoreError> {
        audit::read_response(&mut self.reader().await?, key).await
    }
}
