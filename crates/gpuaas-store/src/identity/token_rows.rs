//! Rows of `token`.

use std::collections::HashMap;

use gpuaas_types::{NodeId, RunId, RunStatus, Timestamp, TokenId};

use crate::database::{Cols, Conn, Val, args, padded, with_list};
use crate::error::{StoreError, TokenRejection};

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

/// What a good credential stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenGrant {
    /// Identifier of the token.
    pub id: TokenId,
    /// Node that it was made for; none for the admin API.
    pub node_id: Option<NodeId>,
    /// Run it was made for.
    pub run_id: Option<RunId>,
}

/// A credential as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct StoredToken {
    pub(crate) grant: TokenGrant,
    purpose: String,
    single_use: bool,
    usable_from: Timestamp,
    expires_at: Option<Timestamp>,
    pub(crate) used_at: Option<Timestamp>,
    used_key: Option<Vec<u8>>,
    revoked_at: Option<Timestamp>,
    run_status: Option<RunStatus>,
    heartbeat_seen: bool,
}

/// The credentials with these hashes; those that nobody has are left out. For an `EXISTS` in the
/// place of the count PostgreSQL would collect the first heartbeats of all runs.
pub(crate) async fn tokens_with_hashes(
    conn: &mut Conn,
    hashes: impl IntoIterator<Item = [u8; 32]>,
) -> Result<HashMap<[u8; 32], StoredToken>, StoreError> {
    let mut tokens = HashMap::new();
    for hashes in padded(hashes) {
        let text = "SELECT token.hash, token.id, token.node_id, token.run_id, token.purpose, \
                    token.single_use, token.usable_from, token.expires_at, token.used_at, \
                    token.used_key, token.revoked_at, run.status, \
                    (SELECT COUNT(*) > 0 FROM report WHERE report.run_id = token.run_id \
                    AND report.kind = 'first_heartbeat') \
                    FROM token LEFT JOIN run ON run.id = token.run_id \
                    WHERE token.hash IN ({LIST})";
        let sql = with_list(text, 1, hashes.len());
        for row in conn.all(sql, hashes.iter().map(Val::from).collect()).await? {
            let mut cols = row.cols();
            let hash: Vec<u8> = cols.next()?;
            let hash = hash.try_into().map_err(|_| StoreError::corrupt("token", "its hash"))?;
            tokens.insert(hash, read_token(cols)?);
        }
    }
    Ok(tokens)
}

fn read_token(mut cols: Cols<'_>) -> Result<StoredToken, StoreError> {
    Ok(StoredToken {
        grant: TokenGrant {
            id: cols.id(TokenId)?,
            node_id: cols.opt_id(NodeId)?,
            run_id: cols.opt_id(RunId)?,
        },
        purpose: cols.next()?,
        single_use: cols.next()?,
        usable_from: cols.at()?,
        expires_at: cols.opt_at()?,
        used_at: cols.opt_at()?,
        used_key: cols.next()?,
        revoked_at: cols.opt_at()?,
        run_status: cols.opt_enum_str()?,
        heartbeat_seen: cols.next()?,
    })
}

impl StoredToken {
    /// Whether it is good for `purpose` now.
    pub(crate) fn check(
        &self,
        now: Timestamp,
        purpose: TokenPurpose,
    ) -> Result<(), TokenRejection> {
        let bound_to_run = matches!(purpose, TokenPurpose::Bootstrap | TokenPurpose::Enrollment);
        let may_expire = !bound_to_run || self.run_status == Some(RunStatus::Parked);
        if self.purpose != purpose.as_str() {
            Err(TokenRejection::Unknown)
        } else if self.revoked_at.is_some() {
            Err(TokenRejection::Revoked)
        } else if bound_to_run && !self.run_status.is_some_and(RunStatus::is_open) {
            Err(TokenRejection::RunOver)
        } else if self.single_use && self.used_at.is_some() && self.heartbeat_seen {
            Err(TokenRejection::Used)
        } else if may_expire && self.expires_at.is_some_and(|end| now >= end) {
            Err(TokenRejection::Expired)
        } else if now < self.usable_from {
            Err(TokenRejection::NotYet)
        } else {
            Ok(())
        }
    }

    /// The same for an enrollment with this key.
    pub(crate) fn check_key(
        &self,
        now: Timestamp,
        key: Option<&[u8; 32]>,
    ) -> Result<(), TokenRejection> {
        let same = self.used_key.as_deref() == key.map(<[u8; 32]>::as_slice);
        let is_contested = self.used_at.is_some() && !same;
        match self.check(now, TokenPurpose::Enrollment) {
            Ok(()) | Err(TokenRejection::Used) if is_contested => Err(TokenRejection::OtherKey),
            checked => checked,
        }
    }
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

/// Refuses from now on what the run's deployments were given, used or not: a token that was used
/// works again for its key until the node is heard.
pub(crate) async fn revoke_of_deployments(
    conn: &mut Conn,
    now: Timestamp,
    run_id: RunId,
) -> Result<(), StoreError> {
    conn.execute(
        "UPDATE token SET revoked_at = $2 WHERE run_id = $1 AND revoked_at IS NULL \
         AND purpose IN ('bootstrap', 'enrollment')",
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

/// For each node how many of its bootstrap and enrollment tokens are honoured, by the rules of
/// [`StoredToken::check`] while the run is not parked.
pub(crate) async fn honoured_tokens(
    conn: &mut Conn,
    node_ids: impl IntoIterator<Item = NodeId>,
) -> Result<HashMap<NodeId, i64>, StoreError> {
    let mut counts = HashMap::new();
    for ids in padded(node_ids.into_iter().map(|id| id.0)) {
        let text = "SELECT token.node_id, COUNT(*) FROM token \
                    JOIN run ON run.id = token.run_id WHERE token.node_id IN ({LIST}) \
                    AND token.revoked_at IS NULL AND run.status IN ('running', 'waiting', 'parked') \
                    AND (token.purpose = 'bootstrap' OR (token.purpose = 'enrollment' \
                    AND (token.used_at IS NULL OR (SELECT COUNT(*) = 0 FROM report \
                    WHERE report.run_id = token.run_id AND report.kind = 'first_heartbeat')))) \
                    GROUP BY token.node_id";
        let sql = with_list(text, 1, ids.len());
        for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
            let mut cols = row.cols();
            counts.insert(cols.id(NodeId)?, cols.next()?);
        }
    }
    Ok(counts)
}
