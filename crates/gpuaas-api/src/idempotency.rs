//! Requests that may be sent again: a key in a header, and a hash of what was asked with it.

use axum::http::HeaderMap;
use gpuaas_store::{IdempotencyKey, sha256};
use gpuaas_types::Problem;
use gpuaas_types::codes::ProblemCode;
use serde_json::Value;

use crate::problem::problem;

const KEY_HEADERS: [&str; 2] = ["idempotency-key", "x-idempotency-key"];

/// The key of a request that may be repeated, with a hash of what it asks. BMC passwords are left
/// out of the hash: hashes are stored, and a short password could be found from one.
pub(crate) fn idempotency_key(
    operation: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Option<IdempotencyKey>, Problem> {
    let Some(value) = KEY_HEADERS.iter().find_map(|name| headers.get(*name)) else {
        return Ok(None);
    };
    let refused = || problem(ProblemCode::InvalidIdempotencyKey);
    let key = value.to_str().map_err(|_| refused())?.trim();
    if !(1..=200).contains(&key.len()) || !key.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return Err(refused());
    }
    let mut body: Value =
        serde_json::from_slice(body).map_err(|_| problem(ProblemCode::MalformedJson))?;
    hide_passwords(&mut body);
    Ok(Some(IdempotencyKey {
        key: format!("{operation}:{key}"),
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
