//! Events as they happen, and where they are delivered.

use std::collections::VecDeque;
use std::time::Duration;

use gpuaas_types::Problem;
use gpuaas_types::api::List;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::event::{
    DeadLetter, EventCursor, EventSinkRemoval, EventSinkView, MintedWebhook, NodeEvent,
    ReplayAnswer, ReplayRequest, WebhookRequest,
};
use reqwest::{Method, Response};
use tokio::time::timeout;

use super::{ApiClient, refusal};
use crate::failure::{Exit, Failure};
use crate::server_sent::ServerSent;

/// Longest life of a stream; whoever follows it comes back.
const STREAM: Duration = Duration::from_secs(86_400);
/// Time after which a stream on which nothing comes is broken: a control plane says more often that
/// it is there.
const SILENCE: Duration = Duration::from_secs(45);

/// A stream of events.
pub struct EventStream {
    response: Response,
    parser: ServerSent,
    read: VecDeque<NodeEvent>,
}

impl EventStream {
    /// The next event; none: the stream is over, and another one goes on where it was.
    ///
    /// # Errors
    /// What the control plane says that ends the stream; `unexpected_answer` where it sends what is no
    /// event.
    pub async fn next(&mut self) -> Result<Option<NodeEvent>, Failure> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(Some(event));
            }
            let Ok(Ok(Some(chunk))) = timeout(SILENCE, self.response.chunk()).await else {
                return Ok(None);
            };
            let messages = self.parser.push(&chunk).map_err(|error| unexpected(&error))?;
            for message in messages {
                if message.name == "problem" {
                    let problem: Problem = serde_json::from_str(&message.data)
                        .map_err(|error| unexpected(&error.to_string()))?;
                    return Err(Failure::refused(problem));
                }
                let event = serde_json::from_str(&message.data);
                self.read.push_back(event.map_err(|error| unexpected(&error.to_string()))?);
            }
        }
    }
}

fn unexpected(text: &str) -> Failure {
    let detail = format!("invalid data in the event stream: {text}");
    Failure::new(Exit::Unreachable, CommandCode::UnexpectedAnswer, detail)
        .hint("check --server, and that the control plane and this command have the same version")
}

impl ApiClient {
    /// `GET /api/v1/events`: after the event `after`; none: from now on.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn follow_events(
        &self,
        filter: &[(&str, Option<&str>)],
        after: Option<EventCursor>,
    ) -> Result<EventStream, Failure> {
        let mut url = self.url(&["events"])?;
        for (name, value) in filter {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        let token = self.credential.token().await?;
        let mut request = self.http.get(url).timeout(STREAM).bearer_auth(token);
        if let Some(after) = after {
            request = request.header("last-event-id", after.to_string());
        }
        let response = timeout(SILENCE, request.send()).await;
        let response = response.map_err(|_| unexpected("no response"))?;
        let response = response.map_err(|error| self.silence(error))?;
        let status = response.status();
        if !status.is_success() {
            let body = timeout(SILENCE, response.bytes()).await;
            let body = body.ok().and_then(Result::ok).unwrap_or_default();
            return Err(Failure::refused(refusal(status.as_u16(), &body)));
        }
        Ok(EventStream { response, parser: ServerSent::default(), read: VecDeque::new() })
    }

    /// `GET /api/v1/event-sinks`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn event_sinks(&self) -> Result<List<EventSinkView>, Failure> {
        self.get(&["event-sinks"]).await
    }

    /// `POST /api/v1/webhooks`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn add_webhook(&self, body: &WebhookRequest) -> Result<MintedWebhook, Failure> {
        self.send(Method::POST, &["webhooks"], Some(body)).await
    }

    /// `POST /api/v1/event-sinks/NAME/remove`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn remove_event_sink(
        &self,
        name: &str,
        body: &EventSinkRemoval,
    ) -> Result<List<EventSinkView>, Failure> {
        self.send(Method::POST, &["event-sinks", name, "remove"], Some(body)).await
    }

    /// `GET /api/v1/dead-letters?sink=&filter=`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn dead_letters(
        &self,
        sink: Option<&str>,
        filter: Option<&str>,
    ) -> Result<List<DeadLetter>, Failure> {
        self.get_all(&["dead-letters"], &[("sink", sink), ("filter", filter)]).await
    }

    /// `POST /api/v1/dead-letters/replay`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn replay_dead_letters(&self, body: &ReplayRequest) -> Result<ReplayAnswer, Failure> {
        self.send(Method::POST, &["dead-letters", "replay"], Some(body)).await
    }
}
