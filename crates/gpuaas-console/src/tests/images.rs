//! The pages of images.

use serde_json::{Value, json};

use super::answers::Answers;

fn image(name: &str, state: &str, digest: char, parents: &[String]) -> Value {
    json!({
        "name": name, "site": "lab", "family": "h200", "state": state,
        "sha256": digest.to_string().repeat(64), "size_bytes": 8_123_456_789_u64, "resource_id": 41,
        "parents": parents, "changed_by": "ana", "changed_at": "2025-11-24T10:00:00Z",
        "findings": [],
    })
}

fn loaded() -> Answers {
    let mut one = image("h200-6", "uploaded", 'b', &["a".repeat(64), "d".repeat(64)]);
    let list = [
        image("h200-5", "approved", 'a', &[]),
        one.clone(),
        image("h200-7", "built", 'c', &["b".repeat(64)]),
    ];
    one["lint"] = json!({
        "sha256": "b".repeat(64), "errors": 1, "warnings": 2, "codes": ["no_kernel"],
        "file_type": "tgz", "linted_by": "gpuaas 0.1.0", "actor": "ci",
        "at": "2025-11-24T09:00:00Z",
    });
    one["history"] = json!([
        {"at": "2025-11-24T09:00:00Z", "actor": "ci", "to": "built", "reason": "", "statement": {}},
        {"at": "2025-11-24T10:00:00Z", "actor": "ana", "from": "built", "to": "uploaded",
         "reason": "<img src=x>", "statement": {}},
    ]);
    Answers::new().with("/api/v1/images/h200-6", one).with_list("/api/v1/images", list)
}

#[tokio::test]
async fn images_that_wait_for_an_approval_come_first() {
    let page = loaded().page("/images?site=lab").await;
    insta::assert_snapshot!(page);
    let page = Answers::new().with_list("/api/v1/images", [0; 0]).page("/images?site=lab").await;
    assert!(page.contains("No images at this site."), "{page}");
    let page = Answers::new().refusing("/api/v1/images", 403, "forbidden").page("/images").await;
    assert!(page.contains("forbidden") && page.contains("name=\"site\""), "{page}");
}

#[tokio::test]
async fn image_shows_verdict_lineage_and_history() {
    let page = loaded().page("/images/lab/h200-6").await;
    insta::assert_snapshot!(page);
    let page = Answers::new().page("/images/lab/none").await;
    assert!(page.contains("not_found"), "{page}");
    assert_eq!(loaded().json("/images/lab/h200-6.json").await["lint"]["errors"], 1);
    assert_eq!(loaded().json("/images.json").await["items"][2]["name"], "h200-7");
}

#[tokio::test]
async fn approval_has_a_canary_and_an_end() {
    let form = "reason=tried&canary_nodes=3&expires_days=2&lint_waiver=&back=/";
    let (_, sent) = Answers::new().post("/images/lab/h200-6/approve", form).await;
    let body = json!({
        "site": "lab", "to": "canary", "canary_nodes": 3, "expires_in_seconds": 172_800,
        "actor": "ann", "reason": "tried",
    });
    assert_eq!(sent, [("/api/v1/images/h200-6/transition".to_owned(), body)]);
    let (_, sent) = Answers::new().post("/images/lab/h200-6/deprecate", form).await;
    let body = json!({"site": "lab", "to": "deprecated", "actor": "ann", "reason": "tried"});
    assert_eq!(sent[0].1, body);
}

#[tokio::test]
async fn revocation_needs_the_name_typed() {
    let path = "/images/lab/h200-6/revoke";
    let (status, sent) = Answers::new().post(path, "reason=a+hole&confirm=h200-5").await;
    assert!(status == 400 && sent.is_empty());
    let (status, sent) = Answers::new().post(path, "reason=a+hole&confirm=h200-6").await;
    assert_eq!((status.as_u16(), &sent[0].1["to"]), (303, &json!("revoked")));
}
