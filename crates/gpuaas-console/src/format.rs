//! Times, durations and words, as pages show them.

use gpuaas_types::api::{Lateness, Owner, Source};
use gpuaas_types::{NodeState, RunStatus, Timestamp};

/// A duration in one pair of units: `12 m 40 s`, `2 h 05 m`, `3 d 4 h`, `0.8 s`.
pub(crate) fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    if seconds < 10.0 {
        return format!("{seconds:.1} s");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let whole = seconds.round() as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{minutes} m {:02} s", whole % 60),
        3600..86_400 => format!("{hours} h {minutes:02} m"),
        _ => format!("{days} d {hours} h"),
    }
}

/// How long ago `at` was.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    duration(now.seconds_since(at))
}

/// Date and time in UTC, to the second.
pub(crate) fn time(at: Timestamp) -> String {
    at.to_chrono().format("%Y-%m-%d %H:%M:%S").to_string()
}

/// The time of day in UTC, to the second.
pub(crate) fn clock(at: Timestamp) -> String {
    at.to_chrono().format("%H:%M:%S").to_string()
}

/// A state as shape, word and class of the style sheet: color alone says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) shape: &'static str,
    pub(crate) word: &'static str,
    pub(crate) class: &'static str,
}

const fn mark(shape: &'static str, word: &'static str, class: &'static str) -> Mark {
    Mark { shape, word, class }
}

/// The mark of a node, whose open run may be late or parked.
pub(crate) fn node_mark(state: NodeState, lateness: Option<Lateness>) -> Mark {
    match (lateness, state) {
        (Some(Lateness::Parked), _) => mark("▲", "parked", "bad"),
        (Some(Lateness::Stuck), _) => mark("▲", "stuck", "bad"),
        (Some(Lateness::Slow), _) => mark("◆", "slow", "slow"),
        (None, NodeState::Active) => mark("✓", "active", "ok"),
        (None, NodeState::Offline) => mark("–", "offline", "off"),
        (None, NodeState::Quarantined) => mark("■", "quarantined", "held"),
        (None, NodeState::Draining) => mark("■", "draining", "held"),
        (None, NodeState::Registered) => mark("◌", "registered", "wait"),
        (None, NodeState::BootstrapIssued) => mark("▶", "bootstrap issued", "run"),
        (None, NodeState::Enrolling) => mark("▶", "enrolling", "run"),
        (None, NodeState::Retired) => mark("–", "retired", "off"),
        (None, NodeState::Detached) => mark("–", "detached", "off"),
        (None, NodeState::Deleted) => mark("–", "deleted", "off"),
    }
}

/// The mark of a run.
pub(crate) const fn run_mark(status: RunStatus) -> Mark {
    match status {
        RunStatus::Running => mark("▶", "running", "run"),
        RunStatus::Waiting => mark("◌", "waiting", "wait"),
        RunStatus::Parked => mark("▲", "parked", "bad"),
        RunStatus::Succeeded => mark("✓", "succeeded", "ok"),
        RunStatus::Failed => mark("▲", "failed", "bad"),
        RunStatus::Cancelled => mark("–", "cancelled", "off"),
    }
}

/// Who has to act.
pub(crate) const fn owner(owner: Owner) -> &'static str {
    match owner {
        Owner::InfraOperator => "MAAS or data center operator",
        Owner::PlatformOperator => "GPUaaS operator",
        Owner::BundleOwner => "bundle owner",
    }
}

/// Whose view a line of a history is.
pub(crate) const fn source(source: Source) -> &'static str {
    match source {
        Source::ControlPlane => "control plane",
        Source::Maas => "MAAS",
        Source::Bootstrap => "bootstrap",
        Source::Agent => "agent",
        Source::Operator => "operator",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_pair_of_units() {
        for (seconds, text) in [
            (0.84, "0.8 s"),
            (42.0, "42 s"),
            (760.0, "12 m 40 s"),
            (3599.7, "1 h 00 m"),
            (7500.0, "2 h 05 m"),
            (273_600.0, "3 d 4 h"),
            (-1.0, "0.0 s"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn lateness_outranks_the_state() {
        assert_eq!(node_mark(NodeState::Active, Some(Lateness::Parked)).word, "parked");
        assert_eq!(node_mark(NodeState::Active, None).word, "active");
    }
}
