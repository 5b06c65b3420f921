//! Reading the audit log and the history of a node.

use gpuaas_api::{ApiSettings, NodeAccess};
use gpuaas_core::audit_chain::ChainVerifier;
use gpuaas_store::NewAuditEntry;
use gpuaas_types::api::{List, Source, TimelineEvent};
use gpuaas_types::audit::{AuditChainPage, AuditItem, TimelineLine};
use gpuaas_types::{AuditAction, Timestamp};
use serde_json::json;

use crate::rig::{BEGIN, Rig};

async fn actions(rig: &Rig, query: &str) -> Vec<String> {
    let answer = rig.get(&format!("/api/v1/audit{query}")).await.ok();
    let list: List<AuditItem> = serde_json::from_value(answer).unwrap();
    list.items.into_iter().map(|entry| entry.action).collect()
}

#[tokio::test]
async fn the_audit_log_is_read_by_site_node_actor_and_time() {
    let rig = Rig::with_site().await;
    rig.onboard("j22u11").await;
    rig.onboard("j22u15").await;
    let reason = json!({ "actor": "ann", "reason": "tried" });
    rig.post("/api/v1/runs/j22u11/cancel", reason).await.ok();
    let all = actions(&rig, "").await;
    assert_eq!(all[..3], ["run.cancel", "node.onboard", "node.onboard"]);
    assert!(all.contains(&"site.create".to_owned()), "{all:?}");
    assert_eq!(actions(&rig, "?node=j22u11").await, ["run.cancel", "node.onboard"]);
    assert_eq!(actions(&rig, "?actor=ann&site=lab").await, ["run.cancel"]);
    let of_site = actions(&rig, "?site=lab").await;
    assert_eq!((of_site.len(), of_site.last().unwrap().as_str()), (4, "site.create"));
    assert_eq!(actions(&rig, "?site=other").await, Vec::<String>::new());

    let at = Timestamp::NEVER.plus_seconds(-1.0);
    let late = NewAuditEntry {
        actor: "bob".to_owned(),
        action: AuditAction::TestWrite,
        subject: String::new(),
        detail: json!({}),
    };
    rig.store.append_audit_entry(at, late).await.unwrap();
    assert_eq!(actions(&rig, &format!("?since={at}")).await, ["test.write"]);

    let first = rig.get("/api/v1/audit?node=j22u11&limit=1").await.ok();
    assert_eq!(
        (&first["items"][0]["hostname"], &first["items"][0]["site"]),
        (&json!("j22u11"), &json!("lab"))
    );
    let next = first["next"].as_str().unwrap();
    let second = actions(&rig, &format!("?node=j22u11&limit=1&after={next}")).await;
    assert_eq!(second, ["node.onboard"]);
    assert_eq!(rig.get("/api/v1/audit?node=x").await.code(), "node_not_found");
    for query in ["since=yesterday", "after=x", "limit=0", "who=ann"] {
        let refused = rig.get(&format!("/api/v1/audit?{query}")).await;
        assert_eq!(refused.code(), "invalid_query", "{query}");
    }
}

#[tokio::test]
async fn an_entry_names_its_request_and_the_log_is_a_chain() {
    let rig = Rig::with_site().await;
    rig.onboard("j22u11").await;
    let patch = json!({ "pxe_vlan": 101 });
    rig.patch("/api/v1/sites/lab", patch).await.ok();
    let list = rig.get("/api/v1/audit?limit=1").await.ok();
    let entry = &list["items"][0];
    assert_eq!((&entry["action"], &entry["role"]), (&json!("site.change"), &json!("admin")));
    assert_eq!(entry["result"], "done");
    assert_eq!(entry["request_id"].as_str().unwrap().len(), 36);
    let digests = [&entry["before"], &entry["after"]];
    assert!(digests.iter().all(|digest| digest.as_str().unwrap().len() == 64), "{entry}");
    assert_ne!(digests[0], digests[1]);

    let mut verifier: Option<ChainVerifier> = None;
    let mut path = "/api/v1/audit/chain?limit=1".to_owned();
    let verdict = loop {
        let page = rig.get(&path).await.ok();
        let page: AuditChainPage = serde_json::from_value(page).unwrap();
        let verifier =
            verifier.get_or_insert_with(|| ChainVerifier::new(&page.anchor, None).unwrap());
        page.items.iter().try_for_each(|row| verifier.check(row)).unwrap();
        match page.next {
            Some(next) => path = format!("/api/v1/audit/chain?limit=1&after={next}"),
            None => {
                let verifier =
                    std::mem::replace(verifier, ChainVerifier::new(&page.anchor, None).unwrap());
                break verifier.finish(&page.head, &page.strays).unwrap();
            }
        }
    };
    let all = actions(&rig, "?limit=1000").await;
    assert_eq!(verdict.rows, u64::try_from(all.len()).unwrap());
    assert!(verdict.intact && verdict.rows > 2);
}

/// An auditor is told for how long entries are kept, and how far back the log reaches.
#[tokio::test]
async fn retention_and_oldest_entry_are_shown() {
    let settings = ApiSettings { retention_seconds: Some(86_400), ..ApiSettings::default() };
    let rig = Rig::set(NodeAccess::StandIns, BEGIN, settings).await;
    let chain = async || rig.get("/api/v1/audit/chain?limit=1").await.ok();
    assert_eq!(chain().await["retention_seconds"], 86_400);
    rig.add_site().await;
    let at = chain().await["oldest_at"].clone();
    rig.advance(60);
    rig.patch("/api/v1/sites/lab", json!({ "pxe_vlan": 101 })).await.ok();
    assert_eq!(chain().await["oldest_at"], at);
    let list = rig.get("/api/v1/audit?limit=1000").await.ok();
    let oldest = list["items"].as_array().unwrap().last().unwrap();
    assert_eq!(oldest["at"], at, "{list}");
}

#[tokio::test]
async fn a_history_is_read_in_pages_and_a_node_shows_its_end() {
    let rig = Rig::with_site().await;
    let node = rig.onboard("j22u11").await.node_id;
    let line = |n: usize| TimelineEvent {
        at: Timestamp::EPOCH,
        run_id: None,
        step: None,
        source: Source::Operator,
        code: format!("e{n}"),
        text: String::new(),
    };
    let view = rig.get("/api/v1/nodes/j22u11").await.ok();
    assert_eq!(view.get("timeline_is_cut"), None);
    rig.store.append_timeline(node, (1..=1000).map(line).collect()).await.unwrap();
    let view = rig.get("/api/v1/nodes/j22u11").await.ok();
    let shown = view["timeline"].as_array().unwrap();
    assert_eq!((shown.len(), &shown[999]["code"]), (1000, &json!("e1000")));
    assert_eq!(view["timeline_is_cut"], true);

    let mut codes = Vec::new();
    let mut query = "?limit=400".to_owned();
    loop {
        let page = rig.get(&format!("/api/v1/nodes/j22u11/timeline{query}")).await.ok();
        let page: List<TimelineLine> = serde_json::from_value(page).unwrap();
        let last = page.items.last().unwrap().id;
        codes.extend(page.items.into_iter().map(|line| line.event.code));
        let Some(next) = page.next else { break };
        assert_eq!(next, last.to_string());
        query = format!("?limit=400&after={next}");
    }
    assert_eq!((codes.len(), codes[0].as_str()), (1001, "onboard_accepted"));
    assert_eq!(codes[1000], "e1000");
    assert_eq!(rig.get("/api/v1/nodes/x/timeline").await.code(), "node_not_found");
}

/// A request that its credential does not permit is written down once in a while, with the program that
/// sent it.
#[tokio::test]
async fn a_forbidden_request_is_in_the_audit_log_once_in_a_while() {
    let rig = Rig::with_site().await;
    let body =
        json!({ "name": "eve-cli", "grants": [{ "role": "viewer" }], "reason": "for the test" });
    let made = rig.post("/api/v1/tokens", body).await.ok();
    let token = made["token"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        let request = axum::http::Request::builder()
            .method("POST")
            .uri("/api/v1/sites")
            .header("authorization", format!("Bearer {token}"))
            .header("user-agent", "curl/8.5")
            .body(axum::body::Body::from("{}"))
            .unwrap();
        assert_eq!(rig.send(request).await.code(), "role_missing");
    }
    let rows = rig.store.audit_entries(0, 1000).await.unwrap();
    let refused: Vec<_> = rows.iter().filter(|row| row.entry.action == "request.refused").collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    let entry = &refused[0].entry;
    assert_eq!(
        (entry.subject.as_str(), &entry.detail["code"]),
        ("eve-cli", &json!("role_missing"))
    );
    assert_eq!(entry.detail["user_agent"], "curl/8.5");
    assert_eq!(entry.detail["listener"], "operators");
}
