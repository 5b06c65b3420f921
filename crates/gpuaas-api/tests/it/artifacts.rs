//! Artifacts by digest, and who may fetch them.

use gpuaas_engine::tokens::artifact_pass;
use gpuaas_store::TokenPurpose;

use crate::rig::Rig;

#[tokio::test]
async fn artifacts_are_served_by_digest() {
    let rig = Rig::with_site().await;
    let node = rig.onboard("j22u11").await;
    let token = async |purpose| rig.token(purpose, node.node_id, node.run_id, Some(3600)).await;
    let boot = token(TokenPurpose::Bootstrap).await;
    let bytes: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    let stored = rig.artifacts.put_bytes(&bytes).unwrap();
    let path = format!("/bootstrap/v1/artifacts/sha256/{}", stored.digest);
    for (credential, code) in [
        (None, "token_missing"),
        (Some("junk"), "token_unknown"),
        (Some(&*rig.admin), "token_wrong_purpose"),
    ] {
        for method in ["GET", "HEAD"] {
            let refused = rig.call(method, &path, credential, None).await;
            assert!(matches!(refused.status, 401 | 403), "{}", refused.status);
            assert!(method == "HEAD" || refused.code() == code, "{}", refused.code());
        }
    }
    let enrollment = token(TokenPurpose::Enrollment).await;
    let agent = token(TokenPurpose::Agent).await;
    let now = rig.now();
    let pass = artifact_pass(&rig.store, &stored.digest, now).unwrap();
    for credential in [&boot, &enrollment, &agent, &pass] {
        assert_eq!(rig.call("GET", &path, Some(credential), None).await.bytes, bytes);
    }
    let other = artifact_pass(&rig.store, &gpuaas_artifact::Digest::sha256(b"x"), now).unwrap();
    assert_eq!(rig.call("GET", &path, Some(&other), None).await.code(), "token_unknown");
    let answer = rig.call("GET", &path, Some(&boot), None).await;
    assert_eq!((answer.status, &answer.bytes), (200, &bytes));
    assert_eq!(answer.headers["content-length"], "300000");
    assert!(answer.headers["cache-control"].to_str().unwrap().contains("private"));
    let head = rig.call("HEAD", &path, Some(&boot), None).await;
    assert_eq!((head.status, head.bytes.len()), (200, 0));
    let request = axum::http::Request::get(&path)
        .header("if-none-match", answer.headers["etag"].clone())
        .header("authorization", format!("Bearer {boot}"))
        .body(axum::body::Body::empty())
        .unwrap();
    assert_eq!(rig.send(request).await.status, 304);
    let missing = format!("/bootstrap/v1/artifacts/sha256/{}", "0".repeat(64));
    for path in [missing.as_str(), "/bootstrap/v1/artifacts/sha256/..%2f..%2fgpuaas.db"] {
        let answer = rig.call("GET", path, Some(&boot), None).await;
        assert_eq!((answer.status, answer.code().as_str()), (404, "artifact_not_found"));
    }
    assert_eq!(rig.call("GET", "/bootstrap/v1/health", None, None).await.ok()["status"], "ok");
}
