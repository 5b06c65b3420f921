//! Onboarding, finding, explaining.

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::Request;
use gpuaas_engine::Clock as _;
use gpuaas_store::{ExposeSecret as _, NodeFilter, RunWrite, Transition};
use gpuaas_types::api::{EstimateBasis, EstimateSource, Owner, Park, Wait};
use gpuaas_types::{NodeState, RunStatus, Step};
use serde_json::{Value, json};

use crate::rig::{Answer, Rig};

fn node(hostname: &str) -> Value {
    json!({
        "hostname": hostname,
        "site": "lab",
        "profile": "h200",
        "bmc_address": "10.0.0.7",
        "bmc_user": "root",
        "bmc_password": "hunter2222",
        "mac_addresses": ["3C-EC-EF-00-11-22"],
    })
}

async fn with_key(rig: &Rig, header: &str, key: &str, body: &Value) -> Answer {
    let request = Request::post("/api/v1/nodes")
        .header("authorization", format!("Bearer {}", rig.admin))
        .header(header, key)
        .body(Body::from(body.to_string()))
        .unwrap();
    rig.send(request).await
}

#[tokio::test]
async fn an_onboarding_is_accepted_and_found_by_any_name() {
    let rig = Rig::with_site().await;
    let answer = rig.post("/api/v1/nodes", node("J22U11")).await;
    assert_eq!(answer.status, 202);
    let accepted = answer.ok();
    assert_eq!(rig.wakes.load(Ordering::SeqCst), 1);
    let id = accepted["node_id"].as_str().unwrap();
    for name in [id, "j22u11", "J22u11", "3c:ec:ef:00:11:22", "3C-EC-EF-00-11-22", "10.0.0.7"] {
        let view = rig.get(&format!("/api/v1/nodes/{name}")).await;
        assert!(!String::from_utf8_lossy(&view.bytes).contains("hunter"), "{name}");
        let view = view.ok();
        assert_eq!(
            (view["id"].as_str().unwrap(), view["state"].as_str().unwrap()),
            (id, "registered")
        );
        assert_eq!(view["run"]["id"], accepted["run_id"]);
        assert_eq!(view["timeline"][0]["code"], "onboard_accepted");
        assert_eq!(view["waiting_for"], "the control plane, at step accept");
    }
    let stored = rig.store.node(id.parse().unwrap()).await.unwrap();
    assert_eq!(stored.hardware.power_type, "ipmi");
    assert_eq!(stored.hardware.mac_addresses, ["3c:ec:ef:00:11:22"]);
    let password = rig.store.bmc_password(stored.id).await.unwrap().unwrap();
    assert_eq!(password.expose_secret(), "hunter2222");
    for (query, count) in
        [("", 1), ("?site=lab", 1), ("?state=active", 0), ("?site=lab&state=registered", 1)]
    {
        let list = rig.get(&format!("/api/v1/nodes{query}")).await.ok();
        assert_eq!(list["items"].as_array().unwrap().len(), count, "{query}");
    }
    assert_eq!(rig.get("/api/v1/nodes?site=x").await.code(), "site_not_found");
    assert_eq!(rig.get("/api/v1/nodes/j99").await.code(), "node_not_found");
    assert_eq!(rig.get("/api/v1/nodes/j99.example.com").await.code(), "node_not_found");
    let named = rig.get("/api/v1/nodes/J22U11.rack.example.com").await.ok();
    assert_eq!(named["hostname"], "j22u11", "its domain is no part of a node's name");
    assert_eq!(rig.get("/api/v1/nodes/j99/explain").await.code(), "node_not_found");
}

#[tokio::test]
async fn a_bad_onboarding_makes_nothing() {
    let rig = Rig::with_site().await;
    let before = rig.store.audit_entries(0, 100).await.unwrap().len();
    for (field, value, code, at) in [
        ("hostname", json!("j22u11.example.com"), "invalid_field", "hostname"),
        ("hostname", json!("-x"), "invalid_field", "hostname"),
        ("mac_addresses", json!(["3c:ec:ef:00:11:22", "nope"]), "invalid_field", "mac_addresses.1"),
        ("bmc_address", json!("http://10.0.0.7"), "invalid_field", "bmc_address"),
        ("bmc_address", Value::Null, "invalid_field", "bmc_user"),
        ("bmc_password", json!(12345), "invalid_field", "bmc_password"),
        ("power_type", json!("a b"), "invalid_field", "power_type"),
        ("architecture", json!("amd64"), "invalid_field", "architecture"),
        ("colour", json!("red"), "unknown_field", "colour"),
    ] {
        let mut body = node("j22u11");
        body[field] = value;
        let answer = rig.post("/api/v1/nodes", body).await;
        assert_eq!(answer.code(), code, "{field}");
        assert_eq!(answer.json()["errors"][0]["field"], at);
        assert!(!String::from_utf8_lossy(&answer.bytes).contains("12345"));
    }
    for (field, code) in [("site", "site_not_found"), ("profile", "profile_not_found")] {
        let mut body = node("j22u11");
        body[field] = json!("missing");
        let answer = rig.post("/api/v1/nodes", body).await;
        assert_eq!((answer.status, answer.code().as_str()), (404, code));
        let text = answer.json();
        assert!(text["detail"].as_str().unwrap().contains("missing"));
        assert!(!text["hint"].as_str().unwrap().is_empty());
    }
    assert!(rig.store.list_nodes(NodeFilter::default()).await.unwrap().is_empty());
    assert_eq!(rig.store.audit_entries(0, 100).await.unwrap().len(), before);
    assert_eq!(rig.store.next_due().await.unwrap(), None);
    assert_eq!(rig.wakes.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_bundle_that_no_longer_resolves_stops_an_onboarding() {
    let rig = Rig::with_site().await;
    let profile = rig.store.profile_by_name("h200").await.unwrap();
    let spec = gpuaas_types::spec::ProfileSpec {
        site_bootstrap_bundle_ref: "gone@9".to_owned(),
        ..profile.spec
    };
    rig.store
        .set_profile(
            profile.created_at,
            "h200",
            None,
            &spec,
            &[],
            gpuaas_store::NewAuditEntry::in_test(),
        )
        .await
        .unwrap();
    assert_eq!(rig.post("/api/v1/nodes", node("j22u11")).await.code(), "bundle_not_found");
    assert!(rig.store.list_nodes(NodeFilter::default()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_node_under_care_is_named() {
    let rig = Rig::with_site().await;
    let accepted = rig.post("/api/v1/nodes", node("j22u11")).await.ok();
    let answer = rig.post("/api/v1/nodes", node("j22u11")).await;
    assert_eq!((answer.status, answer.code().as_str()), (409, "node_exists"));
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.contains("registered") && detail.contains(accepted["run_id"].as_str().unwrap()),
        "{detail}"
    );
    let answer = rig.post("/api/v1/nodes", node("j22u12")).await;
    assert_eq!(answer.code(), "node_exists");
    let refused = answer.json();
    assert!(refused["detail"].as_str().unwrap().contains("BMC address 10.0.0.7"), "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("`gpuaas explain j22u11`"), "{refused}");
    assert_eq!(rig.store.list_nodes(NodeFilter::default()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_repeated_request_is_answered_as_before() {
    let rig = Rig::with_site().await;
    let first = with_key(&rig, "idempotency-key", "k1", &node("j22u11")).await.ok();
    let again = with_key(&rig, "X-Idempotency-Key", "k1", &node("j22u11")).await;
    assert_eq!(again.status, 202);
    assert_eq!(again.ok(), first);
    let other = with_key(&rig, "idempotency-key", "k1", &node("j22u12")).await;
    assert_eq!((other.status, other.code().as_str()), (409, "idempotency_key_reused"));
    let fresh = with_key(&rig, "idempotency-key", "k2", &node("j22u11")).await;
    assert_eq!(fresh.code(), "node_exists");
    let empty = with_key(&rig, "idempotency-key", "", &node("j22u11")).await;
    assert_eq!(empty.code(), "invalid_idempotency_key");
    assert_eq!(rig.store.list_nodes(NodeFilter::default()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn two_sites_may_have_a_hostname_but_then_it_names_no_one() {
    let rig = Rig::with_site().await;
    rig.post("/api/v1/sites", crate::rig::site("lab2")).await.ok();
    rig.onboard("j22u11").await;
    let second = json!({ "hostname": "j22u11", "site": "lab2", "profile": "h200" });
    rig.post("/api/v1/nodes", second).await.ok();
    let answer = rig.get("/api/v1/nodes/j22u11").await;
    assert_eq!((answer.status, answer.code().as_str()), (409, "node_ambiguous"));
}

#[tokio::test]
async fn a_run_shows_its_time_and_can_be_resumed() {
    let rig = Rig::with_site().await;
    let accepted = rig.onboard("j22u11").await;
    let path = format!("/api/v1/runs/{}", accepted.run_id);
    let begun = rig.store.run(accepted.run_id).await.unwrap().created_at;
    rig.advance(10);
    let now = begun.plus_seconds(10.0);
    let mut run = rig.store.claim(now, now.plus_seconds(30.0), 1).await.unwrap().remove(0).run;
    run.step = Step::Discover;
    run.step_since = begun.plus_seconds(3.0);
    run.status = RunStatus::Parked;
    run.park = Some(Park {
        code: "two_candidates".to_owned(),
        text: "two machines match".to_owned(),
        since: now,
        owner: Owner::InfraOperator,
        evidence: vec!["abc and def".to_owned()],
        next_action: "remove one".to_owned(),
        actions: Vec::new(),
        failure_class: None,
        looks_again_at: None,
    });
    let at = run.step_since;
    let mut write = RunWrite::new(run).releasing();
    write.transitions = vec![Transition { step: Step::Discover, at, cause: "accepted".to_owned() }];
    rig.store.commit(now, write).await.unwrap();
    rig.advance(5);

    let view = rig.get(&path).await.ok();
    assert_eq!(view["wall_seconds"], 15.0);
    assert_eq!(
        (&view["buckets"]["accept"], &view["buckets"]["discover"]),
        (&json!(3.0), &json!(12.0))
    );
    let buckets = view["buckets"].as_object().unwrap();
    assert_eq!(buckets.len(), 12);
    assert_eq!(buckets.values().map(|b| b.as_f64().unwrap()).sum::<f64>(), 15.0);
    let said = rig.get("/api/v1/nodes/j22u11/explain").await.ok();
    assert_eq!(
        (&said["code"], &said["owner"]),
        (&json!("two_candidates"), &json!("infra_operator"))
    );
    assert_eq!(said["next_action"], "remove one");
    assert_eq!(said["evidence"], json!(["abc and def"]));
    assert_eq!(said["node"]["state"], NodeState::Registered.as_str());

    let resume = format!("{path}/resume");
    assert_eq!(rig.post(&resume, json!({ "actor": "ann" })).await.code(), "missing_field");
    assert_eq!(
        rig.post(&resume, json!({ "actor": "ann", "reason": " " })).await.code(),
        "invalid_field"
    );
    let view = rig.post(&resume, json!({ "actor": "ann", "reason": "removed def" })).await.ok();
    assert_eq!((&view["status"], &view["park"]), (&json!("running"), &Value::Null));
    let line = view["timeline"].as_array().unwrap().last().unwrap();
    assert_eq!(line["code"], "run_resumed");
    assert_eq!(
        (&line["source"], &line["text"]),
        (&json!("operator"), &json!("admin (ann) resumed the run: removed def"))
    );
    let again = rig.post(&resume, json!({ "actor": "ann", "reason": "again" })).await;
    assert_eq!((again.status, again.code().as_str()), (409, "run_not_parked"));
    assert_eq!(rig.get("/api/v1/runs/x").await.code(), "run_not_found");
    assert_eq!(
        rig.get(&format!("/api/v1/runs/{}", accepted.node_id)).await.code(),
        "run_not_found"
    );
}

#[tokio::test]
async fn a_parked_run_goes_on_with_the_profile_as_it_is_now_only_where_that_is_asked_for() {
    let rig = Rig::with_site().await;
    let run = rig.onboard("j22u11").await.run_id;
    let path = format!("/api/v1/runs/{run}");
    let change = json!({ "storage_layout_profile": "lvm" });
    assert_eq!(rig.patch("/api/v1/profiles/h200", change).await.ok()["revision"], 2);
    let who =
        |latest: bool| json!({ "actor": "ann", "reason": "mended", "latest_profile": latest });
    let early = rig.post(&format!("{path}/resume"), who(true)).await;
    assert_eq!(early.code(), "run_not_parked");
    assert_eq!(rig.get(&path).await.ok()["profile_revision"], 1, "a refusal changes nothing");

    rig.put_run(run, RunStatus::Parked).await;
    let view = rig.post(&format!("{path}/resume"), who(false)).await.ok();
    assert_eq!((&view["status"], &view["profile_revision"]), (&json!("running"), &json!(1)));
    for (revision, order) in [(2, "resume"), (3, "retry")] {
        rig.put_run(run, RunStatus::Parked).await;
        let view = rig.post(&format!("{path}/{order}"), who(true)).await.ok();
        assert_eq!(view["profile_revision"], revision, "{order}");
        let line = view["timeline"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(line["code"], "profile_repinned");
        let text = format!("the run now uses profile revision {revision}");
        assert_eq!(line["text"], text);
        let audit = rig.store.audit_entries(0, 100).await.unwrap();
        let entry = &audit.iter().rfind(|row| row.entry.actor == "admin (ann)").unwrap().entry;
        assert_eq!(entry.action, format!("run.{order}"));
        assert_eq!(
            entry.detail,
            json!({ "reason": "mended", "profile_revision": revision, "listener": "operators" })
        );
        let change = json!({ "max_deploy_retry_attempts": 7 });
        rig.patch("/api/v1/profiles/h200", change).await.ok();
    }
    // What a worker gets, and decides with, is the revision that was pinned last.
    let now = rig.clock.now();
    let claimed = rig.store.claim(now, now.plus_seconds(30.0), 1).await.unwrap().remove(0).run;
    assert_eq!((claimed.id, claimed.profile_revision), (run, 3));
}

#[tokio::test]
async fn one_call_lists_every_node_that_does_not_go_on() {
    let rig = Rig::with_site().await;
    let mut begun = Vec::new();
    for name in ["a1", "b2", "c3", "d4", "e5"] {
        begun.push((name, rig.onboard(name).await.run_id));
    }
    let start = rig.store.run(begun[0].1).await.unwrap().created_at;
    for claimed in rig.store.claim(start, start.plus_seconds(30.0), 10).await.unwrap() {
        let mut run = claimed.run;
        run.step = Step::Commission;
        run.due_at = start.plus_seconds(1e6);
        let host = claimed.node.hostname.as_str();
        let expected = if host == "b2" { 60.0 } else { 90.0 };
        if host == "a1" {
            run.status = RunStatus::Parked;
            run.park = Some(Park {
                code: "two_candidates".to_owned(),
                text: "two machines match".to_owned(),
                since: start,
                owner: Owner::PlatformOperator,
                evidence: vec!["abc and def".to_owned()],
                next_action: "remove one".to_owned(),
                actions: Vec::new(),
                failure_class: None,
                looks_again_at: None,
            });
        } else if host != "d4" {
            run.status = RunStatus::Waiting;
            run.wait = Some(Wait {
                code: "maas_commissioning".to_owned(),
                text: "MAAS to finish commissioning".to_owned(),
                since: start,
                expected_by: (host != "e5").then(|| start.plus_seconds(expected)),
                expected_from: Some(EstimateSource { basis: EstimateBasis::Profile, runs: 9 }),
                deadline: Some(start.plus_seconds(1e4)),
            });
        }
        rig.store.commit(start, RunWrite::new(run).releasing()).await.unwrap();
    }
    rig.advance(125);
    let list = rig.get("/api/v1/nodes/stuck").await.ok();
    let marks: Vec<(&str, &str)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["node"].as_str().unwrap(), item["mark"].as_str().unwrap()))
        .collect();
    assert_eq!(marks, [("a1", "parked"), ("b2", "stuck"), ("c3", "slow")]);
    let parked = &list["items"][0];
    assert_eq!(
        (&parked["owner"], &parked["next_action"]),
        (&json!("platform_operator"), &json!("remove one"))
    );
    assert_eq!(
        (&parked["evidence"], &parked["step"]),
        (&json!(["abc and def"]), &json!("commission"))
    );
    let slow = &list["items"][2];
    assert_eq!(slow["owner"], "infra_operator");
    assert_eq!(slow["waiting_for"], "MAAS to finish commissioning");
    assert_eq!(slow["expected_by"], json!(start.plus_seconds(90.0)));
    assert_eq!(slow["expected_from"], json!({ "basis": "profile", "runs": 9 }));
    assert_eq!(slow["run"], json!(begun[2].1));
    let shown = rig.get("/api/v1/nodes/b2/explain").await.ok();
    assert_eq!(shown["mark"], "stuck");
    assert_eq!(rig.get("/api/v1/nodes/stuck?site=x").await.code(), "site_not_found");
    assert_eq!(rig.get("/api/v1/nodes/stuck?site=lab").await.ok(), list);
}
