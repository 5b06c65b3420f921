//! What an answer must become, derived from the answer alone.

use crate::{AuthCause, Error, RefusalKind};

use super::facts::{self, Fact};
use super::recording::{Exchange, RecordedResponse};

pub(crate) fn check(
    exchange: &Exchange,
    mutation: bool,
    result: Result<Vec<Fact>, Error>,
) -> Result<(), String> {
    let answer = &exchange.answer;
    match result {
        Ok(facts) if (200..300).contains(&answer.response.status) => match &answer.json {
            Some(json) => facts::check(&facts, json),
            None if facts.is_empty() => Ok(()),
            None => Err("a value out of no JSON".into()),
        },
        Ok(_) => Err(format!("status {} became a value", answer.response.status)),
        Err(Error::Malformed { .. }) if answer.truncated => Ok(()),
        Err(error) => check_error(answer, mutation, &error),
    }
}

fn check_error(answer: &RecordedResponse, mutation: bool, error: &Error) -> Result<(), String> {
    let expected = expected_code(answer, mutation);
    if error.code() != expected {
        let status = answer.response.status;
        return Err(format!("status {status} should be {expected}, is {}: {error}", error.code()));
    }
    let shown = format!("{error} {error:?}");
    let text = answer.text();
    if answer.response.status == 401 {
        let cause = text.split_once("Authorization Error:").map(|(_, cause)| cause.trim());
        if cause.is_some_and(|cause| !cause.is_empty() && shown.contains(cause)) {
            return Err(format!("a 401 body is shown: {shown}"));
        }
        return check_skew(&text, error);
    }
    if let Some(object) = answer.json.as_ref().and_then(|json| json.as_object())
        && let Some(fields) = error.fields()
    {
        let recorded: Vec<&String> = object.keys().collect();
        if fields.keys().collect::<Vec<_>>() != recorded {
            return Err(format!("fields {fields:?} are not {recorded:?}"));
        }
        for (field, messages) in fields {
            let short = |text: &str| text.chars().take(200).collect::<String>();
            let recorded = object[field].to_string().replace("\\\"", "\"");
            if !messages.iter().all(|message| recorded.contains(&short(message))) {
                return Err(format!("{field}: {messages:?} is not {recorded}"));
            }
        }
        return Ok(());
    }
    let html = content_type(answer) == "text/html";
    let head: String = text.chars().take(100).collect();
    if !html && !error.to_string().contains(&head) {
        return Err(format!("MAAS's text is lost: {error}"));
    }
    match error {
        Error::Unavailable { sent, retry_after, .. } => {
            if *sent && *retry_after == answer.response.retry_after {
                return Ok(());
            }
            Err(format!("Retry-After is lost: {error:?}"))
        }
        _ => Ok(()),
    }
}

fn check_skew(text: &str, error: &Error) -> Result<(), String> {
    let Error::Refused { kind: RefusalKind::Unauthorized { cause }, .. } = error else {
        return Err(format!("{error:?} is not about credentials"));
    };
    let AuthCause::ClockSkew { seconds_behind } = cause else {
        return Ok(());
    };
    let numbers: Vec<i64> = text
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect();
    match numbers.as_slice() {
        [given, now, ..] if *seconds_behind == Some(now - given) => Ok(()),
        _ => Err(format!("{seconds_behind:?} s behind, from: {numbers:?}")),
    }
}

fn content_type(answer: &RecordedResponse) -> &str {
    let full = answer.response.content_type.as_deref().unwrap_or_default();
    full.split(';').next().unwrap_or_default().trim()
}

/// The table of docs/maas.md#refusals, with the causes of docs/maas.md#authentication.
fn expected_code(answer: &RecordedResponse, mutation: bool) -> &'static str {
    let text = answer.text();
    let kind = content_type(answer);
    let object = answer.json.as_ref().is_some_and(serde_json::Value::is_object);
    match (answer.response.status, kind) {
        (400, "application/json") if object => "maas_validation",
        (400, _) => "maas_bad_request",
        (401, _) => unauthorized_code(&text),
        (403, _) => "maas_forbidden",
        (404, _) if text.starts_with("Unknown API endpoint") => "maas_unknown_endpoint",
        (404, "text/html") => "maas_unknown_endpoint",
        (404, _) if text == "IP address is already in use." => "maas_address_in_use",
        (404, _) => "maas_not_found",
        (405, _) => "maas_method_not_allowed",
        (409, "text/html") => "maas_database_conflict",
        (409, _) => "maas_state_conflict",
        (502 | 504, _) => "maas_unknown_outcome",
        (503, _) => "maas_unavailable",
        (500.., _) if mutation => "maas_unknown_outcome",
        (500.., _) => "maas_server_error",
        // Nothing but JSON can be read where a value is due.
        (200..=299, _) if answer.json.is_none() => "maas_malformed_answer",
        (200..=299, _) => "a value",
        _ => "maas_refused",
    }
}

fn unauthorized_code(text: &str) -> &'static str {
    let table = [
        ("Invalid API key", "maas_auth_invalid_key"),
        ("Invalid consumer", "maas_auth_invalid_key"),
        ("Invalid access token", "maas_auth_invalid_token"),
        ("Invalid signature", "maas_auth_bad_signature"),
        ("Expired timestamp", "maas_auth_clock_skew"),
        ("Nonce already used", "maas_auth_nonce_replay"),
    ];
    let found = table.iter().find(|(words, _)| text.contains(words)).map(|(_, code)| *code);
    match text {
        "" | "Forbidden" => "maas_auth_not_authenticated",
        _ => found.unwrap_or("maas_auth_refused"),
    }
}
