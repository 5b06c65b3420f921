//! The recordings' form.
//!
//! One file is one case: `request` and `response`, or `exchanges` of these, or `results` (answers
//! to identical requests, cut to `body_head`; the op stands in the note), or something else
//! (websocket frames), which no HTTP client replays. A query or form is an object (values may be
//! lists) or a list of pairs.

use std::path::Path;
use std::time::Duration;

use crate::{Request, Response};
use serde_json::Value;

pub(crate) type Pairs = Vec<(String, String)>;

pub(crate) struct Recording {
    pub(crate) name: String,
    pub(crate) exchanges: Vec<Exchange>,
}

pub(crate) struct Exchange {
    pub(crate) method: String,
    /// Relative to the API root, runs of slashes collapsed; empty where the file does not say.
    pub(crate) path: String,
    pub(crate) op: Option<String>,
    pub(crate) query: Pairs,
    pub(crate) form: Pairs,
    pub(crate) files: Vec<File>,
    /// A body that is neither form nor files, or an op given as a path suffix.
    pub(crate) odd_request: bool,
    pub(crate) answer: RecordedResponse,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct File {
    pub(crate) part: String,
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

pub(crate) struct RecordedResponse {
    pub(crate) response: Response,
    /// The body as JSON, where it is.
    pub(crate) json: Option<Value>,
    /// Only the beginning of the body was kept.
    pub(crate) truncated: bool,
}

impl RecordedResponse {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.response.body).trim().to_owned()
    }
}

/// All recordings of a folder in order of their names.
pub(crate) fn read_folder(folder: &Path) -> impl Iterator<Item = Result<Recording, String>> {
    let entries = std::fs::read_dir(folder).expect("a readable folder");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    files.sort();
    files.into_iter().map(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        Recording::parse(&name, &text)
    })
}

impl Recording {
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let file: Value = serde_json::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        let mut exchanges = Vec::new();
        if let Some(list) = file["exchanges"].as_array() {
            exchanges.extend(list.iter().filter_map(exchange));
        } else if let Some(list) = file["results"].as_array() {
            let op = op_in_note(file["note"].as_str().unwrap_or_default());
            exchanges.extend(list.iter().map(|answer| bare_answer(op.clone(), answer)));
        } else {
            exchanges.extend(exchange(&file));
        }
        Ok(Self { name: name.to_owned(), exchanges })
    }
}

fn exchange(case: &Value) -> Option<Exchange> {
    let request = case.get("request")?;
    let answer = answer(case.get("response")?);
    let full = request["path"].as_str()?;
    let (full, inline) = full.split_once('?').unwrap_or((full, ""));
    let path = full.strip_prefix("/MAAS/api/2.0/").unwrap_or(full);
    let mut path = collapse(path);
    if !full.starts_with("/MAAS/api/2.0/") {
        path = format!("//{path}");
    }
    let mut query = parse_form(inline);
    query.extend(pairs(&request["query"]));
    let form = pairs(&request["form"]);
    let suffix = path.rsplit_once("/op-").map(|(head, op)| (format!("{head}/"), op.to_owned()));
    let named = |pairs: &Pairs| pairs.iter().find(|(key, _)| key == "op").map(|(_, op)| op.clone());
    let mut op = named(&query).or_else(|| named(&form));
    let mut odd_request = request.get("body").is_some();
    if let Some((head, suffix)) = suffix {
        (path, op, odd_request) = (head, op.or(Some(suffix)), true);
    }
    let method = request["method"].as_str()?.to_owned();
    let files = request["files"].as_object().map(files).unwrap_or_default();
    Some(Exchange { method, path, op, query, form, files, odd_request, answer })
}

/// An answer whose request was not kept.
fn bare_answer(op: Option<String>, value: &Value) -> Exchange {
    Exchange {
        method: "POST".to_owned(),
        path: String::new(),
        op,
        query: Pairs::new(),
        form: Pairs::new(),
        files: Vec::new(),
        odd_request: true,
        answer: answer(value),
    }
}

fn op_in_note(note: &str) -> Option<String> {
    let rest = note.split_once("op=").map(|(_, rest)| rest);
    let word = |rest: &str| -> String {
        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    // Without `op=`, a note such as "four identical op requests" still names no op.
    rest.map(word).filter(|op| !op.is_empty())
}

fn answer(value: &Value) -> RecordedResponse {
    let header = |name: &str| -> Option<String> {
        let headers = value["headers"].as_object()?;
        let found = headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| value.as_str()).map(str::to_owned)
    };
    let content_type =
        header("content-type").or_else(|| value["content_type"].as_str().map(str::to_owned));
    let head = value["body_head"].as_str().or(value["body_raw_head"].as_str());
    let (body, json, truncated) = match (value.get("body"), head) {
        (Some(Value::String(text)), _) if value["body_format"] != "json" => {
            (text.clone().into_bytes(), None, false)
        }
        (Some(json), _) if value["body_format"] == "json" || !json.is_null() => {
            (serde_json::to_vec_pretty(json).expect("JSON"), Some(json.clone()), false)
        }
        (_, Some(head)) => (head.as_bytes().to_vec(), None, true),
        _ => (Vec::new(), None, false),
    };
    let response = Response {
        status: u16::try_from(value["status"].as_u64().unwrap_or_default()).unwrap_or_default(),
        content_type,
        retry_after: header("retry-after")
            .and_then(|text| text.parse().ok())
            .map(Duration::from_secs),
        date: header("date"),
        body: body.into(),
    };
    RecordedResponse { response, json, truncated }
}

fn pairs(value: &Value) -> Pairs {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let spread = |key: String, value: &Value| -> Pairs {
        match value {
            Value::Array(many) => many.iter().map(|one| (key.clone(), text(one))).collect(),
            one => vec![(key, text(one))],
        }
    };
    match value {
        Value::Object(map) => {
            map.iter().flat_map(|(key, value)| spread(key.clone(), value)).collect()
        }
        Value::Array(list) => {
            list.iter().flat_map(|pair| spread(text(&pair[0]), &pair[1])).collect()
        }
        _ => Pairs::new(),
    }
}

/// Only the beginning of a file was kept; the rest becomes newlines up to its size.
fn files(map: &serde_json::Map<String, Value>) -> Vec<File> {
    let file = |(part, value): (&String, &Value)| {
        let mut content = value["head"].as_str().unwrap_or_default().as_bytes().to_vec();
        let size = value["size"].as_u64().and_then(|size| usize::try_from(size).ok());
        content.resize(size.unwrap_or(content.len()), b'\n');
        let name = value["filename"].as_str().unwrap_or_default().to_owned();
        File { part: part.clone(), name, content }
    };
    map.iter().map(file).collect()
}

fn collapse(path: &str) -> String {
    let mut out = String::new();
    for c in path.trim_start_matches('/').chars() {
        if c != '/' || !out.ends_with('/') {
            out.push(c);
        }
    }
    out
}

/// Percent-decoding, as the server does it.
pub(crate) fn decode(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match (byte, hex.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(decoded)) => {
                out.push(decoded);
                rest = &tail[2..];
            }
            (b'+', _) => {
                out.push(b' ');
                rest = tail;
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub(crate) fn parse_form(text: &str) -> Pairs {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key), decode(value))
    };
    text.split('&').filter(|pair| !pair.is_empty()).map(pair).collect()
}

pub(crate) struct Parts {
    pub(crate) fields: Pairs,
    pub(crate) files: Vec<File>,
}

/// Takes a multipart body apart, strictly.
pub(crate) fn parse_multipart(request: &Request) -> Result<Parts, String> {
    let content_type = request.header("content-type").unwrap_or_default();
    let boundary =
        content_type.strip_prefix("multipart/form-data; boundary=").ok_or("not multipart")?;
    let body = std::str::from_utf8(&request.body).map_err(|error| error.to_string())?;
    let inner = body
        .strip_prefix(&format!("--{boundary}\r\n"))
        .and_then(|body| body.strip_suffix(&format!("\r\n--{boundary}--\r\n")))
        .ok_or("the multipart frame is broken")?;
    let mut parts = Parts { fields: Pairs::new(), files: Vec::new() };
    for part in inner.split(&format!("\r\n--{boundary}\r\n")) {
        let (head, content) = part.split_once("\r\n\r\n").ok_or("a part without a head")?;
        let quoted = |key: &str| {
            let rest = head.split_once(&format!(" {key}=\""))?.1;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        };
        let part = quoted("name").ok_or("a part without a name")?;
        match quoted("filename") {
            Some(name) => {
                parts.files.push(File { part, name, content: content.as_bytes().to_vec() });
            }
            None => parts.fields.push((part, content.to_owned())),
        }
    }
    Ok(parts)
}
