//! The pages of bundles.

use gpuaas_testkit::views;
use serde_json::{Value, json};

use super::answers::Answers;

fn bundle(version: &str, published: &str, sites: &[&str]) -> Value {
    json!({
        "bundle": format!("h200-ib@{version}"), "digest": "ab".repeat(32), "size_bytes": 4096,
        "kind": "site_bootstrap", "about": "<script>alert(1)</script>", "requires": ["base@1.0.0"],
        "built_in": false, "signed_by": (version == "1.0.0").then_some("ana"),
        "published_by": "ci", "published_at": published, "approved_for": sites,
    })
}

fn loaded() -> Answers {
    let (old, new) = (
        bundle("1.0.0", "2025-11-20T10:00:00Z", &["lab"]),
        bundle("1.1.0", "2025-11-24T10:00:00Z", &[]),
    );
    let mut other = views::site();
    other.spec.name = "ams2".to_owned();
    Answers::new()
        .with("/api/v1/bundles/h200-ib@1.0.0", &old)
        .with("/api/v1/bundles/h200-ib@1.1.0", &new)
        .with_list("/api/v1/bundles", [old, new])
        .with_list("/api/v1/sites", [views::site(), other])
}

#[tokio::test]
async fn bundles_that_no_site_may_run_come_first() {
    let page = loaded().page("/bundles").await;
    insta::assert_snapshot!(page);
    let page = Answers::new().with_list("/api/v1/bundles", [0; 0]).page("/bundles").await;
    assert!(page.contains("gpuaas bundle publish"), "{page}");
    let page =
        Answers::new().refusing("/api/v1/bundles", 503, "unavailable").page("/bundles").await;
    assert!(page.contains("unavailable") && page.contains("req-7"), "{page}");
}

#[tokio::test]
async fn bundle_shows_sites_versions_and_actions() {
    let page = loaded().page("/bundles/h200-ib@1.0.0").await;
    insta::assert_snapshot!(page);
    let page = Answers::new().page("/bundles/none").await;
    assert!(page.contains("not_found"), "{page}");
    let answer = loaded().json("/bundles/h200-ib@1.1.0.json").await;
    assert_eq!(answer["versions"][1]["bundle"], "h200-ib@1.0.0");
}

#[tokio::test]
async fn button_of_another_role_says_which_role_it_needs() {
    let bundle = bundle("1.0.0", "2025-11-20T10:00:00Z", &[]);
    let answers = Answers::of_role("operator").with("/api/v1/bundles/h200-ib@1.0.0", bundle);
    let page = answers.with_list("/api/v1/sites", [views::site()]);
    let page = page.page("/bundles/h200-ib@1.0.0").await;
    assert!(page.contains("disabled title=\"needs the role approver\""), "{page}");
}

#[tokio::test]
async fn approval_is_sent_with_site_and_reason() {
    let form = "site=lab&reason=tried+on+a+rack&back=/";
    let (status, sent) = Answers::new().post("/bundles/h200-ib@1.1.0/approve", form).await;
    let body = json!({"site": "lab", "actor": "ann", "reason": "tried on a rack"});
    assert_eq!(sent, [("/api/v1/bundles/h200-ib@1.1.0/approve".to_owned(), body)]);
    assert_eq!(status, 303);
    let (status, sent) = Answers::new().post("/bundles/h200-ib@1.1.0/erase", form).await;
    assert!(status == 404 && sent.is_empty());
}
