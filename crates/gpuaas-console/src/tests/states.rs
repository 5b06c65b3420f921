//! What lists show if they are empty, and if the API refuses them.

use serde_json::json;

use super::answers::Answers;

/// Pages of lists, and the path of the API that each reads.
const LISTS: [(&str, &str); 12] = [
    ("/runs", "/api/v1/runs"),
    ("/stuck", "/api/v1/nodes/stuck"),
    ("/batches", "/api/v1/batches"),
    ("/experiments", "/api/v1/experiments"),
    ("/images", "/api/v1/images"),
    ("/bundles", "/api/v1/bundles"),
    ("/profiles", "/api/v1/profiles"),
    ("/sites/lab/profiles", "/api/v1/profiles"),
    ("/sites", "/api/v1/sites"),
    ("/approvals", "/api/v1/approvals"),
    ("/tokens", "/api/v1/tokens"),
    ("/audit", "/api/v1/audit"),
];

/// The page without its first lines, which are the same for each.
fn below_the_title(page: &str) -> &str {
    page.find("<h1").map_or(page, |at| &page[at..])
}

#[tokio::test]
async fn empty_lists_offer_the_next_step() {
    let mut pages = String::new();
    for (page, api) in LISTS {
        let html = Answers::new().with_list(api, [0; 0]).page(page).await;
        pages.push_str(&format!("==== {page}\n{}\n", below_the_title(&html)));
    }
    insta::assert_snapshot!(pages);
}

#[tokio::test]
async fn refused_lists_have_code_request_and_next_step() {
    let mut pages = String::new();
    for (page, api) in LISTS {
        let html = Answers::new().refusing(api, 503, "unavailable").page(page).await;
        for shown in ["unavailable", "req-7", "read the hint"] {
            assert!(html.contains(shown), "{page} {shown}: {html}");
        }
        pages.push_str(&format!("==== {page}\n{}\n", below_the_title(&html)));
    }
    insta::assert_snapshot!(pages);
}

#[tokio::test]
async fn refused_json_is_the_problem() {
    for (page, api) in LISTS {
        let (bench, cookie) = Answers::new().refusing(api, 503, "unavailable").bench().await;
        let (status, headers, body) = bench.get(&format!("{page}.json"), &cookie).await;
        assert_eq!(
            (status.as_u16(), headers["content-type"].to_str().unwrap()),
            (503, "application/problem+json"),
            "{page}: {body}"
        );
        let (bench, cookie) = Answers::new().with_list(api, [0; 0]).bench().await;
        let (_, _, body) = bench.get(&format!("{page}.json"), &cookie).await;
        assert!(serde_json::from_str::<serde_json::Value>(&body).is_ok(), "{page}: {body}");
    }
}

#[tokio::test]
async fn address_of_anything_goes_to_its_page() {
    let id = "01a1f9af-a400-7202-8202-020202020202";
    let answers = Answers::new().with(&format!("/api/v1/runs/{id}"), json!({}));
    let (bench, cookie) = answers.bench().await;
    for (name, page) in [(id, "/runs/"), ("10.0.0.7", "/nodes/")] {
        let (_, headers, _) = bench.get(&format!("/go/{name}"), &cookie).await;
        assert_eq!(headers["location"], format!("{page}{name}"));
    }
}
