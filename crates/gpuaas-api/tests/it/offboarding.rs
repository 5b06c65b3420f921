//! Leaving: the plan, the refusals, and orders to a run.

use gpuaas_store::RunWrite;
use gpuaas_types::{NodeState, RunStatus};
use serde_json::{Value, json};

use crate::rig::{Rig, site};

/// A node whose onboarding ended well.
async fn active(rig: &Rig) -> gpuaas_types::NodeId {
    let accepted = rig.onboard("j22u11").await;
    let now = gpuaas_engine::Clock::now(&*rig.clock);
    let claimed = rig.store.claim(now, now.plus_seconds(60.0), 1).await.unwrap().remove(0);
    let mut run = claimed.run;
    (run.status, run.ended_at) = (RunStatus::Succeeded, Some(now));
    let mut write = RunWrite::new(run).releasing();
    write.node = Some(gpuaas_store::NodeChange {
        state: Some(NodeState::Active),
        system_id: Some("abc123".to_owned()),
    });
    rig.store.commit(now, write).await.unwrap();
    accepted.node_id
}

fn asked(kind: &str, dry_run: bool) -> serde_json::Value {
    json!({ "kind": kind, "actor": "eve", "reason": "returned to stock", "dry_run": dry_run })
}

#[tokio::test]
async fn a_dry_run_says_what_it_destroys_and_changes_nothing() {
    let rig = Rig::with_site().await;
    let id = active(&rig).await;
    let before = rig.store.node(id).await.unwrap();
    let answer = rig.post("/api/v1/nodes/j22u11/runs", asked("decommission", true)).await;
    assert_eq!(answer.status, 200);
    let plan = answer.ok();
    assert_eq!(plan["run_id"], json!(null));
    assert_eq!((&plan["state"], &plan["ends"]), (&json!("active"), &json!("retired")));
    assert!(plan["destroys"][0].as_str().unwrap().contains("machine abc123"), "{plan}");
    let calls = ["release", "abort", "mark_broken", "mark_fixed", "power_off", "power_on"];
    assert_eq!(plan["steps"][2], json!({ "step": "release", "maas_calls": calls }));
    assert_eq!(rig.store.node(id).await.unwrap(), before);

    let answer = rig.post("/api/v1/nodes/j22u11/runs", asked("decommission", false)).await;
    assert_eq!(answer.status, 202);
    let run = answer.ok()["run_id"].as_str().unwrap().to_owned();
    let audit = rig.store.audit_entries(0, 100).await.unwrap();
    let entry = &audit.iter().find(|row| row.entry.action == "node.decommission").unwrap().entry;
    assert_eq!((entry.actor.as_str(), &entry.detail["run"]), ("admin (eve)", &json!(run)));
    let refused = rig.post("/api/v1/nodes/j22u11/runs", asked("detach", true)).await;
    assert_eq!(refused.code(), "node_has_open_run");
    assert!(refused.json()["detail"].as_str().unwrap().contains(&run));
}

#[tokio::test]
async fn what_the_state_or_the_request_forbids_is_refused() {
    let rig = Rig::with_site().await;
    active(&rig).await;
    let call = |body| rig.post("/api/v1/nodes/j22u11/runs", body);
    assert_eq!(call(asked("remove", true)).await.code(), "node_state_forbids");
    assert_eq!(call(asked("onboard", true)).await.code(), "invalid_field");
    let mut silent = asked("detach", false);
    silent["reason"] = json!(" ");
    assert_eq!(call(silent).await.code(), "invalid_field");
    let handoff = json!({ "release_mode": "handoff" });
    rig.patch("/api/v1/profiles/h200", handoff).await.ok();
    assert_eq!(call(asked("reimage", true)).await.code(), "machine_handed_off");
    let plan = call(asked("decommission", true)).await.ok();
    assert!(plan["destroys"][0].as_str().unwrap().starts_with("nothing"), "{plan}");
    assert_eq!(plan["steps"][2], json!({ "step": "release", "maas_calls": [] }));
}

#[tokio::test]
async fn only_the_cleaning_that_the_profile_names_puts_a_host_back_into_service() {
    let rig = Rig::with_site().await;
    active(&rig).await;
    let call = |body| rig.post("/api/v1/nodes/j22u11/runs", body);
    for kind in ["soft_reset", "storage_cleanup"] {
        for dry_run in [true, false] {
            let refused = call(asked(kind, dry_run)).await;
            assert_eq!((refused.status, refused.code()), (409, "between_tenants_forbids".into()));
            let hint = refused.json()["hint"].as_str().unwrap().to_owned();
            assert!(hint.contains("`gpuaas node reimage j22u11`"), "{hint}");
            let way = format!("`gpuaas profile set h200 between_tenants={kind}`");
            assert!(hint.contains(&way), "{hint}");
        }
    }
    let plan = call(asked("reimage", true)).await.ok();
    assert!(!plan["destroys"].to_string().contains("as the profile says"), "{plan}");
    let chosen = json!({ "between_tenants": "soft_reset", "release_erase": false });
    rig.patch("/api/v1/profiles/h200", chosen).await.ok();
    let plan = call(asked("soft_reset", true)).await.ok();
    assert!(plan["destroys"].to_string().contains("(between_tenants)"), "{plan}");
    assert_eq!(call(asked("storage_cleanup", true)).await.code(), "between_tenants_forbids");
    let plan = call(asked("reimage", true)).await.ok();
    assert!(plan["destroys"].to_string().contains("(release_erase=false)"), "{plan}");
    let fallback = json!({ "release_erase": true, "release_fallback_no_erase": true });
    rig.patch("/api/v1/profiles/h200", fallback).await.ok();
    let plan = call(asked("reimage", true)).await.ok();
    assert!(plan["destroys"].to_string().contains("(release_fallback_no_erase)"), "{plan}");
}

#[tokio::test]
async fn a_profile_deploys_at_the_sites_that_it_names() {
    let rig = Rig::with_site().await;
    active(&rig).await;
    let patch = |sites| rig.patch("/api/v1/profiles/h200", json!({ "sites": sites }));
    let unknown = patch(json!(["nowhere"])).await;
    assert_eq!(unknown.json()["errors"][0]["field"], "sites.0");
    assert_eq!(patch(json!(["Lab 1"])).await.code(), "invalid_field");
    patch(json!(["lab"])).await.ok();
    let call = |body| rig.post("/api/v1/nodes/j22u11/runs", body);
    call(asked("reimage", true)).await.ok();
    rig.post("/api/v1/sites", site("other")).await.ok();
    patch(json!(["other"])).await.ok();
    let refused = call(asked("reimage", false)).await;
    assert_eq!((refused.status, refused.code()), (409, "profile_not_for_site".into()));
    let hint = refused.json()["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("`gpuaas profile set h200 sites=other,lab`"), "{hint}");
    let onboard = json!({ "hostname": "j22u15", "site": "lab", "profile": "h200" });
    assert_eq!(rig.post("/api/v1/nodes", onboard).await.code(), "profile_not_for_site");
    let machines = json!([{ "hostname": "j22u16" }]);
    let spec = json!({ "name": "b", "site": "lab", "profile": "h200", "machines": machines });
    let batch = rig.post("/api/v1/batches", json!({ "spec": spec, "dry_run": true })).await;
    assert!(batch.json()["errors"].to_string().contains("profile_not_for_site"), "{batch:?}");
    patch(json!(null)).await.ok();
    call(asked("reimage", true)).await.ok();
}

/// Neither an operator's word to go on nor a batch takes a profile to a site that it is not for.
#[tokio::test]
async fn a_run_and_a_batch_go_on_with_the_latest_profile_at_the_sites_that_it_names() {
    let rig = Rig::with_site().await;
    let run = rig.onboard("j22u11").await.run_id;
    rig.post("/api/v1/sites", site("other")).await.ok();
    let sites = async |sites: Value| {
        rig.patch("/api/v1/profiles/h200", json!({ "sites": sites })).await.ok();
    };
    let machines = json!([{ "hostname": "j22u16" }]);
    let spec = json!({ "name": "b", "site": "lab", "profile": "h200", "machines": machines });
    rig.post("/api/v1/batches", json!({ "spec": spec })).await.ok();
    let who = json!({ "actor": "ann", "reason": "mended" });
    rig.post("/api/v1/batches/b/stop", who.clone()).await.ok();

    sites(json!(["other"])).await;
    rig.put_run(run, RunStatus::Parked).await;
    let path = format!("/api/v1/runs/{run}");
    let latest = json!({ "actor": "ann", "reason": "mended", "latest_profile": true });
    for command in ["retry", "resume"] {
        let refused = rig.post(&format!("{path}/{command}"), latest.clone()).await;
        assert_eq!((refused.status, refused.code()), (409, "profile_not_for_site".into()));
        let view = rig.get(&path).await.ok();
        assert_eq!((&view["status"], &view["profile_revision"]), (&json!("parked"), &json!(1)));
    }
    let refused = rig.post("/api/v1/batches/b/resume", who.clone()).await;
    assert_eq!(refused.code(), "profile_not_for_site");
    assert_eq!(rig.get("/api/v1/batches/b").await.ok()["status"]["phase"], "stopped");

    sites(json!(["other", "lab"])).await;
    rig.post("/api/v1/batches/b/resume", who).await.ok();
    let view = rig.post(&format!("{path}/retry"), latest).await.ok();
    assert_eq!(view["profile_revision"], 3);
}

#[tokio::test]
async fn a_reimage_may_give_the_node_another_profile() {
    let rig = Rig::with_site().await;
    let id = active(&rig).await;
    rig.patch("/api/v1/profiles/h200", json!({ "image_size_megabytes": 7 })).await.ok();
    let other = json!({ "name": "slices", "spec": { "release_erase": false } });
    rig.post("/api/v1/profiles", other).await.ok();
    let call = |body| rig.post("/api/v1/nodes/j22u11/runs", body);
    let with = |kind, dry_run, profile: &str| {
        let mut body = asked(kind, dry_run);
        body["profile"] = json!(profile);
        call(body)
    };
    assert_eq!(with("reimage", true, "nowhere").await.code(), "profile_not_found");
    let refused = with("decommission", true, "slices").await;
    assert_eq!(refused.json()["errors"][0]["field"], "profile");

    let deployed = json!({ "name": "h200", "revision": 1 });
    let own = call(asked("reimage", true)).await.ok();
    let then = json!({ "name": "h200", "revision": 2 });
    assert_eq!(own["profile"], json!({ "deployed": deployed, "then": then }));
    let plan = with("reimage", true, "slices").await.ok();
    let then = json!({ "name": "slices", "revision": 1 });
    assert_eq!(plan["profile"], json!({ "deployed": deployed, "then": then }));
    assert!(plan["destroys"].to_string().contains("(release_erase=false)"), "{plan}");
    assert_eq!(call(asked("decommission", true)).await.ok()["profile"], json!(null));

    rig.patch("/api/v1/profiles/slices", json!({ "release_mode": "handoff" })).await.ok();
    assert_eq!(with("reimage", false, "slices").await.code(), "machine_handed_off");
    rig.patch("/api/v1/profiles/slices", json!({ "release_mode": "managed" })).await.ok();
    let before = rig.store.node(id).await.unwrap().profile_id;
    let begun = with("reimage", false, "slices").await;
    assert_eq!(begun.status, 202, "{begun:?}");
    let profile = rig.store.profile_by_name("slices").await.unwrap();
    let node = rig.store.node(id).await.unwrap();
    assert!(node.profile_id == profile.id && before != profile.id);
    let run = rig.store.run(node.run_id.unwrap()).await.unwrap();
    assert_eq!((run.profile_id, run.profile_revision), (profile.id, 3));
    let lines = rig.store.timeline_of_node(id, 0, 100).await.unwrap();
    assert!(lines.iter().any(|row| row.event.text.contains("with profile slices revision 3")));
}

#[tokio::test]
async fn orders_to_a_run_are_kept_with_actor_and_reason() {
    let rig = Rig::with_site().await;
    let run = rig.onboard("j22u11").await.run_id;
    let said = json!({ "actor": "eve", "reason": "wrong host" });
    let tell =
        async |order: &str, body| rig.post(&format!("/api/v1/runs/{run}/{order}"), body).await;
    assert_eq!(tell("retry", said.clone()).await.code(), "run_not_parked");
    let skip = json!({ "actor": "eve", "reason": "known", "check": "nope", "seconds": 60 });
    assert_eq!(tell("skip-check", skip).await.code(), "invalid_field");
    let view = tell("cancel", said.clone()).await.ok();
    let last = view["timeline"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["code"], &last["source"]), (&json!("cancel_asked"), &json!("operator")));
    assert!(last["text"].as_str().unwrap().contains("wrong host"));
    let now = gpuaas_engine::Clock::now(&*rig.clock);
    let claimed = rig.store.claim(now, now.plus_seconds(60.0), 1).await.unwrap().remove(0);
    assert_eq!(claimed.reports.len(), 1, "the worker that claims it next reads the order");
}
