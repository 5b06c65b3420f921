//! Tags and the machines that have them.

use serde_json::json;

use super::call::{Call, HandlerResult};
use crate::region::Region;
use crate::settings::Tag;
use crate::wire::{Params, SimResponse};

/// Handles `GET tags/`.
pub(super) fn tags(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::json(&region.settings.tags.iter().map(Tag::json).collect()))
}

fn tag_index(region: &Region, name: &str) -> Result<usize, SimResponse> {
    region
        .settings
        .tags
        .iter()
        .position(|t| t.name == name)
        .ok_or_else(|| SimResponse::not_found("Tag"))
}

/// Handles `POST tags/`.
pub(super) fn create_tag(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name = call
        .form
        .filled("name")
        .ok_or_else(|| SimResponse::invalid("name", "This field is required."))?;
    check_tag(call)?;
    if tag_index(region, name).is_ok() {
        return Err(SimResponse::invalid("name", "Tag with this Name already exists."));
    }
    region.settings.ensure_tag(name);
    set_tag_fields(region, name, &call.form);
    tag_named(region, name)
}

/// What the form of a tag refuses.
fn check_tag(call: &Call<'_>) -> Result<(), SimResponse> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if call.form.filled("name").is_some_and(|name| !name.chars().all(word)) {
        return Err(SimResponse::invalid("name", "Enter a valid value."));
    }
    if call.form.filled("definition").is_some_and(|text| !is_xpath(text)) {
        let text = "Invalid xpath expression: Invalid expression";
        return Err(SimResponse::invalid("definition", text));
    }
    Ok(())
}

/// Whether brackets and quotes of an XPath expression close, and it does not end in a step.
fn is_xpath(text: &str) -> bool {
    let mut open = Vec::new();
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(q), _) => quote = if c == q { None } else { Some(q) },
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '(') => open.push(c),
            (None, ']') if open.pop() != Some('[') => return false,
            (None, ')') if open.pop() != Some('(') => return false,
            _ => {}
        }
    }
    open.is_empty() && quote.is_none() && !text.trim_end().ends_with('/')
}

fn set_tag_fields(region: &mut Region, name: &str, form: &Params) {
    if let Some(tag) = region.settings.tag(name) {
        for (field, slot) in [
            ("comment", &mut tag.comment),
            ("definition", &mut tag.definition),
            ("kernel_opts", &mut tag.kernel_opts),
        ] {
            if let Some(value) = form.get(field) {
                value.clone_into(slot);
            }
        }
    }
}

fn tag_named(region: &Region, name: &str) -> HandlerResult {
    tag_index(region, name).map(|i| SimResponse::json(&region.settings.tags[i].json()))
}

/// Handles `GET tags/NAME/`.
pub(super) fn tag(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    tag_named(region, call.part(0))
}

/// Handles `PUT tags/NAME/`.
pub(super) fn update_tag(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name = call.part(0);
    let index = tag_index(region, name)?;
    check_tag(call)?;
    set_tag_fields(region, name, &call.form);
    let new = call.form.filled("name").unwrap_or(name).to_owned();
    if new != name {
        region.settings.tags[index].name.clone_from(&new);
        for m in region.machines.values_mut() {
            m.tags.iter_mut().filter(|t| *t == name).for_each(|t| t.clone_from(&new));
        }
        region.invalidate_bodies();
    }
    tag_named(region, &new)
}

/// Handles `DELETE tags/NAME/`.
pub(super) fn delete_tag(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let index = tag_index(region, call.part(0))?;
    region.settings.tags.remove(index);
    for m in region.machines.values_mut() {
        m.tags.retain(|t| t != call.part(0));
    }
    region.invalidate_bodies();
    Ok(SimResponse::no_content())
}

/// Handles `tags/NAME/?op=machines`.
pub(super) fn tag_machines(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    tag_index(region, call.part(0))?;
    let tagged = region.machines.values().filter(|m| m.tags.iter().any(|t| t == call.part(0)));
    let keys: Vec<u32> = tagged.map(|m| m.key).collect();
    Ok(region.machine_list_response(&keys))
}

/// Handles the lists of devices and controllers with a tag: none has any.
pub(super) fn tag_others(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    tag_index(region, call.part(0))?;
    Ok(SimResponse::json(&json!([])))
}

/// Handles `tags/NAME/ op=rebuild`.
pub(super) fn rebuild_tag(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    tag_index(region, call.part(0))?;
    Ok(SimResponse::json(&json!({"rebuilding": call.part(0)})))
}

/// `tags/NAME/ op=update_nodes`: counts the known ids given, not the changes.
pub(super) fn tag_nodes(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name = call.part(0).to_owned();
    tag_index(region, &name)?;
    if !call.admin {
        return Err(SimResponse::forbidden());
    }
    let keys = |field: &str| -> Vec<u32> {
        call.form.all(field).filter_map(|id| region.key_of(id)).collect()
    };
    let (add, remove) = (keys("add"), keys("remove"));
    for key in &add {
        region.edit(*key, |m| {
            if !m.tags.contains(&name) {
                m.tags.push(name.clone());
            }
        });
    }
    for key in &remove {
        region.edit(*key, |m| m.tags.retain(|t| *t != name));
    }
    Ok(SimResponse::json(&json!({"added": add.len(), "removed": remove.len()})))
}
