//! Bodies that never end, from callers whose credential is good.

use std::net::SocketAddr;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use gpuaas_api::{ApiSettings, NodeAccess};
use gpuaas_identity::server::{HttpServer, Security};
use gpuaas_types::agent::TaskResult;
use gpuaas_types::limits::{Limit, ListenerKind, ListenerLimits};
use gpuaas_types::{IdSource as _, RandomIds, TaskId};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::rig::{BEGIN, Rig};

/// Unfinished bodies of one caller.
const BODIES: usize = 500;

/// A listener for operators and stand-ins whose callers may send as often as they like.
async fn listener() -> (Rig, SocketAddr) {
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut limits = ListenerLimits::defaults(ListenerKind::Nodes);
    limits.set(Limit::RequestsPerSecond, 1_000_000);
    limits.set(Limit::RequestBurst, 1_000_000);
    limits.set(Limit::ConnectionsPerAddress, 2_000);
    let settings = ApiSettings { operators: limits, nodes: limits, ..ApiSettings::default() };
    let rig = Rig::set(NodeAccess::StandIns, BEGIN, settings).await;
    rig.add_site().await;
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let server = HttpServer::new(socket, Security::Plain, limits, CancellationToken::new());
    let router = rig.router.clone();
    tokio::spawn(async move { server.run(router).await.unwrap() });
    (rig, address)
}

/// A connection on which a request with a body began that never ends.
async fn begin(to: SocketAddr, head: &str, sent: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // A refusal may close the connection before all of it is sent.
    stream.write_all(sent).await.ok();
    stream
}

/// The head of a request with a JSON body.
fn head(path: &str, token: &str, length: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\n{length}\r\n\r\n"
    )
}

/// Status and problem of the response.
async fn response(stream: &mut TcpStream) -> (u16, Value) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            if status == 429 {
                assert!(head.to_ascii_lowercase().contains("retry-after: "), "{head}");
            }
            return (status, body);
        }
        let read = stream.read(&mut buffer).await.unwrap();
        assert_ne!(read, 0, "the connection ended: {text}");
        bytes.extend_from_slice(&buffer[..read]);
    }
}

/// The first `count` responses, whichever connections they come on.
async fn responses(open: &mut [TcpStream], count: usize) -> Vec<(u16, Value)> {
    let all: FuturesUnordered<_> = open.iter_mut().map(response).collect();
    let first = all.take(count).collect();
    tokio::time::timeout(test_report::patience(30.0), first).await.unwrap()
}

/// A task of an operator for a node.
async fn task(rig: &Rig, hostname: &str, operation: Value) -> String {
    let body = json!({ "operation": operation, "actor": "ann", "reason": "test" });
    let made = rig.post(&format!("/api/v1/nodes/{hostname}/tasks"), body).await.ok();
    made["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn unfinished_bodies_of_a_node_leave_room_for_everybody_else() {
    let (rig, address) = listener().await;
    let (attacker, credential) = rig.hear("j22u11").await;
    let (other, others) = rig.hear("j22u15").await;
    let id = task(&rig, "j22u11", json!({ "kind": "discover_slices" })).await;
    let path = format!("/agent/v1/tasks/{id}/result");
    let head = head(&path, &credential, "content-length: 1000000");
    let mut open = Vec::new();
    for _ in 0..BODIES {
        open.push(begin(address, &head, b"{").await);
    }
    // All but those that fit are refused at once.
    let refused = responses(&mut open, BODIES - 8).await;
    for (status, problem) in &refused {
        assert_eq!((*status, &problem["code"]), (429, &json!("too_many_requests")));
        assert!(problem["hint"].as_str().unwrap().contains("Retry-After"), "{problem}");
    }
    // Another node, an operator, and an administrator.
    let beat = json!({ "run_id": other.run_id, "agent_version": "0.1.0", "uptime_seconds": 1.0 });
    let client = reqwest::Client::new();
    let send = async |path: &str, token: &str, body: &Value| {
        let request = client.post(format!("http://{address}{path}")).bearer_auth(token);
        request.json(body).send().await.unwrap().status().as_u16()
    };
    assert_eq!(send("/agent/v1/heartbeat", &others, &beat).await, 200);
    let profile = json!({ "name": "other", "spec": {} });
    assert_eq!(send("/api/v1/profiles", &rig.admin, &profile).await, 201);
    // What is closed gives its bytes back.
    drop(open);
    let beat =
        json!({ "run_id": attacker.run_id, "agent_version": "0.1.0", "uptime_seconds": 1.0 });
    let mut status = 429;
    for _ in 0..500 {
        status = send("/agent/v1/heartbeat", &credential, &beat).await;
        if status != 429 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_chunked_body_counts_as_it_comes() {
    let (rig, address) = listener().await;
    let token = json!({ "name": "ci", "grants": [{ "role": "operator" }], "reason": "test" });
    let token = rig.post("/api/v1/tokens", token).await.ok()["token"].as_str().unwrap().to_owned();
    let head = head("/api/v1/nodes", &token, "transfer-encoding: chunked");
    let chunk = format!("{:x}\r\n{}\r\n", 900_000, " ".repeat(900_000));
    let mut open = Vec::new();
    for _ in 0..12 {
        open.push(begin(address, &head, chunk.as_bytes()).await);
    }
    // Nine of them fit, as long as no other one has a part of its bytes here.
    for (status, problem) in responses(&mut open, 3).await {
        assert_eq!((status, &problem["code"]), (429, &json!("too_many_requests")));
    }
}

#[tokio::test]
async fn a_result_is_read_only_as_far_as_its_task_says() {
    let (rig, address) = listener().await;
    let (_, credential) = rig.hear("j22u11").await;
    let (_, others) = rig.hear("j22u15").await;
    let discovery = task(&rig, "j22u11", json!({ "kind": "discover_slices" })).await;
    let collect = task(&rig, "j22u11", json!({ "kind": "collect_diagnostics" })).await;
    let missing = TaskId(RandomIds.uuid(rig.now())).to_string();
    let rows = [
        (&missing, &credential, 20_000, 404, "task_not_found"),
        (&discovery, &others, 20_000, 404, "task_not_found"),
        (&discovery, &credential, 1_100_000, 413, "body_too_large"),
        (&collect, &credential, 4_300_000, 413, "body_too_large"),
    ];
    for (id, token, bytes, status, code) in rows {
        let path = format!("/agent/v1/tasks/{id}/result");
        // Nothing of the body is sent: the head is enough.
        let head = head(&path, token, &format!("content-length: {bytes}"));
        let (seen, problem) = response(&mut begin(address, &head, b"").await).await;
        assert_eq!((seen, &problem["code"]), (status, &json!(code)), "{id} {bytes}");
        assert_ne!(problem["hint"], "");
    }
    // An archive of diagnostics, and what an agent says of a task that nobody here gave it.
    let result = |message: String| {
        let code = "signature_forged".to_owned();
        serde_json::to_value(TaskResult { message, code, ..TaskResult::default() }).unwrap()
    };
    let path = |id: &str| format!("/agent/v1/tasks/{id}/result");
    let large = Some(result("x".repeat(1_500_000)));
    assert_eq!(rig.call("POST", &path(&collect), Some(&credential), large).await.status, 200);
    let small = Some(result("not ours".to_owned()));
    let answer = rig.call("POST", &path(&missing), Some(&credential), small).await;
    assert_eq!(answer.code(), "task_not_found");
    let entries = rig.store.audit_entries(0, 200).await.unwrap();
    let refused = entries.iter().filter(|one| one.entry.action == "agent.task_refused");
    assert!(refused.count() > 0, "a task that nobody gave is in the audit");
}
