//! The console in front of a stand-in of the API that knows one token and one node.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, RawPathParams};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use gpuaas_testkit::views;
use gpuaas_types::api::List;
use gpuaas_types::{Problem, Timestamp};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{ConsoleSettings, router};

mod answers;
mod bundles;
mod experiments;
mod fleet;
mod images;
mod live;
mod onboard;
mod palette;
mod profiles;
mod states;
mod tokens;

const TOKEN: &str = "gptoken_planted-secret";
const T0: Timestamp = Timestamp::from_micros(1_764_000_000_000_000);

/// What was sent to the API: the path, and the body of a change.
type Sent = Arc<Mutex<Vec<(String, Value)>>>;

fn refused(status: u16, code: &str) -> Response {
    let problem = Problem::new(status, code, "refused").with_hint("read the hint");
    let status = StatusCode::from_u16(status).unwrap();
    (status, [("x-request-id", "req-7")], Json(problem)).into_response()
}

/// The API: it answers its one token, and writes down what was changed.
fn api(sent: &Sent) -> Router {
    let known = |headers: &HeaderMap| {
        headers.get(AUTHORIZATION).is_some_and(|value| value == &format!("Bearer {TOKEN}"))
    };
    // As the API does, the stand-in goes by the path that was matched.
    let access = move |path: Option<MatchedPath>, params: RawPathParams, headers: HeaderMap| async move {
        assert_eq!(path.unwrap().as_str(), "/api/v1/access");
        assert_eq!(params.iter().count(), 0, "parameters of the page's own address");
        match known(&headers) {
            true => Json(json!({"name": "ann", "grants": [{"role": "operator"}]})).into_response(),
            false => refused(401, "token_unknown"),
        }
    };
    let nodes = || async {
        let mut node = views::commissioning_node();
        node.waiting_for = Some("<script>alert(1)</script>".to_owned());
        Json(List::whole(vec![node]))
    };
    let run = || async { Json(views::finished_run()) };
    let node = || async { Json(views::commissioning_node()) };
    let written = Arc::clone(sent);
    let act = move |uri: axum::http::Uri, Json(body): Json<Value>| async move {
        written.lock().push((uri.path().to_owned(), body));
        Json(json!({}))
    };
    Router::new()
        .route("/api/v1/access", get(access))
        .route("/api/v1/nodes", get(nodes))
        .route("/api/v1/nodes/{node}", get(node))
        .route("/api/v1/runs/{run}", get(run))
        .route("/api/v1/runs/{run}/{action}", post(act))
        .fallback(|| async { refused(404, "not_found") })
}

struct Bench {
    console: Router,
    sent: Sent,
    wall: Arc<Mutex<Timestamp>>,
}

impl Bench {
    fn new(is_tls: bool) -> Self {
        Self::over(is_tls, api)
    }

    /// The console in front of another API.
    fn over(is_tls: bool, api: impl FnOnce(&Sent) -> Router) -> Self {
        let (sent, wall) = (Sent::default(), Arc::new(Mutex::new(T0)));
        let clock = Arc::clone(&wall);
        let settings = ConsoleSettings {
            session_key: [9; 32],
            is_tls,
            now: Arc::new(|| T0),
            wall: Arc::new(move || *clock.lock()),
        };
        Self { console: router(api(&sent), settings), sent, wall }
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, HeaderMap, String) {
        let response = self.console.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (head.status, head.headers, String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn get(&self, path: &str, cookie: &str) -> (StatusCode, HeaderMap, String) {
        self.send(Request::get(path).header(COOKIE, cookie).body(Body::empty()).unwrap()).await
    }

    async fn post(
        &self,
        path: &str,
        cookie: &str,
        fetch_site: Option<&str>,
        form: &str,
    ) -> (StatusCode, HeaderMap, String) {
        let mut request = Request::post(path)
            .header(COOKIE, cookie)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(site) = fetch_site {
            request = request.header("sec-fetch-site", site);
        }
        self.send(request.body(Body::from(form.to_owned())).unwrap()).await
    }

    /// Signs in with the token; answers the cookie.
    async fn sign_in(&self) -> String {
        let form = format!("token={TOKEN}&next=/runs");
        let (status, headers, _) = self.post("/login", "", Some("same-origin"), &form).await;
        assert_eq!(
            (status, &headers[LOCATION]),
            (StatusCode::SEE_OTHER, &"/runs".parse().unwrap())
        );
        cookie_of(&headers)
    }
}

fn cookie_of(headers: &HeaderMap) -> String {
    let set = headers[SET_COOKIE].to_str().unwrap();
    assert!(
        set.contains("HttpOnly") && set.contains("SameSite=Lax") && !set.contains(TOKEN),
        "{set}"
    );
    set.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn page_needs_a_session_and_the_address_survives_signing_in() {
    let bench = Bench::new(false);
    for cookie in ["", "gpuaas_session=junk", "other=1"] {
        let (status, headers, _) = bench.get("/nodes?filter=state%3Dactive", cookie).await;
        assert_eq!(status, StatusCode::SEE_OTHER);
        assert_eq!(headers[LOCATION], "/login?next=%2Fnodes%3Ffilter%3Dstate%253Dactive");
    }
    let cookie = bench.sign_in().await;
    let (status, headers, html) = bench.get("/nodes", &cookie).await;
    assert_eq!(status, StatusCode::OK);
    assert!(html.contains("j22u11") && html.contains(">ann<"), "{html}");
    // Markup is shown as text, the token is nowhere, and nothing but the server's own files loads.
    assert!(!html.contains("<script>alert") && !html.contains(TOKEN));
    assert!(headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    assert!(!html.contains("style="), "{html}");
    *bench.wall.lock() = T0.plus_seconds(13.0 * 3600.0);
    assert_eq!(bench.get("/nodes", &cookie).await.0, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn after_a_refused_form_its_page_is_the_one_to_return_to() {
    let bench = Bench::new(false);
    let cookie = bench.sign_in().await;
    let form = |cookie: &str, referer: &str| {
        Request::post("/batches/rack-22/stop")
            .header(COOKIE, cookie)
            .header("referer", referer)
            .header("sec-fetch-site", "same-origin")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from("reason=the+switch"))
            .unwrap()
    };
    let page = "http://127.0.0.1:8080/batches/rack-22?filter=x";
    let (status, _, html) = bench.send(form(&cookie, page)).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(html.contains("<a href=\"/batches/rack-22?filter=x\">Try again</a>"), "{html}");
    let (_, headers, _) = bench.send(form("", page)).await;
    assert_eq!(headers[LOCATION], "/login?next=%2Fbatches%2Frack-22%3Ffilter%3Dx");
    let (_, headers, _) = bench.send(form("", "http://127.0.0.1:8080//evil.example/")).await;
    assert_eq!(headers[LOCATION], "/login?next=%2Fnodes");
}

#[tokio::test]
async fn unknown_token_does_not_sign_in() {
    let bench = Bench::new(false);
    let (status, headers, html) = bench.post("/login", "", Some("same-origin"), "token=nope").await;
    assert_eq!(status, StatusCode::OK);
    assert!(!headers.contains_key(SET_COOKIE) && html.contains("token_unknown"), "{html}");
}

#[tokio::test]
async fn one_time_address_signs_in_once() {
    let bench = Bench::new(true);
    let ask = |bearer: &str| {
        Request::post("/console/login-addresses")
            .header(AUTHORIZATION, format!("Bearer {bearer}"))
            .body(Body::empty())
            .unwrap()
    };
    assert_eq!(bench.send(ask("nope")).await.0, StatusCode::UNAUTHORIZED);
    let (status, _, body) = bench.send(ask(TOKEN)).await;
    assert_eq!(status, StatusCode::OK);
    let answer: Value = serde_json::from_str(&body).unwrap();
    let path = answer["path"].as_str().unwrap();
    assert!(!path.contains(TOKEN));
    let (status, headers, _) = bench.get(path, "").await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    let cookie = cookie_of(&headers);
    assert!(cookie.starts_with("__Host-gpuaas_session="), "{cookie}");
    assert_eq!(bench.get("/nodes", &cookie).await.0, StatusCode::OK);
    let (status, headers, html) = bench.get(path, "").await;
    assert!(status == StatusCode::OK && !headers.contains_key(SET_COOKIE));
    assert!(html.contains("has been used or has expired"), "{html}");
}

#[tokio::test]
async fn action_is_sent_once_from_an_own_page_only() {
    let bench = Bench::new(false);
    let cookie = bench.sign_in().await;
    let form = "reason=the+cable+is+in&back=/nodes/j22u11";
    for site in [None, Some("cross-site"), Some("same-site")] {
        let (status, _, _) = bench.post("/runs/r1/resume", &cookie, site, form).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{site:?}");
    }
    assert!(bench.sent.lock().is_empty());
    let (status, headers, _) =
        bench.post("/runs/r1/resume", &cookie, Some("same-origin"), form).await;
    assert_eq!(
        (status, &headers[LOCATION]),
        (StatusCode::SEE_OTHER, &"/nodes/j22u11".parse().unwrap())
    );
    let body = json!({"actor": "ann", "reason": "the cable is in"});
    assert_eq!(*bench.sent.lock(), [("/api/v1/runs/r1/resume".to_owned(), body)]);
    let (status, _, _) = bench.post("/runs/r1/erase", &cookie, Some("same-origin"), form).await;
    assert_eq!((status, bench.sent.lock().len()), (StatusCode::NOT_FOUND, 1));
}

#[tokio::test]
async fn refusal_is_shown_with_code_request_and_next_step() {
    let bench = Bench::new(false);
    let cookie = bench.sign_in().await;
    let (status, _, html) = bench.get("/sites", &cookie).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    for shown in ["not_found", "req-7", "read the hint", "Fleet"] {
        assert!(html.contains(shown), "{shown}: {html}");
    }
}

#[tokio::test]
async fn what_is_no_page_is_answered_by_the_api() {
    let bench = Bench::new(false);
    let request = Request::get("/api/v1/access").header(AUTHORIZATION, format!("Bearer {TOKEN}"));
    let (status, _, body) = bench.send(request.body(Body::empty()).unwrap()).await;
    assert!(status == StatusCode::OK && body.contains("ann"));
}

/// The whole page, as a reviewer reads it.
#[tokio::test]
async fn run_page_reads_as_text() {
    let bench = Bench::new(false);
    let cookie = bench.sign_in().await;
    let (status, _, html) = bench.get("/runs/r1", &cookie).await;
    assert_eq!(status, StatusCode::OK);
    insta::assert_snapshot!(html);
}
