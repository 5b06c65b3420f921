//! What the runs of an experiment measured, and whether all of it is known.
//!
//! A run ends when its node is active. When its host was ready for slices, and how long the discovery of
//! its slots took, is known later, and the second run of a pair deploys over the host that says so. So
//! these moments are kept by run (`run_moment`), and a run counts as measured once they are there, or
//! once nobody can expect them any more.

use axum::http::StatusCode;
use gpuaas_core::buckets::seconds_per_bucket;
use gpuaas_core::record::RunRecord;
use gpuaas_store::{ExperimentRun, IdempotencyKey, RunMoments, StoredExperiment, sha256};
use gpuaas_types::agent::{Gate, Operation};
use gpuaas_types::api::Source;
use gpuaas_types::experiment::{ExperimentArm, ExperimentConditions, ExperimentSample};
use gpuaas_types::task::TaskRequest;
use gpuaas_types::{Bucket, RunId, RunStatus, Timestamp};

use crate::agent::tasks;
use crate::ctx::Ctx;
use crate::http::problem::ApiResult;
use crate::identity::caller::Caller;

/// Lines of a run that are read.
const RUN_LINES: i64 = 2000;
/// Seconds after the end of a run in which its host may become ready for slices and its slots may be
/// discovered. After that the run has no such times.
const SLICE_PATIENCE_SECONDS: f64 = 3600.0;
/// Seconds within which an agent is to begin the discovery.
const DISCOVERY_WITHIN_SECONDS: u32 = 900;

/// The ended runs of an arm, and under what they were deployed.
pub(crate) async fn samples(
    ctx: &Ctx,
    stored: &StoredExperiment,
    runs: &[ExperimentRun],
    arm: ExperimentArm,
) -> ApiResult<(Vec<ExperimentSample>, ExperimentConditions)> {
    let mut samples = Vec::new();
    let mut classes = std::collections::BTreeSet::new();
    for run in runs.iter().filter(|run| run.arm == arm) {
        let seen = ctx.store.observation(run.node_id).await?.and_then(|seen| seen.machine);
        classes.extend(seen.map(|machine| machine.hardware));
        let ended = run.status.is_some_and(|status| !status.is_open());
        if let Some(run_id) = run.run_id.filter(|_| ended) {
            samples.push(sample(ctx, run, run_id).await?);
        }
    }
    let site = ctx.store.site(stored.site_id).await?;
    let conditions = ExperimentConditions {
        class: classes.into_iter().collect::<Vec<_>>().join(" "),
        profile: stored.spec.profile.clone(),
        // Both arms have one site: what it is now is the same for both.
        maas_version: format!("{} of {}", site.status.maas_version, site.spec.name),
    };
    Ok((samples, conditions))
}

async fn sample(ctx: &Ctx, run: &ExperimentRun, run_id: RunId) -> ApiResult<ExperimentSample> {
    let record = ctx.store.run(run_id).await?;
    let spans = ctx.store.spans(run_id).await?;
    let until: Timestamp = record.ended_at.unwrap_or_else(|| ctx.now());
    let seconds = seconds_per_bucket(&spans, until);
    let to_active = Bucket::ONBOARDING.iter().filter_map(|bucket| seconds.get(bucket)).sum::<f64>();
    let failed = record.status != RunStatus::Succeeded;
    let lines = ctx.store.timeline_of_run(run_id, 0, RUN_LINES).await?;
    let said = lines.iter().filter(|line| line.event.source == Source::Operator).count();
    let moments = ctx.store.run_moments([run_id]).await?.remove(&run_id).unwrap_or_default();
    let ready = moments.slice_ready.map(|at| to_active + at.seconds_since(until).max(0.0));
    let class = record.state.failure_class.filter(|_| failed);
    Ok(ExperimentSample {
        host: run.hostname.clone(),
        failed,
        failure_class: class.map_or_else(String::new, |class| class.as_str().to_owned()),
        // The first line of an operator is the request.
        interventions: said.saturating_sub(1),
        buckets: seconds.into_iter().map(|(bucket, s)| (bucket.as_str().to_owned(), s)).collect(),
        time_to_active: (!failed).then_some(to_active),
        time_to_slice_ready: ready.filter(|_| !failed),
        slice_discovery: discovery_seconds(&moments).filter(|_| !failed),
    })
}

/// Seconds from the request for a discovery to the report with the slots.
fn discovery_seconds(moments: &RunMoments) -> Option<f64> {
    Some(moments.slots_reported?.seconds_since(moments.slots_asked?))
}

/// Whether a bundle of the run's profile asks something of a host for slices.
async fn makes_slices(ctx: &Ctx, record: &RunRecord) -> ApiResult<bool> {
    let profiles = ctx.store.profile_briefs([record.profile_id]).await?;
    let pins = profiles.get(&record.profile_id).map_or(&[][..], |brief| &brief.bundle_pins);
    Ok(ctx.bundles.has_gate(pins, Gate::SliceReady))
}

/// The run and its moments, if it ended well, makes slices, and is not too old to say more.
async fn unmeasured(ctx: &Ctx, run: &ExperimentRun) -> ApiResult<Option<(RunRecord, RunMoments)>> {
    let Some(run_id) = run.run_id.filter(|_| run.status == Some(RunStatus::Succeeded)) else {
        return Ok(None);
    };
    let record = ctx.store.run(run_id).await?;
    let patience = SLICE_PATIENCE_SECONDS * ctx.clock.factor().max(1.0);
    let ended = record.ended_at.unwrap_or(record.created_at);
    if ctx.now().seconds_since(ended) > patience || !makes_slices(ctx, &record).await? {
        return Ok(None);
    }
    let moments = ctx.store.run_moments([run_id]).await?.remove(&run_id).unwrap_or_default();
    let known = moments.slice_ready.is_some() && moments.slots_reported.is_some();
    Ok((!known).then_some((record, moments)))
}

/// Whether all that a run measures is known.
pub(crate) async fn is_measured(ctx: &Ctx, run: &ExperimentRun) -> ApiResult<bool> {
    let ended = run.status.is_some_and(|status| !status.is_open());
    Ok(ended && unmeasured(ctx, run).await?.is_none())
}

/// Asks the agents of hosts that are ready for slices for their slots, once a run. Returns how many it
/// asked.
pub(crate) async fn discover_slots(
    ctx: &Ctx,
    caller: &Caller,
    stored: &StoredExperiment,
) -> ApiResult<usize> {
    let mut asked = 0;
    for run in ctx.store.experiment_runs(&stored.name).await? {
        let Some((record, moments)) = unmeasured(ctx, &run).await? else { continue };
        if moments.slice_ready.is_none() || moments.slots_reported.is_some() {
            continue;
        }
        let key = IdempotencyKey {
            key: format!("experiment-discovery\n{}\n{}", stored.name, record.id),
            request_hash: sha256(&record.id.to_string()),
        };
        if ctx.store.replayed_response::<gpuaas_types::TaskId>(&key).await?.is_some() {
            continue;
        }
        let request = TaskRequest {
            operation: Operation::DiscoverSlices {},
            dry_run: false,
            actor: stored.created_by.clone(),
            reason: format!("experiment {} measures slot discovery", stored.name),
            within_seconds: DISCOVERY_WITHIN_SECONDS,
        };
        let (status, _) = tasks::issue(ctx, caller, run.node_id, request, Some(key)).await?;
        asked += usize::from(status == StatusCode::ACCEPTED);
    }
    Ok(asked)
}
