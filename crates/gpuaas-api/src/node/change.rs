//! Nodes that exist and are changed: what is known of their machine corrected, or onboarded once more
//! after a run that ended early.

use axum::Json;
use axum::extract::State;
use gpuaas_core::record::{NodeHardware, ReportKind};
use gpuaas_core::second_person::erases;
use gpuaas_store::{
    AcceptedOnboarding, HardwareChange, ListedNode, NewAuditEntry, NewOnboarding, SecretString,
};
use gpuaas_types::api::{NodeView, Source, TimelineEvent};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::change::HardwareCorrection;
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::spec::OnboardRequest;
use gpuaas_types::{AuditAction, NodeState, RunStatus, SiteId};
use serde_json::json;

use crate::audit::entries::spec_digest;
use crate::bundle::profile_bundles;
use crate::check;
use crate::ctx::Ctx;
use crate::http::body::{Body, Key};
use crate::http::problem::{ApiResult, invalid, problem};
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, CheckedRequest, Guarded};
use crate::node::facts::KnownFacts;
use crate::node::view::{NodeName, find_listed, is_live, live_node_with};

/// States from which a node that has no open run is onboarded from the beginning: it was never
/// active, or gave its machine back.
const ONBOARDED_AGAIN: &[NodeState] =
    &[NodeState::Registered, NodeState::BootstrapIssued, NodeState::Enrolling];

/// Onboards the node that has the hostname of `wanted`, where its last run ended before it was
/// active; none: there is no such node.
///
/// # Errors
/// The store's, such as `mac_address_taken`.
pub(crate) async fn onboard_again(
    ctx: &Ctx,
    request: &OnboardRequest,
    wanted: &NewOnboarding,
) -> ApiResult<Option<AcceptedOnboarding>> {
    let Some(there) = ended_early(ctx, wanted).await? else { return Ok(None) };
    let mut again = wanted.clone();
    again.node.id = there.node.id;
    again.node.hardware = completed(&wanted.node.hardware, request, &there.node.hardware);
    for line in &mut again.timeline {
        line.code = TimelineCode::OnboardedAgain.into();
    }
    if let Some(entry) = &mut again.audit {
        entry.subject = there.node.id.to_string();
    }
    Ok(Some(ctx.store.onboard_again(ctx.now(), again, ONBOARDED_AGAIN).await?))
}

/// The live node of this name whose last run is over and did not bring it to active.
async fn ended_early(ctx: &Ctx, wanted: &NewOnboarding) -> ApiResult<Option<ListedNode>> {
    let hostname = NodeName::Hostname(&wanted.node.hostname);
    let there = live_node_with(ctx, wanted.node.site_id, hostname).await?;
    let over = |status| matches!(status, RunStatus::Cancelled | RunStatus::Failed);
    Ok(there.filter(|ListedNode { node, run, .. }| {
        ONBOARDED_AGAIN.contains(&node.state) && run.as_ref().is_some_and(|run| over(run.status))
    }))
}

/// The hardware of a request, and what is known where the request says nothing.
fn completed(given: &NodeHardware, request: &OnboardRequest, known: &NodeHardware) -> NodeHardware {
    let says_power = request.power_type.is_some() || request.bmc_address.is_some();
    NodeHardware {
        bmc_address: given.bmc_address.clone().or_else(|| known.bmc_address.clone()),
        bmc_user: given.bmc_user.clone().or_else(|| known.bmc_user.clone()),
        power_type: if says_power { given } else { known }.power_type.clone(),
        mac_addresses: if given.mac_addresses.is_empty() { known } else { given }
            .mac_addresses
            .clone(),
        architecture: if request.architecture.is_some() { given } else { known }
            .architecture
            .clone(),
    }
}

/// `PATCH /api/v1/nodes/NODE`: corrects what is known of its machine, and its site. Not while a run
/// moves; a parked one reads it when it is resumed.
pub(crate) async fn change(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(asked): Body<HardwareCorrection>,
) -> ApiResult<Json<NodeView>> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let listed = find_listed(&ctx, &text).await?;
    let id = listed.node.id;
    if !is_live(listed.node.state) {
        let detail = format!("{} is {}", listed.node.hostname, listed.node.state);
        return Err(problem(ProblemCode::NodeStateForbids).with_detail(detail).into());
    }
    let (_, hardware) = check::onboard(&corrected(&asked, &listed))?;
    let fields = changed_fields(&asked);
    if fields.is_empty() {
        return Err(invalid("mac_addresses", "expected at least one field to change").into());
    }
    let site_id = match &asked.site {
        Some(name) => {
            caller.check_site(Some(name))?;
            Some(other_site(&ctx, &listed, name).await?)
        }
        None => None,
    };
    let report = machine_named(&ctx, &asked, &listed).await?;
    hold_other_machine(&ctx, &caller, &listed, (site_id, &asked)).await?;
    let now = ctx.now();
    let text = format!("{actor} corrected {}: {reason}", fields.join(", "));
    let line = TimelineEvent {
        at: now,
        run_id: listed.run.as_ref().map(|run| run.id),
        step: listed.run.as_ref().map(|run| run.step),
        source: Source::Operator,
        code: TimelineCode::HardwareCorrected.into(),
        text,
    };
    let detail = json!({
        "reason": reason, "fields": fields, "hardware": hardware, "site": asked.site,
        "machine": report, "before_digest": spec_digest(&listed.node.hardware),
        "after_digest": spec_digest(&hardware),
    });
    let audit =
        NewAuditEntry { actor, action: AuditAction::NodeChange, subject: id.to_string(), detail };
    let bmc_password = asked.bmc_password.as_ref().map(|it| SecretString::from(it.expose()));
    let change =
        HardwareChange { node_id: id, hardware, bmc_password, site_id, report, line, audit };
    ctx.store.change_hardware(now, change).await?;
    let changed = ctx.store.listed_node(id).await?;
    Ok(Json(KnownFacts::of_node(&ctx, &changed).await?.view(&ctx, &changed, Vec::new())))
}

/// Counts a node once more whose parked run would erase another machine than it was asked for: one with
/// other addresses, another name in MAAS or another serial number, or one of another site.
async fn hold_other_machine(
    ctx: &Ctx,
    caller: &Caller,
    listed: &ListedNode,
    (site_id, asked): (Option<SiteId>, &HardwareCorrection),
) -> ApiResult<()> {
    let node = &listed.node;
    let Some(run) = listed.run.as_ref().filter(|run| run.status.is_open() && erases(run.kind))
    else {
        return Ok(());
    };
    let named = asked.mac_addresses.is_some()
        || asked.bmc_address.is_some()
        || asked.system_id.is_some()
        || asked.serial.is_some();
    if !named && site_id.is_none() {
        return Ok(());
    }
    let site = ctx.store.site(site_id.unwrap_or(node.site_id)).await?;
    let body = serde_json::to_vec(asked).map_err(|_| problem(ProblemCode::Internal))?;
    let checked = CheckedRequest {
        guarded: Guarded::Erase(1),
        kind: ApprovalKind::NodeChange,
        site: &site,
        node_id: Some(node.id),
        summary: format!("a change of machine for the {} of {}", run.kind, node.hostname),
        reason: asked.reason.clone(),
        request: ApprovalRequest {
            method: "PATCH".to_owned(),
            ..ApprovalRequest::post("/api/v1/nodes/{node}", &node.id.to_string(), &body)
        },
        target: json!({ "node": node.id, "run": run.id, "hardware": spec_digest(&node.hardware) }),
    };
    second_person::check(ctx, caller, checked).await
}

/// What is known of the machine, with the corrections.
fn corrected(asked: &HardwareCorrection, listed: &ListedNode) -> OnboardRequest {
    // A person switches the machine on and off: the BMC that was given counts no more.
    let by_hand = asked.power_type.as_deref() == Some("manual") && asked.bmc_address.is_none();
    let mut known = listed.node.hardware.clone();
    if by_hand {
        (known.bmc_address, known.bmc_user) = (None, None);
    }
    OnboardRequest {
        hostname: listed.node.hostname.clone(),
        site: listed.site.clone(),
        profile: listed.profile.clone(),
        bmc_address: asked.bmc_address.clone().or(known.bmc_address),
        bmc_user: asked.bmc_user.clone().or(known.bmc_user),
        bmc_password: asked.bmc_password.clone(),
        power_type: Some(asked.power_type.clone().unwrap_or(known.power_type)),
        mac_addresses: asked.mac_addresses.clone().unwrap_or(known.mac_addresses),
        architecture: Some(asked.architecture.clone().unwrap_or(known.architecture)),
        ..OnboardRequest::default()
    }
}

/// The site of this name, where an onboarding of the node can begin.
async fn other_site(ctx: &Ctx, listed: &ListedNode, name: &str) -> ApiResult<SiteId> {
    let site = ctx.store.site_by_name(name).await?;
    let profile = ctx.store.profile(listed.node.profile_id).await?;
    profile_bundles::check_can_begin(ctx, &site, &profile, Some(&listed.node.hostname)).await?;
    Ok(site.id)
}

/// What names the machine beside its addresses, with the corrections; none: nothing is corrected.
async fn machine_named(
    ctx: &Ctx,
    asked: &HardwareCorrection,
    listed: &ListedNode,
) -> ApiResult<Option<ReportKind>> {
    if asked.system_id.is_none() && asked.serial.is_none() {
        return Ok(None);
    }
    let said = match &listed.run {
        Some(run) => ctx.store.reports(run.id).await?,
        None => Vec::new(),
    };
    let known = said.into_iter().rev().find_map(|report| match report.kind {
        ReportKind::MachineNamed { system_id, serial } => Some((system_id, serial)),
        _ => None,
    });
    let (system_id, serial) = known.unwrap_or_default();
    let merged = |asked: &Option<String>, known: Option<String>| match asked {
        Some(text) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
        None => known,
    };
    let request = OnboardRequest {
        system_id: merged(&asked.system_id, system_id),
        serial: merged(&asked.serial, serial),
        ..OnboardRequest::default()
    };
    let nothing = ReportKind::MachineNamed { system_id: None, serial: None };
    Ok(Some(check::reports(&request)?.pop().unwrap_or(nothing)))
}

fn changed_fields(asked: &HardwareCorrection) -> Vec<&'static str> {
    let given = [
        ("mac_addresses", asked.mac_addresses.is_some()),
        ("bmc_address", asked.bmc_address.is_some()),
        ("bmc_user", asked.bmc_user.is_some()),
        ("bmc_password", asked.bmc_password.is_some()),
        ("power_type", asked.power_type.is_some()),
        ("architecture", asked.architecture.is_some()),
        ("site", asked.site.is_some()),
        ("system_id", asked.system_id.is_some()),
        ("serial", asked.serial.is_some()),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field).collect()
}
