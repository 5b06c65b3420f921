//! Credentials of requests.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use gpuaas_engine::tokens;
use gpuaas_store::{
    NewAuditEntry, NewToken, Store, StoreError, TokenGrant, TokenPurpose, TokenRejection, sha256,
};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::limits::ListenerKind;
use gpuaas_types::{AuditAction, NodeId, Problem, RunId, Timestamp, TokenId};
use serde_json::json;
use uuid::Uuid;

use crate::ctx::Ctx;
use crate::http::open_bodies::BodyOwner;
use crate::http::problem::{ApiResult, Refusal, problem};
use crate::identity::refused_credentials::ShownCredential;

/// The first admin token has this identifier, so that of several control planes that start on one
/// database at once, one makes it.
const FIRST_ADMIN: TokenId = TokenId(Uuid::from_u128(0x7a0_8000_0000_0000_0001));

/// A token that may become the first admin token.
///
/// # Errors
/// When the operating system gives no random bytes.
pub fn propose_admin_token() -> Result<String, StoreError> {
    mint("gpadmin").map_err(|_| StoreError::Unavailable {
        detail: "cannot read random bytes from the operating system".to_owned(),
    })
}

/// Makes `token` the first admin token of a new database, and answers whether it is. It is stored
/// as a hash and cannot be shown again, so whoever proposes one keeps it safe before: a process
/// that dies right after this call proposes the same one again.
///
/// # Errors
/// The database's.
pub async fn ensure_admin_token(
    store: &Store,
    now: Timestamp,
    token: &str,
) -> Result<bool, StoreError> {
    match store.add_token(now, admin_token(token)).await {
        Ok(()) => Ok(true),
        Err(StoreError::Conflict { .. }) => {
            match store.check_token(now, sha256(token), TokenPurpose::Admin).await {
                Ok(_) => Ok(true),
                Err(StoreError::Token(_)) => Ok(false),
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Makes `token` the admin token; the one before counts no more. For one that was lost, or that
/// others know. `actor` is who is at the control plane's host, and `reason` why; the audit keeps both.
///
/// # Errors
/// The database's.
pub async fn replace_admin_token(
    store: &Store,
    now: Timestamp,
    token: &str,
    actor: &str,
    reason: &str,
) -> Result<(), StoreError> {
    let entry = NewAuditEntry {
        actor: format!("host ({actor})"),
        action: AuditAction::TokenReset,
        subject: "admin".to_owned(),
        detail: json!({ "reason": reason }),
    };
    store.replace_token(now, admin_token(token), entry).await
}

fn admin_token(token: &str) -> NewToken {
    NewToken {
        id: FIRST_ADMIN,
        hash: sha256(token),
        purpose: TokenPurpose::Admin,
        node_id: None,
        run_id: None,
        single_use: false,
        usable_from: Timestamp::EPOCH,
        expires_at: None,
    }
}

/// A new credential.
pub(crate) fn mint(prefix: &str) -> Result<String, Problem> {
    tokens::generate_token(prefix).map_err(|error| {
        tracing::error!(%error, "no random bytes");
        problem(ProblemCode::Internal)
    })
}

/// A bootstrap with a good token of this run.
pub(crate) struct Bootstrap(pub(crate) RunId);

impl FromRequestParts<Ctx> for Bootstrap {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, ctx: &Ctx) -> ApiResult<Self> {
        let check = check_token(ctx, &parts.headers, TokenPurpose::Bootstrap);
        let grant = judge(ctx, shown(parts)?, check).await?;
        if let Some(node_id) = grant.node_id {
            ctx.count_request(ListenerKind::Nodes, &node_id.to_string())?;
            parts.extensions.insert(BodyOwner::node(node_id));
        }
        grant.run_id.map(Self).ok_or_else(|| problem(ProblemCode::TokenUnknown).into())
    }
}

/// An agent to be, with an enrollment token that is good for this run. Not used up yet.
pub(crate) struct EnrollmentAuth {
    /// Hash of the token.
    pub(crate) hash: [u8; 32],
    /// The run that it was made for.
    pub(crate) run_id: RunId,
    /// The node that it was made for.
    pub(crate) node_id: NodeId,
}

impl FromRequestParts<Ctx> for EnrollmentAuth {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, ctx: &Ctx) -> ApiResult<Self> {
        let hash = sha256(bearer(&parts.headers)?);
        let grant = judge(ctx, shown(parts)?, enrollment_grant(ctx, hash)).await?;
        let (Some(node_id), Some(run_id)) = (grant.node_id, grant.run_id) else {
            return Err(problem(ProblemCode::TokenUnknown).into());
        };
        ctx.count_request(ListenerKind::Nodes, &node_id.to_string())?;
        parts.extensions.insert(BodyOwner::node(node_id));
        Ok(Self { hash, run_id, node_id })
    }
}

/// What an enrollment token stands for, used or not: whose key used it is known once the request is read.
pub(crate) async fn enrollment_grant(ctx: &Ctx, hash: [u8; 32]) -> ApiResult<TokenGrant> {
    match ctx.store.enrollment_grant(ctx.now(), hash).await {
        Ok(grant) => Ok(grant),
        Err(StoreError::Token(TokenRejection::Unknown)) => {
            Err(why_unknown(ctx, &hash, TokenPurpose::Enrollment).await)
        }
        Err(error) => Err(error.into()),
    }
}

/// The token of a request of a node.
pub(crate) fn shown(parts: &Parts) -> Result<ShownCredential, Problem> {
    let digest = sha256(bearer(&parts.headers)?);
    Ok(ShownCredential::new(ListenerKind::Nodes, &parts.extensions, digest))
}

/// Judges a credential with `check`, unless its address has sent too many that were refused.
///
/// # Errors
/// `too_many_requests`, and those of `check`.
pub(crate) async fn judge<T>(
    ctx: &Ctx,
    shown: ShownCredential,
    check: impl Future<Output = ApiResult<T>>,
) -> ApiResult<T> {
    let refused = ctx.refused_credentials();
    refused.check(shown, ctx.now())?;
    let result = check.await;
    let is_accepted = match &result {
        Ok(_) => Some(true),
        Err(refusal) => {
            let refusals = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
            refusals.iter().any(|status| status.as_u16() == refusal.0.status).then_some(false)
        }
    };
    if let Some(is_accepted) = is_accepted {
        refused.note(shown, is_accepted, ctx.now());
    }
    result
}

/// A good token in the wrong run.
pub(crate) fn other_run(run: impl std::fmt::Display) -> Problem {
    problem(ProblemCode::TokenOfOtherRun).with_detail(format!("this token is not for run {run}"))
}

/// The credential of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let missing = || problem(ProblemCode::TokenMissing);
    let value = headers.get(AUTHORIZATION).ok_or_else(missing)?;
    value.to_str().ok().and_then(gpuaas_identity::bearer_token).ok_or_else(missing)
}

/// What the credential of a request stands for, if it is good for `purpose`.
pub(crate) async fn check_token(
    ctx: &Ctx,
    headers: &HeaderMap,
    purpose: TokenPurpose,
) -> ApiResult<TokenGrant> {
    let hash = sha256(bearer(headers)?);
    match ctx.store.check_token(ctx.now(), hash, purpose).await {
        Ok(grant) => Ok(grant),
        Err(StoreError::Token(TokenRejection::Unknown)) => {
            Err(why_unknown(ctx, &hash, purpose).await)
        }
        Err(error) => Err(error.into()),
    }
}

/// A credential that is unknown for one purpose may be known for another.
async fn why_unknown(ctx: &Ctx, hash: &[u8; 32], purpose: TokenPurpose) -> Refusal {
    match purpose_of(ctx, hash).await {
        Ok(Some(other)) if other != purpose => wrong_purpose(other, purpose.as_str()).into(),
        Ok(_) => problem(ProblemCode::TokenUnknown).into(),
        Err(refusal) => refusal,
    }
}

/// A good credential in the wrong place.
pub(crate) fn wrong_purpose(is: TokenPurpose, wanted: &str) -> Problem {
    problem(ProblemCode::TokenWrongPurpose)
        .with_detail(format!("this is a credential for {}; expected {wanted}", is.as_str()))
}

/// What a credential is for, good or not; none: nobody knows it. Costs up to four reads, on paths
/// that no healthy client takes.
pub(crate) async fn purpose_of(ctx: &Ctx, hash: &[u8; 32]) -> ApiResult<Option<TokenPurpose>> {
    use TokenPurpose::{Admin, Agent, Bootstrap, Enrollment};
    for purpose in [Admin, Agent, Bootstrap, Enrollment] {
        match ctx.store.check_token(ctx.now(), *hash, purpose).await {
            Err(StoreError::Token(TokenRejection::Unknown)) => {}
            Ok(_) | Err(StoreError::Token(_)) => return Ok(Some(purpose)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}
