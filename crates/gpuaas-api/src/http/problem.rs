//! How a refusal becomes a response. The codes are in `gpuaas_types::codes`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gpuaas_store::StoreError;
use gpuaas_types::Problem;
use gpuaas_types::codes::ProblemCode;

/// The problem that this code names.
pub(crate) fn problem(code: ProblemCode) -> Problem {
    code.problem()
}

/// A problem as the response to a request.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Box<Problem>);

/// What a handler returns: a response, or a problem as the response.
pub(crate) type ApiResult<T> = Result<T, Refusal>;

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        from_store(&error).into()
    }
}

/// A refused field.
pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Problem {
    let message = message.into();
    problem(ProblemCode::InvalidField)
        .with_detail(format!("{field}: {message}"))
        .with_field(field, message)
}

fn from_store(error: &StoreError) -> Problem {
    match error {
        StoreError::Conflict { code, detail } => problem(*code).with_detail(detail),
        StoreError::NotFound { what, key } => {
            let code = match *what {
                "site" => ProblemCode::SiteNotFound,
                "profile" => ProblemCode::ProfileNotFound,
                "node" => ProblemCode::NodeNotFound,
                "run" => ProblemCode::RunNotFound,
                "task" => ProblemCode::TaskNotFound,
                "batch" => ProblemCode::BatchNotFound,
                "claim" => ProblemCode::ClaimNotFound,
                "approval" => ProblemCode::ApprovalNotFound,
                "experiment" => ProblemCode::ExperimentNotFound,
                "event sink" => ProblemCode::EventSinkNotFound,
                "dead letter" => ProblemCode::DeadLetterNotFound,
                "access token" => ProblemCode::AccessTokenNotFound,
                _ => ProblemCode::NotFound,
            };
            problem(code).with_detail(format!("{what} {key} does not exist"))
        }
        StoreError::Token(fault) => problem(fault.code()).with_detail(fault.to_string()),
        StoreError::DiskFull { .. } => {
            tracing::error!(%error, "the database is full");
            problem(ProblemCode::DiskFull)
        }
        StoreError::Unavailable { .. } => {
            tracing::warn!(%error, "a database request failed");
            problem(ProblemCode::DatabaseUnavailable)
        }
        other => {
            tracing::error!(error = %other, "a request failed with an internal error");
            problem(ProblemCode::Internal)
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut response = (status, body).into_response();
        response.extensions_mut().insert(*self.0.clone());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
            }
            StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

/// A number with its noun, which takes an `s` for all numbers but one.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
