//! `/api/v1/admin/nodes/NODE/slice-topology` and `/api/v1/admin/slots`: what slices can be made of,
//! and what of it an operator approved.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use gpuaas_core::slots::map_difference;
use gpuaas_store::{NewSlotApproval, SliceTopology, StoredSlot};
use gpuaas_types::agent::{Gate, Operation};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::FilterList;
use gpuaas_types::slot::{
    DiscoveryRequest, SliceMapView, SlotApprovalRequest, SlotInventory, SlotMapDifference,
    SlotState, SlotView,
};
use gpuaas_types::task::{TaskRequest, TaskView};
use gpuaas_types::{NodeId, SiteId};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::agent::tasks;
use crate::ctx::Ctx;
use crate::http::body::{Body, JsonBytes, Key, QueryParams, site_id};
use crate::http::idempotency::idempotency_key;
use crate::http::pages::list_filter;
use crate::http::problem::{ApiResult, invalid, problem};
use crate::http::strict;
use crate::identity::caller::Caller;
use crate::node::view::find_node;

/// Length of a digest in hexadecimal digits.
const DIGEST_DIGITS: usize = 64;

/// `POST /api/v1/admin/nodes/NODE/slice-topology/discovery`: has the agent read its host.
pub(crate) async fn discover(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    headers: HeaderMap,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<(StatusCode, Json<TaskView>)> {
    let DiscoveryRequest { actor, reason, within_seconds } = strict::from_slice(&bytes)?;
    let node_id = find_node(&ctx, &text).await?;
    let key = idempotency_key(&format!("slice-discovery:{node_id}"), &caller, &headers, &bytes)?;
    let operation = Operation::DiscoverSlices {};
    let request = TaskRequest { operation, dry_run: false, actor, reason, within_seconds };
    tasks::issue(&ctx, &caller, node_id, request, key).await
}

/// `GET /api/v1/admin/nodes/NODE/slice-topology`: the map of the last discovery, with the states of
/// its slots.
pub(crate) async fn map(State(ctx): State<Ctx>, Key(text): Key) -> ApiResult<Json<SliceMapView>> {
    let node_id = find_node(&ctx, &text).await?;
    let SliceTopology { report, mut map, .. } = topology(&ctx, node_id, &text).await?;
    let slots = ctx.store.slots_of_node(node_id).await?;
    let states: BTreeMap<u32, SlotState> =
        slots.iter().map(|known| (known.slot.index, known.state)).collect();
    for slot in &mut map.slots {
        slot.state = states.get(&slot.index).copied().unwrap_or(slot.state);
    }
    Ok(Json(SliceMapView {
        node: map.node,
        digest: map.digest,
        discovery_seconds: report.discovery_seconds,
        host_blockers: map.host_blockers,
        partitions: map.partitions,
        slots: map.slots,
    }))
}

/// `GET /api/v1/admin/nodes/NODE/slice-topology/diff`: the last discovery and the one before.
pub(crate) async fn difference(
    State(ctx): State<Ctx>,
    Key(text): Key,
) -> ApiResult<Json<SlotMapDifference>> {
    let node_id = find_node(&ctx, &text).await?;
    let SliceTopology { observed_at, map, previous, .. } = topology(&ctx, node_id, &text).await?;
    let changes =
        previous.as_ref().map(|(_, before)| map_difference(before, &map)).unwrap_or_default();
    let (before_at, before_digest) =
        previous.map_or((None, None), |(at, before)| (Some(at), Some(before.digest)));
    let (node, after_at, after_digest) = (map.node, observed_at, map.digest);
    Ok(Json(SlotMapDifference { node, before_at, before_digest, after_at, after_digest, changes }))
}

/// `POST /api/v1/admin/nodes/NODE/slice-topology/approval`: makes slots of the map free for leases.
pub(crate) async fn approve(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(request): Body<SlotApprovalRequest>,
) -> ApiResult<Json<SlotInventory>> {
    let node_id = find_node(&ctx, &text).await?;
    let SlotApprovalRequest { digest, slots, actor, reason } = request;
    let (actor, reason) = caller.actor_and_reason(&actor, &reason)?;
    let digest = digest.trim().to_ascii_lowercase();
    if digest.len() != DIGEST_DIGITS || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let wanted =
            format!("expected the digest of the slot map: {DIGEST_DIGITS} hexadecimal digits");
        return Err(invalid("digest", wanted).into());
    }
    if let Some(profile) = profile_without_slices(&ctx, node_id).await? {
        let detail = format!("{text} has profile {profile}, which is not a slice profile");
        let hint = format!(
            "redeploy it with a slice profile: `gpuaas node reimage {text} --profile PROFILE \
             --reason WHY`"
        );
        return Err(problem(ProblemCode::NotASliceHost).with_detail(detail).with_hint(hint).into());
    }
    let new = NewSlotApproval { node_id, digest, slots, actor, reason };
    let slots = ctx.store.approve_slots(ctx.now(), new).await?;
    Ok(Json(SlotInventory::new(slots.into_iter().map(view).collect())))
}

/// Name of the node's profile where that makes no slice host; none: it does.
async fn profile_without_slices(ctx: &Ctx, node_id: NodeId) -> ApiResult<Option<String>> {
    let profile_id = ctx.store.node(node_id).await?.profile_id;
    let brief = ctx.store.profile_briefs([profile_id]).await?.remove(&profile_id);
    if brief.is_none_or(|one| ctx.bundles.has_gate(&one.bundle_pins, Gate::SliceReady)) {
        return Ok(None);
    }
    Ok(Some(ctx.store.profile(profile_id).await?.status.name))
}

/// Hosts of a site, or of every site, that have free slots and a profile that makes no slice host, as the
/// end of a refusal; empty: there are none. Their slots were approved under another profile, or before
/// that was refused.
pub(crate) async fn unusable_hosts(ctx: &Ctx, site_id: Option<SiteId>) -> ApiResult<String> {
    let free = ctx.store.slots(site_id, None).await?;
    let free = free.into_iter().filter(|slot| slot.state == SlotState::Free);
    let hosts: BTreeMap<NodeId, String> = free.map(|slot| (slot.node_id, slot.hostname)).collect();
    let mut unusable = Vec::new();
    for (node_id, hostname) in hosts {
        if profile_without_slices(ctx, node_id).await?.is_some() {
            unusable.push(hostname);
        }
    }
    if unusable.is_empty() {
        return Ok(String::new());
    }
    Ok(format!(
        "; hosts with free slots but without a slice profile: {} (`gpuaas node reimage HOST \
         --profile PROFILE`)",
        unusable.join(", ")
    ))
}

/// The query of [`list`].
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlotFilter {
    /// Only of this site.
    site: Option<String>,
    /// Filter expression, such as `state=free,candidate`.
    #[schemars(length(max = 2000))]
    filter: Option<String>,
}

/// `GET /api/v1/admin/slots?site=&filter=`: by hostname and number.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(filter): QueryParams<SlotFilter>,
) -> ApiResult<Json<SlotInventory>> {
    let site_id = site_id(&ctx, filter.site.as_deref()).await?;
    let asked = list_filter(FilterList::Slots, filter.filter.as_deref())?;
    let slots = ctx.store.slots(site_id, asked.as_ref()).await?;
    Ok(Json(SlotInventory::new(slots.into_iter().map(view).collect())))
}

async fn topology(ctx: &Ctx, node_id: NodeId, text: &str) -> ApiResult<SliceTopology> {
    let found = ctx.store.slice_topology(node_id).await?;
    Ok(found.ok_or_else(|| {
        problem(ProblemCode::SlotMapMissing)
            .with_detail(format!("the slots of {text} have not been discovered"))
    })?)
}

pub(crate) fn view(stored: StoredSlot) -> SlotView {
    let StoredSlot { hostname, site, state, digest, slot, since, reason, .. } = stored;
    SlotView {
        node: hostname,
        site,
        index: slot.index,
        state,
        since,
        reason,
        gpu: slot.gpu.address,
        digest,
        approved_by: stored.approved_by,
        claim: stored.claim_id,
        flagged: stored.flagged,
        blockers: slot.blockers.into_iter().map(|blocker| blocker.code).collect(),
    }
}
