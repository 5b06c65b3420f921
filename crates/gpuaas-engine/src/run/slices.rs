//! Launches and releases of slices: reads the rows, has the core decide, writes what follows.
//!
//! As with batches there is no lease: a write names what it was decided on, and the store drops it
//! whole when that has changed ([`gpuaas_store::Store::advance_slice_run`]). The agent's task is the
//! intent: it is committed with the decision, before the agent can see it.

use std::sync::Arc;

use gpuaas_core::slice_run::{
    SliceDecision, SliceSnapshot, SliceTaskOutcome, TaskLimits, apply, decide_slice_run,
};
use gpuaas_store::{
    NewSliceTask, SliceRunWrite, SliceTaskState, Store, StoreError, StoredSliceRun,
};
use gpuaas_types::agent::{TaskResult, TaskSpec};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::slice::{SliceAttempt, SliceProof, SliceRun, SliceRunKind};
use gpuaas_types::{ClaimId, IdSource, TaskId, Timestamp};

use crate::loops::repeated_failure::RepeatedFailure;
use crate::shared::Shared;

/// Name of the loop, for its supervisor.
pub(crate) const LOOP: &str = "slice runs";
/// Seconds between two looks for what is due.
const LOOK_SECONDS: f64 = 1.0;
/// Runs that are moved in one look.
const AT_ONCE: u32 = 100;
/// Decisions about one run in one go: a launch and a release have fewer parts.
const MAX_STEPS: usize = 40;
/// Code of an agent that was ended amid a task.
const INTERRUPTED: &str = "task_interrupted";

/// Moves launches and releases until the engine stops.
pub(crate) async fn run_loop(shared: Arc<Shared>) {
    let mut stop = shared.stopping();
    // Of this process: what another one wrote is found by the next look.
    let mut happened = shared.store.slice_signal();
    let mut failing = RepeatedFailure::new("cannot read due launches and releases");
    while !*stop.borrow() {
        shared.supervisor.reach_loop(LOOP);
        happened.mark_unchanged();
        let (store, ids) = (&shared.store, &*shared.ids);
        match step_slice_runs(store, ids, shared.clock.now(), shared.clock.factor()).await {
            Ok(_) => failing.succeeded(),
            Err(error) => failing.failed(&error),
        }
        let next = shared.clock.now().plus_seconds(LOOK_SECONDS * shared.clock.factor());
        tokio::select! {
            _ = stop.changed() => {}
            _ = happened.changed() => {}
            () = shared.clock.sleep_until(next) => {}
        }
    }
}

/// Moves each launch and release that is due, as far as it goes without an agent; answers how many.
///
/// # Errors
/// The store's, where it cannot be read.
pub async fn step_slice_runs(
    store: &Store,
    ids: &dyn IdSource,
    now: Timestamp,
    factor: f64,
) -> Result<usize, StoreError> {
    let due = store.due_slice_runs(now, AT_ONCE).await?;
    let count = due.len();
    for id in due {
        if let Err(error) = step(store, ids, now, factor, id).await {
            tracing::error!(%error, claim = %id, "cannot advance a slice");
        }
    }
    Ok(count)
}

async fn step(
    store: &Store,
    ids: &dyn IdSource,
    now: Timestamp,
    factor: f64,
    id: ClaimId,
) -> Result<(), StoreError> {
    for _ in 0..MAX_STEPS {
        let Some(stored) = store.slice_run(id).await? else { return Ok(()) };
        let outcome = stored.task.as_ref().map(outcome);
        let proofs = reported_proofs(&stored);
        let decision = decide_slice_run(&SliceSnapshot {
            now,
            run: &stored.run,
            outcome: outcome.as_ref(),
            slots: &stored.claim.slots,
            partition: stored.spec.partition.as_ref(),
            proofs: &stored.proofs,
        });
        if decision == SliceDecision::Rest {
            return Ok(());
        }
        let write = next_write(stored, &decision, proofs, TaskId::new(ids, now), (now, factor));
        let rests = matches!(decision, SliceDecision::Await { .. } | SliceDecision::Act { .. });
        if !store.advance_slice_run(now, write).await? || rests {
            return Ok(());
        }
    }
    Ok(())
}

/// What came of the agent's task.
fn outcome(task: &SliceTaskState) -> SliceTaskOutcome {
    match &task.result {
        None => SliceTaskOutcome::Open,
        Some(TaskResult { succeeded: true, slice: Some(report), .. }) => {
            SliceTaskOutcome::Succeeded(report.as_ref().clone())
        }
        Some(result) if result.code == INTERRUPTED => SliceTaskOutcome::Unknown,
        Some(result) => SliceTaskOutcome::Failed {
            code: if result.succeeded { "report_missing".to_owned() } else { result.code.clone() },
            message: result.message.clone(),
        },
    }
}

/// What the agent proved with the last attempt; written with the decision that ends the attempt.
fn reported_proofs(stored: &StoredSliceRun) -> Vec<SliceProof> {
    let result = stored.task.as_ref().and_then(|task| task.result.as_ref());
    let report = result.and_then(|result| result.slice.as_ref());
    report.map(|report| report.proofs.clone()).unwrap_or_default()
}

fn next_write(
    stored: StoredSliceRun,
    decision: &SliceDecision,
    proofs: Vec<SliceProof>,
    task_id: TaskId,
    (now, factor): (Timestamp, f64),
) -> SliceRunWrite {
    let StoredSliceRun { claim, run, spec, revision, .. } = stored;
    let limits = TaskLimits { factor, guest_timeout_seconds: spec.guest_timeout_seconds };
    let next = apply(&run, decision, now, task_id, limits);
    let fence = u64::try_from(claim.fence).unwrap_or_default();
    let task = match (decision, &next.attempt) {
        (SliceDecision::Act { action, .. }, Some(SliceAttempt { deadline_at, .. })) => {
            let slice = Box::new(spec.task(claim.id, fence, *action));
            Some(NewSliceTask {
                id: task_id,
                spec: TaskSpec::Slice { slice },
                expires_at: *deadline_at,
            })
        }
        _ => None,
    };
    let due_at = match (decision, &next.attempt) {
        (SliceDecision::Await { until }, _) => *until,
        (SliceDecision::Act { .. }, Some(attempt)) => attempt.deadline_at,
        _ => now,
    };
    // An attempt that goes on has proven nothing yet.
    let ends_attempt = !matches!(decision, SliceDecision::Await { .. });
    SliceRunWrite {
        claim_id: claim.id,
        revision,
        due_at,
        task,
        proofs: if ends_attempt { proofs } else { Vec::new() },
        history: history(now, claim.id, &run, decision),
        run: next,
    }
}

fn history(
    now: Timestamp,
    id: ClaimId,
    run: &SliceRun,
    decision: &SliceDecision,
) -> Vec<TimelineEvent> {
    let (code, text) = match decision {
        SliceDecision::Finish if run.kind == SliceRunKind::Launch => {
            (TimelineCode::SliceInUse, format!("the guest of claim {id} is running"))
        }
        SliceDecision::Finish => {
            (TimelineCode::SlotsReturned, format!("the slots of claim {id} are proven clean"))
        }
        SliceDecision::Refuse { reason } => {
            (TimelineCode::SliceRefused, format!("claim {id}: {reason}"))
        }
        SliceDecision::Abandon { reason } => {
            (TimelineCode::SliceAbandoned, format!("claim {id}: {reason}"))
        }
        SliceDecision::Block { reason } => {
            (TimelineCode::SliceBlocked, format!("claim {id}: {reason}"))
        }
        _ => return Vec::new(),
    };
    let source = Source::ControlPlane;
    vec![TimelineEvent { at: now, run_id: None, step: None, source, code: code.into(), text }]
}
