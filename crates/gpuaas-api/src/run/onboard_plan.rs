//! What an onboarding would do with what MAAS shows now, before anything is begun; and the word that
//! lets a run have a machine which is in use.
//!
//! The plan is no second opinion: it searches as a run does and asks the same decision what comes
//! of it.

use axum::Json;
use axum::extract::State;
use gpuaas_core::decide::discover::machine_to_take;
use gpuaas_core::record::{AgentRecord, NodeRecord, Report, RunRecord};
use gpuaas_core::run_state::{MachineOrigin, RunState};
use gpuaas_core::{Decision, Snapshot, decide};
use gpuaas_engine::machine_search::{FoundMachines, MachineQuery, search};
use gpuaas_store::OperatorCommand;
use gpuaas_types::api::{PlannedStep, SiteResource};
use gpuaas_types::approval::ApprovalKind;
use gpuaas_types::codes::{ParkCode, ProblemCode};
use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::plan::{OnboardPlan, PlannedMachine, TakeOverPlan, TakeOverRequest};
use gpuaas_types::spec::{OnboardRequest, ProfileSpec};
use gpuaas_types::{
    NodeId, NodeState, ProfileId, RunId, RunKind, RunStatus, SiteId, Step, Timestamp,
};
use serde_json::json;

use crate::check;
use crate::ctx::Ctx;
use crate::http::body::{Body, JsonBytes, Key};
use crate::http::problem::{ApiResult, problem};
use crate::http::strict;
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, CheckedRequest, Guarded};
use crate::node::view::{NodeName, live_node_with};
use crate::run::begin::erased_disks;
use crate::run::runs;
use crate::run::runs::find_run;

/// A run that is not there, as it would stand at the search for its machine.
struct PlannedRun {
    run: RunRecord,
    node: NodeRecord,
    reports: Vec<Report>,
}

impl PlannedRun {
    fn snapshot<'a>(
        &'a self,
        now: Timestamp,
        site: &'a SiteResource,
        profile: &'a ProfileSpec,
    ) -> Snapshot<'a> {
        Snapshot {
            reports: &self.reports,
            maas_user: &site.status.maas_user,
            watched: true,
            ..Snapshot::new(now, &self.run, &self.node, &site.spec, profile)
        }
    }
}

/// `POST /api/v1/onboarding-plans`: nothing is changed, here or in MAAS.
pub(crate) async fn plan(
    State(ctx): State<Ctx>,
    caller: Caller,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<Json<OnboardPlan>> {
    let request: OnboardRequest = strict::from_slice(&bytes)?;
    caller.check_site(Some(&request.site))?;
    let site = ctx.store.site_by_name(&request.site).await?;
    let profile = ctx.store.profile_by_name(&request.profile).await?;
    let mut planned = planned_run(&ctx, &request, site.id, profile.id).await?;
    let now = ctx.now();
    let mut query = MachineQuery::of_run(&planned.snapshot(now, &site, &profile.spec));
    query.claims &= profile.spec.auto_claim_single_new_machine;
    let unreachable = |error: &dyn std::fmt::Display| {
        problem(ProblemCode::MaasUnreachable).with_detail(error.to_string())
    };
    let connected = ctx.sites().get(site.id).await.map_err(|error| unreachable(&error))?;
    let found = search(&ctx.store, &connected, &query, now).await;
    let found = found.map_err(|error| unreachable(&error))?;
    planned.run.state.found = Some(found.search.clone());
    let decision = decide(&planned.snapshot(now, &site, &profile.spec));
    let in_question = machine_to_take(&planned.snapshot(now, &site, &profile.spec));
    let (origin, park) = match decision {
        Decision::Adopt { origin, .. } => (Some(origin), None),
        Decision::Do(_) => (Some(MachineOrigin::Created), None),
        Decision::Park { park, .. } => (None, Some(park)),
        other => {
            let detail = format!("the machine search reached no decision: {other:?}");
            return Err(problem(ProblemCode::Internal).with_detail(detail).into());
        }
    };
    let adopts =
        origin.is_some() || park.as_ref().is_some_and(|p| p.code == ParkCode::MachineInUse);
    let seen = in_question.filter(|_| adopts).and_then(|(id, _)| view_of(&found, &id));
    let way_back = [Step::ReleaseForRetry, Step::ReleaseForCancel];
    let steps = RunKind::Onboard.row().steps.iter().filter(|step| !way_back.contains(step));
    Ok(Json(OnboardPlan {
        hostname: planned.node.hostname,
        site: request.site,
        profile: request.profile,
        origin: origin.map(|origin| origin_name(origin).to_owned()),
        destroys: seen.map(losses).unwrap_or_default(),
        machine: seen.map(planned_machine),
        park,
        steps: steps
            .map(|step| PlannedStep { step: *step, maas_calls: step.row().effects.to_vec() })
            .collect(),
    }))
}

const fn origin_name(origin: MachineOrigin) -> &'static str {
    match origin {
        MachineOrigin::Adopted => "adopted",
        MachineOrigin::Created => "created",
        MachineOrigin::Claimed => "claimed",
    }
}

fn view_of<'a>(found: &'a FoundMachines, system_id: &str) -> Option<&'a MachineView> {
    found.machines.iter().find(|machine| machine.system_id == system_id)
}

/// The request as a run that stands at its search. A node that has the name, and would be onboarded
/// again, is that node.
async fn planned_run(
    ctx: &Ctx,
    request: &OnboardRequest,
    site_id: SiteId,
    profile_id: ProfileId,
) -> ApiResult<PlannedRun> {
    let (hostname, hardware) = check::onboard(request)?;
    let now = ctx.now();
    let known = live_node_with(ctx, site_id, NodeName::Hostname(&hostname)).await?;
    let node_id = known.map_or_else(|| NodeId::new(&*ctx.ids, now), |listed| listed.node.id);
    let run = RunRecord {
        id: RunId::new(&*ctx.ids, now),
        node_id,
        site_id,
        kind: RunKind::Onboard,
        step: Step::Discover,
        status: RunStatus::Running,
        profile_id,
        profile_revision: 0,
        state: RunState::default(),
        wait: None,
        park: None,
        created_at: now,
        step_since: now,
        ended_at: None,
        due_at: now,
        wake_seq: 0,
        handled_seq: 0,
        lease_token: 0,
        lease_until: now,
        traceparent: None,
    };
    let node = NodeRecord {
        id: node_id,
        site_id,
        profile_id,
        hostname,
        state: NodeState::Registered,
        system_id: None,
        hardware,
        run_id: Some(run.id),
        heartbeat_at: None,
        agent: AgentRecord::default(),
        revision: 1,
        created_at: now,
        updated_at: now,
    };
    let said = check::reports(request)?;
    let reports = said.into_iter().map(|kind| Report { run_id: run.id, at: now, kind }).collect();
    Ok(PlannedRun { run, node, reports })
}

fn planned_machine(machine: &MachineView) -> PlannedMachine {
    PlannedMachine {
        system_id: machine.system_id.clone(),
        hostname: machine.hostname.clone(),
        status_name: status::label(machine.status).to_owned(),
        owner: machine.owner.clone(),
    }
}

/// What is lost with the machine; nothing where nobody uses it.
fn losses(machine: &MachineView) -> Vec<String> {
    let unused = [status::NEW, status::READY, status::FAILED_COMMISSIONING, status::TESTING];
    if machine.owner.is_none() && unused.contains(&machine.status) {
        return Vec::new();
    }
    let (id, label) = (&machine.system_id, status::label(machine.status));
    let owner = machine.owner.as_deref().unwrap_or("nobody");
    let system =
        format!("the contents of machine {id}, which is {label} in MAAS, owned by {owner}");
    std::iter::once(system).chain(erased_disks(false, true, Some(machine))).collect()
}

/// `POST /api/v1/runs/RUN/take-over`: a run that is parked because its machine is in use gets it.
pub(crate) async fn take_over(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(asked): Body<TakeOverRequest>,
) -> ApiResult<Json<TakeOverPlan>> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let id = find_run(&ctx, &text).await?;
    let run = ctx.store.run(id).await?;
    let parked = run.park.as_ref().is_some_and(|park| park.code == ParkCode::MachineInUse);
    if !parked {
        let detail = format!("run {id} is {}, but not because its machine is in use", run.status);
        return Err(problem(ProblemCode::RunNotParked).with_detail(detail).into());
    }
    let node = ctx.store.node(run.node_id).await?;
    let site = ctx.store.site(run.site_id).await?;
    let profile = ctx.store.profile_revision(run.profile_id, run.profile_revision).await?;
    let (reports, seen) = (ctx.store.reports(id).await?, ctx.store.observation(run.node_id).await?);
    let snapshot = Snapshot {
        reports: &reports,
        observation: seen.as_ref(),
        ..Snapshot::new(ctx.now(), &run, &node, &site.spec, &profile.spec)
    };
    let gone = || problem(ProblemCode::RunNotParked).with_detail("the run's machine is unknown");
    let (system_id, owner) = machine_to_take(&snapshot).ok_or_else(gone)?;
    let machine = seen.and_then(|seen| seen.machine).filter(|one| one.system_id == system_id);
    let machine = machine.ok_or_else(gone)?;
    let plan = TakeOverPlan {
        hostname: node.hostname,
        destroys: losses(&machine),
        machine: PlannedMachine { owner: owner.clone(), ..planned_machine(&machine) },
        approved: !asked.dry_run,
    };
    if !asked.dry_run {
        // A run was asked for on a machine that nobody uses; this one somebody does.
        let checked = CheckedRequest {
            guarded: Guarded::Erase(1),
            kind: ApprovalKind::Continuation,
            site: &site,
            node_id: Some(run.node_id),
            summary: format!(
                "the {} of {} on machine {system_id}, which is in use",
                run.kind, plan.hostname
            ),
            reason: reason.clone(),
            request: runs::kept("/api/v1/runs/{run}/take-over", id, &asked)?,
            target: json!({ "run": id, "system_id": system_id, "owner": owner }),
        };
        second_person::check(&ctx, &caller, checked).await?;
        let command = OperatorCommand::TakeOver { system_id, owner };
        ctx.store.apply_operator_command(ctx.now(), id, command, &actor, &reason).await?;
        ctx.wake_engine();
    }
    Ok(Json(plan))
}
