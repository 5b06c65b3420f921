//! A stand-in of the API that answers from a list, for the golden tests of pages.

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::{Bench, Sent, TOKEN, refused};

/// What the API answers, by path.
#[derive(Clone)]
pub(super) struct Answers(BTreeMap<String, Value>);

impl Answers {
    /// An API that knows a person with the role admin everywhere, and nothing else.
    pub(super) fn new() -> Self {
        Self::of_role("admin")
    }

    /// The same, with another role.
    pub(super) fn of_role(role: &str) -> Self {
        let access = json!({"name": "ann", "grants": [{"role": role}]});
        Self([("/api/v1/access".to_owned(), access)].into())
    }

    /// Answers a `GET` of `path`, whatever its query. A text is answered as text.
    pub(super) fn with(mut self, path: &str, answer: impl serde::Serialize) -> Self {
        self.0.insert(path.to_owned(), serde_json::to_value(answer).unwrap());
        self
    }

    /// Answers with a list of one page.
    pub(super) fn with_list(self, path: &str, items: impl serde::Serialize) -> Self {
        self.with(path, json!({ "items": serde_json::to_value(items).unwrap() }))
    }

    /// Refuses a `GET` of `path`.
    pub(super) fn refusing(self, path: &str, status: u16, code: &str) -> Self {
        self.with(path, json!({ "refused": status, "code": code }))
    }

    pub(super) async fn bench(self) -> (Bench, String) {
        let bench = Bench::over(false, |sent| self.router(sent));
        let cookie = bench.sign_in().await;
        (bench, cookie)
    }

    /// The content of a page, without what surrounds it.
    pub(super) async fn page(self, path: &str) -> String {
        let (bench, cookie) = self.bench().await;
        let (_, headers, html) = bench.get(path, &cookie).await;
        assert_eq!(headers[CONTENT_TYPE], "text/html; charset=utf-8", "{html}");
        for forbidden in ["style=", "onclick=", "<script>", "<img", TOKEN] {
            assert!(!html.contains(forbidden), "{forbidden}: {html}");
        }
        let (_, main) = html.split_once("<main").unwrap();
        format!("<main{}", main.split_once("</main>").unwrap().0)
    }

    /// What a page was drawn from.
    pub(super) async fn json(self, path: &str) -> Value {
        let (bench, cookie) = self.bench().await;
        let (_, headers, body) = bench.get(path, &cookie).await;
        assert_eq!(headers[CONTENT_TYPE], "application/json", "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Sends a form; answers the status and what the API was sent.
    pub(super) async fn post(self, path: &str, form: &str) -> (StatusCode, Vec<(String, Value)>) {
        let (bench, cookie) = self.bench().await;
        let (status, _, _) = bench.post(path, &cookie, Some("same-origin"), form).await;
        let sent = bench.sent.lock().clone();
        (status, sent)
    }

    fn router(self, sent: &Sent) -> Router {
        let sent = Sent::clone(sent);
        let answer = move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| async move {
            if headers.get(AUTHORIZATION).is_none_or(|it| it != &format!("Bearer {TOKEN}")) {
                return refused(401, "token_unknown");
            }
            if method == Method::POST {
                let body = serde_json::from_slice(&body).unwrap();
                sent.lock().push((uri.path().to_owned(), body));
                return axum::Json(json!({})).into_response();
            }
            self.answer(uri.path())
        };
        Router::new().fallback(answer)
    }

    fn answer(&self, path: &str) -> Response {
        match self.0.get(path) {
            Some(Value::String(text)) => text.clone().into_response(),
            Some(answer) => match answer.get("refused").and_then(Value::as_u64) {
                Some(status) => {
                    refused(u16::try_from(status).unwrap(), answer["code"].as_str().unwrap())
                }
                None => axum::Json(answer).into_response(),
            },
            None => refused(404, "not_found"),
        }
    }
}
