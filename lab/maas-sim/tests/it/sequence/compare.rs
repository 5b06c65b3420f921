//! Whether the simulator's answer is the region's: status, content type, shape, text.

use maas_sim::SimResponse;
use serde_json::{Map, Value};

use super::entry::Answer;

/// Ids of the region and of the simulator that mean the same thing.
pub(crate) type Twins = [(String, String)];

/// How one answer differs: kind, and what it is.
pub(crate) type Difference = (&'static str, String);

/// The recorder's shapes end at this depth.
const DEPTH: usize = 3;

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Names for types, and of a list the first item only, as the recorder wrote shapes.
fn shape(value: &Value, depth: usize) -> Value {
    match value {
        Value::Object(_) if depth >= DEPTH => Value::from("object"),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(k, v)| (k.clone(), shape(v, depth + 1))).collect())
        }
        Value::Array(items) => {
            Value::Array(items.first().map(|v| shape(v, depth + 1)).into_iter().collect())
        }
        other => Value::from(type_name(other)),
    }
}

/// What hardware, and what the stand-ins of a region's hardware, decide: present or not, a number
/// or none, says nothing of MAAS.
const FACTS: &[&str] = &[
    "firmware_version",
    "vendor",
    "product",
    "hardware_uuid",
    "bios_boot_method",
    "numa_node",
    "discovered",
    "primary_rack",
    "secondary_rack",
    "gateway_ip",
    "link_id",
    "id_path",
    "hugepages_set",
    "storage_pool",
    "partition_table_type",
    "last_deployed",
    "label",
];

/// Objects whose keys are data.
const MAPS: &[&str] = &["params", "sets", "files", "parameters", "packages"];

fn no_type(value: &Value) -> bool {
    value == "NoneType" || value == "object"
}

fn shapes_differ(there: &Value, here: &Value, at: &str, out: &mut Vec<String>) {
    let key = at.rsplit('.').next().unwrap_or("").trim_end_matches("[]");
    let fact = FACTS.contains(&key);
    match (there, here) {
        (Value::Object(a), Value::Object(b)) if !MAPS.contains(&key) => maps_differ(a, b, at, out),
        (Value::Object(_), Value::Object(_)) => {}
        (Value::Array(a), Value::Array(b)) => match (a.first(), b.first()) {
            (Some(a), Some(b)) => shapes_differ(a, b, &format!("{at}[]"), out),
            (None, None) => {}
            // Below the top, what a list holds is data.
            _ if at != "$" => {}
            _ => out.push(format!("{at}: empty there {}, here {}", a.is_empty(), b.is_empty())),
        },
        (a, b) if a == b => {}
        (a, b) if fact && (no_type(a) || no_type(b)) => {}
        (Value::String(word), Value::Object(_)) if word == "object" => {}
        (Value::Object(_), Value::String(word)) if word == "object" => {}
        (a, b) => out.push(format!("{at}: {} there, {} here", short(a), short(b))),
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        other => other.as_str().unwrap_or("?").to_owned(),
    }
}

fn maps_differ(
    there: &Map<String, Value>,
    here: &Map<String, Value>,
    at: &str,
    out: &mut Vec<String>,
) {
    for (key, a) in there {
        match here.get(key) {
            Some(b) => shapes_differ(a, b, &format!("{at}.{key}"), out),
            None => out.push(format!("{at}.{key}: missing here")),
        }
    }
    for key in here.keys().filter(|k| !there.contains_key(*k)) {
        out.push(format!("{at}.{key}: not there"));
    }
}

/// Text without what is a region's own: numbers, ids, random words, the names of its images.
pub(crate) fn normal(text: &str, twins: &Twins) -> String {
    let mut text = text.to_owned();
    for (there, here) in twins {
        text = text.replace(there.as_str(), "ID").replace(here.as_str(), "ID");
    }
    let mut out = String::new();
    for word in split_words(&text) {
        let hex = word.len() >= 16 && word.chars().all(|c| c.is_ascii_alphanumeric());
        out.push_str(&if hex { "RANDOM".to_owned() } else { numbers(word) });
    }
    while out.contains("'#', '#'") {
        out = out.replace("'#', '#'", "'#'");
    }
    // What is synced is a region's own.
    out = out.replace(", 'arm#/generic'", "");
    while let Some(at) = out.find("'custom/") {
        let end = out[at + 1..].find("'").map_or(out.len(), |e| at + e + 2);
        let end = if out[end..].starts_with(", ") { end + 2 } else { end };
        out.replace_range(at..end, "");
    }
    sorted_choices(&out)
}

/// Choices are told in no certain order.
fn sorted_choices(text: &str) -> String {
    let Some((before, list)) = text.split_once("It should be one of: ") else {
        return text.to_owned();
    };
    let end = list.rfind('.').unwrap_or(list.len());
    let mut words: Vec<&str> = list[..end].split(", ").collect();
    words.sort_unstable();
    format!("{before}It should be one of: {}{}", words.join(", "), &list[end..])
}

fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).flat_map(|piece| {
        let end = piece
            .char_indices()
            .next_back()
            .map_or(0, |(i, c)| if c.is_ascii_alphanumeric() { piece.len() } else { i });
        [&piece[..end], &piece[end..]]
    })
}

fn numbers(word: &str) -> String {
    let mut out = String::new();
    for c in word.chars() {
        let digit = c.is_ascii_digit();
        if !(digit && out.ends_with('#')) {
            out.push(if digit { '#' } else { c });
        }
    }
    out
}

fn json(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

fn texts_differ(there: &str, here: &str, twins: &Twins) -> Option<Difference> {
    let same = |text: &str| {
        let value = json(text).filter(|v| !v.is_number());
        normal(&value.map_or_else(|| text.trim().to_owned(), |v| v.to_string()), twins)
    };
    let (there, here) = (same(there), same(here));
    (there != here).then(|| ("text", format!("there {there:.600}\n      here  {here:.600}")))
}

/// All differences between the region's answer and the simulator's.
pub(crate) fn differences(there: &Answer, here: &SimResponse, twins: &Twins) -> Vec<Difference> {
    let mut out = Vec::new();
    if there.status != here.status {
        let text = here.body_text();
        out.push(("status", format!("{} there, {} here: {text:.300}", there.status, here.status)));
        return out;
    }
    if there.content_type != here.content_type {
        let found = format!("'{}' there, '{}' here", there.content_type, here.content_type);
        out.push(("type", found));
    }
    let is_json = there.content_type.starts_with("application/json");
    let opaque = there.content_type.contains("bson") || there.content_type.contains("binary");
    let body = here.body_text();
    match &there.body {
        Some(_) if opaque => {}
        Some(text) if there.status >= 400 || !is_json => {
            out.extend(texts_differ(text, &body, twins));
        }
        Some(text) => out.extend(bodies_differ(json(text).as_ref(), json(&body).as_ref())),
        None if is_json && !there.shape.is_null() => {
            let here = json(&body).map(|v| shape(&v, 0)).unwrap_or_default();
            let mut found = Vec::new();
            shapes_differ(&there.shape, &here, "$", &mut found);
            out.extend(found.into_iter().map(|text| ("shape", text)));
        }
        None => {}
    }
    out
}

fn bodies_differ(there: Option<&Value>, here: Option<&Value>) -> Vec<Difference> {
    let (Some(there), Some(here)) = (there, here) else {
        return vec![("shape", "no JSON".to_owned())];
    };
    let mut found = Vec::new();
    match (there, here) {
        (Value::Bool(a), Value::Bool(b)) if a != b => found.push(format!("{a} there, {b} here")),
        // Keyed by ids.
        (Value::Object(a), Value::Object(b)) if a.len() == 1 && b.len() == 1 => {
            let (a, b) = (a.values().next(), b.values().next());
            if let (Some(a), Some(b)) = (a, b) {
                shapes_differ(&shape(a, 0), &shape(b, 0), "$.*", &mut found);
            }
        }
        (a, b) => shapes_differ(&shape(a, 0), &shape(b, 0), "$", &mut found),
    }
    found.into_iter().map(|text| ("shape", text)).collect()
}

#[test]
fn texts_are_compared_without_what_is_a_regions_own() {
    let twins = [("kgmerm".to_owned(), "abc123".to_owned())];
    let same = |a: &str, b: &str| assert_eq!(normal(a, &twins), normal(b, &twins));
    same("node kgmerm is in state New.", "node abc123 is in state New.");
    same("one of: '1', '22', '333'.", "one of: '7'.");
    same("of: '', 'custom/a-b', 'ubuntu/jammy'.", "of: '', 'ubuntu/jammy'.");
    same("used: 070aeb57e69249b3816f9531cad637e4'", "used: 0123456789abcdef'");
    assert_ne!(normal("Failed to power on", &[]), normal("Failed to power off", &[]));
}

#[test]
fn shapes_see_keys_types_and_null() {
    let differ = |a: Value, b: Value| {
        let mut out = Vec::new();
        shapes_differ(&shape(&a, 0), &shape(&b, 0), "$", &mut out);
        out
    };
    use serde_json::json;
    assert!(differ(json!({"a": 1, "b": [1]}), json!({"a": 2, "b": []})).is_empty());
    assert_eq!(differ(json!({"a": 1}), json!({"a": null})), ["$.a: int there, NoneType here"]);
    assert_eq!(differ(json!({"a": 1}), json!({"b": 1})).len(), 2);
    assert_eq!(differ(json!([]), json!([1])).len(), 1);
}
