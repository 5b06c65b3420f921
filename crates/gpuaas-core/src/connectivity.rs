//! Whether a node's agent is heard: when a silence counts, and what changes when it ends.
//!
//! A silence is noted once, with the last heartbeat before it, and ends with the first heartbeat
//! after that one. What is noted is data of the node, so a restart or another replica neither
//! repeats nor loses it. Time in which no control plane listened is no silence of an agent.

use gpuaas_types::agent::HEARTBEAT_INTERVAL_SECONDS;
use gpuaas_types::api::{Connectivity, ConnectivityState};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::{NodeState, Timestamp};

use crate::elapsed::elapsed_as_text;
use crate::record::NodeRecord;

/// Heartbeats that must be missing before a silence counts, whatever a profile says: one or two are
/// lost on any network.
pub const MISSED_HEARTBEATS: u32 = 4;

/// The shortest silence that counts, in seconds of a clock that runs `clock_factor` times as fast
/// as those of the agents.
#[must_use]
pub fn shortest_silence_seconds(clock_factor: f64) -> f64 {
    f64::from(MISSED_HEARTBEATS * HEARTBEAT_INTERVAL_SECONDS) * clock_factor.max(1.0)
}

/// Seconds without a heartbeat that a profile allows, `offline_after_seconds`, on such a clock.
#[must_use]
pub fn allowed_silence_seconds(offline_after_seconds: u32, clock_factor: f64) -> f64 {
    f64::from(offline_after_seconds).max(shortest_silence_seconds(clock_factor))
}

/// What is known of a node whose agent was heard at least once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Presence {
    /// GPUaaS' own view of the node.
    pub state: NodeState,
    /// Whether a run is open on it: then the run decides about its state, and its agent may be
    /// away on purpose.
    pub has_open_run: bool,
    /// The last heartbeat.
    pub heartbeat_at: Timestamp,
    /// The last heartbeat before the silence that was noted; none: no silence was.
    pub silent_since: Option<Timestamp>,
}

/// What a look at a node's heartbeats changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectivityChange {
    /// A silence begins or ends here; none: only the state follows what was noted before.
    pub turned: Option<ConnectivityState>,
    /// State that the node gets; none: it keeps its own.
    pub state: Option<NodeState>,
}

/// Whether a node in this state is to be heard.
#[must_use]
pub const fn is_in_service(state: NodeState) -> bool {
    use NodeState::{Active, Draining, Offline, Quarantined};
    matches!(state, Active | Offline | Quarantined | Draining)
}

/// Decides about one node. `listening_since`: since when control planes have listened without a
/// gap.
#[must_use]
pub fn decide_connectivity(
    presence: &Presence,
    allowed_seconds: f64,
    listening_since: Timestamp,
    now: Timestamp,
) -> Option<ConnectivityChange> {
    use ConnectivityState::{Offline, Online};
    let Presence { state, has_open_run, heartbeat_at, silent_since } = *presence;
    let quiet = now.seconds_since(heartbeat_at.max(listening_since)) > allowed_seconds;
    let rests = is_in_service(state) && !has_open_run;
    let turned = match silent_since {
        None if rests && quiet => Some(Offline),
        Some(since) if heartbeat_at > since => Some(Online),
        _ => None,
    };
    let silent = turned.map_or(silent_since.is_some(), |turned| turned == Offline);
    let state = match state {
        NodeState::Active if rests && silent => Some(NodeState::Offline),
        NodeState::Offline if rests && !silent && !quiet => Some(NodeState::Active),
        _ => None,
    };
    (turned.is_some() || state.is_some()).then_some(ConnectivityChange { turned, state })
}

impl ConnectivityChange {
    /// Code and text of its line in the history of the node.
    #[must_use]
    pub fn event(
        &self,
        presence: &Presence,
        allowed_seconds: f64,
        now: Timestamp,
    ) -> (TimelineCode, String) {
        let Presence { heartbeat_at, silent_since, .. } = *presence;
        let becomes = self.state.map(|state| format!("; the node is {state}")).unwrap_or_default();
        match (self.turned, silent_since) {
            (Some(ConnectivityState::Online), Some(since)) => {
                let gone = elapsed_as_text(heartbeat_at.seconds_since(since));
                let text =
                    format!("the agent is back; it was silent for {gone}, since {since}{becomes}");
                (TimelineCode::AgentOnline, text)
            }
            (Some(_), _) => {
                let (silent, allowed) =
                    (now.seconds_since(heartbeat_at), elapsed_as_text(allowed_seconds));
                let silent = elapsed_as_text(silent);
                let text = format!(
                    "the agent has been silent for {silent}, since {heartbeat_at} (limit: \
                     {allowed}){becomes}"
                );
                (TimelineCode::AgentOffline, text)
            }
            (None, _) => {
                let to = self.state.map_or("-", NodeState::as_str);
                let text = format!(
                    "the node is {to} (before: {}): its last heartbeat came at {heartbeat_at}",
                    presence.state
                );
                (TimelineCode::NodeStateChanged, text)
            }
        }
    }
}

/// Whether a node's agent is heard, as the store has it.
#[must_use]
pub fn connectivity_of(node: &NodeRecord, now: Timestamp) -> Connectivity {
    let Some(heartbeat_at) = node.heartbeat_at else { return Connectivity::default() };
    let silent = node.agent.silent_since.filter(|since| heartbeat_at <= *since);
    Connectivity {
        state: if silent.is_some() {
            ConnectivityState::Offline
        } else {
            ConnectivityState::Online
        },
        since: silent.or(node.agent.online_since),
        heard_seconds_ago: Some(now.seconds_since(heartbeat_at).max(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixture::at;

    const ALLOWED: f64 = 300.0;

    fn presence(state: NodeState, heard: f64, silent: Option<f64>) -> Presence {
        Presence {
            state,
            has_open_run: false,
            heartbeat_at: at(heard),
            silent_since: silent.map(at),
        }
    }

    fn decide(presence: Presence, now: f64) -> Option<ConnectivityChange> {
        decide_connectivity(&presence, ALLOWED, at(0.0), at(now))
    }

    #[test]
    fn a_silence_and_its_end() {
        use ConnectivityState::{Offline, Online};
        use NodeState as N;
        let change = |turned, state| Some(ConnectivityChange { turned, state });
        // state, last heartbeat, noted silence, now, change
        let table = [
            (N::Active, 700.0, None, 1000.0, None),
            (N::Active, 699.0, None, 1000.0, change(Some(Offline), Some(N::Offline))),
            (N::Offline, 699.0, Some(699.0), 5000.0, None),
            (N::Offline, 4999.0, Some(699.0), 5000.0, change(Some(Online), Some(N::Active))),
            // Heard once more, and silent again since.
            (N::Offline, 4000.0, Some(699.0), 5000.0, change(Some(Online), None)),
            (N::Quarantined, 699.0, None, 1000.0, change(Some(Offline), None)),
            (N::Draining, 4999.0, Some(699.0), 5000.0, change(Some(Online), None)),
            // A cancelled run put back the state that it began in.
            (N::Offline, 4999.0, None, 5000.0, change(None, Some(N::Active))),
            (N::Active, 699.0, Some(699.0), 1000.0, change(None, Some(N::Offline))),
            // Not in service: nobody waits for its agent, and an end is an end.
            (N::Enrolling, 0.0, None, 1000.0, None),
            (N::Enrolling, 999.0, Some(10.0), 1000.0, change(Some(Online), None)),
        ];
        for (state, heard, silent, now, wanted) in table {
            let came = decide(presence(state, heard, silent), now);
            assert_eq!(came, wanted, "{state}, heard {heard}, noted {silent:?}, at {now}");
        }
    }

    #[test]
    fn a_run_decides_about_its_node() {
        let mut busy = presence(NodeState::Active, 0.0, None);
        busy.has_open_run = true;
        assert_eq!(decide(busy, 9000.0), None, "a reimage has its agent away on purpose");
        let mut back = presence(NodeState::Draining, 8999.0, Some(0.0));
        back.has_open_run = true;
        let change = decide(back, 9000.0).unwrap();
        assert_eq!((change.turned, change.state), (Some(ConnectivityState::Online), None));
    }

    #[test]
    fn what_nobody_listened_to_is_no_silence() {
        let presence = presence(NodeState::Active, 0.0, None);
        let at_restart = decide_connectivity(&presence, ALLOWED, at(5000.0), at(5300.0));
        assert_eq!(at_restart, None);
        assert!(decide_connectivity(&presence, ALLOWED, at(5000.0), at(5301.0)).is_some());
    }

    #[test]
    fn the_lines_say_since_when_and_how_long() {
        let gone = presence(NodeState::Active, 0.0, None);
        let change = decide(gone, 310.0).unwrap();
        let (code, text) = change.event(&gone, ALLOWED, at(310.0));
        assert_eq!(code, TimelineCode::AgentOffline);
        let wanted = "(limit: 5 min 0 s); the node is offline";
        assert!(text.contains("silent for 5 min 10 s") && text.ends_with(wanted), "{text}");
        let back = presence(NodeState::Offline, 723.0, Some(0.0));
        let (code, text) = decide(back, 725.0).unwrap().event(&back, ALLOWED, at(725.0));
        assert_eq!(code, TimelineCode::AgentOnline);
        assert!(text.starts_with("the agent is back; it was silent for 12 min 3 s"), "{text}");
        assert!(text.ends_with("; the node is active"), "{text}");
    }

    #[test]
    fn a_fast_clock_allows_what_agents_can_keep() {
        assert!((allowed_silence_seconds(300, 1.0) - 300.0).abs() < 1e-9);
        assert!((allowed_silence_seconds(10, 1.0) - 120.0).abs() < 1e-9);
        assert!((allowed_silence_seconds(300, 60.0) - 7200.0).abs() < 1e-9);
    }
}
