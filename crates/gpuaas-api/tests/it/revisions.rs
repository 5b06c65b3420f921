//! Changes of what somebody else may have changed meanwhile, and the address under which the runbook
//! of host images changes a profile.

use axum::body::Body;
use axum::http::Request;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::rig::{Answer, KEY, Rig};

/// Sends a change with headers of its own.
async fn patch(rig: &Rig, path: &str, headers: &[(&str, &str)], body: Value) -> Answer {
    let mut request = Request::patch(path)
        .header("authorization", format!("Bearer {}", rig.admin))
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    rig.send(request.body(Body::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn a_change_of_a_revision_that_is_gone_is_refused() {
    let rig = Rig::with_site().await;
    for (path, first, second) in [
        (
            "/api/v1/profiles/h200",
            json!({ "release_erase": false }),
            json!({ "deploy_user": "ops" }),
        ),
        (
            "/api/v1/sites/lab",
            json!({ "idle_poll_seconds": 7 }),
            json!({ "batch_max_parallel": 3 }),
        ),
    ] {
        let read = rig.get(path).await;
        let tag = read.headers["etag"].to_str().unwrap().to_owned();
        let changed = patch(&rig, path, &[("if-match", &tag)], first.clone()).await;
        let newer = changed.headers["etag"].to_str().unwrap().to_owned();
        changed.ok();
        assert_ne!(newer, tag, "{path}");
        let late = patch(&rig, path, &[("if-match", &tag)], second.clone()).await;
        assert_eq!((late.status, late.code().as_str()), (412, "revision_changed"), "{path}");
        let (name, _) = second.as_object().unwrap().iter().next().unwrap();
        let stored = rig.get(path).await.ok();
        assert_ne!(stored["spec"][name], second[name], "{path}: nothing of it is kept");
        patch(&rig, path, &[("if-match", &newer)], second.clone()).await.ok();
        let both = rig.get(path).await.ok();
        for body in [&first, &second] {
            for (name, value) in body.as_object().unwrap() {
                assert_eq!(both["spec"][name], *value, "{path}");
            }
        }
    }
}

#[tokio::test]
async fn changes_of_several_at_once_are_all_kept() {
    let rig = Rig::with_site().await;
    let fields = [
        ("release_erase", json!(false)),
        ("deploy_user", json!("ops")),
        ("image_size_megabytes", json!(4000)),
        ("offline_after_seconds", json!(400)),
    ];
    let changes = fields.iter().map(|(name, value)| {
        let mut body = json!({});
        body[*name] = value.clone();
        patch(&rig, "/api/v1/profiles/h200", &[], body)
    });
    for answer in join_all(changes).await {
        answer.ok();
    }
    let stored = rig.get("/api/v1/profiles/h200").await.ok();
    for (name, value) in fields {
        assert_eq!(stored["spec"][name], value);
    }
    assert_eq!(stored["revision"], 5);
}

#[tokio::test]
async fn the_runbooks_call_selects_an_image_and_takes_it_back() {
    let rig = Rig::with_site().await;
    let site = rig.get("/api/v1/sites/lab").await.ok()["id"].as_str().unwrap().to_owned();
    let profile = rig.get("/api/v1/profiles/h200").await.ok()["id"].as_str().unwrap().to_owned();
    let by_id = format!("/api/v1/admin/maas-sites/{site}/profiles/{profile}");
    let by_name = "/api/v1/admin/maas-sites/lab/profiles/h200".to_owned();
    let mut revision = 1;
    for path in [by_id, by_name] {
        for image in ["gpuaas-h200-host-ubuntu2404", "ubuntu/noble"] {
            revision += 1;
            let key = format!("maas-profile-image-{revision}");
            let body = json!({ "distro_series": image });
            let first = patch(&rig, &path, &[("x-idempotency-key", &key)], body.clone()).await;
            let again = patch(&rig, &path, &[("x-idempotency-key", &key)], body).await;
            assert_eq!((again.status, &again.bytes), (first.status, &first.bytes));
            let changed = first.ok();
            assert_eq!(changed["spec"]["distro_series"], image);
            assert_eq!(changed["revision"], revision);
        }
        assert_eq!(rig.get(&path).await.ok()["spec"]["distro_series"], "ubuntu/noble");
    }
    let body = json!({ "distro_series": "noble" });
    let unknown = "/api/v1/admin/maas-sites/nowhere/profiles/h200";
    assert_eq!(patch(&rig, unknown, &[], body.clone()).await.code(), "site_not_found");
    let unknown = "/api/v1/admin/maas-sites/lab/profiles/none";
    assert_eq!(patch(&rig, unknown, &[], body.clone()).await.code(), "profile_not_found");
    let mut other = crate::rig::site("other");
    other["spec"]["pool"] = json!("north");
    rig.post("/api/v1/sites", other).await.ok();
    rig.patch("/api/v1/profiles/h200", json!({ "sites": ["other"] })).await.ok();
    let refused = patch(&rig, "/api/v1/admin/maas-sites/lab/profiles/h200", &[], body).await;
    assert_eq!(refused.code(), "profile_not_for_site");
}

#[tokio::test]
async fn the_key_of_a_region_goes_to_no_other_server() {
    let rig = Rig::with_site().await;
    let known = rig.get("/api/v1/sites/lab").await.ok()["spec"]["url"].as_str().unwrap().to_owned();
    for elsewhere in ["https://maas.example:5240/MAAS", "http://maas.example:5241/MAAS"] {
        assert_ne!(known, elsewhere);
        let refused = rig.patch("/api/v1/sites/lab", json!({ "url": elsewhere })).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_field"));
        assert_eq!(refused.json()["errors"][0]["field"], "api_key", "{elsewhere}");
        assert!(!rig.maas.urls.lock().unwrap().iter().any(|url| url == elsewhere));
        assert_eq!(rig.get("/api/v1/sites/lab").await.ok()["spec"]["url"], known.as_str());
    }
    let given = json!({ "url": "https://maas.example:5240/MAAS", "api_key": KEY });
    rig.patch("/api/v1/sites/lab", given).await.ok();
}
