use super::*;
use std::time::Duration;

fn response(status: u16, content_type: &str, body: &str) -> Response {
    Response {
        status,
        content_type: Some(content_type.to_owned()),
        body: bytes::Bytes::copy_from_slice(body.as_bytes()),
        ..Response::default()
    }
}

fn classify(response: &Response, mutation: bool) -> Error {
    from_response(
        response,
        &RequestContext { mutation, timestamp: 1_000, secrets: &["hunter22", "tok-secret"] },
    )
}

const PLAIN: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json; charset=utf-8";

/// Status, content type, body, mutation, code.
type Row = (u16, &'static str, &'static str, bool, &'static str);

const ROWS: &[Row] = &[
    (
        400,
        JSON,
        r#"{"hostname": ["Node with this Hostname already exists."]}"#,
        true,
        "maas_validation",
    ),
    (400, JSON, r#"{"x": [{"nested": 1}], "y": null}"#, true, "maas_validation"),
    (400, "application/json", r#"{"x": "one sentence"}"#, true, "maas_validation"),
    (400, JSON, "not json", true, "maas_bad_request"),
    (400, PLAIN, "No provided name!", false, "maas_bad_request"),
    (401, "text/plain", "Forbidden", false, "maas_auth_not_authenticated"),
    (401, HTML, "Authorization Error: Invalid API key.", false, "maas_auth_invalid_key"),
    (401, HTML, "Authorization Error: 'Invalid access token: X'", false, "maas_auth_invalid_token"),
    (
        401,
        HTML,
        "Authorization Error: 'Invalid signature. Expected …: &S'",
        false,
        "maas_auth_bad_signature",
    ),
    (401, HTML, "Authorization Error: 'Nonce already used: N'", false, "maas_auth_nonce_replay"),
    (
        401,
        HTML,
        "Authorization Error: 'Signature method X not supported'",
        false,
        "maas_auth_refused",
    ),
    (403, PLAIN, "", true, "maas_forbidden"),
    (404, "text/plain", "No Machine matches the given query.", false, "maas_not_found"),
    (404, PLAIN, "Unknown API endpoint: /MAAS/api/2.0/x.", false, "maas_unknown_endpoint"),
    (404, "text/html", "<html>nginx", false, "maas_unknown_endpoint"),
    (404, PLAIN, "IP address is already in use.", true, "maas_address_in_use"),
    (405, HTML, "", true, "maas_method_not_allowed"),
    (409, PLAIN, "Machine is not locked", true, "maas_state_conflict"),
    (409, "text/html", "<title>Error: Conflict Error", true, "maas_database_conflict"),
    (301, "text/html", "", false, "maas_refused"),
    (418, PLAIN, "", false, "maas_refused"),
    (500, PLAIN, "Failed to power off.", true, "maas_unknown_outcome"),
    (500, PLAIN, "Power state could not be queried", false, "maas_server_error"),
    (502, HTML, "<html>", false, "maas_unknown_outcome"),
    (503, PLAIN, "Unable to connect to any rack", true, "maas_unavailable"),
    (504, PLAIN, "timed out", true, "maas_unknown_outcome"),
    (507, PLAIN, "", true, "maas_unknown_outcome"),
];

#[test]
fn table_of_codes() {
    for (status, content_type, body, mutation, code) in ROWS {
        let error = classify(&response(*status, content_type, body), *mutation);
        assert_eq!(error.code(), *code, "{status} {content_type} {body}");
        assert!(!error.to_string().contains('<'), "{error}");
    }
}

#[test]
fn what_may_have_happened() {
    let happened =
        |status, mutation| classify(&response(status, PLAIN, "x"), mutation).may_have_happened();
    assert!(happened(500, true) && happened(503, true) && happened(504, true));
    assert!(!happened(409, true) && !happened(403, true) && !happened(500, false));
    assert!(from_transport_error(&TransportError::Timeout).may_have_happened());
    assert!(from_transport_error(&TransportError::Reset("x".to_owned())).may_have_happened());
    assert!(!from_transport_error(&TransportError::Connect("x".to_owned())).may_have_happened());
}

#[test]
fn validation_keeps_fields_and_reads_as_a_sentence() {
    let error =
        classify(&response(400, JSON, r#"{"__all__": ["Not now."], "mac": ["a.", "b."]}"#), true);
    assert_eq!(error.to_string(), "MAAS refused (400): Not now.; mac: a. b.");
    assert_eq!(error.fields().unwrap()["mac"], ["a.", "b."]);
}

#[test]
fn clock_skew_is_counted_from_the_text_or_the_date() {
    let body = "Authorization Error: 'Expired timestamp: given 1000 and now 1700 has a greater difference than threshold 300'";
    let skew = |response: &Response| match classify(response, false) {
        Error::Refused {
            kind: RefusalKind::Unauthorized { cause: AuthCause::ClockSkew { seconds_behind } },
            text,
            ..
        } => (seconds_behind, text),
        other => panic!("{other:?}"),
    };
    assert_eq!(skew(&response(401, HTML, body)).0, Some(700));
    assert!(skew(&response(401, HTML, body)).1.contains("700 s behind"));
    let mut bare = response(401, HTML, "Expired timestamp");
    assert_eq!(skew(&bare).0, None);
    bare.date = Some("Thu, 01 Jan 1970 00:30:00 GMT".to_owned());
    assert_eq!(skew(&bare).0, Some(800));
}

#[test]
fn no_secret_is_shown() {
    let body =
        "Authorization Error: 'Invalid signature. Expected signature base string: &tok-secret'";
    let error = classify(&response(401, HTML, body), false);
    assert!(!format!("{error} {error:?}").contains("tok-secret"));
    for (status, content_type, body) in [
        (400, PLAIN, "bad value hunter22"),
        (400, JSON, r#"{"power_pass": ["'hunter22' is not valid"]}"#),
        (400, JSON, r#"{"hunter22": ["no such field"]}"#),
        (500, PLAIN, "ipmi -P hunter22 failed"),
        (503, PLAIN, "hunter22"),
        (418, PLAIN, "hunter22"),
    ] {
        let error = classify(&response(status, content_type, body), true);
        assert!(!format!("{error} {error:?}").contains("hunter22"), "{error:?}");
    }
}

#[test]
fn long_texts_are_cut_and_retry_after_is_kept() {
    let mut long = response(503, PLAIN, &"é".repeat(2_000));
    long.retry_after = Some(Duration::from_secs(10));
    match classify(&long, true) {
        Error::Unavailable { sent, retry_after, text } => {
            assert!(sent);
            assert_eq!(retry_after, Some(Duration::from_secs(10)));
            assert_eq!(text.chars().count(), MAX_TEXT_CHARS + 1);
        }
        other => panic!("{other:?}"),
    }
}
