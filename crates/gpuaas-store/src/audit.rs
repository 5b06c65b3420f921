//! Who did what, and requests that may be repeated.

use gpuaas_types::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Store;
use crate::db::{Conn, Val, args};
use crate::error::StoreError;

/// An action of a person or a program, to be written down.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAudit {
    /// Who.
    pub actor: String,
    /// What, such as `run.resume`.
    pub action: String,
    /// On what: an identifier or a name.
    pub subject: String,
    /// Anything else. Never a secret.
    pub detail: serde_json::Value,
}

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

/// Marks a request that its sender may repeat. The key belongs to one request: the same key with
/// another body is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The sender's key, qualified by the operation, such as `onboard:KEY`.
    pub key: String,
    /// SHA-256 of the request body.
    pub request_hash: [u8; 32],
}

pub(crate) async fn append(
    conn: &mut Conn,
    now: Timestamp,
    entry: &NewAudit,
) -> Result<(), StoreError> {
    conn.execute(
        "INSERT INTO audit_entry (at, actor, action, subject, detail) \
         VALUES ($1, $2, $3, $4, $5)",
        vec![
            now.into(),
            (&entry.actor).into(),
            (&entry.action).into(),
            (&entry.subject).into(),
            Val::json(&entry.detail)?,
        ],
    )
    .await
    .map(drop)
}

/// The answer given to this request before.
pub(crate) async fn replay<T: DeserializeOwned + 'static>(
    conn: &mut Conn,
    key: &IdempotencyKey,
) -> Result<Option<T>, StoreError> {
    let row = conn
        .first(
            "SELECT request_hash, response FROM idempotency_record WHERE key = $1",
            args![&key.key],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let mut cols = row.cols();
    let hash: Vec<u8> = cols.next()?;
    if hash == key.request_hash {
        return cols.json().map(Some);
    }
    let detail = format!("the idempotency key {:?} was used for another request", key.key);
    Err(StoreError::conflict("idempotency_key_reused", detail))
}

/// Keeps the answer to this request; answers `false` when an earlier request has the key. A
/// request with the same key that is under way elsewhere is waited for.
pub(crate) async fn keep<T: Serialize>(
    conn: &mut Conn,
    now: Timestamp,
    key: &IdempotencyKey,
    response: &T,
) -> Result<bool, StoreError> {
    let made = conn
        .execute(
            "INSERT INTO idempotency_record (key, request_hash, response, created_at) \
             VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            vec![(&key.key).into(), (&key.request_hash).into(), Val::json(response)?, now.into()],
        )
        .await?;
    Ok(made == 1)
}

impl Store {
    /// Writes an action down.
    ///
    /// # Errors
    /// The database's.
    pub async fn audit(&self, now: Timestamp, entry: NewAudit) -> Result<(), StoreError> {
        self.write(move |conn| Box::pin(async move { append(conn, now, &entry).await })).await
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
        replay(&mut self.reader().await?, key).await
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
        self.write(move |conn| Box::pin(async move { keep(conn, now, &key, &response).await }))
            .await
    }
}
