//! `GET /live`: one stream per page that says when something changed.
//!
//! A page that hears of a change requests itself again. The stream carries no data, so a page shows
//! nothing that the API would not answer. A browser reconnects with the last event's ID; what happened
//! in between is one change. Changes are coalesced to one per second, so a slow reader has nothing to
//! catch up with.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::Viewer;
use crate::pages::{failed, problem_json};
use crate::state::Console;

/// Streams of one sign-in. Browsers open six connections to an address over HTTP/1.1; pages beyond
/// this limit poll, so that the others stay free for pages and forms.
const MOST_PER_SIGN_IN: usize = 3;
/// Shortest time between two changes.
const PACE: Duration = Duration::from_secs(1);
const LAST_EVENT_ID: &str = "last-event-id";

/// Open streams, by the digest of the credential.
#[derive(Default)]
pub(crate) struct Streams(Arc<Mutex<HashMap<[u8; 32], usize>>>);

/// One open stream; dropping it frees its place.
struct Place {
    streams: Arc<Mutex<HashMap<[u8; 32], usize>>>,
    caller: [u8; 32],
}

impl Streams {
    fn take(&self, caller: [u8; 32]) -> Option<Place> {
        let mut streams = self.0.lock();
        let open = streams.entry(caller).or_default();
        if *open >= MOST_PER_SIGN_IN {
            return None;
        }
        *open += 1;
        Some(Place { streams: Arc::clone(&self.0), caller })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut streams = self.streams.lock();
        if let Some(open) = streams.get_mut(&self.caller) {
            *open -= 1;
            if *open == 0 {
                streams.remove(&self.caller);
            }
        }
    }
}

/// `GET /live?node=&site=`.
pub(crate) async fn follow(
    State(console): State<Console>,
    viewer: Viewer,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let Some(place) = console.streams().take(viewer.api.digest()) else {
        let title = "this sign-in has too many open streams; the page polls instead";
        return problem_json(429, "too_many_requests", title);
    };
    let path = match query {
        Some(query) => format!("/api/v1/events?{query}"),
        None => "/api/v1/events".to_owned(),
    };
    let events = match viewer.api.stream(&path, headers.get(LAST_EVENT_ID)).await {
        Ok(events) => events,
        Err(failure) => return failed(&viewer, console.now(), &failure),
    };
    let reader = Reader { events, not_before: Instant::now(), _place: place };
    let frames = stream::unfold(reader, |mut reader| async move {
        let frame = reader.next().await?;
        Some((Ok::<_, Infallible>(frame), reader))
    });
    let kind = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (kind, Body::from_stream(frames)).into_response()
}

struct Reader {
    events: Body,
    /// When the next change may be sent.
    not_before: Instant,
    /// Counts the stream until it ends.
    _place: Place,
}

impl Reader {
    /// The next frame for the browser; none at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        let read = self.read().await?;
        let Some(mut last) = last_id(&read) else {
            // A heartbeat or the time to reconnect after: the browser needs both. An error of the
            // API ends the stream, and the page's next poll shows it.
            let is_problem = read.starts_with(b"event: ");
            return if is_problem { None } else { Some(read) };
        };
        let wait = tokio::time::sleep_until(self.not_before);
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                () = &mut wait => break,
                read = self.read() => match read {
                    Some(read) => last = last_id(&read).unwrap_or(last),
                    None => break,
                },
            }
        }
        self.not_before = Instant::now() + PACE;
        // A browser drops an event without data.
        Some(Bytes::from(format!("id: {last}\nevent: changed\ndata: 1\n\n")))
    }

    async fn read(&mut self) -> Option<Bytes> {
        loop {
            let frame = self.events.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                return Some(data);
            }
        }
    }
}

/// The ID of the last event in a frame of the API, which holds whole events.
fn last_id(frame: &[u8]) -> Option<String> {
    let text = str::from_utf8(frame).ok()?;
    let id = text.lines().rev().find_map(|line| line.strip_prefix("id: "))?;
    Some(id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_are_coalesced_and_heartbeats_passed_on() {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
        let body = stream::unfold(receiver, |mut receiver| async move {
            let text = receiver.recv().await?;
            Some((Ok::<_, Infallible>(Bytes::from(text)), receiver))
        });
        let place = Streams::default().take([1; 32]).unwrap();
        let events = Body::from_stream(body);
        let mut reader = Reader { events, not_before: Instant::now(), _place: place };
        let begin = Instant::now();
        for text in ["retry: 1000\n\n", "id: 1-1\ndata: {}\n\n", "id: 1-2\ndata: {}\n\n"] {
            sender.send(text).unwrap();
        }
        sender.send("id: 1-3\ndata: {}\n\nid: 1-4\ndata: {\"id: \": 1}\n\n").unwrap();
        assert_eq!(reader.next().await.unwrap(), "retry: 1000\n\n");
        assert_eq!(reader.next().await.unwrap(), "id: 1-1\nevent: changed\ndata: 1\n\n");
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert_eq!(reader.next().await.unwrap(), "id: 1-4\nevent: changed\ndata: 1\n\n");
        assert_eq!(begin.elapsed(), PACE);
        sender.send(": still here\n\n").unwrap();
        assert_eq!(reader.next().await.unwrap(), ": still here\n\n");
        sender.send("event: problem\ndata: {}\n\n").unwrap();
        assert!(reader.next().await.is_none());
    }

    #[test]
    fn fourth_stream_of_a_sign_in_is_refused_until_one_ends() {
        let streams = Streams::default();
        let mut open: Vec<_> = (0..3).map(|_| streams.take([1; 32]).unwrap()).collect();
        assert!(streams.take([1; 32]).is_none() && streams.take([2; 32]).is_some());
        open.pop();
        assert!(streams.take([1; 32]).is_some());
        drop(open);
        assert!(streams.0.lock().is_empty());
    }
}
