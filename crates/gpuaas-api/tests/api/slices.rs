//! From what an agent reads of its host to slots that an operator approved.

use gpuaas_bundle::{Envelope, order};
use gpuaas_store::TokenPurpose;
use gpuaas_types::agent::{Operation, TaskKeys, TaskSpec};
use serde_json::{Value, json};

use crate::rig::Rig;

const NODE: &str = "/api/v1/admin/nodes/j22u11/slice-topology";

/// A node with an agent that was heard, and the agent's credential.
async fn heard() -> (Rig, String) {
    let rig = Rig::with_site().await;
    let node = rig.onboard("j22u11").await;
    let token = rig.token(TokenPurpose::Enrollment, node.node_id, node.run_id, Some(3600)).await;
    let enroll = json!({
        "run_id": node.run_id, "hostname": "j22u11", "agent_version": "0.1.0",
        "started_at": "2026-11-20T16:00:00Z", "facts": {},
    });
    let answer = rig.call("POST", "/agent/v1/enroll", Some(&token), Some(enroll)).await.ok();
    let credential = answer["credential"].as_str().unwrap().to_owned();
    let beat = json!({ "run_id": node.run_id, "agent_version": "0.1.0", "uptime_seconds": 12.5 });
    rig.call("POST", "/agent/v1/heartbeat", Some(&credential), Some(beat)).await.ok();
    (rig, credential)
}

/// A host with two GPUs; `driver` has the second.
fn topology(driver: &str) -> Value {
    let gpu = |address: &str, group: u32, driver: &str| {
        json!({
            "address": address, "vendor": "10de", "class": "030200", "driver": driver,
            "iommu_group": group, "numa_node": 0, "path": ["pci0000:15"], "holders": [],
            "reset_methods": ["flr"],
            "bars": [{ "index": 2, "size_bytes": 1024, "prefetchable": true }],
        })
    };
    json!({ "functions": [gpu("0000:19:00.0", 1, "vfio-pci"), gpu("0000:1b:00.0", 2, driver)] })
}

/// Has the agent discover `topology`, as an operator asks for it.
async fn discover(rig: &Rig, credential: &str, topology: Value) -> Value {
    let body = json!({ "actor": "ada", "reason": "a new host" });
    let asked = rig.post(&format!("{NODE}/discovery"), body).await;
    assert_eq!(asked.status, 202, "{}", asked.json());
    let asked = asked.json();
    assert_eq!(asked["operation"]["kind"], "discover_slices");
    let batch = rig.call("GET", "/agent/v1/tasks", Some(credential), None).await.ok();
    let order: Envelope = serde_json::from_value(batch["tasks"][0]["order"].clone()).unwrap();
    let keys: TaskKeys = serde_json::from_value(rig.get("/api/v1/task-keys").await.ok()).unwrap();
    let node_id = serde_json::from_value(asked["node_id"].clone()).unwrap();
    let now = gpuaas_engine::Clock::now(&*rig.clock);
    let task = order::admit(&order, &keys, node_id, now).unwrap();
    let discovers = TaskSpec::Operate { dry_run: false, operation: Operation::DiscoverSlices {} };
    assert_eq!(task.spec, discovers);
    let report = json!({ "discovery_seconds": 0.75, "topology": topology });
    let result = json!({ "succeeded": true, "message": "read", "topology": report });
    let answer = format!("/agent/v1/tasks/{}/result", task.id);
    rig.call("POST", &answer, Some(credential), Some(result)).await.ok();
    rig.get(&format!("/api/v1/tasks/{}", task.id)).await.ok()
}

#[tokio::test]
async fn a_discovery_brings_a_map_and_the_next_one_a_difference() {
    let (rig, credential) = heard().await;
    assert_eq!(rig.get(NODE).await.code(), "slot_map_missing");
    let task = discover(&rig, &credential, topology("vfio-pci")).await;
    assert_eq!(task["state"], "done");
    assert!(task["result"]["topology"].is_null(), "it is kept once");
    let map = rig.get(NODE).await.ok();
    let names: Vec<&str> = map.as_object().unwrap().keys().map(String::as_str).collect();
    let mut wanted =
        ["node", "digest", "discovery_seconds", "host_blockers", "partitions", "slots"];
    wanted.sort_unstable();
    let mut names = names;
    names.sort_unstable();
    assert_eq!(names, wanted);
    assert_eq!((&map["node"], &map["discovery_seconds"]), (&json!("j22u11"), &json!(0.75)));
    assert_eq!(map["slots"][1]["gpu"]["address"], "0000:1b:00.0");
    assert_eq!(map["slots"][1]["state"], "candidate");
    let diff = format!("{NODE}/diff");
    let first = rig.get(&diff).await.ok();
    assert_eq!((&first["before_digest"], &first["changes"]), (&Value::Null, &json!([])));
    discover(&rig, &credential, topology("nvidia")).await;
    let second = rig.get(&diff).await.ok();
    assert_eq!(second["before_digest"], second["after_digest"], "a driver is not pinned");
    assert_eq!(second["changes"][0]["what"], "blocker gpu_driver");
    assert_eq!(second["changes"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_discovered_is_reviewed_and_what_is_blocked_stays_so() {
    let (rig, credential) = heard().await;
    discover(&rig, &credential, topology("vfio-pci")).await;
    let digest = rig.get(NODE).await.ok()["digest"].clone();
    let approval = format!("{NODE}/approval");
    let approve = async |digest: &Value, slots: Value| {
        let body = json!({
            "digest": digest, "slots": slots, "actor": "ada", "reason": "looked at",
        });
        rig.post(&approval, body).await
    };
    assert_eq!(approve(&json!("abc"), json!([])).await.code(), "invalid_field");
    let other = json!("0".repeat(64));
    assert_eq!(approve(&other, json!([])).await.code(), "slot_map_changed");
    // The host has no virtual functions, no drives, no cores.
    assert_eq!(approve(&digest, json!([0])).await.code(), "slot_blocked");
    assert_eq!(approve(&digest, json!([])).await.code(), "slot_blocked");
    let listed = rig.get("/api/v1/admin/slots?site=lab").await.ok();
    assert_eq!((&listed["reviewable"], &listed["schedulable"]), (&json!(2), &json!(0)));
    let codes = listed["slots"][0]["blockers"].as_array().unwrap();
    assert!(codes.contains(&json!("vf_missing")) && codes.contains(&json!("nvme_missing")));
    let audit = rig.store.audit_entries(0, 100).await.unwrap();
    assert!(audit.iter().all(|row| row.entry.action != "slice.approve"));
}
