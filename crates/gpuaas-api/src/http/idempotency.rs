//! Changes that may be sent again: a key in a header, which belongs to the caller that sends it.
//!
//! [`replay`] is the layer around every change of the admin API. It runs each to completion, even if the
//! caller closes the connection. The same key with the same request gets the first answer once more;
//! with another request it is refused. An answer that refuses is not
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
use serde::Deserialize;
use serde_json::Value;
use tracing::Instrument as _;

use crate::ctx::Ctx;
use crate::http::body::{MAX_BODY_BYTES, MAX_BUNDLE_BODY_BYTES, WholeBody};
use crate::http::problem::{ApiResult, Refusal, problem};
use crate::identity::caller::Caller;

const KEY_HEADERS: [&str; 2] = ["idempotency-key", "x-idempotency-key"];
/// Fields of responses that hold a secret: a new token, the key of a webhook.
const SECRET_FIELDS: [&str; 2] = ["token", "secret"];
/// Longer than any request takes.
const HELD_SECONDS: f64 = 90.0;
/// Says that an answer was given before.
const REPLAYED_HEADER: &str = "idempotency-replayed";

/// Runs every change to completion, and a change with a key once, however often it is sent.
///
/// The work is a task of its own: a caller that closes the connection, or the time limit of a request,
/// ends neither the change nor the keeping of its answer.
pub(crate) async fn replay(
    State(ctx): State<Ctx>,
    caller: Caller,
    request: Request,
    next: Next,
) -> ApiResult<Response> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(next.run(request).await);
    }
    let key = sent_key(request.headers())?;
    let (parts, body) = request.into_parts();
    let limit =
        if parts.uri.path() == "/api/v1/bundles" { MAX_BUNDLE_BODY_BYTES } else { MAX_BODY_BYTES };
    // Until the whole body is here nothing has begun, and a caller may go.
    let read = ctx.open_bodies().read(caller.body_owner(), &parts.headers, body, limit);
    let (body, open) = read.await?;
    let key = key.filter(|_| !is_dry_run(&body));
    let asked = format!("{} {}\n{}", parts.method, parts.uri, Digest::sha256(&body));
    let mut request = Request::from_parts(parts, Body::empty());
    request.extensions_mut().insert(WholeBody(body));
    let work = async move {
        let response = next.run(request).await;
        drop(open);
        response
    };
    let Some(key) = key else { return to_completion(work).await };
    let digest = sha256(&asked);
    let key = ReplayKey { caller: caller.id().to_owned(), key };
    let kept = ctx.store.begin_replayable(ctx.now(), &key, digest, HELD_SECONDS).await?;
    if let Some(kept) = kept {
        return Ok(replayed(kept));
    }
    let work = async move {
        let (response, kept) = split(work.await).await;
        if let Err(error) = ctx.store.end_replayable(&key, digest, kept).await {
            tracing::error!(%error, "cannot store the response to a request with an idempotency key");
        }
        response
    };
    to_completion(work).await
}

/// Runs `work` as a task of its own, with the origin and the span of the request.
async fn to_completion(
    work: impl Future<Output = Response> + Send + 'static,
) -> ApiResult<Response> {
    tokio::spawn(with_origin(current_origin(), work).in_current_span()).await.map_err(|error| {
        tracing::error!(%error, "a request panicked");
        problem(ProblemCode::Internal).into()
    })
}

/// A plan is no change: the same key may be used for what it plans.
fn is_dry_run(body: &[u8]) -> bool {
    /// The rest of the body may hold a secret, and is not kept.
    #[derive(Deserialize)]
    struct Plan {
        dry_run: bool,
    }
    serde_json::from_slice::<Plan>(body).is_ok_and(|plan| plan.dry_run)
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
        body: without_secrets(text),
    });
    (Response::from_parts(parts, Body::from(body)), kept)
}

/// The body as it is stored: a secret is in the first response alone, and null in one that is replayed.
fn without_secrets(body: &str) -> String {
    let Ok(Value::Object(mut fields)) = serde_json::from_str(body) else { return body.to_owned() };
    let secret =
        SECRET_FIELDS.iter().filter(|name| fields.get(**name).is_some_and(Value::is_string));
    let secret: Vec<&str> = secret.copied().collect();
    if secret.is_empty() {
        return body.to_owned();
    }
    for name in secret {
        fields.insert(name.to_owned(), Value::Null);
    }
    Value::Object(fields).to_string()
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
