//! Guarded transitions of the node's own state, in one table.

use gpuaas_types::NodeState::{
    self, Active, BootstrapIssued, Deleted, Detached, Draining, Enrolling, Offline, Quarantined,
    Registered, Retired,
};

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

#[cfg(test)]
mod tests {
    use super::*;

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
