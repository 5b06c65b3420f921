//! From what an agent reads of its host to slots that an operator approved.

use gpuaas_bundle::{Envelope, order};
use gpuaas_types::agent::{Operation, TaskKeys, TaskSpec};
use serde_json::{Value, json};

use crate::agents::activate;
use crate::rig::{Answer, Rig};

pub(crate) const NODE: &str = "/api/v1/admin/nodes/j22u11/slice-topology";

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
pub(crate) async fn discover(rig: &Rig, credential: &str, topology: Value) -> Value {
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
    let (rig, _, credential) = Rig::heard().await;
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

/// A host whose two GPUs have everything that a slot needs.
pub(crate) fn whole_topology() -> Value {
    let device = |bus: u32, vendor: &str, class: &str| {
        json!({
            "address": format!("0000:{bus:02x}:00.0"), "vendor": vendor, "class": class,
            "driver": "vfio-pci", "iommu_group": bus, "numa_node": 0, "path": ["pci0000:15"],
            "holders": [], "reset_methods": ["flr"],
            "bars": [{ "index": 2, "size_bytes": 1024, "prefetchable": true }],
        })
    };
    let mut functions = Vec::new();
    let mut namespaces = Vec::new();
    for number in 0..2u32 {
        functions.push(device(0x19 + number, "10de", "030200"));
        let mut port = device(0x29 + number, "15b3", "020700");
        port["driver"] = json!("mlx5_core");
        port["port"] = json!({ "link_layer": "InfiniBand", "state": "ACTIVE" });
        let mut function = device(0x39 + number, "15b3", "020700");
        function["physical_function"] = port["address"].clone();
        function["virtual_index"] = json!(0);
        function["guid"] = json!(format!("96:6d:ae:f0:00:12:34:{number:02x}"));
        let drive = device(0x49 + number, "144d", "010802");
        namespaces.push(json!({
            "name": format!("nvme{number}n1"), "serial": format!("S{number}"),
            "path": format!("/dev/disk/by-id/nvme-S{number}"), "address": drive["address"],
            "uses": [], "erase_methods": ["sanitize_crypto"],
        }));
        functions.extend([port, function, drive]);
    }
    let cores: Vec<Value> = (0..32).map(|core| json!([core, core + 32])).collect();
    json!({
        "functions": functions, "namespaces": namespaces, "numa_nodes": [{
            "id": 0, "cores": cores, "package": 0, "distances": [10], "gigabyte_pages": 128,
        }],
    })
}

/// Approves slots of the map with this digest; of none: each that has no blocker.
pub(crate) async fn approve(rig: &Rig, digest: &Value, slots: Value) -> Answer {
    let body = json!({ "digest": digest, "slots": slots, "actor": "ada", "reason": "looked at" });
    rig.post(&format!("{NODE}/approval"), body).await
}

#[tokio::test]
async fn what_is_approved_is_schedulable_and_no_longer_reviewable() {
    let (rig, _, credential) = Rig::heard_for_slices().await;
    discover(&rig, &credential, whole_topology()).await;
    let map = rig.get(NODE).await.ok();
    let blockers = |slot: &Value| slot["blockers"].as_array().unwrap().clone();
    let slots = map["slots"].as_array().unwrap();
    assert!(slots.iter().all(|slot| blockers(slot).is_empty()), "{map}");
    let one = approve(&rig, &map["digest"], json!([1])).await.ok();
    assert_eq!((&one["reviewable"], &one["schedulable"]), (&json!(1), &json!(1)));
    assert_eq!(
        (&one["slots"][1]["state"], &one["slots"][0]["state"]),
        (&json!("free"), &json!("candidate"))
    );
    let digest = map["digest"].as_str().unwrap().to_uppercase();
    let all = approve(&rig, &json!(digest), json!([])).await.ok();
    assert_eq!((&all["reviewable"], &all["schedulable"]), (&json!(0), &json!(2)));
    assert_eq!(all["slots"][0]["approved_by"], "admin (ada)");
    assert_eq!(rig.get(NODE).await.ok()["slots"][0]["state"], "free");
    let audit = rig.store.audit_entries(0, 100).await.unwrap();
    let entries: Vec<&Value> = audit
        .iter()
        .filter(|row| row.entry.action == "slice.approve")
        .map(|row| &row.entry.detail["slots"])
        .collect();
    assert_eq!(entries, [&json!([1]), &json!([0, 1])]);
}

#[tokio::test]
async fn what_is_discovered_is_reviewed_and_what_is_blocked_stays_so() {
    let (rig, _, credential) = Rig::heard_for_slices().await;
    discover(&rig, &credential, topology("vfio-pci")).await;
    let digest = rig.get(NODE).await.ok()["digest"].clone();
    assert_eq!(approve(&rig, &json!("abc"), json!([])).await.code(), "invalid_field");
    let other = json!("0".repeat(64));
    assert_eq!(approve(&rig, &other, json!([])).await.code(), "slot_map_changed");
    // The host has no virtual functions, no drives, no cores.
    assert_eq!(approve(&rig, &digest, json!([0])).await.code(), "slot_blocked");
    assert_eq!(approve(&rig, &digest, json!([])).await.code(), "slot_blocked");
    let listed = rig.get("/api/v1/admin/slots?site=lab").await.ok();
    assert_eq!((&listed["reviewable"], &listed["schedulable"]), (&json!(2), &json!(0)));
    let codes = listed["slots"][0]["blockers"].as_array().unwrap();
    assert!(codes.contains(&json!("vf_missing")) && codes.contains(&json!("nvme_missing")));
    let audit = rig.store.audit_entries(0, 100).await.unwrap();
    assert!(audit.iter().all(|row| row.entry.action != "slice.approve"));
}

/// The gate looks at the host's checks; what keeps its slots from use is a problem of the node.
#[tokio::test]
async fn blockers_of_slots_are_a_problem_with_evidence_and_next_action() {
    let (rig, onboarded, credential) = Rig::heard_for_slices().await;
    let problems = async || {
        let node = rig.get("/api/v1/nodes/j22u11").await.ok();
        let explained = rig.get("/api/v1/nodes/j22u11/explain").await.ok();
        let all = node["problems"].as_array().unwrap().clone();
        let found: Vec<Value> = all.into_iter().filter(|p| p["code"] == "slots_blocked").collect();
        (found, explained.to_string())
    };
    activate(&rig, onboarded.run_id).await;
    let mut broken = whole_topology();
    broken["functions"][2]["guid"] = json!("00:00:00:00:00:00:00:00");
    discover(&rig, &credential, broken).await;
    let (found, explained) = problems().await;
    assert_eq!(
        (&found[0]["owner"], &found[0]["source"]),
        (&json!("bundle_owner"), &json!("agent"))
    );
    let text = found[0]["text"].as_str().unwrap();
    let expected = "1 of 2 slots cannot be used: vf_identity_missing on slot 0 (expected a GUID, \
                    found 0000:39:00.0: 00:00:00:00:00:00:00:00)";
    assert!(text.contains(expected), "{text}");
    let next = "`gpuaas node task j22u11 repair-drift --gate slice_ready --wait`; then \
                `gpuaas slice discover j22u11 --wait`";
    assert_eq!(found[0]["next_action"], next);
    assert!(explained.contains("vf_identity_missing") && explained.contains("repair-drift --gate"));
    // The host was repaired and discovered again.
    discover(&rig, &credential, whole_topology()).await;
    let (found, explained) = problems().await;
    assert!(found.is_empty() && !explained.contains("vf_identity_missing"), "{explained}");
}

/// A bare-metal host with slots would be in neither pool: its slots wait for a gate that never opens.
#[tokio::test]
async fn slots_of_a_host_without_a_slice_profile_are_refused_and_said_of_those_that_are_there() {
    let (rig, _, credential) = Rig::heard().await;
    discover(&rig, &credential, whole_topology()).await;
    let digest = rig.get(NODE).await.ok()["digest"].clone();
    let refused = approve(&rig, &digest, json!([])).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "not_a_slice_host"));
    let refused = refused.json();
    assert_eq!(refused["detail"], "j22u11 has profile h200, which is not a slice profile");
    let hint = refused["hint"].as_str().unwrap();
    assert!(hint.contains("gpuaas node reimage j22u11 --profile PROFILE"), "{hint}");
    assert_eq!(rig.get("/api/v1/admin/slots").await.ok()["schedulable"], 0);

    // Approved as a slice host; its profile is another one by now.
    rig.slice_profile().await;
    approve(&rig, &digest, json!([])).await.ok();
    let bare = json!({ "site_bootstrap_bundle_ref": "site-base@1.0.0" });
    rig.call("PATCH", "/api/v1/profiles/h200", Some(&rig.admin), Some(bare)).await.ok();
    let claim = json!({
        "gpus": 1, "site": "lab", "owner": "tenant-a", "actor": "ada", "reason": "a lease",
    });
    let refused = rig.post("/api/v1/admin/slice-claims", claim).await.json();
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("without a slice profile: j22u11"), "{detail}");
    let whole = json!({ "site": "lab", "owner": "a", "actor": "ada", "reason": "a lease" });
    let refused = rig.post("/api/v1/admin/node-claims", whole).await.json();
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("without a slice profile: j22u11"), "{detail}");
}
