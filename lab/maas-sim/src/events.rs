//! The event feed: what a control plane polls.
//!
//! Paging follows docs/maas.md#events: without a cursor the newest `limit`; with `after`
//! the *oldest* `limit` that are newer, still printed newest first; and a `next_uri` that loses
//! its cursor on an empty page.
//!
//! As in a region, events are kept for good, and a machine makes about sixty of them on its way to
//! Deployed. Nearly all say what others said before of other machines. So each content is stored
//! once, and an event is its number, its time and its machine.

use std::collections::HashMap;
use std::sync::Arc;

use crate::json::JsonWriter;
use crate::times;
use crate::wire::{Params, SimResponse, quote_plus};

/// Event levels, with MAAS's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    Debug = 10,
    Info = 20,
    Warning = 30,
    Error = 40,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Warning => "WARNING",
            Level::Error => "ERROR",
        }
    }
}

/// What an event says.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct EventContent {
    pub(crate) level: Level,
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    /// `None` prints as `unknown`.
    pub(crate) user: Option<String>,
}

/// A line of the event feed as a control plane may read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedEvent {
    /// Number of the event.
    pub id: i64,
    /// When, in simulated microseconds since the Unix epoch.
    pub at_us: i64,
    /// Its type.
    pub kind: &'static str,
    /// Its description; may be empty.
    pub text: String,
}

#[derive(Debug, Clone)]
struct Event {
    id: i64,
    at_us: i64,
    /// Database id of the machine.
    node: u32,
    /// Index of what it says.
    content: u32,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct EventLog {
    list: Vec<Event>,
    by_node: HashMap<u32, Vec<u32>>,
    contents: Vec<Arc<EventContent>>,
    known: HashMap<Arc<EventContent>, u32>,
    last_id: i64,
    /// How far the clock that events are dated by is behind.
    pub(crate) behind_us: i64,
}

/// What one query asks for, checked.
#[derive(Debug)]
pub(crate) struct Query {
    level: Option<i64>,
    limit: usize,
    after: Option<i64>,
    before: Option<i64>,
    /// Only these machines; `None` for all.
    pub(crate) nodes: Option<Vec<u32>>,
}

/// The filters that MAAS knows; others are ignored and dropped from the page links.
const KNOWN: &[&str] = &[
    "op",
    "id",
    "hostname",
    "mac_address",
    "zone",
    "domain",
    "pool",
    "agent_name",
    "owner",
    "level",
    "limit",
    "after",
    "before",
    "username",
];

/// Filters that name machines.
pub(crate) const NODE_FILTERS: &[&str] =
    &["id", "hostname", "mac_address", "zone", "domain", "pool", "agent_name", "owner"];

fn integer(params: &Params, key: &str) -> Result<Option<i64>, SimResponse> {
    let Some(text) = params.filled(key) else {
        return Ok(None);
    };
    text.trim().parse().map(Some).map_err(|_| {
        SimResponse::text(400, format!("Invalid {key}: Please enter an integer value"))
    })
}

impl Query {
    /// Reads and checks the parameters; `nodes` is filled in by the caller.
    pub(crate) fn parse(params: &Params) -> Result<Self, SimResponse> {
        let level = match params.filled("level").unwrap_or("INFO") {
            "AUDIT" => None,
            "DEBUG" => Some(10),
            "INFO" => Some(20),
            "WARNING" => Some(30),
            "ERROR" => Some(40),
            "CRITICAL" => Some(50),
            other => {
                return Err(SimResponse::text(400, format!("Unrecognised log level: {other}")));
            }
        };
        let limit = integer(params, "limit")?.unwrap_or(100);
        if limit > 1000 {
            return Err(SimResponse::text(
                400,
                format!("Requested number of events {limit} is greater than limit: 1000"),
            ));
        }
        let (after, before) = (integer(params, "after")?, integer(params, "before")?);
        if after.is_some() && before.is_some() {
            let text =
                "There is undetermined behaviour when both `after` and `before` are specified.";
            return Err(SimResponse::text(400, text));
        }
        let limit = usize::try_from(limit.max(1)).unwrap_or(1);
        Ok(Self { level, limit, after, before, nodes: None })
    }
}

impl EventLog {
    pub(crate) fn push(&mut self, at_us: i64, node: u32, content: EventContent, recorded: bool) {
        // An id is spent even where the event is lost, as with a rolled-back transaction.
        self.last_id += 1;
        if recorded {
            let content = self.intern(content);
            self.by_node.entry(node).or_default().push(self.list.len() as u32);
            let at_us = at_us - self.behind_us;
            self.list.push(Event { id: self.last_id, at_us, node, content });
        }
    }

    fn intern(&mut self, content: EventContent) -> u32 {
        if let Some(index) = self.known.get(&content) {
            return *index;
        }
        let (index, content) = (self.contents.len() as u32, Arc::new(content));
        self.contents.push(Arc::clone(&content));
        self.known.insert(content, index);
        index
    }

    fn content_of(&self, event: &Event) -> &EventContent {
        &self.contents[event.content as usize]
    }

    /// Drops the events of a deleted machine.
    pub(crate) fn remove_events_of(&mut self, node: u32) {
        if self.by_node.remove(&node).is_some() {
            self.list.retain(|e| e.node != node);
            self.by_node.clear();
            for (i, event) in self.list.iter().enumerate() {
                self.by_node.entry(event.node).or_default().push(i as u32);
            }
        }
    }

    /// Events of a machine from INFO up, oldest first: number, time, what it says.
    pub(crate) fn events_of_machine(
        &self,
        node: u32,
    ) -> impl Iterator<Item = (i64, i64, &EventContent)> {
        let events = self.by_node.get(&node).into_iter().flatten();
        events
            .map(|index| &self.list[*index as usize])
            .map(|event| (event.id, event.at_us, self.content_of(event)))
            .filter(|(_, _, content)| content.level >= Level::Info)
    }

    /// Number of the newest event.
    pub(crate) fn newest(&self) -> Option<i64> {
        self.list.last().map(|event| event.id)
    }

    fn select(&self, query: &Query) -> Vec<&Event> {
        let wanted =
            |e: &&Event| query.level.is_some_and(|floor| self.content_of(e).level as i64 >= floor);
        let mut indexes: Option<Vec<usize>> = query.nodes.as_ref().map(|nodes| {
            let of = nodes.iter().filter_map(|n| self.by_node.get(n)).flatten();
            of.map(|index| *index as usize).collect()
        });
        if let Some(list) = &mut indexes {
            list.sort_unstable();
        }
        let from = query.after.map_or(0, |id| self.list.partition_point(|e| e.id <= id));
        let to =
            query.before.map_or(self.list.len(), |id| self.list.partition_point(|e| e.id < id));
        let forward = query.after.is_some();
        let mut out: Vec<&Event> = match indexes {
            Some(list) => {
                let inside =
                    list.into_iter().filter(|i| (from..to).contains(i)).map(|i| &self.list[i]);
                if forward {
                    inside.filter(wanted).take(query.limit).collect()
                } else {
                    let mut all: Vec<&Event> = inside.filter(wanted).collect();
                    all.split_off(all.len().saturating_sub(query.limit))
                }
            }
            None => {
                let span = &self.list[from.min(to)..to];
                if forward {
                    span.iter().filter(wanted).take(query.limit).collect()
                } else {
                    let mut newest: Vec<&Event> =
                        span.iter().rev().filter(wanted).take(query.limit).collect();
                    newest.reverse();
                    newest
                }
            }
        };
        out.reverse();
        out
    }

    /// The answer to `GET events/?op=query`. `name` maps a machine to (system id, hostname).
    pub(crate) fn page<'a>(
        &self,
        query: &Query,
        params: &Params,
        name: impl Fn(u32) -> Option<(&'a str, &'a str)>,
    ) -> String {
        let events = self.select(query);
        let known: Vec<(&str, &str)> = params
            .iter()
            .filter(|(k, _)| KNOWN.contains(k) && *k != "after" && *k != "before")
            .collect();
        let uri = |extra: Option<(&str, i64)>| {
            let mut text: Vec<String> =
                known.iter().map(|(k, v)| format!("{k}={}", quote_plus(v))).collect();
            text.extend(extra.map(|(k, v)| format!("{k}={v}")));
            format!("/MAAS/api/2.0/events/?{}", text.join("&"))
        };
        let next = events.first().map(|e| e.id).or_else(|| query.before.map(|b| b - 1));
        let prev = events.last().map(|e| e.id).or_else(|| query.after.map(|a| a + 1));
        // Neighbours mostly share a second.
        let mut stamp = (i64::MIN, String::new());
        let mut j = JsonWriter::at(0, 256 + events.len() * 280);
        j.object(|j| {
            j.int("count", events.len() as i64);
            j.list("events", |j| {
                for event in &events {
                    let (node, hostname) = name(event.node).unwrap_or(("", ""));
                    let content = self.content_of(event);
                    if stamp.0 != event.at_us / 1_000_000 {
                        stamp = (event.at_us / 1_000_000, times::event_time(event.at_us));
                    }
                    j.item(|j| {
                        j.str("username", content.user.as_deref().unwrap_or("unknown"));
                        j.str("node", node);
                        j.str("hostname", hostname);
                        j.int("id", event.id);
                        j.str("level", content.level.as_str());
                        j.str("created", &stamp.1);
                        j.str("type", content.kind);
                        j.str("description", &content.text);
                    });
                }
            });
            j.str("next_uri", &uri(next.map(|id| ("after", id))));
            match prev {
                Some(id) => j.str("prev_uri", &uri(Some(("before", id)))),
                None => j.null("prev_uri"),
            }
        });
        j.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(level: Level) -> EventContent {
        EventContent { level, kind: "Ready", text: String::new(), user: None }
    }

    fn log(n: usize) -> EventLog {
        let mut log = EventLog::default();
        for i in 0..n {
            let level = if i % 2 == 0 { Level::Debug } else { Level::Info };
            log.push(i as i64, 1, ready(level), true);
        }
        log
    }

    fn ids(log: &EventLog, query: &str) -> (Vec<i64>, serde_json::Value) {
        let params = Params::parse_query(query);
        let q = Query::parse(&params).expect("query");
        let page: serde_json::Value =
            serde_json::from_str(&log.page(&q, &params, |_| Some(("abc", "h")))).expect("json");
        let list = page["events"]
            .as_array()
            .expect("list")
            .iter()
            .map(|e| e["id"].as_i64().expect("id"))
            .collect();
        (list, page)
    }

    #[test]
    fn pages_forward_from_a_cursor() {
        let log = log(10);
        assert_eq!(ids(&log, "op=query&level=DEBUG&limit=3").0, [10, 9, 8]);
        assert_eq!(ids(&log, "op=query&level=DEBUG&after=2&limit=3").0, [5, 4, 3]);
        assert_eq!(ids(&log, "op=query&level=DEBUG&before=3&limit=3").0, [2, 1]);
        assert_eq!(ids(&log, "op=query&limit=2").0, [10, 8]);
        let (empty, page) = ids(&log, "op=query&after=99");
        assert!(empty.is_empty());
        assert_eq!(page["next_uri"], "/MAAS/api/2.0/events/?op=query");
        assert_eq!(page["prev_uri"], "/MAAS/api/2.0/events/?op=query&before=100");
    }

    #[test]
    fn a_lost_event_spends_its_id() {
        let mut log = log(1);
        log.push(0, 1, ready(Level::Info), false);
        log.push(0, 1, ready(Level::Info), true);
        assert_eq!(ids(&log, "op=query&level=DEBUG").0, [3, 1]);
    }
}
