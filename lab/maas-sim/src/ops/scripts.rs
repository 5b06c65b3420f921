//! The script endpoints.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::accounts::mandatory;
use super::call::{Call, HandlerResult};
use super::script_form::{
    HARDWARE_TYPES, SCRIPT_TYPES, apply, checked_fields, hardware_of, kind_of, own_tag,
};
use crate::model::SetKind;
use crate::region::Region;
use crate::scripts::{Revision, Script};
use crate::times;
use crate::wire::{SimResponse, encode_base64};

const HARDWARE_LABELS: &[&str] = &["Node", "CPU", "Memory", "Storage", "Network", "GPU"];
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
                out["data"] = json!(encode_base64(&r.text));
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
        "results": script.results,
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
        "type_name": format!("{} script", script.kind.label()),
        "history": history,
        "resource_uri": format!("/MAAS/api/2.0/scripts/{}", script.name),
    })
}

/// Handles `GET scripts/`.
pub(super) fn list(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let with_text = call.query.django_bool("include_script");
    let word = |key: &str| call.query.filled(key);
    let kind = word("type").map(|w| kind_of(w).ok_or(SCRIPT_TYPES)).transpose();
    let kind = kind.map_err(|text| SimResponse::text(400, text))?;
    let hardware = word("hardware_type").map(|w| hardware_of(w).ok_or(HARDWARE_TYPES)).transpose();
    let hardware = hardware.map_err(|text| SimResponse::text(400, text))?;
    let filters: Vec<&str> =
        call.query.filled("filters").map(|t| t.split(',').collect()).unwrap_or_default();
    // Those that gather what MAAS itself knows of a machine are not listed.
    let internal = |s: &Script| s.builtin && s.kind == SetKind::Commissioning;
    let fits = |s: &&Script| {
        !internal(s)
            && kind.is_none_or(|k| s.kind == k)
            && hardware.is_none_or(|h| s.hardware == h)
            && (filters.is_empty()
                || filters.iter().any(|f| s.name == *f || s.tags.iter().any(|t| t == f)))
    };
    let mut found: Vec<&Script> = region.scripts.list.iter().filter(fits).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(SimResponse::json(&found.into_iter().map(|s| to_json(s, with_text)).collect()))
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
    let script = find(region, call)?;
    let text = match call.query.filled("revision") {
        None => script.text.clone(),
        Some(number) => script.history[revision(script, number)?].text.clone(),
    };
    Ok(SimResponse::new(200, "application/binary", text))
}

fn content(call: &Call<'_>) -> Option<(Option<String>, Bytes)> {
    if let Some(part) = call.form.files.first() {
        let name = (part.name != "script").then(|| part.name.clone());
        return Some((name, part.content.clone()));
    }
    call.form.get("script").map(|t| (None, Bytes::from(t.to_owned())))
}

/// Handles `POST scripts/`.
pub(super) fn create(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let given = content(call);
    let source = given.as_ref().map(|(_, text)| String::from_utf8_lossy(text).into_owned());
    let named = given.as_ref().and_then(|(name, _)| name.clone());
    let mut fields = match named {
        // A file part by another name names the script.
        Some(name) if !call.form.has("name") => {
            let mut form = call.form.clone();
            form.push("name", &name);
            checked_fields(region, &call.with_form(form), source.as_deref(), None)?
        }
        _ => checked_fields(region, call, source.as_deref(), None)?,
    };
    let name = fields.remove("name").and_then(|n| n.as_str().map(str::to_owned));
    let text = given.map(|(_, text)| text).unwrap_or_default();
    let id = region.scripts.new_id();
    let comment = call.form.filled("comment").map(str::to_owned);
    let revision = Revision { id, comment, at_us: region.now, text: text.clone() };
    let mut script = Script {
        id,
        name: name.unwrap_or_default(),
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
        results: Map::new(),
        packages: Vec::new(),
        text,
        history: vec![revision],
    };
    apply(&mut script, &fields);
    let answer = SimResponse::json(&to_json(&script, false));
    region.scripts.list.push(script);
    Ok(answer)
}

/// Handles `PUT scripts/NAME`: a new revision.
pub(super) fn update(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let script = find(region, call)?;
    let name = script.name.clone();
    let new = content(call).map(|(_, text)| text);
    let source = new.as_ref().map(|t| String::from_utf8_lossy(t).into_owned());
    let fields = checked_fields(region, call, source.as_deref(), Some(script))?;
    let (id, now) = (region.scripts.new_id(), region.now);
    let comment = call.form.filled("comment").map(str::to_owned);
    let script = region.scripts.named_mut(&name).ok_or_else(|| SimResponse::not_found("Script"))?;
    apply(script, &fields);
    if let Some(new) = fields.get("name").and_then(Value::as_str).filter(|n| !n.is_empty()) {
        new.clone_into(&mut script.name);
    }
    if let Some(text) = new {
        script.history.insert(0, Revision { id, comment, at_us: now, text: text.clone() });
        script.text = text;
    }
    Ok(SimResponse::json(&to_json(script, false)))
}

fn edit(region: &mut Region, call: &Call<'_>, change: impl FnOnce(&mut Script)) -> HandlerResult {
    let name = find(region, call)?.name.clone();
    let script = region.scripts.named_mut(&name).ok_or_else(|| SimResponse::not_found("Script"))?;
    change(script);
    Ok(SimResponse::json(&to_json(script, false)))
}

/// Handles `op=add_tag`.
pub(super) fn add_tag(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let tag = mandatory(call, "tag")?.to_owned();
    edit(region, call, |script| {
        script.tags.retain(|t| *t != tag);
        script.tags.push(tag);
        own_tag(script);
    })
}

/// Handles `op=remove_tag`.
pub(super) fn remove_tag(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let tag = mandatory(call, "tag")?.to_owned();
    edit(region, call, |script| script.tags.retain(|t| *t != tag))
}

/// Place of a revision by its id, or by how many there are after it.
fn revision(script: &Script, text: &str) -> Result<usize, SimResponse> {
    let number: i64 = text.parse().map_err(|_| {
        SimResponse::text(400, format!("Invalid revision: {text} is no whole number"))
    })?;
    let found = if number <= 0 {
        usize::try_from(-number).ok().filter(|i| *i < script.history.len())
    } else {
        script.history.iter().position(|r| r.id == number)
    };
    found.ok_or_else(|| SimResponse::text(400, format!("{text} not found in history")))
}

/// Handles `op=revert`: newer revisions are gone.
pub(super) fn revert(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let index = revision(find(region, call)?, mandatory(call, "to")?)?;
    edit(region, call, |script| {
        script.history.drain(..index);
        if let Some(kept) = script.history.first() {
            script.text = kept.text.clone();
        }
    })
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
