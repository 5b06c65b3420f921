//! A decision, written into the run.

use gpuaas_types::slice::{
    GUEST_TIMEOUT_SECONDS, PartSpan, SliceAction, SliceAttempt, SlicePart, SliceRun, SliceRunKind,
    SliceRunStatus,
};
use gpuaas_types::{TaskId, Timestamp};

use super::decide::SliceDecision;
use super::table::{action_row, parts};

/// A launch that begins now.
#[must_use]
pub fn new_launch(now: Timestamp) -> SliceRun {
    let (kind, part) = (SliceRunKind::Launch, SlicePart::Claim);
    SliceRun {
        kind,
        part,
        status: SliceRunStatus::Running,
        began_at: now,
        parts: vec![PartSpan { kind, part, began_at: now, ended_at: None }],
        attempt: None,
        reason: String::new(),
    }
}

/// The release of what `run` launched, from its first part on; of a blocked one once more, and what was
/// proven before does not count.
#[must_use]
pub fn to_release(run: &SliceRun, now: Timestamp, reason: &str) -> SliceRun {
    let mut run = run.clone();
    end_part(&mut run, now);
    (run.kind, run.status, run.began_at) = (SliceRunKind::Release, SliceRunStatus::Running, now);
    begin_part(&mut run, now, parts(SliceRunKind::Release)[0]);
    reason.clone_into(&mut run.reason);
    run
}

/// How long tasks of agents may take.
#[derive(Debug, Clone, Copy)]
pub struct TaskLimits {
    /// How fast the clock runs.
    pub factor: f64,
    /// Seconds that a guest may take to call; none: the default.
    pub guest_timeout_seconds: Option<u32>,
}

impl TaskLimits {
    /// Seconds of the clock that a task may take, from the moment at which the agent is told.
    fn seconds(self, action: SliceAction) -> f64 {
        let limit = action_row(action).limit_seconds;
        let asked = self.guest_timeout_seconds.filter(|_| action == SliceAction::AwaitGuest);
        let more = asked.map_or(0.0, |asked| f64::from(asked) - f64::from(GUEST_TIMEOUT_SECONDS));
        (f64::from(limit) + more) * self.factor
    }
}

/// The run after `decision`; `task_id` is that of the task that a decision to act gives the agent.
#[must_use]
pub fn apply(
    run: &SliceRun,
    decision: &SliceDecision,
    now: Timestamp,
    task_id: TaskId,
    limits: TaskLimits,
) -> SliceRun {
    let mut next = run.clone();
    match decision {
        SliceDecision::Act { action, probed } => {
            next.attempt = Some(attempt(run, *action, *probed, task_id, now, limits));
        }
        SliceDecision::Advance { part } => {
            end_part(&mut next, now);
            begin_part(&mut next, now, *part);
        }
        SliceDecision::Abandon { reason } => next = to_release(run, now, reason),
        SliceDecision::Refuse { reason } => {
            end(&mut next, now, SliceRunStatus::Failed);
            next.reason.clone_from(reason);
        }
        SliceDecision::Block { reason } => {
            end(&mut next, now, SliceRunStatus::Blocked);
            next.reason.clone_from(reason);
        }
        SliceDecision::Finish => end(&mut next, now, SliceRunStatus::Succeeded),
        SliceDecision::Await { .. } | SliceDecision::Rest => {}
    }
    next
}

fn attempt(
    run: &SliceRun,
    action: SliceAction,
    probed: Option<SliceAction>,
    task_id: TaskId,
    now: Timestamp,
    limits: TaskLimits,
) -> SliceAttempt {
    let (tries, probes) =
        run.attempt.as_ref().map_or((0, 0), |attempt| (attempt.tries, attempt.probes));
    let (tries, probes) = if probed.is_some() { (tries, probes + 1) } else { (tries + 1, 0) };
    let limit = limits.seconds(action);
    SliceAttempt { task_id, action, probed, tries, probes, deadline_at: now.plus_seconds(limit) }
}

fn begin_part(run: &mut SliceRun, now: Timestamp, part: SlicePart) {
    (run.part, run.attempt) = (part, None);
    run.parts.push(PartSpan { kind: run.kind, part, began_at: now, ended_at: None });
}

fn end_part(run: &mut SliceRun, now: Timestamp) {
    if let Some(last) = run.parts.last_mut() {
        last.ended_at.get_or_insert(now);
    }
}

fn end(run: &mut SliceRun, now: Timestamp, status: SliceRunStatus) {
    end_part(run, now);
    (run.status, run.attempt) = (status, None);
}
