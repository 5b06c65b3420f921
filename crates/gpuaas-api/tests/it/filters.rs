//! Filters of lists, as requests have them.

use gpuaas_types::RunStatus;
use serde_json::{Value, json};

use crate::rig::{Answer, Rig, site};

/// The query of a filter.
fn query(filter: &str) -> String {
    let mut text = String::new();
    for byte in filter.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => text.push(char::from(byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

async fn asked(rig: &Rig, list: &str, filter: &str) -> Answer {
    let joint = if list.contains('?') { '&' } else { '?' };
    rig.get(&format!("{list}{joint}filter={}", query(filter))).await
}

async fn names(rig: &Rig, list: &str, filter: &str) -> Vec<String> {
    let answer = asked(rig, list, filter).await.ok();
    let items = answer["items"].as_array().unwrap();
    let name = |item: &Value| {
        ["hostname", "node", "action"].iter().find_map(|f| item[*f].as_str()).map(str::to_owned)
    };
    items.iter().filter_map(name).collect()
}

#[tokio::test]
async fn lists_are_filtered_before_they_are_cut() {
    let rig = Rig::with_site().await;
    let mut runs = Vec::new();
    for name in ["cpu-1", "cpu-2", "gpu-1", "gpu-2"] {
        runs.push(rig.onboard(name).await.run_id);
        rig.advance(1);
    }
    rig.put_run(runs[2], RunStatus::Parked).await;
    let gpus = "hostname~gpu- site=lab";
    assert_eq!(names(&rig, "/api/v1/nodes", gpus).await, ["gpu-1", "gpu-2"]);
    assert_eq!(names(&rig, "/api/v1/nodes?site=lab", "run_status=parked").await, ["gpu-1"]);
    assert_eq!(names(&rig, "/api/v1/runs", gpus).await, ["gpu-2", "gpu-1"]);
    assert_eq!(names(&rig, "/api/v1/runs?status=parked", "not hostname=gpu-1").await, [""; 0]);
    assert_eq!(names(&rig, "/api/v1/audit", "action=node.onboard hostname~cpu").await.len(), 2);
    rig.advance(100_000);
    assert_eq!(names(&rig, "/api/v1/nodes/stuck", "hostname~gpu-").await, ["gpu-1", "gpu-2"]);
    for list in ["/api/v1/batches", "/api/v1/drift", "/api/v1/admin/slice-claims"] {
        assert_eq!(names(&rig, list, "site=lab").await, [""; 0], "{list}");
    }
    for (list, filter, items) in [
        ("/api/v1/sites", "name=lab health~\"o\" or name=lab", 1),
        ("/api/v1/sites", "not name=lab", 0),
        ("/api/v1/profiles", "revision>=1", 1),
        ("/api/v1/profiles", "revision>1", 0),
        ("/api/v1/tokens", "revoked=true", 0),
        ("/api/v1/roce-assignments?site=lab", "hostname=none", 0),
        ("/api/v1/dead-letters", "code=refused", 0),
        ("/api/v1/nodes/gpu-1/tasks", "kind=service", 0),
    ] {
        let answer = asked(&rig, list, filter).await.ok();
        assert_eq!(answer["items"].as_array().unwrap().len(), items, "{list} {filter}");
    }
    let slots = asked(&rig, "/api/v1/admin/slots", "state=free").await.ok();
    assert_eq!(slots["slots"], json!([]));

    // The page is full although what is first in the list does not pass.
    let first = asked(&rig, "/api/v1/nodes?limit=1", gpus).await.ok();
    assert_eq!(first["items"][0]["hostname"], "gpu-1");
    let next = first["next"].as_str().unwrap();
    let after = format!("/api/v1/nodes?limit=1&after={next}");
    let second = asked(&rig, &after, gpus).await.ok();
    assert_eq!((&second["items"][0]["hostname"], &second["next"]), (&json!("gpu-2"), &Value::Null));
}

#[tokio::test]
async fn what_is_no_filter_is_refused_with_its_place() {
    let rig = Rig::with_site().await;
    for (list, filter, place) in [
        ("nodes", "state=parked", "invalid filter at character 7: "),
        ("nodes", "owner=a", "invalid filter at character 1: the list of nodes has no field"),
        ("nodes/stuck", "", "invalid filter at character 1: missing condition"),
        ("runs", "status=parked or", "invalid filter at character 17: "),
        ("batches", "phase=done", "invalid filter at character 1: "),
        ("audit", "at=2026-01-01", "invalid filter at character 3: "),
        ("drift", "kind=renamed)", "invalid filter at character 13: "),
        ("admin/slots", "index=one", "invalid filter at character 7: "),
        ("admin/slice-claims", "state=\"", "invalid filter at character 7: "),
        ("sites", "site=lab", "invalid filter at character 1: the list of sites has no field"),
        ("profiles", "revision=x", "invalid filter at character 10: "),
        ("tokens", "revoked=maybe", "invalid filter at character 9: "),
        ("roce-assignments", "ip<1", "invalid filter at character 3: "),
        ("dead-letters", "code=lost", "invalid filter at character 6: "),
    ] {
        let refused = asked(&rig, &format!("/api/v1/{list}"), filter).await;
        assert_eq!((refused.status, refused.code().as_str()), (422, "invalid_filter"), "{list}");
        let body = refused.json();
        assert!(body["detail"].as_str().unwrap().starts_with(place), "{body}");
        assert!(!body["hint"].as_str().unwrap().is_empty(), "{body}");
    }
}

#[tokio::test]
async fn a_filter_shows_nobody_another_site() {
    let rig = Rig::with_site().await;
    rig.onboard("gpu-1").await;
    rig.post("/api/v1/sites", site("elsewhere")).await.ok();
    let grant = json!({ "role": "viewer", "sites": ["elsewhere"] });
    let body = json!({ "name": "eve", "grants": [grant], "reason": "for the test" });
    let made = rig.post("/api/v1/tokens", body).await.ok();
    let token = made["token"].as_str().unwrap();
    let filter = query("site=lab or site=elsewhere");
    for site in ["", "site=lab&"] {
        let path = format!("/api/v1/nodes?{site}filter={filter}");
        assert_eq!(rig.call("GET", &path, Some(token), None).await.status, 403, "{path}");
    }
}
