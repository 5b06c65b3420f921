//! Secret inputs of bundles: they go in, reach runs, and never come out.

use serde_json::{Value, json};

use crate::bundles::{archive, onboard, publish, refused};
use crate::rig::{Answer, Rig};

const VALUE: &str = "/run/h8sh-h8sh";
const SITE: &str = "/api/v1/sites/lab/secrets";
const PROFILE: &str = "/api/v1/profiles/vault/secrets";

/// A site whose profile `vault` has a bundle with a secret that has to be set.
async fn rig() -> Rig {
    let rig = Rig::with_site().await;
    let inputs = json!({ "inputs": {
        "uplink": { "type": "interface", "about": "x", "environment": "UPLINK", "default": "eno1" },
        "token": { "type": "path", "about": "x", "environment": "TOKEN", "secret": true } } });
    publish(&rig, &archive("vault", &inputs), None).await.ok();
    let order = json!({ "site": "lab", "actor": "ann", "reason": "tried" });
    rig.post("/api/v1/bundles/vault@1.0.0/approve", order).await.ok();
    let spec = json!({ "name": "vault", "spec": { "site_bootstrap_bundle_ref": "vault@1.0.0" } });
    rig.post("/api/v1/profiles", spec).await.ok();
    rig
}

/// No answer holds the value, whatever was asked.
async fn ask(rig: &Rig, method: &str, path: &str, body: Option<Value>) -> Answer {
    let answer = rig.call(method, path, Some(&rig.admin), body).await;
    let text = String::from_utf8_lossy(&answer.bytes);
    assert!(!text.contains("h8sh"), "{method} {path}: {text}");
    answer
}

async fn put(rig: &Rig, below: &str, value: &str) -> Answer {
    ask(rig, "PUT", below, Some(json!({ "value": value, "actor": "ann" }))).await
}

#[tokio::test]
async fn a_secret_goes_in_reaches_a_run_and_is_never_shown() {
    let rig = rig().await;
    let missing = || ask(&rig, "POST", "/api/v1/nodes", Some(onboard("vault")));
    let body = refused(&missing().await, 422, "bundle_secret_missing");
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("gpuaas site secret set lab vault token --file FILE"), "{detail}");
    let batch = json!({ "spec": { "name": "rack-7", "site": "lab", "profile": "vault",
        "machines": [{ "hostname": "j22u11" }] } });
    let body = ask(&rig, "POST", "/api/v1/batches", Some(batch)).await.json();
    assert!(body["errors"].to_string().contains("gpuaas site secret set"), "{body}");
    assert_eq!(ask(&rig, "GET", SITE, None).await.ok()["items"], json!([]));

    let token = format!("{SITE}/vault/token");
    let set = put(&rig, &token, VALUE).await.ok();
    assert_eq!((&set["bundle"], &set["input"]), (&"vault".into(), &"token".into()));
    assert_eq!((&set["set_by"], set["set_at"].is_null()), (&"admin (ann)".into(), false));
    assert_eq!(ask(&rig, "GET", SITE, None).await.ok()["items"], json!([set]));
    assert_eq!(ask(&rig, "GET", PROFILE, None).await.ok()["items"], json!([]));
    assert_eq!(missing().await.status, 202);
    for path in [
        "/api/v1/sites/lab",
        "/api/v1/profiles/vault",
        "/api/v1/bundles/vault@1.0.0",
        "/api/v1/nodes/j22u11",
        "/api/v1/nodes/j22u11/explain",
    ] {
        ask(&rig, "GET", path, None).await.ok();
    }

    let gone = ask(&rig, "DELETE", &format!("{token}?actor=bob"), None).await.ok();
    assert_eq!(gone["items"], json!([]));
    let again = ask(&rig, "DELETE", &format!("{token}?actor=bob"), None).await;
    refused(&again, 404, "secret_not_found");
    let other = json!({ "hostname": "j22u15", "site": "lab", "profile": "vault" });
    let body = ask(&rig, "POST", "/api/v1/nodes", Some(other.clone())).await;
    refused(&body, 422, "bundle_secret_missing");
    // That of a profile is as good.
    put(&rig, &format!("{PROFILE}/vault/token"), VALUE).await.ok();
    assert_eq!(ask(&rig, "POST", "/api/v1/nodes", Some(other)).await.status, 202);
    let gone = ask(&rig, "DELETE", &format!("{PROFILE}/vault/token?actor=bob"), None).await;
    assert_eq!(gone.status, 200);

    let audit = rig.store.audit_entries(0, 100).await.unwrap();
    let told: Vec<String> = audit
        .iter()
        .filter(|row| row.entry.action.contains(".secret."))
        .map(|row| {
            let detail = &row.entry.detail;
            let by = &row.entry.actor;
            format!("{} {} {} {by}", row.entry.action, row.entry.subject, detail["input"])
        })
        .collect();
    assert_eq!(
        told,
        [
            "site.secret.set lab \"token\" admin (ann)",
            "site.secret.delete lab \"token\" admin (bob)",
            "profile.secret.set vault \"token\" admin (ann)",
            "profile.secret.delete vault \"token\" admin (bob)",
        ]
    );
    assert!(!format!("{audit:?}").contains("h8sh"));
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused_without_the_value() {
    let rig = rig().await;
    for (below, value, status, code) in [
        ("nosuch/token", VALUE, 400, "bundle_not_found"),
        ("validate-base/token", VALUE, 400, "bundle_not_found"),
        ("vault/nosuch", VALUE, 422, "bundle_input_unknown"),
        ("vault/uplink", "h8sh", 422, "bundle_input_not_secret"),
        ("vault/token", "h8sh/no/path", 422, "bundle_input_invalid"),
        ("vault/token", "/h8sh\nX=1", 422, "bundle_input_invalid"),
    ] {
        refused(&put(&rig, &format!("{SITE}/{below}"), value).await, status, code);
        refused(&put(&rig, &format!("{PROFILE}/{below}"), value).await, status, code);
    }
    refused(&put(&rig, "/api/v1/sites/no/secrets/vault/token", VALUE).await, 404, "site_not_found");
    let nowhere = put(&rig, "/api/v1/profiles/no/secrets/vault/token", VALUE).await;
    refused(&nowhere, 404, "profile_not_found");
    let token = format!("{SITE}/vault/token");
    for (body, code) in [
        (json!({ "value": VALUE }), "missing_field"),
        (json!({ "value": 7, "actor": "ann" }), "invalid_field"),
        (json!({ "value": VALUE, "actor": "ann", "h8": 1 }), "unknown_field"),
    ] {
        assert_eq!(ask(&rig, "PUT", &token, Some(body)).await.code(), code);
    }
    assert_eq!(ask(&rig, "DELETE", &token, None).await.code(), "invalid_query");
    assert_eq!(ask(&rig, "GET", SITE, None).await.ok()["items"], json!([]));
    let audit = format!("{:?}", rig.store.audit_entries(0, 100).await.unwrap());
    assert!(!audit.contains("secret.set") && !audit.contains("h8sh"), "{audit}");
}

#[tokio::test]
async fn a_secret_among_open_values_is_refused_and_its_command_named() {
    let rig = rig().await;
    let patch = json!({ "site_bootstrap_inputs": { "token": VALUE } });
    let of_profile = ask(&rig, "PATCH", "/api/v1/profiles/vault", Some(patch)).await;
    let patch = json!({ "bundle_inputs": { "vault": { "token": VALUE } } });
    let of_site = ask(&rig, "PATCH", "/api/v1/sites/lab", Some(patch)).await;
    for answer in [of_profile, of_site] {
        let body = refused(&answer, 422, "bundle_secret_in_open");
        let hint = body["hint"].as_str().unwrap();
        assert!(hint.contains("gpuaas site secret set SITE vault token --file FILE"), "{hint}");
    }
}

#[tokio::test]
async fn a_bundle_that_would_show_a_secret_is_not_published() {
    let rig = rig().await;
    let gives = json!({
        "inputs": { "key": { "type": "string", "about": "x", "environment": "KEY", "secret": true } },
        "requires": [{ "bundle": "vault@1.0.0", "with": { "uplink": "x{key}" } }],
    });
    let body = refused(
        &publish(&rig, &archive("above", &gives), None).await,
        422,
        "bundle_secret_given_away",
    );
    assert!(body["detail"].as_str().unwrap().contains("input uplink"), "{body}");
}
