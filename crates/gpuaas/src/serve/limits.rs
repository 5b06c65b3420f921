//! What the listeners allow, within what the process may open.

use gpuaas_types::limits::{Limit, LimitSetting, ListenerKind, ListenerLimits};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files that are for the database, MAAS, artifacts and the process itself.
const RESERVED_FILES: u64 = 128;

/// What the listeners allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BothLimits {
    pub(super) operators: ListenerLimits,
    pub(super) nodes: ListenerLimits,
}

impl BothLimits {
    /// The defaults, with `settings` in their place. Where there are no nodes but stand-ins, which
    /// come from one address as the operators do, nothing is counted per caller.
    pub(super) fn new(settings: &[LimitSetting], stand_ins: bool) -> Self {
        let mut limits = Self {
            operators: ListenerLimits::defaults(ListenerKind::Operators),
            nodes: ListenerLimits::defaults(ListenerKind::Nodes),
        };
        if stand_ins {
            limits.nodes = limits.nodes.for_one_address();
            limits.operators = limits.nodes;
        }
        for setting in settings {
            let listener = match setting.listener {
                ListenerKind::Operators => &mut limits.operators,
                ListenerKind::Nodes => &mut limits.nodes,
            };
            listener.set(setting.limit, setting.value);
        }
        limits
    }

    /// Shrinks the connections to what a process that may open `files` has room for: a third for
    /// operators at most, what they leave for nodes; stand-ins have the operators' listener, and no
    /// other.
    pub(super) fn within_open_files(self, files: u64, stand_ins: bool) -> Self {
        let free = files.saturating_sub(RESERVED_FILES).max(8);
        let operators = within(self.operators, if stand_ins { free } else { free / 3 });
        let nodes = within(self.nodes, free.saturating_sub(sockets(operators)));
        if (operators, nodes) != (self.operators, self.nodes) {
            tracing::warn!(
                files,
                operators = operators.get(Limit::Connections),
                nodes = nodes.get(Limit::Connections),
                "fewer connections than configured: the process cannot open more files \
                 (LimitNOFILE= of systemd, `ulimit -n`)"
            );
        }
        Self { operators, nodes }
    }
}

/// Sockets that a listener has open at most.
const fn sockets(limits: ListenerLimits) -> u64 {
    limits.get(Limit::SilentConnections).saturating_add(limits.get(Limit::Connections))
}

fn within(mut limits: ListenerLimits, most: u64) -> ListenerLimits {
    let silent = limits.get(Limit::SilentConnections).min((most / 4).max(1));
    limits.set(Limit::SilentConnections, silent);
    let rest = most.saturating_sub(silent).max(1);
    limits.set(Limit::Connections, limits.get(Limit::Connections).min(rest));
    limits
}

/// Lets the process open as many files as it may, and answers how many those are. The soft limit is
/// low for the sake of programs that use select(2) (systemd.exec(5)), which this one does not.
pub(super) fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(error) => {
            tracing::debug!(%error, "cannot raise the limit of open files");
            limit.current.unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_into_the_files_that_the_process_may_open() {
        let limits = BothLimits::new(&["nodes.connections=7".parse().unwrap()], false);
        assert_eq!(limits.within_open_files(u64::MAX, false), limits);
        assert_eq!(limits.nodes.get(Limit::Connections), 7);
        for files in [0, 200, 400, 1_024] {
            let limits = BothLimits::new(&[], false).within_open_files(files, false);
            let open = [limits.operators, limits.nodes].map(|limits| {
                let (silent, used) =
                    (limits.get(Limit::SilentConnections), limits.get(Limit::Connections));
                assert!(silent > 0 && used > 0, "{files}: {silent} {used}");
                sockets(limits)
            });
            let free = files.saturating_sub(RESERVED_FILES).max(8);
            assert!(open[0] + open[1] <= free, "{files}: {open:?}");
        }
    }

    /// Agents of a large fleet do not wait for connections that operators will never make.
    #[test]
    fn nodes_get_what_operators_leave() {
        let limits = BothLimits::new(&[], false);
        let within = limits.within_open_files(20_000, false);
        assert_eq!(within.operators, limits.operators);
        let left = 20_000 - RESERVED_FILES - sockets(limits.operators);
        assert_eq!(sockets(within.nodes), left.min(sockets(limits.nodes)));
    }

    #[test]
    fn stand_ins_are_many_callers_at_one_address() {
        let limits = BothLimits::new(&[], true).operators;
        assert_eq!(limits.get(Limit::ConnectionsPerAddress), u64::MAX);
        assert_eq!(limits.get(Limit::RequestsPerSecond), u64::MAX);
        let limits = BothLimits::new(&[], true).within_open_files(20_000, true).operators;
        assert!(limits.get(Limit::Connections) > 15_000, "{limits:?}");
    }
}
