//! Every error that this crate can answer, in one table, and how it becomes a response.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gpuaas_store::StoreError;
use gpuaas_types::Problem;

/// Code, HTTP status, title, and what to do where the place that raises it knows nothing better.
pub const CATALOGUE: &[(&str, u16, &str, &str)] = &[
    (
        "malformed_json",
        400,
        "The body is not JSON",
        "send one JSON object, as the documentation of the endpoint shows it",
    ),
    (
        "unknown_field",
        400,
        "The request has a field that does not exist",
        "errors names the field, and what may have been meant",
    ),
    ("missing_field", 400, "A field of the request is missing", "errors names the field"),
    (
        "invalid_field",
        400,
        "A field of the request cannot be taken as it is",
        "errors names the field, and what it takes",
    ),
    (
        "invalid_query",
        400,
        "The query of the URL cannot be understood",
        "leave out what this address does not take",
    ),
    (
        "invalid_idempotency_key",
        400,
        "The idempotency key cannot be used",
        "send 1 to 200 printable ASCII characters, such as a UUID",
    ),
    ("bundle_not_found", 400, "The bundle reference does not resolve", ""),
    ("bundle_ref_invalid", 400, "The bundle reference cannot be understood", ""),
    ("bundle_malformed", 422, "These bytes are no bundle", ""),
    ("bundle_entry_refused", 422, "The bundle holds what no bundle may hold", ""),
    ("bundle_too_large", 422, "The bundle is too large", ""),
    ("bundle_manifest_invalid", 422, "The bundle's manifest is wrong", ""),
    ("bundle_invalid", 422, "The bundle is wrong", ""),
    ("bundle_circle", 422, "Bundles require each other", ""),
    ("bundle_input_unknown", 422, "The bundle has no such input", ""),
    ("bundle_input_missing", 422, "An input of the bundle has to be set", ""),
    ("bundle_input_invalid", 422, "A value does not fit the bundle's input", ""),
    (
        "bundle_secret_missing",
        422,
        "A secret of the bundle has to be set",
        "the value is read from a file, or from stdin with --file -",
    ),
    ("bundle_secret_in_open", 422, "A secret cannot be kept where it is shown", ""),
    ("bundle_input_not_secret", 422, "The bundle's input is no secret", ""),
    ("bundle_secret_given_away", 422, "The bundle would show a secret", ""),
    ("signature_malformed", 422, "The signature cannot be read", ""),
    ("signature_key_unknown", 422, "Nobody who is trusted signed the bundle", ""),
    ("signature_forged", 422, "The signature does not fit", ""),
    ("signature_key_retired", 422, "The signer is not trusted any more", ""),
    ("signature_expired", 422, "The signature has expired", ""),
    ("signature_not_yet_valid", 422, "The signature is from the future", ""),
    ("bundle_digest_mismatch", 422, "Other bytes were signed", ""),
    ("bundle_name_mismatch", 422, "Another bundle was signed", ""),
    (
        "bundle_version_taken",
        409,
        "Other bytes have this name and version",
        "a published version never changes: give the bundle another version",
    ),
    ("bundle_not_approved", 409, "The bundle is not approved for the site", ""),
    (
        "token_missing",
        401,
        "The request carries no credential",
        "send it as Authorization: Bearer TOKEN",
    ),
    (
        "token_unknown",
        401,
        "The credential is not known",
        "check that it was copied whole and belongs to this control plane",
    ),
    (
        "token_used",
        401,
        "The token was used before",
        "it works once, and again only for the key that used it, until the first heartbeat; gpuaas node certificates NODE says who enrolled; gpuaas node reimage NODE gives another",
    ),
    (
        "token_expired",
        401,
        "The token has expired",
        "its run is parked, and the node said nothing for too long: gpuaas run resume RUN makes it good again, gpuaas node reimage NODE gives another",
    ),
    ("token_revoked", 401, "The credential was revoked", "onboard the node again for a new one"),
    (
        "token_of_other_run",
        403,
        "The token is for another run",
        "a token works for the run that it was made for: let the node's latest deployment use its own",
    ),
    (
        "certificate_missing",
        401,
        "The connection shows no certificate of a node",
        "agents connect with the certificate of their enrollment: restart the agent",
    ),
    (
        "certificate_wrong_authority",
        401,
        "The certificate was signed by somebody else",
        "the agent belongs to another control plane, or its authority was replaced: reimage the node",
    ),
    (
        "certificate_unknown",
        401,
        "No node of this control plane has this certificate",
        "the node was removed, or the database restored from before the enrollment: reimage the node",
    ),
    (
        "certificate_revoked",
        401,
        "The certificate was revoked",
        "gpuaas node certificates NODE says by whom and why; reimage the node for a new one",
    ),
    (
        "certificate_superseded",
        401,
        "The certificate belongs to an earlier enrollment of the node",
        "another system enrolled as this node: switch this one off, or reimage the node",
    ),
    (
        "certificate_expired",
        401,
        "The certificate has expired",
        "the agent could not renew it in time; set right the clocks of both hosts, or reimage the node",
    ),
    (
        "certificate_not_yet_valid",
        401,
        "The certificate is not valid yet",
        "the control plane's clock is behind: set it right",
    ),
    (
        "csr_missing",
        400,
        "The enrollment has no signing request",
        "this control plane gives certificates: run an agent of this version",
    ),
    (
        "csr_invalid",
        400,
        "The signing request cannot be used",
        "the agent makes the request by itself; start it again, and read its log where that does not help",
    ),
    (
        "certificates_off",
        409,
        "This control plane is for stand-ins and gives no certificates",
        "start gpuaas serve without --stand-ins",
    ),
    (
        "certificates_too_many",
        429,
        "The node has too many certificates that are good",
        "wait until the older ones end, or revoke them: gpuaas node revoke-certificate NODE",
    ),
    (
        "no_certificate",
        409,
        "The node has no certificate that is good",
        "its agent enrolls with the next deployment: gpuaas node reimage NODE",
    ),
    (
        "authority_unavailable",
        503,
        "The certificate authority does not answer",
        "agents try again by themselves; see the log for what the authority said",
    ),
    (
        "authority_broken",
        500,
        "The certificate authority gave what it was not asked for",
        "see the log; check the authority's profile for nodes",
    ),
    (
        "token_wrong_purpose",
        403,
        "The credential is for something else",
        "each credential opens its own addresses: operators, boot scripts, newcomers and agents have one each",
    ),
    (
        "token_not_yet_usable",
        403,
        "The token cannot be used yet",
        "it becomes usable when MAAS reports the machine as deployed: try again",
    ),
    ("run_over", 409, "The run is over", "onboard the node again"),
    (
        "not_found",
        404,
        "There is nothing at this address",
        "the addresses begin with /api/v1, /bootstrap/v1 or /agent/v1",
    ),
    (
        "site_not_found",
        404,
        "There is no such site",
        "gpuaas site list shows the sites; gpuaas site add makes one",
    ),
    (
        "profile_not_found",
        404,
        "There is no such profile",
        "gpuaas profile list shows the profiles; gpuaas profile add makes one",
    ),
    (
        "node_not_found",
        404,
        "There is no such node",
        "gpuaas node list shows the nodes; a node is found by id, hostname, MAAS system id, MAC or BMC address",
    ),
    ("run_not_found", 404, "There is no such run", "gpuaas node show NODE names its run"),
    (
        "secret_not_found",
        404,
        "There is no such secret",
        "gpuaas site secret list SITE shows what is set; gpuaas profile secret list PROFILE too",
    ),
    ("batch_not_found", 404, "There is no such batch", "gpuaas batch list shows the batches"),
    (
        "task_not_found",
        404,
        "There is no such task for this node",
        "gpuaas node tasks NODE lists them",
    ),
    (
        "artifact_not_found",
        404,
        "There is no artifact with this digest",
        "render the user-data again: it names what this control plane has",
    ),
    (
        "method_not_allowed",
        405,
        "This address does not take this method",
        "the Allow header names those that it takes",
    ),
    (
        "request_timeout",
        504,
        "The request took too long",
        "whether it took effect is not known: look before asking again; repeat a POST with the same Idempotency-Key",
    ),
    (
        "node_exists",
        409,
        "The node is already under care",
        "gpuaas node show NODE says how it stands",
    ),
    ("node_ambiguous", 409, "More than one node matches", "name it by its id"),
    (
        "node_has_open_run",
        409,
        "The node has an open run",
        "gpuaas explain NODE says how far it is",
    ),
    (
        "node_state_forbids",
        409,
        "The node's state does not allow this",
        "gpuaas node show NODE names its state",
    ),
    (
        "machine_handed_off",
        409,
        "The machine was handed over",
        "detach the node: GPUaaS does not touch a machine whose profile hands it over",
    ),
    (
        "node_without_agent",
        409,
        "The node has no agent",
        "only an agent carries out tasks: onboard the node first",
    ),
    (
        "run_mismatch",
        409,
        "The agent belongs to another run",
        "restart the agent; if that does not help, onboard the node again",
    ),
    (
        "idempotency_key_reused",
        409,
        "The idempotency key was used with another request",
        "use a new key for a new request",
    ),
    (
        "idempotency_key_in_use",
        409,
        "A request with this idempotency key is under way",
        "send it again in a moment",
    ),
    (
        "roce_interface_taken",
        409,
        "The interface has a fabric address",
        "gpuaas roce list shows the fabric addresses",
    ),
    (
        "roce_address_taken",
        409,
        "The fabric address belongs to another interface",
        "gpuaas roce list shows the fabric addresses",
    ),
    (
        "site_name_taken",
        409,
        "There is a site of this name",
        "choose another name, or change the site with PATCH",
    ),
    (
        "profile_name_taken",
        409,
        "There is a profile of this name",
        "choose another name, or change the profile: gpuaas profile set",
    ),
    (
        "batch_invalid",
        400,
        "The manifest cannot be taken as it is",
        "correct what is named; the place of a machine in the list counts from 0",
    ),
    (
        "batch_name_taken",
        409,
        "There is a batch of this name",
        "choose another name; gpuaas batch show NAME shows what is there",
    ),
    (
        "batch_not_stopped",
        409,
        "The batch is not stopped",
        "gpuaas batch show BATCH says what it waits for",
    ),
    (
        "batch_stopped",
        409,
        "The batch is stopped already",
        "gpuaas batch resume BATCH lets it go on",
    ),
    ("batch_over", 409, "The batch is over", "make another batch for other machines"),
    (
        "run_not_parked",
        409,
        "The run is not parked",
        "only a parked run can be resumed or retried; gpuaas run show RUN says how it stands",
    ),
    (
        "task_key_staged",
        409,
        "A staged key waits already",
        "gpuaas task-key activate lets it sign; gpuaas task-key retire KEY withdraws it",
    ),
    ("no_task_key_staged", 409, "No key is staged", "gpuaas task-key stage makes one"),
    (
        "task_key_active",
        409,
        "The key signs",
        "let another one sign first: gpuaas task-key stage, then gpuaas task-key activate",
    ),
    ("body_too_large", 413, "The body is too large", "send less at once"),
    (
        "unsupported_media_type",
        415,
        "The body has a type that is not taken",
        "send JSON with Content-Type: application/json",
    ),
    (
        "maas_unreachable",
        502,
        "MAAS does not answer",
        "check the URL and that this host can reach it: curl URL/api/2.0/version/",
    ),
    (
        "not_a_maas",
        502,
        "What answers at this URL is not MAAS",
        "give the base URL of a region, such as http://maas.example:5240/MAAS",
    ),
    (
        "maas_key_refused",
        422,
        "MAAS refuses the API key",
        "print the key of an administrator: maas apikey --username=NAME",
    ),
    (
        "maas_not_admin",
        422,
        "The API key is not an administrator's",
        "give the key of a MAAS administrator",
    ),
    (
        "maas_version_unsupported",
        422,
        "This version of MAAS is not supported",
        "GPUaaS speaks to MAAS 3.4 to 3.7",
    ),
    (
        "telemetry_path_refused",
        403,
        "This is not read through the control plane",
        "what may be read: gpuaas/telemetry/health, gpuaas/telemetry/netdata/, the dashboards below v1/ to v3/, and what only reads below api/v1/ to api/v3/",
    ),
    ("telemetry_busy", 503, "Too much telemetry is read at once", "try again in a moment"),
    (
        "telemetry_too_large",
        502,
        "The host's answer is too large",
        "ask for less: fewer points, or one chart",
    ),
    (
        "telemetry_redirect_refused",
        502,
        "The host's answer leads away from its edge",
        "do not follow it; gpuaas node telemetry NODE says what is there",
    ),
    (
        "telemetry_answer_refused",
        502,
        "The edge works, and does not answer this",
        "ask it for something else, or try again",
    ),
    ("telemetry_no_address", 409, "No address of the host is known", ""),
    ("telemetry_simulated", 409, "The host is simulated", ""),
    ("telemetry_not_expected", 409, "The node is to have no telemetry", ""),
    ("node_unreachable", 504, "The host cannot be reached", ""),
    ("telemetry_edge_down", 502, "The host has no telemetry edge that listens", ""),
    ("telemetry_edge_silent", 504, "The host's telemetry edge does not answer", ""),
    ("telemetry_edge_refuses", 502, "The host's telemetry edge refuses the control plane", ""),
    ("telemetry_backend_down", 502, "Netdata does not answer behind the host's edge", ""),
    ("wrong_listener", 502, "Something else listens where the host's edge belongs", ""),
    ("telemetry_edge_incomplete", 502, "The host's telemetry edge lacks a part", ""),
    ("clock_skew", 422, "The clocks of MAAS and of this host differ", "set both clocks by NTP"),
    (
        "database_unavailable",
        503,
        "The database does not answer",
        "try again; the log of the control plane names the cause",
    ),
    (
        "internal",
        500,
        "The control plane failed",
        "this is a bug: the log of the control plane has the cause",
    ),
];

/// A problem of the catalogue; a code that is not in it is an internal error.
pub(crate) fn problem(code: &str) -> Problem {
    match CATALOGUE.iter().find(|row| row.0 == code) {
        Some((code, status, title, hint)) => Problem::new(*status, code, title).with_hint(*hint),
        None => Problem::new(500, code, "The control plane failed"),
    }
}

/// A problem on its way out.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Box<Problem>);

/// What a handler answers.
pub(crate) type Answer<T> = Result<T, Refusal>;

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
    problem("invalid_field").with_detail(format!("{field}: {message}")).with_field(field, message)
}

fn from_store(error: &StoreError) -> Problem {
    match error {
        StoreError::Conflict { code, detail } => match problem(code) {
            known if known.status != 500 => known.with_detail(detail),
            _ => Problem::new(409, code, "This does not fit what is there").with_detail(detail),
        },
        StoreError::NotFound { what, key } => {
            let code = match *what {
                "site" => "site_not_found",
                "profile" => "profile_not_found",
                "node" => "node_not_found",
                "run" => "run_not_found",
                "task" => "task_not_found",
                "batch" => "batch_not_found",
                _ => "not_found",
            };
            problem(code).with_detail(format!("there is no {what} {key}"))
        }
        StoreError::Token(fault) => problem(fault.code()).with_detail(fault.to_string()),
        StoreError::Unavailable { .. } => {
            tracing::warn!(%error, "the database failed a request");
            problem("database_unavailable")
        }
        other => {
            tracing::error!(error = %other, "a request met a bug");
            problem("internal")
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
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stand_once_and_read_as_codes() {
        // Of these the place where they arise knows more.
        let said_there = |code: &str| {
            ["bundle_", "signature_", "telemetry_"].iter().any(|start| code.starts_with(start))
                || matches!(code, "node_unreachable" | "wrong_listener")
        };
        for (index, (code, status, title, hint)) in CATALOGUE.iter().enumerate() {
            assert!(code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{code}");
            assert!((400..=599).contains(status) && !title.ends_with('.'), "{code}");
            assert!(!hint.is_empty() || said_there(code), "{code} has no hint");
            assert!(!CATALOGUE[index + 1..].iter().any(|row| row.0 == *code), "{code} twice");
        }
    }
}
