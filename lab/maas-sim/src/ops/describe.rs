//! `describe/`: the document from which python-libmaas builds its client.

use serde_json::{Value, json};

use super::call::{Access, Action, Call, HandlerResult, Resource};
use super::parameters::{PARAMETERS, meaning_of, type_of};
use crate::region::Region;
use crate::tables::{Field, Kind, table_of};
use crate::wire::{JSON_BARE, SimResponse};

/// Parameters of an operation: name, type, and whether it must be given.
fn parameters(resource: &Resource, action: &Action) -> Vec<(String, &'static str, bool)> {
    if let Some((_, names)) = PARAMETERS.iter().find(|(label, _)| *label == action.label) {
        return names
            .split(' ')
            .map(|name| {
                let bare = name.trim_end_matches('!');
                (bare.to_owned(), type_of(bare), bare != name)
            })
            .collect();
    }
    let writes = action.op.is_none() && matches!(action.method, "POST" | "PUT");
    let table = table_of(resource.uri.split('/').next().unwrap_or("")).filter(|_| writes);
    let fields = table.map_or(&[][..], |t| t.fields);
    let required = |field: &Field| field.required && action.method == "POST";
    fields
        .iter()
        .map(|field| {
            let kind = match field.kind {
                Kind::Flag(_) => "Boolean",
                Kind::Number => "Int",
                _ => "String",
            };
            (field.name.to_owned(), kind, required(field))
        })
        .collect()
}

/// The text from which the command line builds its help and its arguments: a title, a blank line,
/// and two lines for each parameter.
fn doc(resource: &Resource, action: &Action) -> String {
    let words = action.op.unwrap_or(action.name).replace('_', " ");
    let what = resource.handler.trim_end_matches("Handler");
    let mut out = format!("{what}: {words}\n\nRun `{words}` on {what}.\n");
    for name in path_parameters(resource) {
        out.push_str(&format!(
            "\n:param {{{name}}}: Required. Part of the path.\n:type {{{name}}}: String\n"
        ));
    }
    for (name, kind, required) in parameters(resource, action) {
        let word = if required { "Required" } else { "Optional" };
        let meaning = meaning_of(&name);
        out.push_str(&format!("\n:param {name}: {word}. {meaning}\n:type {name}: {kind}\n"));
    }
    out
}

fn path_parameters(resource: &Resource) -> Vec<&'static str> {
    let pieces = resource.uri.split('/');
    pieces.filter_map(|p| p.strip_prefix('{').and_then(|p| p.strip_suffix('}'))).collect()
}

fn action(resource: &Resource, action: &Action) -> Value {
    json!({
        "name": action.name,
        "doc": doc(resource, action),
        "op": action.op,
        "restful": action.op.is_none(),
        "method": action.method,
    })
}

fn handler(
    resource: &Resource,
    base: &str,
    name: &str,
    wanted: impl Fn(&Action) -> bool,
) -> Option<Value> {
    let actions: Vec<Value> =
        resource.actions.iter().filter(|a| wanted(a)).map(|a| action(resource, a)).collect();
    let params = path_parameters(resource);
    let title = format!("Manage {}.", name.trim_end_matches("Handler"));
    let path = format!("/MAAS/api/2.0/{}", resource.uri);
    (!actions.is_empty()).then(|| {
        json!({"name": name, "doc": title, "params": params, "path": path, "uri": format!("{base}{path}"),
               "actions": actions})
    })
}

/// Handles `GET describe/`.
pub(super) fn describe(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let base = &region.settings.public_url;
    let resources: Vec<Value> = call
        .resources
        .iter()
        .copied()
        .flatten()
        .map(|resource| {
            let name = resource.handler;
            let open = |a: &Action| a.access == Access::Anonymous;
            json!({
                "name": name,
                "anon": handler(resource, base, &format!("Anon{name}"), open),
                "auth": handler(resource, base, name, |_| true),
            })
        })
        .collect();
    let document = json!({"doc": "MAAS API", "hash": "", "resources": resources});
    Ok(SimResponse::new(200, JSON_BARE, document.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::table::RESOURCES;

    #[test]
    fn parameters_are_of_operations_that_are_served() {
        let served = |label: &str| {
            RESOURCES.iter().copied().flatten().flat_map(|r| r.actions).any(|a| a.label == label)
        };
        let unknown: Vec<&str> =
            PARAMETERS.iter().map(|(label, _)| *label).filter(|label| !served(label)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
