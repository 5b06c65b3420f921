//! What the events of MAAS' feed mean.

use std::collections::{BTreeSet, HashMap};

use gpuaas_store::{ObservedEvent, WatchUpdate, WatchedMachine};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::machine::maas_status;
use gpuaas_types::{NodeId, Timestamp};
use maas_client::Event;

/// Type of the event that curtin's reboot makes.
pub(crate) const REBOOTING: &str = "Rebooting";

/// Type of the event that MAAS ends a failure with: its text is the machine's
/// `error_description`, and the cause stands in the alarm before it.
const MARKING: &str = "Marking node failed";

/// What a warning or an error says of the cause.
pub(crate) fn alarm(event: &Event) -> Option<String> {
    let loud = matches!(event.level.as_str(), "WARNING" | "ERROR" | "CRITICAL");
    (loud && event.kind != MARKING).then(|| format!("{}: {}", event.kind, event.description))
}

/// Whether a user of MAAS did something to the machine: the event's text names the user
/// (docs/maas.md#events).
pub(crate) fn is_of_person(event: &Event) -> bool {
    event.kind.starts_with("User ")
}

/// The event's number, as the store has it.
pub(crate) fn event_id(event: &Event) -> i64 {
    i64::try_from(event.id).unwrap_or(i64::MAX)
}

/// Machines of nodes without an open run that somebody did something to.
pub(crate) fn changed_in_service(
    events: &[Event],
    nodes: &HashMap<String, WatchedMachine>,
) -> BTreeSet<String> {
    let touched =
        events.iter().filter(|event| event.status_change().is_some() || is_of_person(event));
    let machines = touched.filter_map(|event| event.node.as_ref());
    let free = |id: &&String| nodes.get(*id).is_some_and(|node| node.run_id.is_none());
    machines.filter(free).cloned().collect()
}

/// What users of MAAS did to machines of nodes without an open run: what a run asks for stands in
/// its own words on the timeline.
pub(crate) fn acts_of_people(
    events: &[Event],
    nodes: &HashMap<String, WatchedMachine>,
    now: Timestamp,
) -> Vec<(NodeId, TimelineEvent)> {
    let acts = events.iter().filter(|event| is_of_person(event));
    acts.filter_map(|event| {
        let watched = nodes.get(event.node.as_ref()?).filter(|node| node.run_id.is_none())?;
        Some(timeline(event, watched, now))
    })
    .collect()
}

/// What the events of one look mean for our nodes.
pub(crate) fn translate(
    events: &[Event],
    nodes: &HashMap<String, WatchedMachine>,
    cursor: Option<i64>,
    now: Timestamp,
) -> WatchUpdate {
    let mut batch = WatchUpdate { event_cursor: cursor, ..WatchUpdate::default() };
    for event in events {
        let Some(watched) = event.node.as_ref().and_then(|node| nodes.get(node)) else {
            continue;
        };
        let status = event.status_change().and_then(|c| maas_status::from_label(&c.to));
        let rebooted_at = (event.kind == REBOOTING).then_some(now);
        let alarm = alarm(event);
        if status.is_some() || rebooted_at.is_some() {
            batch.wakes.extend(watched.run_id);
        }
        if status.is_some() || rebooted_at.is_some() || alarm.is_some() {
            batch.events.push(ObservedEvent {
                node_id: watched.node_id,
                event_id: event_id(event),
                status,
                at: now,
                rebooted_at,
                alarm,
            });
        }
        if matches!(event.level.as_str(), "INFO" | "WARNING" | "ERROR" | "CRITICAL") {
            batch.timeline.push(timeline(event, watched, now));
        }
    }
    batch.wakes.sort_unstable();
    batch.wakes.dedup();
    batch
}

fn timeline(event: &Event, watched: &WatchedMachine, now: Timestamp) -> (NodeId, TimelineEvent) {
    let text = if event.description.is_empty() {
        format!("MAAS says: {}", event.kind)
    } else {
        format!("MAAS says: {}: {}", event.kind, event.description)
    };
    let line = TimelineEvent {
        at: now,
        run_id: watched.run_id,
        step: None,
        source: Source::Maas,
        code: TimelineCode::MaasEvent.into(),
        text,
    };
    (watched.node_id, line)
}
