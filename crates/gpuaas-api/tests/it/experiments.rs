//! Experiments between images: drawn, begun, stopped, imported.

use gpuaas_store::TokenPurpose;
use gpuaas_types::api::OnboardAccepted;
use gpuaas_types::{NodeState, RunId, RunStatus};
use serde_json::{Value, json};

use crate::rig::Rig;
use crate::slices::whole_topology;

const BAKED: &str = "h200-20261123-9f86d081884c";

/// A site with an approved image, and this many active nodes of profile h200.
pub(crate) async fn rig(nodes: usize) -> Rig {
    rig_of(nodes, "h200").await
}

/// The same with nodes of one of two profiles; `slice` is that of slice hosts.
async fn rig_of(nodes: usize, profile: &str) -> Rig {
    let rig = Rig::with_site().await;
    let spec =
        json!({ "site_bootstrap_bundle_ref": gpuaas_types::built_in_bundle!("h200-slice-vm") });
    rig.post("/api/v1/profiles", json!({ "name": "slice", "spec": spec })).await.ok();
    rig.maas.images.lock().unwrap().insert(12, (BAKED.to_owned(), "9f".repeat(32)));
    let approve = json!({ "site": "lab", "to": "canary", "canary_nodes": 20, "reason": "try", "lint_waiver": "a rig" });
    rig.post(&format!("/api/v1/images/{BAKED}/transition"), approve).await.ok();
    for n in 0..nodes {
        let asked = json!({ "hostname": format!("h{n}"), "site": "lab", "profile": profile });
        let made = rig.post("/api/v1/nodes", asked).await.ok();
        let made: OnboardAccepted = serde_json::from_value(made).unwrap();
        let now = rig.now();
        let claimed = rig.store.claim(now, now.plus_seconds(60.0), 10).await.unwrap().remove(0);
        let mut run = claimed.run;
        assert_eq!(run.id, made.run_id);
        (run.status, run.ended_at) = (RunStatus::Succeeded, Some(now));
        let mut write = gpuaas_store::RunWrite::new(run).releasing();
        let system_id = Some(format!("m-h{n}"));
        write.node = Some(gpuaas_store::NodeChange { state: Some(NodeState::Active), system_id });
        rig.store.commit(now, write).await.unwrap();
    }
    rig
}

pub(crate) fn start(name: &str, nodes: u32) -> Value {
    json!({ "name": name, "site": "lab", "profile": "h200", "images": ["noble", BAKED],
        "nodes": nodes, "seed": 7, "actor": "ann", "reason": "is it faster?" })
}

pub(crate) async fn begin(rig: &Rig, body: Value) -> Value {
    rig.post("/api/v1/experiments", body).await.ok()
}

#[tokio::test]
async fn what_is_planned_is_written_down_before_the_runs_begin() {
    let rig = rig(6).await;
    let mut dry = start("try", 4);
    dry["dry_run"] = json!(true);
    let plan = begin(&rig, dry).await;
    assert_eq!(rig.get("/api/v1/experiments").await.ok()["items"], json!([]));
    let begun = begin(&rig, start("try", 4)).await;
    let arms = |view: &Value| -> Vec<(Value, Value)> {
        let all = view["assignments"].as_array().unwrap().iter();
        all.map(|one| (one["node"].clone(), one["arm"].clone())).collect()
    };
    assert_eq!(arms(&plan), arms(&begun), "the seed draws the same");
    assert_eq!((&begun["planned_n"], &begun["looks"]), (&json!(2), &json!(0)));
    assert_eq!((&begun["primary"], &begun["measures"]), (&json!("time_to_active"), &json!([])));
    let pins: Vec<&Value> =
        begun["arms"].as_array().unwrap().iter().map(|a| &a["digest"]).collect();
    assert_eq!(pins, [&json!(""), &json!("9f".repeat(32))]);
    for one in begun["assignments"].as_array().unwrap() {
        assert_eq!(one["status"], "running", "{one}");
        let node = one["node"].as_str().unwrap();
        let shown = rig.get(&format!("/api/v1/nodes/{node}")).await.ok();
        assert_eq!(shown["profile"], format!("try-{}", one["arm"].as_str().unwrap()));
    }
    let of_b = rig.get("/api/v1/profiles/try-b").await.ok();
    assert_eq!(of_b["spec"]["image_sha256"], "9f".repeat(32));
    assert_eq!(
        rig.post("/api/v1/experiments", start("try", 2)).await.code(),
        "experiment_name_taken"
    );
    let few = rig.post("/api/v1/experiments", start("more", 3)).await;
    assert_eq!(few.code(), "experiment_nodes_missing", "two are left");
}

#[tokio::test]
async fn only_what_may_be_deployed_is_compared_and_no_image_with_itself() {
    let rig = rig(2).await;
    let mut same = start("same", 2);
    same["images"] = json!(["noble", "ubuntu/noble"]);
    assert_eq!(rig.post("/api/v1/experiments", same).await.code(), "invalid_field");
    let mut unknown = start("unknown", 2);
    unknown["images"] = json!(["noble", "custom/other"]);
    assert_eq!(rig.post("/api/v1/experiments", unknown).await.code(), "image_not_approved");
}

#[tokio::test]
async fn a_stopped_experiment_says_what_its_ended_runs_do() {
    let rig = rig(4).await;
    let begun = begin(&rig, start("try", 4)).await;
    let stop = json!({ "actor": "ann", "reason": "the hosts are needed" });
    let stopped = rig.post("/api/v1/experiments/try/stop", stop.clone()).await.ok();
    assert_eq!((&stopped["state"], &stopped["looks"]), (&json!("stopped"), &json!(0)), "they run");
    for one in begun["assignments"].as_array().unwrap() {
        let id = serde_json::from_value(one["run"].clone()).unwrap();
        rig.put_run(id, RunStatus::Failed).await;
        rig.advance(60);
    }
    let ended = rig.get("/api/v1/experiments/try").await.ok();
    assert_eq!((&ended["looks"], &ended["arms"][0]["failures"]), (&json!(1), &json!(2)));
    assert_eq!(ended["measures"][0]["n_a"], 2, "failed runs are counted");
    let next = rig.post("/api/v1/experiments/try/next", stop).await.ok();
    assert_eq!(next["assignments"], ended["assignments"], "nothing of it begins any more");
    assert_eq!(rig.get("/api/v1/experiments/none").await.code(), "experiment_not_found");
}

#[tokio::test]
async fn the_second_run_of_a_pair_begins_by_itself_and_the_end_is_signed() {
    let rig = rig(4).await;
    let mut paired = start("try", 4);
    paired["paired"] = json!(true);
    let begun = begin(&rig, paired).await;
    let runs = |view: &Value| -> Vec<Value> {
        let all = view["assignments"].as_array().unwrap().iter();
        all.filter_map(|one| one.get("run").cloned()).collect()
    };
    assert_eq!((runs(&begun).len(), begun["assignments"].as_array().unwrap().len()), (4, 8));
    assert_eq!(rig.experiments.advance().await, 0, "the first ones are under way");
    let end = async |runs: Vec<Value>| {
        for run in runs {
            let run = serde_json::from_value(run).unwrap();
            rig.put_run(run, RunStatus::Succeeded).await;
            rig.advance(60);
        }
    };
    end(runs(&begun)).await;
    assert_eq!(rig.experiments.advance().await, 4);
    assert_eq!(rig.experiments.advance().await, 0);
    let second = rig.get("/api/v1/experiments/try").await.ok();
    assert_eq!((runs(&second).len(), &second["state"]), (8, &json!("running")));
    let left: Vec<Value> =
        runs(&second).into_iter().filter(|run| !runs(&begun).contains(run)).collect();
    end(left).await;
    assert_eq!(rig.experiments.advance().await, 1, "it has ended");
    assert_eq!(rig.experiments.advance().await, 0);
    let shown = rig.get("/api/v1/experiments/try").await.ok();
    assert_eq!((&shown["state"], &shown["looks"]), (&json!("ended"), &json!(1)));
    // Of the two images one is uploaded, so one has a digest and a record.
    let image = rig.get(&format!("/api/v1/images/{BAKED}?site=lab")).await.ok();
    let last = image["history"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["from"], &last["to"]), (&json!("canary"), &json!("canary")));
    assert!(last["reason"].as_str().unwrap().contains("experiment try"), "{last}");
    let envelope: gpuaas_bundle::Envelope =
        serde_json::from_value(last["statement"].clone()).unwrap();
    let statement: Value = envelope.unverified_payload("application/vnd.in-toto+json").unwrap();
    assert_eq!(statement["predicateType"], "urn:gpuaas:image-experiment:v1");
    assert_eq!(statement["subject"][0]["digest"]["sha256"], "9f".repeat(32));
    assert_eq!(statement["predicate"]["measures"][0]["verdict"], shown["measures"][0]["verdict"]);
}

/// A run of an experiment whose host came up: ended well, with the node in service. Returns the credential
/// of its agent.
async fn come_up(rig: &Rig, one: &Value) -> String {
    let run: RunId = serde_json::from_value(one["run"].clone()).unwrap();
    let record = rig.store.run(run).await.unwrap();
    let token = rig.token(TokenPurpose::Enrollment, record.node_id, run, Some(3600)).await;
    let enroll = json!({ "run_id": run, "hostname": one["node"], "agent_version": "0.1.0",
        "started_at": "2026-11-20T16:00:00Z", "facts": {} });
    let enrolled = rig.call("POST", "/agent/v1/enroll", Some(&token), Some(enroll)).await.ok();
    let credential = enrolled["credential"].as_str().unwrap().to_owned();
    let beat = json!({ "run_id": run, "agent_version": "0.1.0", "uptime_seconds": 12.5 });
    rig.call("POST", "/agent/v1/heartbeat", Some(&credential), Some(beat)).await.ok();
    let now = rig.now();
    let claimed = rig.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap();
    for mut record in claimed.into_iter().map(|one| one.run) {
        let ours = record.id == run;
        if ours {
            (record.status, record.ended_at) = (RunStatus::Succeeded, Some(now));
            record.due_at = gpuaas_types::Timestamp::NEVER;
        }
        let mut write = gpuaas_store::RunWrite::new(record).releasing();
        let active = gpuaas_store::NodeChange { state: Some(NodeState::Active), system_id: None };
        write.node = ours.then_some(active);
        rig.store.commit(now, write).await.unwrap();
    }
    credential
}

/// The agent opens the gate `seconds` later.
async fn open_gate(rig: &Rig, one: &Value, credential: &str, seconds: i64) {
    rig.advance(seconds);
    let check = json!({ "name": "x", "passed": true, "expected": "", "seen": "", "reason": "",
        "blocks": [] });
    let open = json!({ "gate": "slice_ready", "passed": true, "checks": [check] });
    let body = json!({ "run_id": one["run"], "gates": [open] });
    rig.call("POST", "/agent/v1/gates", Some(credential), Some(body)).await.ok();
}

/// The agent hands in the slots `seconds` later that it was asked for.
async fn hand_in_slots(rig: &Rig, credential: &str, seconds: i64) {
    let batch = rig.call("GET", "/agent/v1/tasks", Some(credential), None).await.ok();
    let task = batch["tasks"][0]["id"].as_str().unwrap().to_owned();
    rig.advance(seconds);
    let report = json!({ "discovery_seconds": 0.75, "topology": whole_topology() });
    let result = json!({ "succeeded": true, "message": "read", "topology": report });
    let path = format!("/agent/v1/tasks/{task}/result");
    rig.call("POST", &path, Some(credential), Some(result)).await.ok();
}

/// The second run of a pair deploys over the host of the first one, so it waits for what that measures;
/// the times of both are kept by run.
#[tokio::test]
async fn slice_times_are_measured_by_run_and_before_anything_is_judged() {
    let rig = rig_of(2, "slice").await;
    let mut paired = start("try", 2);
    (paired["paired"], paired["profile"]) = (json!(true), json!("slice"));
    begin(&rig, paired).await;
    let shown = async || rig.get("/api/v1/experiments/try").await.ok();
    let mut seconds = 60;
    for round in 0..2 {
        let view = shown().await;
        let open = view["assignments"].as_array().unwrap().clone();
        let open: Vec<Value> = open.into_iter().filter(|one| one["status"] == "running").collect();
        assert_eq!(open.len(), 2, "{round}: {view}");
        for one in &open {
            let credential = come_up(&rig, one).await;
            assert_eq!(rig.experiments.advance().await, 0, "its gate is shut");
            open_gate(&rig, one, &credential, seconds).await;
            assert_eq!(rig.experiments.advance().await, 1, "it is asked for its slots");
            assert_eq!(rig.experiments.advance().await, 0, "once");
            assert_eq!(shown().await["state"], "running");
            hand_in_slots(&rig, &credential, 7).await;
            // The second run of the host, or in the end the judgement.
            let goes_on = usize::from(round == 0 || one == open.last().unwrap());
            assert_eq!(rig.experiments.advance().await, goes_on, "{round}");
        }
        seconds += 30;
    }
    let ended = shown().await;
    assert_eq!((&ended["state"], &ended["looks"]), (&json!("ended"), &json!(1)));
    for one in ended["assignments"].as_array().unwrap() {
        let sample = &one["sample"];
        let ready = sample["time_to_slice_ready"].as_f64().unwrap();
        let after = ready - sample["time_to_active"].as_f64().unwrap();
        assert!((after - 60.0).abs() < 1e-6 || (after - 90.0).abs() < 1e-6, "{one}");
        assert_eq!(sample["slice_discovery"], 7.0, "{one}");
    }
    let measures = ended["measures"].as_array().unwrap();
    for name in ["time_to_slice_ready", "slice_discovery"] {
        let of = measures.iter().find(|one| one["name"] == name).unwrap();
        assert_eq!((&of["n_a"], &of["n_b"]), (&json!(2), &json!(2)), "{of}");
    }
}

/// A host that never becomes ready for slices does not hold the experiment up for ever.
#[tokio::test]
async fn host_that_never_gets_ready_for_slices_has_no_slice_times() {
    let rig = rig_of(2, "slice").await;
    let mut asked = start("try", 2);
    asked["profile"] = json!("slice");
    let begun = begin(&rig, asked).await;
    for one in begun["assignments"].as_array().unwrap() {
        come_up(&rig, one).await;
    }
    assert_eq!(rig.experiments.advance().await, 0);
    rig.advance(3601);
    assert_eq!(rig.experiments.advance().await, 1);
    let ended = rig.get("/api/v1/experiments/try").await.ok();
    assert_eq!(ended["state"], "ended");
    assert!(ended["assignments"][0]["sample"]["time_to_slice_ready"].is_null(), "{ended}");
}

#[tokio::test]
async fn earlier_times_are_compared_only_under_equal_conditions() {
    let rig = rig(0).await;
    let arm = |seconds: f64, maas: &str| {
        let run =
            |n: u32| json!({ "host": format!("h{n}"), "time_to_active": seconds + f64::from(n) });
        let conditions = json!({ "class": "h200", "profile": "h200", "maas_version": maas });
        json!({ "image": "noble", "conditions": conditions, "runs": (0..8).map(run).collect::<Vec<_>>() })
    };
    let import = async |name: &str, maas: &str| {
        let arms = json!([arm(100.0, "3.7.3"), arm(900.0, maas)]);
        let body = json!({ "name": name, "site": "lab", "arms": arms, "reason": "april" });
        rig.post("/api/v1/experiments/import", body).await.ok()
    };
    let alike = import("alike", "3.7.3").await;
    assert_eq!((&alike["state"], &alike["comparable"]), (&json!("imported"), &json!(true)));
    assert_eq!(alike["measures"][0]["verdict"], "slower");
    for maas in ["3.6.1", ""] {
        let name = if maas.is_empty() { "unknown" } else { "other" };
        let view = import(name, maas).await;
        let measures = view["measures"].as_array().unwrap();
        assert!(measures.iter().all(|one| one["verdict"] == "not_comparable"), "{maas}");
    }
}

async fn token(rig: &Rig, name: &str, role: &str) -> String {
    let body = json!({
        "name": format!("{name}-cli"), "person": name, "grants": [{ "role": role }],
        "reason": "for the test",
    });
    let made = rig.post("/api/v1/tokens", body).await.ok();
    made["token"].as_str().unwrap().to_owned()
}

/// An experiment erases: it waits as a whole for another person, and the loop begins nothing before. Its
/// later runs are the starter's, so they end with the starter's token.
#[tokio::test]
async fn an_experiment_waits_for_another_person_and_acts_for_the_one_who_started_it() {
    let rig = rig(4).await;
    let (ann, bob) = (token(&rig, "ann", "operator").await, token(&rig, "bob", "approver").await);
    rig.patch("/api/v1/sites/lab", json!({ "second_person": { "erasing_above": 1 } })).await.ok();
    let mut body = start("try", 2);
    body["paired"] = json!(true);
    let held = rig.call("POST", "/api/v1/experiments", Some(&ann), Some(body)).await;
    assert_eq!(held.code(), "second_person_needed");
    assert!(held.json()["detail"].as_str().unwrap().contains("4 reimages"), "{}", held.json());
    assert_eq!(rig.experiments.advance().await, 0);
    assert_eq!(rig.get("/api/v1/experiments").await.ok()["items"], json!([]), "nothing was begun");

    let open = rig.get("/api/v1/approvals?open=true").await.ok();
    let id = open["items"][0]["id"].as_str().unwrap().to_owned();
    let approve = format!("/api/v1/approvals/{id}/approve");
    let own = json!({ "reason": "mine" });
    let done = rig.call("POST", &approve, Some(&bob), Some(own)).await.ok();
    assert_eq!(done["state"], "done", "{done}");
    let view = rig.get("/api/v1/experiments/try").await.ok();
    let running = |view: &Value| {
        let all = view["assignments"].as_array().unwrap();
        all.iter().filter(|one| one["status"] == "running").count()
    };
    assert_eq!(running(&view), 2, "{view}");

    // The first run of a pair has ended, and the starter's token was revoked: no run begins automatically.
    let revoke = json!({ "reason": "left" });
    rig.post("/api/v1/tokens/ann-cli/revoke", revoke).await.ok();
    let stored = rig.store.experiment_runs("try").await.unwrap();
    for run in stored.iter().filter_map(|run| run.run_id) {
        rig.put_run(run, RunStatus::Succeeded).await;
    }
    assert_eq!(rig.experiments.advance().await, 0);
    let open = rig.get("/api/v1/approvals?open=true").await.ok();
    assert_eq!(open["items"], json!([]), "and nothing asks in the name of nobody");

    // An operator begins the second runs; the experiment ends although its starter has no rights.
    let again = json!({ "reason": "ann left" });
    rig.post("/api/v1/experiments/try/next", again).await.ok();
    let first: Vec<_> = stored.iter().filter_map(|run| run.run_id).collect();
    let all = rig.store.experiment_runs("try").await.unwrap();
    let second: Vec<_> =
        all.iter().filter_map(|run| run.run_id).filter(|run| !first.contains(run)).collect();
    assert_eq!(second.len(), 2);
    for run in second {
        rig.advance(60);
        rig.put_run(run, RunStatus::Succeeded).await;
    }
    assert_eq!(rig.experiments.advance().await, 1, "it has ended");
    assert_ne!(rig.get("/api/v1/experiments/try").await.ok()["state"], "running");
}
