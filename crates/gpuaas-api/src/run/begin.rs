//! `POST /api/v1/nodes/NODE/runs`: what is to be done with a node that exists, and what that costs.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_core::second_person::erases;
use gpuaas_store::{ListedNode, NewAuditEntry, NewRun, NewRunOfNode};
use gpuaas_types::api::{
    MaasView, PlannedProfile, PlannedStep, ProfileInUse, ProfileResource, RunPlan, RunRequest,
    Source, TimelineEvent,
};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::machine::{Disk, MachineView};
use gpuaas_types::spec::{ProfileSpec, ReleaseMode};
use gpuaas_types::steps::KindRow;
use gpuaas_types::{AuditAction, NodeId, RunId, RunKind, Step};
use serde_json::json;

use crate::bundle::profile_bundles;
use crate::check;
use crate::check::REASON_CHARS;
use crate::ctx::Ctx;
use crate::http::body::{Body, Key};
use crate::http::problem::{ApiResult, invalid, problem};
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, CheckedRequest, Guarded};
use crate::node::view::{find_node, node_view};

/// `POST /api/v1/nodes/NODE/runs`.
pub(crate) async fn begin(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(asked): Body<RunRequest>,
) -> ApiResult<(StatusCode, Json<RunPlan>)> {
    if asked.kind == RunKind::Onboard {
        return Err(invalid("kind", "to onboard a node, use POST /api/v1/nodes").into());
    }
    let id = find_node(&ctx, &text).await?;
    let plan = begin_run(&ctx, &caller, id, asked).await?;
    let status = if plan.run_id.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(plan)))
}

/// Plans the run, and begins it unless it is a dry run.
pub(crate) async fn begin_run(
    ctx: &Ctx,
    caller: &Caller,
    id: NodeId,
    asked: RunRequest,
) -> ApiResult<RunPlan> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let row = asked.kind.row();
    let listed = ctx.store.listed_node(id).await?;
    check_may_begin(&listed, row)?;
    let own = ctx.store.profile(listed.node.profile_id).await?;
    let profile = chosen_profile(ctx, row, asked.profile.as_deref(), &own).await?;
    let machine = ctx.store.observation(id).await?.and_then(|seen| seen.machine);
    check_between_tenants(&listed, asked.kind, &profile)?;
    let mut plan = plan(ctx, &listed, row, &profile.spec, machine.as_ref());
    plan.profile = planned_profile(ctx, id, row, &profile).await?;
    if asked.dry_run {
        return Ok(plan);
    }
    if row.steps.contains(&Step::Deploy) {
        let site = ctx.store.site(listed.node.site_id).await?;
        profile_bundles::check_can_begin(ctx, &site, &profile, Some(&listed.node.hostname)).await?;
    }
    if erases(asked.kind) {
        let request = kept_request(id, &asked)?;
        hold_erasing(ctx, caller, &listed, (&plan, &profile), (request, reason.clone())).await?;
    }
    let now = ctx.now();
    let run_id = RunId::new(&*ctx.ids, now);
    let with = match &plan.profile {
        Some(planned) => format!(" with profile {}", planned.then),
        None => String::new(),
    };
    let text = format!("{actor} requested {}{with}: {reason}", asked.kind);
    let line = TimelineEvent {
        at: now,
        run_id: Some(run_id),
        step: Some(row.first()),
        source: Source::Operator,
        code: TimelineCode::accepted(asked.kind).into(),
        text: text.clone(),
    };
    let audit = NewAuditEntry {
        actor,
        action: AuditAction::of_run(asked.kind),
        subject: id.to_string(),
        detail: json!({
            "hostname": plan.hostname, "run": run_id, "reason": reason, "destroys": plan.destroys,
            "profile": plan.profile,
        }),
    };
    let run = NewRun {
        id: run_id,
        kind: asked.kind,
        step: row.first(),
        profile_revision: profile.revision,
        cause: check::plain_text(&text, REASON_CHARS),
    };
    let start = NewRunOfNode {
        node_id: id,
        run,
        profile_id: Some(profile.id),
        from: row.begins_in,
        history: vec![line],
        audit: Some(audit),
    };
    ctx.store.start_run_from(now, start).await?;
    ctx.wake_engine();
    plan.run_id = Some(run_id);
    Ok(plan)
}

/// The request as it is kept for another person to look at.
fn kept_request(id: NodeId, asked: &RunRequest) -> ApiResult<ApprovalRequest> {
    let body = serde_json::to_vec(asked).map_err(|_| problem(ProblemCode::Internal))?;
    Ok(ApprovalRequest::post("/api/v1/nodes/{node}/runs", &id.to_string(), &body))
}

/// Has a run that erases wait for another person, where the site wants that.
async fn hold_erasing(
    ctx: &Ctx,
    caller: &Caller,
    listed: &ListedNode,
    (plan, profile): (&RunPlan, &ProfileResource),
    (request, reason): (ApprovalRequest, String),
) -> ApiResult<()> {
    let site = ctx.store.site(listed.node.site_id).await?;
    let node = &listed.node;
    let checked = CheckedRequest {
        guarded: Guarded::Erase(1),
        kind: ApprovalKind::Run,
        site: &site,
        node_id: Some(node.id),
        summary: format!("a {} of {}", plan.kind, node.hostname),
        reason,
        request,
        target: json!({
            "node": node.id, "revision": node.revision, "state": node.state,
            "system_id": node.system_id, "profile": profile.id, "run": listed.run.as_ref().map(|r| r.id),
            "profile_revision": profile.revision,
        }),
    };
    second_person::check(ctx, caller, checked).await
}

/// The same refusals that the store makes when the run is written, but with a way out.
fn check_may_begin(listed: &ListedNode, row: &KindRow) -> ApiResult<()> {
    let hostname = &listed.node.hostname;
    if let Some(run) = listed.run.as_ref().filter(|run| run.status.is_open()) {
        let detail = format!(
            "{hostname} has an open {} run {}, which is {} at step {}",
            run.kind, run.id, run.status, run.step
        );
        let hint = format!(
            "wait for it to end, or cancel it: `gpuaas run cancel {} --reason WHY`",
            run.id
        );
        return Err(problem(ProblemCode::NodeHasOpenRun)
            .with_detail(detail)
            .with_hint(hint)
            .into());
    }
    let state = listed.node.state;
    if !row.begins_in.contains(&state) {
        let from: Vec<&str> = row.begins_in.iter().map(|state| state.as_str()).collect();
        let detail = format!("{hostname} is {state}");
        let hint = format!("a {} run can start in: {}", row.kind, from.join(", "));
        return Err(problem(ProblemCode::NodeStateForbids)
            .with_detail(detail)
            .with_hint(hint)
            .into());
    }
    Ok(())
}

/// The profile that the run pins: the node's own, or the one that a reimage is to deploy with.
async fn chosen_profile(
    ctx: &Ctx,
    row: &KindRow,
    asked: Option<&str>,
    own: &ProfileResource,
) -> ApiResult<ProfileResource> {
    let deploys = row.steps.contains(&Step::Deploy);
    let chosen = match asked {
        Some(_) if !deploys => {
            return Err(invalid("profile", "only a reimage can change the profile of a node")
                .with_hint("leave it out, or request a reimage")
                .into());
        }
        Some(name) => ctx.store.profile_by_name(name).await?,
        None => own.clone(),
    };
    let hands_over = |one: &&ProfileResource| one.spec.release_mode == ReleaseMode::Handoff;
    if deploys && let Some(one) = [own, &chosen].into_iter().find(hands_over) {
        let detail = format!("profile {} has release_mode=handoff", one.status.name);
        return Err(problem(ProblemCode::MachineHandedOff).with_detail(detail).into());
    }
    Ok(chosen)
}

/// With what the node is deployed now and then; none: the run does not deploy.
async fn planned_profile(
    ctx: &Ctx,
    id: NodeId,
    row: &KindRow,
    profile: &ProfileResource,
) -> ApiResult<Option<PlannedProfile>> {
    if !row.steps.contains(&Step::Deploy) {
        return Ok(None);
    }
    let deployed = ctx.store.deployed_profile(id).await?;
    let deployed = deployed.map(|(name, revision)| ProfileInUse { name, revision });
    let then = ProfileInUse { name: profile.status.name.clone(), revision: profile.revision };
    Ok(Some(PlannedProfile { deployed, then }))
}

/// A cleaning puts the host back into service, for whoever is next: only the one that the profile
/// names may (docs/adr/0010-between-tenants.md).
fn check_between_tenants(
    listed: &ListedNode,
    kind: RunKind,
    profile: &ProfileResource,
) -> ApiResult<()> {
    let wanted = profile.spec.between_tenants;
    if wanted.allows(kind) {
        return Ok(());
    }
    let (hostname, name) = (&listed.node.hostname, &profile.status.name);
    let detail = format!(
        "after a {kind}, only {hostname} itself confirms that it is clean for another tenant, but \
         profile {name} has between_tenants={}",
        wanted.as_str()
    );
    let hint = format!(
        "redeploy it with `gpuaas node reimage {hostname}`; or, if the host's own report is enough \
         for all nodes of the profile, run `gpuaas profile set {name} between_tenants={kind}` and \
         retry"
    );
    Err(problem(ProblemCode::BetweenTenantsForbids).with_detail(detail).with_hint(hint).into())
}

fn plan(
    ctx: &Ctx,
    listed: &ListedNode,
    row: &KindRow,
    profile: &ProfileSpec,
    machine: Option<&MachineView>,
) -> RunPlan {
    let seen = node_view(listed, Vec::new(), ctx.now());
    let handoff = profile.release_mode == ReleaseMode::Handoff;
    let planned = |step: &Step| {
        let calls = if handoff { &[] } else { step.row().effects };
        PlannedStep { step: *step, maas_calls: calls.to_vec() }
    };
    let way_back = [Step::ReleaseForRetry, Step::ReleaseForCancel];
    RunPlan {
        node_id: seen.id,
        hostname: seen.hostname,
        site: seen.site,
        kind: row.kind,
        state: seen.state,
        ends: row.ends_in,
        destroys: losses(row.kind, &seen.maas, profile, machine),
        maas: seen.maas,
        profile: None,
        steps: row.steps.iter().filter(|step| !way_back.contains(step)).map(planned).collect(),
        run_id: None,
    }
}

/// What the run destroys, one sentence each.
fn losses(
    kind: RunKind,
    maas: &MaasView,
    profile: &ProfileSpec,
    machine: Option<&MachineView>,
) -> Vec<String> {
    let system = |verb: &str| {
        let id = maas.system_id.as_deref()?;
        let age = maas.observed_seconds_ago.unwrap_or_default();
        let status = maas.status_name.as_deref().unwrap_or("nothing");
        Some(format!("the system on machine {id} {verb}; MAAS reported {status} {age:.0} s ago"))
    };
    if kind == RunKind::Decommission && profile.release_mode == ReleaseMode::Handoff {
        return vec!["nothing: the machine stays as it is (release_mode=handoff)".to_owned()];
    }
    match kind {
        RunKind::Decommission => system("is released and powered off")
            .into_iter()
            .chain(erased_disks(profile.release_erase, false, machine))
            .collect(),
        RunKind::Reimage => system("is released and replaced by a new deployment")
            .into_iter()
            .chain(erased_disks(profile.release_erase, true, machine))
            .chain(not_erased(profile))
            .collect(),
        RunKind::SoftReset => cleaning(
            "processes in gpuaas-tenant.slice and the contents of /var/lib/gpuaas/tenant and \
             /dev/shm, as reported by the agent",
        ),
        RunKind::StorageCleanup => {
            cleaning("the contents of /var/lib/gpuaas/scratch, as reported by the agent")
        }
        RunKind::Detach => {
            vec![
                "GPUaaS' binding to the machine and the credentials of its agent; nothing changes \
                 in MAAS"
                    .to_owned(),
            ]
        }
        RunKind::Remove => vec!["the node's record; its history is kept".to_owned()],
        RunKind::Onboard => Vec::new(),
    }
}

/// What a cleaning by the agent removes, what it leaves, and whose choice it is.
fn cleaning(removed: &str) -> Vec<String> {
    let stays = "nothing else: data disks, /home, /tmp, keys, crontabs, containers, images and \
                 swap are kept, and the agent lists those that it finds";
    let choice = "only the host itself confirms that it is clean for another tenant, as the \
                  profile allows (between_tenants)";
    vec![removed.to_owned(), stays.to_owned(), choice.to_owned()]
}

/// What a reimage may leave on disks, by the choice of the profile.
fn not_erased(profile: &ProfileSpec) -> Option<String> {
    let text = match (profile.release_erase, profile.release_fallback_no_erase) {
        (false, _) => {
            "no disk is erased, as the profile says (release_erase=false): another tenant's system \
             may read data that is left on data disks"
        }
        (true, true) => {
            "disks that MAAS cannot wipe are not erased, as the profile says \
             (release_fallback_no_erase)"
        }
        (true, false) => return None,
    };
    Some(text.to_owned())
}

/// What becomes of each disk of a machine that is released, and deployed again where `deploys`.
pub(crate) fn erased_disks(
    erase: bool,
    deploys: bool,
    machine: Option<&MachineView>,
) -> Vec<String> {
    let Some(machine) = machine else { return Vec::new() };
    let line = |disk: &Disk| {
        let boots = machine.boot_disk_id == Some(disk.id);
        let fate = match (erase, deploys && boots) {
            (true, _) => "erased",
            (false, true) => "overwritten with the image",
            (false, false) => "not erased; the tenant loses access to its data",
        };
        let gigabytes = disk.size_bytes / 1_000_000_000;
        let Disk { name, model, serial, .. } = disk;
        format!("disk {name} ({model}, serial {serial}, {gigabytes} GB): {fate}")
    };
    machine.disks.iter().map(line).collect()
}
