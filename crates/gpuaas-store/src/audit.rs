//! Who did what, and requests that may be repeated.

use gpuaas_types::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::database::args;
use crate::error::StoreError;
use crate::store::Store;
use crate::tables::audit::{self, IdempotencyKey, NewAudit};

/// A stored [`NewAudit`].
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// Position.
    pub id: i64,
    /// When.
    pub at: Timestamp,
    /// Who did what.
    pub entry: NewAudit,
}

impl Store {
    /// Writes an action down.
    ///
    /// # Errors
    /// The database's.
    pub async fn audit(&self, now: Timestamp, entry: NewAudit) -> Result<(), StoreError> {
        self.write(move |conn| Box::pin(async move { audit::append(conn, now, &entry).await }))
            .await
    }

    /// What was written down, oldest first, after position `after`.
    ///
    /// # Errors
    /// The database's.
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
                    entry: NewAudit {
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
    /// `idempotency_key_reused` when the earlier request was another one; the database's.
    pub async fn replayed<T: DeserializeOwned + 'static>(
        &self,
        key: &IdempotencyKey,
    ) -> Result<Option<T>, StoreError> {
        audit::replay(&mut self.reader().await?, key).await
    }

    /// Keeps the answer to a request whose effect is another write of this store. Answers
    /// `false` when an earlier request has the key.
    ///
    /// # Errors
    /// The database's.
    pub async fn keep_response<T: Serialize + Send + Sync + 'static>(
        &self,
        now: Timestamp,
        key: IdempotencyKey,
        response: T,
    ) -> Result<bool, StoreError> {
        self.write(move |conn| {
            Box::pin(async move { audit::keep(conn, now, &key, &response).await })
        })
        .await
    }
}
