//! `/api/v1/admin/node-claims`: who has which bare-metal host as a whole.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use gpuaas_store::{NewNodeClaim, NodeClaimOutcome, SlotClaim, SlotClaimRelease, WholeNodeCounts};
use gpuaas_types::api::RunRequest;
use gpuaas_types::claim::{ClaimState, ClaimView, NodeClaimRequest};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::spec::BetweenTenants;
use gpuaas_types::{ClaimId, Problem, RunKind};

use crate::ctx::Ctx;
use crate::http::body::{JsonBytes, site_id};
use crate::http::idempotency::idempotency_key;
use crate::http::problem::{ApiResult, problem};
use crate::http::strict;
use crate::identity::caller::Caller;
use crate::run::begin::begin_run;
use crate::slice::claim_view::{OWNER_CHARS, view};
use crate::{check, slice};

/// `POST /api/v1/admin/node-claims`: gives an owner a bare-metal host as a whole.
pub(crate) async fn create(
    State(ctx): State<Ctx>,
    caller: Caller,
    headers: HeaderMap,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<(StatusCode, Json<ClaimView>)> {
    let request: NodeClaimRequest = strict::from_slice(&bytes)?;
    caller.check_site(request.site.as_deref())?;
    let site_id = site_id(&ctx, request.site.as_deref()).await?;
    let (actor, reason) = caller.actor_and_reason(&request.actor, &request.reason)?;
    let owner = "name the new owner of the host";
    let owner = check::words("owner", &request.owner, OWNER_CHARS, owner)?;
    let now = ctx.now();
    let new = NewNodeClaim {
        id: ClaimId::new(&*ctx.ids, now),
        site_id,
        owner,
        actor,
        reason,
        idempotency: idempotency_key("node-claim", &caller, &headers, &bytes)?,
    };
    match ctx.store.claim_node(now, new).await? {
        NodeClaimOutcome::Claimed(claim) => Ok((StatusCode::CREATED, Json(view(*claim)))),
        NodeClaimOutcome::Refused(counts) => {
            let unusable = slice::slots::unusable_hosts(&ctx, site_id).await?;
            Err(refused(counts, &unusable).into())
        }
    }
}

/// The refusal with what was counted.
fn refused(counts: WholeNodeCounts, unusable: &str) -> Problem {
    let WholeNodeCounts { in_service, claimed, not_ready } = counts;
    let (code, hint) = if not_ready > 0 {
        let hint = "list the nodes with `gpuaas node list`; run `gpuaas explain NODE` to see why \
                    one is not ready";
        (ProblemCode::NotReady, hint)
    } else {
        let hint = "see the owner of each host with `gpuaas slice show`, or onboard another host \
                    with `gpuaas node onboard HOST --site SITE --profile PROFILE --mac MAC \
                    --bmc-address ADDRESS`";
        (ProblemCode::NoneInSite, hint)
    };
    let detail = format!(
        "no whole node is available: of {in_service} bare-metal hosts, {claimed} are claimed and \
         {not_ready} are free but not ready{unusable}"
    );
    problem(code).with_detail(detail).with_hint(hint)
}

/// Takes a whole node back: nobody else gets it until the run that the profile wants between tenants has
/// ended well. Where that run cannot begin, the claim stays as it is and the problem says why: the same
/// release begins it again.
pub(crate) async fn release(
    ctx: &Ctx,
    caller: &Caller,
    asked: SlotClaimRelease,
) -> ApiResult<SlotClaim> {
    let (actor, reason) = (asked.actor.clone(), asked.reason.clone());
    let claim = ctx.store.begin_node_release(ctx.now(), asked).await?;
    if claim.state != ClaimState::Releasing {
        return Ok(claim);
    }
    let listed = ctx.store.listed_node(claim.node_id).await?;
    if listed.run.as_ref().is_some_and(|run| run.status.is_open()) {
        return Ok(claim);
    }
    let profile = ctx.store.profile(listed.node.profile_id).await?;
    let kind = match profile.spec.between_tenants {
        BetweenTenants::Reimage => RunKind::Reimage,
        BetweenTenants::SoftReset => RunKind::SoftReset,
        BetweenTenants::StorageCleanup => RunKind::StorageCleanup,
    };
    let reason = format!("release of claim {}: {reason}", claim.id);
    let request = RunRequest { kind, actor, reason, dry_run: false, profile: None };
    begin_run(ctx, caller, claim.node_id, request).await?;
    Ok(ctx.store.slot_claim(claim.id).await?)
}
