//! Batches: a manifest is taken whole or refused with every mistake, and progress is one resource.

use axum::body::Body;
use axum::http::Request;
use gpuaas_store::{BatchAdvance, ExposeSecret as _, MemberStart, NewRun, RunWrite};
use gpuaas_types::api::{Owner, Park, Source, TimelineEvent};
use gpuaas_types::{RandomIds, RunId, RunKind, RunStatus, Step, Timestamp};
use serde_json::{Value, json};

use crate::rig::Rig;

fn manifest(hosts: &[&str]) -> Value {
    let machines: Vec<Value> = hosts
        .iter()
        .enumerate()
        .map(|(index, host)| {
            json!({
                "hostname": host,
                "bmc_address": format!("10.0.0.{}", index + 1),
                "bmc_user": "root",
                "bmc_password": "hunter2222",
                "mac_addresses": [format!("3c:ec:ef:00:11:{index:02x}")],
            })
        })
        .collect();
    json!({ "spec": { "name": "rack-7", "site": "lab", "profile": "h200", "machines": machines } })
}

async fn begin_first(rig: &Rig, now: Timestamp) -> RunId {
    let batch = rig.store.batch("rack-7").await.unwrap();
    let members = rig.store.batch_members(batch.id).await.unwrap();
    let id = RunId::new(&RandomIds, now);
    let begin = MemberStart {
        position: 0,
        node_id: members[0].node_id,
        run: NewRun {
            id,
            kind: RunKind::Onboard,
            step: Step::Accept,
            profile_revision: 1,
            cause: "its turn".to_owned(),
        },
        reports: Vec::new(),
        history: vec![TimelineEvent {
            at: now,
            run_id: Some(id),
            step: Some(Step::Accept),
            source: Source::ControlPlane,
            code: "batch_turn".to_owned(),
            text: "its turn".to_owned(),
        }],
    };
    let step = BatchAdvance {
        batch,
        begin: vec![begin],
        stop: None,
        due_at: Timestamp::NEVER,
        ended: false,
        audit: None,
    };
    assert!(rig.store.advance_batch(now, step).await.unwrap());
    id
}

#[tokio::test]
async fn a_manifest_becomes_a_batch_of_nodes_that_wait() {
    let rig = Rig::with_site().await;
    let mut body = manifest(&["H1", "h2", "h3"]);
    body["dry_run"] = json!(true);
    let planned = rig.post("/api/v1/batches", body.clone()).await;
    assert_eq!(planned.status, 200);
    let planned = planned.ok();
    assert_eq!(planned["batch_id"], Value::Null);
    assert_eq!((&planned["canaries"], &planned["rest"]), (&json!(["h1"]), &json!(["h2", "h3"])));
    assert_eq!(rig.get("/api/v1/batches/rack-7").await.code(), "batch_not_found");
    assert_eq!(rig.get("/api/v1/nodes").await.ok()["items"], json!([]));

    body["dry_run"] = json!(false);
    let made = rig.post("/api/v1/batches", body).await;
    assert_eq!(made.status, 202);
    let made = made.ok();
    let shown = rig.get("/api/v1/batches/rack-7").await;
    assert!(!String::from_utf8_lossy(&shown.bytes).contains("hunter"));
    let shown = shown.ok();
    assert_eq!((&shown["id"], &shown["revision"]), (&made["batch_id"], &json!(1)));
    let status = &shown["status"];
    assert_eq!(status["phase"], "canary");
    assert_eq!(status["counts"]["waiting"], 3);
    assert_eq!((&status["failure_ratio"], &status["stop"]), (&json!(0.0), &Value::Null));
    let members: Vec<_> = status["members"].as_array().unwrap().iter().collect();
    assert_eq!((&members[0]["hostname"], &members[0]["canary"]), (&json!("h1"), &json!(true)));
    assert_eq!(members[0]["waiting_for"], "its turn");
    assert_eq!(members[1]["waiting_for"], "the canaries");
    let node = rig.get("/api/v1/nodes/h2").await.ok();
    assert_eq!((&node["state"], &node["run"]), (&json!("registered"), &Value::Null));
    assert_eq!(node["timeline"][0]["code"], "batch_accepted");
    assert_eq!(node["waiting_for"], "its turn in batch rack-7");
    let explained = rig.get("/api/v1/nodes/h2/explain").await.ok();
    let believed = "h2 (site lab) is registered; it is waiting for its turn in batch rack-7.";
    assert_eq!(explained["text"][0], believed);
    let password = members[2]["node_id"].as_str().unwrap().parse().unwrap();
    let password = rig.store.bmc_password(password).await.unwrap().unwrap();
    assert_eq!(password.expose_secret(), "hunter2222");
    let listed = rig.get("/api/v1/batches").await.ok();
    assert_eq!(listed["items"][0]["status"]["counts"]["waiting"], 3);
    assert_eq!(listed["items"][0]["status"].get("members"), None);
}

#[tokio::test]
async fn a_machine_of_a_batch_is_taken_at_the_word_in_its_manifest() {
    let rig = Rig::with_site().await;
    let mut body = manifest(&["h1", "h2"]);
    let word = json!({ "system_id": "abc123", "owner": "bob", "actor": "ann", "reason": "" });
    let machines = &mut body["spec"]["machines"];
    machines[0]["take_over"] = word;
    machines[0]["serial"] = json!(" S-1 ");
    machines[1]["system_id"] = json!("a b");
    let refused = rig.post("/api/v1/batches", body.clone()).await;
    assert_eq!(refused.code(), "batch_invalid");
    let errors = refused.json()["errors"].clone();
    let fields: Vec<&Value> =
        errors.as_array().unwrap().iter().map(|error| &error["field"]).collect();
    assert_eq!(fields, ["spec.machines.0.reason", "spec.machines.1.system_id"]);

    let machines = &mut body["spec"]["machines"];
    machines[0]["take_over"]["reason"] = json!("bob left");
    machines[1]["system_id"] = json!("def456");
    rig.post("/api/v1/batches", body).await.ok();
    let shown = rig.get("/api/v1/batches/rack-7").await.ok();
    let first = &shown["spec"]["machines"][0];
    assert_eq!((&first["serial"], &first["take_over"]["owner"]), (&json!("S-1"), &json!("bob")));
    let entries = rig.store.audit_entries(0, 100).await.unwrap();
    let entry = entries.iter().find(|entry| entry.entry.action == "batch.create").unwrap();
    assert_eq!(entry.entry.actor, "admin (ann)");
    assert_eq!(entry.entry.detail["take_over"][0]["reason"], "bob left");
}

#[tokio::test]
async fn every_mistake_of_a_manifest_is_named_and_nothing_is_made() {
    let rig = Rig::with_site().await;
    rig.onboard("h9").await;
    let mut body = manifest(&["h1", "h2", "h1", "h9", "h.5", "h6"]);
    let machines = &mut body["spec"]["machines"];
    machines[1]["mac_addresses"] = json!(["3C-EC-EF-00-11-00"]);
    machines[5]["bmc_address"] = json!("10.0.0.1");
    let answer = rig.post("/api/v1/batches", body.clone()).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "batch_invalid"));
    let faults = answer.json()["errors"].clone();
    let said: Vec<String> = faults
        .as_array()
        .unwrap()
        .iter()
        .map(|e| format!("{}: {}", e["field"].as_str().unwrap(), e["message"].as_str().unwrap()))
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r"
    spec.machines.4.hostname: expected a short hostname
    spec.machines.1.mac_addresses.0: MAC address 3c:ec:ef:00:11:00 belongs to machine 0 of the manifest (h1)
    spec.machines.2.hostname: hostname h1 belongs to machine 0 of the manifest (h1)
    spec.machines.3.hostname: hostname h9 belongs to node h9 (registered)
    spec.machines.5.bmc_address: BMC address 10.0.0.1 belongs to machine 0 of the manifest (h1)
    ");
    for (field, value, place, code) in [
        ("site", json!("nowhere"), "spec.site", "site_not_found"),
        ("profile", json!("none"), "spec.profile", "profile_not_found"),
        ("name", json!("Rack 7"), "spec.name", "batch_invalid"),
        ("canary", json!(3), "spec.canary", "batch_invalid"),
        ("stop_at_failure_ratio", json!(1.1), "spec.stop_at_failure_ratio", "batch_invalid"),
        ("machines", json!([]), "spec.machines", "batch_invalid"),
    ] {
        let mut body = manifest(&["h1", "h2"]);
        body["spec"][field] = value;
        let answer = rig.post("/api/v1/batches", body).await;
        assert_eq!(answer.code(), code, "{field}");
        assert_eq!(answer.json()["errors"][0]["field"], place);
    }
    let mut nothing_there = manifest(&["h1"]);
    nothing_there["spec"]["site"] = json!("nowhere");
    nothing_there["spec"]["profile"] = json!("none");
    assert_eq!(rig.post("/api/v1/batches", nothing_there).await.code(), "site_not_found");
    let mut unknown = manifest(&["h1"]);
    unknown["spec"]["machines"][0]["hostnam"] = json!("x");
    let answer = rig.post("/api/v1/batches", unknown).await;
    assert_eq!(answer.code(), "unknown_field");
    assert_eq!(answer.json()["errors"][0]["field"], "spec.machines.0.hostnam");
    assert_eq!(rig.get("/api/v1/nodes").await.ok()["items"].as_array().unwrap().len(), 1);
    assert_eq!(rig.get("/api/v1/batches").await.ok()["items"], json!([]));
}

#[tokio::test]
async fn a_repeated_request_takes_effect_once() {
    let rig = Rig::with_site().await;
    let send = async |body: &Value| {
        let request = Request::post("/api/v1/batches")
            .header("authorization", format!("Bearer {}", rig.admin))
            .header("idempotency-key", "k1")
            .body(Body::from(body.to_string()))
            .unwrap();
        rig.send(request).await
    };
    let body = manifest(&["h1", "h2"]);
    let first = send(&body).await.ok();
    assert_eq!(send(&body).await.ok(), first);
    assert_eq!(send(&manifest(&["h1"])).await.code(), "idempotency_key_reused");
    let again = rig.post("/api/v1/batches", body).await;
    assert_eq!(again.code(), "batch_invalid", "without the key it is another request");
    assert_eq!(again.json()["errors"][0]["field"], "spec.name");
}

#[tokio::test]
async fn a_batch_is_stopped_and_resumed_with_actor_and_reason() {
    let rig = Rig::with_site().await;
    rig.post("/api/v1/batches", manifest(&["h1", "h2"])).await.ok();
    let said = json!({ "actor": "ann", "reason": "the image is bad" });
    let tell = async |order: &str| {
        rig.post(&format!("/api/v1/batches/rack-7/{order}"), said.clone()).await
    };
    assert_eq!(tell("resume").await.code(), "batch_not_stopped");
    let no_reason = json!({ "actor": "ann", "reason": "" });
    assert_eq!(rig.post("/api/v1/batches/rack-7/stop", no_reason).await.code(), "invalid_field");
    assert_eq!(rig.post("/api/v1/batches/r/stop", said.clone()).await.code(), "batch_not_found");
    let run_id = begin_first(&rig, rig.store.batch("rack-7").await.unwrap().created_at).await;
    let stopped = tell("stop").await.ok();
    assert_eq!(stopped["status"]["phase"], "stopped");
    assert_eq!(stopped["status"]["stop"]["text"], "admin (ann) stopped it: the image is bad");
    assert_eq!(stopped["status"]["members"][0]["state"], "running");
    assert_eq!(tell("stop").await.code(), "batch_stopped");

    // The member under way parks; the profile is mended; the batch goes on with its new revision.
    let now = Timestamp::from_micros(1_795_190_400_000_000);
    let mut claimed = rig.store.claim(now, now.plus_seconds(9.0), 9).await.unwrap();
    let mut run = claimed.pop().unwrap().run;
    assert_eq!(run.id, run_id);
    run.status = RunStatus::Parked;
    run.due_at = Timestamp::NEVER;
    run.park = Some(Park {
        code: "deploy_failed".to_owned(),
        text: "MAAS failed to deploy".to_owned(),
        since: now,
        owner: Owner::InfraOperator,
        evidence: Vec::new(),
        next_action: "look".to_owned(),
        actions: Vec::new(),
        failure_class: None,
        looks_again_at: None,
    });
    rig.store.commit(now, RunWrite::new(run).releasing()).await.unwrap();
    let change = json!({ "max_deploy_retry_attempts": 3 });
    rig.patch("/api/v1/profiles/h200", change).await.ok();
    let status = rig.get("/api/v1/batches/rack-7").await.ok()["status"].clone();
    assert_eq!((&status["failure_ratio"], &status["profile_revision"]), (&json!(1.0), &json!(1)));
    assert_eq!(status["members"][0]["waiting_for"], "MAAS failed to deploy");
    let resumed = tell("resume").await.ok()["status"].clone();
    assert_eq!((&resumed["phase"], &resumed["stop"]), (&json!("canary"), &Value::Null));
    assert_eq!((&resumed["failure_ratio"], &resumed["profile_revision"]), (&json!(0.0), &json!(2)));
    let marks: Vec<_> = resumed["members"].as_array().unwrap().iter().collect();
    assert_eq!((&marks[0]["written_off"], &marks[1]["canary"]), (&json!(true), &json!(true)));
    let entries = rig.store.audit_entries(0, 99).await.unwrap();
    let told: Vec<_> = entries.iter().filter(|e| e.entry.actor == "admin (ann)").collect();
    assert_eq!(told.len(), 2);
    assert_eq!(told[1].entry.detail["reason"], "the image is bad");
    assert_eq!(told[1].entry.detail["profile_revision"], 2);
}
