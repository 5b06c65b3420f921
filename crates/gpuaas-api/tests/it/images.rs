//! Host images of a site: recorded, approved, rolled back, deleted.

use gpuaas_types::{NodeState, RunStatus};
use serde_json::{Value, json};

use crate::rig::Rig;

pub(crate) const OLD: &str = "h200-20261001-60303ae22b99";
pub(crate) const NEW: &str = "h200-20261123-9f86d081884c";

fn digest(fill: &str) -> String {
    fill.repeat(32)
}

/// A site whose region has both images.
pub(crate) async fn rig() -> Rig {
    let rig = Rig::with_site().await;
    for (id, name, fill) in [(11, OLD, "60"), (12, NEW, "9f")] {
        rig.maas.images.lock().unwrap().insert(id, (name.to_owned(), digest(fill)));
        verdict(&rig, fill, 0).await;
    }
    rig
}

async fn record(rig: &Rig, name: &str, fill: &str, state: &str) -> Value {
    let body = json!({ "name": name, "site": "lab", "state": state, "sha256": digest(fill),
        "size_bytes": 5_000_000, "resource_id": 11, "actor": "builder" });
    rig.post("/api/v1/images", body).await.ok()
}

pub(crate) fn transition_body(to: &str) -> Value {
    json!({ "site": "lab", "to": to, "actor": "ann", "reason": "tried on a rack" })
}

async fn verdict(rig: &Rig, fill: &str, errors: u32) -> Value {
    let codes = if errors > 0 { json!(["kernel_missing", "init_missing"]) } else { json!([]) };
    let body = json!({ "site": "lab", "sha256": digest(fill), "errors": errors, "codes": codes,
        "linted_by": "gpuaas 0.1.0" });
    rig.post("/api/v1/image-verdicts", body).await.ok()
}

pub(crate) async fn transition(rig: &Rig, name: &str, body: Value) -> Result<Value, String> {
    let answer = rig.post(&format!("/api/v1/images/{name}/transition"), body).await;
    if answer.status < 300 { Ok(answer.ok()) } else { Err(answer.code()) }
}

pub(crate) async fn set_image(rig: &Rig, image: &str) -> Value {
    rig.patch("/api/v1/profiles/h200", json!({ "distro_series": image })).await.ok()
}

async fn roll_back(rig: &Rig, body: Value) -> Value {
    rig.post("/api/v1/profiles/h200/rollback-image", body).await.ok()
}

async fn onboard_code(rig: &Rig, host: &str) -> String {
    let body = json!({ "hostname": host, "site": "lab", "profile": "h200" });
    rig.post("/api/v1/nodes", body).await.code()
}

#[tokio::test]
async fn an_image_goes_from_upload_to_approval_with_signed_statements() {
    let rig = rig().await;
    assert_eq!(record(&rig, NEW, "9f", "built").await["state"], "built");
    assert_eq!(record(&rig, NEW, "9f", "verified").await["state"], "verified");
    assert_eq!(record(&rig, NEW, "9f", "uploaded").await["state"], "uploaded");
    assert_eq!(record(&rig, NEW, "9f", "uploaded").await["history"].as_array().unwrap().len(), 3);
    let other = json!({ "name": NEW, "site": "lab", "state": "uploaded", "sha256": digest("00") });
    assert_eq!(rig.post("/api/v1/images", other).await.code(), "image_digest_differs");
    let early = transition(&rig, NEW, transition_body("deprecated")).await;
    assert_eq!(early.unwrap_err(), "image_transition_refused");

    let mut until = transition_body("approved");
    until["expires_in_seconds"] = json!(3600);
    let approved = transition(&rig, NEW, until).await.unwrap();
    assert_eq!((&approved["state"], &approved["family"]), (&json!("approved"), &json!("h200")));
    let last = approved["history"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["actor"], &last["reason"]),
        (&json!("admin (ann)"), &json!("tried on a rack"))
    );
    let statement: gpuaas_bundle::Envelope =
        serde_json::from_value(last["statement"].clone()).unwrap();
    assert_eq!(statement.payload_type, "application/vnd.in-toto+json");

    rig.advance(3601);
    let shown = rig.get(&format!("/api/v1/images/{NEW}?site=lab")).await.ok();
    assert_eq!(shown["state"], "expired");
    set_image(&rig, NEW).await;
    assert_eq!(onboard_code(&rig, "j22u11").await, "image_expired");
    transition(&rig, NEW, transition_body("approved")).await.unwrap();
    transition(&rig, NEW, transition_body("revoked")).await.unwrap();
    assert_eq!(onboard_code(&rig, "j22u11").await, "image_revoked");
    let again = transition(&rig, NEW, transition_body("approved")).await;
    assert_eq!(again.unwrap_err(), "image_transition_refused", "a revocation is for good");
}

#[tokio::test]
async fn an_approval_needs_a_verdict_on_that_file_or_a_reason() {
    let rig = rig().await;
    let file = "h200-20261201-777777777777";
    rig.maas.images.lock().unwrap().insert(13, (file.to_owned(), digest("77")));
    for to in ["approved", "canary"] {
        let unjudged = transition(&rig, file, transition_body(to)).await;
        assert_eq!(unjudged.unwrap_err(), "image_not_linted");
    }
    // What was found in another file does not count.
    verdict(&rig, "78", 0).await;
    verdict(&rig, "77", 2).await;
    let path = format!("/api/v1/images/{file}/transition");
    let refused = rig.post(&path, transition_body("approved")).await.json();
    assert_eq!(refused["code"], "image_lint_failed");
    assert!(
        refused["detail"].as_str().unwrap().contains("kernel_missing, init_missing"),
        "{refused}"
    );
    let mut waived = transition_body("canary");
    waived["lint_waiver"] = json!("a rescue system without kernel");
    let approved = transition(&rig, file, waived).await.unwrap();
    let reason = &approved["history"].as_array().unwrap().last().unwrap()["reason"];
    assert_eq!(reason, "tried on a rack; lint waived: a rescue system without kernel");
    assert_eq!((&approved["lint"]["errors"], &approved["state"]), (&json!(2), &json!("canary")));
    // A later verdict takes the place of the one before.
    verdict(&rig, "77", 0).await;
    let approved = transition(&rig, file, transition_body("approved")).await.unwrap();
    assert_eq!((&approved["lint"]["errors"], &approved["state"]), (&json!(0), &json!("approved")));
    let wrong = json!({ "site": "lab", "sha256": digest("77"), "errors": 0, "codes": ["<b>"] });
    assert_eq!(rig.post("/api/v1/image-verdicts", wrong).await.code(), "invalid_field");
}

#[tokio::test]
async fn only_what_the_region_has_is_approved() {
    let rig = rig().await;
    record(&rig, NEW, "00", "uploaded").await;
    let refused = transition(&rig, NEW, transition_body("approved")).await;
    assert_eq!(refused.unwrap_err(), "image_digest_differs");
    // One that somebody else uploaded is recorded as it is there.
    let adopted = transition(&rig, OLD, transition_body("canary")).await.unwrap();
    assert_eq!((&adopted["sha256"], &adopted["canary_nodes"]), (&json!(digest("60")), &json!(1)));
    assert_eq!(adopted["history"][0]["to"], "uploaded");
    let refused = transition(&rig, "nothing", transition_body("approved")).await;
    assert_eq!(refused.unwrap_err(), "image_not_found");
    let stock = transition(&rig, "noble", transition_body("approved")).await;
    assert_eq!(stock.unwrap_err(), "invalid_field", "MAAS' own images need no approval");
}

#[tokio::test]
async fn a_child_of_a_revoked_image_is_not_deployed() {
    let rig = rig().await;
    transition(&rig, OLD, transition_body("approved")).await.unwrap();
    let body = json!({ "name": NEW, "site": "lab", "state": "uploaded", "sha256": digest("9f"),
        "parents": [digest("60")] });
    rig.post("/api/v1/images", body).await.ok();
    transition(&rig, NEW, transition_body("approved")).await.unwrap();
    set_image(&rig, NEW).await;
    rig.onboard("j22u11").await;
    transition(&rig, OLD, transition_body("revoked")).await.unwrap();
    assert_eq!(onboard_code(&rig, "j22u15").await, "image_parent_revoked");
}

#[tokio::test]
async fn another_site_s_approval_is_none_here() {
    let rig = rig().await;
    rig.post("/api/v1/sites", crate::rig::site("south")).await.ok();
    let mut body = json!({ "site": "south", "to": "approved", "actor": "ann", "reason": "tried" });
    let refused = transition(&rig, NEW, body.clone()).await;
    assert_eq!(refused.unwrap_err(), "image_not_linted", "a verdict counts for its site");
    body["lint_waiver"] = json!("linted for the other site");
    transition(&rig, NEW, body).await.unwrap();
    set_image(&rig, NEW).await;
    assert_eq!(onboard_code(&rig, "j22u11").await, "image_not_approved");
    let list = rig.get("/api/v1/images?site=lab").await.ok();
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn a_profile_pins_the_digest_and_goes_back_to_the_image_before() {
    let rig = rig().await;
    for name in [OLD, NEW] {
        transition(&rig, name, transition_body("approved")).await.unwrap();
    }
    assert_eq!(set_image(&rig, OLD).await["spec"]["image_sha256"], digest("60"));
    assert_eq!(set_image(&rig, NEW).await["spec"]["image_sha256"], digest("9f"));
    let body = json!({ "site": "lab", "actor": "ann", "reason": "DKMS fails" });
    let back = roll_back(&rig, body.clone()).await;
    assert_eq!(back["from"]["image"], format!("custom/{NEW}"));
    let to = json!({ "image": format!("custom/{OLD}"), "sha256": digest("60") });
    assert_eq!(back["to"], to);
    // What is not approved any more is passed over; the stock image is always there.
    for name in [OLD, NEW] {
        transition(&rig, name, transition_body("revoked")).await.unwrap();
    }
    let back = roll_back(&rig, body).await;
    assert_eq!(back["to"], json!({ "image": "ubuntu/noble", "sha256": "" }));
    let spec = rig.get("/api/v1/profiles/h200").await.ok()["spec"].clone();
    assert_eq!(
        (&spec["distro_series"], &spec["image_sha256"]),
        (&json!("ubuntu/noble"), &Value::Null)
    );
    let named = json!({ "site": "lab", "to": NEW, "actor": "ann", "reason": "anyway" });
    let refused = rig.post("/api/v1/profiles/h200/rollback-image", named).await;
    assert_eq!(refused.code(), "image_revoked");
    let patched = json!({ "distro_series": "noble", "image_sha256": digest("9f") });
    assert_eq!(rig.patch("/api/v1/profiles/h200", patched).await.code(), "invalid_field");
}

#[tokio::test]
async fn a_profile_s_pin_on_another_file_is_not_deployed() {
    let rig = rig().await;
    transition(&rig, NEW, transition_body("approved")).await.unwrap();
    let pin = |fill: &str| json!({ "distro_series": NEW, "image_sha256": digest(fill) });
    rig.patch("/api/v1/profiles/h200", pin("00")).await.ok();
    assert_eq!(onboard_code(&rig, "j22u11").await, "image_digest_differs");
    rig.patch("/api/v1/profiles/h200", pin("9f")).await.ok();
    rig.onboard("j22u11").await;
}

#[tokio::test]
async fn what_a_node_or_a_profile_names_is_not_deleted() {
    let rig = rig().await;
    transition(&rig, NEW, transition_body("approved")).await.unwrap();
    set_image(&rig, NEW).await;
    let node = rig.onboard("j22u11").await;
    let delete = async |name: &str| {
        let body = json!({ "site": "lab", "actor": "ann", "reason": "old" });
        rig.post(&format!("/api/v1/images/{name}/delete"), body).await
    };
    let refused = delete(NEW).await;
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(refused.code(), "image_in_use");
    assert!(detail.contains("j22u11") && detail.contains("profiles: h200"), "{detail}");
    assert!(rig.maas.images.lock().unwrap().contains_key(&12));

    transition(&rig, OLD, transition_body("approved")).await.unwrap();
    assert_eq!(delete(OLD).await.ok()["state"], "revoked");
    assert!(!rig.maas.images.lock().unwrap().contains_key(&11));
    // The same request again has nothing left to do.
    delete(OLD).await.ok();
    rig.maas.images.lock().unwrap().insert(13, (OLD.to_owned(), digest("77")));
    delete(OLD).await.ok();
    assert!(rig.maas.images.lock().unwrap().contains_key(&13), "that is another file");
    assert_eq!(delete("nothing").await.code(), "image_not_found");
    assert_eq!(rig.store.node(node.node_id).await.unwrap().state, NodeState::Registered);
    rig.put_run(node.run_id, RunStatus::Cancelled).await;
    set_image(&rig, "ubuntu/noble").await;
    assert_eq!(delete(NEW).await.code(), "image_in_use", "its latest deployment was of it");
}

#[tokio::test]
async fn too_many_live_images_of_a_family_are_a_finding() {
    let rig = rig().await;
    for (month, fill) in [("01", "01"), ("02", "02"), ("03", "03")] {
        record(&rig, &format!("h200-2026{month}01-{}", &digest(fill)[..12]), fill, "uploaded")
            .await;
    }
    let list = rig.get("/api/v1/images?site=lab").await.ok();
    assert_eq!(list["items"][0]["findings"], json!([]));
    record(&rig, OLD, "60", "uploaded").await;
    let list = rig.get("/api/v1/images?site=lab").await.ok();
    let findings = list["items"][0]["findings"].to_string();
    assert!(findings.contains("4 live images of family h200"), "{findings}");
}

#[tokio::test]
async fn an_approval_waits_for_another_person_where_the_site_wants_that() {
    let rig = rig().await;
    let grants = json!([{ "role": "approver" }]);
    let body = json!({ "name": "bob", "grants": grants, "person": "bob", "reason": "test" });
    let token = rig.post("/api/v1/tokens", body).await.ok()["token"].as_str().unwrap().to_owned();
    let policy = json!({ "second_person": { "image_approvals": true } });
    rig.patch("/api/v1/sites/lab", policy).await.ok();
    let held = transition(&rig, NEW, transition_body("approved")).await;
    assert_eq!(held.unwrap_err(), "second_person_needed");
    let waiting = rig.get("/api/v1/approvals?open=true").await.ok();
    let id = waiting["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/approvals/{id}/approve");
    let agreed = json!({ "reason": "looked at it" });
    let done = rig.call("POST", &path, Some(&token), Some(agreed)).await.ok();
    assert_eq!(done["state"], "done", "{done}");
    let shown = rig.get(&format!("/api/v1/images/{NEW}?site=lab")).await.ok();
    assert_eq!(shown["state"], "approved");
    // To take something away needs nobody else.
    transition(&rig, NEW, transition_body("revoked")).await.unwrap();
}
