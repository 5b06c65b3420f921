//! Claims of slots: made once for a key, refused with counts, released, and in the way of what would
//! take their host.

use axum::body::Body;
use axum::http::Request;
use gpuaas_store::{NodeChange, RunWrite};
use gpuaas_types::agent::{Gate, GateReport};
use gpuaas_types::api::OnboardAccepted;
use gpuaas_types::{NodeState, RunStatus, Timestamp};
use serde_json::{Value, json};

use crate::rig::{Answer, Rig};
use crate::slices::{NODE, approve, discover, whole_topology};

pub(crate) const CLAIMS: &str = "/api/v1/admin/slice-claims";

/// A node whose two slots are approved, and that is in service where it is `ready`.
async fn slice_host(ready: bool) -> (Rig, OnboardAccepted) {
    let (rig, node, _) = discovered_host().await;
    if ready {
        put_in_service(&rig, &node).await;
    }
    (rig, node)
}

/// A node in service whose two slots are approved, with the credential of its agent.
pub(crate) async fn slice_host_with_agent() -> (Rig, OnboardAccepted, String) {
    let (rig, node, credential) = discovered_host().await;
    put_in_service(&rig, &node).await;
    (rig, node, credential)
}

async fn discovered_host() -> (Rig, OnboardAccepted, String) {
    let (rig, node, credential) = Rig::heard_for_slices().await;
    discover(&rig, &credential, whole_topology()).await;
    let digest = rig.get(NODE).await.ok()["digest"].clone();
    approve(&rig, &digest, json!([])).await.ok();
    (rig, node, credential)
}

/// Ends the node's run well, and opens its gate.
async fn put_in_service(rig: &Rig, node: &OnboardAccepted) {
    let now = rig.now();
    for claimed in rig.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap() {
        let mut write = RunWrite::new(claimed.run);
        (write.run.status, write.run.ended_at) = (RunStatus::Succeeded, Some(now));
        write.run.due_at = Timestamp::NEVER;
        write.node = Some(NodeChange { state: Some(NodeState::Active), system_id: None });
        rig.store.commit(now, write.releasing()).await.unwrap();
    }
    let gate = GateReport { gate: Gate::SliceReady, passed: true, class: None, checks: vec![] };
    let said = rig.store.set_gates(now, node.node_id, node.run_id, vec![gate], |_, _| None);
    said.await.unwrap();
}

pub(crate) fn claim(gpus: u32) -> Value {
    json!({
        "gpus": gpus, "site": "lab", "owner": "tenant-a", "actor": "ada", "reason": "a lease",
    })
}

async fn keyed(rig: &Rig, key: &str, body: &Value) -> Answer {
    let request = Request::post(CLAIMS)
        .header("authorization", format!("Bearer {}", rig.admin))
        .header("idempotency-key", key)
        .body(Body::from(body.to_string()));
    rig.send(request.unwrap()).await
}

pub(crate) async fn release(rig: &Rig, id: &str, query: &str) -> Answer {
    let path = format!("{CLAIMS}/{id}?actor=ada&reason=not+wanted{query}");
    rig.call("DELETE", &path, Some(&rig.admin), None).await
}

#[tokio::test]
async fn a_claim_is_made_once_for_a_key_and_released_once() {
    let (rig, node) = slice_host(true).await;
    let made = keyed(&rig, "k1", &claim(1)).await;
    assert_eq!(made.status, 201, "{}", made.json());
    let made = made.json();
    assert_eq!((&made["state"], &made["node"]), (&json!("reserved"), &json!("j22u11")));
    assert_eq!((&made["gpus"], &made["numa"]), (&json!(1), &json!("required")));
    assert_eq!(
        (&made["slots"][0]["gpu"], &made["slots"][0]["nvme"]),
        (&json!("0000:19:00.0"), &json!("S0"))
    );
    assert_eq!(keyed(&rig, "k1", &claim(1)).await.ok()["id"], made["id"]);
    assert_eq!(keyed(&rig, "k1", &claim(2)).await.code(), "idempotency_key_reused");
    let listed = rig.get(&format!("{CLAIMS}?site=lab")).await.ok();
    assert_eq!(listed["items"], json!([made]));
    let slots = rig.get("/api/v1/admin/slots").await.ok();
    assert_eq!(
        (&slots["slots"][0]["state"], &slots["slots"][0]["claim"]),
        (&json!("reserved"), &made["id"])
    );
    let id = made["id"].as_str().unwrap();
    // Identifiers begin with the time, so the begin of one is that of no other here.
    assert_eq!(rig.get(&format!("{CLAIMS}/{}", &id[..13])).await.ok(), made);
    let fence = made["fence"].as_u64().unwrap();
    let other = release(&rig, id, &format!("&fence={}", fence + 1)).await;
    assert_eq!(other.code(), "claim_fenced");
    let ended = release(&rig, id, &format!("&fence={fence}")).await.ok();
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("released"), &json!("not wanted")));
    assert_eq!(release(&rig, id, "").await.ok(), ended);
    assert_eq!(rig.get(CLAIMS).await.ok()["items"], json!([]));
    let ended = rig.get(&format!("{CLAIMS}?ended=true&limit=1")).await.ok();
    assert_eq!(ended["items"].as_array().unwrap().len(), 1);
    assert_eq!(rig.get(&format!("{CLAIMS}/{}", node.node_id)).await.code(), "claim_not_found");
}

#[tokio::test]
async fn a_refusal_says_which_of_three_it_is_and_counts() {
    let (rig, node) = slice_host(false).await;
    let waiting = rig.post(CLAIMS, claim(1)).await;
    assert_eq!((waiting.status, waiting.code().as_str()), (409, "not_ready"));
    put_in_service(&rig, &node).await;
    rig.advance(1);
    let apart = rig.post(CLAIMS, claim(2)).await;
    assert_eq!(apart.code(), "no_single_node_fits", "no switch joins these GPUs");
    let detail = apart.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("ready nodes: 2, at most 2 on one node"), "{detail}");
    assert_eq!(rig.post(CLAIMS, claim(4)).await.code(), "none_in_site");
    for (field, value) in [
        ("gpus", json!(0)),
        ("gpus", json!(9)),
        ("owner", json!(" ")),
        ("reserved_seconds", json!(1)),
        ("reason", json!("")),
        ("numa", json!("near")),
    ] {
        let mut body = claim(1);
        body[field] = value;
        let refused = rig.post(CLAIMS, body).await;
        assert_eq!(refused.code(), "invalid_field", "{field}");
    }
    let mut elsewhere = claim(1);
    elsewhere["site"] = json!("north");
    assert_eq!(rig.post(CLAIMS, elsewhere).await.code(), "site_not_found");
}

#[tokio::test]
async fn a_host_with_a_claim_is_not_taken_from_under_it() {
    let (rig, _) = slice_host(true).await;
    let made = rig.post(CLAIMS, claim(1)).await.ok();
    let id = made["id"].as_str().unwrap();
    for kind in ["decommission", "reimage"] {
        let body = json!({ "kind": kind, "actor": "ada", "reason": "a new image" });
        let refused = rig.post("/api/v1/nodes/j22u11/runs", body).await;
        assert_eq!(refused.code(), "node_has_claims", "{kind}");
        assert!(refused.json()["detail"].as_str().unwrap().contains(id), "it names the claim");
    }
    let restart = json!({
        "operation": { "kind": "service", "action": "restart", "unit": "libvirtd.service" },
        "actor": "ada", "reason": "it hangs",
    });
    let task = rig.post("/api/v1/nodes/j22u11/tasks", restart.clone()).await;
    assert_eq!(task.code(), "node_has_claims");
    let mut trial = restart.clone();
    trial["dry_run"] = json!(true);
    rig.post("/api/v1/nodes/j22u11/tasks", trial).await.ok();
    release(&rig, id, "").await.ok();
    rig.post("/api/v1/nodes/j22u11/tasks", restart).await.ok();
    // What nobody launches is free again for whoever asks after its time.
    rig.post(CLAIMS, claim(1)).await.ok();
    rig.post(CLAIMS, claim(1)).await.ok();
    assert_eq!(rig.post(CLAIMS, claim(1)).await.code(), "none_in_site");
    rig.advance(901);
    rig.post(CLAIMS, claim(1)).await.ok();
}
