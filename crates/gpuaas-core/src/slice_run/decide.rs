//! What comes next of a launch or a release.

use gpuaas_types::Timestamp;
use gpuaas_types::claim::ClaimedSlot;
use gpuaas_types::slice::{
    RecordedProof, SliceAction, SliceAttempt, SlicePart, SlicePartition, SliceReport, SliceRun,
    SliceRunKind, SliceRunStatus,
};

use super::proofs::missing_proofs;
use super::table::{Probed, action, action_row, next_part};

/// Times that an agent is asked how far an action came, where it does not say.
const PROBES: u32 = 10;
/// Times that it is asked while the action goes on, once in the time that a probe may take.
const PROBES_UNDER_WAY: u32 = 200;

/// What came of the task that the agent was given last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SliceTaskOutcome {
    /// Nothing yet.
    Open,
    /// The agent did it, and saw this.
    Succeeded(SliceReport),
    /// The agent did not do it, or it did not have its effect.
    Failed {
        /// Stable code of the agent.
        code: String,
        /// The same as a sentence.
        message: String,
    },
    /// The agent was ended amid it, or its time is over.
    Unknown,
}

/// What is known of a launch or a release.
#[derive(Debug, Clone, Copy)]
pub struct SliceSnapshot<'a> {
    /// The present.
    pub now: Timestamp,
    /// The run.
    pub run: &'a SliceRun,
    /// What came of the run's last attempt; none: there is no attempt.
    pub outcome: Option<&'a SliceTaskOutcome>,
    /// Slots of the claim.
    pub slots: &'a [ClaimedSlot],
    /// Partition of the NVSwitches that was made active; none: none.
    pub partition: Option<&'a SlicePartition>,
    /// What was proven, oldest first.
    pub proofs: &'a [RecordedProof],
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SliceDecision {
    /// Have the agent do this.
    Act {
        /// The action.
        action: SliceAction,
        /// Of a probe: the action whose outcome is unknown.
        probed: Option<SliceAction>,
    },
    /// Wait for the agent, until then.
    Await {
        /// Moment at which its answer is overdue.
        until: Timestamp,
    },
    /// The part is over.
    Advance {
        /// The next one.
        part: SlicePart,
    },
    /// The launch failed before anything was changed.
    Refuse {
        /// Reason as a sentence.
        reason: String,
    },
    /// The launch failed: what was prepared is taken back.
    Abandon {
        /// Reason as a sentence.
        reason: String,
    },
    /// Something of the release is unproven.
    Block {
        /// What is unproven, as a sentence.
        reason: String,
    },
    /// It ended as it should.
    Finish,
    /// It rests: it ended, or an operator has to act.
    Rest,
}

/// What comes next of `snapshot`.
#[must_use]
pub fn decide_slice_run(snapshot: &SliceSnapshot<'_>) -> SliceDecision {
    let run = snapshot.run;
    if run.status != SliceRunStatus::Running {
        return SliceDecision::Rest;
    }
    let Some(own) = action(run.kind, run.part) else { return without_action(snapshot) };
    let Some(attempt) = &run.attempt else {
        return SliceDecision::Act { action: own, probed: None };
    };
    match snapshot.outcome.unwrap_or(&SliceTaskOutcome::Unknown) {
        SliceTaskOutcome::Open if snapshot.now < attempt.deadline_at => {
            SliceDecision::Await { until: attempt.deadline_at }
        }
        SliceTaskOutcome::Open | SliceTaskOutcome::Unknown => unknown(run, attempt, own),
        SliceTaskOutcome::Succeeded(report) if attempt.action == SliceAction::Probe => {
            match action_row(own).probe.judge(report) {
                Probed::Happened => next(run),
                Probed::DidNotHappen => {
                    again(run, attempt, own, "the agent lost the outcome of the action")
                }
                Probed::NotYet if snapshot.now < attempt.deadline_at => {
                    SliceDecision::Await { until: attempt.deadline_at }
                }
                Probed::NotYet => probe(run, attempt, own, PROBES_UNDER_WAY),
            }
        }
        SliceTaskOutcome::Succeeded(_) => next(run),
        SliceTaskOutcome::Failed { .. } if attempt.action == SliceAction::Probe => {
            probe(run, attempt, own, PROBES)
        }
        SliceTaskOutcome::Failed { code, message } => {
            again(run, attempt, own, &format!("{code}: {message}"))
        }
    }
}

/// Parts that the control plane does alone.
fn without_action(snapshot: &SliceSnapshot<'_>) -> SliceDecision {
    let run = snapshot.run;
    if run.part != SlicePart::Return {
        return next(run);
    }
    let missing = missing_proofs(snapshot.slots, snapshot.partition, snapshot.proofs, run.began_at);
    if missing.is_empty() {
        return SliceDecision::Finish;
    }
    SliceDecision::Block { reason: missing.join("; ") }
}

fn next(run: &SliceRun) -> SliceDecision {
    next_part(run.kind, run.part)
        .map_or(SliceDecision::Finish, |part| SliceDecision::Advance { part })
}

/// An action whose outcome nobody knows: asked about, where asking tells more than doing.
fn unknown(run: &SliceRun, attempt: &SliceAttempt, own: SliceAction) -> SliceDecision {
    if own.may_repeat() {
        return again(run, attempt, own, "the agent did not answer in time");
    }
    probe(run, attempt, own, PROBES)
}

fn probe(run: &SliceRun, attempt: &SliceAttempt, own: SliceAction, most: u32) -> SliceDecision {
    if attempt.probes < most {
        return SliceDecision::Act { action: SliceAction::Probe, probed: Some(own) };
    }
    end_in_failure(run, own, "the agent does not report its progress")
}

fn again(run: &SliceRun, attempt: &SliceAttempt, own: SliceAction, why: &str) -> SliceDecision {
    if attempt.tries < action_row(own).tries {
        return SliceDecision::Act { action: own, probed: None };
    }
    end_in_failure(run, own, why)
}

fn end_in_failure(run: &SliceRun, own: SliceAction, why: &str) -> SliceDecision {
    let reason = format!("{own} failed: {why}");
    match (run.kind, run.part) {
        (SliceRunKind::Launch, SlicePart::Verify) => SliceDecision::Refuse { reason },
        (SliceRunKind::Launch, _) => SliceDecision::Abandon { reason },
        (SliceRunKind::Release, _) => SliceDecision::Block { reason },
    }
}
