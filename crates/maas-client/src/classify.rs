//! Turns an answer or a transport failure into an [`Error`] (docs/maas.md#authentication,
//! docs/maas.md#refusals).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{AuthCause, Error, MAX_TEXT_CHARS, RefusalKind, UnknownCause};
use crate::time::parse_maas_time;
use crate::transport::{Response, TransportError};

/// What the classification has to know of the request.
pub(crate) struct RequestContext<'a> {
    /// True for a request that may change something: its 500 leaves the outcome unknown.
    pub(crate) mutation: bool,
    /// The timestamp that was signed, in seconds since 1970.
    pub(crate) timestamp: i64,
    /// Values to mask wherever they occur in MAAS's text.
    pub(crate) secrets: &'a [&'a str],
}

/// Classifies an answer that is not 2xx.
pub(crate) fn from_response(response: &Response, context: &RequestContext<'_>) -> Error {
    let status = response.status;
    let text = || masked_body(response, context);
    let refused = |kind: RefusalKind, text: String| Error::Refused { status, kind, text };
    match status {
        400 => bad_request(response, context),
        401 => unauthorized(response, context),
        403 => refused(
            RefusalKind::Forbidden,
            text_or(text(), "not permitted, or the machine is locked"),
        ),
        404 => {
            let text = text();
            refused(not_found(response, &text), text_or(text, "not found"))
        }
        405 => refused(RefusalKind::MethodNotAllowed, text_or(text(), "method not allowed")),
        409 if media_type(response) == "text/html" => refused(
            RefusalKind::DatabaseConflict,
            "database conflict in MAAS, which a duplicate BMC also causes".to_owned(),
        ),
        409 => refused(RefusalKind::StateConflict, text_or(text(), "conflicting state")),
        502 | 504 => unknown(
            UnknownCause::Gateway,
            text_or(masked_body(response, context), "the gateway got no response"),
        ),
        503 => Error::Unavailable {
            sent: true,
            retry_after: response.retry_after,
            text: text_or(masked_body(response, context), "service unavailable"),
        },
        500.. => {
            let text = text_or(masked_body(response, context), "internal error");
            if context.mutation {
                unknown(UnknownCause::ServerError, text)
            } else {
                Error::ServerError { status, text }
            }
        }
        300..=399 => refused(
            RefusalKind::Other,
            "MAAS redirected the request: check the URL (https, path)".to_owned(),
        ),
        _ => refused(RefusalKind::Other, text_or(masked_body(response, context), "refused")),
    }
}

/// Classifies a request that got no answer.
pub(crate) fn from_transport_error(error: &TransportError) -> Error {
    let text = error.to_string();
    match error {
        TransportError::Connect(_) => Error::Unavailable { sent: false, retry_after: None, text },
        TransportError::Timeout => unknown(UnknownCause::Timeout, text),
        TransportError::Reset(_) => unknown(UnknownCause::Reset, text),
        TransportError::TooLarge { .. } => Error::Malformed { status: 200, text },
    }
}

fn unknown(cause: UnknownCause, text: String) -> Error {
    Error::UnknownOutcome { cause, text }
}

/// Form errors are an object of lists of texts; other values are kept as they read in JSON.
fn bad_request(response: &Response, context: &RequestContext<'_>) -> Error {
    let parsed: Option<BTreeMap<String, Value>> = match media_type(response) {
        "application/json" => serde_json::from_slice(&response.body).ok(),
        _ => None,
    };
    let Some(parsed) = parsed else {
        let text = text_or(masked_body(response, context), "bad request");
        return Error::Refused { status: 400, kind: RefusalKind::BadRequest, text };
    };
    let clean = |value: Value| match value {
        Value::String(text) => truncate(&mask(text, context.secrets)),
        other => truncate(&mask(other.to_string(), context.secrets)),
    };
    let fields: BTreeMap<String, Vec<String>> = parsed
        .into_iter()
        .map(|(field, value)| {
            let messages = match value {
                Value::Array(many) => many.into_iter().map(clean).collect(),
                one => vec![clean(one)],
            };
            (clean(Value::String(field)), messages)
        })
        .collect();
    let sentences: Vec<String> = fields
        .iter()
        .map(|(field, messages)| match field.as_str() {
            "__all__" => messages.join(" "),
            _ => format!("{field}: {}", messages.join(" ")),
        })
        .collect();
    let text = truncate(&sentences.join("; "));
    Error::Refused { status: 400, kind: RefusalKind::Validation { fields }, text }
}

/// Answers in this client's words only: the body can hold the token secret
/// (docs/maas.md#authentication).
fn unauthorized(response: &Response, context: &RequestContext<'_>) -> Error {
    let body = String::from_utf8_lossy(&response.body);
    let cause = if body.contains("Invalid API key") || body.contains("Invalid consumer") {
        AuthCause::InvalidKey
    } else if body.contains("Invalid access token") {
        AuthCause::InvalidToken
    } else if body.contains("Invalid signature") {
        AuthCause::BadSignature
    } else if body.contains("Expired timestamp") {
        AuthCause::ClockSkew { seconds_behind: seconds_behind(&body, response, context.timestamp) }
    } else if body.contains("Nonce already used") {
        AuthCause::NonceReplay
    } else if body.trim() == "Forbidden" || body.trim().is_empty() {
        AuthCause::NotAuthenticated
    } else {
        AuthCause::Other
    };
    let text = match cause {
        AuthCause::InvalidKey => "MAAS does not recognize this API key".to_owned(),
        AuthCause::InvalidToken => {
            "MAAS does not recognize this API key's token; it may be deleted".to_owned()
        }
        AuthCause::BadSignature => "the secret of this API key is wrong".to_owned(),
        AuthCause::ClockSkew { seconds_behind: Some(seconds) } => {
            format!("this host's clock is {seconds} s behind MAAS's (limit: 300 s)")
        }
        AuthCause::ClockSkew { seconds_behind: None } => {
            "this host's clock is more than 300 s behind MAAS's".to_owned()
        }
        AuthCause::NonceReplay => "this authorization header was already used".to_owned(),
        AuthCause::NotAuthenticated => {
            "MAAS received no credentials; check whether a proxy strips them".to_owned()
        }
        AuthCause::Other => "MAAS rejected the credentials".to_owned(),
    };
    Error::Refused { status: 401, kind: RefusalKind::Unauthorized { cause }, text }
}

/// `Expired timestamp: given A and now B …`, else the `Date` header against what we signed.
fn seconds_behind(body: &str, response: &Response, signed: i64) -> Option<i64> {
    let number = |after: &str| -> Option<i64> {
        let rest = body.split_once(after)?.1.trim_start();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    match (number("given "), number("now ")) {
        (Some(given), Some(now)) => Some(now - given),
        _ => response.date.as_deref().and_then(parse_maas_time).map(|now| now - signed),
    }
}

fn not_found(response: &Response, text: &str) -> RefusalKind {
    if text.starts_with("Unknown API endpoint") || media_type(response) == "text/html" {
        RefusalKind::UnknownEndpoint
    } else if text.contains("already in use") {
        RefusalKind::AddressInUse
    } else {
        RefusalKind::NotFound
    }
}

/// The content type without parameters; empty where absent.
pub(crate) fn media_type(response: &Response) -> &str {
    let value = response.content_type.as_deref().unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

fn text_or(text: String, fallback: &str) -> String {
    if text.is_empty() { fallback.to_owned() } else { text }
}

/// The body as text with secrets masked. Empty for an HTML page, which tells no more than the
/// status.
fn masked_body(response: &Response, context: &RequestContext<'_>) -> String {
    if media_type(response) == "text/html" {
        return String::new();
    }
    let text = String::from_utf8_lossy(&response.body).trim().to_owned();
    truncate(&mask(text, context.secrets))
}

/// Secrets under three characters are left alone: masking them would garble every sentence.
fn mask(mut text: String, secrets: &[&str]) -> String {
    for secret in secrets.iter().filter(|secret| secret.len() > 2) {
        if text.contains(secret) {
            text = text.replace(secret, "***");
        }
    }
    text
}

/// Cuts a text to [`MAX_TEXT_CHARS`] characters.
fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
