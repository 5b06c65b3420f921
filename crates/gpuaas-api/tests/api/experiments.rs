//! Experiments between images: drawn, begun, stopped, imported.

use gpuaas_types::{NodeState, RunStatus};
use serde_json::{Value, json};

use crate::rig::Rig;

const BAKED: &str = "h200-20261123-9f86d081884c";

/// A site with an approved image, and this many active nodes of profile h200.
async fn rig(nodes: usize) -> Rig {
    let rig = Rig::with_site().await;
    rig.maas.images.lock().unwrap().insert(12, (BAKED.to_owned(), "9f".repeat(32)));
    let approve = json!({ "site": "lab", "to": "canary", "canary_nodes": 20, "reason": "try" });
    rig.post(&format!("/api/v1/images/{BAKED}/transition"), approve).await.ok();
    for n in 0..nodes {
        let made = rig.onboard(&format!("h{n}")).await;
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

fn start(name: &str, nodes: u32) -> Value {
    json!({ "name": name, "site": "lab", "profile": "h200", "images": ["noble", BAKED],
        "nodes": nodes, "seed": 7, "actor": "ann", "reason": "is it faster?" })
}

async fn begin(rig: &Rig, body: Value) -> Value {
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
