//! The form of a script: what it says itself, what the caller says, and what MAAS refuses of both.

use serde_json::{Map, Value, json};

use super::call::Call;
use crate::model::SetKind;
use crate::region::Region;
use crate::scripts::Script;
use crate::wire::SimResponse;

const HARDWARE: &[&str] = &["node", "cpu", "memory", "storage", "network", "gpu"];
/// What the refusal of another hardware type says.
pub(super) const HARDWARE_TYPES: &str = "Hardware type must be node, cpu, memory, storage, or gpu";
/// What the refusal of another script type says.
pub(super) const SCRIPT_TYPES: &str = "Script type must be commissioning, testing or release";
/// Fields that a script that comes with MAAS keeps.
const FIXED: &[&str] = &[
    "name",
    "title",
    "description",
    "script_type",
    "hardware_type",
    "parallel",
    "packages",
    "destructive",
    "script",
    "for_hardware",
    "may_reboot",
    "recommission",
];

/// A script's kind by the word for it.
pub(super) fn kind_of(word: &str) -> Option<SetKind> {
    match word {
        "commissioning" | "0" => Some(SetKind::Commissioning),
        "testing" | "test" | "2" => Some(SetKind::Testing),
        "release" | "3" => Some(SetKind::Release),
        _ => None,
    }
}

/// Number of a hardware type by its word or number.
pub(super) fn hardware_of(word: &str) -> Option<i64> {
    let by_name = HARDWARE.iter().position(|h| *h == word).map(|i| i as i64);
    by_name.or_else(|| word.parse().ok().filter(|n| (0..HARDWARE.len() as i64).contains(n)))
}

fn parallel_of(word: &str) -> Option<i64> {
    match word {
        "disabled" | "none" | "0" => Some(0),
        "instance" | "name" | "1" => Some(1),
        "any" | "enabled" | "2" => Some(2),
        _ => None,
    }
}

/// The YAML between the metadata markers, as JSON; empty where there is none.
fn metadata(text: &str) -> Result<Map<String, Value>, String> {
    let inside: String = text
        .lines()
        .skip_while(|l| !l.contains("--- Start MAAS 1.0 script metadata ---"))
        .skip(1)
        .take_while(|l| !l.contains("--- End MAAS 1.0 script metadata ---"))
        .map(|l| {
            format!("{}\n", l.strip_prefix('#').map_or(l, |l| l.strip_prefix(' ').unwrap_or(l)))
        })
        .collect();
    if inside.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_saphyr::from_str::<Value>(&inside) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Ok(Map::new()),
        Err(error) => Err(format!("Invalid YAML: {error}")),
    }
}

/// `0:10:00`, or seconds.
fn seconds(value: &Value) -> Option<i64> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.split(':').try_fold(0, |all, piece| piece.parse::<i64>().ok().map(|n| all * 60 + n))
}

/// Texts of a list, whether JSON or comma-separated.
fn text_list(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Value::String(text) => {
            text.split(',').map(|t| t.trim().to_owned()).filter(|t| !t.is_empty()).collect()
        }
        _ => Vec::new(),
    }
}

/// The form's fields with those of the script's own metadata: where both name one they must agree,
/// but for tags and the timeout, which are the caller's.
fn merged(
    call: &Call<'_>,
    own: Map<String, Value>,
    existing: bool,
    errors: &mut Vec<(String, String)>,
) -> Map<String, Value> {
    let mut out = Map::new();
    for (key, value) in call.form.iter().filter(|(k, _)| *k != "op") {
        let key = if key == "type" { "script_type" } else { key };
        out.insert(key.to_owned(), Value::from(value));
    }
    for (key, value) in own {
        let callers = matches!(key.as_str(), "tags" | "timeout");
        if callers && (existing || out.contains_key(&key)) {
            continue;
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let same = out.get(&key).and_then(Value::as_str).is_none_or(|sent| {
            sent == text || key == "script_type" && kind_of(sent) == kind_of(&text)
        });
        if !same && FIXED.contains(&key.as_str()) {
            let text = "May not override values defined in embedded YAML.";
            errors.push((key.clone(), text.to_owned()));
        }
        out.insert(key, value);
    }
    out
}

/// What is wrong with a name for a new script.
fn name_error(region: &Region, name: &str, existing: Option<&Script>) -> Option<String> {
    if name.eq_ignore_ascii_case("none") {
        return Some("\"none\" is a reserved name.".to_owned());
    }
    if !name.is_empty() && name.chars().all(|c| c.is_ascii_digit()) {
        return Some("Cannot be a number.".to_owned());
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.~".contains(c)) {
        return Some(format!(
            "Name '{name}' contains disallowed characters, e.g. space or quotes."
        ));
    }
    let other = region.scripts.named(name).is_some_and(|s| existing.is_none_or(|e| e.id != s.id));
    other.then(|| "Script with this Name already exists.".to_owned())
}

fn refused(errors: Vec<(String, String)>) -> SimResponse {
    let mut map = Map::new();
    for (field, text) in errors {
        map.entry(field).or_insert_with(|| json!([text]));
    }
    SimResponse::new(400, crate::wire::JSON, Value::Object(map).to_string())
}

/// The fields of a new script, or of `existing`, whose text is `source`.
///
/// # Errors
/// All that the form refuses, together.
pub(super) fn checked_fields(
    region: &Region,
    call: &Call<'_>,
    source: Option<&str>,
    existing: Option<&Script>,
) -> Result<Map<String, Value>, SimResponse> {
    if let Some(text) = call.form.filled("packages")
        && serde_json::from_str::<Value>(text).is_err()
    {
        // Not looked at before it is used.
        let text = if text.starts_with('{') {
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
        } else {
            "Expecting value: line 1 column 1 (char 0)"
        };
        return Err(SimResponse::text(500, text));
    }
    let mut errors: Vec<(String, String)> = Vec::new();
    let mut own = Map::new();
    match source {
        Some(text) => {
            if !text.is_empty() && !text.starts_with("#!/") {
                errors.push(("script".to_owned(), "Must start with shebang.".to_owned()));
            }
            match metadata(text) {
                Ok(map) => own = map,
                Err(text) => errors.push(("script".to_owned(), text)),
            }
        }
        None if existing.is_none() => {
            errors.push(("script".to_owned(), "Must be given a value".to_owned()));
        }
        None => {}
    }
    let fields = merged(call, own, existing.is_some(), &mut errors);
    let text = |key: &str| fields.get(key).and_then(Value::as_str).filter(|t| !t.is_empty());
    match text("name") {
        Some(name) => {
            errors.extend(name_error(region, name, existing).map(|e| ("name".to_owned(), e)));
        }
        None if existing.is_none() => {
            errors.push(("name".to_owned(), "This field is required.".to_owned()));
        }
        None => {}
    }
    let words: &[(&str, bool, &str)] = &[
        ("script_type", text("script_type").is_none_or(|w| kind_of(w).is_some()), SCRIPT_TYPES),
        (
            "hardware_type",
            text("hardware_type").is_none_or(|w| hardware_of(w).is_some()),
            HARDWARE_TYPES,
        ),
        (
            "parallel",
            text("parallel").is_none_or(|w| parallel_of(w).is_some()),
            "Script parallel must be disabled, instance, or any.",
        ),
        (
            "timeout",
            fields.get("timeout").is_none_or(|t| seconds(t).is_some()),
            "Enter a valid duration.",
        ),
    ];
    for (field, _, message) in words.iter().filter(|(_, fine, _)| !fine) {
        errors.push(((*field).to_owned(), (*message).to_owned()));
    }
    if existing.is_some_and(|s| s.builtin) && errors.is_empty() {
        let sent = |f: &&&str| call.form.has(f) || (**f == "script" && source.is_some());
        let kept = FIXED.iter().filter(sent);
        let text = || "Not allowed to change on default scripts.".to_owned();
        errors.extend(kept.map(|f| ((*f).to_owned(), text())));
    }
    if errors.is_empty() { Ok(fields) } else { Err(refused(errors)) }
}

/// Writes checked fields into a script.
pub(super) fn apply(script: &mut Script, fields: &Map<String, Value>) {
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    if let Some(kind) = text("script_type").and_then(kind_of) {
        script.kind = kind;
    }
    for (key, slot) in [("title", &mut script.title), ("description", &mut script.description)] {
        if let Some(value) = text(key) {
            value.clone_into(slot);
        }
    }
    if let Some(hardware) = text("hardware_type").and_then(hardware_of) {
        script.hardware = hardware;
    }
    if let Some(value) = fields.get("parallel") {
        let word = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        script.parallel = parallel_of(&word).unwrap_or(script.parallel);
    }
    script.timeout_seconds =
        fields.get("timeout").and_then(seconds).unwrap_or(script.timeout_seconds);
    if let Some(tags) = fields.get("tags") {
        script.tags = text_list(tags);
    }
    own_tag(script);
    if let Some(Value::Object(parameters)) = fields.get("parameters") {
        script.parameters.clone_from(parameters);
    }
    if let Some(Value::Object(results)) = fields.get("results") {
        script.results.clone_from(results);
    }
    let packages = match fields.get("packages") {
        Some(Value::String(json)) => serde_json::from_str(json).ok(),
        other => other.cloned(),
    };
    if let Some(apt) = packages.as_ref().and_then(|p| p.get("apt")) {
        script.packages = text_list(apt);
    }
    script.destructive = fields
        .get("destructive")
        .map_or(script.destructive, |v| v.as_bool().unwrap_or_else(|| v.as_str() == Some("true")));
}

/// Names of hardware types are reserved as tags: MAAS sets its own and drops the others.
pub(super) fn own_tag(script: &mut Script) {
    let index = usize::try_from(script.hardware).ok();
    let hardware = index.and_then(|i| HARDWARE.get(i)).copied().unwrap_or("node");
    script.tags.retain(|t| !HARDWARE.contains(&t.as_str()));
    script.tags.push(hardware.to_owned());
}
