//! What waits for another person, asked and decided over sockets with the credentials of two.

use gpuaas_types::{NodeState, RunStatus};
use serde_json::{Value, json};

use crate::bundles::{self, archive};
use crate::rig::{Answer, Rig};

/// A control plane that listens, and two people with a credential each: one may operate, one approve.
pub(crate) struct Desk {
    pub(crate) rig: Rig,
    url: String,
    client: reqwest::Client,
    pub(crate) ann: String,
    pub(crate) bob: String,
}

impl Desk {
    /// With a site whose policy is this one.
    async fn with(policy: Value) -> Self {
        let rig = Rig::with_site().await;
        let desk = Self::serve(rig).await;
        desk.set_policy(policy).await;
        desk
    }

    pub(crate) async fn serve(rig: Rig) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = rig.router.clone();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        gpuaas_testkit::install_ring();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut desk = Self { rig, url, client, ann: String::new(), bob: String::new() };
        desk.ann = desk.token("ann-cli", &["operator", "approver"], Some("ann")).await;
        desk.bob = desk.token("bob-cli", &["approver"], Some("bob")).await;
        desk
    }

    pub(crate) async fn token(&self, name: &str, roles: &[&str], person: Option<&str>) -> String {
        let grants: Vec<Value> = roles.iter().map(|role| json!({ "role": role })).collect();
        let mut body = json!({ "name": name, "grants": grants, "reason": "for the test" });
        if let Some(person) = person {
            body["person"] = json!(person);
        }
        let made = self.rig.post("/api/v1/tokens", body).await.ok();
        made["token"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn set_policy(&self, policy: Value) {
        self.rig.patch("/api/v1/sites/lab", json!({ "second_person": policy })).await.ok();
    }

    pub(crate) async fn send(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request =
            self.client.request(method, format!("{}{path}", self.url)).bearer_auth(token);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, headers, bytes: response.bytes().await.unwrap().to_vec() }
    }

    pub(crate) async fn post(&self, token: &str, path: &str, body: Value) -> Answer {
        self.send(token, "POST", path, Some(body)).await
    }

    pub(crate) async fn verdict(&self, token: &str, id: &str, verdict: &str) -> Answer {
        let body = json!({ "reason": "looked at it" });
        self.post(token, &format!("/api/v1/approvals/{id}/{verdict}"), body).await
    }

    pub(crate) async fn show(&self, id: &str) -> Value {
        self.send(&self.bob, "GET", &format!("/api/v1/approvals/{id}"), None).await.ok()
    }

    /// The one request that waits.
    pub(crate) async fn waiting(&self) -> String {
        let list = self.send(&self.bob, "GET", "/api/v1/approvals?open=true", None).await.ok();
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 1, "{list}");
        items[0]["id"].as_str().unwrap().to_owned()
    }

    /// A node in service.
    pub(crate) async fn active(&self, hostname: &str) -> gpuaas_types::NodeId {
        let accepted = self.rig.onboard(hostname).await;
        let now = self.rig.now();
        let claimed = self.rig.store.claim(now, now.plus_seconds(60.0), 1).await.unwrap().remove(0);
        let mut run = claimed.run;
        (run.status, run.ended_at) = (RunStatus::Succeeded, Some(now));
        let mut write = gpuaas_store::RunWrite::new(run).releasing();
        let (state, system_id) = (Some(NodeState::Active), Some(format!("m-{hostname}")));
        write.node = Some(gpuaas_store::NodeChange { state, system_id });
        self.rig.store.commit(now, write).await.unwrap();
        accepted.node_id
    }

    pub(crate) async fn reimage(&self, token: &str, hostname: &str) -> Answer {
        let body = json!({ "kind": "reimage", "actor": "x", "reason": "new image" });
        self.post(token, &format!("/api/v1/nodes/{hostname}/runs"), body).await
    }

    pub(crate) async fn actions(&self) -> Vec<String> {
        let rows = self.rig.store.audit_entries(0, 1000).await.unwrap();
        rows.into_iter().map(|row| row.entry.action).collect()
    }
}

#[tokio::test]
async fn a_reimage_waits_for_another_person_and_is_done_once() {
    let desk = Desk::serve(Rig::with_site().await).await;
    let node = desk.active("j22u11").await;
    let second = desk.token("ann-phone", &["approver"], Some("ann")).await;
    let operator = desk.token("eve", &["operator"], Some("eve")).await;
    desk.set_policy(json!({ "erasing_above": 0 })).await;

    let held = desk.reimage(&desk.ann, "j22u11").await;
    assert_eq!((held.status, held.code().as_str()), (409, "second_person_needed"));
    let id = desk.waiting().await;
    let body = held.json();
    assert!(body["detail"].as_str().unwrap().contains(&id), "{body}");
    assert!(body["hint"].as_str().unwrap().contains(&format!("approval approve {id}")), "{body}");
    assert_eq!(
        desk.rig.store.listed_node(node).await.unwrap().run.unwrap().status,
        RunStatus::Succeeded
    );
    let again = desk.reimage(&desk.ann, "j22u11").await;
    assert!(again.json()["detail"].as_str().unwrap().contains(&id), "it is the same request");

    let said = desk.rig.get("/api/v1/nodes/j22u11/explain").await.ok();
    assert_eq!(said["code"], "second_person_needed");
    assert!(said["next_action"].as_str().unwrap().contains(&id), "{said}");

    // Neither who asked, nor by another token of the same person, nor somebody without the role.
    for token in [&desk.ann, &second] {
        let refused = desk.verdict(token, &id, "approve").await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "approval_own_request"));
    }
    assert_eq!(desk.verdict(&operator, &id, "approve").await.code(), "role_missing");
    assert_eq!(desk.show(&id).await["state"], "pending");

    let shown = desk.show(&id).await;
    assert_eq!(shown["request"]["body"]["kind"], "reimage");
    assert_eq!((&shown["requested_by"], &shown["node"]), (&json!("ann-cli"), &json!("j22u11")));

    let both = tokio::join!(
        desk.verdict(&desk.bob, &id, "approve"),
        desk.verdict(&desk.rig.admin, &id, "approve")
    );
    let (done, late) = if both.0.status == 200 { both } else { (both.1, both.0) };
    let done = done.ok();
    assert_eq!(done["state"], "done", "{done}");
    assert_eq!(late.code(), "approval_decided");
    let run = desk.rig.store.listed_node(node).await.unwrap().run.unwrap();
    assert_eq!(done["answer"]["run_id"], json!(run.id));
    let runs = desk.rig.store.runs_of_node(node, gpuaas_store::Page::first(9)).await.unwrap();
    assert_eq!(runs.len(), 2, "one run was begun");

    let actions = desk.actions().await;
    for action in ["approval.ask", "approval.approve", "node.reimage"] {
        assert_eq!(actions.iter().filter(|one| *one == action).count(), 1, "{action}");
    }
    let audit = desk.rig.store.audit_entries(0, 1000).await.unwrap();
    let begun = audit.iter().find(|row| row.entry.action == "node.reimage").unwrap();
    assert_eq!(begun.entry.actor, "ann-cli (x)", "it is done as whoever asked");
    let history = desk.rig.store.timeline_of_node(node, 0, 100).await.unwrap();
    let codes: Vec<&str> = history.iter().map(|row| row.event.code.as_str()).collect();
    assert!(codes.contains(&"approval_asked") && codes.contains(&"approval_given"), "{codes:?}");
}

#[tokio::test]
async fn what_has_changed_or_expired_is_not_done() {
    let desk = Desk::serve(Rig::with_site().await).await;
    let node = desk.active("j22u11").await;
    desk.set_policy(json!({ "erasing_above": 0 })).await;
    desk.reimage(&desk.ann, "j22u11").await;
    let id = desk.waiting().await;
    desk.rig.patch("/api/v1/profiles/h200", json!({ "max_deploy_retry_attempts": 4 })).await.ok();
    let failed = desk.verdict(&desk.bob, &id, "approve").await.ok();
    assert_eq!(
        (&failed["state"], &failed["answer"]["code"]),
        (&json!("failed"), &json!("approval_outdated"))
    );

    desk.reimage(&desk.ann, "j22u11").await;
    let id = desk.waiting().await;
    desk.rig.advance(86_400);
    assert_eq!(desk.show(&id).await["state"], "expired");
    for verdict in ["approve", "deny"] {
        assert_eq!(desk.verdict(&desk.bob, &id, verdict).await.code(), "approval_expired");
    }

    desk.reimage(&desk.ann, "j22u11").await;
    let id = desk.waiting().await;
    assert_eq!(desk.verdict(&desk.ann, &id, "deny").await.ok()["state"], "denied");
    assert_eq!(desk.verdict(&desk.bob, &id, "approve").await.code(), "approval_decided");

    desk.reimage(&desk.ann, "j22u11").await;
    let id = desk.waiting().await;
    let gone = json!({ "reason": "left" });
    desk.rig.post("/api/v1/tokens/ann-cli/revoke", gone).await.ok();
    assert_eq!(desk.verdict(&desk.bob, &id, "approve").await.code(), "approval_outdated");
    let runs = desk.rig.store.runs_of_node(node, gpuaas_store::Page::first(9)).await.unwrap();
    assert_eq!(runs.len(), 1, "no run was begun");
    let missing = desk.verdict(&desk.bob, "00000000-0000-0000-0000-000000000000", "deny").await;
    assert_eq!(missing.code(), "approval_not_found");
}

#[tokio::test]
async fn erasing_is_counted_by_person_and_hour() {
    let desk = Desk::serve(Rig::with_site().await).await;
    for name in ["a", "b", "c", "d"] {
        desk.active(name).await;
    }
    let second = desk.token("ann-phone", &["operator"], Some("ann")).await;
    let other = desk.token("eve", &["operator"], Some("eve")).await;
    desk.set_policy(json!({ "erasing_above": 2 })).await;
    assert_eq!(desk.reimage(&desk.ann, "a").await.status, 202);
    let plan = json!({ "kind": "reimage", "actor": "x", "reason": "y", "dry_run": true });
    assert_eq!(desk.post(&desk.ann, "/api/v1/nodes/b/runs", plan).await.status, 200);
    assert_eq!(desk.reimage(&desk.ann, "b").await.status, 202);
    assert_eq!(desk.reimage(&desk.ann, "c").await.code(), "second_person_needed");
    assert_eq!(desk.reimage(&second, "c").await.code(), "second_person_needed");
    let detach = json!({ "kind": "detach", "actor": "x", "reason": "y" });
    let held = desk.post(&desk.ann, "/api/v1/nodes/d/runs", detach).await;
    assert_eq!(held.code(), "second_person_needed", "what is let go of may be erased elsewhere");
    let machine = json!({ "hostname": "e", "site": "lab", "profile": "h200" });
    assert_eq!(desk.post(&other, "/api/v1/nodes", machine).await.status, 202);
    desk.rig.advance(3_601);
    assert_eq!(desk.reimage(&desk.ann, "c").await.status, 202);
}

#[tokio::test]
async fn a_batch_waits_whole_and_its_passwords_are_shown_to_nobody() {
    let desk = Desk::with(json!({ "erasing_above": 1 })).await;
    let machine = |name: &str, address: &str| {
        json!({
            "hostname": name, "bmc_address": address, "bmc_user": "root",
            "bmc_password": "hush-hush",
        })
    };
    let batch = json!({ "spec": {
        "name": "rack", "site": "lab", "profile": "h200",
        "machines": [machine("m1", "10.0.0.1"), machine("m2", "10.0.0.2")],
    }});
    let held = desk.post(&desk.ann, "/api/v1/batches", batch.clone()).await;
    assert_eq!(held.code(), "second_person_needed");
    assert_eq!(desk.rig.get("/api/v1/batches").await.ok()["items"], json!([]));
    let id = desk.waiting().await;
    // A request that holds a secret is known again as well, and another secret is another request.
    let again = desk.post(&desk.ann, "/api/v1/batches", batch.clone()).await;
    assert!(again.json()["detail"].as_str().unwrap().contains(&id), "{:?}", again.json());
    assert_eq!(desk.waiting().await, id);
    let mut other = batch;
    other["spec"]["machines"][0]["bmc_password"] = json!("other");
    let other = desk.post(&desk.ann, "/api/v1/batches", other).await;
    assert!(!other.json()["detail"].as_str().unwrap().contains(&id), "{:?}", other.json());
    let shown = desk.show(&id).await;
    assert!(!shown.to_string().contains("hush-hush"), "{shown}");
    assert_eq!(shown["request"]["body"]["spec"]["machines"][0]["bmc_password"], "hidden");
    let done = desk.verdict(&desk.bob, &id, "approve").await.ok();
    assert_eq!(done["state"], "done", "{done}");
    let nodes = desk.rig.get("/api/v1/nodes").await.ok();
    let first: gpuaas_types::NodeId =
        serde_json::from_value(nodes["items"][0]["id"].clone()).unwrap();
    let kept = desk.rig.store.bmc_password(first).await.unwrap().unwrap();
    assert_eq!(gpuaas_store::ExposeSecret::expose_secret(&kept), "hush-hush");
}

#[tokio::test]
async fn bundles_agents_and_the_policy_itself_wait() {
    let desk = Desk::with(json!({ "bundle_approvals": true, "agent_updates": true })).await;
    bundles::publish(&desk.rig, &archive("waits", &json!({})), None).await.ok();
    let asked = json!({ "site": "lab", "actor": "x", "reason": "tried" });
    let path = "/api/v1/bundles/waits@1.0.0/approve";
    let held = desk.post(&desk.ann, path, asked).await;
    assert_eq!(held.code(), "second_person_needed");
    let id = desk.waiting().await;
    let done = desk.verdict(&desk.bob, &id, "approve").await.ok();
    assert_eq!(done["answer"]["items"][0]["approved_for"], json!(["lab"]), "{done}");

    for weaker in [json!({ "agent_updates": true }), json!({}), Value::Null] {
        let patch = json!({ "second_person": weaker });
        let held = desk.rig.patch("/api/v1/sites/lab", patch).await;
        assert_eq!(held.code(), "second_person_needed", "{weaker}");
    }
    let stronger = json!({ "bundle_approvals": true, "agent_updates": true, "erasing_above": 9 });
    desk.set_policy(stronger).await;
    let mixed = json!({ "second_person": {}, "idle_poll_seconds": 9 });
    assert_eq!(desk.rig.patch("/api/v1/sites/lab", mixed).await.code(), "invalid_field");
}

/// A control plane that is killed between the decision and the work leaves the request approved and
/// nothing done; the next look of any control plane does it, once.
#[tokio::test]
async fn an_approved_request_is_executed_after_a_kill_and_once() {
    let desk = Desk::serve(Rig::with_site().await).await;
    let node = desk.active("j22u11").await;
    desk.set_policy(json!({ "erasing_above": 0 })).await;
    assert_eq!(desk.reimage(&desk.ann, "j22u11").await.code(), "second_person_needed");
    let id = desk.waiting().await;
    let verdict = gpuaas_store::ApprovalVerdict {
        id: gpuaas_types::ApprovalId(id.parse().unwrap()),
        verdict: gpuaas_core::second_person::Verdict::Approve,
        decided_by: "bob".to_owned(),
        reason: "looked".to_owned(),
        history: Vec::new(),
        audit: gpuaas_store::NewAuditEntry::in_test(),
    };
    desk.rig.store.decide_approval(desk.rig.now(), verdict).await.unwrap();
    assert_eq!(desk.rig.experiments.execute_approved().await, 0, "another one may be at it");
    desk.rig.advance(20);
    assert_eq!(desk.rig.experiments.execute_approved().await, 1);
    assert_eq!(desk.show(&id).await["state"], "done");
    let run = desk.rig.store.listed_node(node).await.unwrap().run.unwrap();
    assert_eq!(run.kind, gpuaas_types::RunKind::Reimage);
    assert_eq!(desk.rig.experiments.execute_approved().await, 0);
    let actions = desk.actions().await;
    assert_eq!(actions.iter().filter(|one| *one == "node.reimage").count(), 1, "{actions:?}");
}

/// An image on the site's own list may be deployed: adding one is an approval of it.
#[tokio::test]
async fn an_image_on_the_sites_list_waits_as_an_approval_does() {
    let desk = Desk::with(json!({ "image_approvals": true })).await;
    let list = |images: &[&str]| json!({ "approved_images": images });
    let patch = async |images: &[&str]| desk.rig.patch("/api/v1/sites/lab", list(images)).await;
    assert_eq!(patch(&["custom/evil"]).await.code(), "invalid_field", "any file of the name");
    let evil = format!("custom/evil@sha256:{}", "ab".repeat(32));
    assert_eq!(patch(&[&evil]).await.code(), "second_person_needed");
    let site = desk.rig.get("/api/v1/sites/lab").await.ok();
    assert_eq!(site["spec"].get("approved_images"), None, "{site}");
    let id = desk.waiting().await;
    assert_eq!(desk.verdict(&desk.bob, &id, "approve").await.ok()["state"], "done");
    let site = desk.rig.get("/api/v1/sites/lab").await.ok();
    assert_eq!(site["spec"]["approved_images"], json!([evil]));
    // Taking one away needs nobody.
    patch(&[]).await.ok();
}
