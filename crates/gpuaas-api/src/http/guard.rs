//! The one layer around every request: a span, a time limit, and a net for panics.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use tracing::Instrument as _;

use gpuaas_store::current_origin;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::trace_context::TRACEPARENT_HEADER;

use crate::http::problem::{Refusal, problem};

/// Runs the request for at most `limit`; the time that a body takes to leave is not counted.
pub(crate) async fn guard(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    let own = current_origin().trace.map(|span| span.to_string());
    let parent = request.headers().get(TRACEPARENT_HEADER).and_then(|value| value.to_str().ok());
    let span = tracing::info_span!(
        "request",
        method = %request.method(),
        path = request.uri().path(),
        status = tracing::field::Empty,
        trace.own = own.as_deref(),
        trace.parent = parent.filter(|_| own.is_some()),
    );
    let work = AssertUnwindSafe(next.run(request)).catch_unwind();
    let answer = tokio::time::timeout(limit, work).instrument(span.clone()).await;
    let response = match answer {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            span.in_scope(|| tracing::error!("a request panicked"));
            Refusal::from(problem(ProblemCode::Internal)).into_response()
        }
        Err(_) => Refusal::from(problem(ProblemCode::RequestTimeout)).into_response(),
    };
    span.record("status", response.status().as_u16());
    span.in_scope(|| tracing::debug!(status = response.status().as_u16(), "answered"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::routing::get;
    use axum::{Router, middleware};
    use tower::ServiceExt as _;

    async fn status(path: &str) -> (u16, String) {
        async fn hang() {
            std::future::pending().await
        }
        async fn fall() {
            panic!("secret")
        }
        let limit = Duration::from_millis(5);
        let router = Router::new()
            .route("/hang", get(hang))
            .route("/fall", get(fall))
            .layer(middleware::from_fn_with_state(limit, guard));
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn hanging_and_falling_handlers_become_problems() {
        let (code, body) = status("/hang").await;
        assert_eq!(code, 504);
        assert!(body.contains("request_timeout"));
        let (code, body) = status("/fall").await;
        assert_eq!(code, 500);
        assert!(body.contains("\"internal\"") && !body.contains("secret"));
    }
}
