//! Sites whose API key is kept elsewhere.

use std::collections::BTreeMap;

use gpuaas_store::ExposeSecret as _;
use serde_json::{Value, json};

use crate::rig::{KEY, Rig, reply, site};

const LAB: &str = "vault:secret/maas/lab#api_key";

/// A rig whose Vault has the key of `lab`, and one that MAAS would not take for a key.
async fn rig() -> Rig {
    let rig = Rig::new().await;
    let kept = [(LAB, KEY), ("vault:secret/maas/odd#api_key", "no-colons")];
    let kept = kept.map(|(at, key)| (at.to_owned(), key.to_owned()));
    *rig.maas.kept_keys.lock().unwrap() = Some(BTreeMap::from(kept));
    rig
}

fn kept_site(reference: &str) -> Value {
    let mut body = site("lab");
    body.as_object_mut().unwrap().remove("api_key");
    body["spec"]["api_key_ref"] = json!(reference);
    body
}

#[tokio::test]
async fn a_site_names_where_its_key_is_and_no_key_is_kept_here() {
    let rig = rig().await;
    let made = rig.post("/api/v1/sites", kept_site(LAB)).await.ok();
    let shown = rig.get("/api/v1/sites/lab").await;
    assert!(!String::from_utf8_lossy(&shown.bytes).contains("verysecret"));
    assert_eq!(shown.ok()["spec"]["api_key_ref"], LAB);
    let id = made["id"].as_str().unwrap().parse().unwrap();
    rig.store.site_api_key(id).await.unwrap_err();
    let audit = rig.store.audit_entries(0, 100).await.unwrap();
    assert_eq!(audit.last().unwrap().entry.detail["api_key_ref"], LAB);
    // Nothing of the key is changed by another change, and the region is asked with it.
    rig.patch("/api/v1/sites/lab", json!({ "pxe_vlan": 5 })).await.ok();
    rig.patch("/api/v1/sites/lab", json!({ "pool": "north" })).await.ok();
    // A key takes the place of the reference, and a reference that of the key.
    let changed = rig.patch("/api/v1/sites/lab", json!({ "api_key": KEY })).await.ok();
    assert!(changed["spec"].get("api_key_ref").is_none());
    assert_eq!(rig.store.site_api_key(id).await.unwrap().expose_secret(), KEY);
    rig.patch("/api/v1/sites/lab", json!({ "api_key_ref": LAB })).await.ok();
    rig.store.site_api_key(id).await.unwrap_err();
}

#[tokio::test]
async fn a_site_has_a_key_or_a_reference_to_one() {
    let rig = rig().await;
    let refuse = async |body: Value| {
        let answer = rig.post("/api/v1/sites", body).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_field"));
        assert!(answer.json()["hint"].as_str().unwrap().contains("--api-key-ref"));
        assert_eq!(rig.store.sites().await.unwrap(), Vec::new());
    };
    let mut neither = site("lab");
    neither.as_object_mut().unwrap().remove("api_key");
    refuse(neither).await;
    let mut both = kept_site(LAB);
    both["api_key"] = json!(KEY);
    refuse(both).await;
    rig.post("/api/v1/sites", kept_site(LAB)).await.ok();
    for patch in [json!({ "api_key": KEY, "api_key_ref": LAB }), json!({ "api_key_ref": null })] {
        let answer = rig.patch("/api/v1/sites/lab", patch).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_field"));
    }
    let malformed = rig.patch("/api/v1/sites/lab", json!({ "api_key_ref": "vault:secret" })).await;
    assert_eq!(malformed.code(), "invalid_field");
    assert!(malformed.json()["detail"].as_str().unwrap().contains("MOUNT/PATH#FIELD"));
}

#[tokio::test]
async fn a_key_that_is_not_to_be_had_has_a_code_and_a_hint() {
    let rig = rig().await;
    let refuse = async |reference: &str, code: &str, status: u16| {
        let answer = rig.post("/api/v1/sites", kept_site(reference)).await;
        assert_eq!((answer.code().as_str(), answer.status), (code, status));
        assert!(!answer.json()["hint"].as_str().unwrap().is_empty());
    };
    refuse("vault:secret/maas/none#api_key", "vault_secret_missing", 422).await;
    refuse("vault:secret/maas/odd#api_key", "invalid_field", 400).await;
    let refused = reply(401, "text/plain", "Authorization Error: 'Invalid API key.'");
    let taken = std::mem::replace(&mut *rig.maas.whoami.lock().unwrap(), refused);
    refuse(LAB, "maas_key_refused", 422).await;
    *rig.maas.whoami.lock().unwrap() = taken;
    *rig.maas.kept_keys.lock().unwrap() = None;
    refuse(LAB, "vault_unreachable", 502).await;
    assert_eq!(rig.store.sites().await.unwrap(), Vec::new());
}

#[tokio::test]
async fn a_key_that_is_kept_elsewhere_goes_to_no_other_server() {
    let rig = rig().await;
    rig.post("/api/v1/sites", kept_site(LAB)).await.ok();
    let elsewhere = json!({ "url": "https://maas.example:5240/MAAS" });
    let refused = rig.patch("/api/v1/sites/lab", elsewhere).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_field"));
    assert!(!rig.maas.urls.lock().unwrap().iter().any(|url| url.starts_with("https")));
    let given = json!({ "url": "https://maas.example:5240/MAAS", "api_key_ref": LAB });
    rig.patch("/api/v1/sites/lab", given).await.ok();
}

/// Every site's key is behind one role of the Vault, so naming a reference takes a role everywhere.
#[tokio::test]
async fn an_admin_of_one_site_names_no_reference() {
    let rig = rig().await;
    rig.post("/api/v1/sites", site("lab")).await.ok();
    let grants = json!([{ "role": "admin", "sites": ["lab"] }]);
    let body = json!({ "name": "lab-admin", "grants": grants, "reason": "for the test" });
    let made = rig.post("/api/v1/tokens", body).await.ok();
    let token = made["token"].as_str().unwrap();
    let urls = rig.maas.urls.lock().unwrap().len();
    let patch = json!({ "url": "http://elsewhere.example:5240/MAAS", "api_key_ref": LAB });
    let refused = rig.call("PATCH", "/api/v1/sites/lab", Some(token), Some(patch)).await;
    assert_eq!(refused.code(), "site_not_granted");
    assert_eq!(rig.maas.urls.lock().unwrap().len(), urls, "nothing was sent to the other server");
    let own = json!({ "pxe_vlan": 7 });
    rig.call("PATCH", "/api/v1/sites/lab", Some(token), Some(own)).await.ok();
    let rows = rig.store.audit_entries(0, 1000).await.unwrap();
    assert!(rows.iter().any(|row| row.entry.action == "request.refused"), "it is written down");
}
