//! Requests and answers as values, without a socket.
//!
//! The region reads a [`SimRequest`] and returns a [`SimResponse`]; whether bytes came from a TCP
//! connection or from a function call does not matter here. MAAS accepts the same parameters as a
//! query, a form, a multipart body and, for updates, a JSON object (docs/maas.md#parameters). All
//! of them end up in one [`Params`].

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

/// One HTTP request as a region sees it.
#[derive(Debug, Clone, Default)]
pub struct SimRequest {
    /// Upper-case method name.
    pub method: String,
    /// Path as sent, without the query, e.g. `/MAAS/api/2.0/machines/`.
    pub path: String,
    /// Raw query text without the question mark.
    pub query: String,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// The `Content-Type` header.
    pub content_type: Option<String>,
    /// The body.
    pub body: Bytes,
}

/// What becomes of an answer on its way to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseDelivery {
    /// It is sent.
    #[default]
    Send,
    /// The connection is closed without an answer.
    Reset,
}

/// One HTTP answer.
#[derive(Debug, Clone)]
pub struct SimResponse {
    /// HTTP status.
    pub status: u16,
    /// Value of the header `Content-Type`; empty for none.
    pub content_type: &'static str,
    /// Other headers.
    pub headers: Vec<(&'static str, String)>,
    /// Body bytes.
    pub body: Bytes,
    /// Simulated microseconds that the real region would have let the caller wait
    /// (power actions, database retries, injected slowness).
    pub delay_us: i64,
    /// Sent, or lost on the way back.
    pub delivery: ResponseDelivery,
    /// Machines that a long list still has to show after `body`.
    pub(crate) rest: Option<RestOfList>,
}

/// What a long list of machines still has to show. It is rendered in parts, because a fleet's
/// bodies together have hundreds of megabytes.
#[derive(Debug, Clone)]
pub(crate) struct RestOfList {
    pub(crate) keys: std::collections::VecDeque<u32>,
    /// Some machine was shown already.
    pub(crate) started: bool,
    /// Label of the endpoint, for what it sent.
    pub(crate) label: &'static str,
}

pub(crate) const JSON: &str = "application/json; charset=utf-8";
pub(crate) const JSON_BARE: &str = "application/json";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const TEXT_BARE: &str = "text/plain";
pub(crate) const HTML: &str = "text/html; charset=utf-8";
/// Content type of a form.
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

impl SimResponse {
    pub(crate) fn new(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            content_type,
            headers: Vec::new(),
            body: body.into(),
            delay_us: 0,
            delivery: ResponseDelivery::Send,
            rest: None,
        }
    }

    /// 200 with the JSON text that MAAS would have printed.
    pub(crate) fn json(value: &Value) -> Self {
        Self::new(200, JSON, pretty(value))
    }

    pub(crate) fn text(status: u16, text: impl Into<String>) -> Self {
        Self::new(status, TEXT, text.into())
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn delayed(mut self, us: i64) -> Self {
        self.delay_us += us;
        self
    }

    pub(crate) fn no_content() -> Self {
        Self::new(204, TEXT_BARE, Bytes::new())
    }

    pub(crate) fn forbidden() -> Self {
        Self::new(403, TEXT, Bytes::new())
    }

    /// `No X matches the given query.`
    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(404, TEXT_BARE, format!("No {what} matches the given query."))
    }

    pub(crate) fn conflict(text: impl Into<String>) -> Self {
        Self::text(409, text)
    }

    /// Form errors: field to list of messages.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        let mut map = serde_json::Map::new();
        map.insert(field.to_owned(), Value::from(vec![message.into()]));
        Self::new(400, JSON, compact(&Value::Object(map)))
    }

    /// Several form errors at once.
    pub(crate) fn invalid_fields(errors: &[(&str, String)]) -> Self {
        let mut map = serde_json::Map::new();
        for (field, message) in errors {
            if let Value::Array(list) =
                map.entry((*field).to_owned()).or_insert_with(|| Value::Array(Vec::new()))
            {
                list.push(Value::from(message.clone()));
            }
        }
        Self::new(400, JSON, compact(&Value::Object(map)))
    }

    /// Body as text, lossy; for tests and logs.
    #[must_use]
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Body as JSON; `Null` where it is none.
    #[must_use]
    pub fn body_json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// JSON as Python's `json.dumps(indent=4)` prints it.
pub(crate) fn pretty(value: &Value) -> Bytes {
    let mut out = Vec::with_capacity(512);
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut ser = serde_json::Serializer::with_formatter(&mut out, formatter);
    if value.serialize(&mut ser).is_err() {
        out.clear();
    }
    Bytes::from(out)
}

pub(crate) fn compact(value: &Value) -> String {
    value.to_string()
}

/// A file part of a multipart body.
#[derive(Debug, Clone)]
pub(crate) struct FilePart {
    pub(crate) name: String,
    pub(crate) content: Bytes,
}

/// Parameters in the order sent; keys may repeat.
#[derive(Debug, Clone, Default)]
pub(crate) struct Params {
    pairs: Vec<(String, String)>,
    pub(crate) files: Vec<FilePart>,
}

impl Params {
    pub(crate) fn parse_query(text: &str) -> Self {
        let mut out = Self::default();
        for piece in text.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = piece.split_once('=').unwrap_or((piece, ""));
            out.pairs.push((unquote_plus(key), unquote_plus(value)));
        }
        out
    }

    /// The parameters of a form body. Without a content type there is none.
    pub(crate) fn parse_form(content_type: Option<&str>, body: &Bytes) -> Self {
        let kind = content_type.unwrap_or("");
        if kind.starts_with("multipart/form-data") {
            return boundary(kind).map(|b| multipart(&b, body)).unwrap_or_default();
        }
        if kind.starts_with(FORM) {
            return Self::parse_query(&String::from_utf8_lossy(body));
        }
        Self::default()
    }

    /// The parameters of a body, for a handler that also reads a JSON object.
    ///
    /// # Errors
    /// The refusals of a body that MAAS cannot read, before any handler sees it.
    pub(crate) fn parse_data(
        content_type: Option<&str>,
        body: &Bytes,
    ) -> Result<Self, SimResponse> {
        let kind = content_type.unwrap_or("");
        if kind.starts_with("multipart/form-data") && boundary(kind).is_none() {
            return Err(Self::refused_body("", ""));
        }
        if kind.starts_with("application/json") {
            let read = serde_json::from_slice::<Value>(body).ok();
            return read.map(from_json).ok_or_else(|| Self::refused_body(TEXT_BARE, "Bad Request"));
        }
        if kind.starts_with("application/x-yaml") {
            return Ok(Self::default());
        }
        let readable = ["", FORM, "multipart/form-data", "application/octet-stream"];
        if !body.is_empty() && !readable.contains(&kind.split(';').next().unwrap_or("").trim()) {
            // The handler is called with nothing and stumbles over it.
            return Err(SimResponse::text(500, "'NoneType' object has no attribute 'get'"));
        }
        Ok(Self::parse_form(content_type, body))
    }

    fn refused_body(content_type: &'static str, text: &'static str) -> SimResponse {
        SimResponse::new(400, content_type, text)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        // Django's QueryDict answers with the last value.
        self.pairs.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// The value, with the empty text counted as absent.
    pub(crate) fn filled(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|v| !v.is_empty())
    }

    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(k, _)| k == key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    pub(crate) fn push(&mut self, key: &str, value: &str) {
        self.pairs.push((key.to_owned(), value.to_owned()));
    }

    /// Django's `BooleanField`: only these are false (docs/maas.md#parameters).
    pub(crate) fn django_bool(&self, key: &str) -> bool {
        !matches!(self.get(key), None | Some("" | "false" | "False" | "0"))
    }

    /// formencode's `StringBool`.
    pub(crate) fn string_bool(&self, key: &str, default: bool) -> Result<bool, SimResponse> {
        let Some(text) = self.filled(key) else {
            return Ok(default);
        };
        match text.trim().to_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "on" | "1" => Ok(true),
            "false" | "f" | "no" | "n" | "off" | "0" => Ok(false),
            _ => Err(SimResponse::text(
                400,
                format!("Invalid {key}: Value should be 'true' or 'false'"),
            )),
        }
    }
}

/// Decodes `%XX`, and `+` as a space.
pub(crate) fn unquote_plus(text: &str) -> String {
    unquote(&text.replace('+', " "))
}

/// Decodes `%XX`; what is no such code stays.
pub(crate) fn unquote(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = (bytes[i] == b'%').then(|| bytes.get(i + 1..i + 3)).flatten();
        match hex
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok())
        {
            Some(byte) => {
                out.push(byte);
                i += 3;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Percent-encodes a query value as Python's `urlencode` does.
pub(crate) fn quote_plus(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => {
                out.push(byte as char)
            }
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn from_json(body: Value) -> Params {
    let mut out = Params::default();
    if let Value::Object(map) = body {
        for (key, value) in map {
            match value {
                Value::Array(items) => items.iter().for_each(|v| out.push(&key, &plain(v))),
                Value::Null => {}
                other => out.push(&key, &plain(&other)),
            }
        }
    }
    out
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn boundary(content_type: &str) -> Option<String> {
    let rest = content_type.split("boundary=").nth(1)?;
    Some(rest.split(';').next().unwrap_or(rest).trim().trim_matches('"').to_owned())
}

fn find(haystack: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    if needle.is_empty() || haystack.len() < from {
        return None;
    }
    haystack[from..].windows(needle.len()).position(|w| w == needle).map(|p| p + from)
}

fn multipart(boundary: &str, body: &Bytes) -> Params {
    let mut out = Params::default();
    let delimiter = format!("--{boundary}").into_bytes();
    let mut at = find(body, &delimiter, 0);
    while let Some(start) = at {
        let start = start + delimiter.len();
        let Some(end) = find(body, &delimiter, start) else {
            break;
        };
        part(&body.slice(start..end), &mut out);
        at = Some(end);
    }
    out
}

fn part(raw: &Bytes, out: &mut Params) {
    // Between two delimiters: line end, headers, blank line, content, line end.
    let (split, gap) = match (find(raw, b"\r\n\r\n", 0), find(raw, b"\n\n", 0)) {
        (Some(a), Some(b)) if b < a => (b, 2),
        (Some(a), _) => (a, 4),
        (None, Some(b)) => (b, 2),
        (None, None) => return,
    };
    let head = String::from_utf8_lossy(&raw[..split]).into_owned();
    let mut end = raw.len();
    for line_end in [b"\r\n".as_slice(), b"\n".as_slice()] {
        if raw[split + gap..].ends_with(line_end) {
            end -= line_end.len();
            break;
        }
    }
    let content = raw.slice(split + gap..end.max(split + gap));
    let lower = head.to_lowercase();
    let content = if lower.contains("content-transfer-encoding: base64") {
        Bytes::from(decode_base64(&content).unwrap_or_else(|| content.to_vec()))
    } else {
        content
    };
    let Some(name) = attribute(&head, "name=") else {
        return;
    };
    if lower.contains("filename=") {
        out.files.push(FilePart { name, content });
    } else {
        out.pairs.push((name, String::from_utf8_lossy(&content).into_owned()));
    }
}

fn attribute(head: &str, key: &str) -> Option<String> {
    let mut from = 0;
    loop {
        let at = head[from..].find(key)? + from;
        // `filename=` also ends in `name=`.
        if at > 0 && head.as_bytes()[at - 1].is_ascii_alphabetic() {
            from = at + key.len();
            continue;
        }
        let rest = &head[at + key.len()..];
        return Some(match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().unwrap_or("").to_owned(),
            None => rest.split([';', '\r', '\n']).next().unwrap_or("").trim().to_owned(),
        });
    }
}

/// Base64 with any white space in it; `None` where it is not base64.
pub(crate) fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    use base64::Engine as _;
    let packed: Vec<u8> = text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    base64::engine::general_purpose::STANDARD.decode(packed).ok()
}

pub(crate) fn encode_base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_keep_repeats_and_decode() {
        let p = Params::parse_query("mac_addresses=a%3A1&mac_addresses=b&x=1+2&op=deploy");
        assert_eq!(p.all("mac_addresses").collect::<Vec<_>>(), ["a:1", "b"]);
        assert_eq!(p.get("x"), Some("1 2"));
        assert!(p.string_bool("x", false).is_err());
    }

    #[test]
    fn multipart_keeps_fields_and_files() {
        let body = Bytes::from_static(
            b"--B\r\nContent-Disposition: form-data; name=\"op\"\r\n\r\nallocate\r\n--B\r\nContent-Disposition: form-data; name=\"script\"; filename=\"f\"\r\n\r\n#!/bin/sh\n\r\n--B--\r\n",
        );
        let p = Params::parse_form(Some("multipart/form-data; boundary=B"), &body);
        assert_eq!(p.get("op"), Some("allocate"));
        assert_eq!(p.files[0].name, "script");
        assert_eq!(&p.files[0].content[..], b"#!/bin/sh\n");
    }
}
