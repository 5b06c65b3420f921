//! Signing in and out.

use axum::extract::{Path, Query, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use axum::{Form, Json};
use gpuaas_types::SecretText;
use gpuaas_types::access::AccessView;
use serde::{Deserialize, Serialize};

use crate::api::ApiCaller;
use crate::pages::{LoginPage, draw, problem_json};
use crate::security::{own_path, redirect, with_cookie};
use crate::session::{CODE_SECONDS, Session};
use crate::state::Console;

/// Where to go on after signing in.
#[derive(Deserialize)]
pub(crate) struct Next {
    next: Option<String>,
}

/// The form of the login page.
#[derive(Deserialize)]
pub(crate) struct Credential {
    token: SecretText,
    next: Option<String>,
}

/// Answer of `POST /console/login-addresses`.
#[derive(Serialize)]
pub(crate) struct LoginAddress {
    /// Path that signs in, once.
    path: String,
    /// Seconds for which it is valid.
    expires_in_seconds: f64,
}

/// `GET /login`.
pub(crate) async fn form(Query(Next { next }): Query<Next>) -> Response {
    draw(&LoginPage { next: own_path(next.as_deref()), failure: None })
}

/// `POST /login`.
pub(crate) async fn sign_in(
    State(console): State<Console>,
    parts: Parts,
    Form(credential): Form<Credential>,
) -> Response {
    let next = own_path(credential.next.as_deref());
    let token = credential.token.expose().trim();
    let failed = |text: &str| draw(&LoginPage { next, failure: Some(text) });
    let Some(api) = ApiCaller::new(&console, token, &parts).filter(|_| !token.is_empty()) else {
        return failed("Paste a token: it starts with gptoken_ or gpadmin_.");
    };
    match api.get::<AccessView>("/api/v1/access").await {
        Ok(_) => begin(&console, token, next),
        Err(failure) => failed(&format!("{} ({})", failure.problem.title, failure.problem.code)),
    }
}

/// `GET /login/once/CODE?next=PATH`.
pub(crate) async fn once(
    State(console): State<Console>,
    Path(code): Path<String>,
    Query(Next { next }): Query<Next>,
) -> Response {
    let next = own_path(next.as_deref());
    match console.codes().take(&code, console.wall()) {
        Some(token) => begin(&console, &token, next),
        None => draw(&LoginPage {
            next,
            failure: Some(
                "This login link has been used or has expired. Run `gpuaas console open` for a new \
                 one.",
            ),
        }),
    }
}

/// `POST /logout`.
pub(crate) async fn sign_out(State(console): State<Console>) -> Response {
    with_cookie(redirect("/login"), &console, "")
}

/// `POST /console/login-addresses`, with a bearer token: an address that signs in as its caller.
pub(crate) async fn issue_address(State(console): State<Console>, parts: Parts) -> Response {
    let authorization = parts.headers.get(axum::http::header::AUTHORIZATION);
    let bearer = authorization.and_then(|value| value.to_str().ok());
    let token = bearer.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    let Some(api) = ApiCaller::new(&console, token, &parts) else {
        return problem_json(401, "token_missing", "missing Authorization header");
    };
    if let Err(failure) = api.get::<AccessView>("/api/v1/access").await {
        let problem = failure.problem;
        return problem_json(problem.status, &problem.code, &problem.title);
    }
    let added = console
        .seal()
        .random_code()
        .filter(|code| console.codes().add(code, token, console.wall()));
    match added {
        Some(code) => Json(LoginAddress {
            path: format!("/login/once/{code}"),
            expires_in_seconds: CODE_SECONDS,
        })
        .into_response(),
        None => problem_json(503, "too_many_login_addresses", "too many unused login links"),
    }
}

fn begin(console: &Console, token: &str, next: &str) -> Response {
    let session = Session { token: token.into(), since: console.wall() };
    match console.seal().seal(&session) {
        Some(value) => with_cookie(redirect(next), console, &value),
        None => problem_json(500, "internal", "cannot seal the session"),
    }
}
