//! Idempotency keys: of every change, and each caller's own.

use axum::body::Body;
use axum::http::Request;
use gpuaas_types::access::OPERATIONS;
use serde_json::{Value, json};

use crate::rig::{Answer, Rig};

async fn send(
    rig: &Rig,
    (method, path): (&str, &str),
    token: &str,
    key: &str,
    body: &Value,
) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .header("x-idempotency-key", key);
    rig.send(request.body(Body::from(body.to_string())).unwrap()).await
}

/// What is asked first with the key that everything else asks with as well.
const FIRST: (&str, &str) = ("POST", "/api/v1/profiles");

#[tokio::test]
async fn every_change_honours_the_key_of_its_caller() {
    let rig = Rig::with_site().await;
    let profile = json!({ "name": "p1", "spec": {} });
    send(&rig, FIRST, &rig.admin, "k1", &profile).await.ok();
    let changes = OPERATIONS.iter().filter(|row| row.method != "GET");
    for row in changes {
        let path = row.path.replace(['{', '}'], "");
        let of = (row.method, path.as_str());
        let answer = send(&rig, of, &rig.admin, "k1", &json!({ "other": true })).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (409, "idempotency_key_reused"),
            "{of:?}"
        );
        let empty = send(&rig, of, &rig.admin, "", &json!({})).await;
        assert_eq!(empty.code(), "invalid_idempotency_key", "{of:?}");
        // A refusal is no answer to keep: the key is free for what was meant.
        let own = format!("own {} {path}", row.method);
        let first = send(&rig, of, &rig.admin, &own, &json!({ "other": true })).await;
        if first.status >= 400 {
            let second = send(&rig, of, &rig.admin, &own, &json!({ "meant": true })).await;
            assert_ne!(second.code(), "idempotency_key_reused", "{of:?}");
        }
    }
}

#[tokio::test]
async fn the_same_change_is_made_once_and_answered_twice() {
    let rig = Rig::with_site().await;
    let run = rig.onboard("j22u11").await.run_id;
    let cancel = format!("/api/v1/runs/{run}/cancel");
    let changes = [
        (
            "POST",
            "/api/v1/tokens",
            json!({ "name": "ci", "reason": "test", "grants": [{ "role": "admin" }] }),
        ),
        ("PATCH", "/api/v1/profiles/h200", json!({ "release_erase": false })),
        ("PATCH", "/api/v1/sites/lab", json!({ "idle_poll_seconds": 7 })),
        ("POST", cancel.as_str(), json!({ "reason": "test", "actor": "ann" })),
    ];
    for (index, (method, path, body)) in changes.iter().enumerate() {
        let key = format!("key-{index}");
        let audited = || async { rig.store.audit_entries(0, 1000).await.unwrap().len() };
        let first = send(&rig, (method, path), &rig.admin, &key, body).await;
        assert!((200..300).contains(&first.status), "{path}: {}", first.json());
        let before = audited().await;
        let again = send(&rig, (method, path), &rig.admin, &key, body).await;
        assert_eq!((again.status, &again.bytes), (first.status, &first.bytes), "{path}");
        assert_eq!(again.headers["idempotency-replayed"], "true", "{path}");
        assert_eq!(audited().await, before, "{path}");
        let mut other = body.clone();
        other["reason"] = json!("another");
        let other = send(&rig, (method, path), &rig.admin, &key, &other).await;
        assert_eq!(
            (other.status, other.code().as_str()),
            (409, "idempotency_key_reused"),
            "{path}"
        );
    }
    // The same key of another caller is another key.
    let token = rig.post(
        "/api/v1/tokens",
        json!({ "name": "eve", "reason": "test", "grants": [{ "role": "admin" }] }),
    );
    let eve = token.await.ok()["token"].as_str().unwrap().to_owned();
    let profile = json!({ "name": "p1", "spec": {} });
    send(&rig, FIRST, &eve, "key-0", &profile).await.ok();
    let onboarding = json!({ "hostname": "j22u12", "site": "lab", "profile": "h200" });
    let nodes = ("POST", "/api/v1/nodes");
    let admins = send(&rig, nodes, &rig.admin, "n1", &onboarding).await.ok();
    let eves = send(&rig, nodes, &eve, "n1", &onboarding).await;
    assert_ne!(eves.json(), admins);
    assert_eq!(eves.code(), "node_exists");
}
