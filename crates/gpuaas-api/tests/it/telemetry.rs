//! The telemetry of hosts, read and diagnosed over real sockets on loopback: each fault by its
//! cause, and what travels and what does not.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use gpuaas_api::{ApiSettings, NodeAccess, TelemetryLimits};
use gpuaas_core::record::{Report, ReportKind};
use gpuaas_engine::Clock as _;
use gpuaas_store::{NodeChange, RunWrite};
use gpuaas_types::agent::{Gate, GateCheck, GateReport, TaskResult};
use gpuaas_types::machine::Observation;
use gpuaas_types::{NodeId, NodeState, RandomIds, RunStatus, TaskId, Timestamp};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::rig::{BEGIN, Rig};
use crate::tls::Tls;

const HEALTH: &str = "/gpuaas/telemetry/health";
pub(crate) const INFO: &str = r#"{"version":"v1.43.2"}"#;

/// A host that serves HTTP on a port of loopback.
async fn host(answer: impl Fn(Request) -> Response + Clone + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let router = Router::new().fallback(move |request: Request| async move { answer(request) });
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    at
}

/// A host that does this with each connection.
async fn raw<F: Future<Output = ()> + Send + 'static>(
    with: impl Fn(TcpStream) -> F + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            tokio::spawn(with(listener.accept().await.unwrap().0));
        }
    });
    at
}

/// What an edge answers whose Netdata lives.
fn edge(request: &Request) -> Response {
    match request.uri().path() {
        HEALTH | "/api/v1/info" => ([("server", "nginx")], INFO).into_response(),
        "/gpuaas/telemetry/netdata/" => {
            (StatusCode::FOUND, [("location", "/v1/")], "").into_response()
        }
        "/v1/" => "<html>".into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn machine(address: Option<&str>) -> Value {
    let link = json!({ "id": 1, "mode": "auto", "subnet_id": 1, "subnet_cidr": "10.0.0.0/8",
        "ip_address": address });
    json!({
        "system_id": "abc123", "hostname": "j22u11", "status": 6, "owner": null,
        "power_state": "on", "power_type": "ipmi", "architecture": "amd64/generic",
        "osystem": "ubuntu", "distro_series": "noble", "locked": false, "netboot": false,
        "error_description": "", "status_message": null, "enable_hw_sync": false,
        "sync_interval_seconds": null, "boot_interface_id": 1, "boot_disk_id": null,
        "disks": [], "complex_storage": 0, "tags": [], "hardware": "Dell XE9680",
        "nics": [{ "id": 1, "name": "eno1", "mac_address": "52:54:00:00:00:01",
            "kind": "physical", "vid": null, "vlan_id": null, "fabric": null, "dhcp_on": true,
            "link_connected": true, "links": [link] }],
        "has_installation_result": true,
    })
}

/// An active node with the bundle `h200-ib` and these inputs, whose machine has this address.
async fn node(rig: &Rig, name: &str, inputs: Value, address: Option<&str>) -> NodeId {
    let spec = json!({ "site_bootstrap_bundle_ref": gpuaas_types::built_in_bundle!("h200-ib"),
        "site_bootstrap_inputs": inputs, "deploy_user": "hpcadmin" });
    rig.post("/api/v1/profiles", json!({ "name": name, "spec": spec })).await.ok();
    let body = json!({ "hostname": name, "site": "lab", "profile": name });
    rig.post("/api/v1/nodes", body).await.ok();
    let now = rig.clock.now();
    let claimed = rig.store.claim(now, now.plus_seconds(30.0), 1).await.unwrap().remove(0);
    let node_id = claimed.run.node_id;
    let mut write = RunWrite::new(claimed.run).releasing();
    (write.run.status, write.run.ended_at) = (RunStatus::Succeeded, Some(now));
    write.run.due_at = Timestamp::NEVER;
    let system_id = Some(format!("id-{name}"));
    write.node = Some(NodeChange { state: Some(NodeState::Active), system_id });
    let machine = serde_json::from_value(machine(address)).unwrap();
    write.observation = Some(Observation::from_read(machine, now));
    rig.store.commit(now, write).await.unwrap();
    node_id
}

/// One whose edge belongs on a port of 127.0.0.1.
pub(crate) async fn node_at(rig: &Rig, name: &str, port: u16) -> NodeId {
    let inputs = json!({ "netdata_edge_listen": format!("0.0.0.0:{port}") });
    node(rig, name, inputs, Some("127.0.0.1")).await
}

async fn say_shut(rig: &Rig, node_id: NodeId) {
    let run_id = rig.store.node(node_id).await.unwrap().run_id.unwrap();
    let red = GateCheck {
        name: "unit nginx.service".to_owned(),
        passed: false,
        expected: "active".to_owned(),
        seen: "failed".to_owned(),
        reason: "host_baseline_incomplete".to_owned(),
        blocks: vec![Gate::Telemetry],
    };
    let report =
        GateReport { gate: Gate::Telemetry, passed: false, class: None, checks: vec![red] };
    let now = rig.clock.now();
    rig.store.set_gates(now, node_id, run_id, vec![report], |_, _| None).await.unwrap();
}

/// What is in the way, as the proxy says it and as the report does; both have to agree.
pub(crate) async fn fault(rig: &Rig, name: &str, code: &str) -> Value {
    let report = rig.get(&format!("/api/v1/nodes/{name}/telemetry")).await.ok();
    assert_eq!(report["verdict"], code, "{report:#}");
    let answer = rig.get(&format!("/api/v1/nodes/{name}/telemetry/api/v1/info")).await;
    assert_eq!(answer.code(), code, "{}", answer.json());
    let problem = answer.json();
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with(&format!("{name}: ")), "{detail}");
    assert_eq!(problem["hint"], report["next_action"]);
    report
}

pub(crate) fn probe<'a>(report: &'a Value, name: &str) -> &'a Value {
    let probes = report["probes"].as_array().unwrap();
    probes.iter().find(|probe| probe["name"] == name).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn an_edge_that_works_is_read_and_said_to_work() {
    let rig = Rig::with_site().await;
    let at = host(|request| edge(&request)).await;
    node_at(&rig, "j22u11", at.port()).await;
    let report = rig.get("/api/v1/nodes/j22u11/telemetry").await.ok();
    assert_eq!((&report["verdict"], &report["expected"]), (&json!("ok"), &json!(true)));
    assert_eq!(report["address"], at.to_string());
    assert_eq!(report["address_from"], "MAAS, interface eno1");
    for name in ["maas", "connect", "health", "dashboard", "netdata"] {
        assert_eq!(probe(&report, name)["passed"], true, "{report:#}");
    }
    assert_eq!(probe(&report, "netdata")["seen"], "v1.43.2");
    assert_eq!(probe(&report, "agent")["passed"], false, "no agent was heard");
    let info = rig.get("/api/v1/nodes/j22u11/telemetry/api/v1/info").await;
    assert_eq!((info.status, &info.json()["version"]), (200, &json!("v1.43.2")));
    // The way to the dashboard stays below the control plane's path.
    let moved = rig.get("/api/v1/nodes/j22u11/telemetry/gpuaas/telemetry/netdata/").await;
    let place = moved.headers["location"].to_str().unwrap();
    assert_eq!((moved.status, place), (302, "/api/v1/nodes/j22u11/telemetry/v1/"));
    assert_eq!(rig.get(place).await.bytes, b"<html>");
    // What Netdata does not know is its answer, and no fault.
    assert_eq!(rig.get("/api/v1/nodes/j22u11/telemetry/api/v1/chart?chart=x").await.status, 404);
}

#[tokio::test]
async fn each_fault_is_named_by_its_cause_and_changes_nothing() {
    let rig = Rig::with_site().await;
    let vacant = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let status = |status: StatusCode| host(move |_| status.into_response());
    let refuses = status(StatusCode::FORBIDDEN).await;
    let alone = status(StatusCode::BAD_GATEWAY).await;
    let stranger = status(StatusCode::NOT_FOUND).await;
    let netdata = host(|request| {
        let named = [("server", "Netdata Embedded HTTP Server v1.43.2")];
        match request.uri().path() {
            "/api/v1/info" => (named, INFO).into_response(),
            // Some versions answer whatever they do not know with their page.
            _ => (named, "<html>").into_response(),
        }
    })
    .await;
    let lame = host(|request| match request.uri().path() {
        "/v1/" => StatusCode::NOT_FOUND.into_response(),
        _ => edge(&request),
    })
    .await;
    let mute = raw(|mut stream| async move { stream.shutdown().await.unwrap() }).await;
    let babbles = raw(|mut stream| async move {
        stream.write_all(b"220 mail.example ESMTP\r\n").await.unwrap();
    })
    .await;
    let rows = [
        (vacant, "telemetry_edge_down", "connect", "connection refused"),
        (refuses, "telemetry_edge_refuses", "health", "HTTP 403"),
        (alone, "telemetry_backend_down", "health", "HTTP 502"),
        (netdata, "wrong_listener", "listener", "Netdata v1.43.2, with no edge in front of it"),
        (stranger, "wrong_listener", "listener", "/api/v1/info: HTTP 404"),
        (mute, "telemetry_edge_silent", "health", "the response is not HTTP"),
        (babbles, "telemetry_edge_silent", "health", "the response is not HTTP"),
    ];
    for (number, (at, code, name, seen)) in rows.into_iter().enumerate() {
        let host = format!("n{number}");
        let id = node_at(&rig, &host, at.port()).await;
        say_shut(&rig, id).await;
        let before = rig.store.node(id).await.unwrap();
        rig.advance(40);
        let report = fault(&rig, &host, code).await;
        let probe = probe(&report, name);
        assert_eq!(probe["passed"], false, "{report:#}");
        assert!(probe["seen"].as_str().unwrap().starts_with(seen), "{code}: {probe}");
        let next = report["next_action"].as_str().unwrap();
        let converge = "gpuaas node converge-telemetry --host 127.0.0.1 --user hpcadmin";
        assert!(next.contains(converge), "{code}: {next}");
        assert_eq!(
            next.contains("127.0.0.1/32"),
            code == "telemetry_edge_refuses",
            "whom to let in: {next}"
        );
        // What the agent said is evidence, and its age is told.
        assert_eq!(report["gate"]["age_seconds"], 40.0);
        let problem = rig.get(&format!("/api/v1/nodes/{host}/telemetry/api/v1/info")).await;
        let detail = problem.json()["detail"].to_string();
        assert!(detail.contains("40 s ago that telemetry is closed: unit nginx.service (failed)"));
        let after = rig.store.node(id).await.unwrap();
        assert_eq!((after.state, after.revision), (before.state, before.revision), "{code}");
    }
    node_at(&rig, "lame", lame.port()).await;
    let report = rig.get("/api/v1/nodes/lame/telemetry").await.ok();
    assert_eq!(report["verdict"], "telemetry_edge_incomplete");
    assert_eq!(probe(&report, "dashboard")["seen"], "/v1/: HTTP 404");
    // What else it shows can be read.
    assert_eq!(rig.get("/api/v1/nodes/lame/telemetry/api/v1/info").await.status, 200);
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_or_says_nothing_is_not_waited_for() {
    let telemetry = TelemetryLimits {
        connect: Duration::from_millis(150),
        answer: Duration::from_millis(150),
        look: Duration::from_millis(150),
        ..TelemetryLimits::default()
    };
    let settings = ApiSettings { telemetry, ..ApiSettings::default() };
    let rig = Rig::set(NodeAccess::StandIns, BEGIN, settings).await;
    rig.add_site().await;
    // A listener whose queue is full drops whoever comes, as a firewall does.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(0).unwrap();
    let at = full.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) =
        tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(at)).await
    {
        queued.push(stream.unwrap());
        assert!(queued.len() < 100, "the queue never fills");
    }
    let id = node_at(&rig, "gone", at.port()).await;
    let report = fault(&rig, "gone", "node_unreachable").await;
    assert!(report["next_action"].as_str().unwrap().contains("the agent is silent"));
    let run_id = rig.store.node(id).await.unwrap().run_id.unwrap();
    let beat = gpuaas_store::ReceivedHeartbeat {
        node_id: id,
        run_id,
        agent_version: "0.1.0".to_owned(),
        troubles: String::new(),
        first: None,
        changed: None,
    };
    rig.store.record_heartbeat(rig.clock.now(), beat).await.unwrap();
    let report = fault(&rig, "gone", "node_unreachable").await;
    assert!(report["next_action"].as_str().unwrap().contains("the route and the firewall"));
    let silent = raw(|stream| async move {
        let _open = stream;
        std::future::pending::<()>().await;
    })
    .await;
    node_at(&rig, "dumb", silent.port()).await;
    let report = fault(&rig, "dumb", "telemetry_edge_silent").await;
    assert!(probe(&report, "health")["seen"].as_str().unwrap().contains("no complete response"));
}

#[tokio::test]
async fn where_nobody_asks_for_telemetry_or_no_address_is_known() {
    let rig = Rig::with_site().await;
    // Its port is the usual one, at an address that nobody has.
    let off = json!({ "enable_netdata": "0", "netdata_edge_listen": "0.0.0.0:29998" });
    node(&rig, "off", off, Some("127.9.9.9")).await;
    let report = fault(&rig, "off", "telemetry_not_expected").await;
    assert_eq!(
        (&report["address"], &report["expected"]),
        (&json!("127.9.9.9:19999"), &json!(false))
    );
    // The addresses of simulated machines are a made-up network's.
    node(&rig, "played", json!({}), Some("10.1.2.3")).await;
    let report = fault(&rig, "played", "telemetry_simulated").await;
    assert_eq!(report["address"], Value::Null);
    // And loopback is nobody's address but this machine's.
    let real = Tls::new().await;
    let at = host(|request| edge(&request)).await;
    node_at(&real.rig, "looped", at.port()).await;
    let report = fault(&real.rig, "looped", "telemetry_no_address").await;
    assert_eq!(report["probes"].as_array().unwrap().len(), 2, "{report:#}");
}

/// Where MAAS knows no address, what the agent found of the way out counts.
#[tokio::test]
async fn the_agents_address_is_taken_where_maas_has_none() {
    let rig = Rig::with_site().await;
    let at = host(|request| edge(&request)).await;
    let inputs = json!({ "netdata_edge_listen": format!("0.0.0.0:{}", at.port()) });
    let id = node(&rig, "j22u11", inputs, None).await;
    assert_eq!(
        rig.get("/api/v1/nodes/j22u11/telemetry").await.ok()["verdict"],
        "telemetry_simulated"
    );
    let run_id = rig.store.node(id).await.unwrap().run_id.unwrap();
    let facts = |address: &str| {
        let link = |name: &str, address: &str| json!({ "interface": name, "address": address, "prefix_length": 24 });
        json!({
            "addresses": [link("docker0", "127.9.9.9"), link("eno1", address)],
            "routes": [{ "destination": "0.0.0.0", "prefix_length": 0, "gateway": "10.1.0.1",
                "interface": "eno1" }],
        })
    };
    // The latest word counts, and only where it has any.
    for facts in [facts("127.9.9.9"), facts("127.0.0.1"), Value::Null] {
        let result = TaskResult { succeeded: true, facts, ..TaskResult::default() };
        let task_id = TaskId::new(&RandomIds, rig.clock.now());
        let kind = ReportKind::TaskFinished { task_id, result };
        let report = Report { run_id, at: rig.clock.now(), kind };
        rig.store.add_report(report, Vec::new()).await.unwrap();
    }
    let report = rig.get("/api/v1/nodes/j22u11/telemetry").await.ok();
    assert_eq!(report["verdict"], "ok", "{report:#}");
    assert_eq!(report["address"], at.to_string());
    assert_eq!(report["address_from"], "the agent, interface eno1");
}

#[tokio::test]
async fn nothing_of_the_request_travels_but_its_path_query_and_accept() {
    type Seen = Arc<Mutex<Vec<(String, HeaderMap)>>>;
    let seen: Seen = Arc::default();
    let heard = Arc::clone(&seen);
    let at = host(move |request| {
        let entry = (request.uri().to_string(), request.headers().clone());
        heard.lock().unwrap().push(entry);
        let mut response = Response::new(Body::from("{}"));
        for (name, value) in [
            ("content-type", "application/json"),
            ("etag", "\"1\""),
            ("set-cookie", "session=1"),
            ("www-authenticate", "Basic"),
            ("proxy-authenticate", "Basic"),
            ("access-control-allow-origin", "*"),
            ("content-security-policy", "default-src *"),
            ("keep-alive", "timeout=5"),
            ("x-secret", "1"),
        ] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    })
    .await;
    let rig = Rig::with_site().await;
    node_at(&rig, "j22u11", at.port()).await;
    let request =
        Request::get("/api/v1/nodes/j22u11/telemetry/api/v1/data?chart=system.cpu&after=-60")
            .header("authorization", format!("Bearer {}", rig.admin))
            .header("cookie", "session=mine")
            .header("proxy-authorization", "Basic eA==")
            .header("x-forwarded-for", "1.2.3.4")
            .header("x-auth-token", "mine")
            .header("connection", "x-hop")
            .header("x-hop", "1")
            .header("upgrade", "websocket")
            .header("host", "evil.example")
            .header("accept", "application/json")
            .body(Body::empty())
            .unwrap();
    let answer = rig.send(request).await;
    assert_eq!(answer.status, 200);
    let (path, headers) = seen.lock().unwrap().remove(0);
    assert_eq!(path, "/api/v1/data?chart=system.cpu&after=-60");
    let mut names: Vec<&str> = headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "host", "user-agent"]);
    assert_eq!(headers["host"], at.to_string());
    assert_eq!(headers["accept"], "application/json");
    let mut names: Vec<&str> = answer.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    let kept = [
        "cache-control",
        "content-length",
        "content-security-policy",
        "content-type",
        "etag",
        "gpuaas-time",
        "x-content-type-options",
        "x-request-id",
    ];
    assert_eq!(names, kept);
    assert_eq!(answer.headers["content-security-policy"], "sandbox allow-scripts");
}

#[tokio::test]
async fn what_is_not_on_the_list_never_reaches_the_host() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let at = host(move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        edge(&request)
    })
    .await;
    let rig = Rig::with_site().await;
    node_at(&rig, "j22u11", at.port()).await;
    let below = "/api/v1/nodes/j22u11/telemetry";
    for path in [
        "netdata.conf",
        "api/v1/manage/health?cmd=SILENCE%20ALL",
        "api/v2/claim",
        "api/v3/config",
        "api/v1/registry?action=hello",
        "stream",
        "host/j22u11/stream",
        "v1/../netdata.conf",
        "v1/%2e%2e/netdata.conf",
        "v1/..%2f..%2fapi/v2/claim",
        "v1/%252e%252e/claim",
        "%61pi/v2/claim",
        "/api/v1/info",
        "v3//sse",
        "http://10.0.0.1/api/v1/info",
    ] {
        let answer = rig.get(&format!("{below}/{path}")).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (403, "telemetry_path_refused"),
            "{path}"
        );
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let answer =
            rig.call(method, &format!("{below}/api/v1/info"), Some(&rig.admin), None).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (405, "method_not_allowed"),
            "{method}"
        );
    }
    let answer = rig.call("GET", &format!("{below}/api/v1/info"), None, None).await;
    assert_eq!(answer.code(), "token_missing");
    assert_eq!(
        rig.get("/api/v1/nodes/nobody/telemetry/api/v1/info").await.code(),
        "node_not_found"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(rig.get(&format!("{below}/api/v1/info")).await.status, 200);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn answers_that_are_too_large_or_lead_away_are_refused() {
    let telemetry = TelemetryLimits { body_bytes: 1000, ..TelemetryLimits::default() };
    let settings = ApiSettings { telemetry, ..ApiSettings::default() };
    let rig = Rig::set(NodeAccess::StandIns, BEGIN, settings).await;
    rig.add_site().await;
    let at = host(|request| match request.uri().path() {
        "/api/v1/allmetrics" => "x".repeat(1001).into_response(),
        "/api/v1/charts" => "x".repeat(1000).into_response(),
        "/api/v1/weights" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "/v1/away" => (StatusCode::FOUND, [("location", "http://10.9.9.9/v1/")]).into_response(),
        _ => edge(&request),
    })
    .await;
    node_at(&rig, "j22u11", at.port()).await;
    let get = async |path: &str| rig.get(&format!("/api/v1/nodes/j22u11/telemetry/{path}")).await;
    assert_eq!(get("api/v1/allmetrics").await.code(), "telemetry_too_large");
    assert_eq!(get("api/v1/charts").await.bytes.len(), 1000);
    assert_eq!(get("v1/away").await.code(), "telemetry_redirect_refused");
    // The host was looked at, and is not to blame for more than this one answer.
    let answer = get("api/v1/weights").await;
    assert_eq!(answer.code(), "telemetry_answer_refused");
    assert!(answer.json()["detail"].as_str().unwrap().ends_with("HTTP 500"), "{}", answer.json());
}

#[tokio::test]
async fn many_readers_at_once_are_turned_away() {
    let (came, mut comes) = tokio::sync::mpsc::unbounded_channel();
    let at = raw(move |stream| {
        let came = came.clone();
        async move {
            came.send(stream).unwrap();
        }
    })
    .await;
    let rig = Arc::new(Rig::with_site().await);
    node_at(&rig, "j22u11", at.port()).await;
    let path = "/api/v1/nodes/j22u11/telemetry/api/v1/info";
    let mut readers = tokio::task::JoinSet::new();
    let mut open = Vec::new();
    for _ in 0..16 {
        let rig = Arc::clone(&rig);
        readers.spawn(async move { rig.get(path).await.status });
        open.push(comes.recv().await.unwrap());
    }
    assert_eq!(rig.get(path).await.code(), "telemetry_busy");
    readers.shutdown().await;
}

/// A machine that left, or was handed over, is not looked at.
#[tokio::test]
async fn machines_of_others_are_left_alone() {
    let rig = Rig::with_site().await;
    let at = host(|request| edge(&request)).await;
    let handed = node_at(&rig, "handed", at.port()).await;
    let spec = json!({ "release_mode": "handoff" });
    rig.patch("/api/v1/profiles/handed", spec).await.ok();
    assert_eq!(rig.get("/api/v1/nodes/handed/telemetry").await.code(), "machine_handed_off");
    let path = "/api/v1/nodes/handed/telemetry/api/v1/info";
    assert_eq!(rig.get(path).await.code(), "machine_handed_off");
    assert_eq!(rig.store.node(handed).await.unwrap().state, NodeState::Active);
    node_at(&rig, "left", at.port()).await;
    assert_eq!(rig.get("/api/v1/nodes/left/telemetry").await.ok()["verdict"], "ok");
    let detach = json!({ "kind": "detach", "actor": "ann", "reason": "it is sold" });
    rig.post("/api/v1/nodes/left/runs", detach).await.ok();
    let now = rig.clock.now();
    let leaving = rig.store.claim(now, now.plus_seconds(30.0), 1).await.unwrap().remove(0);
    for state in [NodeState::Retired, NodeState::Detached, NodeState::Deleted] {
        let mut write = RunWrite::new(leaving.run.clone());
        write.node = Some(NodeChange { state: Some(state), system_id: None });
        rig.store.commit(now, write).await.unwrap();
        assert_eq!(rig.get("/api/v1/nodes/left/telemetry").await.code(), "node_state_forbids");
    }
}
