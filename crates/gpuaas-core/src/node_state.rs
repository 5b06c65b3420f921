//! Guarded transitions of the node's own state, in one table.

use gpuaas_types::NodeState::{
    self, Active, BootstrapIssued, Deleted, Detached, Draining, Enrolling, Offline, Quarantined,
    Registered, Retired,
};
use gpuaas_types::{RunKind, Step};

use crate::record::RunRecord;

/// Every allowed transition. Whatever is not here is refused.
pub const ALLOWED: &[(NodeState, &[NodeState])] = &[
    (Registered, &[BootstrapIssued, Quarantined, Draining, Detached, Retired, Deleted]),
    (BootstrapIssued, &[Registered, Enrolling, Quarantined, Draining, Detached, Retired]),
    (Enrolling, &[Registered, BootstrapIssued, Active, Quarantined, Draining, Detached, Retired]),
    (Active, &[BootstrapIssued, Offline, Quarantined, Draining, Detached]),
    (Offline, &[BootstrapIssued, Active, Quarantined, Draining, Detached]),
    (Quarantined, &[BootstrapIssued, Active, Draining, Detached, Retired]),
    (
        Draining,
        &[Registered, Active, Offline, BootstrapIssued, Enrolling, Retired, Quarantined, Detached],
    ),
    (Retired, &[Registered, BootstrapIssued, Detached, Deleted]),
    (Detached, &[Deleted]),
    (Deleted, &[]),
];

/// Whether a node may go from one state to another. Staying is always allowed.
#[must_use]
pub fn may_become(from: NodeState, to: NodeState) -> bool {
    from == to || ALLOWED.iter().any(|(state, next)| *state == from && next.contains(&to))
}

/// State of the node when its run was cancelled; none: it stays as it is.
///
/// A cancelled onboarding is of a node that was never in service. Whatever else had already touched
/// the machine leaves it in a state that nobody vouches for; before that, nothing has changed.
#[must_use]
pub fn state_after_cancel(run: &RunRecord) -> Option<NodeState> {
    let before = run.state.state_before?;
    let touched = [Step::Release, Step::AgentCleanup].iter().any(|s| run.state.visits(*s) > 0);
    match run.kind {
        RunKind::Onboard => Some(NodeState::Registered),
        _ if touched => Some(NodeState::Quarantined),
        _ => Some(before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_types::steps::KINDS;

    #[test]
    fn every_kind_of_run_may_end_as_its_row_says() {
        for row in KINDS {
            let draining = row.steps.contains(&Step::Drain);
            for from in row.begins_in {
                let from = if draining { NodeState::Draining } else { *from };
                let ends = may_become(from, row.ends_in)
                    || row.steps.contains(&Step::Confirmation) && row.ends_in == NodeState::Active;
                assert!(ends, "{} from {from}", row.kind);
                assert!(!draining || may_become(from, NodeState::Draining), "{}", row.kind);
            }
        }
    }

    #[test]
    fn the_table_covers_every_state_once() {
        for state in NodeState::ALL {
            assert_eq!(ALLOWED.iter().filter(|(from, _)| from == state).count(), 1);
        }
        assert!(may_become(Enrolling, Active));
        assert!(!may_become(Registered, Active));
        assert!(!may_become(Detached, Active));
    }
}
