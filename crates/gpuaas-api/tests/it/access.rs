//! Who may do what: the table of operations, walked for real as each role.

use gpuaas_types::access::{OPERATIONS, OperationRow, Role, Scope};
use serde_json::{Value, json};

use crate::rig::{Answer, Rig, site};

/// A token with one role; `sites`: where it holds, everywhere if none.
async fn token(rig: &Rig, name: &str, role: Role, sites: Option<&[&str]>) -> String {
    let mut grant = json!({ "role": role });
    if let Some(sites) = sites {
        grant["sites"] = json!(sites);
    }
    let body = json!({ "name": name, "grants": [grant], "reason": "for the test" });
    let made = rig.post("/api/v1/tokens", body).await;
    assert_eq!(made.status, 201, "{}", made.json());
    made.json()["token"].as_str().unwrap().to_owned()
}

/// A path of the row with `node` and `run` in it, and for everything else what does not exist.
fn path(row: &OperationRow, node: &str, run: &str) -> String {
    row.path
        .replace("{node}", node)
        .replace("{run}", run)
        .replace("{name}", "lab")
        .replace("{token}", "nobody")
        .replace("{task}", "00000000-0000-0000-0000-000000000000")
        .replace("{*path}", "api/v1/info")
        .replace(['{', '}'], "")
}

/// A body that is refused for itself, once the credential was let through; it names a site where
/// that decides.
fn body(row: &OperationRow) -> Option<Value> {
    let of_site = json!({
        "site": "lab", "hostname": "j22u11", "interface": "ens9",
        "subnet_cidr": "10.101.0.0/24", "ip_address": "10.101.0.21",
    });
    match (row.method, row.path) {
        ("GET" | "DELETE", _) => None,
        (_, "/api/v1/batches") => Some(json!({ "spec": {
            "name": "rack", "site": "lab", "profile": "none", "machines": [],
        }})),
        (_, "/api/v1/bundles/{bundle}/approve") => {
            Some(json!({ "site": "lab", "actor": "eve", "reason": "test" }))
        }
        (_, "/api/v1/experiments") => Some(json!({
            "name": "no name", "site": "lab", "profile": "none", "images": [], "nodes": 2,
            "reason": "test",
        })),
        (_, "/api/v1/experiments/import") => {
            Some(json!({ "name": "no name", "site": "lab", "arms": [], "reason": "test" }))
        }
        (_, "/api/v1/images") => {
            Some(json!({ "name": "h200", "site": "lab", "state": "uploaded", "sha256": "short" }))
        }
        (_, "/api/v1/image-verdicts") => {
            Some(json!({ "site": "lab", "sha256": "short", "errors": 0 }))
        }
        (_, "/api/v1/images/{image}/transition") => {
            Some(json!({ "site": "lab", "to": "approved", "actor": "eve", "reason": "test" }))
        }
        (_, "/api/v1/images/{image}/delete") => {
            Some(json!({ "site": "lab", "actor": "eve", "reason": "test" }))
        }
        (_, "/api/v1/nodes" | "/api/v1/onboarding-plans") => {
            Some(json!({ "hostname": "j22u12", "site": "lab", "profile": "none" }))
        }
        (_, "/api/v1/roce-assignments/remove") => {
            Some(json!({ "site": "lab", "hostname": "j22u11", "interface": "ens9" }))
        }
        (_, "/api/v1/roce-assignments/change") => Some(json!({
            "site": "lab", "hostname": "j22u11", "interface": "ens9", "to_interface": "ens10",
        })),
        (_, "/api/v1/admin/slice-claims") => Some(json!({
            "gpus": 1, "site": "lab", "owner": "eve", "actor": "eve", "reason": "test",
        })),
        (_, "/api/v1/admin/node-claims") => Some(json!({
            "site": "lab", "owner": "eve", "actor": "eve", "reason": "test",
        })),
        _ if row.scope == Scope::SiteOfBody => Some(of_site),
        _ => Some(json!({})),
    }
}

async fn send(rig: &Rig, row: &OperationRow, token: &str, node: &str, run: &str) -> Answer {
    let path = path(row, node, run);
    rig.call(row.method, &path, Some(token), body(row)).await
}

fn is_refused(answer: &Answer) -> bool {
    answer.status == 403 && ["role_missing", "site_not_granted"].contains(&answer.code().as_str())
}

#[tokio::test]
async fn every_operation_opens_to_its_roles_alone() {
    let rig = Rig::with_site().await;
    let node = rig.onboard("j22u11").await;
    let (node, run) = (node.node_id.to_string(), node.run_id.to_string());
    for role in Role::ALL {
        let token = token(&rig, &format!("{role}-token"), *role, None).await;
        for row in OPERATIONS {
            let answer = send(&rig, row, &token, &node, &run).await;
            let may = role.includes(row.role);
            assert_eq!(!is_refused(&answer), may, "{role}: {} {}", row.method, row.path);
            if may && answer.status == 404 {
                assert_ne!(answer.code(), "method_not_allowed", "{}", row.path);
                let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
                assert!(!detail.starts_with("unknown path"), "{}: {detail}", row.path);
            }
            assert_ne!(answer.status, 405, "{} {}", row.method, row.path);
        }
    }
}

#[tokio::test]
async fn nothing_opens_without_a_credential() {
    let rig = Rig::with_site().await;
    for row in OPERATIONS {
        let path = path(row, "j22u11", "j22u11");
        for (shown, code) in [(None, "token_missing"), (Some("guess"), "token_unknown")] {
            let answer = rig.call(row.method, &path, shown, body(row)).await;
            assert_eq!((answer.status, answer.code().as_str()), (401, code), "{}", row.path);
        }
        let unknown = rig.call(row.method, &path, Some("gptoken_0"), body(row)).await;
        assert_eq!(unknown.code(), "token_unknown", "{}", row.path);
    }
}

#[tokio::test]
async fn a_role_for_some_sites_holds_there_alone() {
    let rig = Rig::with_site().await;
    let there = rig.onboard("j22u11").await;
    let (node, run) = (there.node_id.to_string(), there.run_id.to_string());
    let at_lab = token(&rig, "lab-admin", Role::Admin, Some(&["lab"])).await;
    let mut other = site("other");
    other["spec"]["url"] = json!("http://other.example:5240/MAAS");
    rig.post("/api/v1/sites", other).await.ok();
    let elsewhere = token(&rig, "other-admin", Role::Admin, Some(&["other"])).await;
    for row in OPERATIONS {
        let (method, of) = (row.method, row.path);
        let mine = is_refused(&send(&rig, row, &at_lab, &node, &run).await);
        let theirs = send(&rig, row, &elsewhere, &node, &run).await;
        let (at_mine, at_theirs) = match row.scope {
            Scope::Shared => (false, false),
            // The query of these requests names no site.
            Scope::Everywhere | Scope::SiteOfQuery => (true, true),
            // No such task, batch, claim, approval or experiment: nobody is told more.
            Scope::SiteOfTask
            | Scope::SiteOfBatch
            | Scope::SiteOfClaim
            | Scope::SiteOfApproval
            | Scope::SiteOfExperiment => {
                assert_eq!(theirs.status, 404, "{method} {of}");
                continue;
            }
            _ => (false, true),
        };
        assert_eq!((mine, is_refused(&theirs)), (at_mine, at_theirs), "{method} {of}");
        if at_theirs {
            assert_eq!(theirs.code(), "site_not_granted", "{method} {of}");
        }
    }
    let list = |token: &str, query: &str| {
        let (path, token) = (format!("/api/v1/nodes{query}"), token.to_owned());
        let rig = &rig;
        async move { rig.call("GET", &path, Some(&token), None).await }
    };
    assert_eq!(list(&at_lab, "?site=lab").await.ok()["items"].as_array().unwrap().len(), 1);
    assert_eq!(list(&elsewhere, "?site=lab").await.code(), "site_not_granted");
    assert_eq!(list(&elsewhere, "?site=other").await.ok()["items"], json!([]));
    let batches = async |token: &str, query: &str| {
        rig.call("GET", &format!("/api/v1/batches{query}"), Some(token), None).await
    };
    assert_eq!(batches(&at_lab, "?site=lab").await.ok()["items"], json!([]));
    assert_eq!(batches(&at_lab, "").await.code(), "site_not_granted");
    assert_eq!(batches(&elsewhere, "?site=lab").await.code(), "site_not_granted");
    let sites = rig.call("GET", "/api/v1/sites", Some(&elsewhere), None).await.ok();
    let names: Vec<&Value> =
        sites["items"].as_array().unwrap().iter().map(|site| &site["spec"]["name"]).collect();
    assert_eq!(names, [&json!("other")]);
}

#[tokio::test]
async fn a_token_ends_and_its_name_is_the_actor() {
    let rig = Rig::with_site().await;
    let node = rig.onboard("j22u11").await;
    let body = json!({
        "name": "ci", "grants": [{ "role": "operator" }], "expires_in_seconds": 3600,
        "reason": "pipeline",
    });
    let made = rig.post("/api/v1/tokens", body.clone()).await.ok();
    let token = made["token"].as_str().unwrap();
    assert_eq!(rig.post("/api/v1/tokens", body.clone()).await.code(), "token_name_taken");
    let access = rig.call("GET", "/api/v1/access", Some(token), None).await.ok();
    assert_eq!(access, json!({ "name": "ci", "grants": [{ "role": "operator" }] }));

    let cancel = json!({ "actor": "eve", "reason": "wrong host" });
    let path = format!("/api/v1/runs/{}/cancel", node.run_id);
    rig.call("POST", &path, Some(token), Some(cancel)).await.ok();
    let entries = rig.store.audit_entries(0, 100).await.unwrap();
    let cancelled = entries.iter().find(|one| one.entry.action == "run.cancel").unwrap();
    assert_eq!(cancelled.entry.actor, "ci (eve)", "what a caller writes is a note");

    let listed = rig.get("/api/v1/tokens").await.ok();
    let ci = &listed["items"][0];
    assert_eq!((&ci["name"], ci["last_used_at"].is_string()), (&json!("ci"), true));
    assert!(!listed.to_string().contains(token), "a token is shown once");
    rig.advance(3601);
    let late = rig.call("GET", "/api/v1/access", Some(token), None).await;
    assert_eq!((late.status, late.code().as_str()), (401, "token_expired"));

    let reason = json!({ "reason": "done" });
    rig.post("/api/v1/tokens/ci/revoke", reason.clone()).await.ok();
    assert_eq!(rig.post("/api/v1/tokens/ci/revoke", reason).await.code(), "access_token_not_found");
    let again = rig.post("/api/v1/tokens", body).await;
    assert_eq!(again.status, 201, "the name is free again");
    let gone = rig.call("GET", "/api/v1/access", Some(token), None).await;
    assert_eq!((gone.status, gone.code().as_str()), (401, "token_revoked"));
}

#[tokio::test]
async fn a_token_says_what_it_is_for() {
    let rig = Rig::with_site().await;
    for (field, body) in [
        ("name", json!({ "name": "A b", "grants": [{ "role": "viewer" }], "reason": "x" })),
        ("reason", json!({ "name": "a", "grants": [{ "role": "viewer" }], "reason": " " })),
        ("grants", json!({ "name": "a", "grants": [], "reason": "x" })),
        (
            "grants.0.sites",
            json!({ "name": "a", "grants": [{ "role": "viewer", "sites": [] }], "reason": "x" }),
        ),
        (
            "expires_in_seconds",
            json!({
                "name": "a", "grants": [{ "role": "viewer" }], "reason": "x",
                "expires_in_seconds": 5,
            }),
        ),
    ] {
        let answer = rig.post("/api/v1/tokens", body).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_field"), "{field}");
        assert_eq!(answer.json()["errors"][0]["field"], field);
    }
    let body =
        json!({ "name": "a", "grants": [{ "role": "viewer", "sites": ["no"] }], "reason": "x" });
    let answer = rig.post("/api/v1/tokens", body).await;
    assert_eq!((answer.status, answer.code().as_str()), (404, "site_not_found"));
    assert_eq!(answer.json()["errors"][0]["field"], "grants.0.sites");
    assert_eq!(rig.get("/api/v1/tokens").await.ok()["items"], json!([]));
}
