//! Claims due runs in batches and carries each as far as it goes.
//!
//! The loop is the whole of the engine's authority: load, decide, do, record. What it holds in
//! memory between two commits is only what the next commit will say, so a crash at any line
//! leaves the run as of its last commit: due again, or with an intent that has no outcome.

use std::sync::Arc;

use gpuaas_store::{LeasedRun, RunWrite, StoreError};
use gpuaas_types::codes::ParkCode;
use gpuaas_types::{RunId, RunStatus, Timestamp};
use tokio::task::{JoinError, JoinSet};
use tracing::Instrument as _;

use crate::loops::failpoint::Failpoint;
use crate::loops::panics::{PanicReport, catch_panic};
use crate::loops::repeated_failure::RepeatedFailure;
use crate::predeploy::admission;
use crate::run::carry_out::{Flow, apply_decision, internal_park};
use crate::run::context::RunContext;
use crate::run::recheck::{Recheck, recheck};
use crate::run::session::{RunSession, park_run};
use crate::shared::Shared;

/// Name of the loop, for its supervisor.
pub(crate) const LOOP: &str = "worker";
/// Decisions in one claim before the run is given back. Far above what a real run takes; a
/// decision that does not move would otherwise hold its worker for ever.
const MAX_DECISIONS: u32 = 400;
/// How many of the last decisions a run that decided without end shows.
const LOOP_EVIDENCE: u32 = 3;
/// Seconds between two claims of runs that another replica made due.
const IDLE_SECONDS: f64 = 1.0;

/// Claims and works until the engine stops.
pub(crate) async fn run_loop(shared: Arc<Shared>) {
    let mut working = JoinSet::new();
    let mut due = shared.store.due_signal();
    let mut stop = shared.stopping();
    let mut failing = RepeatedFailure::new("cannot claim due runs");
    loop {
        shared.supervisor.reach_loop(LOOP);
        while let Some(ended) = working.try_join_next() {
            propagate_panic(ended);
        }
        let free = shared.config.parallel_runs.saturating_sub(working.len());
        let now = shared.clock.now();
        due.mark_unchanged();
        let claimed = claim_due_runs(&shared, free).await;
        match &claimed {
            Ok(_) => failing.succeeded(),
            Err(error) => failing.failed(error),
        }
        let claimed = claimed.unwrap_or_default();
        let idle = claimed.is_empty();
        for run in claimed {
            let shared = Arc::clone(&shared);
            working.spawn(async move { process_run(&shared, run).await });
        }
        if *stop.borrow() {
            break;
        }
        if free == 0 {
            // What became due meanwhile is claimed by whoever ends first.
            tokio::select! {
                _ = stop.changed() => break,
                Some(ended) = working.join_next() => propagate_panic(ended),
            }
        } else if idle {
            let at = next_claim_at(&shared, now).await;
            tokio::select! {
                _ = due.changed() => {}
                _ = stop.changed() => break,
                () = shared.clock.sleep_until(at) => {}
            }
        }
    }
    while let Some(ended) = working.join_next().await {
        propagate_panic(ended);
    }
}

/// Ends the loop with the panic of a run's task. A panic in a run parks that run and does not come
/// here, so this is one in what surrounds it.
fn propagate_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// Claims due runs, as many as one statement takes.
pub(crate) async fn claim_due_runs(
    shared: &Shared,
    at_most: usize,
) -> Result<Vec<LeasedRun>, StoreError> {
    if at_most == 0 {
        return Ok(Vec::new());
    }
    let now = shared.clock.now();
    let until = now.plus_seconds(shared.config.lease_seconds);
    shared.store.claim(now, until, at_most.min(CLAIM_BATCH)).await
}

/// Runs claimed in one statement.
const CLAIM_BATCH: usize = 64;

async fn next_claim_at(shared: &Shared, now: Timestamp) -> Timestamp {
    let latest = now.plus_seconds(IDLE_SECONDS * shared.clock.factor());
    match shared.store.next_due().await {
        Ok(Some(at)) => at.min(latest),
        _ => latest,
    }
}

/// Carries a claimed run until it rests. A panic on the way parks the run.
pub(crate) async fn process_run(shared: &Shared, claimed: LeasedRun) {
    let (run_id, lease_token) = (claimed.run.id, claimed.run.lease_token);
    let hostname = claimed.node.hostname.clone();
    let span = tracing::info_span!(
        "run",
        %run_id,
        node = claimed.node.hostname,
        // Its name is read together with what else the run needs.
        site = tracing::field::Empty,
        kind = claimed.run.kind.as_str(),
        trace.parent = claimed.run.traceparent.as_deref()
    );
    let work = async {
        let recorded = match catch_panic(Box::pin(drive_run(shared, claimed))).await {
            Ok(recorded) => recorded,
            Err(panic) => {
                tracing::error!(message = panic.message, place = panic.place, "the run panicked");
                park_after_panic(shared, (run_id, &hostname), lease_token, &panic).await
            }
        };
        match recorded {
            Ok(()) => {}
            Err(StoreError::LeaseLost) => {
                tracing::info!("another worker holds the run; nothing was written");
            }
            Err(error) => tracing::error!(%error, "cannot record the run"),
        }
    };
    work.instrument(span).await;
}

/// Parks a run as of its last commit. What its worker had in memory is gone with the panic; an
/// intent without an outcome is probed once the run is resumed.
///
/// # Errors
/// The store's. [`StoreError::LeaseLost`]: another worker has the run by now.
async fn park_after_panic(
    shared: &Shared,
    (run_id, hostname): (RunId, &str),
    lease_token: i64,
    panic: &PanicReport,
) -> Result<(), StoreError> {
    let mut run = shared.store.run(run_id).await?;
    if run.lease_token != lease_token {
        return Err(StoreError::LeaseLost);
    }
    let now = shared.clock.now();
    if run.status == RunStatus::Parked {
        // A recheck that panics would do so again: from here on only an operator lets the run go on.
        run.due_at = Timestamp::NEVER;
        run.park.iter_mut().for_each(|park| park.looks_again_at = None);
        return shared.store.commit(now, RunWrite::new(run).releasing().staying_parked()).await;
    }
    if !matches!(run.status, RunStatus::Running | RunStatus::Waiting) {
        return Ok(());
    }
    let text = format!("a bug in GPUaaS stopped the run: {panic}");
    let mut park = internal_park(ParkCode::InternalError, text, now);
    park.evidence.extend(Some(panic.place.clone()).filter(|place| !place.is_empty()));
    let parked = park_run(&mut run, hostname, park);
    let profile = shared.profile(run.profile_id, run.profile_revision).await?;
    let ttl = f64::from(profile.spec.enrollment_token_ttl_seconds);
    let mut write = RunWrite::new(run).releasing();
    write.timeline.push(parked);
    write.tokens_expire_at = Some(now.plus_seconds(ttl));
    shared.store.commit(now, write).await
}

/// Carries one claimed run until it waits, parks or ends.
///
/// # Errors
/// The store's; the run is then due again when its lease ends.
async fn drive_run(shared: &Shared, claimed: LeasedRun) -> Result<(), StoreError> {
    let context = RunContext::prepare(shared, &claimed).await?;
    tracing::Span::current().record("site", context.site.name.as_str());
    let mut session = RunSession::new(claimed, context, shared.failpoints.clone());
    session.give_up_lost_call(shared.clock.now());
    session.reach(Failpoint::Claimed).await;
    if session.run.status == RunStatus::Parked
        && Box::pin(recheck(shared, &mut session)).await? == Recheck::StaysParked
    {
        return Ok(());
    }
    let mut held_deploy_slot = admission::holds_deploy_slot(&session.run);
    let mut deploy_slot_released = false;
    let mut latest = Vec::new();
    for count in 0..MAX_DECISIONS {
        let now = shared.clock.now();
        session.reach_decision();
        if session.repeats_decision() {
            continue;
        }
        let decision = gpuaas_core::decide(&session.snapshot(now));
        let span = tracing::info_span!("step", step = session.run.step.as_str());
        if count + LOOP_EVIDENCE >= MAX_DECISIONS {
            latest.push(format!("in {} it decided: {}", session.run.step, decision.name()));
        }
        let flow = if admission::at_deploy_admission(&session, &decision) {
            Box::pin(admit_deploy(shared, &mut session)).instrument(span).await?
        } else {
            // On the heap: in a debug build the future of a step fills a thread's stack.
            Box::pin(apply_decision(shared, &mut session, decision, now)).instrument(span).await?
        };
        let holds_deploy_slot = admission::holds_deploy_slot(&session.run);
        deploy_slot_released |= held_deploy_slot && !holds_deploy_slot;
        held_deploy_slot = holds_deploy_slot;
        if flow == Flow::Released {
            if deploy_slot_released {
                admission::wake_next(shared, &session).await?;
            }
            return Ok(());
        }
    }
    let now = shared.clock.now();
    let text = format!("the run did not settle after {MAX_DECISIONS} consecutive decisions");
    let mut park = internal_park(ParkCode::DecisionLoop, text, now);
    park.evidence.push(format!("the run is at step {}", session.run.step));
    park.evidence.extend(latest);
    session.park(park);
    session.commit(&shared.store, now, true).await
}

/// Decides again while no other run of this process is admitted, and records an admission before
/// the next run counts.
async fn admit_deploy(shared: &Shared, session: &mut RunSession) -> Result<Flow, StoreError> {
    let admitting = shared.deploy_admission.lock().await;
    session.deploy_queue = admission::deploy_queue(shared, session).await?;
    let now = shared.clock.now();
    let decision = gpuaas_core::decide(&session.snapshot(now));
    if decision.next_step(&session.run).is_none() {
        drop(admitting);
        return apply_decision(shared, session, decision, now).await;
    }
    admission::note_admission(session, now);
    let flow = apply_decision(shared, session, decision, now).await?;
    session.resume_work(now.plus_seconds(shared.config.lease_seconds));
    session.commit(&shared.store, now, false).await?;
    Ok(flow)
}
