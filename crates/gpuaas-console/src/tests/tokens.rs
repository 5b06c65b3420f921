//! The page of tokens.

use serde_json::{Value, json};

use super::answers::Answers;

fn token(name: &str, id: u8, expires: Option<&str>, revoked: Option<&str>) -> Value {
    json!({
        "id": format!("01a1f9af-a400-7202-8202-0202020202{id:02}"), "name": name, "person": "ann",
        "grants": [{"role": "operator", "sites": ["lab", "prod"]}, {"role": "viewer"}],
        "created_by": "<b>eve", "created_at": "2025-11-20T10:00:00Z", "expires_at": expires,
        "last_used_at": (id == 1).then_some("2025-11-24T15:59:00Z"), "revoked_at": revoked,
    })
}

fn loaded() -> Answers {
    let tokens = [
        token("ci", 1, Some("2025-11-26T10:00:00Z"), None),
        token("rack", 2, None, None),
        token("old", 3, Some("2025-11-21T10:00:00Z"), None),
        token("gone", 4, None, Some("2025-11-22T10:00:00Z")),
    ];
    Answers::new().with_list("/api/v1/tokens", tokens)
}

#[tokio::test]
async fn tokens_have_a_state_roles_and_a_form_to_revoke_them() {
    let page = loaded().page("/tokens").await;
    assert!(!page.contains("<b>eve") && page.matches("data-op=\"token revoke\"").count() == 3);
    insta::assert_snapshot!(page);
}

#[tokio::test]
async fn tokens_are_refused_or_missing() {
    let page = Answers::of_role("viewer").refusing("/api/v1/tokens", 403, "forbidden");
    let page = page.page("/tokens").await;
    assert!(page.contains("forbidden") && page.contains("viewer everywhere"), "{page}");
    let empty = Answers::new().with_list("/api/v1/tokens", [0; 0]);
    let page = empty.page("/tokens?filter=revoked%3Dtrue").await;
    assert!(page.contains("No token matches <code>revoked=true</code>"), "{page}");
    assert_eq!(loaded().json("/tokens.json").await["items"][0]["name"], "ci");
}

#[tokio::test]
async fn revocation_needs_the_name_typed() {
    let (status, sent) = Answers::new().post("/tokens/ci/revoke", "reason=lost&confirm=").await;
    assert!(status == 400 && sent.is_empty());
    let (status, sent) = Answers::new().post("/tokens/ci/revoke", "reason=lost&confirm=ci").await;
    assert_eq!(sent, [("/api/v1/tokens/ci/revoke".to_owned(), json!({"reason": "lost"}))]);
    assert_eq!(status, 303);
}
