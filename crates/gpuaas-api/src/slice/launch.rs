//! Launch of a claim, and an operator's word for a slot.

use std::ops::RangeInclusive;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_core::domain::DomainPolicy;
use gpuaas_core::slice_run::launch_spec;
use gpuaas_store::{NewSliceLaunch, SlotRecovery};
use gpuaas_types::claim::{ClaimState, ClaimView};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::slice::{
    MOST_USER_DATA_BYTES, SliceLaunchRequest, SlotRecoveryRequest, is_image_name,
};
use gpuaas_types::slot::SlotInventory;

use crate::ctx::Ctx;
use crate::http::body::{Body, Key, Keys};
use crate::http::problem::{ApiResult, invalid, problem};
use crate::identity::caller::Caller;
use crate::node::view::find_node;
use crate::slice;
use crate::slice::claims::{find_claim, view_with_run};
use crate::slice::guest_user_data::silencing_key;

/// Seconds that a launch may give its guest to call.
const GUEST_TIMEOUTS: RangeInclusive<u32> = 60..=86_400;

/// `POST /api/v1/admin/slice-claims/CLAIM/launch`: starts the guest of a reserved claim.
pub(crate) async fn launch(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(request): Body<SliceLaunchRequest>,
) -> ApiResult<(StatusCode, Json<ClaimView>)> {
    let id = find_claim(&ctx, &text).await?;
    let SliceLaunchRequest { image, user_data, guest_timeout_seconds, fence, actor, reason } =
        request;
    let (actor, reason) = caller.actor_and_reason(&actor, &reason)?;
    if !is_image_name(&image) {
        let wanted = "expected a file name of letters, digits, dots, underscores and dashes";
        return Err(invalid("image", wanted).into());
    }
    if user_data.expose().len() > MOST_USER_DATA_BYTES {
        return Err(
            invalid("user_data", format!("expected at most {MOST_USER_DATA_BYTES} bytes")).into()
        );
    }
    if let Some(key) = silencing_key(user_data.expose()) {
        let wanted = format!(
            "must not contain {key}: the host configures the guest to report that it booted"
        );
        return Err(invalid("user_data", wanted).into());
    }
    if guest_timeout_seconds.is_some_and(|seconds| !GUEST_TIMEOUTS.contains(&seconds)) {
        let wanted = format!("expected {} to {} s", GUEST_TIMEOUTS.start(), GUEST_TIMEOUTS.end());
        return Err(invalid("guest_timeout_seconds", wanted).into());
    }
    let claim = ctx.store.slot_claim(id).await?;
    if claim.state != ClaimState::Reserved {
        let detail = format!("claim {id} is {}", claim.state);
        return Err(problem(ProblemCode::ClaimInUse).with_detail(detail).into());
    }
    let topology = ctx.store.slice_topology(claim.node_id).await?;
    let topology = topology.ok_or_else(|| problem(ProblemCode::SlotMapMissing))?.report.topology;
    let policy = DomainPolicy::from_inputs(&slice::report::inputs(&ctx, claim.node_id).await?);
    let texts = (image.as_str(), user_data.expose());
    let mut spec = launch_spec(id, &claim.slots, &topology, &policy, texts).map_err(|fault| {
        let detail = format!("{}: {fault}", fault.code());
        problem(ProblemCode::LaunchRefused).with_detail(detail)
    })?;
    spec.guest_timeout_seconds = guest_timeout_seconds;
    let fence = fence.map(|fence| i64::try_from(fence).unwrap_or(i64::MAX));
    let new = NewSliceLaunch { id, fence, spec, actor, reason };
    let claim = ctx.store.launch_slot_claim(ctx.now(), new).await?;
    ctx.wake_engine();
    Ok((StatusCode::ACCEPTED, Json(view_with_run(&ctx, claim).await?)))
}

/// `POST /api/v1/admin/nodes/NODE/slots/INDEX/recovery`: frees a slot at an operator's word.
pub(crate) async fn recover(
    State(ctx): State<Ctx>,
    caller: Caller,
    Keys((node, index)): Keys<(String, String)>,
    Body(request): Body<SlotRecoveryRequest>,
) -> ApiResult<Json<SlotInventory>> {
    let node_id = find_node(&ctx, &node).await?;
    let index = index.parse().map_err(|_| invalid("index", "expected a slot number"))?;
    let (actor, reason) = caller.actor_and_reason(&request.actor, &request.reason)?;
    let asked = SlotRecovery { node_id, index, actor, reason };
    ctx.store.recover_slot(ctx.now(), asked).await?;
    let slots = ctx.store.slots_of_node(node_id).await?;
    Ok(Json(SlotInventory::new(slots.into_iter().map(slice::slots::view).collect())))
}
