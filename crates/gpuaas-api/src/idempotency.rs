//! Changes that may be sent again: a key in a header, which belongs to the caller that sends it.
//!
//! [`replay`] is the layer around every change of the admin API: the same key with the same request
//! gets the first answer once more, with another request it is refused. An answer that refuses is not
//! kept, since nothing was done. What may not happen twice even where a process dies between the
//! change and its answer (a node, a batch, a task, a claim) is noted by the handler within the change's
//! own transaction as well, under [`idempotency_key`]. Why these are two is in
//! `docs/adr/0020-idempotency.md`.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use gpuaas_bundle::Digest;
use gpuaas_store::{IdempotencyKey, KeptResponse, ReplayKey, current_origin, sha256, with_origin};
use gpuaas_types::Problem;
use gpuaas_types::codes::ProblemCode;
use serde_json::Value;
use tracing::Instrument as _;

use crate::body::{MAX_BODY_BYTES, MAX_BUNDLE_BODY_BYTES};
use crate::caller::Caller;
use crate::ctx::Ctx;
use crate::problem::{ApiResult, Refusal, problem};

const KEY_HEADERS: [&str; 2] = ["idempotency-key", "x-idempotency-key"];
/// Longer than any request takes.
const HELD_SECONDS: f64 = 90.0;
/// Says that an answer was given before.
const REPLAYED_HEADER: &str = "idempotency-replayed";

/// Carries out a change once, however often it is sent with one key.
///
/// The work is a task of its own: a caller that hangs up, or the limit of a request, ends neither the
/// change nor the keeping of its answer.
pub(crate) async fn replay(
    State(ctx): State<Ctx>,
    caller: Caller,
    request: Request,
    next: Next,
) -> ApiResult<Response> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(next.run(request).await);
    }
    let Some(key) = sent_key(request.headers())? else {
        return Ok(next.run(request).await);
    };
    let (parts, body) = request.into_parts();
    let limit =
        if parts.uri.path() == "/api/v1/bundles" { MAX_BUNDLE_BODY_BYTES } else { MAX_BODY_BYTES };
    let body = to_bytes(body, limit)
        .await
        .map_err(|_| Refusal::from(problem(ProblemCode::BodyTooLarge)))?;
    if is_dry_run(&body) {
        return Ok(next.run(Request::from_parts(parts, Body::from(body))).await);
    }
    let asked = format!("{} {}\n{}", parts.method, parts.uri, Digest::sha256(&body));
    let digest = sha256(&asked);
    let key = ReplayKey { caller: caller.id().to_owned(), key };
    let kept = ctx.store.begin_replayable(ctx.now(), &key, digest, HELD_SECONDS).await?;
    if let Some(kept) = kept {
        return Ok(replayed(kept));
    }
    let request = Request::from_parts(parts, Body::from(body));
    let work = async move {
        let (response, kept) = split(next.run(request).await).await;
        if let Err(error) = ctx.store.end_replayable(&key, digest, kept).await {
            tracing::error!(%error, "the answer to a request with a key is not kept");
        }
        response
    };
    tokio::spawn(with_origin(current_origin(), work).in_current_span()).await.map_err(|error| {
        tracing::error!(%error, "a request did not end well");
        problem(ProblemCode::Internal).into()
    })
}

/// A plan is no change: the same key may be used for what it plans.
fn is_dry_run(body: &[u8]) -> bool {
    let body = serde_json::from_slice::<Value>(body);
    body.is_ok_and(|body| body.get("dry_run").and_then(Value::as_bool) == Some(true))
}

/// The answer, and what is kept of it: nothing of one that refuses, or that is no text.
async fn split(response: Response) -> (Response, Option<KeptResponse>) {
    if !response.status().is_success() {
        return (response, None);
    }
    let (parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return (Refusal::from(problem(ProblemCode::Internal)).into_response(), None);
    };
    let header = |name: HeaderName| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let kept = std::str::from_utf8(&body).ok().map(|text| KeptResponse {
        status: parts.status.as_u16(),
        content_type: header(CONTENT_TYPE),
        etag: header(ETAG),
        body: text.to_owned(),
    });
    (Response::from_parts(parts, Body::from(body)), kept)
}

fn replayed(kept: KeptResponse) -> Response {
    let status = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::OK);
    let mut response = (status, kept.body).into_response();
    let headers = response.headers_mut();
    headers.remove(CONTENT_TYPE);
    for (name, value) in [(CONTENT_TYPE, kept.content_type), (ETAG, kept.etag)] {
        if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
            headers.insert(name, value);
        }
    }
    headers.insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
    response
}

fn sent_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = KEY_HEADERS.iter().find_map(|name| headers.get(*name)) else {
        return Ok(None);
    };
    let refused = || problem(ProblemCode::InvalidIdempotencyKey);
    let key = value.to_str().map_err(|_| refused())?.trim();
    if !(1..=200).contains(&key.len()) || !key.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return Err(refused());
    }
    Ok(Some(key.to_owned()))
}

/// The key of a request that may be repeated, with a hash of what it asks. BMC passwords are left
/// out of the hash: hashes are stored, and a short password could be found from one.
pub(crate) fn idempotency_key(
    operation: &str,
    caller: &Caller,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Option<IdempotencyKey>, Problem> {
    let Some(key) = sent_key(headers)? else { return Ok(None) };
    let mut body: Value =
        serde_json::from_slice(body).map_err(|_| problem(ProblemCode::MalformedJson))?;
    hide_passwords(&mut body);
    Ok(Some(IdempotencyKey {
        // A key has no line ends, so no two callers make one text.
        key: format!("{operation}\n{}\n{key}", caller.id()),
        request_hash: sha256(&body.to_string()),
    }))
}

fn hide_passwords(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "bmc_password" {
                    *value = Value::Bool(true);
                } else {
                    hide_passwords(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_passwords),
        _ => {}
    }
}
