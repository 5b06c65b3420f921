//! What holds for every request.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use crate::rig::Rig;

#[tokio::test]
async fn every_failure_is_a_problem() {
    let rig = Rig::new().await;
    assert_eq!(rig.get("/nowhere").await.code(), "not_found");
    assert_eq!(rig.get("/api/v1/nowhere").await.code(), "not_found");
    let answer = rig.call("DELETE", "/api/v1/health", None, None).await;
    assert_eq!((answer.status, answer.code().as_str()), (405, "method_not_allowed"));
    assert!(answer.headers.contains_key("allow"));
    let answer = rig.call("PUT", "/api/v1/sites", Some(&rig.admin), None).await;
    assert_eq!((answer.status, answer.code().as_str()), (405, "method_not_allowed"));

    let bad = |body: &'static str, kind: &'static str| {
        Request::post("/api/v1/profiles")
            .header("authorization", format!("Bearer {}", rig.admin))
            .header("content-type", kind)
            .body(Body::from(body))
            .unwrap()
    };
    let answer = rig.send(bad("{\"name\": }", "application/json")).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "malformed_json"));
    assert!(answer.json()["detail"].as_str().unwrap().contains("line 1 column 10"));
    let answer = rig.send(bad("name=a", "application/x-www-form-urlencoded")).await;
    assert_eq!((answer.status, answer.code().as_str()), (415, "unsupported_media_type"));
    let huge = "x".repeat(gpuaas_api::MAX_BODY_BYTES + 1);
    let answer = rig.post("/api/v1/profiles", json!({ "name": huge })).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "body_too_large"));
    let answer = rig.get("/api/v1/nodes?color=red").await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_query"));
    let answer = rig.get("/api/v1/nodes?state=ready").await;
    assert_eq!(answer.code(), "invalid_query");
    assert!(answer.json()["hint"].as_str().unwrap().contains("bootstrap_issued"));
}

#[tokio::test]
async fn the_admin_api_wants_the_admin_token() {
    let rig = Rig::with_site().await;
    for path in [
        "/api/v1/sites",
        "/api/v1/profiles",
        "/api/v1/nodes",
        "/api/v1/roce-assignments",
        "/api/v1/runs/x",
    ] {
        let answer = rig.call("GET", path, None, None).await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "token_missing"), "{path}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        let answer = rig.call("GET", path, Some("guess"), None).await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "token_unknown"), "{path}");
    }
    let node = rig.onboard("j22u11").await;
    for purpose in [
        gpuaas_store::TokenPurpose::Bootstrap,
        gpuaas_store::TokenPurpose::Enrollment,
        gpuaas_store::TokenPurpose::Agent,
    ] {
        let token = rig.token(purpose, node.node_id, node.run_id, None).await;
        let answer = rig.call("GET", "/api/v1/nodes", Some(&token), None).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "token_wrong_purpose"));
    }
    assert_eq!(rig.call("GET", "/api/v1/health", None, None).await.ok()["status"], "ok");
    let version = rig.call("GET", "/api/v1/version", None, None).await.ok();
    assert_eq!(version["database"], "sqlite");
}

#[tokio::test]
async fn health_is_red_when_the_database_takes_no_write() {
    let rig = Rig::new().await;
    let health = async || rig.call("GET", "/api/v1/health", None, None).await;
    assert_eq!(health().await.ok()["status"], "ok");
    rig.store.close().await;
    assert_eq!(health().await.ok()["status"], "ok", "a result is good for a second");
    rig.advance(1);
    let red = health().await;
    assert_eq!((red.status, red.code().as_str()), (503, "database_unavailable"));
}

#[tokio::test]
async fn health_is_red_at_once_when_a_loop_has_ended() {
    let rig = Rig::new().await;
    let health = async || rig.call("GET", "/api/v1/health", None, None).await;
    assert_eq!(health().await.ok()["status"], "ok");
    rig.supervisor.spawn("worker", async { panic!("planted") }).await.unwrap();
    let red = health().await;
    assert_eq!((red.status, red.code().as_str()), (503, "loop_ended"));
    let detail = red.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.starts_with("the loop \"worker\" ended: it panicked: planted at "), "{detail}");
    let alive = rig.call("GET", "/bootstrap/v1/health", None, None).await;
    assert_eq!(alive.ok()["status"], "ok", "nodes need no database to fetch what they boot");
}
