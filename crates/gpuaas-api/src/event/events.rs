//! `GET /api/v1/events`: what happens to nodes, as server-sent events.
//!
//! A stream goes on where a listener left off, by the id of the last event that it saw; it is the same
//! at every control plane of a database. The credential is looked at again at each heartbeat, so a
//! stream does not outlive the right to it for long.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, MatchedPath, State};
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use gpuaas_types::Problem;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::event::{EventCursor, EventFilter, NodeEvent};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior};

use crate::ctx::Ctx;
use crate::event::feed::{Listening, PAGE};
use crate::event::stream_limit::StreamPlace;
use crate::http::body::QueryParams;
use crate::http::problem::{ApiResult, Refusal, problem};
use crate::identity::access;
use crate::identity::caller::Caller;
use crate::node::view::find_listed;

/// Milliseconds after which a client that lost its stream asks again.
const RETRY_MILLISECONDS: u32 = 1_000;
/// What a client says that comes back.
const LAST_EVENT_ID: &str = "last-event-id";

/// Which events, and from where on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// Only of nodes of this site.
    site: Option<String>,
    /// Only of the node that answers to this.
    node: Option<String>,
    /// After the event with this id; none: from now on. The header Last-Event-ID counts before it.
    after: Option<String>,
}

/// The id of the last event that the client saw, and what it came with.
#[derive(Debug, Clone)]
pub(crate) struct LastEvent {
    headers: HeaderMap,
    path: String,
}

impl<S: Sync> FromRequestParts<S> for LastEvent {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let path = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
        Ok(Self { headers: parts.headers.clone(), path: path.to_owned() })
    }
}

impl LastEvent {
    fn id(&self) -> Option<String> {
        let id = self.headers.get(LAST_EVENT_ID)?;
        Some(String::from_utf8_lossy(id.as_bytes()).into_owned()).filter(|id| !id.is_empty())
    }
}

/// `GET /api/v1/events?site=&node=&after=`: an endless stream.
pub(crate) async fn follow(
    State(ctx): State<Ctx>,
    caller: Caller,
    last: LastEvent,
    QueryParams(asked): QueryParams<EventQuery>,
) -> ApiResult<Response> {
    let place = ctx.event_streams().take(caller.id())?;
    let filter = filter(&ctx, &caller, &asked).await?;
    let after = cursor(last.id().or(asked.after).as_deref())?;
    let Listening { live, end } = ctx.event_feed().join().await?;
    let after = after.unwrap_or(end);
    if after > end {
        let detail = format!("event {after} does not exist in this database yet");
        return Err(problem(ProblemCode::EventUnknown).with_detail(detail).into());
    }
    let mut heartbeat = tokio::time::interval(ctx.settings.events.heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat.reset();
    let stopping = ctx.supervisor.stopping();
    let phase = Phase::CatchUp { is_last: false };
    let live = Some(live);
    let reader = Stream {
        ctx,
        caller,
        last,
        filter,
        after,
        live,
        phase,
        heartbeat,
        stopping,
        _place: place,
    };
    let begin = Bytes::from(format!("retry: {RETRY_MILLISECONDS}\n\n"));
    let frames = stream::unfold((Some(begin), reader), |(begin, mut reader)| async move {
        let frame = match begin {
            Some(begin) => begin,
            None => reader.next().await?,
        };
        Some((Ok::<_, Infallible>(frame), (None, reader)))
    });
    let kind = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((kind, Body::from_stream(frames)).into_response())
}

async fn filter(ctx: &Ctx, caller: &Caller, asked: &EventQuery) -> ApiResult<EventFilter> {
    if let Some(site) = &asked.site {
        caller.check_site(Some(site.as_str()))?;
        ctx.store.site_by_name(site).await?;
    }
    let node_id = match &asked.node {
        Some(node) => {
            let listed = find_listed(ctx, node).await?;
            caller.check_site(Some(listed.site.as_str()))?;
            Some(listed.node.id)
        }
        None => None,
    };
    Ok(EventFilter { site: asked.site.clone(), node_id })
}

fn cursor(text: Option<&str>) -> Result<Option<EventCursor>, Problem> {
    text.map(|text| {
        text.parse().map_err(|error| {
            let text: String = text.chars().take(60).collect();
            problem(ProblemCode::InvalidQuery)
                .with_detail(format!("invalid after {text:?}: {error}"))
                .with_hint("give the ID of the last event received, or leave it out")
        })
    })
    .transpose()
}

/// Where a stream reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// In the database; the last time where nothing was missed by the time it was read.
    CatchUp { is_last: bool },
    /// What the follower finds.
    Live,
    /// It is over.
    Over,
}

/// What a stream waited for.
enum Waited {
    Stopping,
    /// Nothing happened for the time of a heartbeat.
    Quiet,
    Found(Result<Arc<NodeEvent>, RecvError>),
}

/// A stream that is being read.
struct Stream {
    ctx: Ctx,
    caller: Caller,
    last: LastEvent,
    filter: EventFilter,
    after: EventCursor,
    live: Option<tokio::sync::broadcast::Receiver<Arc<NodeEvent>>>,
    phase: Phase,
    heartbeat: Interval,
    stopping: watch::Receiver<bool>,
    /// Counts the stream until it ends.
    _place: StreamPlace,
}

impl Stream {
    /// What is sent next; none: the stream is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let text = match self.phase {
                Phase::CatchUp { is_last } => self.catch_up(is_last).await,
                Phase::Live => self.wait().await,
                Phase::Over => return None,
            };
            if !text.is_empty() {
                return Some(Bytes::from(text));
            }
        }
    }

    /// A page of the database.
    async fn catch_up(&mut self, is_last: bool) -> String {
        let page = match self.ctx.store.events_after(self.after, PAGE).await {
            Ok(page) => page,
            Err(error) => return self.end(&Refusal::from(error).0),
        };
        if i64::try_from(page.len()).is_ok_and(|events| events == PAGE) {
            self.phase = Phase::CatchUp { is_last: false };
        } else if is_last {
            self.phase = Phase::Live;
        } else {
            // What came meanwhile need not be kept any more; what comes from here on is.
            self.live = self.live.take().map(|live| live.resubscribe());
            self.phase = Phase::CatchUp { is_last: true };
        }
        let mut text = String::new();
        for event in page {
            self.after = event.id;
            self.add(&mut text, &event);
        }
        if text.is_empty() && self.heartbeat_is_due() { self.beat().await } else { text }
    }

    fn heartbeat_is_due(&mut self) -> bool {
        use futures::FutureExt as _;
        self.heartbeat.tick().now_or_never().is_some()
    }

    /// What the follower finds next, or a heartbeat.
    async fn wait(&mut self) -> String {
        let Some(live) = &mut self.live else { return self.over() };
        let waited = tokio::select! {
            biased;
            _ = self.stopping.wait_for(|stopping| *stopping) => Waited::Stopping,
            _ = self.heartbeat.tick() => Waited::Quiet,
            found = live.recv() => Waited::Found(found),
        };
        match waited {
            Waited::Quiet => self.beat().await,
            Waited::Found(Ok(event)) if event.id <= self.after => String::new(),
            Waited::Found(Ok(event)) => {
                self.after = event.id;
                let mut text = String::new();
                self.add(&mut text, &event);
                text
            }
            // Too far behind, or nobody follows any more: the client comes back and reads on.
            Waited::Found(Err(RecvError::Lagged(_) | RecvError::Closed)) | Waited::Stopping => {
                self.over()
            }
        }
    }

    fn add(&self, text: &mut String, event: &NodeEvent) {
        let may_see = self.caller.holds_everywhere() || self.caller.holds_at(&event.site);
        if may_see && self.filter.admits(event) {
            write_event(text, event);
        }
    }

    /// Shows that the stream lives, if the credential still opens it.
    async fn beat(&mut self) -> String {
        match access::authenticate_again(&self.ctx, &self.last.headers, &self.last.path).await {
            Ok(caller) => {
                self.caller = caller;
                ": still here\n\n".to_owned()
            }
            Err(Refusal(problem)) => self.end(&problem),
        }
    }

    fn over(&mut self) -> String {
        self.phase = Phase::Over;
        String::new()
    }

    /// The last word of a stream that cannot go on.
    fn end(&mut self, problem: &Problem) -> String {
        self.phase = Phase::Over;
        let text = serde_json::to_string(problem).unwrap_or_default();
        format!("event: problem\ndata: {}\n\n", without_controls(&text))
    }
}

/// An event as the HTML standard wants it (section 9.2.6).
fn write_event(text: &mut String, event: &NodeEvent) {
    let Ok(data) = serde_json::to_string(event) else { return };
    // Writing to a String cannot fail.
    write!(text, "id: {}\ndata: {}\n\n", event.id, without_controls(&data)).ok();
}

/// JSON in which the control characters are escaped, too, that JSON lets stand (U+007F to U+009F):
/// some terminals obey them.
fn without_controls(json: &str) -> String {
    if !json.chars().any(char::is_control) {
        return json.to_owned();
    }
    json.chars().fold(String::with_capacity(json.len()), |mut text, c| {
        if gpuaas_types::text::is_invisible(c) {
            write!(text, "\\u{:04x}", u32::from(c)).ok();
        } else {
            text.push(c);
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_as_text() {
        let json = serde_json::to_string("\u{1b}[2J \u{9b}2J \u{7f} \n").unwrap();
        assert_eq!(without_controls(&json), r#""\u001b[2J \u009b2J \u007f \n""#);
        let back: String = serde_json::from_str(&without_controls(&json)).unwrap();
        assert_eq!(back, "\u{1b}[2J \u{9b}2J \u{7f} \n");
    }

    #[test]
    fn an_id_of_no_event_is_refused() {
        assert_eq!(cursor(None).unwrap(), None);
        assert_eq!(cursor(Some("3-4")).unwrap(), Some(EventCursor { xact: 3, id: 4 }));
        let refused = cursor(Some("yesterday")).unwrap_err();
        assert_eq!(refused.code, "invalid_query");
        assert!(!refused.hint.is_empty());
    }
}
