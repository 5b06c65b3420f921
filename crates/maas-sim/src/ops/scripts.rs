//! The script endpoints.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::call::{Call, HandlerResult};
use crate::model::SetKind;
use crate::region::Region;
use crate::scripts::{Revision, Script};
use crate::times;
use crate::wire::{SimResponse, encode_base64};

const HARDWARE: &[&str] = &["node", "cpu", "memory", "storage", "network"];
const HARDWARE_LABELS: &[&str] = &["Node", "CPU", "Memory", "Storage", "Network"];
const PARALLEL: &[&str] =
    &["Disabled", "Run along other instances of this script", "Run along any other script."];

fn to_json(script: &Script, with_text: bool) -> Value {
    let history: Vec<Value> = script
        .history
        .iter()
        .map(|r| {
            let mut out =
                json!({"id": r.id, "comment": r.comment, "created": times::rfc2822(r.at_us)});
            if with_text {
                out["data"] = json!(encode_base64(&script.text));
            }
            out
        })
        .collect();
    let label = |list: &[&'static str], i: i64| {
        usize::try_from(i).ok().and_then(|i| list.get(i)).copied().unwrap_or("")
    };
    let packages =
        if script.packages.is_empty() { json!({}) } else { json!({"apt": script.packages}) };
    json!({
        "name": script.name,
        "title": script.title,
        "description": script.description,
        "tags": script.tags,
        "hardware_type": script.hardware,
        "parallel": script.parallel,
        "results": {},
        "parameters": script.parameters,
        "packages": packages,
        "timeout": times::duration(script.timeout_seconds),
        "destructive": script.destructive,
        "default": script.builtin,
        "for_hardware": [],
        "may_reboot": false,
        "recommission": false,
        "apply_configured_networking": false,
        "parallel_name": label(PARALLEL, script.parallel),
        "type": script.kind as i64,
        "hardware_type_name": label(HARDWARE_LABELS, script.hardware),
        "id": script.id,
        "type_name": if script.kind == SetKind::Testing { "Testing script" } else { "Commissioning script" },
        "history": history,
        "resource_uri": format!("/MAAS/api/2.0/scripts/{}", script.name),
    })
}

/// Handles `GET scripts/`.
pub(super) fn list(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let with_text = call.query.django_bool("include_script");
    let kind = call.query.filled("type").map(kind_of).transpose()?;
    let filters: Vec<&str> =
        call.query.filled("filters").map(|t| t.split(',').collect()).unwrap_or_default();
    let fits = |s: &&Script| {
        kind.is_none_or(|k| s.kind == k)
            && (filters.is_empty()
                || filters.iter().any(|f| s.name == *f || s.tags.iter().any(|t| t == f)))
    };
    let rows = region.scripts.list.iter().filter(fits).map(|s| to_json(s, with_text));
    Ok(SimResponse::json(&rows.collect()))
}

fn find<'a>(region: &'a Region, call: &Call<'_>) -> Result<&'a Script, SimResponse> {
    let wanted = call.part(0);
    let found = region
        .scripts
        .named(wanted)
        .or_else(|| region.scripts.list.iter().find(|s| s.id.to_string() == wanted));
    found.ok_or_else(|| SimResponse::not_found("Script"))
}

/// Handles `GET scripts/NAME`.
pub(super) fn read(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    find(region, call)
        .map(|s| SimResponse::json(&to_json(s, call.query.django_bool("include_script"))))
}

/// Handles `op=download`.
pub(super) fn download(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    find(region, call).map(|s| SimResponse::new(200, "application/binary", s.text.clone()))
}

fn kind_of(word: &str) -> Result<SetKind, SimResponse> {
    match word {
        "commissioning" | "0" => Ok(SetKind::Commissioning),
        "testing" | "test" | "2" => Ok(SetKind::Testing),
        // Release scripts exist since 3.5; they are kept and never run here.
        "release" | "3" => Ok(SetKind::Commissioning),
        _ => Err(SimResponse::invalid(
            "script_type",
            "Script type must be commissioning, testing or release",
        )),
    }
}

/// The YAML between the metadata markers, as JSON; empty where there is none.
fn metadata(text: &str) -> Map<String, Value> {
    let inside: String = text
        .lines()
        .skip_while(|l| !l.contains("--- Start MAAS 1.0 script metadata ---"))
        .skip(1)
        .take_while(|l| !l.contains("--- End MAAS 1.0 script metadata ---"))
        .map(|l| {
            format!("{}\n", l.strip_prefix('#').map_or(l, |l| l.strip_prefix(' ').unwrap_or(l)))
        })
        .collect();
    match serde_saphyr::from_str::<Value>(&inside) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
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

/// What the form and the script's own metadata say; the metadata wins.
fn fields(call: &Call<'_>, text: &str) -> Map<String, Value> {
    let mut out = Map::new();
    for (key, value) in call.form.iter() {
        let key = if key == "type" { "script_type" } else { key };
        out.insert(key.to_owned(), Value::from(value));
    }
    out.extend(metadata(text));
    out
}

fn apply(script: &mut Script, fields: &Map<String, Value>) -> Result<(), SimResponse> {
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    if let Some(word) = text("script_type") {
        script.kind = kind_of(word)?;
    }
    if let Some(title) = text("title") {
        title.clone_into(&mut script.title);
    }
    if let Some(description) = text("description") {
        description.clone_into(&mut script.description);
    }
    if let Some(word) = text("hardware_type") {
        script.hardware = HARDWARE.iter().position(|h| *h == word).map_or(0, |i| i as i64);
    }
    if let Some(value) = fields.get("parallel") {
        script.parallel = match value.as_str().unwrap_or("") {
            "any" | "2" => 2,
            "instance" | "1" => 1,
            _ => 0,
        };
    }
    script.timeout_seconds =
        fields.get("timeout").and_then(seconds).unwrap_or(script.timeout_seconds);
    if let Some(tags) = fields.get("tags") {
        script.tags = text_list(tags);
    }
    // Names of hardware types are reserved as tags: MAAS sets its own and drops the others.
    let hardware = usize::try_from(script.hardware)
        .ok()
        .and_then(|i| HARDWARE.get(i))
        .copied()
        .unwrap_or("node");
    script.tags.retain(|t| t != "gpu" && !HARDWARE.contains(&t.as_str()));
    script.tags.push(hardware.to_owned());
    if let Some(Value::Object(parameters)) = fields.get("parameters") {
        script.parameters.clone_from(parameters);
    }
    script.destructive = fields
        .get("destructive")
        .map_or(script.destructive, |v| v.as_bool().unwrap_or_else(|| v.as_str() == Some("true")));
    Ok(())
}

fn content(call: &Call<'_>) -> Option<(Option<String>, Bytes)> {
    if let Some(part) = call.form.files.first() {
        let name = (part.name != "script").then(|| part.name.clone());
        return Some((name, part.content.clone()));
    }
    call.form.filled("script").map(|t| (None, Bytes::from(t.to_owned())))
}

/// Handles `POST scripts/`.
pub(super) fn create(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (part_name, text) =
        content(call).ok_or_else(|| SimResponse::invalid("script", "Must be given a value"))?;
    let source = String::from_utf8_lossy(&text).into_owned();
    if !source.starts_with("#!") {
        return Err(SimResponse::invalid("script", "Must start with shebang."));
    }
    let fields = fields(call, &source);
    let name = fields.get("name").and_then(Value::as_str).map(str::to_owned).or(part_name);
    let name = name.ok_or_else(|| SimResponse::invalid("name", "This field is required."))?;
    if region.scripts.named(&name).is_some() {
        return Err(SimResponse::invalid("name", "Script with this Name already exists."));
    }
    let id = region.scripts.new_id();
    let comment = call.form.filled("comment").map(str::to_owned);
    let mut script = Script {
        id,
        name,
        title: String::new(),
        description: String::new(),
        kind: SetKind::Testing,
        hardware: 0,
        parallel: 0,
        tags: Vec::new(),
        timeout_seconds: 0,
        destructive: false,
        builtin: false,
        parameters: Map::new(),
        packages: Vec::new(),
        text,
        history: vec![Revision { id, comment, at_us: region.now }],
    };
    apply(&mut script, &fields)?;
    let answer = SimResponse::json(&to_json(&script, false));
    region.scripts.list.push(script);
    Ok(answer)
}

/// Handles `PUT scripts/NAME`: a new revision.
pub(super) fn update(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name = find(region, call)?.name.clone();
    let new = content(call).map(|(_, text)| text);
    let source = new.as_ref().map(|t| String::from_utf8_lossy(t).into_owned()).unwrap_or_default();
    let fields = fields(call, &source);
    let (id, now) = (region.scripts.new_id(), region.now);
    let comment = call.form.filled("comment").map(str::to_owned);
    let script = region.scripts.named_mut(&name).ok_or_else(|| SimResponse::not_found("Script"))?;
    apply(script, &fields)?;
    if let Some(text) = new {
        script.text = text;
        script.history.insert(0, Revision { id, comment, at_us: now });
    }
    Ok(SimResponse::json(&to_json(script, false)))
}

/// Handles `DELETE scripts/NAME`.
pub(super) fn delete(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let script = find(region, call)?;
    if script.builtin {
        return Err(SimResponse::text(400, "Unable to delete default script"));
    }
    let name = script.name.clone();
    region.scripts.list.retain(|s| s.name != name);
    Ok(SimResponse::no_content())
}
