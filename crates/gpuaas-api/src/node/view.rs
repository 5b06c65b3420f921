//! Nodes by what people call them, and as answers show them.

use gpuaas_core::connectivity::connectivity_of;
use gpuaas_core::record::NodeRecord;
use gpuaas_core::step_duration;
use gpuaas_store::{IdKind, ListedNode, RunBrief, StoreError};
use gpuaas_types::api::{Lateness, MaasView, NodeView, RunSummary, TimelineEvent};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::machine::{HardwareView, maas_status};
use gpuaas_types::park::Park;
use gpuaas_types::{NodeId, NodeState, SiteId, Timestamp};

use crate::check;
use crate::ctx::Ctx;
use crate::http::id_prefix;
use crate::http::problem::{ApiResult, problem};

/// Whether the node counts as GPUaaS' own: not retired, detached or deleted.
pub(crate) fn is_live(state: NodeState) -> bool {
    !matches!(state, NodeState::Retired | NodeState::Detached | NodeState::Deleted)
}

/// Identifier of the one node that answers to `text`, or whose identifier begins so.
pub(crate) async fn find_node(ctx: &Ctx, text: &str) -> ApiResult<NodeId> {
    Ok(find_listed(ctx, text).await?.node.id)
}

/// The one node that answers to `text`, or whose identifier begins so.
pub(crate) async fn find_listed(ctx: &Ctx, text: &str) -> ApiResult<ListedNode> {
    if let Some(listed) = find_named(ctx, text).await? {
        return Ok(listed);
    }
    let Some(id) = id_prefix::find(ctx, IdKind::Node, text).await? else {
        let detail = format!("no node matches {text:?}");
        return Err(problem(ProblemCode::NodeNotFound).with_detail(detail).into());
    };
    Ok(ctx.store.listed_node(NodeId(id)).await?)
}

/// The one node that answers to `text`. Nodes that left service count only where no other does,
/// and then the newest.
pub(crate) async fn find_named(ctx: &Ctx, text: &str) -> ApiResult<Option<ListedNode>> {
    let normal = check::mac("node", text).unwrap_or_else(|_| text.trim().to_ascii_lowercase());
    let mut found = ctx.store.find_nodes(&normal).await?;
    if let (true, Some((short, _))) = (found.is_empty(), domain_name(&normal)) {
        found = ctx.store.find_nodes(short).await?;
    }
    let live = found.iter().map(|listed| &listed.node).filter(|node| is_live(node.state));
    let names: Vec<String> = live.map(|node| format!("{} ({})", node.id, node.hostname)).collect();
    if names.len() > 1 {
        let detail = format!("{text:?} matches {}", names.join(", "));
        return Err(problem(ProblemCode::NodeAmbiguous).with_detail(detail).into());
    }
    Ok(found.into_iter().next())
}

/// The live node of a site that has this as its `name`.
pub(crate) async fn live_node_with(
    ctx: &Ctx,
    site_id: SiteId,
    name: NodeName<'_>,
) -> Result<Option<ListedNode>, StoreError> {
    let (NodeName::Hostname(text) | NodeName::BmcAddress(text)) = name;
    let has_it = |node: &NodeRecord| match name {
        NodeName::Hostname(hostname) => node.hostname == hostname,
        NodeName::BmcAddress(address) => node.hardware.bmc_address.as_deref() == Some(address),
    };
    let mut found = ctx.store.find_nodes(text).await?.into_iter();
    Ok(found.find(|ListedNode { node, .. }| {
        node.site_id == site_id && is_live(node.state) && has_it(node)
    }))
}

/// What is one live node's alone at its site.
#[derive(Clone, Copy)]
pub(crate) enum NodeName<'a> {
    /// The node's own.
    Hostname(&'a str),
    /// Address of its BMC, which may be a name and another node's hostname.
    BmcAddress(&'a str),
}

/// A name with its domain, as host and domain; none: another text, such as an address.
fn domain_name(text: &str) -> Option<(&str, &str)> {
    let parts = text.split_once('.')?;
    text.parse::<std::net::IpAddr>().is_err().then_some(parts)
}

/// A node as its row says; gates, differences and problems are not filled in.
pub(crate) fn node_view(
    listed: &ListedNode,
    timeline: Vec<TimelineEvent>,
    now: Timestamp,
) -> NodeView {
    let ListedNode { node, site, profile, batch, run, maas_status, maas_status_at } = listed;
    let open = run.as_ref().filter(|run| run.status.is_open());
    let wait = open.and_then(|run| run.wait.clone());
    let park = open.and_then(|run| run.park.clone());
    let park = park.map(|park| named_in(park, site, profile));
    let mark = open.and_then(|run| mark(run, now));
    let waiting_for = open.map(|run| match (&park, &wait) {
        (Some(park), _) => park.text.clone(),
        (None, Some(wait)) => wait.text.clone(),
        (None, None) => format!("the control plane, at step {}", run.step),
    });
    let turn = || batch.as_ref().map(|name| format!("its turn in batch {name}"));
    let unbegun = run.is_none() && node.state == NodeState::Registered;
    let waiting_for = waiting_for.or_else(|| if unbegun { turn() } else { None });
    let connectivity = connectivity_of(node, now);
    NodeView {
        id: node.id,
        hostname: node.hostname.clone(),
        site: site.clone(),
        profile: profile.clone(),
        state: node.state,
        hardware: HardwareView {
            mac_addresses: node.hardware.mac_addresses.clone(),
            bmc_address: node.hardware.bmc_address.clone(),
            power_type: node.hardware.power_type.clone(),
            architecture: node.hardware.architecture.clone(),
        },
        run: run.as_ref().map(|run| RunSummary {
            id: run.id,
            kind: run.kind,
            step: run.step,
            status: run.status,
        }),
        waiting_for,
        wait,
        park,
        mark,
        drift: Vec::new(),
        gates: Vec::new(),
        problems: Vec::new(),
        connectivity,
        maas: MaasView {
            system_id: node.system_id.clone(),
            status_name: maas_status.map(|number| maas_status::label(number).to_owned()),
            observed_seconds_ago: maas_status_at.map(|at| now.seconds_since(at).max(0.0)),
        },
        heartbeat_at: node.heartbeat_at,
        revision: node.revision,
        created_at: node.created_at,
        updated_at: node.updated_at,
        timeline,
        timeline_is_cut: false,
    }
}

/// A park whose advice names this site and this profile.
fn named_in(mut park: Park, site: &str, profile: &str) -> Park {
    let filled = |text: &str| {
        let text = text.replace("--profile PROFILE", &format!("--profile {profile}"));
        text.replace("--site SITE", &format!("--site {site}"))
    };
    park.next_action = filled(&park.next_action);
    for action in &mut park.actions {
        action.needs = filled(&action.needs);
    }
    park
}

/// How late an open run is; none where it is not, or not open.
pub(crate) fn mark(run: &RunBrief, now: Timestamp) -> Option<Lateness> {
    if !run.status.is_open() {
        return None;
    }
    if run.park.is_some() {
        return Some(Lateness::Parked);
    }
    let row = run.step.row();
    let limit = |seconds: u32| run.step_since.plus_seconds(f64::from(seconds));
    match &run.wait {
        // Where a wait names no end, such as that for a place in a batch, nothing of this run is
        // late.
        Some(wait) => {
            // Patience counts from an operator's word to go on, and so does the deadline.
            let patient_since = |end: Timestamp| end.plus_seconds(-f64::from(row.deadline_seconds));
            let since = wait.deadline.map_or(wait.since, patient_since).max(wait.since);
            step_duration::lateness(since, wait.expected_by?, wait.deadline, now)
        }
        None => {
            let expected_by = limit(row.expected_seconds);
            step_duration::lateness(
                run.step_since,
                expected_by,
                Some(limit(row.deadline_seconds)),
                now,
            )
        }
    }
}
