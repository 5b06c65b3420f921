//! Claims of bare-metal hosts as a whole: had at once, and taken back by a run that cleans the host.

use axum::body::Body;
use axum::http::Request;
use gpuaas_core::run_state::DISKS_ERASED;
use gpuaas_store::{NodeChange, RunWrite};
use gpuaas_types::api::CheckResult;
use gpuaas_types::{NodeState, RunStatus, Timestamp};
use serde_json::{Value, json};

use crate::rig::{Answer, Rig};
use crate::slice_claims::{CLAIMS, release};

const NODE_CLAIMS: &str = "/api/v1/admin/node-claims";

fn claim(owner: &str) -> Value {
    json!({ "site": "lab", "owner": owner, "actor": "ada", "reason": "a lease" })
}

/// A bare-metal host in service.
async fn bare_metal_host() -> Rig {
    let (rig, _, _) = Rig::heard().await;
    end_runs(&rig, false).await;
    rig
}

/// Ends what is due well, with the node in service. `erased`: its release erased the disks.
pub(crate) async fn end_runs(rig: &Rig, erased: bool) {
    let now = rig.now();
    for claimed in rig.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap() {
        let mut write = RunWrite::new(claimed.run);
        (write.run.status, write.run.ended_at) = (RunStatus::Succeeded, Some(now));
        write.run.due_at = Timestamp::NEVER;
        if erased {
            let check = CheckResult {
                name: DISKS_ERASED.to_owned(),
                passed: true,
                verified: true,
                evidence: "MAAS erased the disks".to_owned(),
                at: now,
            };
            write.run.state.checks.insert(check.name.clone(), check);
        }
        write.node = Some(NodeChange { state: Some(NodeState::Active), system_id: None });
        rig.store.commit(now, write.releasing()).await.unwrap();
    }
}

async fn keyed(rig: &Rig, key: &str, body: &Value) -> Answer {
    let request = Request::post(NODE_CLAIMS)
        .header("authorization", format!("Bearer {}", rig.admin))
        .header("idempotency-key", key)
        .body(Body::from(body.to_string()));
    rig.send(request.unwrap()).await
}

#[tokio::test]
async fn a_whole_node_is_claimed_and_cleaned_before_anybody_else_has_it() {
    let rig = bare_metal_host().await;
    let made = keyed(&rig, "k1", &claim("tenant-a")).await;
    assert_eq!(made.status, 201, "{}", made.json());
    let made = made.json();
    assert_eq!((&made["state"], &made["node"]), (&json!("in_use"), &json!("j22u11")));
    assert_eq!((&made["whole_node"], &made["slots"]), (&json!(true), &json!([])));
    assert_eq!(keyed(&rig, "k1", &claim("tenant-a")).await.ok()["id"], made["id"]);
    let id = made["id"].as_str().unwrap();
    assert_eq!(rig.get(&format!("{CLAIMS}/{id}")).await.ok()["owner"], json!("tenant-a"));
    let none = rig.post(NODE_CLAIMS, claim("tenant-b")).await;
    assert_eq!((none.status, none.code().as_str()), (409, "none_in_site"));
    let detail = none.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("of 1 bare-metal hosts, 1 are claimed"), "{detail}");
    let body = json!({ "kind": "reimage", "actor": "ada", "reason": "a new image" });
    assert_eq!(rig.post("/api/v1/nodes/j22u11/runs", body).await.code(), "node_has_claims");
    // There is nothing to launch.
    let launch = json!({ "image": "debian-12.qcow2", "actor": "ada", "reason": "a guest" });
    let refused = rig.post(&format!("{CLAIMS}/{id}/launch"), launch).await;
    assert_eq!(refused.code(), "claim_in_use");

    let back = release(&rig, id, "").await.ok();
    assert_eq!(back["state"], json!("releasing"));
    let node = rig.get("/api/v1/nodes/j22u11").await.ok();
    assert_eq!(
        (&node["run"]["kind"], &node["run"]["status"]),
        (&json!("reimage"), &json!("running"))
    );
    // The same again while it is under way begins nothing.
    assert_eq!(release(&rig, id, "").await.ok()["state"], json!("releasing"));
    assert_eq!(rig.post(NODE_CLAIMS, claim("tenant-b")).await.code(), "none_in_site");
    end_runs(&rig, false).await;
    let held = rig.get(&format!("{CLAIMS}/{id}")).await.ok();
    assert_eq!((&held["state"], &held["proofs"]), (&json!("releasing"), &json!([])));
    assert!(held["reason"].as_str().unwrap().contains("release_erase=true"), "{held}");
    assert_eq!(rig.post(NODE_CLAIMS, claim("tenant-b")).await.code(), "none_in_site");
    assert_eq!(release(&rig, id, "").await.ok()["state"], json!("releasing"));
    end_runs(&rig, true).await;
    let ended = rig.get(&format!("{CLAIMS}/{id}")).await.ok();
    assert_eq!(ended["state"], json!("released"));
    assert!(ended["reason"].as_str().unwrap().starts_with("the reimage "), "{}", ended["reason"]);
    let proof = &ended["proofs"][0];
    assert_eq!((&proof["subject"], &proof["reader"]), (&json!("host_wiped"), &json!("MAAS")));
    assert_eq!(rig.post(NODE_CLAIMS, claim("tenant-b")).await.status, 201);
}

#[tokio::test]
async fn a_cleaning_that_failed_is_begun_again_by_the_same_release() {
    let rig = bare_metal_host().await;
    let made = rig.post(NODE_CLAIMS, claim("tenant-a")).await.json();
    let id = made["id"].as_str().unwrap();
    release(&rig, id, "").await.ok();
    let run = rig.get("/api/v1/nodes/j22u11").await.ok()["run"]["id"].clone();
    rig.put_run(serde_json::from_value(run.clone()).unwrap(), RunStatus::Failed).await;
    assert_eq!(rig.get(&format!("{CLAIMS}/{id}")).await.ok()["state"], json!("releasing"));
    assert_eq!(release(&rig, id, "").await.ok()["state"], json!("releasing"));
    let next = rig.get("/api/v1/nodes/j22u11").await.ok()["run"].clone();
    assert_eq!(next["kind"], json!("reimage"));
    assert_ne!(next["id"], run);
}

#[tokio::test]
async fn a_host_that_is_not_ready_is_counted() {
    let (rig, _, _) = Rig::heard().await;
    let refused = rig.post(NODE_CLAIMS, claim("tenant-a")).await;
    assert_eq!(refused.code(), "none_in_site", "it is being onboarded");
    end_runs(&rig, false).await;
    let mut elsewhere = claim("tenant-a");
    elsewhere["site"] = json!("north");
    assert_eq!(rig.post(NODE_CLAIMS, elsewhere).await.code(), "site_not_found");
    let mut nobody = claim("tenant-a");
    nobody["owner"] = json!(" ");
    assert_eq!(rig.post(NODE_CLAIMS, nobody).await.code(), "invalid_field");
}
