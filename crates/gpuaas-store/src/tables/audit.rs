//! Rows of `audit_entry` and `idempotency_record`.

use gpuaas_types::Timestamp;
use gpuaas_types::codes::ProblemCode;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::database::{Conn, Val, args};
use crate::error::StoreError;

/// An action of a person or a program, to be written down.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAuditEntry {
    /// Actor: a person or a program.
    pub actor: String,
    /// Action, such as `run.resume`.
    pub action: String,
    /// Subject of the action: an identifier or a name.
    pub subject: String,
    /// Further facts; never a secret.
    pub detail: serde_json::Value,
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
    entry: &NewAuditEntry,
) -> Result<(), StoreError> {
    let row = vec![
        now.into(),
        (&entry.actor).into(),
        (&entry.action).into(),
        (&entry.subject).into(),
        Val::json(&entry.detail)?,
    ];
    conn.insert_rows("INSERT INTO audit_entry (at, actor, action, subject, detail)", vec![row])
        .await
}

/// The answer given to this request before.
pub(crate) async fn read_response<T: DeserializeOwned + 'static>(
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
    Err(StoreError::conflict(ProblemCode::IdempotencyKeyReused, detail))
}

/// Keeps the answer to this request; answers `false` when an earlier request has the key. A
/// request with the same key that is under way elsewhere is waited for.
pub(crate) async fn insert_response<T: Serialize>(
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
