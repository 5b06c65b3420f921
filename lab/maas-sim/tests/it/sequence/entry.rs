//! One call of a sequence as its file has it.

use serde_json::Value;

/// What the region answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Empty where the answer had none.
    pub(crate) content_type: String,
    /// The whole body, where it was short.
    pub(crate) body: Option<String>,
    /// The first characters of a long one.
    pub(crate) start: String,
    /// The shape of a long one; null where that is not told.
    pub(crate) shape: Value,
}

/// A field of a multipart body.
pub(crate) enum Part {
    Text(String, String),
    File(String, String, Vec<u8>),
}

/// One call, with the region's answer where it was not kept back.
pub(crate) struct Entry {
    /// `PART.NUMBER`: the numbers begin anew with every run of the recorder.
    pub(crate) key: String,
    pub(crate) part: usize,
    pub(crate) method: String,
    /// With `{names}` for what differs between regions.
    pub(crate) path: String,
    /// As the region got it, with its own ids.
    pub(crate) sent_as: String,
    /// The path is one outside the API.
    pub(crate) raw_path: Option<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) form: Option<Vec<(String, String)>>,
    pub(crate) parts: Option<Vec<Part>>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) content_type: Option<String>,
    /// How the caller signs; `None` without credentials.
    pub(crate) auth: Option<String>,
    pub(crate) answer: Option<Answer>,
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn pairs(value: &Value) -> Option<Vec<(String, String)>> {
    Some(value.as_array()?.iter().map(|p| (text(&p[0]), text(&p[1]))).collect())
}

/// Bytes as the recorder printed them: `b'…'` with escapes, or plain text.
fn bytes(printed: &str) -> Vec<u8> {
    let quoted = printed.strip_prefix("b'").or_else(|| printed.strip_prefix("b\""));
    let Some(inside) = quoted else {
        return printed.as_bytes().to_vec();
    };
    let inside = inside.strip_suffix(['\'', '"']).unwrap_or(inside);
    let mut out = Vec::new();
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next() } else { None };
        match escaped {
            Some('n') => out.push(b'\n'),
            Some('r') => out.push(b'\r'),
            Some('t') => out.push(b'\t'),
            Some('x') => {
                let digits: String = chars.by_ref().take(2).collect();
                out.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
            }
            Some(other) => out.extend(other.to_string().bytes()),
            None => out.extend(c.to_string().bytes()),
        }
    }
    out
}

fn part(pair: &Value) -> Part {
    match pair[1].as_array() {
        Some(file) => Part::File(text(&pair[0]), text(&file[0]), bytes(&text(&file[1]))),
        None => Part::Text(text(&pair[0]), text(&pair[1])),
    }
}

fn answer(value: &Value) -> Option<Answer> {
    Some(Answer {
        status: u16::try_from(value.get("status")?.as_u64()?).ok()?,
        content_type: value["content_type"].as_str().unwrap_or("").to_owned(),
        body: value["body"].as_str().filter(|b| !b.starts_with("(withheld")).map(str::to_owned),
        start: value["body_start"].as_str().unwrap_or("").to_owned(),
        shape: value["shape"].clone(),
    })
}

fn entry(all: &Value, part_number: usize) -> Entry {
    Entry {
        key: format!("{part_number}.{}", text(&all["seq"])),
        part: part_number,
        method: text(&all["method"]),
        path: text(&all["path"]),
        sent_as: text(&all["sent_as"]),
        raw_path: all.get("rawpath").map(text),
        query: pairs(&all["query"]).unwrap_or_default(),
        form: pairs(&all["form"]),
        parts: all["multipart"].as_array().map(|list| list.iter().map(part).collect()),
        body: all.get("body").map(|b| bytes(&text(b))),
        content_type: all["ct"].as_str().map(str::to_owned),
        auth: match all.get("auth") {
            None => Some("good".to_owned()),
            Some(mode) => mode.as_str().map(str::to_owned),
        },
        answer: answer(&all["answer"]),
    }
}

/// The calls of a file, in its order; a line that is none is left out.
pub(crate) fn parse(file: &str) -> Vec<Entry> {
    let mut part_number = 0;
    let mut last = String::new();
    let mut out = Vec::new();
    for line in file.lines() {
        let Ok(all) = serde_json::from_str::<Value>(line) else { continue };
        let number = text(&all["seq"]);
        let series = |n: &str| n.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        if number == "1" || series(&number) != series(&last) {
            part_number += 1;
        }
        last.clone_from(&number);
        out.push(entry(&all, part_number));
    }
    out
}

impl Entry {
    /// The region's own text where `path` has a name: `(name, kind of thing, text)`.
    pub(crate) fn named_segments(&self) -> Vec<(String, String, String)> {
        let sent = self.sent_as.split('?').next().unwrap_or("");
        let pattern: Vec<&str> = self.path.split('/').collect();
        let sent: Vec<&str> = sent.split('/').collect();
        if pattern.len() != sent.len() {
            return Vec::new();
        }
        let mut out = Vec::new();
        for (i, (name, value)) in pattern.iter().zip(&sent).enumerate() {
            let name = name.strip_prefix('{').and_then(|n| n.strip_suffix('}'));
            if let (Some(name), false) = (name, value.starts_with('{')) {
                let kind = if i == 0 { "" } else { pattern[i - 1] };
                out.push((name.to_owned(), kind_of(kind).to_owned(), (*value).to_owned()));
            }
        }
        out
    }
}

/// The kind of thing that a collection holds.
pub(crate) fn kind_of(collection: &str) -> &str {
    match collection {
        "machines" | "nodes" => "node",
        other => other.strip_suffix('s').unwrap_or(other),
    }
}
