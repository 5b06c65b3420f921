//! One trace from a request to the calls of MAAS, as a collector gets it.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::{Value, json};

use gpuaas_testkit::processes::Rig;

const PATIENCE_SECONDS: f64 = 60.0;
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SENDER: &str = "b7ad6b7169203331";

#[derive(Default)]
struct Received {
    spans: Vec<Value>,
    text: String,
}

type Shared = Arc<(Mutex<Received>, Condvar)>;

/// A collector: OTLP over HTTP, in its JSON form.
pub(crate) struct Collector {
    pub(crate) endpoint: String,
    received: Shared,
    _runtime: tokio::runtime::Runtime,
}

async fn take(State(received): State<Shared>, body: Bytes) -> (StatusCode, &'static str) {
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        return (StatusCode::BAD_REQUEST, "{}");
    };
    let (lock, grown) = &*received;
    let mut received = lock.lock().unwrap();
    received.text.push_str(&String::from_utf8_lossy(&body));
    for resource in request["resourceSpans"].as_array().unwrap() {
        for scope in resource["scopeSpans"].as_array().unwrap() {
            received.spans.extend(scope["spans"].as_array().unwrap().iter().cloned());
        }
    }
    grown.notify_all();
    (StatusCode::OK, "{}")
}

impl Collector {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let received = Shared::default();
        let router =
            Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&received));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { endpoint, received, _runtime: runtime }
    }

    /// The spans of the trace, once `is_there` says that what is looked for is among them.
    fn spans(&self, is_there: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let of_trace = |received: &Received| -> Vec<Value> {
            received.spans.iter().filter(|span| span["traceId"] == TRACE).cloned().collect()
        };
        let (lock, grown) = &*self.received;
        let received = lock.lock().unwrap();
        let waits = |received: &mut Received| !is_there(&of_trace(received));
        let (received, late) = grown
            .wait_timeout_while(received, test_report::patience(PATIENCE_SECONDS), waits)
            .unwrap();
        let spans = of_trace(&received);
        assert!(!late.timed_out(), "{spans:#?}");
        spans
    }

    /// Everything that was received.
    pub(crate) fn text(&self) -> String {
        self.received.0.lock().unwrap().text.clone()
    }
}

fn attribute<'a>(span: &'a Value, name: &str) -> Option<&'a str> {
    let attributes = span["attributes"].as_array()?;
    let found = attributes.iter().find(|one| one["key"] == name)?;
    found["value"]["stringValue"].as_str()
}

fn is_deployment(span: &Value) -> bool {
    attribute(span, "gpuaas.maas.call").is_some_and(|call| call.contains("op=deploy"))
}

/// Names of the spans from this one up to the one that the sender named.
fn way_up(spans: &[Value], from: &Value) -> Vec<String> {
    let by_id: HashMap<&str, &Value> =
        spans.iter().map(|span| (span["spanId"].as_str().unwrap(), span)).collect();
    let (mut names, mut span) = (Vec::new(), from);
    loop {
        names.push(span["name"].as_str().unwrap().to_owned());
        let parent = span["parentSpanId"].as_str().unwrap();
        match by_id.get(parent) {
            Some(next) => span = next,
            None => {
                assert_eq!(parent, SENDER, "the chain is broken: {names:?}");
                return names;
            }
        }
    }
}

#[test]
fn a_request_and_its_calls_of_maas_are_one_trace() {
    let collector = Collector::start();
    let mut rig = Rig::serving(&["--otlp-endpoint", &collector.endpoint]);
    rig.add_site();
    rig.good("profile add h200 --set site_bootstrap_bundle_ref=site-base@1.0.0");
    let (mac, bmc) = rig.machine("j22u11");
    let url = rig.control_plane.value("listening").to_owned();
    let token = std::fs::read_to_string(rig.path("data/admin-token")).unwrap();
    let body = json!({
        "hostname": "j22u11", "site": "lab", "profile": "h200", "bmc_address": bmc,
        "bmc_user": "admin", "bmc_password": "hush-bmc", "mac_addresses": [mac],
    });
    gpuaas_client::install_cryptography();
    let answered = collector._runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        let request = client
            .post(format!("{url}/api/v1/nodes?filter=hush-query"))
            .bearer_auth(token.trim())
            .header("traceparent", format!("00-{TRACE}-{SENDER}-01"));
        request.json(&body).send().await.unwrap()
    });
    assert_eq!(answered.status(), 202);
    let header = answered.headers()["traceparent"].to_str().unwrap();
    assert!(header.starts_with(&format!("00-{TRACE}-")) && !header.contains(SENDER), "{header}");
    rig.good("run wait j22u11 --timeout 120");

    let spans = collector.spans(|spans| spans.iter().any(is_deployment));
    let deployment = spans.iter().find(|span| is_deployment(span)).unwrap();
    assert_eq!(way_up(&spans, deployment), ["maas_call", "effect", "step", "run", "request"]);
    assert_eq!(deployment["kind"], 3);
    assert_eq!(attribute(deployment, "http.response.status_code"), Some("200"));
    let request = spans.iter().find(|span| span["name"] == "request").unwrap();
    assert_eq!(attribute(request, "url.path"), Some("/api/v1/nodes"));
    assert_eq!(attribute(request, "http.response.status_code"), Some("202"));
    assert_eq!(&header[36..52], request["spanId"].as_str().unwrap());

    let metrics = rig.metrics();
    assert!(metrics.contains("gpuaas_trace_spans_total{outcome=\"exported\"}"), "{metrics}");
    assert!(metrics.contains("gpuaas_trace_spans_total{outcome=\"dropped\"} 0"), "{metrics}");
    assert!(rig.control_plane.stop().success(), "{}", rig.control_plane.log());
    let text = collector.text();
    let key = rig.sim.value("api-key").to_owned();
    for secret in ["hush-bmc", "hush-query", token.trim(), key.rsplit(':').next().unwrap()] {
        assert!(!text.contains(secret), "a secret is in a trace: {secret}");
    }
}

#[test]
fn a_collector_that_is_away_costs_spans_and_nothing_else() {
    let mut rig = Rig::serving(&["--otlp-endpoint", "http://127.0.0.1:1"]);
    rig.add_site();
    let failed = |metrics: &str| {
        let line = metrics.lines().find(|line| line.contains("outcome=\"failed\""));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    };
    // Each look is a request, and so a span that cannot be sent.
    while failed(&rig.metrics()) < 1.0 {}
    assert!(rig.control_plane.stop().success(), "{}", rig.control_plane.log());
    rig.control_plane.log().find("does not accept traces").unwrap();
}
