//! Requests to the admin API in this process, as the signed-in person.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderValue, REFERER, USER_AGENT,
};
use axum::http::request::Parts;
use axum::http::{Extensions, Method, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use gpuaas_types::Problem;
use gpuaas_types::access::AccessView;
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use tower::ServiceExt as _;

use crate::security::{self, COOKIE_NAMES};
use crate::state::Console;

/// Largest answer that a page is drawn from, in bytes.
const MOST_BYTES: usize = 16 << 20;
/// Identifier of a request, as its answer names it.
const REQUEST_ID: &str = "x-request-id";

/// Why a page cannot be drawn.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the API said.
    pub(crate) problem: Problem,
    /// Identifier of the request; empty if the answer had none.
    pub(crate) request_id: String,
}

impl Failure {
    pub(crate) fn of_problem(problem: Problem) -> Self {
        Self { problem, request_id: String::new() }
    }

    /// The session's token is unknown, expired or revoked.
    pub(crate) const fn is_signed_out(&self) -> bool {
        self.problem.status == 401
    }
}

/// What the listener said of a request's connection: limits and the audit go by it.
#[derive(Clone, Default)]
pub(crate) struct Connection(pub(crate) Extensions);

/// Asks the admin API as one caller.
#[derive(Clone)]
pub(crate) struct ApiCaller {
    router: axum::Router,
    authorization: HeaderValue,
    user_agent: Option<HeaderValue>,
    connection: Connection,
}

impl ApiCaller {
    /// A caller with this bearer token; none if the token has characters that no header may have.
    pub(crate) fn new(console: &Console, token: &str, parts: &Parts) -> Option<Self> {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        authorization.set_sensitive(true);
        Some(Self {
            router: console.api(),
            authorization,
            user_agent: parts.headers.get(USER_AGENT).cloned(),
            connection: parts.extensions.get::<Connection>().cloned().unwrap_or_default(),
        })
    }

    /// `GET`, read as JSON.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let (_, bytes) = self.send(Method::GET, path, Body::empty()).await?;
        serde_json::from_slice(&bytes).map_err(|error| unreadable(path, &error))
    }

    /// `GET`, as text.
    pub(crate) async fn get_text(&self, path: &str) -> Result<String, Failure> {
        let (_, bytes) = self.send(Method::GET, path, Body::empty()).await?;
        String::from_utf8(bytes).map_err(|error| unreadable(path, &error))
    }

    /// `GET` of an endless stream, from after the event that the browser saw last.
    pub(crate) async fn stream(
        &self,
        path: &str,
        last: Option<&HeaderValue>,
    ) -> Result<Body, Failure> {
        let mut request = self.request(Method::GET, path, Body::empty())?;
        if let Some(last) = last {
            request.headers_mut().insert("last-event-id", last.clone());
        }
        Ok(self.answer(path, request).await?.into_body())
    }

    /// Digest of the credential: a name for what was answered to this caller alone.
    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.authorization.as_bytes()).into()
    }

    /// `POST` of JSON; what it answers is left unread.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<StatusCode, Failure> {
        let bytes = serde_json::to_vec(body).map_err(|error| unreadable(path, &error))?;
        Ok(self.send(Method::POST, path, Body::from(bytes)).await?.0)
    }

    /// `POST` of JSON, read as JSON.
    pub(crate) async fn post_for<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let bytes = serde_json::to_vec(body).map_err(|error| unreadable(path, &error))?;
        let (_, answer) = self.send(Method::POST, path, Body::from(bytes)).await?;
        serde_json::from_slice(&answer).map_err(|error| unreadable(path, &error))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Body,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let request = self.request(method, path, body)?;
        let response = self.answer(path, request).await?;
        let status = response.status();
        Ok((status, read(path, response).await?))
    }

    fn request(&self, method: Method, path: &str, body: Body) -> Result<Request<Body>, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(AUTHORIZATION, self.authorization.clone())
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let mut request = request.map_err(|error| unreadable(path, &error))?;
        if let Some(agent) = &self.user_agent {
            request.headers_mut().insert(USER_AGENT, agent.clone());
        }
        *request.extensions_mut() = self.connection.0.clone();
        Ok(request)
    }

    /// What the API answers; its problem if it refuses.
    async fn answer(&self, path: &str, request: Request<Body>) -> Result<Response, Failure> {
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let request_id = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let request_id = request_id.unwrap_or_default().to_owned();
        let bytes = read(path, response).await?;
        let problem = serde_json::from_slice(&bytes).unwrap_or_else(|_| {
            Problem::new(status.as_u16(), "unknown_answer", "the API returned an error")
        });
        Err(Failure { problem, request_id })
    }
}

async fn read(path: &str, response: Response) -> Result<Vec<u8>, Failure> {
    let body = http_body_util::Limited::new(response.into_body(), MOST_BYTES);
    let bytes = body.collect().await.map_err(|error| unreadable(path, &error))?.to_bytes();
    Ok(bytes.to_vec())
}

fn unreadable(path: &str, error: &dyn std::fmt::Display) -> Failure {
    tracing::error!(path, %error, "the console cannot read a response of the API");
    let problem = Problem::new(500, "internal", "the console cannot read a response of the API")
        .with_detail(format!("{path}: {error}"));
    Failure::of_problem(problem)
}

/// A signed-in person.
#[derive(Clone)]
pub(crate) struct Viewer {
    /// Asks the API as this person.
    pub(crate) api: ApiCaller,
    /// Name and roles.
    pub(crate) access: AccessView,
    /// Path and query of the page: of a form, the page that it is on.
    pub(crate) here: String,
}

impl Viewer {
    /// Whether what the page is drawn from is asked for: `.json` behind the path.
    pub(crate) fn wants_json(&self) -> bool {
        self.here.split('?').next().is_some_and(|path| path.ends_with(".json"))
    }
}

impl FromRequestParts<Console> for Viewer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Response> {
        let here = here(parts).to_owned();
        let sign_in = || security::redirect_to_login(&here).into_response();
        let session = session_value(&parts.headers)
            .and_then(|value| console.seal().open(value, console.wall()))
            .ok_or_else(sign_in)?;
        let api = ApiCaller::new(console, session.token.expose(), parts).ok_or_else(sign_in)?;
        match api.get::<AccessView>("/api/v1/access").await {
            Ok(access) => Ok(Self { api, access, here }),
            Err(failure) if failure.is_signed_out() => Err(sign_in()),
            Err(failure) => Err(crate::pages::plain_failure(&failure)),
        }
    }
}

/// The path of a form answers no GET, so `Try again` and signing in lead to the page with the form.
fn here(parts: &Parts) -> &str {
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return parts.uri.path_and_query().map_or("/", |uri| uri.as_str());
    }
    let page = parts.headers.get(REFERER).and_then(|value| value.to_str().ok()).and_then(|url| {
        let (_, rest) = url.split_once("://")?;
        rest.find('/').map(|at| &rest[at..])
    });
    security::own_path(page)
}

/// The value of the session's cookie.
fn session_value(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| COOKIE_NAMES.contains(name)).map(|(_, value)| value)
}
