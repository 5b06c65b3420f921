//! What the events of MAAS' feed mean.

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
