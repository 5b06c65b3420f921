//! What a batch does next, and how far it is.
//!
//! A batch has no memory of its own beyond two facts: that it was stopped, and which machines an
//! operator wrote off when letting it go on. Everything else is read from its members' runs each
//! time, so a member that was parked and mended counts as it then is, and a decision that was lost
//! with its process is simply made again.
//!
//! Canaries are not marked anywhere either: they are the first members that nobody wrote off and
//! that have, or will get, the profile revision in force. After a resume with a mended profile the
//! next machines in the manifest are therefore canaries again: no revision reaches many machines
//! before it brought a few to active.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gpuaas_types::batch::{BatchCounts, BatchMachine, BatchSpec, BatchStop};
use gpuaas_types::{BatchPhase, MemberState, NodeState, RunStatus, Timestamp};

use crate::record::ReportKind;
use crate::step_duration::percentile;

/// Members begun in one write; the rest follows at once, and others may write in between.
pub const BEGIN_AT_ONCE: usize = 64;

/// A machine of a batch as a decision sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberSnapshot {
    /// How it stands.
    pub state: MemberState,
    /// An operator resumed the batch while it was parked or failed.
    pub written_off: bool,
    /// Profile revision that its run pinned; none before it begins.
    pub profile_revision: Option<i64>,
    /// When its run began.
    pub started_at: Option<Timestamp>,
    /// When its run ended.
    pub ended_at: Option<Timestamp>,
}

impl MemberSnapshot {
    /// Parked or failed, and not written off.
    const fn fails(&self) -> bool {
        !self.written_off && matches!(self.state, MemberState::Parked | MemberState::Failed)
    }
}

/// Everything known about a batch at `now`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchSnapshot<'a> {
    /// The moment of the decision.
    pub now: Timestamp,
    /// What was asked.
    pub spec: &'a BatchSpec,
    /// Profile revision that members get which begin now.
    pub profile_revision: i64,
    /// Why no further member begins.
    pub stop: Option<&'a BatchStop>,
    /// The members, in the order of the manifest.
    pub members: &'a [MemberSnapshot],
}

/// What a batch does next. Positions are those in the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchDecision {
    /// How far it is.
    pub phase: BatchPhase,
    /// It stops now.
    pub stop: Option<BatchStop>,
    /// Members to begin, at most [`BEGIN_AT_ONCE`].
    pub begin: Vec<usize>,
    /// There are more to begin at once.
    pub more: bool,
    /// What it waits for, one sentence.
    pub waiting_for: String,
}

/// How a member stands, from its run, its node, and whether the node has other work open.
#[must_use]
pub const fn member_state(run: Option<RunStatus>, node: NodeState, busy: bool) -> MemberState {
    match (run, node) {
        (None, NodeState::Registered) if !busy => MemberState::Waiting,
        (None, _) => MemberState::Withdrawn,
        (Some(RunStatus::Succeeded), _) => MemberState::Active,
        (Some(RunStatus::Running | RunStatus::Waiting), _) => MemberState::Running,
        (Some(RunStatus::Parked), _) => MemberState::Parked,
        // Cancelled, and then brought into service by another run.
        (Some(RunStatus::Failed | RunStatus::Cancelled), NodeState::Active) => MemberState::Active,
        (Some(RunStatus::Failed | RunStatus::Cancelled), _) => MemberState::Failed,
    }
}

/// Members by state.
#[must_use]
pub fn count_by_state(members: &[MemberSnapshot]) -> BatchCounts {
    let mut counts = BatchCounts::default();
    for member in members {
        *match member.state {
            MemberState::Waiting => &mut counts.waiting,
            MemberState::Running => &mut counts.running,
            MemberState::Active => &mut counts.active,
            MemberState::Parked => &mut counts.parked,
            MemberState::Failed => &mut counts.failed,
            MemberState::Withdrawn => &mut counts.withdrawn,
        } += 1;
    }
    counts
}

/// Failing members and ended ones, leaving out those that were written off.
fn count_ended(members: &[MemberSnapshot]) -> (u32, u32) {
    members.iter().fold((0, 0), |(failing, ended), member| match member.state {
        MemberState::Active => (failing, ended + 1),
        _ if member.fails() => (failing + 1, ended + 1),
        _ => (failing, ended),
    })
}

/// Share of failing members among the ended ones, 0 to 1; 0 while none ended.
#[must_use]
pub fn failure_ratio(members: &[MemberSnapshot]) -> f64 {
    match count_ended(members) {
        (_, 0) => 0.0,
        (failing, ended) => f64::from(failing) / f64::from(ended),
    }
}

/// What the run of a machine goes by from its beginning, beside the node's hardware.
#[must_use]
pub fn reports_of_machine(machine: &BatchMachine) -> Vec<ReportKind> {
    let machine = machine.clone();
    ReportKind::of_request(machine.system_id, machine.serial, machine.take_over)
}

/// Positions of the canaries; see the module text.
#[must_use]
pub fn canaries(s: &BatchSnapshot<'_>) -> Vec<usize> {
    let may = |member: &MemberSnapshot| {
        !member.written_off
            && member.state != MemberState::Withdrawn
            && member.profile_revision.is_none_or(|revision| revision == s.profile_revision)
    };
    let fitting = s.members.iter().enumerate().filter(|(_, member)| may(member));
    fitting.take(s.spec.canary as usize).map(|(position, _)| position).collect()
}

/// Decides the next thing for a batch. Level-triggered: the same snapshot gives the same answer.
///
/// ```
/// use gpuaas_core::batch::{BatchSnapshot, MemberSnapshot, decide_batch};
/// use gpuaas_types::batch::{BatchMachine, BatchSpec};
/// use gpuaas_types::{BatchPhase, MemberState, Timestamp};
///
/// let machine = |hostname: &str| BatchMachine { hostname: hostname.into(), ..Default::default() };
/// let spec = BatchSpec {
///     name: "rack-22".into(),
///     site: "lab".into(),
///     profile: "h200".into(),
///     canary: 1,
///     stop_at_failure_ratio: 0.2,
///     stop_min_ended: 0,
///     max_parallel: 8,
///     machines: vec![machine("j22u11"), machine("j22u13")],
/// };
/// let waiting = MemberSnapshot {
///     state: MemberState::Waiting,
///     written_off: false,
///     profile_revision: None,
///     started_at: None,
///     ended_at: None,
/// };
/// let members = [waiting, waiting];
/// let decision = decide_batch(&BatchSnapshot {
///     now: Timestamp::EPOCH,
///     spec: &spec,
///     profile_revision: 1,
///     stop: None,
///     members: &members,
/// });
/// assert_eq!((decision.phase, decision.begin), (BatchPhase::Canary, vec![0]));
/// ```
#[must_use]
pub fn decide_batch(s: &BatchSnapshot<'_>) -> BatchDecision {
    let counts = count_by_state(s.members);
    if counts.waiting + counts.running + counts.parked == 0 {
        return begin_none(BatchPhase::Done, "nothing".to_owned());
    }
    if let Some(stop) = s.stop {
        return begin_none(BatchPhase::Stopped, format!("an operator: {}", stop.text));
    }
    let canaries = canaries(s);
    let proven = canaries.iter().all(|at| s.members[*at].state == MemberState::Active);
    if counts.waiting > 0
        && let Some((code, text)) = reason_to_stop(s, &canaries)
    {
        let stop = BatchStop { code: code.to_owned(), text, at: s.now };
        let waiting_for = format!("an operator: {}", stop.text);
        return BatchDecision { stop: Some(stop), ..begin_none(BatchPhase::Stopped, waiting_for) };
    }
    let waits = |at: &usize| s.members[*at].state == MemberState::Waiting;
    let (phase, next): (_, Vec<usize>) = if proven {
        (BatchPhase::Rolling, (0..s.members.len()).filter(waits).collect())
    } else {
        (BatchPhase::Canary, canaries.iter().copied().filter(waits).collect())
    };
    let room = match s.spec.max_parallel {
        0 => usize::MAX,
        limit => limit.saturating_sub(counts.running) as usize,
    };
    let fits = next.len().min(room);
    let begin: Vec<usize> = next.into_iter().take(fits.min(BEGIN_AT_ONCE)).collect();
    let waiting_for = waiting_for(s, phase, counts, begin.len());
    BatchDecision { phase, stop: None, more: fits > begin.len(), begin, waiting_for }
}

fn begin_none(phase: BatchPhase, waiting_for: String) -> BatchDecision {
    BatchDecision { phase, stop: None, begin: Vec::new(), more: false, waiting_for }
}

/// Why no further member may begin.
fn reason_to_stop(s: &BatchSnapshot<'_>, canaries: &[usize]) -> Option<(&'static str, String)> {
    let of = |position: &usize| s.members[*position];
    let fallen = canaries.iter().map(of).filter(MemberSnapshot::fails).count();
    let open = |member: &MemberSnapshot| {
        matches!(member.state, MemberState::Waiting | MemberState::Running)
    };
    if fallen > 0 && !canaries.iter().map(of).any(|member| open(&member)) {
        let text = format!("{fallen} of {} canaries did not become active", canaries.len());
        return Some(("canary_failed", text));
    }
    let (failing, ended) = count_ended(s.members);
    let limit = s.spec.stop_at_failure_ratio;
    if ended >= s.spec.min_ended() && f64::from(failing) > limit * f64::from(ended) {
        let text = format!(
            "{failing} of {ended} finished machines are parked or failed (limit: a ratio of \
             {limit})"
        );
        return Some(("failure_ratio", text));
    }
    None
}

fn waiting_for(
    s: &BatchSnapshot<'_>,
    phase: BatchPhase,
    counts: BatchCounts,
    begun: usize,
) -> String {
    let begun = u32::try_from(begun).unwrap_or(u32::MAX);
    let running = counts.running + begun;
    let waiting = counts.waiting - begun.min(counts.waiting);
    let (under_way, who) = match phase {
        BatchPhase::Canary => (format!("{running} canaries in progress"), "the canaries"),
        _ if waiting == 0 => (format!("{running} in progress"), ""),
        _ => {
            let text = format!("{running} in progress (at most {} at a time)", s.spec.max_parallel);
            (text, "their turn")
        }
    };
    let mut parts = vec![under_way];
    if waiting > 0 {
        parts.push(format!("{waiting} waiting for {who}"));
    }
    if counts.parked > 0 {
        parts.push(format!("{} parked, waiting for an operator", counts.parked));
    }
    parts.join("; ")
}

/// Seconds from begin to active of the members that are active.
#[must_use]
pub fn seconds_to_active(members: &[MemberSnapshot]) -> Vec<f64> {
    let active = members.iter().filter(|member| member.state == MemberState::Active);
    active.filter_map(|member| Some(member.ended_at?.seconds_since(member.started_at?))).collect()
}

/// When the last member is expected to end, if each takes as long as the median so far: running
/// ones from their begin, waiting ones as places become free, after the canaries. None while no
/// member is active, and while the batch waits for a person.
#[must_use]
pub fn estimated_end(s: &BatchSnapshot<'_>) -> Option<Timestamp> {
    let samples = seconds_to_active(s.members);
    let open = |member: &&MemberSnapshot| {
        matches!(member.state, MemberState::Waiting | MemberState::Running)
    };
    let left = s.members.iter().filter(open).count();
    if samples.is_empty() || left == 0 || s.stop.is_some() {
        return None;
    }
    let typical = percentile(&samples, 50);
    let canaries = canaries(s);
    let running: Vec<(usize, Timestamp)> = s
        .members
        .iter()
        .enumerate()
        .filter(|(_, member)| member.state == MemberState::Running)
        .map(|(at, member)| {
            let ends = member.started_at.unwrap_or(s.now).plus_seconds(typical);
            (at, ends.max(s.now))
        })
        .collect();
    let width = match s.spec.max_parallel {
        0 => left,
        limit => limit as usize,
    };
    let free = width.saturating_sub(running.len());
    let mut places: BinaryHeap<Reverse<Timestamp>> = running
        .iter()
        .map(|(_, ends)| Reverse(*ends))
        .chain((0..free).map(|_| Reverse(s.now)))
        .collect();
    let mut proven_at =
        running.iter().filter(|(at, _)| canaries.contains(at)).map(|(_, ends)| *ends).max();
    let mut last = running.iter().map(|(_, ends)| *ends).max();
    let waiting = |at: &usize| s.members[*at].state == MemberState::Waiting;
    let (first, then): (Vec<usize>, Vec<usize>) =
        (0..s.members.len()).filter(waiting).partition(|at| canaries.contains(at));
    for (canary, _) in first.iter().map(|at| (true, at)).chain(then.iter().map(|at| (false, at))) {
        let place = places.pop()?.0;
        let begins = if canary { place } else { place.max(proven_at.unwrap_or(place)) };
        let ends = begins.plus_seconds(typical);
        if canary {
            proven_at = proven_at.max(Some(ends));
        }
        places.push(Reverse(ends));
        last = last.max(Some(ends));
    }
    last
}

#[cfg(test)]
mod tests;
