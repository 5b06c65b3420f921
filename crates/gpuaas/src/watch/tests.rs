use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse as _;
use axum::routing::get;
use futures::StreamExt as _;
use gpuaas_testkit::views;
use gpuaas_types::NodeState;
use gpuaas_types::api::{List, NodeView};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::event::NodeEvent;
use tokio::sync::broadcast;

use super::*;

/// A control plane with nodes that say, each time something happens, how they are.
struct StandIn {
    nodes: Arc<Mutex<Vec<NodeView>>>,
    events: broadcast::Sender<Option<Bytes>>,
    url: String,
}

fn event() -> Bytes {
    let node = views::commissioning_node();
    let event = NodeEvent {
        id: "0-7".parse().unwrap(),
        node_id: node.id,
        hostname: node.hostname,
        site: node.site,
        line: gpuaas_types::api::TimelineEvent {
            at: gpuaas_types::Timestamp::EPOCH,
            run_id: None,
            step: None,
            source: gpuaas_types::api::Source::Agent,
            code: "said".to_owned(),
            text: "a word".to_owned(),
        },
    };
    Bytes::from(format!("id: 0-7\ndata: {}\n\n", serde_json::to_string(&event).unwrap()))
}

impl StandIn {
    async fn start() -> Self {
        let nodes = Arc::new(Mutex::new(vec![views::commissioning_node()]));
        let (events, _) = broadcast::channel(16);
        let (asked, sender) = (Arc::clone(&nodes), events.clone());
        let list = move || async move {
            serde_json::to_string(&List::whole(asked.lock().unwrap().clone())).unwrap()
        };
        let follow = move || async move {
            let frames = futures::stream::unfold(sender.subscribe(), |mut live| async move {
                Some((Ok::<_, std::convert::Infallible>(live.recv().await.ok()??), live))
            });
            let hello = futures::stream::once(async { Ok(Bytes::from(": hello\n\n")) });
            let body = Body::from_stream(hello.chain(frames));
            (StatusCode::OK, [(CONTENT_TYPE, "text/event-stream")], body).into_response()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router =
            Router::new().route("/api/v1/nodes", get(list)).route("/api/v1/events", get(follow));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { nodes, events, url }
    }

    fn becomes(&self, state: NodeState) {
        self.nodes.lock().unwrap()[0].state = state;
    }

    /// What a watch writes, while `states` come one after the other: each once the one before shows.
    async fn watch(self, format: Format, states: &[NodeState], breaks: bool) -> String {
        let client = ApiClient::new(&self.url, "t").unwrap();
        let (mut terminal, captured) = Terminal::captured();
        let watch = Watch { client: &client, events: vec![("site", None)], format, again: true };
        let last = states.last().copied();
        let ask = async || client.nodes(None, None).await;
        let is_over = |list: &List<NodeView>| list.items.first().map(|node| node.state) == last;
        let following = watch.run(&mut terminal, ask, output::nodes, is_over);
        let changing = async {
            let mut before = NodeState::Registered;
            for state in states {
                while !captured.stdout().contains(before.as_str()) {
                    tokio::task::yield_now().await;
                }
                self.becomes(*state);
                if breaks {
                    self.events.send(None).unwrap();
                } else {
                    self.events.send(Some(event())).unwrap();
                }
                before = *state;
            }
        };
        let (outcome, ()) = tokio::join!(following, changing);
        outcome.unwrap();
        captured.stdout()
    }
}

const STATES: &[NodeState] = &[NodeState::Enrolling, NodeState::Active];

#[tokio::test]
async fn lines_that_changed_are_written() {
    let stand_in = StandIn::start().await;
    stand_in.becomes(NodeState::Registered);
    let text = stand_in.watch(Format::Table, STATES, false).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("NODE") || lines[0].starts_with("HOST"), "{text}");
    for (line, state) in lines[1..].iter().zip(["registered", "enrolling", "active"]) {
        assert!(line.contains("j22u11") && line.contains(state), "{text}");
    }
}

#[tokio::test]
async fn programs_get_a_line_for_each_item() {
    let stand_in = StandIn::start().await;
    stand_in.becomes(NodeState::Registered);
    let text = stand_in.watch(Format::Json, STATES, false).await;
    let states: Vec<NodeState> =
        text.lines().map(|line| serde_json::from_str::<NodeView>(line).unwrap().state).collect();
    assert_eq!(states, [NodeState::Registered, NodeState::Enrolling, NodeState::Active]);
}

#[tokio::test]
async fn a_stream_that_ends_hides_nothing() {
    let stand_in = StandIn::start().await;
    stand_in.becomes(NodeState::Registered);
    let text = stand_in.watch(Format::Table, STATES, true).await;
    assert!(text.contains("enrolling") && text.contains("active"), "{text}");
}

#[tokio::test]
async fn a_refusal_ends_the_watch() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new()).await.unwrap() });
    let client = ApiClient::new(&url, "t").unwrap();
    let (mut terminal, _) = Terminal::captured();
    let watch = Watch { client: &client, events: Vec::new(), format: Format::Table, again: true };
    let ask = async || client.nodes(None, None).await;
    let refused = watch.run(&mut terminal, ask, output::nodes, |_| false).await.unwrap_err();
    assert_eq!(refused.problem.status, 404);
}

#[test]
fn what_passes_is_waited_for() {
    let refused =
        |status, code: &str| Failure::refused(gpuaas_types::Problem::new(status, code, "no"));
    assert!(is_passing(&refused(503, "database_unavailable")));
    assert!(is_passing(&Failure::new(Exit::Unreachable, CommandCode::ServerUnreachable, "nobody")));
    assert!(!is_passing(&refused(401, "token_revoked")));
    assert!(!is_passing(&refused(409, "event_unknown")));
}
