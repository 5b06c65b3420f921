//! Events and the one description that carries data (docs/maas.md#events).

use serde::Deserialize;

use crate::lenient::{null_as_default, scalar_as_text};
use crate::time::parse_maas_time;

/// Type of the event that every status change makes, at DEBUG.
pub const STATUS_CHANGED: &str = "Node changed status";

/// Levels, lowest last; `Audit` is a kind of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventLevel {
    /// `CRITICAL`, 50 in MAAS.
    Critical,
    /// `ERROR`, 40 in MAAS: a deployment or a power action failed.
    Error,
    /// `WARNING`, 30 in MAAS.
    Warning,
    /// `INFO`, 20 in MAAS, which is the default of a query.
    Info,
    /// `DEBUG`, 10 in MAAS: status changes and script results.
    Debug,
    /// Only `AUDIT` events, none of the other levels.
    Audit,
}

impl EventLevel {
    /// The value of the parameter `level`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "CRITICAL",
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Info => "INFO",
            Self::Debug => "DEBUG",
            Self::Audit => "AUDIT",
        }
    }
}

/// A page of events, newest first. `next_uri` is left out on purpose: MAAS drops the cursor from
/// it on an empty page.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Events {
    /// Number of events in this page.
    pub count: u64,
    /// The events of this page, newest first.
    pub events: Vec<Event>,
}

impl Events {
    /// The highest id in the page: the next `after`.
    pub fn newest_id(&self) -> Option<u64> {
        self.events.iter().map(|event| event.id).max()
    }
}

/// One event of a machine (docs/maas.md#events).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// Id of the event; rises with time, nearly: see [`crate::EventQuery::after`].
    pub id: u64,
    /// Level of the event: `DEBUG`, `INFO`, …
    #[serde(default, deserialize_with = "null_as_default")]
    pub level: String,
    /// As MAAS writes it, UTC; see [`Event::created_seconds`].
    #[serde(default, deserialize_with = "null_as_default")]
    pub created: String,
    /// Event type, e.g. `Deployed`, `Node changed status`.
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    pub kind: String,
    /// Description of what happened; may be empty.
    #[serde(default, deserialize_with = "null_as_default")]
    pub description: String,
    /// User who asked for it; `unknown` for MAAS itself.
    #[serde(default, deserialize_with = "null_as_default")]
    pub username: String,
    /// System id of the machine.
    #[serde(default, deserialize_with = "scalar_as_text")]
    pub node: Option<String>,
    /// Its host name at the time of reading.
    #[serde(default, deserialize_with = "null_as_default")]
    pub hostname: String,
}

impl Event {
    /// When the event was recorded, in seconds since 1970; `None` for a text of another form.
    pub fn created_seconds(&self) -> Option<i64> {
        parse_maas_time(&self.created)
    }

    /// The status change that this event records; `None` for other events.
    pub fn status_change(&self) -> Option<StatusChange> {
        if self.kind == STATUS_CHANGED { StatusChange::parse(&self.description) } else { None }
    }
}

/// A status change, by labels as in [`crate::status`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusChange {
    /// Label of the status before.
    pub from: String,
    /// Label of the status after.
    pub to: String,
}

impl StatusChange {
    /// Reads `From 'Ready' to 'Allocated' (to admin)`; the end in parentheses may be missing.
    pub fn parse(description: &str) -> Option<Self> {
        let rest = description.trim().strip_prefix("From '")?;
        let (from, rest) = rest.split_once("' to '")?;
        let (to, _) = rest.split_once('\'')?;
        if from.is_empty() || to.is_empty() {
            return None;
        }
        Some(Self { from: from.to_owned(), to: to.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_changes_with_and_without_owner() {
        let parse = StatusChange::parse;
        let change =
            |from: &str, to: &str| Some(StatusChange { from: from.to_owned(), to: to.to_owned() });
        assert_eq!(parse("From 'Ready' to 'Allocated' (to admin)"), change("Ready", "Allocated"));
        assert_eq!(parse("From 'Allocated' to 'Deploying'"), change("Allocated", "Deploying"));
        assert_eq!(parse("From 'Ready' to ''"), None);
        assert_eq!(parse("x changed status from 'Running' to 'Passed'"), None);
    }

    #[test]
    fn only_status_events_carry_changes() {
        let text = r#"{"id": 5, "type": "Script result", "description": "From 'A' to 'B'", "node": null,
            "created": "Fri, 20 Nov. 2026 13:41:39", "hostname": null}"#;
        let mut event: Event = serde_json::from_str(text).unwrap();
        assert_eq!(event.status_change(), None);
        assert_eq!(event.created_seconds(), Some(1_795_182_099));
        event.kind = STATUS_CHANGED.to_owned();
        assert_eq!(event.status_change().unwrap().to, "B");
    }
}
