//! Ways around a second person, each tried over HTTP: a token for a person who does not exist, another
//! revision than the approved one, another machine, another site of the region, a slice.

use gpuaas_store::RunWrite;
use gpuaas_types::api::CheckResult;
use gpuaas_types::{NodeId, RunId, RunStatus, Timestamp};
use serde_json::{Value, json};

use crate::approvals::Desk;
use crate::rig::{Rig, site};
use crate::slice_claims::CLAIMS;
use crate::slice_launch::SliceRig;

/// Gives the region of `lab` a second site, `free`; each has a pool of its own.
pub(crate) async fn share_region(rig: &Rig) {
    rig.patch("/api/v1/sites/lab", json!({ "pool": "default" })).await.ok();
    let mut second = site("free");
    second["spec"]["url"] = json!("http://lab.example:5240/MAAS/");
    second["spec"]["pool"] = json!("north");
    rig.post("/api/v1/sites", second).await.ok();
}

/// A desk whose policy asks for a second person for each node.
async fn strict() -> Desk {
    let desk = Desk::serve(Rig::with_site().await).await;
    desk.set_policy(json!({ "erasing_above": 0 })).await;
    desk
}

/// The run of a new node, parked.
async fn parked(desk: &Desk, hostname: &str) -> (NodeId, RunId) {
    let made = desk.rig.onboard(hostname).await;
    desk.rig.put_run(made.run_id, RunStatus::Parked).await;
    (made.node_id, made.run_id)
}

/// Sends a request, which is held, and has bob approve it.
async fn held_and_approved(desk: &Desk, method: &str, path: &str, body: Value) -> Value {
    let held = desk.send(&desk.ann, method, path, Some(body)).await;
    assert_eq!(held.code(), "second_person_needed", "{method} {path}");
    let id = desk.waiting().await;
    assert_eq!(desk.verdict(&desk.ann, &id, "approve").await.code(), "approval_own_request");
    let done = desk.verdict(&desk.bob, &id, "approve").await.ok();
    assert_eq!(done["state"], "done", "{done}");
    done
}

#[tokio::test]
async fn admin_cannot_mint_the_person_who_approves_their_reimage() {
    let desk = Desk::serve(Rig::with_site().await).await;
    let node = desk.active("j22u11").await;
    desk.set_policy(json!({ "erasing_above": 0 })).await;
    let admin = desk.rig.admin.clone();
    assert_eq!(desk.reimage(&admin, "j22u11").await.code(), "second_person_needed");
    let id = desk.waiting().await;
    let mint = async |name: &str, person: Value, grants: Value| {
        let body = json!({ "name": name, "person": person, "grants": grants, "reason": "test" });
        desk.post(&admin, "/api/v1/tokens", body).await
    };
    // One who approves, one with a budget of its own, and both, there and everywhere.
    for role in ["approver", "operator", "admin"] {
        for sites in [Value::Null, json!(["lab"])] {
            let grants = json!([{ "role": "viewer" }, { "role": role, "sites": sites }]);
            let refused = mint("ghost", json!("ghost"), grants).await;
            assert_eq!(refused.code(), "person_not_creatable", "{role} {sites}");
        }
    }
    assert!(desk.actions().await.contains(&"request.refused".to_owned()), "it is audited");
    // A token of the same person is made, and is not a second person.
    let own = mint("second", Value::Null, json!([{ "role": "approver" }])).await.ok();
    let own = own["token"].as_str().unwrap().to_owned();
    assert_eq!(desk.verdict(&own, &id, "approve").await.code(), "approval_own_request");
    // One that only reads is for anybody; one of a site without a policy decides nothing here.
    mint("eve", json!("eve"), json!([{ "role": "viewer" }])).await.ok();
    desk.rig.post("/api/v1/sites", site("other")).await.ok();
    let other = mint("oto", json!("oto"), json!([{ "role": "approver", "sites": ["other"] }]));
    let other = other.await.ok()["token"].as_str().unwrap().to_owned();
    assert_eq!(desk.verdict(&other, &id, "approve").await.code(), "site_not_granted");
    let runs = desk.rig.store.runs_of_node(node, gpuaas_store::Page::first(9)).await.unwrap();
    assert_eq!(runs.len(), 1, "nothing was begun");
}

#[tokio::test]
async fn resumed_batch_is_asked_for_again_with_another_revision() {
    let desk = Desk::serve(Rig::with_site().await).await;
    let machines = json!([{ "hostname": "m1" }, { "hostname": "m2" }]);
    let batch =
        json!({ "spec": { "name": "b1", "site": "lab", "profile": "h200", "machines": machines } });
    desk.rig.post("/api/v1/batches", batch).await.ok();
    desk.set_policy(json!({ "erasing_above": 0 })).await;
    let order = json!({ "actor": "x", "reason": "tried" });
    let stop = async || desk.post(&desk.ann, "/api/v1/batches/b1/stop", order.clone()).await.ok();
    stop().await;
    let resume = "/api/v1/batches/b1/resume";
    assert_eq!(desk.post(&desk.ann, resume, order.clone()).await.status, 200, "the same revision");
    stop().await;
    desk.rig.patch("/api/v1/profiles/h200", json!({ "max_deploy_retry_attempts": 4 })).await.ok();
    let revision = async || {
        desk.rig.get("/api/v1/batches/b1").await.ok()["status"]["profile_revision"].clone()
    };
    let held = desk.post(&desk.ann, resume, order.clone()).await;
    assert_eq!(held.code(), "second_person_needed");
    assert_eq!(revision().await, json!(1));
    held_and_approved(&desk, "POST", resume, order.clone()).await;
    assert_eq!(revision().await, json!(2));
}

#[tokio::test]
async fn resumed_run_is_asked_for_again_with_another_revision() {
    let desk = Desk::serve(Rig::with_site().await).await;
    let (_, run) = parked(&desk, "j22u11").await;
    desk.set_policy(json!({ "erasing_above": 0 })).await;
    desk.rig.patch("/api/v1/profiles/h200", json!({ "max_deploy_retry_attempts": 4 })).await.ok();
    let asked = |latest: bool| json!({ "actor": "x", "reason": "tried", "latest_profile": latest });
    for verb in ["resume", "retry"] {
        let path = format!("/api/v1/runs/{run}/{verb}");
        let held = desk.post(&desk.ann, &path, asked(true)).await;
        assert_eq!(held.code(), "second_person_needed", "{verb}");
        let id = desk.waiting().await;
        desk.verdict(&desk.bob, &id, "deny").await.ok();
    }
    let resume = format!("/api/v1/runs/{run}/resume");
    assert_eq!(desk.rig.store.run(run).await.unwrap().profile_revision, 1);
    // With the revision that was agreed to it continues without anybody.
    desk.post(&desk.ann, &resume, asked(false)).await.ok();
    assert_eq!(desk.rig.store.run(run).await.unwrap().profile_revision, 1);
    desk.rig.put_run(run, RunStatus::Parked).await;
    held_and_approved(&desk, "POST", &resume, asked(true)).await;
    assert_eq!(desk.rig.store.run(run).await.unwrap().profile_revision, 2);
}

/// The approved revision is what is pinned, also where a newer one came between the two.
#[tokio::test]
async fn revision_that_came_after_the_request_is_not_approved() {
    let desk = Desk::serve(Rig::with_site().await).await;
    let (_, run) = parked(&desk, "j22u11").await;
    desk.set_policy(json!({ "erasing_above": 0 })).await;
    let patch = async |retries: u32| {
        let patch = json!({ "max_deploy_retry_attempts": retries });
        desk.rig.patch("/api/v1/profiles/h200", patch).await.ok();
    };
    patch(4).await;
    let asked = json!({ "actor": "x", "reason": "tried", "latest_profile": true });
    let path = format!("/api/v1/runs/{run}/resume");
    assert_eq!(desk.post(&desk.ann, &path, asked).await.code(), "second_person_needed");
    patch(5).await;
    let failed = desk.verdict(&desk.bob, &desk.waiting().await, "approve").await.ok();
    assert_eq!(failed["answer"]["code"], "approval_outdated", "{failed}");
    assert_eq!(desk.rig.store.run(run).await.unwrap().profile_revision, 1);
}

#[tokio::test]
async fn parked_run_is_asked_for_again_with_another_machine() {
    let desk = Desk::serve(Rig::with_site().await).await;
    let (node, _) = parked(&desk, "j22u11").await;
    desk.set_policy(json!({ "erasing_above": 0 })).await;
    desk.rig.post("/api/v1/sites", site("other")).await.ok();
    let change = |field: &str, value: Value| {
        let mut body = json!({ "actor": "x", "reason": "tried" });
        body[field] = value;
        if field == "bmc_address" {
            body["power_type"] = json!("ipmi");
            body["bmc_user"] = json!("root");
            body["bmc_password"] = json!("hush");
        }
        body
    };
    let path = "/api/v1/nodes/j22u11";
    for (field, value) in [
        ("mac_addresses", json!(["3c:ec:ef:00:11:22"])),
        ("bmc_address", json!("10.0.0.9")),
        ("system_id", json!("abc123")),
        ("serial", json!("S-1")),
    ] {
        let held = desk.send(&desk.ann, "PATCH", path, Some(change(field, value))).await;
        assert_eq!(held.code(), "second_person_needed", "{field}");
        desk.verdict(&desk.bob, &desk.waiting().await, "deny").await.ok();
    }
    let mac = change("mac_addresses", json!(["3c:ec:ef:00:11:22"]));
    held_and_approved(&desk, "PATCH", path, mac).await;
    let stored = desk.rig.store.listed_node(node).await.unwrap();
    assert_eq!(stored.node.hardware.mac_addresses, ["3c:ec:ef:00:11:22"]);
}

/// Sites of one region share its machines, so its strictest policy is in force at each of them.
#[tokio::test]
async fn machine_is_not_erased_by_way_of_another_site_of_its_region() {
    let desk = strict().await;
    share_region(&desk.rig).await;
    let machine = json!({ "hostname": "e", "site": "free", "profile": "h200" });
    let held = desk.post(&desk.ann, "/api/v1/nodes", machine.clone()).await;
    assert_eq!(held.code(), "second_person_needed");
    let id = desk.waiting().await;
    let machines = json!([{ "hostname": "m1" }]);
    let batch = json!({ "spec": { "name": "b1", "site": "free", "profile": "h200", "machines": machines } });
    assert_eq!(desk.post(&desk.ann, "/api/v1/batches", batch).await.code(), "second_person_needed");
    // Bob approves at both sites; somebody who approves only where no policy is does not count.
    let done = desk.verdict(&desk.bob, &id, "approve").await.ok();
    assert_eq!(done["state"], "done", "{done}");
    // A site of another region has no policy.
    desk.rig.post("/api/v1/sites", site("other")).await.ok();
    let elsewhere = json!({ "hostname": "f", "site": "other", "profile": "h200" });
    assert_eq!(desk.post(&desk.ann, "/api/v1/nodes", elsewhere).await.status, 202);
}

#[tokio::test]
async fn approver_of_a_site_without_a_policy_does_not_approve_for_its_region() {
    let desk = Desk::serve(Rig::with_site().await).await;
    share_region(&desk.rig).await;
    let body = json!({
        "name": "fay", "person": "fay", "grants": [{ "role": "approver", "sites": ["free"] }],
        "reason": "test",
    });
    let fay = desk.rig.post("/api/v1/tokens", body).await.ok();
    let fay = fay["token"].as_str().unwrap().to_owned();
    desk.set_policy(json!({ "erasing_above": 0 })).await;
    let machine = json!({ "hostname": "e", "site": "free", "profile": "h200" });
    assert_eq!(desk.post(&desk.ann, "/api/v1/nodes", machine).await.code(), "second_person_needed");
    let id = desk.waiting().await;
    assert_eq!(desk.verdict(&fay, &id, "approve").await.code(), "site_not_granted");
    assert_eq!(desk.verdict(&desk.bob, &id, "approve").await.ok()["state"], "done");
}

#[tokio::test]
async fn detached_node_is_counted() {
    let desk = Desk::serve(Rig::with_site().await).await;
    let node = desk.active("j22u11").await;
    desk.set_policy(json!({ "erasing_above": 0 })).await;
    let body = json!({ "kind": "detach", "actor": "x", "reason": "moved" });
    held_and_approved(&desk, "POST", "/api/v1/nodes/j22u11/runs", body).await;
    let run = desk.rig.store.listed_node(node).await.unwrap().run.unwrap();
    assert_eq!(run.kind, gpuaas_types::RunKind::Detach);
}

/// The policy of a site protects machines, not a row: the row neither goes nor moves alone.
#[tokio::test]
async fn site_with_a_policy_is_neither_removed_nor_moved_alone() {
    let desk = strict().await;
    let removal = json!({ "actor": "x", "reason": "empty" });
    let refused = desk.rig.post("/api/v1/sites/lab/remove", removal.clone()).await;
    assert_eq!(refused.code(), "site_in_use");
    let path = "/api/v1/sites/lab";
    let patch = json!({ "url": "http://other.example:5240/MAAS", "api_key": crate::rig::KEY });
    assert_eq!(desk.rig.patch(path, patch).await.code(), "second_person_needed");
    let id = desk.waiting().await;
    let shown = desk.show(&id).await;
    assert_eq!(shown["request"]["body"]["api_key"], "hidden", "{shown}");
    assert_eq!(desk.verdict(&desk.bob, &id, "approve").await.ok()["state"], "done");
    let moved = desk.rig.get(path).await.ok();
    assert_eq!(moved["spec"]["url"], "http://other.example:5240/MAAS");
    let off = json!({ "second_person": {} });
    assert_eq!(desk.rig.patch(path, off).await.code(), "second_person_needed");
    desk.verdict(&desk.bob, &desk.waiting().await, "approve").await.ok();
    desk.rig.post("/api/v1/sites/lab/remove", removal).await.ok();
}

#[tokio::test]
async fn skipped_check_of_an_image_is_an_approval_of_it() {
    let desk = Desk::serve(Rig::with_site().await).await;
    let made = desk.rig.onboard("j22u11").await;
    let now = desk.rig.now();
    let mut run = desk.rig.store.claim(now, now.plus_seconds(30.0), 1).await.unwrap().remove(0).run;
    for name in ["image_available_and_approved", "artifacts_fetchable"] {
        let evidence = "not approved".to_owned();
        let check =
            CheckResult { name: name.to_owned(), passed: false, verified: true, evidence, at: now };
        run.state.checks.insert(name.to_owned(), check);
    }
    (run.status, run.due_at) = (RunStatus::Parked, Timestamp::NEVER);
    desk.rig.store.commit(now, RunWrite::new(run).releasing()).await.unwrap();
    desk.set_policy(json!({ "image_approvals": true })).await;
    let path = format!("/api/v1/runs/{}/skip-check", made.run_id);
    let skip =
        |check: &str| json!({ "actor": "x", "reason": "tried", "check": check, "seconds": 60 });
    desk.post(&desk.ann, &path, skip("artifacts_fetchable")).await.ok();
    held_and_approved(&desk, "POST", &path, skip("image_available_and_approved")).await;
}

#[tokio::test]
async fn released_slice_is_counted() {
    let slice = SliceRig::new().await;
    let id = slice.running().await;
    let desk = Desk::serve(slice.rig).await;
    desk.set_policy(json!({ "erasing_above": 0 })).await;
    let path = format!("{CLAIMS}/{id}?actor=x&reason=over");
    let release = async || desk.send(&desk.ann, "DELETE", &path, None).await;
    assert_eq!(release().await.code(), "second_person_needed");
    let state = async || desk.rig.get(&format!("{CLAIMS}/{id}")).await.ok()["state"].clone();
    assert_eq!(state().await, "in_use");
    let waiting = desk.waiting().await;
    let done = desk.verdict(&desk.bob, &waiting, "approve").await.ok();
    assert_eq!((&done["state"], state().await), (&json!("done"), json!("releasing")), "{done}");
}
