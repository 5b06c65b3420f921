//! What callers may cause: requests, and lines of the audit.

use gpuaas_api::{ApiSettings, NodeAccess};
use gpuaas_types::limits::{Limit, ListenerKind, ListenerLimits};
use serde_json::{Value, json};

use crate::rig::{BEGIN, Rig};

async fn limited(per_second: u64, burst: u64) -> Rig {
    let mut limits = ListenerLimits::defaults(ListenerKind::Operators);
    limits.set(Limit::RequestsPerSecond, per_second);
    limits.set(Limit::RequestBurst, burst);
    let settings = ApiSettings { operators: limits, nodes: limits, ..ApiSettings::default() };
    Rig::set(NodeAccess::StandIns, BEGIN, settings).await
}

async fn token(rig: &Rig, name: &str) -> String {
    let body = json!({ "name": name, "grants": [{ "role": "viewer" }], "reason": "test" });
    rig.post("/api/v1/tokens", body).await.ok()["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_token_that_asks_too_often_is_told_to_wait_and_others_are_not() {
    let rig = limited(1, 4).await;
    let (busy, quiet) = (token(&rig, "busy").await, token(&rig, "quiet").await);
    let get = async |token: &str| rig.call("GET", "/api/v1/access", Some(token), None).await;
    for _ in 0..4 {
        get(&busy).await.ok();
    }
    let refused = get(&busy).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "too_many_requests"));
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(
        refused.json()["detail"]
            .as_str()
            .unwrap()
            .starts_with("too many requests with this credential: expected at most 1 per")
    );
    get(&quiet).await.ok();
    rig.advance(1);
    get(&busy).await.ok();
    assert_eq!(get("guess").await.status, 401, "no guess has a limit, or takes one from others");
}

#[tokio::test]
async fn a_node_that_asks_too_often_is_told_to_wait() {
    let rig = limited(1, 4).await;
    rig.add_site().await;
    let node = rig.onboard("j22u11").await;
    let purpose = gpuaas_store::TokenPurpose::Bootstrap;
    let token = rig.token(purpose, node.node_id, node.run_id, None).await;
    let path = format!("/bootstrap/v1/runs/{}/progress", node.run_id);
    let body = json!({ "phase": "site_bootstrap", "status": "started", "message": "" });
    let post = async || rig.call("POST", &path, Some(&token), Some(body.clone())).await.status;
    let mut told = Vec::new();
    for _ in 0..5 {
        told.push(post().await);
    }
    assert_eq!(told, [200, 200, 200, 200, 429]);
}

#[tokio::test]
async fn a_stolen_token_is_in_the_audit_however_many_guesses_came_before() {
    let rig = Rig::new().await;
    let stolen = token(&rig, "ci").await;
    let revoked = rig.post("/api/v1/tokens/ci/revoke", json!({ "reason": "stolen" })).await;
    revoked.ok();
    let get = async |token: &str| rig.call("GET", "/api/v1/sites", Some(token), None).await.code();
    for guess in 0..600 {
        assert_eq!(get(&format!("guess-{guess}")).await, "token_unknown");
    }
    for _ in 0..3 {
        assert_eq!(get(&stolen).await, "token_revoked");
    }
    rig.advance(700);
    assert_eq!(get(&stolen).await, "token_revoked");
    let lines = rig.store.audit_entries(0, 10_000).await.unwrap();
    let of_code = |code: &str| {
        let lines = lines.iter().map(|line| &line.entry);
        let is = move |line: &&gpuaas_store::StoredAction| line.detail["code"] == code;
        lines.filter(is).cloned().collect::<Vec<_>>()
    };
    assert_eq!(of_code("token_unknown").len(), 500, "guesses have a limit");
    let known = of_code("token_revoked");
    let told: Vec<(&str, &Value)> =
        known.iter().map(|line| (line.subject.as_str(), &line.detail["repeated"])).collect();
    assert_eq!(told, [("ci", &json!(0)), ("ci", &json!(2))], "whose it was, and how often it came");
}

#[tokio::test]
async fn what_a_token_is_called_is_no_rejection_of_a_credential() {
    let rig = Rig::new().await;
    token(&rig, "ci").await;
    let body = json!({ "name": "ci", "grants": [{ "role": "viewer" }], "reason": "test" });
    assert_eq!(rig.post("/api/v1/tokens", body).await.code(), "token_name_taken");
    let lines = rig.store.audit_entries(0, 100).await.unwrap();
    assert!(lines.iter().all(|line| line.entry.action != "credential.refused"));
}
