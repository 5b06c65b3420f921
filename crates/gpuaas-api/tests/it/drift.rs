//! What differs between nodes and MAAS, and what its feed missed, as clients see it.

use gpuaas_core::drift::{AdviceSubject, Difference, advice};
use gpuaas_store::{MissedObservation, NodeChange, RunWrite, SweepFinding};
use gpuaas_types::machine::Observation;
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{DriftAction, DriftKind, NodeId, NodeState, RunId, RunStatus, Timestamp};
use serde_json::{Value, json};

use crate::rig::{KEY, Rig};

/// Onboards a node at once.
pub(crate) async fn active(rig: &Rig, hostname: &str) -> NodeId {
    let accepted = rig.onboard(hostname).await;
    finish_onboarding(rig, hostname, accepted.run_id).await;
    accepted.node_id
}

/// Ends the only run that is due, that of a node that becomes active.
pub(crate) async fn finish_onboarding(rig: &Rig, hostname: &str, run_id: RunId) {
    let now = rig.store.run(run_id).await.unwrap().created_at;
    let claimed = rig.store.claim(now, now.plus_seconds(30.0), 1).await.unwrap().remove(0);
    let mut write = RunWrite::new(claimed.run).releasing();
    (write.run.status, write.run.ended_at) = (RunStatus::Succeeded, Some(now));
    write.run.due_at = Timestamp::NEVER;
    let system_id = Some(format!("id-{hostname}"));
    write.node = Some(NodeChange { state: Some(NodeState::Active), system_id });
    rig.store.commit(now, write).await.unwrap();
}

fn found(node_id: NodeId, kind: DriftKind, action: DriftAction, now: Timestamp) -> SweepFinding {
    let difference =
        Difference { kind, expected: "as remembered".to_owned(), found: "as seen".to_owned() };
    SweepFinding {
        node_id,
        asked_at: now,
        status: None,
        differences: vec![(difference, action)],
        not_looked_at: Vec::new(),
        maas_user: None,
        remember: None,
        adopted: Vec::new(),
        hostname: None,
    }
}

#[tokio::test]
async fn every_kind_is_listed_with_its_action_and_what_to_do() {
    let rig = Rig::with_site().await;
    let now = Timestamp::from_micros(1_795_190_500_000_000);
    let mut ids = Vec::new();
    for (number, kind) in DriftKind::ALL.iter().enumerate() {
        let id = active(&rig, &format!("n{number:02}")).await;
        let action = if number % 2 == 0 { DriftAction::Report } else { DriftAction::Quarantine };
        rig.store.record_sweep(now, vec![found(id, *kind, action, now)]).await.unwrap();
        ids.push(id);
    }
    let list = rig.get("/api/v1/drift").await.ok();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), DriftKind::ALL.len());
    for ((number, kind), item) in DriftKind::ALL.iter().enumerate().zip(items) {
        let action = if number % 2 == 0 { "report" } else { "quarantine" };
        let name = format!("n{number:02}");
        let subject = AdviceSubject {
            node: &name,
            site: "lab",
            system_id: &format!("id-{name}"),
            expected: "as remembered",
            found: "as seen",
        };
        let wanted = json!({
            "node": format!("n{number:02}"), "site": "lab", "kind": kind.as_str(),
            "expected": "as remembered", "found": "as seen", "action": action,
            "since": now, "seen_at": now,
            "next_action": advice(*kind, &subject),
        });
        assert_eq!(*item, wanted);
        let node = rig.get(&format!("/api/v1/nodes/n{number:02}")).await.ok();
        let state = if number % 2 == 0 { "active" } else { "quarantined" };
        assert_eq!((&node["state"], &node["drift"][0]["kind"]), (&json!(state), &item["kind"]));
        let codes: Vec<&Value> =
            node["timeline"].as_array().unwrap().iter().map(|line| &line["code"]).collect();
        assert_eq!(codes.contains(&&json!("quarantined")), number % 2 == 1, "{codes:?}");
    }
    assert_eq!(rig.get("/api/v1/drift?site=lab").await.ok(), list);
    assert_eq!(rig.get("/api/v1/drift?site=x").await.code(), "site_not_found");
    assert_eq!(rig.get("/api/v1/drift?sit=lab").await.code(), "invalid_query");

    let none = SweepFinding {
        differences: Vec::new(),
        ..found(ids[0], DriftKind::Vanished, DriftAction::Report, now)
    };
    rig.store.record_sweep(now.plus_seconds(1.0), vec![none]).await.unwrap();
    let left = rig.get("/api/v1/drift").await.ok();
    assert_eq!(left["items"].as_array().unwrap().len(), DriftKind::ALL.len() - 1);
    assert_eq!(rig.get("/api/v1/nodes/n00").await.ok()["drift"], Value::Null);
}

#[tokio::test]
async fn a_policy_is_taken_where_it_makes_sense() {
    let rig = Rig::with_site().await;
    let policy = |kind: DriftKind, action: DriftAction| json!({ "drift_policy": { kind.as_str(): action.as_str() } });
    for kind in DriftKind::ALL {
        for action in DriftAction::ALL {
            let answer = rig.patch("/api/v1/sites/lab", policy(*kind, *action)).await;
            if gpuaas_core::drift::is_allowed(*kind, *action) {
                let spec = answer.ok()["spec"].clone();
                assert_eq!(spec["drift_policy"], json!({ kind.as_str(): action.as_str() }));
            } else {
                assert_eq!(answer.code(), "invalid_field", "{kind} {action}");
            }
        }
    }
    let unknown =
        rig.patch("/api/v1/sites/lab", json!({ "drift_policy": { "x": "report" } })).await;
    assert_eq!(unknown.code(), "invalid_field");
    let defaults = json!({ "drift_policy": null, "batch_max_parallel": null });
    let back = rig.patch("/api/v1/sites/lab", defaults).await.ok();
    let spec: SiteSpec = serde_json::from_value(back["spec"].clone()).unwrap();
    assert!(spec.drift_policy.is_empty() && spec.batch_max_parallel == 0, "{spec:?}");
}

#[tokio::test]
async fn work_that_the_feed_missed_is_counted_and_told() {
    let rig = Rig::with_site().await;
    let accepted = rig.onboard("j22u11").await;
    let site = rig.store.site_by_name("lab").await.unwrap();
    assert_eq!(rig.get("/api/v1/sites/lab").await.ok()["status"]["missed_work"], 0);
    let now = site.created_at.plus_seconds(60.0);
    let machine = json!({
        "system_id": "abc123", "hostname": "j22u11", "status": 4, "owner": null,
        "power_state": "on", "power_type": "ipmi", "architecture": "amd64/generic",
        "osystem": "", "distro_series": "", "locked": false, "netboot": true,
        "error_description": "", "status_message": null, "enable_hw_sync": false,
        "sync_interval_seconds": null, "boot_interface_id": null, "boot_disk_id": null,
        "disks": [], "complex_storage": 0, "nics": [], "tags": [], "hardware": "Dell XE9680",
        "has_installation_result": false,
    });
    let missed = MissedObservation {
        node_id: accepted.node_id,
        run_id: accepted.run_id,
        observation: Observation::from_read(serde_json::from_value(machine).unwrap(), now),
        text: "MAAS reports Ready; the event feed last reported Commissioning".to_owned(),
    };
    rig.store.record_missed_observation(now, site.id, vec![missed]).await.unwrap();
    let line = rig.get("/api/v1/nodes/j22u11").await.ok()["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["code"] == "missed_work")
        .cloned()
        .unwrap();
    assert!(line["text"].as_str().unwrap().contains("MAAS reports Ready"), "{line}");
    // Another key makes MAAS be asked again; the alarm stays.
    let changed = rig.patch("/api/v1/sites/lab", json!({ "api_key": KEY })).await.ok();
    assert_eq!(changed["status"]["missed_work"], 1);
    assert_eq!(rig.get("/api/v1/sites").await.ok()["items"][0]["status"]["missed_work"], 1);
}
