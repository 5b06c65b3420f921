//! Moves batches: reads the rows, has the core decide, writes the step.
//!
//! There is no lease. A step names what it was decided on, and the store drops it whole when that
//! has changed ([`gpuaas_store::Store::advance_batch`]), so any number of control planes may decide
//! about a batch at once and its members still begin once each. A process that dies between the
//! read and the write leaves the batch due; one that dies after the write has done all of it.
//!
//! The loop sleeps until something happened to a member. Events of this process signal it; those of
//! another one are that one's to handle, and are found here half a minute later should it have
//! died in between.

use std::sync::Arc;

use gpuaas_core::batch::{BatchDecision, BatchSnapshot, decide_batch, reports_of_machine};
use gpuaas_store::{
    BatchAdvance, MemberStart, NewAuditEntry, NewRun, StoreError, StoredBatch, StoredMember,
};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::{AuditAction, BatchPhase, RunId, RunKind, Timestamp};

use crate::loops::repeated_failure::RepeatedFailure;
use crate::shared::Shared;

/// Name of the loop, for its supervisor.
pub(crate) const LOOP: &str = "batches";
/// Seconds between looks for batches that another control plane left due.
const IDLE_SECONDS: f64 = 30.0;
/// Decisions about one batch in one go; each begins members, ends the batch or is the last.
const MAX_STEPS: usize = 1000;

/// Moves batches until the engine stops.
pub(crate) async fn run_loop(shared: Arc<Shared>) {
    let mut happened = shared.store.batch_signal();
    let mut stop = shared.stopping();
    let mut failing = RepeatedFailure::new("cannot read due batches");
    while !*stop.borrow() {
        shared.supervisor.reach_loop(LOOP);
        happened.mark_unchanged();
        match step_due(&shared).await {
            Ok(()) => failing.succeeded(),
            Err(error) => failing.failed(&error),
        }
        let latest = shared.clock.now().plus_seconds(IDLE_SECONDS * shared.clock.factor());
        tokio::select! {
            _ = happened.changed() => {}
            _ = stop.changed() => {}
            () = shared.clock.sleep_until(latest) => {}
        }
    }
}

/// Moves every batch that is due.
///
/// # Errors
/// The store's.
pub(crate) async fn step_due(shared: &Shared) -> Result<(), StoreError> {
    for batch in shared.store.due_batches(shared.clock.now()).await? {
        let name = batch.spec.name.clone();
        if let Err(error) = step(shared, batch).await {
            tracing::error!(%error, batch = name, "cannot advance the batch");
        }
    }
    Ok(())
}

/// Decides and writes until the batch rests.
async fn step(shared: &Shared, mut batch: StoredBatch) -> Result<(), StoreError> {
    for _ in 0..MAX_STEPS {
        let id = batch.id.to_string();
        let members = shared.store.batch_members(batch.id).await?;
        let now = shared.clock.now();
        let seen: Vec<_> = members.iter().map(StoredMember::member).collect();
        let decision = decide_batch(&BatchSnapshot {
            now,
            spec: &batch.spec,
            profile_revision: batch.profile_revision,
            stop: batch.stop.as_ref(),
            members: &seen,
        });
        let more = decision.more;
        let kept = shared.store.advance_batch(now, plan(shared, batch, &members, decision, now));
        if kept.await? && !more {
            return Ok(());
        }
        batch = shared.store.batch(&id).await?;
        if batch.ended_at.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

fn plan(
    shared: &Shared,
    batch: StoredBatch,
    members: &[StoredMember],
    decision: BatchDecision,
    now: Timestamp,
) -> BatchAdvance {
    let name = &batch.spec.name;
    let row = RunKind::Onboard.row();
    let begin = decision.begin.iter().filter_map(|at| members.get(*at)).map(|member| {
        let id = RunId::new(&*shared.ids, now);
        let text = match decision.phase {
            BatchPhase::Canary => format!("batch {name} reached this node, as a canary"),
            _ => format!("batch {name} reached this node"),
        };
        let turn = TimelineEvent {
            at: now,
            run_id: Some(id),
            step: Some(row.first()),
            source: Source::ControlPlane,
            code: TimelineCode::BatchTurn.into(),
            text: text.clone(),
        };
        let machine = usize::try_from(member.position).ok();
        let machine = machine.and_then(|position| batch.spec.machines.get(position));
        let word = machine.and_then(|machine| machine.take_over.as_ref());
        let taken = word.map(|word| TimelineEvent {
            source: Source::Operator,
            code: TimelineCode::TakeOverApproved.into(),
            text: word.to_string(),
            ..turn.clone()
        });
        MemberStart {
            position: member.position,
            node_id: member.node_id,
            reports: machine.map(reports_of_machine).unwrap_or_default(),
            history: std::iter::once(turn).chain(taken).collect(),
            run: NewRun {
                id,
                kind: RunKind::Onboard,
                step: row.first(),
                profile_revision: batch.profile_revision,
                cause: text,
            },
        }
    });
    let begin = begin.collect();
    let audit = decision.stop.as_ref().map(|stop| NewAuditEntry {
        actor: "gpuaas".to_owned(),
        action: AuditAction::BatchStop,
        subject: name.clone(),
        detail: serde_json::json!({ "code": stop.code, "reason": stop.text }),
    });
    BatchAdvance {
        begin,
        audit,
        due_at: if decision.more { now } else { Timestamp::NEVER },
        ended: decision.phase == BatchPhase::Done,
        stop: decision.stop,
        batch,
    }
}
