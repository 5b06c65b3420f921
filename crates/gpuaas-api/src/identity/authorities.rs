//! `/api/v1/authority`, and what agents are told of it: how another certificate authority takes the place
//! of the one that signs nodes' certificates, without a host being installed anew.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_engine::trust::trusted_pem;
use gpuaas_identity::{AuthorityError, AuthoritySet, BuiltIn, Issuer, certificate_lifetimes};
use gpuaas_store::{
    ExposeSecret as _, NewAuditEntry, NewAuthority, SecretString, Store, StoreError,
    StoredAuthority,
};
use gpuaas_types::agent::TrustBundle;
use gpuaas_types::api::{AuthorityReport, AuthorityState, ChangeAuthority, StageAuthority};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{AuditAction, Problem};
use serde_json::json;

use crate::ctx::{Ctx, NodeAccess};
use crate::http::body::Body;
use crate::http::problem::{ApiResult, problem};
use crate::identity::caller::Caller;
use crate::identity::certificates::Agent;

/// Why the authorities of a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritySetError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What it has.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

/// The authorities of a database, as they are now; none: there is none yet. `is_delivered`: nodes are given
/// their anchors, once there was more than one.
///
/// # Errors
/// See [`AuthoritySetError`].
pub async fn load_authorities(
    store: &Store,
    is_delivered: bool,
) -> Result<Option<AuthoritySet>, AuthoritySetError> {
    let known = store.authorities().await?;
    let Some(active) = of_state(&known, AuthorityState::Active) else { return Ok(None) };
    let generation = active.view.generation;
    let key = store.authority_key(generation).await?;
    let mut signer = BuiltIn::from_pem(key.expose_secret())?;
    let is_taking_over = of_state(&known, AuthorityState::Retiring).is_some();
    if let Some(cross) = active.cross_pem.as_ref().filter(|_| is_taking_over) {
        signer = signer.with_cross_certificate(cross.clone());
    }
    let trusted = known.iter().filter(|one| one.view.state != AuthorityState::Retired);
    let trusted: Vec<String> = trusted.map(|one| one.certificate_pem.clone()).collect();
    let is_delivered = is_delivered && known.len() > 1;
    Ok(Some(AuthoritySet::new((generation, signer), &trusted, is_delivered)?))
}

fn of_state(all: &[StoredAuthority], state: AuthorityState) -> Option<&StoredAuthority> {
    all.iter().find(|one| one.view.state == state)
}

/// What is to be kept of an authority beside its key.
///
/// # Errors
/// [`AuthorityError::Broken`] where that is no certificate.
pub fn new_authority(
    certificate_pem: &str,
    cross_pem: Option<String>,
) -> Result<NewAuthority, AuthorityError> {
    let read = certificate_lifetimes(certificate_pem)?.into_iter().next();
    let read =
        read.ok_or_else(|| AuthorityError::Broken("it contains no certificate".to_owned()))?;
    Ok(NewAuthority {
        certificate_pem: certificate_pem.to_owned(),
        digest: read.sha256,
        not_after: read.not_after,
        cross_pem,
    })
}

/// The issuer of an authority of our own.
fn own_issuer(ctx: &Ctx) -> ApiResult<Arc<Issuer>> {
    match &ctx.nodes {
        NodeAccess::Certificates(issuer) if issuer.is_own() => Ok(Arc::clone(issuer)),
        _ => Err(problem(ProblemCode::AuthorityExternal).into()),
    }
}

fn broken(error: &AuthorityError) -> Problem {
    tracing::error!(%error, "cannot change the certificate authority");
    problem(error.code()).with_detail(error.to_string())
}

/// Has this process ask the authorities as they are now; others read them in a moment.
async fn reload(ctx: &Ctx, issuer: &Issuer) -> ApiResult<()> {
    let loaded = load_authorities(&ctx.store, issuer.delivers_anchors()).await;
    let loaded = loaded.map_err(|error| match error {
        AuthoritySetError::Store(error) => crate::http::problem::Refusal::from(error),
        AuthoritySetError::Authority(error) => broken(&error).into(),
    })?;
    if let Some(set) = loaded {
        issuer.replace_authority(Arc::new(set)).map_err(|error| broken(&error))?;
    }
    Ok(())
}

async fn report(ctx: &Ctx, issuer: &Issuer) -> ApiResult<AuthorityReport> {
    let known = ctx.store.authorities().await?;
    let trust_digest = issuer.delivered_anchors().map(|(digest, _)| digest);
    let (digest, generation) = (trust_digest.as_deref(), issuer.generation());
    let laggards = ctx.store.authority_laggards(ctx.signing_time(), digest, generation).await?;
    Ok(AuthorityReport {
        authorities: known.into_iter().map(|one| one.view).collect(),
        trust_digest,
        nodes_without_bundle: laggards.without_bundle,
        nodes_with_former_certificate: laggards.with_former_certificate,
        nodes_to_enroll: laggards.to_enroll,
    })
}

/// `GET /api/v1/authority`.
pub(crate) async fn show(State(ctx): State<Ctx>) -> ApiResult<Json<AuthorityReport>> {
    let issuer = own_issuer(&ctx)?;
    report(&ctx, &issuer).await.map(Json)
}

/// `POST /api/v1/authority`: makes an authority that nodes learn to trust before it signs.
pub(crate) async fn stage_authority(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<StageAuthority>,
) -> ApiResult<(StatusCode, Json<AuthorityReport>)> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let issuer = own_issuer(&ctx)?;
    let known = ctx.store.authorities().await?;
    let missing = || problem(ProblemCode::AuthorityBroken);
    let active = of_state(&known, AuthorityState::Active).ok_or_else(missing)?.view.generation;
    let next = known.iter().map(|one| one.view.generation).max().unwrap_or(active) + 1;
    let key = ctx.store.authority_key(active).await?;
    let now = ctx.signing_time();
    let signer = BuiltIn::from_pem(key.expose_secret()).map_err(|error| broken(&error))?;
    let (made, cross) = signer.successor(now, next).map_err(|error| broken(&error))?;
    let certificate = gpuaas_identity::Authority::anchors_pem(&made);
    let new = new_authority(certificate, Some(cross)).map_err(|error| broken(&error))?;
    let digest = new.digest.clone();
    let key = SecretString::from(made.to_pem());
    let detail = json!({ "reason": reason, "generation": next, "digest": digest });
    let audit = NewAuditEntry::new(actor, AuditAction::AuthorityStage, next.to_string(), detail);
    ctx.store.stage_authority(now, next, new, &key, audit).await?;
    reload(&ctx, &issuer).await?;
    Ok((StatusCode::CREATED, Json(report(&ctx, &issuer).await?)))
}

/// `POST /api/v1/authority/activate`: lets the staged authority sign.
pub(crate) async fn activate(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<ChangeAuthority>,
) -> ApiResult<Json<AuthorityReport>> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let issuer = own_issuer(&ctx)?;
    reload(&ctx, &issuer).await?;
    let digest = digest_to_know(&issuer, asked.force);
    let detail = json!({ "reason": reason, "force": asked.force });
    let audit = NewAuditEntry::new(actor, AuditAction::AuthorityActivate, "", detail);
    ctx.store.activate_authority(ctx.signing_time(), digest, audit).await?;
    reload(&ctx, &issuer).await?;
    report(&ctx, &issuer).await.map(Json)
}

/// `POST /api/v1/authority/retire`: ends the trust in the authority that signs no more.
pub(crate) async fn retire(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<ChangeAuthority>,
) -> ApiResult<Json<AuthorityReport>> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let issuer = own_issuer(&ctx)?;
    reload(&ctx, &issuer).await?;
    let digest = digest_to_know(&issuer, asked.force);
    let detail = json!({ "reason": reason, "force": asked.force });
    let audit = NewAuditEntry::new(actor, AuditAction::AuthorityRetire, "", detail);
    ctx.store.retire_authority(ctx.signing_time(), digest, audit).await?;
    reload(&ctx, &issuer).await?;
    report(&ctx, &issuer).await.map(Json)
}

/// The digest that every agent has to know; none: nobody has to.
fn digest_to_know(issuer: &Issuer, force: bool) -> Option<String> {
    issuer.delivered_anchors().map(|(digest, _)| digest).filter(|_| !force)
}

/// What an agent is told with the answer to a heartbeat: a bundle of trust anchors other than the one that
/// it has, and whether to renew its certificate now.
pub(crate) async fn for_agent(
    ctx: &Ctx,
    agent: &Agent,
    known: Option<&str>,
) -> ApiResult<(Option<TrustBundle>, bool)> {
    let NodeAccess::Certificates(issuer) = &ctx.nodes else { return Ok((None, false)) };
    let renew = agent.authority < issuer.generation();
    let Some((digest, anchors)) = issuer.delivered_anchors() else { return Ok((None, renew)) };
    if known == Some(digest.as_str()) {
        if ctx.is_news_of_trust(agent.node_id, &digest) {
            ctx.store.note_trust_digest(agent.node_id, &digest).await?;
            ctx.note_trust(agent.node_id, digest);
        }
        return Ok((None, renew));
    }
    let site_id = ctx.store.node(agent.node_id).await?.site_id;
    let site = ctx.store.site(site_id).await?;
    let bundle = trusted_pem(&site.spec, Some(&anchors)).map(|pem| TrustBundle { digest, pem });
    Ok((bundle, renew))
}
