//! Publishing, approving and trusting, and what a run is refused for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_bundle::{Archive, Digest, Entry, Envelope, SigningKey, Statement};
use gpuaas_types::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::rig::{Answer, Rig};

const BUNDLES: &str = "/api/v1/bundles";
const KEYS: &str = "/api/v1/bundle-keys";

/// A site bundle of one phase.
pub(crate) fn archive(name: &str, more: &Value) -> Vec<u8> {
    let mut manifest = json!({
        "name": name, "version": "1.0.0", "kind": "site_bootstrap", "about": "a test",
        "phases": [{"name": "p", "run": "p.sh", "timeout_seconds": 1}],
    });
    for (field, value) in more.as_object().unwrap() {
        manifest[field] = value.clone();
    }
    let script = b"#!/bin/bash\nset -euo pipefail\n".to_vec();
    let entry = Entry { bytes: script, executable: true };
    let manifest = serde_json::from_value(manifest).unwrap();
    Archive { manifest, files: [("p.sh".to_owned(), entry)].into() }.write().unwrap()
}

fn signed(key: &SigningKey, name: &str, bytes: &[u8], expires_at: Option<Timestamp>) -> Value {
    let statement = Statement {
        bundle: format!("{name}@1.0.0"),
        digest: Digest::sha256(bytes),
        signed_at: Timestamp::from_micros(1_700_000_000_000_000),
        expires_at,
    };
    serde_json::to_value(key.sign(&statement).unwrap()).unwrap()
}

pub(crate) async fn publish(rig: &Rig, bytes: &[u8], envelope: Option<Value>) -> Answer {
    let mut body = json!({ "archive": BASE64.encode(bytes), "actor": "ann" });
    if let Some(envelope) = envelope {
        body["envelope"] = envelope;
    }
    rig.post(BUNDLES, body).await
}

pub(crate) fn refused(answer: &Answer, status: u16, code: &str) -> Value {
    let body = answer.json();
    assert_eq!((answer.status, body["code"].as_str()), (status, Some(code)), "{body}");
    assert!(!body["hint"].as_str().unwrap_or_default().is_empty() || code == "invalid_field");
    body
}

#[tokio::test]
async fn what_is_published_is_there_by_name_and_digest_and_never_changes() {
    let rig = Rig::with_site().await;
    let bytes = archive("site-net", &json!({}));
    let made = publish(&rig, &bytes, None).await;
    assert_eq!(made.status, 201, "{}", made.json());
    let digest = Digest::sha256(&bytes).to_string();
    let view = made.json();
    assert_eq!(
        (view["digest"].as_str(), &view["built_in"]),
        (Some(digest.as_str()), &false.into())
    );
    assert_eq!(
        (&view["signed_by"], &view["published_by"]),
        (&"this control plane".into(), &"admin (ann)".into())
    );
    assert_eq!(publish(&rig, &bytes, None).await.status, 200);
    for reference in ["site-net@1.0.0".to_owned(), digest.clone(), format!("sha256:{digest}")] {
        assert_eq!(
            rig.get(&format!("{BUNDLES}/{reference}")).await.json()["digest"],
            digest.as_str()
        );
    }
    let path = format!("/bootstrap/v1/artifacts/sha256/{digest}");
    let node = rig.onboard("j22u11").await;
    let purpose = gpuaas_store::TokenPurpose::Bootstrap;
    let token = rig.token(purpose, node.node_id, node.run_id, None).await;
    assert_eq!(rig.call("GET", &path, Some(&token), None).await.bytes, bytes);
    let whole = rig.get(&format!("{BUNDLES}/site-net@1.0.0/archive")).await.json();
    assert_eq!(whole["archive"], BASE64.encode(&bytes));
    assert_eq!(whole["bundle"]["digest"], digest.as_str());
    let envelope = Envelope::parse(whole["envelope"].to_string().as_bytes()).unwrap();
    assert!(!envelope.signatures.is_empty());
    let none = rig.get(&format!("{BUNDLES}/nosuch@1.0.0/archive")).await;
    let body = refused(&none, 400, "bundle_not_found");
    assert_eq!(body["detail"], "bundle not found: nosuch@1.0.0");
    let other = archive("site-net", &json!({ "about": "another" }));
    let body = refused(&publish(&rig, &other, None).await, 409, "bundle_version_taken");
    assert!(body["detail"].as_str().unwrap().contains(&digest));
    let built_in = archive("site-base", &json!({}));
    refused(&publish(&rig, &built_in, None).await, 409, "bundle_version_taken");
    let list = rig.get(BUNDLES).await.json();
    let names: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|b| b["bundle"].as_str().unwrap()).collect();
    assert!(
        names.contains(&"site-net@1.0.0")
            && names.contains(&gpuaas_types::built_in_bundle!("h200-ib")),
        "{names:?}"
    );
}

#[tokio::test]
async fn archives_that_nobody_reads_are_held_in_memory_a_few_at_a_time() {
    let rig = Rig::with_site().await;
    publish(&rig, &archive("site-net", &json!({})), None).await.ok();
    let path = format!("{BUNDLES}/site-net@1.0.0/archive");
    let request = || {
        axum::http::Request::get(&path)
            .header("authorization", format!("Bearer {}", rig.admin))
            .body(axum::body::Body::empty())
            .unwrap()
    };
    let mut unread = Vec::new();
    for _ in 0..4 {
        let answer = rig.router.clone().oneshot(request()).await.unwrap();
        assert_eq!(answer.status(), 200);
        unread.push(answer);
    }
    let refused = rig.send(request()).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "too_many_requests"));
    assert_eq!(refused.headers["retry-after"], "1");
    unread.pop();
    rig.send(request()).await.ok();
    rig.send(request()).await.ok();
}

#[tokio::test]
async fn a_signature_counts_as_long_as_its_key_is_trusted() {
    let rig = Rig::with_site().await;
    let key = SigningKey::generate().unwrap();
    let bytes = archive("site-net", &json!({}));
    let envelope = signed(&key, "site-net", &bytes, None);
    let post = async |envelope: &Value| publish(&rig, &bytes, Some(envelope.clone())).await;
    refused(&post(&envelope).await, 422, "signature_key_unknown");
    refused(&rig.post(KEYS, json!({ "name": "ops", "key": "x" })).await, 400, "invalid_field");
    let trust = json!({ "name": "ops", "key": key.public().to_string() });
    assert_eq!(rig.post(KEYS, trust.clone()).await.status, 201);
    let past =
        signed(&key, "site-net", &bytes, Some(Timestamp::from_micros(1_700_000_001_000_000)));
    refused(&post(&past).await, 422, "signature_expired");
    refused(&post(&signed(&key, "other", &bytes, None)).await, 422, "bundle_name_mismatch");
    refused(&post(&signed(&key, "site-net", b"x", None)).await, 422, "bundle_digest_mismatch");
    refused(&post(&json!({})).await, 422, "signature_malformed");
    let made = post(&envelope).await.json();
    assert_eq!(made["signed_by"], "ops");
    let retired =
        json!({ "name": "ops", "key": key.public().to_string(), "until": "2020-01-01T00:00:00Z" });
    assert_eq!(rig.post(KEYS, retired).await.status, 201);
    assert_eq!(
        rig.get(&format!("{BUNDLES}/site-net@1.0.0")).await.json()["signed_by"],
        Value::Null
    );
    let spec = json!({ "name": "net", "spec": { "site_bootstrap_bundle_ref": "site-net@1.0.0" } });
    rig.post("/api/v1/profiles", spec).await.ok();
    let answer = rig.post("/api/v1/nodes", onboard("net")).await;
    refused(&answer, 422, "signature_key_retired");
    let keys = rig.get(KEYS).await.json();
    assert_eq!(keys["items"][0]["name"], "this control plane");
    refused(
        &rig.post(KEYS, json!({ "name": "this control plane", "key": "x" })).await,
        400,
        "invalid_field",
    );
}

#[tokio::test]
async fn hostile_bytes_are_refused_with_the_reason() {
    let rig = Rig::with_site().await;
    refused(&publish(&rig, b"no tar at all", None).await, 422, "bundle_malformed");
    let mut link = archive("site-net", &json!({}));
    // The type of the second entry: a symbolic link. Its checksum has to fit.
    let second = link.windows(4).position(|w| w == b"p.sh").unwrap();
    let second = (second / 512..).find(|n| &link[n * 512..n * 512 + 5] == b"p.sh\0").unwrap() * 512;
    link[second + 156] = b'2';
    let sum: u32 = (0..512)
        .map(|n| if (148..156).contains(&n) { 32 } else { u32::from(link[second + n]) })
        .sum();
    link[second + 148..second + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let body = refused(&publish(&rig, &link, None).await, 422, "bundle_entry_refused");
    assert!(body["detail"].as_str().unwrap().contains("it is a link"), "{body}");
    let missing = json!({ "requires": [{ "bundle": "below@1.0.0" }] });
    refused(&publish(&rig, &archive("site-net", &missing), None).await, 400, "bundle_not_found");
    let given = json!({ "requires": [{ "bundle": gpuaas_types::built_in_bundle!("h200-ib"), "with": { "nosuch": "1" } }] });
    refused(&publish(&rig, &archive("site-net", &given), None).await, 422, "bundle_input_unknown");
    let answer = rig.post(BUNDLES, json!({ "archive": "?", "actor": "ann" })).await;
    refused(&answer, 400, "invalid_field");
    assert_eq!(rig.get(&format!("{BUNDLES}/site-net@1.0.0")).await.status, 400);
}

pub(crate) fn onboard(profile: &str) -> Value {
    json!({ "hostname": "j22u11", "site": "lab", "profile": profile })
}

#[tokio::test]
async fn a_bundle_is_used_where_it_is_approved() {
    let rig = Rig::with_site().await;
    publish(&rig, &archive("below", &json!({})), None).await.ok();
    let requires = json!({ "requires": [{ "bundle": "below@1.0.0" }] });
    publish(&rig, &archive("site-net", &requires), None).await.ok();
    let spec = json!({ "name": "net", "spec": { "site_bootstrap_bundle_ref": "site-net@1.0.0" } });
    let made = rig.post("/api/v1/profiles", spec).await.json();
    let pins = made["status"]["bundle_pins"].as_array().unwrap();
    assert_eq!(
        (&pins[0]["bundle"], &pins[1]["bundle"]),
        (&"below@1.0.0".into(), &"site-net@1.0.0".into())
    );
    let body =
        refused(&rig.post("/api/v1/nodes", onboard("net")).await, 409, "bundle_not_approved");
    assert!(body["detail"].as_str().unwrap().starts_with("below@1.0.0, site-net@1.0.0"), "{body}");
    assert!(body["hint"].as_str().unwrap().contains("gpuaas bundle approve"), "{body}");
    let order = json!({ "site": "lab", "actor": "ann", "reason": "tried on a rack" });
    let nowhere = json!({ "site": "nosuch", "actor": "ann", "reason": "x" });
    let path = |order: &str| format!("{BUNDLES}/site-net@1.0.0/{order}");
    refused(&rig.post(&path("approve"), nowhere).await, 404, "site_not_found");
    let approved = rig.post(&path("approve"), order.clone()).await.json();
    let items = approved["items"].as_array().unwrap();
    assert!(items.len() == 2 && items.iter().all(|b| b["approved_for"][0] == "lab"), "{approved}");
    rig.post(&path("withdraw"), order.clone()).await.ok();
    let body =
        refused(&rig.post("/api/v1/nodes", onboard("net")).await, 409, "bundle_not_approved");
    assert!(body["detail"].as_str().unwrap().starts_with("site-net@1.0.0 is"), "{body}");
    rig.post(&path("approve"), order).await.ok();
    assert_eq!(rig.post("/api/v1/nodes", onboard("net")).await.status, 202);
}

#[tokio::test]
async fn inputs_are_checked_with_the_profile_and_with_the_run() {
    let rig = Rig::with_site().await;
    let inputs = json!({ "inputs": {
        "uplink": { "type": "interface", "about": "x", "environment": "UPLINK" } } });
    publish(&rig, &archive("site-net", &inputs), None).await.ok();
    let order = json!({ "site": "lab", "actor": "ann", "reason": "tried" });
    rig.post(&format!("{BUNDLES}/site-net@1.0.0/approve"), order).await.ok();
    let profile = |name: &str, inputs: Value| {
        json!({ "name": name, "spec": {
            "site_bootstrap_bundle_ref": "site-net@1.0.0", "site_bootstrap_inputs": inputs } })
    };
    let post = async |body: Value| rig.post("/api/v1/profiles", body).await;
    let body =
        refused(&post(profile("a", json!({ "uplnik": "x" }))).await, 422, "bundle_input_unknown");
    assert_eq!(body["errors"][0]["field"], "spec.site_bootstrap_inputs");
    refused(&post(profile("a", json!({ "uplink": "a/b" }))).await, 422, "bundle_input_invalid");
    let none = json!({ "name": "a", "spec": { "site_bootstrap_inputs": { "uplink": "x" } } });
    refused(&post(none).await, 400, "invalid_field");
    post(profile("net", json!({}))).await.ok();
    refused(&rig.post("/api/v1/nodes", onboard("net")).await, 422, "bundle_input_missing");
    let patch = |value: Value| json!({ "bundle_inputs": { "site-net": value } });
    let site = "/api/v1/sites/lab";
    refused(&rig.patch(site, patch(json!({ "nosuch": "x" }))).await, 400, "invalid_field");
    rig.patch(site, patch(json!({ "uplink": "eno1" }))).await.ok();
    assert_eq!(rig.post("/api/v1/nodes", onboard("net")).await.status, 202);
}

/// What is of one host each is set for one host, and what two of them would share is refused.
#[tokio::test]
async fn a_value_of_one_host_is_of_no_other() {
    let rig = Rig::with_site().await;
    let site = "/api/v1/sites/lab";
    let patch = async |value: Value| rig.patch(site, json!({ "host_inputs": value })).await;
    let ib = |values: Value| json!({ "h200-ib": values });
    // A site, or a profile, has one value for all of its hosts.
    let everybodys =
        json!({ "bundle_inputs": { "h200-ib": { "ipoib_addresses": "192.168.7.1/16" } } });
    refused(&rig.patch(site, everybodys).await, 422, "bundle_input_not_of_one_host");
    let profile = json!({ "name": "ib", "spec": { "site_bootstrap_bundle_ref": gpuaas_types::built_in_bundle!("h200-ib"),
        "site_bootstrap_inputs": { "management_address": "10.0.0.1/24" } } });
    let answer = rig.post("/api/v1/profiles", profile).await;
    refused(&answer, 422, "bundle_input_not_of_one_host");
    let own = |address: &str| ib(json!({ "ipoib_addresses": address }));
    let (first, second) = (own("192.168.7.1/16"), own("192.168.7.2/16"));
    patch(json!({ "j22u11": first, "j22u15": second })).await.ok();
    let shared = patch(json!({ "j22u11": first, "j22u15": own("192.168.7.1/24") })).await;
    let body = refused(&shared, 422, "bundle_input_shared");
    assert_eq!(body["errors"][0]["field"], "host_inputs");
    assert!(body["detail"].as_str().unwrap().contains("j22u11 and j22u15"), "{body}");
    // Two management networks whose hosts have one number get one address on the fabric.
    let of = |address: &str| ib(json!({ "management_address": address }));
    let collide = patch(json!({ "j22u11": of("10.1.0.5/16"), "j22u15": of("10.2.0.5/16") })).await;
    let body = refused(&collide, 422, "bundle_input_shared");
    assert!(body["detail"].as_str().unwrap().contains("192.168.0.5"), "{body}");
    refused(&patch(json!({ "j22u11": own("nonsense") })).await, 422, "bundle_input_invalid");
    refused(&patch(json!({ "j22u11": ib(json!({ "nosuch": "1" })) })).await, 400, "invalid_field");
    refused(&patch(json!({ "-": first })).await, 400, "invalid_field");
    // A host's value for a bundle that its own requires has to reach it.
    let slices = json!({ "name": "slices", "spec": { "site_bootstrap_bundle_ref": gpuaas_types::built_in_bundle!("h200-slice-vm") } });
    rig.post("/api/v1/profiles", slices).await.ok();
    patch(json!({ "j22u11": ib(json!({ "gpu_count": "4" })) })).await.ok();
    let asked = refused(
        &rig.post("/api/v1/nodes", onboard("slices")).await,
        422,
        "bundle_input_not_passed_on",
    );
    assert!(
        asked["detail"].as_str().unwrap().contains(gpuaas_types::built_in_bundle!("h200-slice-vm")),
        "{asked}"
    );
    patch(json!({ "j22u11": ib(json!({ "fabric_links": "8" })) })).await.ok();
    assert_eq!(rig.post("/api/v1/nodes", onboard("slices")).await.status, 202);
}
