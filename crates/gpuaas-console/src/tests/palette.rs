//! The palette, the sheet of keys, and the actions of a batch.

use gpuaas_testkit::views;
use serde_json::json;

use super::answers::Answers;

#[tokio::test]
async fn palette_finds_nodes_pages_and_actions() {
    let answers = Answers::of_role("viewer")
        .with_list("/api/v1/nodes", [views::commissioning_node()])
        .page("/palette?q=bundle")
        .await;
    insta::assert_snapshot!(answers);
}

#[tokio::test]
async fn palette_offers_a_node_by_any_name_and_shows_markup_as_text() {
    let answers = Answers::new().with_list("/api/v1/nodes", [0; 0]);
    let page = answers.clone().page("/palette?q=%3Cb%3E10.0.0.7").await;
    assert!(page.contains("/go/%3Cb%3E10.0.0.7") && !page.contains("<b>"), "{page}");
    let page = Answers::new().page("/palette?q=j22").await;
    assert!(page.contains("not_found") && page.contains("Open the node j22"), "{page}");
    let page = answers.clone().page("/palette").await;
    assert!(page.contains("/experiments") && page.contains("image approve"), "{page}");
    let answer = answers.json("/palette.json?q=tok").await;
    assert_eq!(answer["pages"][0]["path"], "/tokens");
    assert_eq!(answer["actions"], json!(["token revoke"]));
}

#[tokio::test]
async fn sheet_of_keys() {
    let page = Answers::new().page("/keys").await;
    insta::assert_snapshot!(page);
    assert_eq!(Answers::new().json("/keys.json").await["pages"][0]["key"], "n");
}

#[tokio::test]
async fn batch_is_stopped_with_a_reason() {
    let (status, sent) = Answers::new().post("/batches/rack-22/stop", "reason=the+switch").await;
    let body = json!({"actor": "ann", "reason": "the switch"});
    assert_eq!(sent, [("/api/v1/batches/rack-22/stop".to_owned(), body)]);
    assert_eq!(status, 303);
    let (status, sent) = Answers::new().post("/batches/rack-22/erase", "reason=x").await;
    assert!(status == 404 && sent.is_empty());
}
