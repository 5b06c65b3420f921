//! What a page hears of changes, and what a browser that has a page already is sent.

use axum::http::header::{CONTENT_TYPE, COOKIE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, Request, StatusCode, Uri};
use axum::response::IntoResponse as _;
use axum::routing::get;
use axum::{Router, body::Body};

use super::{Bench, Sent, T0, api, refused};

/// The API with events of one node, for a browser that saw one before.
fn with_events(sent: &Sent) -> Router {
    let events = |uri: Uri, headers: HeaderMap| async move {
        if uri.query() == Some("site=other") {
            return refused(403, "forbidden");
        }
        assert_eq!(uri.query(), Some("node=j22u11"));
        assert_eq!(headers["last-event-id"], "5-4");
        let body = "retry: 1000\n\nid: 5-5\ndata: {\"node\": \"j22u11\"}\n\n";
        ([(CONTENT_TYPE, "text/event-stream")], body).into_response()
    };
    api(sent).route("/api/v1/events", get(events))
}

#[tokio::test]
async fn page_hears_that_something_changed_and_not_what() {
    let bench = Bench::over(false, with_events);
    let cookie = bench.sign_in().await;
    let request = |path: &str| {
        let request = Request::get(path).header(COOKIE, &cookie).header("last-event-id", "5-4");
        request.body(Body::empty()).unwrap()
    };
    let (status, headers, body) = bench.send(request("/live?node=j22u11")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers[CONTENT_TYPE], "text/event-stream");
    assert_eq!(body, "id: 5-5\nevent: changed\ndata: 1\n\n");
    assert_eq!(bench.send(request("/live?site=other")).await.0, StatusCode::FORBIDDEN);
    // Without a session there is no stream: a browser follows no redirect to a page of another type.
    assert_eq!(bench.get("/live", "").await.0, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn page_that_the_browser_shows_already_is_not_sent_again() {
    let bench = Bench::new(false);
    let cookie = bench.sign_in().await;
    let (_, headers, html) = bench.get("/nodes", &cookie).await;
    assert!(html.contains("data-stream=\"/live\""), "{html}");
    let with_tag = |tag: &str| {
        let request = Request::get("/nodes").header(COOKIE, &cookie).header(IF_NONE_MATCH, tag);
        request.body(Body::empty()).unwrap()
    };
    let (status, again, body) = bench.send(with_tag(headers[ETAG].to_str().unwrap())).await;
    assert_eq!((status, &*body), (StatusCode::NOT_MODIFIED, ""));
    assert_eq!(again[ETAG], headers[ETAG]);
    assert_eq!(again["x-as-of"], *T0.to_string());
    assert!(again.contains_key("content-security-policy"));
    let (status, _, body) = bench.send(with_tag("W/\"other\"")).await;
    assert!(status == StatusCode::OK && body.contains("j22u11"));
    let (_, other, _) = bench.get("/nodes?filter=state%3Dactive", &cookie).await;
    assert_ne!(other[ETAG], headers[ETAG]);
}
