//! What every page answers with, and which requests may change anything.

use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HOST, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH, LOCATION, ORIGIN, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gpuaas_types::Problem;

use crate::api::Failure;
use crate::pages;
use crate::session::SESSION_SECONDS;
use crate::state::Console;

/// Nothing is loaded but what this server sends, and nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Names of the session's cookie: the first over TLS, where browsers hold the prefix to its meaning.
pub(crate) const COOKIE_NAMES: [&str; 2] = ["__Host-gpuaas_session", "gpuaas_session"];

/// Refuses changes that another site's page sent, and puts the policy on every answer.
pub(crate) async fn protect(State(_): State<Console>, request: Request, next: Next) -> Response {
    let has_bearer = request.headers().contains_key(axum::http::header::AUTHORIZATION);
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let known = request.headers().get(IF_NONE_MATCH).cloned();
    let mut response = if reads || has_bearer || is_own_page(request.headers()) {
        next.run(request).await
    } else {
        let problem = Problem::new(403, "foreign_origin", "this request came from another site")
            .with_hint("open the console's own page and send the form from there");
        pages::plain_failure(&Failure::of_problem(problem))
    };
    if known.is_some() && known.as_ref() == response.headers().get(ETAG) {
        response = unchanged(&response);
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// The answer to a browser that shows the same page already: only the time is new.
fn unchanged(page: &Response) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    for name in [ETAG, pages::AS_OF] {
        if let Some(value) = page.headers().get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// Whether a page of this console sent the request. Browsers say so in `Sec-Fetch-Site` over https
/// and on loopback, elsewhere in `Origin` alone; a request with neither is refused.
fn is_own_page(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        return site == "same-origin";
    }
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(origin), Some(host)) = (text(ORIGIN), text(HOST)) else { return false };
    let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    authority == Some(host)
}

/// Sends a person to another page of this server.
pub(crate) fn redirect(to: &str) -> Response {
    let location = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/nodes"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
}

/// Sends a person to sign in, and back to `here` afterwards.
pub(crate) fn redirect_to_login(here: &str) -> Response {
    let query = serde_urlencoded::to_string([("next", here)]).unwrap_or_default();
    redirect(&format!("/login?{query}"))
}

/// A path of this server to go on with; anything else is the first page.
pub(crate) fn own_path(next: Option<&str>) -> &str {
    let is_own = |path: &&str| {
        path.starts_with('/') && !path.starts_with("//") && !path.contains(['\\', '\r', '\n'])
    };
    next.filter(is_own).unwrap_or("/nodes")
}

/// Sets the session's cookie; an empty value ends it.
pub(crate) fn with_cookie(mut response: Response, console: &Console, value: &str) -> Response {
    let seconds = if value.is_empty() { 0.0 } else { SESSION_SECONDS };
    let [tls, plain] = COOKIE_NAMES;
    let (name, secure) = if console.is_tls() { (tls, "; Secure") } else { (plain, "") };
    let cookie =
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_this_server_are_followed() {
        for (asked, followed) in [
            ("/runs/x?a=b", "/runs/x?a=b"),
            ("//evil.example/", "/nodes"),
            ("https://evil.example/", "/nodes"),
            ("/\\evil.example", "/nodes"),
            ("", "/nodes"),
        ] {
            assert_eq!(own_path(Some(asked)), followed, "{asked}");
        }
        assert_eq!(own_path(None), "/nodes");
    }

    #[test]
    fn forms_of_other_sites_are_refused() {
        let with = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            is_own_page(&headers)
        };
        assert!(with(&[("sec-fetch-site", "same-origin")]));
        assert!(!with(&[("sec-fetch-site", "cross-site"), ("origin", "http://a"), ("host", "a")]));
        assert!(!with(&[("sec-fetch-site", "same-site")]));
        assert!(with(&[("origin", "http://a:1"), ("host", "a:1")]));
        assert!(!with(&[("origin", "http://b:1"), ("host", "a:1")]));
        assert!(!with(&[("origin", "null"), ("host", "a:1")]) && !with(&[("host", "a:1")]));
    }
}
