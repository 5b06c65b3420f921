//! Idempotency keys: of every change, and each caller's own.

use axum::body::Body;
use axum::http::Request;
use gpuaas_store::ReplayKey;
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
        let mut kept = first.json();
        if kept["token"].is_string() {
            // A secret is given once; a repeated request that lost it makes another token.
            kept["token"] = Value::Null;
        }
        assert_eq!((again.status, again.json()), (first.status, kept), "{path}");
        assert_eq!(again.headers["idempotency-replayed"], "true", "{path}");
        for name in ["etag", "content-type"] {
            assert_eq!(again.headers.get(name), first.headers.get(name), "{path}");
        }
        assert_eq!(first.headers.contains_key("etag"), *method == "PATCH", "{path}");
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

/// The process died after the change was made and before its answer was kept: only the change's own
/// transaction knows of it.
#[tokio::test]
async fn a_change_whose_answer_was_lost_is_not_made_again() {
    let rig = Rig::with_site().await;
    let onboarding = json!({ "hostname": "j22u12", "site": "lab", "profile": "h200" });
    let nodes = ("POST", "/api/v1/nodes");
    let first = send(&rig, nodes, &rig.admin, "n1", &onboarding).await.ok();
    let key = ReplayKey { caller: "admin".to_owned(), key: "n1".to_owned() };
    // As it stands while the answer is not kept yet.
    rig.store.end_replayable(&key, [0; 32], None).await.unwrap();
    let again = send(&rig, nodes, &rig.admin, "n1", &onboarding).await;
    assert_eq!((again.status, again.json()), (202, first.clone()));
    assert!(!again.headers.contains_key("idempotency-replayed"), "the answer is made anew");
    rig.store.end_replayable(&key, [0; 32], None).await.unwrap();
    let other = json!({ "hostname": "j22u13", "site": "lab", "profile": "h200" });
    let refused = send(&rig, nodes, &rig.admin, "n1", &other).await;
    assert_eq!(refused.code(), "idempotency_key_reused");
    // Both forget a key at the same time.
    rig.advance(7 * 86_400 + 1);
    assert_ne!(send(&rig, nodes, &rig.admin, "n1", &other).await.ok(), first);
}

/// A key belongs to a token and not to its name, and a stored response holds no secret.
#[tokio::test]
async fn the_next_holder_of_a_name_gets_no_response_of_the_former() {
    let rig = Rig::with_site().await;
    let admin = |name: &str| json!({ "name": name, "grants": [{ "role": "admin" }], "reason": "for the test" });
    let made = rig.post("/api/v1/tokens", admin("re")).await.ok();
    let first = made["token"].as_str().unwrap().to_owned();
    let path = ("POST", "/api/v1/tokens");
    let minted = send(&rig, path, &first, "k", &admin("minted")).await.ok();
    assert!(minted["token"].is_string());
    let replayed = send(&rig, path, &first, "k", &admin("minted")).await;
    assert_eq!(replayed.headers["idempotency-replayed"], "true");
    assert_eq!(replayed.ok()["token"], Value::Null, "a secret is in the first response alone");

    rig.post("/api/v1/tokens/re/revoke", json!({ "reason": "left" })).await.ok();
    let made = rig.post("/api/v1/tokens", admin("re")).await.ok();
    let second = made["token"].as_str().unwrap().to_owned();
    let again = send(&rig, path, &second, "k", &admin("minted")).await;
    assert_eq!(again.code(), "token_name_taken", "it is another caller's request");
    for name in ["admin", "experiment"] {
        assert_eq!(rig.post("/api/v1/tokens", admin(name)).await.code(), "invalid_field", "{name}");
    }
}
