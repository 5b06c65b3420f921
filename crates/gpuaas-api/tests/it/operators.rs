//! Sites, profiles, fabric addresses.

use gpuaas_api::{ApiSettings, NodeAccess};
use gpuaas_store::{ExposeSecret as _, Store};
use maas_client::TransportError;
use serde_json::{Value, json};

use crate::rig::{BEGIN, KEY, Reply, Rig, VERSION, reply, site};

async fn no_site(store: &Store) {
    assert!(store.sites().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_site_is_asked_before_it_is_stored() {
    let rig = Rig::new().await;
    let answer = rig.post("/api/v1/sites", site("lab")).await;
    assert_eq!(answer.status, 201);
    let made = answer.ok();
    assert_eq!(made["status"]["maas_version"], "3.7.3");
    assert_eq!(made["status"]["maas_user"], "admin");
    assert_eq!(rig.get("/api/v1/sites/lab").await.ok(), made);
    let list = rig.get("/api/v1/sites").await;
    assert!(!String::from_utf8_lossy(&list.bytes).contains("verysecret"));
    assert_eq!(list.ok()["items"][0], made);
    let id = made["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(rig.store.site_api_key(id).await.unwrap().expose_secret(), KEY);
    assert_eq!(rig.post("/api/v1/sites", site("lab")).await.code(), "site_name_taken");
    assert_eq!(rig.get("/api/v1/sites/other").await.code(), "site_not_found");
}

#[tokio::test]
async fn a_second_site_of_a_region_is_refused() {
    let rig = Rig::new().await;
    let mark = |region: &str| {
        let tag = json!({ "name": "gpuaas-control-plane", "comment": format!("region={region}") });
        reply(200, "application/json", &tag.to_string())
    };
    *rig.maas.tags.lock().unwrap() = mark("one");
    let made = rig.post("/api/v1/sites", site("lab")).await.ok();
    assert_eq!(made["status"]["region"], "one");
    let refused = rig.post("/api/v1/sites", site("second")).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "region_taken"));
    let refused = refused.json();
    assert!(refused["detail"].as_str().unwrap().contains("site lab"), "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("gpuaas site show"), "{refused}");

    *rig.maas.tags.lock().unwrap() = mark("two");
    rig.post("/api/v1/sites", site("second")).await.ok();
    *rig.maas.tags.lock().unwrap() = mark("one");
    let url = json!({ "url": "http://10.0.0.1:5240/MAAS", "api_key": KEY });
    assert_eq!(rig.patch("/api/v1/sites/second", url.clone()).await.code(), "region_taken");
    assert_eq!(rig.patch("/api/v1/sites/lab", url).await.ok()["status"]["region"], "one");

    // A mark that can be neither read nor written leaves the address.
    *rig.maas.tags.lock().unwrap() = reply(403, "text/plain", "");
    let mut spelled = site("third");
    spelled["spec"]["url"] = json!("http://10.0.0.1:5240//MAAS/");
    assert_eq!(rig.post("/api/v1/sites", spelled).await.code(), "region_taken");
    assert_eq!(rig.post("/api/v1/sites", site("third")).await.ok()["status"]["region"], "");
}

#[tokio::test]
async fn a_site_that_maas_does_not_confirm_is_not_stored() {
    let text = "text/plain";
    let versions: [(Reply, &str); 6] = [
        (Err(TransportError::Connect("refused".to_owned())), "maas_unreachable"),
        (Err(TransportError::Timeout), "maas_unreachable"),
        (reply(502, "text/html", "<html>"), "maas_unreachable"),
        (reply(200, "text/html", "<html>hello</html>"), "not_a_maas"),
        (reply(404, "text/html", "<html>"), "not_a_maas"),
        (reply(200, "application/json", r#"{"version":"3.3.9"}"#), "maas_version_unsupported"),
    ];
    for (answer, code) in versions {
        let rig = Rig::new().await;
        *rig.maas.version.lock().unwrap() = answer;
        let answer = rig.post("/api/v1/sites", site("lab")).await;
        assert_eq!(answer.code(), code);
        assert!(!answer.json()["hint"].as_str().unwrap().is_empty(), "{code}");
        no_site(&rig.store).await;
    }
    for (tls, named) in [
        ("invalid peer certificate: UnknownIssuer", "--ca-file"),
        ("invalid peer certificate: Expired", "dates"),
        ("received corrupt message of type InvalidContentType", "http://"),
    ] {
        let rig = Rig::new().await;
        *rig.maas.version.lock().unwrap() = Err(TransportError::Connect(tls.to_owned()));
        let answer = rig.post("/api/v1/sites", site("lab")).await;
        assert_eq!(answer.code(), "maas_unreachable");
        assert!(answer.json()["hint"].as_str().unwrap().contains(named), "{tls}");
    }
    let user = r#"{"username":"alice","is_superuser":false}"#;
    let skew = "Authorization Error: 'Expired timestamp: given 1795190400 and now 1795190999 has a greater difference than threshold 300'";
    let keys: [(Reply, &str, u16); 4] = [
        (
            reply(401, text, "Authorization Error: 'Invalid access token: x'"),
            "maas_key_refused",
            422,
        ),
        (
            reply(
                401,
                text,
                "Authorization Error: 'Invalid signature. Expected signature base string: verysecret'",
            ),
            "maas_key_refused",
            422,
        ),
        (reply(200, "application/json", user), "maas_not_admin", 422),
        (reply(401, text, skew), "clock_skew", 422),
    ];
    for (answer, code, status) in keys {
        let rig = Rig::new().await;
        *rig.maas.whoami.lock().unwrap() = answer;
        let answer = rig.post("/api/v1/sites", site("lab")).await;
        assert_eq!((answer.code().as_str(), answer.status), (code, status));
        assert!(!String::from_utf8_lossy(&answer.bytes).contains("verysecret"));
        if code == "clock_skew" {
            assert_eq!(answer.json()["detail"], "this host's clock is 599 s behind MAAS's");
        }
        no_site(&rig.store).await;
    }
}

#[tokio::test]
async fn a_region_that_loses_the_first_answer_is_asked_again() {
    let rig = Rig::new().await;
    *rig.maas.first_version.lock().unwrap() = Some(Err(TransportError::Timeout));
    assert_eq!(rig.post("/api/v1/sites", site("lab")).await.status, 201);
}

#[tokio::test]
async fn a_malformed_site_is_not_even_asked() {
    let rig = Rig::new().await;
    *rig.maas.version.lock().unwrap() = Err(TransportError::Timeout);
    let refuse = async |path: &str, value: Value, field: &str| {
        let mut body = site("lab");
        *body.pointer_mut(path).unwrap() = value;
        let answer = rig.post("/api/v1/sites", body).await;
        assert_eq!(answer.code(), "invalid_field");
        assert_eq!(answer.json()["errors"][0]["field"], field);
        no_site(&rig.store).await;
    };
    refuse("/spec/name", json!("Lab 1"), "spec.name").await;
    refuse("/spec/url", json!("maas.example"), "spec.url").await;
    refuse("/spec/url", json!("http://user:pass@maas.example/MAAS"), "spec.url").await;
    refuse("/spec/url", json!(7), "spec.url").await;
    refuse("/api_key", json!("no-colons"), "api_key").await;
    let mut body = site("lab");
    body["spec"]["pxe_vlann"] = json!(5);
    let answer = rig.post("/api/v1/sites", body).await;
    assert_eq!(answer.code(), "unknown_field");
    assert_eq!(answer.json()["hint"], "did you mean pxe_vlan?");
}

#[tokio::test]
async fn a_site_changes_field_by_field() {
    let rig = Rig::with_site().await;
    *rig.maas.version.lock().unwrap() = Err(TransportError::Timeout);
    let path = "/api/v1/sites/lab";
    let changed =
        rig.patch(path, json!({ "pxe_vlan": 5, "approved_images": ["custom/h200"] })).await.ok();
    assert_eq!((&changed["spec"]["pxe_vlan"], &changed["revision"]), (&json!(5), &json!(2)));
    let changed = rig.patch(path, json!({ "pxe_vlan": null, "approved_images": null })).await.ok();
    assert!(
        changed["spec"].get("pxe_vlan").is_none()
            && changed["spec"].get("approved_images").is_none()
    );
    assert_eq!(rig.patch(path, json!({ "name": "other" })).await.code(), "invalid_field");
    assert_eq!(rig.patch(path, json!({ "pxe_vlan": 4095 })).await.code(), "invalid_field");
    let half = json!({ "approved_images": ["custom/h200@sha256:abc"] });
    assert_eq!(rig.patch(path, half).await.code(), "invalid_field");
    assert_eq!(rig.patch(path, json!({ "color": null })).await.code(), "unknown_field");
    assert_eq!(rig.patch(path, json!({ "node_ca_pem": "no pem" })).await.code(), "invalid_field");
    let new_url = json!({ "url": "http://other.example/MAAS", "api_key": "a:b:newsecret" });
    assert_eq!(rig.patch(path, new_url.clone()).await.code(), "maas_unreachable");
    assert_eq!(rig.get(path).await.ok()["revision"], 3);
    *rig.maas.version.lock().unwrap() = reply(200, "application/json", VERSION);
    let changed = rig.patch(path, new_url).await.ok();
    assert_eq!(changed["spec"]["url"], "http://other.example/MAAS");
    let id = changed["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(rig.store.site_api_key(id).await.unwrap().expose_secret(), "a:b:newsecret");
    let audit = rig.store.audit_entries(0, 100).await.unwrap();
    assert_eq!(audit.last().unwrap().entry.action, "site.change");
    assert!(!format!("{audit:?}").contains("newsecret"));
}

#[tokio::test]
async fn a_profile_has_revisions() {
    let rig = Rig::new().await;
    let path = "/api/v1/profiles/h200";
    let made = rig.post("/api/v1/profiles", json!({ "name": "h200" })).await;
    assert_eq!(made.status, 201);
    assert_eq!(made.ok()["spec"]["max_deploy_retry_attempts"], 2);
    let changed = rig
        .patch(path, json!({ "max_deploy_retry_attempts": 5, "site_bootstrap_bundle_ref": "site-base@1.0.0" }))
        .await
        .ok();
    assert_eq!(
        (&changed["revision"], &changed["spec"]["max_deploy_retry_attempts"]),
        (&json!(2), &json!(5))
    );
    assert_eq!(changed["status"]["site_bootstrap_bundle_digest"].as_str().unwrap().len(), 64);
    let back = rig.patch(path, json!({ "max_deploy_retry_attempts": null })).await.ok();
    assert_eq!(
        (&back["revision"], &back["spec"]["max_deploy_retry_attempts"]),
        (&json!(3), &json!(2))
    );
    assert_eq!(rig.patch(path, json!({})).await.ok()["revision"], 3);
    assert_eq!(rig.get(path).await.ok(), back);
    assert_eq!(rig.get("/api/v1/profiles").await.ok()["items"][0], back);
    let taken = rig.post("/api/v1/profiles", json!({ "name": "h200" })).await;
    assert_eq!(taken.code(), "profile_name_taken");
    assert_eq!(rig.patch("/api/v1/profiles/x", json!({})).await.code(), "profile_not_found");
    assert_eq!(rig.get("/api/v1/profiles/x").await.code(), "profile_not_found");
}

#[tokio::test]
async fn every_preset_is_a_profile() {
    let rig = Rig::new().await;
    let presets = rig.get("/api/v1/profile-presets").await.ok();
    let presets = presets["items"].as_array().unwrap();
    assert_eq!(presets.len(), 9);
    for preset in presets {
        let body = json!({ "name": preset["name"], "spec": preset["spec"] });
        let made = rig.post("/api/v1/profiles", body).await;
        assert_eq!(made.status, 201, "{preset}: {}", made.json());
        assert_eq!(made.ok()["spec"], preset["spec"]);
    }
}

#[tokio::test]
async fn a_bad_profile_is_refused_with_the_field() {
    let rig = Rig::new().await;
    for (spec, code, field) in [
        (
            json!({ "hardware_sync_interval": "15 minutes" }),
            "invalid_field",
            "spec.hardware_sync_interval",
        ),
        (
            json!({ "enrollment_token_ttl_seconds": 59 }),
            "invalid_field",
            "spec.enrollment_token_ttl_seconds",
        ),
        (
            json!({ "max_deploy_retry_attempts": 1000 }),
            "invalid_field",
            "spec.max_deploy_retry_attempts",
        ),
        (json!({ "distro_series": "" }), "invalid_field", "spec.distro_series"),
        (json!({ "deploy_user": "Root User" }), "invalid_field", "spec.deploy_user"),
        (json!({ "fabric_mode": "fibre" }), "invalid_field", "spec.fabric_mode"),
        (
            json!({ "fabric_mode": "ib", "enable_phase2_roce": true }),
            "invalid_field",
            "spec.enable_phase2_roce",
        ),
        (
            json!({ "storage_layout_profile": "blank" }),
            "invalid_field",
            "spec.storage_layout_profile",
        ),
        (json!({ "release_mode": "never" }), "invalid_field", "spec.release_mode"),
        (json!({ "strict_pxe_preflight": "yes" }), "invalid_field", "spec.strict_pxe_preflight"),
        (
            json!({ "site_bootstrap_bundle_ref": "nope" }),
            "bundle_ref_invalid",
            "spec.site_bootstrap_bundle_ref",
        ),
        (
            json!({ "site_bootstrap_bundle_ref": "nope@1" }),
            "bundle_not_found",
            "spec.site_bootstrap_bundle_ref",
        ),
        (json!({ "strict_pxe": true }), "unknown_field", "spec.strict_pxe"),
    ] {
        let answer = rig.post("/api/v1/profiles", json!({ "name": "p", "spec": spec })).await;
        assert_eq!((answer.code().as_str(), answer.status), (code, 400), "{spec}");
        assert_eq!(answer.json()["errors"][0]["field"], field);
        if code == "bundle_not_found" {
            assert!(answer.json()["hint"].as_str().unwrap().contains("site-base@1.0.0"));
        }
    }
    assert_eq!(rig.post("/api/v1/profiles", json!({ "name": "P" })).await.code(), "invalid_field");
    assert!(rig.store.profiles().await.unwrap().is_empty());

    let answer = rig
        .post("/api/v1/profiles", json!({ "name": "p", "spec": { "max_deploy_retries": 3 } }))
        .await;
    insta::assert_snapshot!(serde_json::to_string_pretty(&answer.json()).unwrap(), @r#"
    {
      "code": "unknown_field",
      "detail": "unknown field spec.max_deploy_retries",
      "errors": [
        {
          "field": "spec.max_deploy_retries",
          "message": "unknown field"
        }
      ],
      "hint": "did you mean max_deploy_retry_attempts?",
      "status": 400,
      "title": "Unknown field in the request"
    }
    "#);
    rig.post("/api/v1/profiles", json!({ "name": "p" })).await.ok();
    let answer = rig.patch("/api/v1/profiles/p", json!({ "require_hw_synch": null })).await;
    assert_eq!(answer.code(), "unknown_field");
    assert_eq!(answer.json()["hint"], "did you mean require_hw_sync?");
    assert_eq!(rig.get("/api/v1/profiles/p").await.ok()["revision"], 1);
}

#[tokio::test]
async fn a_validation_bundle_is_none_that_boots_a_host() {
    let rig = Rig::new().await;
    let field = "post_deploy_validation_bundle_ref";
    let spec = json!({ field: "site-base@1.0.0" });
    let answer = rig.post("/api/v1/profiles", json!({ "name": "p", "spec": spec })).await;
    assert_eq!((answer.code().as_str(), answer.status), ("bundle_not_found", 400));
    assert_eq!(answer.json()["errors"][0]["field"], format!("spec.{field}"));
    assert!(answer.json()["hint"].as_str().unwrap().contains("validate-base@1.0.1"));
}

#[tokio::test]
async fn a_commissioning_bundle_is_one_of_its_own_kind() {
    let rig = Rig::new().await;
    let field = "commissioning_bundle_ref";
    for reference in ["site-base@1.0.0", "validate-base@1.0.1", "commissioning-base@9"] {
        let spec = json!({ field: reference });
        let answer = rig.post("/api/v1/profiles", json!({ "name": "p", "spec": spec })).await;
        assert_eq!((answer.code().as_str(), answer.status), ("bundle_not_found", 400));
        assert_eq!(answer.json()["errors"][0]["field"], format!("spec.{field}"));
        assert!(answer.json()["hint"].as_str().unwrap().contains("commissioning-base@1.0.0"));
    }
    let spec = json!({ field: "commissioning-base@1.0.0" });
    let made = rig.post("/api/v1/profiles", json!({ "name": "p", "spec": spec })).await.ok();
    assert_eq!(made["spec"][field], "commissioning-base@1.0.0");
}

#[tokio::test]
async fn fabric_addresses() {
    let rig = Rig::with_site().await;
    let path = "/api/v1/roce-assignments";
    let body = |interface: &str, ip: &str| json!({ "site": "lab", "hostname": "j22u11", "interface": interface, "subnet_cidr": "10.1.0.0/24", "ip_address": ip });
    assert_eq!(rig.post(path, body("enp1s0", "10.1.0.5")).await.status, 201);
    assert_eq!(rig.post(path, body("enp2s0", "10.1.0.5")).await.code(), "roce_address_taken");
    assert_eq!(rig.post(path, body("enp1s0", "10.1.0.6")).await.code(), "roce_interface_taken");
    assert_eq!(rig.post(path, body("enp3s0", "10.2.0.6")).await.code(), "invalid_field");
    assert_eq!(rig.post(path, body("", "10.1.0.6")).await.code(), "invalid_field");
    let mut elsewhere = body("enp1s0", "10.1.0.7");
    elsewhere["site"] = json!("nowhere");
    assert_eq!(rig.post(path, elsewhere).await.code(), "site_not_found");
    let items = rig.get(path).await.ok()["items"].clone();
    assert_eq!(items.as_array().unwrap().len(), 1);
    let of_other = rig.get("/api/v1/roce-assignments?site=lab&hostname=other").await.ok();
    assert_eq!(of_other["items"], json!([]));
}

#[tokio::test]
async fn a_region_elsewhere_is_reached_over_tls() {
    let settings = ApiSettings { loopback_targets: true, ..ApiSettings::default() };
    let rig = Rig::exactly(NodeAccess::StandIns, BEGIN, settings).await;
    let at = |url: &str| {
        let mut site = site("lab");
        site["spec"]["url"] = json!(url);
        site
    };
    let refused = rig.post("/api/v1/sites", at("http://maas.example:5240/MAAS")).await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "region_insecure"));
    assert!(rig.maas.urls.lock().unwrap().is_empty(), "no key was sent");
    rig.post("/api/v1/sites", at("http://127.0.0.1:5240/MAAS")).await.ok();
    let away = json!({ "url": "http://10.0.0.1:5240/MAAS", "api_key": KEY });
    assert_eq!(rig.patch("/api/v1/sites/lab", away).await.code(), "region_insecure");
    let verified = json!({ "url": "https://10.0.0.1:5240/MAAS", "api_key": KEY });
    rig.patch("/api/v1/sites/lab", verified).await.ok();
    // One that was added before goes on, and so do changes of anything else.
    rig.patch("/api/v1/sites/lab", json!({ "batch_max_parallel": 3 })).await.ok();
}
