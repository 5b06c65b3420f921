//! What operators have agents do.

use axum::body::Body;
use axum::http::Request;
use gpuaas_bundle::{Envelope, order};
use gpuaas_types::agent::{TaskKeys, TaskSpec};
use serde_json::{Value, json};

use crate::rig::{Answer, Rig};

#[tokio::test]
async fn what_keeps_an_agent_from_its_work_is_in_the_history_once() {
    let (rig, node, credential) = Rig::heard().await;
    for troubles in [&["disk_full"][..], &["disk_full"], &[], &[]] {
        let beat = json!({
            "run_id": node.run_id, "agent_version": "0.1.0", "uptime_seconds": 13.5,
            "troubles": troubles,
        });
        let answer = rig.call("POST", "/agent/v1/heartbeat", Some(&credential), Some(beat)).await;
        assert!(answer.ok()["at"].is_string());
    }
    let history = rig.store.timeline_of_node(node.node_id, 0, 100).await.unwrap();
    let codes: Vec<_> = history.iter().map(|row| row.event.code.as_str()).collect();
    assert_eq!(codes[codes.len() - 2..], ["agent_troubled", "agent_well"]);
    assert_eq!(codes.iter().filter(|code| code.starts_with("agent_")).count(), 2);
}

fn restart(unit: &str, dry_run: bool) -> Value {
    json!({
        "operation": { "kind": "service", "action": "restart", "unit": unit },
        "dry_run": dry_run, "actor": "ada", "reason": "it hangs",
    })
}

async fn keyed(rig: &Rig, key: &str, body: &Value) -> Answer {
    let request = Request::post("/api/v1/nodes/j22u11/tasks")
        .header("authorization", format!("Bearer {}", rig.admin))
        .header("idempotency-key", key)
        .body(Body::from(body.to_string()));
    rig.send(request.unwrap()).await
}

#[tokio::test]
async fn a_task_goes_from_an_operator_to_the_agent_and_back() {
    let (rig, node, credential) = Rig::heard().await;
    let given = keyed(&rig, "k1", &restart("nginx.service", false)).await.ok();
    assert_eq!((&given["state"], &given["actor"]), (&json!("queued"), &json!("admin (ada)")));
    let again = keyed(&rig, "k1", &restart("nginx.service", false)).await.ok();
    assert_eq!(again["id"], given["id"]);
    let other = keyed(&rig, "k1", &restart("netdata.service", false)).await;
    assert_eq!(other.code(), "idempotency_key_reused");

    let batch = rig.call("GET", "/agent/v1/tasks", Some(&credential), None).await.ok();
    let order: Envelope = serde_json::from_value(batch["tasks"][0]["order"].clone()).unwrap();
    let keys: TaskKeys = serde_json::from_value(rig.get("/api/v1/task-keys").await.ok()).unwrap();
    let now = gpuaas_engine::Clock::now(&*rig.clock);
    let task = order::admit(&order, &keys, node.node_id, now).unwrap();
    assert!(matches!(task.spec, TaskSpec::Operate { dry_run: false, .. }));
    let path = format!("/api/v1/tasks/{}", task.id);
    assert_eq!(rig.get(&path).await.ok()["state"], "taken");

    let result = json!({
        "succeeded": false, "code": "tool_failed", "message": "Job failed", "findings": [],
        "archive": { "size_bytes": 3, "digest": "a".repeat(64), "data": "YWJj" },
    });
    let answer = format!("/agent/v1/tasks/{}/result", task.id);
    rig.call("POST", &answer, Some(&credential), Some(result)).await.ok();
    let done = rig.get(&path).await.ok();
    assert_eq!(
        (&done["state"], &done["result"]["code"]),
        (&json!("failed"), &json!("tool_failed"))
    );
    assert_eq!(done["result"]["archive"]["data"], "YWJj");
    let listed = rig.get("/api/v1/nodes/j22u11/tasks").await.ok();
    assert_eq!(listed["items"][0]["id"], given["id"]);
    assert!(listed["items"][0]["result"]["archive"]["data"].is_null());
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);

    let audit = rig.store.audit_entries(0, 100).await.unwrap();
    let entry = &audit.iter().find(|entry| entry.entry.action == "node.task").unwrap().entry;
    assert_eq!((entry.actor.as_str(), &entry.detail["task"]), ("admin (ada)", &given["id"]));
    let history = rig.store.timeline_of_node(node.node_id, 0, 100).await.unwrap();
    let codes: Vec<_> = history.iter().map(|row| row.event.code.as_str()).collect();
    assert_eq!(codes[codes.len() - 2..], ["task_asked", "task_finished"]);
}

#[tokio::test]
async fn tasks_expire_where_nobody_fetches_them_and_where_no_answer_comes() {
    let (rig, _, credential) = Rig::heard().await;
    let body = |within: u32| {
        let mut body = restart("nginx.service", false);
        body["within_seconds"] = json!(within);
        body
    };
    let path = "/api/v1/nodes/j22u11/tasks";
    let first = rig.post(path, body(60)).await.ok();
    rig.call("GET", "/agent/v1/tasks", Some(&credential), None).await.ok();
    let second = rig.post(path, body(60)).await.ok();
    let states = async || {
        let view = async |task: &Value| {
            let path = format!("/api/v1/tasks/{}", task["id"].as_str().unwrap());
            rig.get(&path).await.ok()["state"].as_str().unwrap().to_owned()
        };
        [view(&first).await, view(&second).await]
    };
    assert_eq!(states().await, ["taken", "queued"]);
    rig.advance(61);
    assert_eq!(states().await, ["taken", "expired"]);
    let left = rig.call("GET", "/agent/v1/tasks", Some(&credential), None).await.ok();
    assert_eq!(left["tasks"], json!([]));
    rig.advance(300);
    assert_eq!(states().await, ["expired", "expired"]);
}

#[tokio::test]
async fn what_must_not_be_is_refused_and_nothing_is_kept() {
    let (rig, ..) = Rig::heard().await;
    let path = "/api/v1/nodes/j22u11/tasks";
    let refused = async |body: Value| rig.post(path, body).await.code();
    assert_eq!(refused(restart("ssh.service", false)).await, "invalid_field");
    assert_eq!(refused(restart("gpuaas-node-agent.service", true)).await, "invalid_field");
    // The onboarding is at work, and a tenant would notice a restart of Docker.
    assert_eq!(refused(restart("docker.service", false)).await, "node_has_open_run");
    let shell = json!({ "operation": { "kind": "shell", "command": "id" }, "actor": "a",
        "reason": "r" });
    assert_eq!(refused(shell).await, "invalid_field");
    let mut body = restart("nginx.service", false);
    body["within_seconds"] = json!(1);
    assert_eq!(refused(body).await, "invalid_field");
    let mut body = restart("nginx.service", false);
    body["reason"] = json!(" ");
    assert_eq!(refused(body).await, "invalid_field");
    let trust = json!({ "operation": { "kind": "refresh_trust", "registries": [
        { "host": "r.example", "ca_pem": "-----BEGIN CERTIFICATE-----\n{{ ca }}\n-----END CERTIFICATE-----" }] },
        "actor": "a", "reason": "r" });
    let answer = rig.post(path, trust).await;
    assert!(answer.json()["detail"].as_str().unwrap().contains("placeholder"), "{answer:?}");
    let update = json!({ "operation": { "kind": "agent_update" }, "actor": "a", "reason": "r" });
    assert_eq!(refused(update).await, "invalid_field");
    let update = json!({ "operation": { "kind": "agent_update", "bundle": "agent@1.0.0" },
        "actor": "a", "reason": "r" });
    assert_eq!(refused(update).await, "bundle_not_found");
    assert_eq!(rig.get(path).await.ok()["items"], json!([]));

    let other = rig.onboard("j22u15").await;
    let path = format!("/api/v1/nodes/{}/tasks", other.node_id);
    let code = rig.post(&path, restart("nginx.service", true)).await.code();
    assert_eq!(code, "node_without_agent");
    let nobody = rig.post("/api/v1/nodes/nobody/tasks", restart("nginx.service", true)).await;
    assert_eq!(nobody.code(), "node_not_found");
    assert_eq!(rig.get("/api/v1/tasks/7").await.code(), "task_not_found");
    let stranger = rig.call("GET", "/api/v1/nodes/j22u11/tasks", None, None).await;
    assert_eq!(stranger.code(), "token_missing");
}
