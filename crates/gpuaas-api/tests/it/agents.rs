//! Bootstrap, enrollment, heartbeats, tasks, and which credential opens what.

use gpuaas_api::{ApiSettings, NodeAccess};
use gpuaas_bundle::{Envelope, order};
use gpuaas_core::drift::Difference;
use gpuaas_core::run_state::RegionTag;
use gpuaas_store::{NewTask, NodeChange, RunWrite, SweepFinding, TokenPurpose};
use gpuaas_types::agent::{TaskKeyState, TaskKeys, TaskSpec};
use gpuaas_types::api::OnboardAccepted;
use gpuaas_types::machine::{MachineView, Observation};
use gpuaas_types::spec::SLICE_TAG;
use gpuaas_types::{DriftAction, DriftKind, NodeState, RandomIds, RunId, RunStatus, TaskId};
use serde_json::{Value, json};

use crate::rig::{BEGIN, Rig};

fn enroll(run: RunId) -> Value {
    json!({
        "run_id": run, "hostname": "j22u11", "agent_version": "0.1.0",
        "started_at": "2026-11-20T16:00:00Z", "facts": {},
    })
}

fn beat(run: RunId) -> Value {
    json!({ "run_id": run, "agent_version": "0.1.0", "uptime_seconds": 12.5 })
}

async fn codes(rig: &Rig, run: RunId) -> Vec<String> {
    let rows = rig.store.timeline_of_run(run, 0, 100).await.unwrap();
    rows.into_iter().map(|row| row.event.code).collect()
}

fn units() -> Vec<String> {
    vec!["ssh.service".to_owned()]
}

async fn give_task(rig: &Rig, run: RunId) -> TaskId {
    let now = gpuaas_engine::Clock::now(&*rig.clock);
    let claimed = rig.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap();
    let record = claimed.into_iter().map(|claimed| claimed.run).find(|r| r.id == run).unwrap();
    let task = NewTask {
        id: TaskId::new(&RandomIds, now),
        spec: TaskSpec::Diagnostics { units: units() },
        expires_at: now.plus_seconds(600.0),
    };
    let id = task.id;
    let mut write = RunWrite::new(record).releasing();
    write.tasks = vec![task];
    rig.store.commit(now, write).await.unwrap();
    id
}

async fn ready() -> (Rig, OnboardAccepted, String) {
    let rig = Rig::with_site().await;
    let node = rig.onboard("j22u11").await;
    let token = rig.token(TokenPurpose::Enrollment, node.node_id, node.run_id, Some(3600)).await;
    (rig, node, token)
}

async fn enrolled() -> (Rig, OnboardAccepted, String) {
    let (rig, node, token) = ready().await;
    let answer =
        rig.call("POST", "/agent/v1/enroll", Some(&token), Some(enroll(node.run_id))).await.ok();
    (rig, node, answer["credential"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn an_agent_enrolls_lives_and_works() {
    let (rig, node, credential) = enrolled().await;
    let said =
        rig.call("POST", "/agent/v1/heartbeat", Some(&credential), Some(beat(node.run_id))).await;
    assert_eq!(said.ok()["new"], true);
    let said =
        rig.call("POST", "/agent/v1/heartbeat", Some(&credential), Some(beat(node.run_id))).await;
    assert_eq!(said.ok()["new"], false);
    let tasks = rig.call("GET", "/agent/v1/tasks", Some(&credential), None).await.ok();
    assert_eq!(tasks["tasks"], json!([]));
    let task = give_task(&rig, node.run_id).await;
    let tasks =
        rig.call("GET", "/agent/v1/tasks?wait_seconds=30", Some(&credential), None).await.ok();
    assert_eq!(tasks["tasks"][0]["id"], task.to_string());
    let order: Envelope = serde_json::from_value(tasks["tasks"][0]["order"].clone()).unwrap();
    let keys = rig.get("/api/v1/task-keys").await.ok();
    let keys: TaskKeys = serde_json::from_value(keys).unwrap();
    let now = gpuaas_engine::Clock::now(&*rig.clock);
    let admitted = order::admit(&order, &keys, node.node_id, now).unwrap();
    assert_eq!((admitted.id, admitted.spec), (task, TaskSpec::Diagnostics { units: units() }));
    let result =
        json!({ "succeeded": true, "findings": [{ "name": "a", "passed": true, "seen": "b" }] });
    let path = format!("/agent/v1/tasks/{task}/result");
    assert_eq!(
        rig.call("POST", &path, Some(&credential), Some(result.clone())).await.ok()["new"],
        true
    );
    assert_eq!(
        rig.call("POST", &path, Some(&credential), Some(result.clone())).await.ok()["new"],
        false
    );
    let elsewhere = format!("/agent/v1/tasks/{}/result", node.run_id);
    let answer = rig.call("POST", &elsewhere, Some(&credential), Some(result)).await;
    assert_eq!(answer.code(), "task_not_found");
    assert_eq!(
        codes(&rig, node.run_id).await,
        [
            "onboard_accepted",
            "enrollment_started",
            "enrollment_finished",
            "first_heartbeat",
            "task_finished"
        ]
    );
    assert_eq!(rig.store.reports(node.run_id).await.unwrap().len(), 3);
    let view = rig.get("/api/v1/nodes/j22u11").await;
    assert!(!String::from_utf8_lossy(&view.bytes).contains(&credential));
    assert!(view.ok()["heartbeat_at"].is_string());
    let other = rig.onboard("j22u15").await;
    let answer =
        rig.call("POST", "/agent/v1/heartbeat", Some(&credential), Some(beat(other.run_id))).await;
    assert_eq!(answer.code(), "run_mismatch");
}

#[tokio::test]
async fn task_keys_are_staged_then_sign_then_are_withdrawn() {
    let (rig, node, credential) = enrolled().await;
    let states = |keys: &Value| -> Vec<TaskKeyState> {
        let keys: TaskKeys = serde_json::from_value(keys.clone()).unwrap();
        keys.keys.iter().map(|key| key.state).collect()
    };
    let admin = Some(rig.admin.as_str());
    let first = rig.get("/api/v1/task-keys").await.ok();
    assert_eq!(states(&first), [TaskKeyState::Active]);
    let activate = json!({ "grace_seconds": 60 });
    let path = "/api/v1/task-keys/activate";
    let early = rig.call("POST", path, admin, Some(activate.clone())).await;
    assert_eq!(early.code(), "no_task_key_staged");
    let staged = rig.call("POST", "/api/v1/task-keys", admin, None).await.ok();
    assert_eq!(states(&staged), [TaskKeyState::Active, TaskKeyState::Staged]);
    let twice = rig.call("POST", "/api/v1/task-keys", admin, None).await;
    assert_eq!(twice.code(), "task_key_staged");

    // An agent hears of the staged key from the one that it knows.
    let known: TaskKeys = serde_json::from_value(first.clone()).unwrap();
    let mut body = beat(node.run_id);
    body["task_keys_revision"] = json!(known.revision);
    let said = rig.call("POST", "/agent/v1/heartbeat", Some(&credential), Some(body)).await.ok();
    let envelope: Envelope = serde_json::from_value(said["task_keys"].clone()).unwrap();
    let now = gpuaas_engine::Clock::now(&*rig.clock);
    let learned = order::admit_keys(&envelope, &known, now).unwrap();
    assert_eq!(learned, serde_json::from_value(staged.clone()).unwrap());
    let mut body = beat(node.run_id);
    body["task_keys_revision"] = json!(learned.revision);
    let said = rig.call("POST", "/agent/v1/heartbeat", Some(&credential), Some(body)).await.ok();
    assert!(said["task_keys"].is_null());

    let rotated = rig.call("POST", path, admin, Some(activate)).await.ok();
    assert_eq!(states(&rotated), [TaskKeyState::Grace, TaskKeyState::Active]);
    let retire = |key: &Value| json!({ "public_key": key["public_key"] });
    let (old, new) = (retire(&rotated["keys"][0]), retire(&rotated["keys"][1]));
    let path = "/api/v1/task-keys/retire";
    assert_eq!(rig.call("POST", path, admin, Some(new)).await.code(), "task_key_active");
    let unknown = json!({ "public_key": "x" });
    assert_eq!(rig.call("POST", path, admin, Some(unknown)).await.code(), "not_found");
    let left = rig.call("POST", path, admin, Some(old)).await.ok();
    assert!(states(&left).contains(&TaskKeyState::Retired), "{left}");
    let nobody = rig.call("POST", "/api/v1/task-keys", Some(&credential), None).await;
    assert_eq!(nobody.code(), "token_wrong_purpose");
}

#[tokio::test]
async fn a_poll_stands_for_a_heartbeat_that_would_say_the_same() {
    let settings = ApiSettings { heartbeats_together: true, ..ApiSettings::default() };
    let rig = Rig::set(NodeAccess::StandIns, BEGIN, settings).await;
    rig.add_site().await;
    let (node, credential) = rig.hear("j22u11").await;
    let heartbeat = async |revision: i64| {
        let body = json!({
            "run_id": node.run_id, "agent_version": "0.1.0", "uptime_seconds": 12.5,
            "task_keys_revision": revision,
        });
        rig.call("POST", "/agent/v1/heartbeat", Some(&credential), Some(body)).await.ok()
    };
    let revision = |keys: &Value| keys["revision"].as_i64().unwrap();
    let keys = rig.get("/api/v1/task-keys").await.ok();
    let news = heartbeat(0).await;
    assert!(news["task_keys"].is_object() && news["heartbeat_digest"].is_null(), "{news}");
    let said = heartbeat(revision(&keys)).await;
    let digest = said["heartbeat_digest"].as_str().unwrap();
    let poll = async |digest: &str| {
        let path = format!("/agent/v1/tasks?wait_seconds=0&heartbeat_digest={digest}");
        rig.call("GET", &path, Some(&credential), None).await.ok()
    };
    let heard_at = async || {
        rig.store.write_noted_heartbeats().await.unwrap();
        rig.store.node(node.node_id).await.unwrap().heartbeat_at
    };
    rig.advance(30);
    let polled = poll(digest).await;
    assert!(polled["heartbeat_wanted"].is_null() && polled["at"].is_string(), "{polled}");
    assert_eq!(heard_at().await, Some(rig.now()));
    let before = heard_at().await;
    rig.advance(30);
    assert_eq!(poll("0123").await["heartbeat_wanted"], true);
    assert_eq!(heard_at().await, before);
    let metrics = String::from_utf8(rig.get("/metrics").await.bytes).unwrap();
    assert!(metrics.contains("gpuaas_heartbeats_total{form=\"poll\"} 1.0\n"), "{metrics}");
    assert!(metrics.contains("gpuaas_heartbeats_total{form=\"request\"} 3.0\n"), "{metrics}");

    // What its next heartbeat would be answered has changed.
    let admin = Some(rig.admin.as_str());
    let staged = rig.call("POST", "/api/v1/task-keys", admin, None).await.ok();
    assert_eq!(poll(digest).await["heartbeat_wanted"], true);
    let said = heartbeat(revision(&staged)).await;
    assert!(said["heartbeat_digest"].as_str().is_some_and(|it| it != digest), "{said}");
    assert!(poll(said["heartbeat_digest"].as_str().unwrap()).await["heartbeat_wanted"].is_null());
}

#[tokio::test]
async fn a_waiting_poll_is_woken_by_a_task() {
    let (rig, node, credential) = enrolled().await;
    let rig = std::sync::Arc::new(rig);
    let poller = std::sync::Arc::clone(&rig);
    let poll = tokio::spawn(async move {
        let path = "/agent/v1/tasks?wait_seconds=30";
        poller.call("GET", path, Some(&credential), None).await.ok()
    });
    let task = give_task(&rig, node.run_id).await;
    // Well before a poll looks again by itself.
    let tasks = tokio::time::timeout(test_report::patience(10.0), poll).await.unwrap().unwrap();
    assert_eq!(tasks["tasks"][0]["id"], task.to_string());
}

#[tokio::test]
async fn an_enrollment_token_works_once() {
    let (rig, node, token) = ready().await;
    let go = async |token: &str| {
        rig.call("POST", "/agent/v1/enroll", Some(token), Some(enroll(node.run_id))).await
    };
    let first = go(&token).await.ok();
    // The agent died before it saved its credential: allowed until the first heartbeat.
    let second = go(&token).await.ok();
    let old = first["credential"].as_str().unwrap();
    let new = second["credential"].as_str().unwrap();
    let path = "/agent/v1/heartbeat";
    let refused = rig.call("POST", path, Some(old), Some(beat(node.run_id))).await;
    assert_eq!((refused.status, refused.code().as_str()), (401, "token_revoked"));
    rig.call("POST", path, Some(new), Some(beat(node.run_id))).await.ok();
    let third = go(&token).await;
    assert_eq!((third.status, third.code().as_str()), (401, "token_used"));
    let reports = rig.store.reports(node.run_id).await.unwrap().len();
    assert_eq!(reports, 3);
}

#[tokio::test]
async fn a_node_that_speaks_keeps_the_tokens_of_its_parked_run_good() {
    let rig = Rig::with_site().await;
    let node = rig.onboard("j22u11").await;
    let token = rig.token(TokenPurpose::Bootstrap, node.node_id, node.run_id, Some(60)).await;
    rig.put_run(node.run_id, RunStatus::Parked).await;
    let at = |what: &str| format!("/bootstrap/v1/runs/{}/{what}", node.run_id);
    let phase = json!({
        "bundle": "h200-ib@1.2.0", "phase": "packages", "outcome": "ran", "changed": 1,
        "seconds": 3500.0, "text": "",
    });
    let progress = json!({ "phase": "site_bootstrap", "status": "succeeded" });
    for (seconds, path, body) in [
        (50, at("phases"), &phase),
        (3500, at("phases"), &phase),
        (3500, at("progress"), &progress),
    ] {
        rig.advance(seconds);
        rig.call("POST", &path, Some(&token), Some(body.clone())).await.ok();
    }
    rig.advance(3600);
    let late = rig.call("POST", &at("phases"), Some(&token), Some(phase)).await;
    assert_eq!((late.status, late.code().as_str()), (401, "token_expired"));
    assert!(late.json()["hint"].as_str().unwrap().contains("gpuaas run resume"), "{late:?}");
}

#[tokio::test]
async fn every_token_failure_has_its_code() {
    let (rig, node, token) = ready().await;
    let go = async |token: Option<&str>, run: RunId| {
        rig.call("POST", "/agent/v1/enroll", token, Some(enroll(run))).await.code()
    };
    assert_eq!(go(None, node.run_id).await, "token_missing");
    assert_eq!(go(Some("guess"), node.run_id).await, "token_unknown");
    let other = rig.onboard("j22u15").await;
    assert_eq!(go(Some(&token), other.run_id).await, "token_of_other_run");
    let bootstrap = rig.token(TokenPurpose::Bootstrap, node.node_id, node.run_id, None).await;
    assert_eq!(go(Some(&bootstrap), node.run_id).await, "token_wrong_purpose");
    assert_eq!(go(Some(&rig.admin), node.run_id).await, "token_wrong_purpose");
    rig.advance(3601);
    rig.put_run(node.run_id, RunStatus::Parked).await;
    assert_eq!(go(Some(&token), node.run_id).await, "token_expired");
    let late = rig.token(TokenPurpose::Enrollment, other.node_id, other.run_id, None).await;
    rig.put_run(other.run_id, RunStatus::Cancelled).await;
    assert_eq!(go(Some(&late), other.run_id).await, "run_over");
    assert!(rig.store.reports(node.run_id).await.unwrap().is_empty());
    assert_eq!(codes(&rig, node.run_id).await, ["onboard_accepted"]);

    for (method, path) in [
        ("POST", "/agent/v1/heartbeat"),
        ("GET", "/agent/v1/tasks"),
        ("POST", "/agent/v1/tasks/x/result"),
    ] {
        assert_eq!(rig.call(method, path, None, None).await.code(), "token_missing");
        for token in [&bootstrap, &token, &rig.admin] {
            let answer = rig.call(method, path, Some(token), None).await;
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (403, "token_wrong_purpose"),
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn callbacks_are_kept_once_and_cleaned() {
    let rig = Rig::with_site().await;
    let node = rig.onboard("j22u11").await;
    let token = rig.token(TokenPurpose::Bootstrap, node.node_id, node.run_id, None).await;
    let path = format!("/bootstrap/v1/runs/{}/progress", node.run_id);
    let say = async |phase: &str, status: &str, message: &str| {
        let body = json!({ "phase": phase, "status": status, "message": message });
        rig.call("POST", &path, Some(&token), Some(body)).await.ok()["new"].clone()
    };
    assert_eq!(say("site_bootstrap", "started", "").await, true);
    assert_eq!(say("site_bootstrap", "started", "again").await, false);
    assert_eq!(say("site_bootstrap", "succeeded", "").await, true);
    assert_eq!(say("node_bootstrap", "started", "").await, true);
    let long = format!("\u{1b}[31mno\0 disk\n{}", "x".repeat(5000));
    assert_eq!(say("node_bootstrap", "failed", &long).await, true);
    assert_eq!(
        codes(&rig, node.run_id).await,
        [
            "onboard_accepted",
            "site_bootstrap_started",
            "site_bootstrap_finished",
            "node_bootstrap_started",
            "node_bootstrap_failed"
        ]
    );
    let reports = rig.store.reports(node.run_id).await.unwrap();
    assert_eq!(reports.len(), 4);
    let kept =
        serde_json::to_value(&reports[3].kind).unwrap()["message"].as_str().unwrap().to_owned();
    assert_eq!(kept.chars().count(), 2000);
    assert!(kept.starts_with("[31mno disk xxx"), "{}", &kept[..20]);

    let other = rig.onboard("j22u15").await;
    let elsewhere = format!("/bootstrap/v1/runs/{}/progress", other.run_id);
    let body = json!({ "phase": "site_bootstrap", "status": "started" });
    let answer = rig.call("POST", &elsewhere, Some(&token), Some(body.clone())).await;
    assert_eq!((answer.status, answer.code().as_str()), (403, "token_of_other_run"));
    assert!(rig.store.reports(other.run_id).await.unwrap().is_empty());
    let answer = rig
        .call("POST", &path, Some(&token), Some(json!({ "phase": "x", "status": "started" })))
        .await;
    assert_eq!(answer.code(), "invalid_field");
    rig.put_run(node.run_id, RunStatus::Cancelled).await;
    assert_eq!(rig.call("POST", &path, Some(&token), Some(body)).await.code(), "run_over");
}

#[tokio::test]
async fn phases_of_a_bundle_go_to_the_history() {
    let rig = Rig::with_site().await;
    let node = rig.onboard("j22u11").await;
    let token = rig.token(TokenPurpose::Bootstrap, node.node_id, node.run_id, Some(3600)).await;
    let path = format!("/bootstrap/v1/runs/{}/phases", node.run_id);
    let say = |outcome: &str, text: &str| {
        json!({ "bundle": "h200-ib@1.2.0", "phase": "ipoib", "outcome": outcome, "seconds": 1.25,
                "changed": 2, "text": text })
    };
    let post =
        async |token: &str, body: Value| rig.call("POST", &path, Some(token), Some(body)).await;
    for body in [say("ran", ""), say("skipped", "x is 0"), say("failed", "no\u{1b} link")] {
        post(&token, body).await.ok();
    }
    let rows = rig.store.timeline_of_run(node.run_id, 0, 100).await.unwrap();
    let said: Vec<(String, String)> =
        rows.into_iter().skip(1).map(|row| (row.event.code, row.event.text)).collect();
    let texts: Vec<String> = said.iter().map(|(code, text)| format!("{code}: {text}")).collect();
    assert_eq!(
        texts,
        [
            "bundle_phase_finished: h200-ib@1.2.0 says that ipoib took 1.2 s and made 2 changes",
            "bundle_phase_skipped: h200-ib@1.2.0 says that ipoib was skipped: x is 0",
            "bundle_phase_failed: h200-ib@1.2.0 says that ipoib failed after 1.2 s: no link",
        ]
    );
    let other = rig.token(TokenPurpose::Enrollment, node.node_id, node.run_id, Some(3600)).await;
    assert_eq!(post(&other, say("ran", "")).await.json()["code"], "token_wrong_purpose");
    assert_eq!(post(&token, json!({ "bundle": "x" })).await.status, 400);
}

#[tokio::test]
async fn a_node_may_be_active_and_not_ready_for_slices() {
    let rig = Rig::with_site().await;
    let spec = json!({ "name": "slice", "spec": { "site_bootstrap_bundle_ref": gpuaas_types::built_in_bundle!("h200-slice-vm") } });
    rig.post("/api/v1/profiles", spec).await.ok();
    let asked = json!({ "hostname": "j22u11", "site": "lab", "profile": "slice" });
    let node: OnboardAccepted =
        serde_json::from_value(rig.post("/api/v1/nodes", asked).await.ok()).unwrap();
    let view = async || rig.get("/api/v1/nodes/j22u11").await.ok()["gates"][0].clone();
    let early = view().await;
    assert_eq!((&early["open"], &early["class"]), (&json!(false), &Value::Null), "{early}");

    let token = rig.token(TokenPurpose::Enrollment, node.node_id, node.run_id, Some(3600)).await;
    let answer = rig.call("POST", "/agent/v1/enroll", Some(&token), Some(enroll(node.run_id)));
    let credential = answer.await.ok()["credential"].as_str().unwrap().to_owned();
    let post =
        async |path: &str, body: Value| rig.call("POST", path, Some(&credential), Some(body)).await;
    post("/agent/v1/heartbeat", beat(node.run_id)).await.ok();
    activate(&rig, node.run_id).await;
    assert_eq!(view().await["class"], "agent_fault", "it has said nothing of the gate yet");

    let check = |name: &str, passed: bool| {
        json!({ "name": name, "passed": passed, "expected": "present",
                "seen": "it is not there", "reason": "", "blocks": [] })
    };
    let shut = json!({ "gate": "slice_ready", "passed": false, "class": "host_baseline_incomplete",
        "checks": [check("file /etc/netplan/60-ipoib.yaml", false), check("ovs bridge ovsbr0", true)] });
    let gates = |run: RunId, gate: &Value| json!({ "run_id": run, "gates": [gate] });
    for _ in 0..2 {
        post("/agent/v1/gates", gates(node.run_id, &shut)).await.ok();
    }
    let seen = view().await;
    assert_eq!(
        (&seen["open"], &seen["class"]),
        (&json!(false), &json!("host_baseline_incomplete"))
    );
    assert_eq!(seen["failing"].as_array().unwrap().len(), 1);
    let explained = rig.get("/api/v1/nodes/j22u11/explain").await.ok();
    let named = explained["problems"][0]["code"].clone();
    assert_eq!(named, "gate_host_baseline_incomplete", "{explained}");
    assert!(explained["next_action"].as_str().unwrap().contains("repair-drift"), "{explained}");
    let text = explained["text"].to_string();
    assert!(text.contains("slice_ready is closed (host_baseline_incomplete)"), "{text}");
    assert!(explained["evidence"].to_string().contains("60-ipoib.yaml"), "{explained}");

    let open = json!({ "gate": "slice_ready", "passed": true, "checks": [check("x", true)] });
    post("/agent/v1/gates", gates(node.run_id, &open)).await.ok();
    assert_eq!(view().await["open"], true);
    let told = codes(&rig, node.run_id).await;
    let told: Vec<&str> =
        told.iter().map(String::as_str).filter(|code| code.starts_with("gate_")).collect();
    assert_eq!(told, ["gate_slice_ready_shut", "gate_slice_ready_open"]);
    rig.advance(3600);
    assert_eq!(view().await["class"], "agent_fault", "an agent that is silent says nothing");
    let other = post(
        "/agent/v1/gates",
        gates("00000000-0000-7000-8000-000000000000".parse().unwrap(), &open),
    )
    .await;
    assert_eq!(other.json()["code"], "run_mismatch");
}

/// The tag that a run gave the machine completes what the agent says, and a person who takes it away
/// shuts the gate at once.
#[tokio::test]
async fn a_slice_host_is_ready_only_while_its_machine_has_the_profiles_tag() {
    let rig = Rig::with_site().await;
    let node = rig.onboard("j22u11").await;
    let token = rig.token(TokenPurpose::Enrollment, node.node_id, node.run_id, Some(3600)).await;
    let answer = rig.call("POST", "/agent/v1/enroll", Some(&token), Some(enroll(node.run_id)));
    let credential = answer.await.ok()["credential"].as_str().unwrap().to_owned();
    let now = gpuaas_engine::Clock::now(&*rig.clock);
    let claimed = rig.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap();
    let mut write = RunWrite::new(claimed.into_iter().next().unwrap().run).releasing();
    write.run.state.tag = Some(RegionTag {
        asked_at: now,
        name: SLICE_TAG.to_owned(),
        kernel_opts: Some("iommu=pt".to_owned()),
    });
    (write.run.due_at, write.run.lease_until) = (now, now);
    write.observation = Some(Observation::from_read(machine_with(&["virtual"]), now));
    rig.store.commit(now, write).await.unwrap();
    activate(&rig, node.run_id).await;

    let check = json!({ "name": "unit libvirtd.service", "passed": true, "expected": "that it runs",
        "seen": "it runs", "reason": "", "blocks": [] });
    let report = json!({ "gate": "slice_ready", "passed": true, "checks": [check] });
    let say = async || {
        let body = json!({ "run_id": node.run_id, "gates": [report] });
        rig.call("POST", "/agent/v1/heartbeat", Some(&credential), Some(beat(node.run_id)))
            .await
            .ok();
        rig.call("POST", "/agent/v1/gates", Some(&credential), Some(body)).await.ok();
        rig.get("/api/v1/nodes/j22u11").await.ok()["gates"][0].clone()
    };
    let untagged = say().await;
    assert_eq!(
        (&untagged["open"], &untagged["class"]),
        (&json!(false), &json!("machine_untagged"))
    );
    assert_eq!(untagged["failing"][0]["name"], format!("machine tag {SLICE_TAG}"));
    assert_eq!(untagged["failing"][0]["seen"], "virtual");
    let explained = rig.get("/api/v1/nodes/j22u11/explain").await.ok();
    assert_eq!(explained["actions"][0]["command"], "gpuaas node reimage j22u11", "{explained}");

    let remember = async |tags: &[&str], found: Option<Difference>| {
        rig.advance(1);
        let finding = SweepFinding {
            node_id: node.node_id,
            asked_at: gpuaas_engine::Clock::now(&*rig.clock),
            status: None,
            differences: found.map(|one| (one, DriftAction::Report)).into_iter().collect(),
            not_looked_at: Vec::new(),
            maas_user: None,
            remember: Some(machine_with(tags)),
            adopted: Vec::new(),
            hostname: None,
        };
        rig.store.record_sweep(finding.asked_at, vec![finding]).await.unwrap();
    };
    remember(&["virtual", SLICE_TAG], None).await;
    let ready = say().await;
    assert_eq!((&ready["open"], &ready["class"]), (&json!(true), &Value::Null), "{ready}");
    let taken = Difference {
        kind: DriftKind::Retagged,
        expected: format!("{SLICE_TAG}, virtual"),
        found: "virtual".to_owned(),
    };
    remember(&["virtual", SLICE_TAG], Some(taken)).await;
    let shut = rig.get("/api/v1/nodes/j22u11").await.ok()["gates"][0].clone();
    assert_eq!(
        (&shut["open"], &shut["class"]),
        (&json!(false), &json!("machine_untagged")),
        "{shut}"
    );
}

pub(crate) fn machine_with(tags: &[&str]) -> MachineView {
    let machine = json!({
        "system_id": "abc123", "hostname": "j22u11", "status": 6, "owner": "gpuaas",
        "power_state": "on", "power_type": "ipmi", "architecture": "amd64/generic",
        "osystem": "ubuntu", "distro_series": "noble", "locked": false, "netboot": false,
        "error_description": "", "status_message": null, "enable_hw_sync": false,
        "sync_interval_seconds": null, "boot_interface_id": null, "boot_disk_id": null,
        "disks": [], "complex_storage": 0, "nics": [], "tags": tags, "hardware": "Dell XE9680",
        "has_installation_result": true,
    });
    serde_json::from_value(machine).unwrap()
}

pub(crate) async fn activate(rig: &Rig, run: RunId) {
    let now = gpuaas_engine::Clock::now(&*rig.clock);
    let mut claimed = rig.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap();
    let position = claimed.iter().position(|claimed| claimed.run.id == run).unwrap();
    let mut record = claimed.remove(position).run;
    record.status = RunStatus::Succeeded;
    record.ended_at = Some(now);
    let mut write = RunWrite::new(record).releasing();
    write.node = Some(NodeChange { state: Some(NodeState::Active), system_id: None });
    rig.store.commit(now, write).await.unwrap();
}
