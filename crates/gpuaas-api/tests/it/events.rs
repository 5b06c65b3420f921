//! The stream of events: who sees which, and that none is missed.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use futures::StreamExt as _;
use gpuaas_api::{ApiSettings, EventLimits, NodeAccess};
use gpuaas_types::NodeId;
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::event::NodeEvent;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::rig::{BEGIN, Rig, site};

const PATIENCE_SECONDS: f64 = 30.0;

/// A rig whose follower looks often.
async fn rig(limits: EventLimits) -> Rig {
    let limits = EventLimits { look: Duration::from_millis(5), ..limits };
    let settings = ApiSettings { events: limits, ..ApiSettings::default() };
    let rig = Rig::set(NodeAccess::StandIns, BEGIN, settings).await;
    rig.add_site().await;
    rig
}

/// A client that reads a stream.
struct Listener {
    body: BodyDataStream,
    text: String,
}

impl Listener {
    async fn open(rig: &Rig, token: &str, query: &str, last: Option<&str>) -> Self {
        let mut request = Request::get(format!("/api/v1/events{query}"))
            .header("authorization", format!("Bearer {token}"));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = rig.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        let mut listener =
            Self { body: response.into_body().into_data_stream(), text: String::new() };
        assert_eq!(listener.block().await.as_deref(), Some("retry: 1000"));
        listener
    }

    /// The next block of lines; none: the stream is over.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = block.to_owned();
                self.text = rest.to_owned();
                return Some(block);
            }
            let frame =
                tokio::time::timeout(test_report::patience(PATIENCE_SECONDS), self.body.next())
                    .await
                    .unwrap()?;
            self.text.push_str(std::str::from_utf8(&frame.unwrap()).unwrap());
        }
    }

    /// The next event; fails where the stream says something else.
    async fn event(&mut self) -> NodeEvent {
        loop {
            let block = self.block().await.unwrap();
            if block.starts_with(':') {
                continue;
            }
            let (id, data) = block.split_once('\n').unwrap();
            let event: NodeEvent =
                serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(id, format!("id: {}", event.id));
            return event;
        }
    }

    async fn codes(&mut self, count: usize) -> Vec<String> {
        let mut codes = Vec::new();
        for _ in 0..count {
            codes.push(self.event().await.line.code);
        }
        codes
    }
}

async fn line(rig: &Rig, node_id: NodeId, code: &str) {
    let event = TimelineEvent {
        at: rig.now(),
        run_id: None,
        step: None,
        source: Source::Agent,
        code: code.to_owned(),
        text: "a \u{1b}[31mred\u{9b}2J word".to_owned(),
    };
    rig.store.append_timeline(node_id, vec![event]).await.unwrap();
}

#[tokio::test]
async fn whoever_comes_back_goes_on_where_it_was() {
    let rig = rig(EventLimits::default()).await;
    let mut listener = Listener::open(&rig, &rig.admin, "", None).await;
    let node = rig.onboard("j22u11").await.node_id;
    let accepted = listener.event().await;
    assert_eq!((accepted.hostname.as_str(), accepted.site.as_str()), ("j22u11", "lab"));
    assert_eq!((accepted.node_id, accepted.line.code.as_str()), (node, "onboard_accepted"));
    for code in ["a", "b"] {
        line(&rig, node, code).await;
    }
    let seen = listener.event().await;
    assert_eq!((seen.line.code.as_str(), seen.line.text.contains('\u{1b}')), ("a", true));
    drop(listener);
    line(&rig, node, "c").await;

    // By the header of a browser, and by the query; the header knows better.
    let (id, first) = (seen.id.to_string(), format!("?after={}", accepted.id));
    let mut back = Listener::open(&rig, &rig.admin, "", Some(&id)).await;
    assert_eq!(back.codes(2).await, ["b", "c"]);
    line(&rig, node, "d").await;
    assert_eq!(back.codes(1).await, ["d"]);
    let mut back = Listener::open(&rig, &rig.admin, &first, None).await;
    assert_eq!(back.codes(4).await, ["a", "b", "c", "d"]);
    let mut back = Listener::open(&rig, &rig.admin, &first, Some(&id)).await;
    assert_eq!(back.codes(3).await, ["b", "c", "d"]);
}

/// What a node sends is text: no byte of it is one that a terminal obeys.
#[tokio::test]
async fn a_stream_has_no_control_characters_but_line_ends() {
    let rig = rig(EventLimits::default()).await;
    let mut listener = Listener::open(&rig, &rig.admin, "?after=0-0", None).await;
    let node = rig.onboard("j22u11").await.node_id;
    line(&rig, node, "a").await;
    for _ in 0..2 {
        let block = listener.block().await.unwrap();
        assert!(block.chars().all(|c| c == '\n' || !c.is_control()), "{block:?}");
    }
}

#[tokio::test]
async fn a_caller_sees_the_nodes_of_its_sites_and_those_it_asks_for() {
    let rig = rig(EventLimits::default()).await;
    let mut other = site("other");
    other["spec"]["url"] = json!("http://other.example:5240/MAAS");
    rig.post("/api/v1/sites", other).await.ok();
    let token = async |name: &str, sites: &[&str]| {
        let grant = json!({ "role": "viewer", "sites": sites });
        let body = json!({ "name": name, "grants": [grant], "reason": "for the test" });
        rig.post("/api/v1/tokens", body).await.ok()["token"].as_str().unwrap().to_owned()
    };
    let (at_lab, at_other) = (token("lab", &["lab"]).await, token("other", &["other"]).await);
    let here = rig.onboard("j22u11").await.node_id;
    let body = json!({ "hostname": "k1", "site": "other", "profile": "h200" });
    let there = rig.post("/api/v1/nodes", body).await.ok();
    let there: NodeId = serde_json::from_value(there["node_id"].clone()).unwrap();
    for (node, code) in [(here, "one"), (there, "two"), (here, "three")] {
        line(&rig, node, code).await;
    }
    let all = "?after=0-0";
    let mut listener = Listener::open(&rig, &at_lab, all, None).await;
    assert_eq!(listener.codes(3).await, ["onboard_accepted", "one", "three"]);
    let mut listener = Listener::open(&rig, &at_other, all, None).await;
    assert_eq!(listener.codes(2).await, ["onboard_accepted", "two"]);
    let mut listener = Listener::open(&rig, &rig.admin, "?after=0-0&site=other", None).await;
    assert_eq!(listener.codes(2).await, ["onboard_accepted", "two"]);
    let mut listener = Listener::open(&rig, &rig.admin, "?after=0-0&node=j22u11", None).await;
    assert_eq!(listener.codes(3).await, ["onboard_accepted", "one", "three"]);
    let mut listener = Listener::open(&rig, &rig.admin, all, None).await;
    assert_eq!(listener.codes(5).await.len(), 5);

    let ask = async |token: &str, query: &str| {
        rig.call("GET", &format!("/api/v1/events{query}"), Some(token), None).await
    };
    assert_eq!(ask(&at_lab, "?site=other").await.code(), "site_not_granted");
    assert_eq!(ask(&at_lab, "?node=k1").await.code(), "site_not_granted");
    assert_eq!(ask(&rig.admin, "?site=none").await.code(), "site_not_found");
    assert_eq!(ask(&rig.admin, "?node=none").await.code(), "node_not_found");
    assert_eq!(ask(&rig.admin, "?after=yesterday").await.code(), "invalid_query");
    let end = i64::MAX;
    let unknown = ask(&rig.admin, &format!("?after={end}-{end}")).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (409, "event_unknown"));
}

/// One that does not read is not waited for, and nothing is kept for it.
#[tokio::test]
async fn a_slow_reader_is_ended_and_comes_back() {
    let rig = rig(EventLimits { kept: 8, ..EventLimits::default() }).await;
    let mut slow = Listener::open(&rig, &rig.admin, "", None).await;
    let mut quick = Listener::open(&rig, &rig.admin, "", None).await;
    let node = rig.onboard("j22u11").await.node_id;
    // It follows by now, and does not read what it missed any more.
    for code in ["a", "b", "c"] {
        line(&rig, node, code).await;
        quick.event().await;
        slow.event().await;
    }
    quick.event().await;
    let last = slow.event().await;
    for n in 0..20 {
        line(&rig, node, &format!("c{n}")).await;
        assert_eq!(quick.event().await.line.code, format!("c{n}"));
    }
    // What it had been sent already may still come; then it is over.
    let mut id = last.id.to_string();
    let mut seen = 0;
    while let Some(block) = slow.block().await {
        id = block.lines().next().unwrap().strip_prefix("id: ").unwrap().to_owned();
        seen += 1;
    }
    assert!(seen < 20, "it is over before it has seen all");
    let mut back = Listener::open(&rig, &rig.admin, "", Some(&id)).await;
    assert_eq!(back.codes(20 - seen).await.last().unwrap(), "c19");
}

#[tokio::test]
async fn a_stream_does_not_outlive_its_token() {
    let heartbeat = Duration::from_millis(20);
    let rig = rig(EventLimits { heartbeat, ..EventLimits::default() }).await;
    let body = json!({ "name": "ci", "grants": [{ "role": "viewer" }], "reason": "test" });
    let made = rig.post("/api/v1/tokens", body).await.ok();
    let token = made["token"].as_str().unwrap();
    let mut listener = Listener::open(&rig, token, "", None).await;
    assert_eq!(listener.block().await.as_deref(), Some(": still here"));
    rig.post("/api/v1/tokens/ci/revoke", json!({ "reason": "done" })).await.ok();
    let last = loop {
        let block = listener.block().await.unwrap();
        if block != ": still here" {
            break block;
        }
    };
    let problem = last.strip_prefix("event: problem\ndata: ").unwrap();
    let problem: Value = serde_json::from_str(problem).unwrap();
    assert_eq!(problem["code"], "token_revoked");
    assert_eq!(listener.block().await, None);
}

#[tokio::test]
async fn streams_end_with_the_process() {
    let rig = rig(EventLimits::default()).await;
    let mut listener = Listener::open(&rig, &rig.admin, "", None).await;
    let node = rig.onboard("j22u11").await.node_id;
    listener.event().await;
    line(&rig, node, "a").await;
    listener.event().await;
    rig.supervisor.stop();
    assert_eq!(listener.block().await, None);
}
