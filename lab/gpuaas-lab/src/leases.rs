//! Leases of a lab: each host's slots are discovered and approved, one slice of each host is launched,
//! and its slots come back with proof.
//!
//! The lab approves one, two or four slots of a host, by its place in the rack, and claims as many: so
//! best fit has one host for each claim. Every step reads how things stand first, so a lab that was killed
//! goes on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_types::SecretText;
use gpuaas_types::claim::{ClaimReleaseQuery, ClaimRequest, ClaimState, ClaimView, NumaPreference};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::slice::{PartSpan, SliceLaunchRequest, SliceRunKind};
use gpuaas_types::slot::{
    DiscoveryRequest, SliceMapView, SlotApprovalRequest, SlotState, SlotView,
};
use serde::Serialize;
use tokio::time::interval;

use crate::operator::SITE;
use crate::slice_host::GUEST_IMAGE;

const ACTOR: &str = "lab";
/// Seconds for which a claim is reserved.
const RESERVED_SECONDS: u32 = 3600;
const LOOK: Duration = Duration::from_millis(100);
/// Looks at one thing before the lab gives up: ten minutes.
const LOOKS: u32 = 6000;
/// GPUs of the slice of a host, by its place in the rack.
const GPUS: [u32; 3] = [1, 2, 4];

/// A slice that was launched and released, and its host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeaseRow {
    /// Hostname of the host.
    pub node: String,
    /// Slots that its map has.
    pub mapped_slots: usize,
    /// Slots that were approved.
    pub approved_slots: usize,
    /// Seconds that the agent read the host for; in no part of the launch.
    pub discovery_seconds: f64,
    /// Numbers of the claim's slots.
    pub slots: Vec<u32>,
    /// How the claim stands.
    pub state: ClaimState,
    /// Seconds of each part of the launch, by the lab's clock.
    pub launch_parts_seconds: BTreeMap<String, f64>,
    /// Seconds of each part of the release.
    pub release_parts_seconds: BTreeMap<String, f64>,
    /// Proofs by what they are about and what they say.
    pub proofs: BTreeMap<String, usize>,
    /// Slots of the host that are free in the end.
    pub free_slots: usize,
}

/// GPUs of the slice of the host at `index` of the rack.
fn gpus_of(index: usize) -> u32 {
    GPUS[index % GPUS.len()]
}

/// Leases a slice of each of these hosts, in rack order, and takes it back. Their gates are reported.
///
/// # Errors
/// What the control plane refused; `scenario_unset` where something does not come about.
pub async fn lease(client: &ApiClient, hosts: &[&str], reason: &str) -> Result<(), Failure> {
    for (index, host) in hosts.iter().enumerate() {
        approve(client, host, gpus_of(index), reason).await?;
    }
    let mut claims = Vec::new();
    // The largest one first, as only one host has so many slots.
    for index in (0..hosts.len()).rev() {
        claims.push(claim(client, index, reason).await?);
    }
    let goes = claims.iter().map(|id| launch_and_release(client, id, reason));
    futures::future::try_join_all(goes).await.map(drop)
}

fn not_reached(what: &str) -> Failure {
    Failure::local(CommandCode::ScenarioUnset, format!("{what} after {LOOKS} checks"))
}

/// Discovers the slots of a host and approves the first of them, unless that was done.
async fn approve(client: &ApiClient, host: &str, gpus: u32, reason: &str) -> Result<(), Failure> {
    let known = client.slots(Some(SITE), None).await?.slots;
    if known.iter().any(|slot| slot.node == host && slot.approved_by.is_some()) {
        return Ok(());
    }
    let (actor, reason) = (ACTOR.to_owned(), reason.to_owned());
    let wanted = DiscoveryRequest {
        actor: actor.clone(),
        reason: reason.clone(),
        within_seconds: RESERVED_SECONDS,
    };
    let task = client.discover_slices(host, &wanted).await?.id.to_string();
    let mut looks = interval(LOOK);
    let mut left = LOOKS;
    while client.task(&task).await?.finished_at.is_none() {
        left = left
            .checked_sub(1)
            .ok_or_else(|| not_reached("the host's slots were not discovered"))?;
        looks.tick().await;
    }
    let map = client.slice_map(host).await?;
    let slots = (0..gpus).collect();
    let approval = SlotApprovalRequest { digest: map.digest, slots, actor, reason };
    client.approve_slots(host, &approval).await.map(drop)
}

/// Claims the slots of the host at `index` of the rack; the same claim again where that was done.
async fn claim(client: &ApiClient, index: usize, reason: &str) -> Result<String, Failure> {
    let request = ClaimRequest {
        gpus: gpus_of(index),
        site: Some(SITE.to_owned()),
        numa: NumaPreference::Required,
        owner: format!("tenant-{index}"),
        reserved_seconds: RESERVED_SECONDS,
        actor: ACTOR.to_owned(),
        reason: reason.to_owned(),
    };
    let claim = client.claim_slots(&request, Some(&format!("lab-lease-{index}"))).await?;
    Ok(claim.id.to_string())
}

/// Does what comes next of a claim until it ended.
async fn launch_and_release(client: &ApiClient, id: &str, reason: &str) -> Result<(), Failure> {
    let mut looks = interval(LOOK);
    for _ in 0..LOOKS {
        looks.tick().await;
        let claim = client.slot_claim(id).await?;
        match claim.state {
            state if !state.is_live() => return Ok(()),
            ClaimState::Reserved => {
                let launch = SliceLaunchRequest {
                    image: GUEST_IMAGE.to_owned(),
                    user_data: SecretText::default(),
                    guest_timeout_seconds: None,
                    fence: Some(claim.fence),
                    actor: ACTOR.to_owned(),
                    reason: reason.to_owned(),
                };
                client.launch_slice(id, &launch).await?;
            }
            ClaimState::InUse => {
                let release = ClaimReleaseQuery {
                    actor: ACTOR.to_owned(),
                    reason: reason.to_owned(),
                    fence: Some(claim.fence),
                };
                client.release_slot_claim(id, &release).await?;
            }
            ClaimState::CleanupBlocked => {
                let why = claim.run.map(|run| run.reason).unwrap_or_default();
                return Err(Failure::local(CommandCode::ScenarioUnset, why));
            }
            _ => {}
        }
    }
    Err(not_reached("a slice was not launched and released"))
}

/// What became of the leases of these hosts, in rack order.
///
/// # Errors
/// What the control plane refused.
pub async fn gather(client: &ApiClient, hosts: &[&str]) -> Result<Vec<LeaseRow>, Failure> {
    let slots = client.slots(Some(SITE), None).await?.slots;
    let mut rows = Vec::new();
    for listed in client.slot_claims(Some(SITE), true, None).await?.items {
        let claim = client.slot_claim(&listed.id.to_string()).await?;
        let map = client.slice_map(&claim.node).await?;
        rows.push(row(claim, &map, &slots));
    }
    let place = |node: &str| hosts.iter().position(|host| *host == node);
    rows.sort_by_key(|row| place(&row.node));
    Ok(rows)
}

fn row(claim: ClaimView, map: &SliceMapView, slots: &[SlotView]) -> LeaseRow {
    let own = slots.iter().filter(|slot| slot.node == claim.node);
    let spans = claim.run.map(|run| run.parts).unwrap_or_default();
    let mut proofs = BTreeMap::new();
    for one in &claim.proofs {
        let name = format!("{} {}", one.proof.subject, one.proof.result);
        *proofs.entry(name).or_default() += 1;
    }
    LeaseRow {
        mapped_slots: map.slots.len(),
        approved_slots: own.clone().filter(|slot| slot.approved_by.is_some()).count(),
        discovery_seconds: map.discovery_seconds,
        slots: claim.slots.iter().map(|slot| slot.index).collect(),
        state: claim.state,
        launch_parts_seconds: part_seconds(&spans, SliceRunKind::Launch),
        release_parts_seconds: part_seconds(&spans, SliceRunKind::Release),
        proofs,
        free_slots: own.filter(|slot| slot.state == SlotState::Free).count(),
        node: claim.node,
    }
}

fn part_seconds(spans: &[PartSpan], kind: SliceRunKind) -> BTreeMap<String, f64> {
    let mut parts = BTreeMap::new();
    for span in spans.iter().filter(|span| span.kind == kind) {
        let seconds = span.ended_at.map_or(0.0, |ended| ended.seconds_since(span.began_at));
        *parts.entry(span.part.to_string()).or_default() += seconds;
    }
    parts
}

/// The leases as text: without identifiers and durations, so two runs print the same.
#[must_use]
pub fn draw(rows: &[LeaseRow]) -> String {
    let mut text = String::new();
    for row in rows {
        let slots: Vec<String> = row.slots.iter().map(u32::to_string).collect();
        // Writing to a String cannot fail.
        writeln!(
            text,
            "\n{}: {} of {} slots approved; leased and {}: {}; free again: {}",
            row.node,
            row.approved_slots,
            row.mapped_slots,
            row.state,
            slots.join(", "),
            row.free_slots,
        )
        .ok();
        for (subject, count) in &row.proofs {
            writeln!(text, "  {count:>3} {subject}").ok();
        }
    }
    text
}

/// How long each part took, and how long the hosts were read for.
#[must_use]
pub fn draw_times(rows: &[LeaseRow]) -> String {
    let mut text = String::new();
    for row in rows {
        writeln!(text, "{:<12}discovery {:.2} s", row.node, row.discovery_seconds).ok();
        for (name, parts) in
            [("launch", &row.launch_parts_seconds), ("release", &row.release_parts_seconds)]
        {
            let parts: Vec<String> =
                parts.iter().map(|(part, seconds)| format!("{part} {seconds:.1}")).collect();
            writeln!(text, "{:<12}{name:<10}{}", "", parts.join(", ")).ok();
        }
    }
    text
}
