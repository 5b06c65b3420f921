//! Events and the one description that carries data (docs/maas.md#events).

use serde::Deserialize;

use crate::loose::{null, text};
use crate::time::parse_http_like;

/// Type of the event that every status change makes, at DEBUG.
pub const STATUS_CHANGED: &str = "Node changed status";

/// Levels, lowest last; `Audit` is a kind of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventLevel {
    /// CRITICAL.
    Critical,
    /// ERROR.
    Error,
    /// WARNING.
    Warning,
    /// INFO: MAAS's default.
    Info,
    /// DEBUG: status changes and script results.
    Debug,
    /// Only AUDIT.
    Audit,
}

impl EventLevel {
    /// The word on the wire.
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
    /// The events.
    pub events: Vec<Event>,
}

impl Events {
    /// The highest id in the page: the next `after`.
    pub fn newest_id(&self) -> Option<u64> {
        self.events.iter().map(|event| event.id).max()
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// Rising with time, nearly: see [`crate::EventQuery::after`].
    pub id: u64,
    /// `DEBUG`, `INFO`, …
    #[serde(default, deserialize_with = "null")]
    pub level: String,
    /// As MAAS writes it, UTC; see [`Event::created_seconds`].
    #[serde(default, deserialize_with = "null")]
    pub created: String,
    /// E.g. `Deployed`, `Node changed status`.
    #[serde(rename = "type", default, deserialize_with = "null")]
    pub kind: String,
    /// Detail; may be empty.
    #[serde(default, deserialize_with = "null")]
    pub description: String,
    /// Who; `unknown` for MAAS itself.
    #[serde(default, deserialize_with = "null")]
    pub username: String,
    /// System id of the machine.
    #[serde(default, deserialize_with = "text")]
    pub node: Option<String>,
    /// Its host name at the time of reading.
    #[serde(default, deserialize_with = "null")]
    pub hostname: String,
}

impl Event {
    /// When, in seconds since 1970.
    pub fn created_seconds(&self) -> Option<i64> {
        parse_http_like(&self.created)
    }

    /// The status change, where this event is one.
    pub fn status_change(&self) -> Option<StatusChange> {
        if self.kind == STATUS_CHANGED { StatusChange::parse(&self.description) } else { None }
    }
}

/// A status change, by labels as in [`crate::status`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusChange {
    /// Label before.
    pub from: String,
    /// Label after.
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
