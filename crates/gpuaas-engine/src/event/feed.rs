//! What the events of MAAS' feed mean.

use std::collections::{BTreeMap, HashMap};

use gpuaas_store::{ObservedEvent, WatchUpdate, WatchedMachine};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::machine::maas_status;
use gpuaas_types::{NodeId, Timestamp};
use maas_client::Event;

use crate::event::sweep::MachineHint;

/// Type of the event that curtin's reboot makes.
pub(crate) const REBOOTING: &str = "Rebooting";

/// Types of the events that curtin makes while it installs, and of what it reports of a failure.
pub(crate) const INSTALLING: &[&str] = &[
    "Configuring storage",
    "Installing OS",
    "Configuring OS",
    "Node installation",
    "Node installation failure",
];

/// Type of the event that MAAS ends a failure with: its text is the machine's
/// `error_description`, and the cause stands in the alarm before it.
const MARKING: &str = "Marking node failed";

/// Seconds after which the time of an event is told beside that of its line.
const LATE_SECONDS: f64 = 30.0;

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

/// Whether the event may let a run act: a machine came to a status in which MAAS does nothing with it
/// by itself. Allocated is where every deployment of ours passes by.
pub(crate) fn lets_a_run_act(event: &Event) -> bool {
    const UNDER_WAY: &[i64] = &[
        maas_status::COMMISSIONING,
        maas_status::TESTING,
        maas_status::ALLOCATED,
        maas_status::DEPLOYING,
        maas_status::RELEASING,
        maas_status::DISK_ERASING,
        maas_status::ENTERING_RESCUE_MODE,
        maas_status::EXITING_RESCUE_MODE,
    ];
    let to = event.status_change().and_then(|change| maas_status::from_label(&change.to));
    to.is_some_and(|status| !UNDER_WAY.contains(&status))
}

/// The event's number, as the store has it.
pub(crate) fn event_id(event: &Event) -> i64 {
    i64::try_from(event.id).unwrap_or(i64::MAX)
}

/// Machines of nodes without an open run that somebody did something to, with the last user of MAAS
/// who did.
pub(crate) fn changed_in_service(
    events: &[Event],
    nodes: &HashMap<String, WatchedMachine>,
) -> BTreeMap<String, MachineHint> {
    let touched =
        events.iter().filter(|event| event.status_change().is_some() || is_of_person(event));
    let mut changed: BTreeMap<String, MachineHint> = BTreeMap::new();
    for event in touched {
        let Some(id) = event.node.as_ref() else { continue };
        if nodes.get(id).is_none_or(|node| node.run_id.is_some()) {
            continue;
        }
        let hint = changed.entry(id.clone()).or_default();
        hint.maas_user = user(event).or(hint.maas_user.take());
    }
    changed
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
        // What stopped a parked run may be gone with this, such as a lock.
        if status.is_some() || is_of_person(event) {
            batch.rechecks.extend(watched.run_id);
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
    for runs in [&mut batch.wakes, &mut batch.rechecks] {
        runs.sort_unstable();
        runs.dedup();
    }
    batch
}

fn timeline(event: &Event, watched: &WatchedMachine, now: Timestamp) -> (NodeId, TimelineEvent) {
    let text = if event.description.is_empty() {
        format!("MAAS says: {}", event.kind)
    } else {
        format!("MAAS says: {}: {}", event.kind, event.description)
    };
    let text = match recorded_before(event, now) {
        Some(at) => format!("{text} (recorded by MAAS at {at})"),
        None => text,
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

/// When MAAS recorded an event that was read much later, as after a time in which the region was slow:
/// beside our own lines its place would tell another order of causes.
fn recorded_before(event: &Event, now: Timestamp) -> Option<Timestamp> {
    let at = Timestamp::from_micros(event.created_seconds()?.checked_mul(1_000_000)?);
    (now.seconds_since(at) >= LATE_SECONDS).then_some(at)
}

/// Whether a user of MAAS switched the machine: its power state follows when the BMC has acted.
pub(crate) fn is_of_power(event: &Event) -> bool {
    event.kind.starts_with("User powering ")
}

/// The user who did it, of an event of a person.
pub(crate) fn user(event: &Event) -> Option<String> {
    let named = is_of_person(event) && !matches!(event.username.as_str(), "" | "unknown");
    named.then(|| event.username.clone())
}
