//! Rows of `audit_entry` and `idempotency_record`.

use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{AuditAction, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use uuid::Uuid;

use super::chain_rows::chain_group;
use crate::database::{ApprovalExecution, Conn, RequestOrigin, RowsStatement, Val, args};
use crate::error::StoreError;

/// An action of a person or a program, to be written down.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAuditEntry {
    /// Actor: a person or a program.
    pub actor: String,
    /// Action.
    pub action: AuditAction,
    /// Subject of the action: an identifier or a name.
    pub subject: String,
    /// Further facts; never a secret. `site` names the site, and `before_digest` and `after_digest`
    /// are of what was changed.
    pub detail: serde_json::Value,
}

impl NewAuditEntry {
    /// An entry for `action` of `actor` on `subject`.
    #[must_use]
    pub fn new(
        actor: impl Into<String>,
        action: AuditAction,
        subject: impl Into<String>,
        detail: serde_json::Value,
    ) -> Self {
        Self { actor: actor.into(), action, subject: subject.into(), detail }
    }

    /// An entry for a write that a test or a simulation makes itself.
    #[doc(hidden)]
    #[must_use]
    pub fn in_test() -> Self {
        Self::new("test", AuditAction::TestWrite, "test", serde_json::Value::Null)
    }

    /// `done`, or the code with which something was refused: then the action says so.
    fn result(&self) -> &str {
        let refused = self.action.is_refusal().then(|| self.text("code")).flatten();
        refused.unwrap_or("done")
    }

    fn text(&self, member: &str) -> Option<&str> {
        self.detail.get(member).and_then(serde_json::Value::as_str)
    }
}

/// Marks a request that its sender may repeat. The key belongs to one request: the same key with
/// another body is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Operation, caller and the caller's key, a line each.
    pub key: String,
    /// SHA-256 of the request body.
    pub request_hash: [u8; 32],
}

/// The node of an entry is its subject, or that of the run that is its subject. Its site is kept by
/// name: an entry tells of sites that are gone.
const APPEND: RowsStatement = RowsStatement {
    head: "WITH v (at, actor, action, subject, detail, subject_id, site, batch, role, address, \
           request_id, result, before_digest, after_digest) AS (",
    tail: ") INSERT INTO audit_entry (at, actor, action, subject, detail, node_id, site, role, \
           address, request_id, result, before_digest, after_digest) \
           SELECT v.at, v.actor, v.action, v.subject, v.detail, node.id, \
           COALESCE(v.site, site.name), v.role, v.address, v.request_id, v.result, \
           v.before_digest, v.after_digest FROM v LEFT JOIN run ON run.id = v.subject_id \
           LEFT JOIN node ON node.id = COALESCE(run.node_id, v.subject_id) \
           LEFT JOIN batch ON batch.name = v.batch \
           LEFT JOIN site ON site.id = COALESCE(node.site_id, batch.site_id)",
};

pub(crate) async fn append(
    conn: &mut Conn,
    now: Timestamp,
    entry: &NewAuditEntry,
) -> Result<(), StoreError> {
    let subject_of =
        |kind: &str| entry.action.as_str().starts_with(kind).then_some(entry.subject.as_str());
    let in_detail = || entry.text("site");
    let origin = conn.origin();
    let row = vec![
        now.into(),
        (&entry.actor).into(),
        entry.action.as_str().into(),
        (&entry.subject).into(),
        Val::json(&detail_with_origin(entry, origin))?,
        Uuid::parse_str(&entry.subject).ok().into(),
        subject_of("site.").or_else(in_detail).into(),
        subject_of("batch.").into(),
        origin.role.as_deref().into(),
        origin.address.as_deref().into(),
        origin.request_id.as_deref().into(),
        entry.result().into(),
        entry.text("before_digest").into(),
        entry.text("after_digest").into(),
    ];
    if let Some(execution) = origin.execution {
        mark_executed(conn, execution).await?;
    }
    conn.call_before_commit(chain_group);
    conn.write_rows(APPEND, vec![row]).await
}

/// The details of an entry with the program and the listener of its request: they have no columns of
/// their own, and the chain covers the details.
fn detail_with_origin(entry: &NewAuditEntry, origin: &RequestOrigin) -> serde_json::Value {
    let mut detail = entry.detail.clone();
    if let Some(fields) = detail.as_object_mut() {
        let known = [("user_agent", origin.user_agent.as_deref()), ("listener", origin.listener)];
        for (name, value) in known {
            if let Some(value) = value {
                fields.entry(name).or_insert_with(|| value.into());
            }
        }
    }
    detail
}

/// Marks the approval whose effect this transaction is; refuses the effect if another execution of the
/// same approval had one.
async fn mark_executed(conn: &mut Conn, execution: ApprovalExecution) -> Result<(), StoreError> {
    let sql = "UPDATE approval SET state = 'done', execution = $2 \
               WHERE id = $1 AND (state = 'approved' OR execution = $2)";
    let token = execution.token.to_string();
    if conn.execute(sql, args![execution.approval.0, &token]).await? == 1 {
        return Ok(());
    }
    let detail = format!("another control plane has already executed {}", execution.approval);
    Err(StoreError::conflict(ProblemCode::ApprovalDecided, detail))
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
    let senders = key.key.lines().last().unwrap_or_default();
    let detail = format!("idempotency key {senders:?} was already used for another request");
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
            response_row(now, key, response)?,
        )
        .await?;
    Ok(made == 1)
}

/// Forgets the answer to a request that came to nothing, in the transaction that kept it.
pub(crate) async fn forget_response(
    conn: &mut Conn,
    key: &IdempotencyKey,
) -> Result<(), StoreError> {
    let sql = "DELETE FROM idempotency_record WHERE key = $1";
    conn.execute(sql, args![&key.key]).await.map(drop)
}

/// Keeps the answers to requests; returns the keys of those that no earlier request has.
pub(crate) const PUT_RESPONSES: RowsStatement = RowsStatement {
    head: "INSERT INTO idempotency_record (key, request_hash, response, created_at)",
    tail: "ON CONFLICT DO NOTHING RETURNING key",
};

/// A row of [`PUT_RESPONSES`].
pub(crate) fn response_row<T: Serialize>(
    now: Timestamp,
    key: &IdempotencyKey,
    response: &T,
) -> Result<Vec<Val>, StoreError> {
    Ok(vec![(&key.key).into(), (&key.request_hash).into(), Val::json(response)?, now.into()])
}
