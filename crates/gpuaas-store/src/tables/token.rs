//! Rows of `token`.

use gpuaas_types::{NodeId, RunId, Timestamp, TokenId};

use crate::database::{Conn, args};
use crate::error::StoreError;

/// What a credential is for. Each works on its own endpoints only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenPurpose {
    /// Bootstrap callbacks of a run.
    Bootstrap,
    /// One enrollment of an agent.
    Enrollment,
    /// Everything an enrolled agent does.
    Agent,
    /// Requests of operators to the admin API.
    Admin,
}

impl TokenPurpose {
    /// Stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bootstrap => "bootstrap",
            Self::Enrollment => "enrollment",
            Self::Agent => "agent",
            Self::Admin => "admin",
        }
    }
}

/// A credential to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Identifier of the token.
    pub id: TokenId,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// Endpoints that it is for.
    pub purpose: TokenPurpose,
    /// Node that it was made for; none for the admin API.
    pub node_id: Option<NodeId>,
    /// Run it was made for; none for the admin API.
    pub run_id: Option<RunId>,
    /// Whether it works once only.
    pub single_use: bool,
    /// Moment before which it is refused.
    pub usable_from: Timestamp,
    /// Refused from then on, a run's while that is parked; none: no end yet.
    pub expires_at: Option<Timestamp>,
}

pub(crate) async fn insert(
    conn: &mut Conn,
    now: Timestamp,
    tokens: &[NewToken],
) -> Result<(), StoreError> {
    let rows = tokens
        .iter()
        .map(|token| {
            args![
                token.id.0,
                &token.hash,
                token.purpose.as_str(),
                token.node_id.map(|id| id.0),
                token.run_id.map(|id| id.0),
                token.single_use,
                now,
                token.usable_from,
                token.expires_at
            ]
        })
        .collect();
    conn.insert_rows(
        "INSERT INTO token (id, hash, purpose, node_id, run_id, single_use, created_at, \
         usable_from, expires_at)",
        rows,
    )
    .await
}

/// Revokes what earlier deployments of the run were given and did not use up.
pub(crate) async fn revoke_unused(
    conn: &mut Conn,
    now: Timestamp,
    run_id: RunId,
) -> Result<(), StoreError> {
    conn.execute(
        "UPDATE token SET revoked_at = $2 WHERE run_id = $1 AND used_at IS NULL \
         AND revoked_at IS NULL AND purpose IN ('bootstrap', 'enrollment')",
        args![run_id.0, now],
    )
    .await
    .map(drop)
}

pub(crate) async fn extend_expiry(
    conn: &mut Conn,
    run_id: RunId,
    expires_at: Timestamp,
) -> Result<(), StoreError> {
    conn.execute(
        "UPDATE token SET expires_at = $2 WHERE run_id = $1 \
         AND (expires_at IS NULL OR expires_at < $2) \
         AND revoked_at IS NULL AND purpose IN ('bootstrap', 'enrollment')",
        args![run_id.0, expires_at],
    )
    .await
    .map(drop)
}
