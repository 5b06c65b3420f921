//! `/api/v1/admin/slice-claims`: who has which slots.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use gpuaas_core::placement::PlacementRefusal;
use gpuaas_store::{
    ClaimOutcome, IdKind, NewSlotClaim, SlotClaim, SlotClaimFilter, SlotClaimRelease,
};
use gpuaas_types::api::List;
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::claim::{ClaimRefusal, ClaimReleaseQuery, ClaimRequest, ClaimState, ClaimView};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::FilterList;
use gpuaas_types::text;
use gpuaas_types::{ClaimId, Problem};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::check;
use crate::ctx::Ctx;
use crate::http::body::{JsonBytes, Key, QueryParams, site_id};
use crate::http::idempotency::idempotency_key;
use crate::http::pages::{PageRequest, list_filter};
use crate::http::problem::{ApiResult, invalid, problem};
use crate::http::{id_prefix, strict};
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, CheckedRequest, Guarded};
use crate::slice::claim_view::{OWNER_CHARS, view};
use crate::slice::{self, node_claims};

/// GPUs that a claim may want: least, and most.
const GPUS: (u32, u32) = (1, 8);
/// Seconds for which a claim may be reserved: least, and most.
const RESERVED_SECONDS: (u32, u32) = (10, 24 * 3600);

/// `POST /api/v1/admin/slice-claims`: reserves slots of one node.
pub(crate) async fn create(
    State(ctx): State<Ctx>,
    caller: Caller,
    headers: HeaderMap,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<(StatusCode, Json<ClaimView>)> {
    let request: ClaimRequest = strict::from_slice(&bytes)?;
    caller.check_site(request.site.as_deref())?;
    let site_id = site_id(&ctx, request.site.as_deref()).await?;
    let (actor, reason) = caller.actor_and_reason(&request.actor, &request.reason)?;
    let owner = "name the new owner of the slots";
    let owner = check::words("owner", &request.owner, OWNER_CHARS, owner)?;
    let ClaimRequest { gpus, numa, reserved_seconds, .. } = request;
    within("gpus", gpus, GPUS)?;
    within("reserved_seconds", reserved_seconds, RESERVED_SECONDS)?;
    let now = ctx.now();
    let new = NewSlotClaim {
        id: ClaimId::new(&*ctx.ids, now),
        gpus,
        numa,
        site_id,
        owner,
        expires_at: now.plus_seconds(f64::from(reserved_seconds) * ctx.clock.factor()),
        actor,
        reason,
        idempotency: idempotency_key("slice-claim", &caller, &headers, &bytes)?,
    };
    match ctx.store.claim_slots(now, new).await? {
        ClaimOutcome::Claimed { claim, .. } => Ok((StatusCode::CREATED, Json(view(*claim)))),
        ClaimOutcome::Refused(refusal) => {
            let unusable = slice::slots::unusable_hosts(&ctx, site_id).await?;
            Err(refused(gpus, refusal, &unusable).into())
        }
    }
}

fn within(field: &str, value: u32, (least, most): (u32, u32)) -> Result<(), Problem> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(invalid(field, format!("expected {least} to {most}")))
}

/// The refusal with what was counted.
fn refused(gpus: u32, refusal: PlacementRefusal, unusable: &str) -> Problem {
    let PlacementRefusal { reason, free_slots, most_on_one_node, nodes_not_ready } = refusal;
    let code = match reason {
        ClaimRefusal::NoneInSite => ProblemCode::NoneInSite,
        ClaimRefusal::NoSingleNodeFits => ProblemCode::NoSingleNodeFits,
        ClaimRefusal::NotReady => ProblemCode::NotReady,
    };
    problem(code).with_detail(format!(
        "requested slots: {gpus}; free slots on ready nodes: {free_slots}, at most \
         {most_on_one_node} on one node; nodes with enough free slots that are not ready: \
         {nodes_not_ready}{unusable}"
    ))
}

/// The query of [`list`].
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimFilter {
    /// Only of this site.
    site: Option<String>,
    /// Those that ended as well.
    #[serde(default)]
    ended: bool,
    /// Filter expression, such as `owner=team-a state=reserved`.
    #[schemars(length(max = 2000))]
    filter: Option<String>,
    /// Identifier of the last claim of the page before.
    #[schemars(with = "Option<text::IdText>")]
    after: Option<String>,
    /// Most claims to answer.
    #[schemars(range(min = 1))]
    limit: Option<u32>,
}

/// `GET /api/v1/admin/slice-claims?site=&ended=&filter=&after=&limit=`: newest first.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(asked): QueryParams<ClaimFilter>,
) -> ApiResult<Json<List<ClaimView>>> {
    let site_id = site_id(&ctx, asked.site.as_deref()).await?;
    let page = PageRequest::parse(asked.after.as_deref(), asked.limit)?;
    let expression = list_filter(FilterList::Claims, asked.filter.as_deref())?;
    let expression = expression.as_ref();
    let filter = SlotClaimFilter { site_id, ended: asked.ended, expression };
    let read = ctx.store.slot_claims(filter, page.query()).await?;
    Ok(Json(page.list(read, |claim| claim.id.to_string(), view)))
}

/// `GET /api/v1/admin/slice-claims/CLAIM`.
pub(crate) async fn show(State(ctx): State<Ctx>, Key(text): Key) -> ApiResult<Json<ClaimView>> {
    let id = find_claim(&ctx, &text).await?;
    Ok(Json(view_with_run(&ctx, ctx.store.slot_claim(id).await?).await?))
}

/// `DELETE /api/v1/admin/slice-claims/CLAIM?actor=&reason=&fence=`: frees what is only reserved, and
/// begins to take back what was launched.
pub(crate) async fn release(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    QueryParams(asked): QueryParams<ClaimReleaseQuery>,
) -> ApiResult<Json<ClaimView>> {
    let id = find_claim(&ctx, &text).await?;
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let kept = serde_json::to_value(&asked).map_err(|_| problem(ProblemCode::Internal))?;
    let fence = asked.fence.map(|fence| i64::try_from(fence).unwrap_or(i64::MAX));
    let release = SlotClaimRelease { id, fence, actor, reason };
    if ctx.store.slot_claim(id).await?.whole_node {
        return Ok(Json(view(node_claims::release(&ctx, &caller, release).await?)));
    }
    let claim = match ctx.store.release_slot_claim(ctx.now(), release.clone()).await {
        Err(error) if error.code() == ProblemCode::ClaimInUse.as_str() => {
            hold_release(&ctx, &caller, &release, kept).await?;
            ctx.store.begin_slice_release(ctx.now(), release).await?
        }
        released => released?,
    };
    ctx.wake_engine();
    Ok(Json(view_with_run(&ctx, claim).await?))
}

/// Counts the release of a launched claim as erasing: the drives of its slots are erased. Once it has
/// begun, the same release again is not counted.
async fn hold_release(
    ctx: &Ctx,
    caller: &Caller,
    asked: &SlotClaimRelease,
    kept: Value,
) -> ApiResult<()> {
    let claim = ctx.store.slot_claim(asked.id).await?;
    if !matches!(claim.state, ClaimState::Preparing | ClaimState::InUse) {
        return Ok(());
    }
    let node = ctx.store.node(claim.node_id).await?;
    let site = ctx.store.site(node.site_id).await?;
    let checked = CheckedRequest {
        guarded: Guarded::Erase(1),
        kind: ApprovalKind::ClaimRelease,
        site: &site,
        node_id: Some(node.id),
        summary: format!("the release of claim {} on {}", claim.id, node.hostname),
        reason: asked.reason.clone(),
        request: ApprovalRequest {
            method: "DELETE".to_owned(),
            path: "/api/v1/admin/slice-claims/{claim}".to_owned(),
            key: claim.id.to_string(),
            body: kept,
        },
        target: json!({ "claim": claim.id, "fence": claim.fence }),
    };
    second_person::check(ctx, caller, checked).await
}

/// The claim named by an identifier or a unique prefix of one.
///
/// # Errors
/// `claim_not_found`, `id_ambiguous`; the database's.
pub(crate) async fn find_claim(ctx: &Ctx, text: &str) -> ApiResult<ClaimId> {
    let missing = (ProblemCode::ClaimNotFound, "a claim");
    id_prefix::resolve(ctx, text, (IdKind::Claim, ClaimId), missing).await
}

/// The claim with its launch or release.
pub(crate) async fn view_with_run(ctx: &Ctx, claim: SlotClaim) -> ApiResult<ClaimView> {
    let stored = ctx.store.slice_run(claim.id).await?;
    let proofs =
        if claim.whole_node { ctx.store.claim_proofs(claim.id).await? } else { Vec::new() };
    let mut view = ClaimView { proofs, ..view(claim) };
    if let Some(stored) = stored {
        (view.run, view.proofs) = (Some(stored.run), stored.proofs);
    }
    Ok(view)
}
