//! Revisions over HTTP: the `ETag` of an answer, and the `If-Match` of a change (RFC 9110 sections
//! 8.8.3 and 13.1.1).

use std::convert::Infallible;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::HeaderValue;
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use gpuaas_types::Problem;
use gpuaas_types::api::Resource;
use gpuaas_types::codes::ProblemCode;
use serde::Serialize;

use crate::http::problem::{ApiResult, problem};

/// Times that a change is made again because somebody else was quicker.
const MAX_TRIES: u32 = 5;

/// A resource and its revision, which is its `ETag`.
pub(crate) struct Tagged<T> {
    revision: i64,
    body: T,
}

impl<I, S, T> From<Resource<I, S, T>> for Tagged<Resource<I, S, T>> {
    fn from(body: Resource<I, S, T>) -> Self {
        Self { revision: body.revision, body }
    }
}

impl<T: Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.body).into_response();
        if let Ok(tag) = HeaderValue::try_from(tag(self.revision)) {
            response.headers_mut().insert(ETAG, tag);
        }
        response
    }
}

fn tag(revision: i64) -> String {
    format!("\"{revision}\"")
}

/// The tags of `If-Match`: a change is made to one of these revisions, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IfMatch(Option<String>);

impl<S: Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let lines = parts.headers.get_all(IF_MATCH).iter();
        let lines: Vec<String> =
            lines.map(|line| String::from_utf8_lossy(line.as_bytes()).into_owned()).collect();
        Ok(Self((!lines.is_empty()).then(|| lines.join(","))))
    }
}

impl IfMatch {
    /// Whatever the revision.
    pub(crate) const fn any() -> Self {
        Self(None)
    }

    /// Refuses a change of a revision that the caller did not read.
    ///
    /// # Errors
    /// `revision_changed`.
    pub(crate) fn check(&self, revision: i64) -> Result<(), Problem> {
        let Some(given) = &self.0 else { return Ok(()) };
        let newest = tag(revision);
        if given.split(',').map(str::trim).any(|one| one == "*" || one == newest) {
            return Ok(());
        }
        let given: String = given.chars().take(100).collect();
        let detail = format!("If-Match is {given}, but the current revision is {newest}");
        Err(problem(ProblemCode::RevisionChanged).with_detail(detail))
    }

    /// Makes a change, reading anew and again where another one came between the reading and the
    /// writing, unless the caller named the revision.
    ///
    /// # Errors
    /// Those of `change`; `revision_changed`.
    pub(crate) async fn change<T, F>(&self, change: impl Fn() -> F) -> ApiResult<T>
    where
        F: Future<Output = ApiResult<T>>,
    {
        for _ in 1..MAX_TRIES {
            match change().await {
                Err(refusal)
                    if self.0.is_none()
                        && ProblemCode::RevisionChanged.as_str() == refusal.0.code => {}
                done => return done,
            }
        }
        change().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_revision_matches() {
        for (given, matches) in [
            (None, true),
            (Some("\"7\""), true),
            (Some("*"), true),
            (Some("\"3\", \"7\""), true),
            (Some("\"6\""), false),
            (Some("W/\"7\""), false),
            (Some("7"), false),
            (Some(""), false),
        ] {
            let asked = IfMatch(given.map(str::to_owned));
            assert_eq!(asked.check(7).is_ok(), matches, "{given:?}");
        }
    }

    #[tokio::test]
    async fn who_names_no_revision_is_not_told_of_others() {
        let refused =
            || async { ApiResult::<u32>::Err(problem(ProblemCode::RevisionChanged).into()) };
        for (asked, expected) in [(None, MAX_TRIES), (Some("\"7\"".to_owned()), 1)] {
            let tries = std::cell::Cell::new(0);
            let change = || {
                tries.set(tries.get() + 1);
                refused()
            };
            let code = IfMatch(asked).change(change).await.unwrap_err().0.code;
            assert_eq!((code.as_str(), tries.get()), ("revision_changed", expected));
        }
    }
}
