//! `gpuaas slice`: slots of hosts, from discovery to approval, and who claims them.

use std::fmt::Write as _;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::api::List;
use gpuaas_types::claim::{ClaimReleaseQuery, ClaimRequest, ClaimView, NodeClaimRequest};
use gpuaas_types::filter::ListFilter;
use gpuaas_types::slice::{
    RecordedProof, SliceLaunchRequest, SliceRun, SliceRunStatus, SlotRecoveryRequest,
};
use gpuaas_types::slot::{
    DiscoveryRequest, SliceMapView, SlotApprovalRequest, SlotBlocker, SlotInventory,
    SlotMapDifference,
};

use gpuaas_types::Timestamp;

use crate::args::{
    SliceClaimArgs, SliceCommand, SliceDiscoverArgs, SliceLaunchArgs, SliceRecoverArgs,
    SliceReleaseArgs, SliceShowArgs,
};
use crate::input_file::read_file;
use crate::node_task;
use crate::watch::Watch;

/// What is shown in the place of slots where the claim has no parts of the node.
const WHOLE_NODE: &str = "whole node";

/// Runs the command.
///
/// # Errors
/// What the control plane refuses, or that it does not answer.
pub(crate) async fn run(command: SliceCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        SliceCommand::Discover(args) => discover(args, terminal).await,
        SliceCommand::Map(args) => {
            let client = ApiClient::from_args(&args.api)?;
            if args.diff {
                let difference = client.slice_map_difference(&args.node).await?;
                return output::print(terminal, args.api.format, &difference, draw_difference);
            }
            let map = client.slice_map(&args.node).await?;
            output::print(terminal, args.api.format, &map, draw_map)
        }
        SliceCommand::Approve(args) => {
            let body = SlotApprovalRequest {
                digest: args.digest,
                slots: args.slots,
                actor: args.who.actor,
                reason: args.reason,
            };
            let slots = ApiClient::from_args(&args.api)?.approve_slots(&args.node, &body).await?;
            output::print(terminal, args.api.format, &slots, draw_slots)
        }
        SliceCommand::List(args) => {
            let client = ApiClient::from_args(&args.api)?;
            let filter = args.filter.as_ref().map(ListFilter::compact);
            let ask = async || client.slots(args.site.as_deref(), filter.as_deref()).await;
            let events = vec![("site", args.site.clone())];
            let (format, again) = (args.api.format, args.watch);
            let watch = Watch { client: &client, events, format, again };
            watch.run(terminal, ask, draw_slots, |_| false).await
        }
        SliceCommand::Claim(args) => claim(args, terminal).await,
        SliceCommand::Show(args) => show(args, terminal).await,
        SliceCommand::Launch(args) => launch(args, terminal).await,
        SliceCommand::Recover(args) => {
            let SliceRecoverArgs { slot, reason, who, api } = args;
            let body = SlotRecoveryRequest { actor: who.actor, reason };
            let index = slot.index.to_string();
            let slots = ApiClient::from_args(&api)?.recover_slot(&slot.node, &index, &body).await?;
            output::print(terminal, api.format, &slots, draw_slots)
        }
        SliceCommand::Release(args) => {
            let SliceReleaseArgs { claim, reason, fence, who, api } = args;
            let query = ClaimReleaseQuery { actor: who.actor, reason, fence };
            let claim = ApiClient::from_args(&api)?.release_slot_claim(&claim, &query).await?;
            output::print(terminal, api.format, &claim, draw_claim)
        }
    }
}

async fn claim(args: SliceClaimArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let Some(gpus) = args.gpus else { return claim_node(args, terminal).await };
    let body = ClaimRequest {
        gpus,
        site: args.site,
        numa: args.numa,
        owner: args.owner,
        reserved_seconds: args.reserved_seconds,
        actor: args.who.actor,
        reason: args.reason,
    };
    let client = ApiClient::from_args(&args.api)?;
    let claim = client.claim_slots(&body, args.key.as_deref()).await?;
    output::print(terminal, args.api.format, &claim, draw_claim)
}

async fn claim_node(args: SliceClaimArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let SliceClaimArgs { site, owner, reason, key, who, api, .. } = args;
    let body = NodeClaimRequest { site, owner, actor: who.actor, reason };
    let claim = ApiClient::from_args(&api)?.claim_node(&body, key.as_deref()).await?;
    output::print(terminal, api.format, &claim, draw_claim)
}

async fn launch(args: SliceLaunchArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let SliceLaunchArgs { claim, image, user_data, guest_timeout_seconds, reason, fence, who, api } =
        args;
    let user_data = user_data.as_deref().map(read_file).transpose()?.unwrap_or_default().into();
    let actor = who.actor;
    let body = SliceLaunchRequest { image, user_data, guest_timeout_seconds, fence, actor, reason };
    let claim = ApiClient::from_args(&api)?.launch_slice(&claim, &body).await?;
    output::print(terminal, api.format, &claim, draw_claim)
}

async fn show(args: SliceShowArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let events = vec![("site", args.site.clone())];
    let watch = Watch { client: &client, events, format: args.api.format, again: args.watch };
    if let Some(claim) = &args.claim {
        let is_over = |claim: &ClaimView| claim.ended_at.is_some();
        return watch
            .run(terminal, async || client.slot_claim(claim).await, draw_claim, is_over)
            .await;
    }
    let filter = args.filter.as_ref().map(ListFilter::compact);
    let (site, filter) = (args.site.as_deref(), filter.as_deref());
    let ask = async || client.slot_claims(site, args.ended, filter).await;
    watch.run(terminal, ask, draw_claims, |_| false).await
}

async fn discover(args: SliceDiscoverArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let body = DiscoveryRequest {
        actor: args.who.actor,
        reason: args.reason,
        within_seconds: args.within,
    };
    let mut task = client.discover_slices(&args.node, &body).await?;
    if args.wait {
        task = node_task::wait_with_limit(&client, task, args.timeout, terminal).await?;
    }
    output::print(terminal, args.api.format, &task, node_task::draw)?;
    if args.wait { node_task::verdict(&task) } else { Ok(()) }
}

fn draw_map(map: &SliceMapView, style: Style) -> String {
    let mut text = output::fields(&[
        ("node", map.node.clone()),
        ("digest", map.digest.clone()),
        ("discovered", format!("in {:.2} s", map.discovery_seconds)),
        ("partitions", map.partitions.len().to_string()),
    ]);
    let rows = map.slots.iter().map(|slot| {
        let codes: Vec<&str> = slot.blockers.iter().map(|one| one.code.as_str()).collect();
        vec![
            slot.index.to_string(),
            slot.state.to_string(),
            slot.gpu.address.clone(),
            slot.fabric_vf.as_ref().map(|vf| vf.address.clone()).unwrap_or_default(),
            slot.nvme.as_ref().map(|nvme| nvme.serial.clone()).unwrap_or_default(),
            slot.numa_node.map(|node| node.to_string()).unwrap_or_default(),
            slot.cpus.clone(),
            slot.hugepages.to_string(),
            codes.join(" "),
        ]
    });
    let header = ["SLOT", "STATE", "GPU", "FABRIC VF", "NVME", "NUMA", "CPUS", "PAGES", "BLOCKERS"];
    // Writing to a String cannot fail.
    let drops = ["CPUS", "PAGES", "NVME", "FABRIC VF"];
    write!(text, "\n{}", output::table_dropping(style, &header, &drops, rows)).ok();
    let blockers = |name: &str, blockers: &[SlotBlocker]| {
        let line = |one: &SlotBlocker| {
            let SlotBlocker { code, expected, seen, fixed_by, overridable } = one;
            let may = if *overridable { ", can be approved anyway" } else { "" };
            format!("\n{name} {code}: expected {expected}; seen {seen} ({fixed_by}{may})")
        };
        blockers.iter().map(line).collect::<String>()
    };
    text = text.trim_end().to_owned();
    text.push_str(&blockers("host", &map.host_blockers));
    for slot in &map.slots {
        text.push_str(&blockers(&format!("slot {}", slot.index), &slot.blockers));
    }
    text
}

fn draw_difference(difference: &SlotMapDifference, style: Style) -> String {
    let before = match (difference.before_at, &difference.before_digest) {
        (Some(at), Some(digest)) => format!("{digest} of {}", style.exact_moment(at)),
        _ => "no earlier map".to_owned(),
    };
    let after =
        format!("{} of {}", difference.after_digest, style.exact_moment(difference.after_at));
    let mut text =
        output::fields(&[("node", difference.node.clone()), ("before", before), ("after", after)]);
    let rows = difference.changes.iter().map(|change| {
        let gpu = change.gpu.clone().unwrap_or_else(|| "host".to_owned());
        vec![gpu, change.what.clone(), change.before.clone(), change.after.clone()]
    });
    if !difference.changes.is_empty() {
        let header = ["GPU", "WHAT", "BEFORE", "AFTER"];
        // Writing to a String cannot fail.
        write!(text, "\n{}", output::table(style, &header, rows)).ok();
    }
    text
}

fn draw_slots(inventory: &SlotInventory, style: Style) -> String {
    let rows = inventory.slots.iter().map(|slot| {
        vec![
            slot.node.clone(),
            slot.index.to_string(),
            slot.state.to_string(),
            style.moment(slot.since),
            slot.gpu.clone(),
            slot.blockers.join(" "),
            slot.reason.clone(),
        ]
    });
    let header = ["NODE", "SLOT", "STATE", "SINCE", "GPU", "BLOCKERS", "REASON"];
    let mut text = output::table_dropping(style, &header, &["REASON", "SINCE"], rows);
    let SlotInventory { reviewable, schedulable, .. } = inventory;
    // Writing to a String cannot fail.
    write!(text, "\n{reviewable} to review, {schedulable} free to lease").ok();
    text
}

fn draw_claim(claim: &ClaimView, style: Style) -> String {
    let moment = |at: Option<Timestamp>| at.map(|at| style.exact_moment(at)).unwrap_or_default();
    let gpus = match claim.whole_node {
        true => WHOLE_NODE.to_owned(),
        false => format!("{}, NUMA {}", claim.gpus, claim.numa),
    };
    let mut text = output::fields(&[
        ("claim", claim.id.to_string()),
        ("owner", claim.owner.clone()),
        ("state", claim.state.to_string()),
        ("node", format!("{} at {}", claim.node, claim.site)),
        ("gpus", gpus),
        ("fence", claim.fence.to_string()),
        ("made", moment(Some(claim.created_at))),
        ("expires", moment(claim.expires_at)),
        ("ended", moment(claim.ended_at)),
        ("reason", claim.reason.clone()),
    ]);
    let rows = claim.slots.iter().map(|slot| {
        vec![
            slot.index.to_string(),
            slot.gpu.clone(),
            slot.fabric_vf.clone().unwrap_or_default(),
            slot.nvme.clone().unwrap_or_default(),
            slot.numa_node.map(|node| node.to_string()).unwrap_or_default(),
            slot.cpus.clone(),
            slot.private_ip.clone().unwrap_or_default(),
        ]
    });
    let header = ["SLOT", "GPU", "FABRIC VF", "NVME", "NUMA", "CPUS", "ADDRESS"];
    let drops = ["CPUS", "NVME", "FABRIC VF"];
    if !claim.whole_node {
        // Writing to a String cannot fail.
        write!(text, "\n{}", output::table_dropping(style, &header, &drops, rows)).ok();
    }
    if let Some(run) = &claim.run {
        text = format!("{}\n{}", text.trim_end(), draw_run(run, style));
    }
    if !claim.proofs.is_empty() {
        text = format!("{}\n{}", text.trim_end(), draw_proofs(&claim.proofs, style));
    }
    text
}

/// The parts of a launch and of a release.
fn draw_run(run: &SliceRun, style: Style) -> String {
    let rows = run.parts.iter().map(|span| {
        let took = span.ended_at.map(|end| format!("{:.1} s", end.seconds_since(span.began_at)));
        vec![
            span.kind.to_string(),
            span.part.to_string(),
            style.moment(span.began_at),
            took.unwrap_or_else(|| run.status.to_string()),
        ]
    });
    let mut text = output::table(style, &["", "PART", "BEGAN", "TOOK"], rows);
    if run.status != SliceRunStatus::Succeeded && !run.reason.is_empty() {
        // Writing to a String cannot fail.
        write!(text, "\n{} {}: {}", run.kind, run.status, run.reason).ok();
    }
    text
}

fn draw_proofs(proofs: &[RecordedProof], style: Style) -> String {
    let rows = proofs.iter().map(|RecordedProof { at, proof }| {
        vec![
            style.moment(*at),
            proof.slot.to_string(),
            proof.subject.to_string(),
            proof.result.to_string(),
            proof.device.clone(),
            proof.method.clone(),
            proof.reader.clone(),
            proof.detail.clone(),
        ]
    });
    let header = ["AT", "SLOT", "PROOF", "RESULT", "DEVICE", "METHOD", "READER", "DETAIL"];
    output::table_dropping(style, &header, &["AT", "READER", "METHOD", "DEVICE"], rows)
}

fn draw_claims(claims: &List<ClaimView>, style: Style) -> String {
    let rows = claims.items.iter().map(|claim| {
        let slots: Vec<String> = claim.slots.iter().map(|slot| slot.index.to_string()).collect();
        let slots = if claim.whole_node { WHOLE_NODE.to_owned() } else { slots.join(",") };
        vec![
            claim.id.to_string(),
            claim.owner.clone(),
            claim.state.to_string(),
            claim.node.clone(),
            slots,
            style.moment(claim.created_at),
            claim.expires_at.map(|at| style.moment(at)).unwrap_or_default(),
        ]
    });
    let header = ["CLAIM", "OWNER", "STATE", "NODE", "SLOTS", "MADE", "EXPIRES"];
    output::table_dropping(style, &header, &["EXPIRES", "MADE"], rows)
}
