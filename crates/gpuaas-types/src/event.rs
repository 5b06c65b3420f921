//! Events: lines of nodes' timelines, in one order for everybody who follows them, and the sinks that
//! they are delivered to.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::SecretText;
use crate::ids::NodeId;
use crate::string_enum::string_enum;
use crate::text;
use crate::time::Timestamp;

/// Place of an event in the order of all events, and so its name. Whoever has seen it goes on after
/// it. Opaque to everybody but the database: written `XACT-ID`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventCursor {
    /// Number of the transaction that wrote the event; 0 where the order is that of `id` alone.
    pub xact: i64,
    /// Number of the line.
    pub id: i64,
}

impl EventCursor {
    /// Before every event.
    pub const BEGIN: Self = Self { xact: 0, id: 0 };
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.xact, self.id)
    }
}

/// A text is no [`EventCursor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoEventCursor;

impl fmt::Display for NoEventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected an event ID such as 0-17")
    }
}

impl std::error::Error for NoEventCursor {}

impl FromStr for EventCursor {
    type Err = NoEventCursor;

    fn from_str(text: &str) -> Result<Self, NoEventCursor> {
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number).ok_or(NoEventCursor)
        };
        let (xact, id) = text.split_once('-').ok_or(NoEventCursor)?;
        Ok(Self { xact: number(xact)?, id: number(id)? })
    }
}

impl Serialize for EventCursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventCursor {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for EventCursor {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EventCursor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Event ID, which is also the position in the order of all events",
            "pattern": "^[0-9]{1,19}-[0-9]{1,19}$",
        })
    }
}

/// Something that happened to a node: a line of its timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeEvent {
    /// Identifier: the same in a stream, a message and a webhook.
    pub id: EventCursor,
    /// The node.
    pub node_id: NodeId,
    /// Its hostname.
    pub hostname: String,
    /// Name of its site.
    pub site: String,
    /// What happened.
    #[serde(flatten)]
    pub line: crate::api::TimelineEvent,
}

/// What to send of the events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only of nodes of this site.
    pub site: Option<String>,
    /// Only of this node.
    pub node_id: Option<NodeId>,
}

impl EventFilter {
    /// Whether an event is asked for.
    #[must_use]
    pub fn admits(&self, event: &NodeEvent) -> bool {
        self.site.as_ref().is_none_or(|site| *site == event.site)
            && self.node_id.is_none_or(|node_id| node_id == event.node_id)
    }
}

string_enum! {
    /// How events are delivered to a sink.
    EventSinkKind {
        /// One signed POST an event.
        Webhook = "webhook",
        /// One message an event on a stream of NATS JetStream.
        Nats = "nats",
    }
}

/// Body of `POST /api/v1/webhooks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookRequest {
    /// Name of the sink.
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    pub name: String,
    /// Where events are posted: https, or http on loopback.
    #[schemars(with = "text::WebhookUrlText")]
    pub url: String,
    /// Only events of this site's nodes; none: of every site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Reason, as the audit keeps it.
    #[schemars(regex(pattern = r"\S"))]
    pub reason: String,
}

/// Answer to a [`WebhookRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MintedWebhook {
    /// What requests are signed with, as Standard Webhooks writes it: `whsec_` and base64. It is
    /// sealed, so nobody can show it again.
    #[schemars(with = "String")]
    pub secret: SecretText,
    /// What is known of the sink.
    #[serde(flatten)]
    pub view: EventSinkView,
}

/// A sink, without its secret, and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventSinkView {
    /// Name of the sink.
    pub name: String,
    /// How events are delivered.
    pub kind: EventSinkKind,
    /// Where to.
    pub url: String,
    /// Only events of this site's nodes; none: of every site.
    pub site: Option<String>,
    /// Who had it made.
    pub created_by: String,
    /// Moment of that.
    pub created_at: Timestamp,
    /// Events up to this one are delivered, or dead letters.
    pub cursor: EventCursor,
    /// Events delivered so far.
    pub delivered: u64,
    /// Moment of the oldest event that waits; none: none does.
    pub waiting_since: Option<Timestamp>,
    /// Since when deliveries fail; none: they do not.
    pub failing_since: Option<Timestamp>,
    /// Deliveries that failed in a row.
    pub attempts: u32,
    /// When the next one is tried; none: they do not fail.
    pub next_try_at: Option<Timestamp>,
    /// What the last one failed with; empty: it did not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_error: String,
    /// Events that were given up.
    pub dead_letters: u64,
}

/// Body of `POST /api/v1/event-sinks/NAME/remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventSinkRemoval {
    /// Reason, as the audit keeps it.
    #[schemars(regex(pattern = r"\S"))]
    pub reason: String,
}

/// An event that a sink did not take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeadLetter {
    /// Number of the letter.
    pub id: i64,
    /// Name of the sink.
    pub sink: String,
    /// The event.
    pub event: NodeEvent,
    /// Moment at which it was given up.
    pub failed_at: Timestamp,
    /// Why, such as `refused`.
    pub code: DeliveryFault,
    /// The same for people.
    pub error: String,
    /// Whether it is to be delivered again, and was not yet.
    pub replaying: bool,
}

string_enum! {
    /// Why a delivery failed.
    DeliveryFault {
        /// No connection came about, or it broke.
        Unreachable = "unreachable",
        /// No answer came in time.
        Timeout = "timeout",
        /// It answered that it cannot do so now.
        Unavailable = "unavailable",
        /// It wants another credential, or knows nothing at this address.
        Denied = "denied",
        /// It answered with a redirect, which is not followed.
        Redirected = "redirected",
        /// It answered that it will never take this event.
        Refused = "refused",
    }
}

impl DeliveryFault {
    /// Whether the same event would be refused again, whenever it is sent.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Refused)
    }
}

/// Body of `POST /api/v1/dead-letters/replay`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayRequest {
    /// Name of the sink whose letters are to be delivered again.
    pub sink: String,
    /// Only this letter; none: all of the sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letter: Option<i64>,
    /// Reason, as the audit keeps it.
    #[schemars(regex(pattern = r"\S"))]
    pub reason: String,
}

/// Answer to a [`ReplayRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayAnswer {
    /// Letters that are delivered again now.
    pub letters: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for cursor in [
            EventCursor::BEGIN,
            EventCursor { xact: 7, id: 12 },
            EventCursor { xact: i64::MAX, id: i64::MAX },
        ] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", "-", "1", "1-", "-1", "+1-2", "1-2-3", "1- 2", "1-99999999999999999999"] {
            assert_eq!(text.parse::<EventCursor>(), Err(NoEventCursor), "{text:?}");
        }
        let earlier = EventCursor { xact: 7, id: 12 };
        assert!(earlier < EventCursor { xact: 8, id: 1 });
        assert!(earlier < EventCursor { xact: 7, id: 13 });
    }
}
