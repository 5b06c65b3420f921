//! `describe/`: the document from which python-libmaas builds its client.

use serde_json::{Value, json};

use super::call::{Access, Action, Call, HandlerResult, Resource};
use crate::region::Region;
use crate::wire::{JSON_BARE, SimResponse};

fn action(action: &Action) -> Value {
    json!({
        "name": action.name,
        "doc": "",
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
    let actions: Vec<Value> = resource.actions.iter().filter(|a| wanted(a)).map(action).collect();
    let params: Vec<&str> = resource
        .uri
        .split('/')
        .filter_map(|p| p.strip_prefix('{').and_then(|p| p.strip_suffix('}')))
        .collect();
    let path = format!("/MAAS/api/2.0/{}", resource.uri);
    (!actions.is_empty()).then(|| {
        json!({"name": name, "doc": "", "params": params, "path": path, "uri": format!("{base}{path}"),
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
