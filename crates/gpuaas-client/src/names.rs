//! What `-o name` prints: the name under which other commands take each thing.

use serde_json::Value;

/// Where a thing's name stands, the best first.
const PLACES: [&str; 6] = ["/spec/name", "/status/name", "/name", "/bundle", "/node", "/hostname"];

/// Names of a list, or of one thing, one a line.
pub(crate) fn names(value: &Value) -> String {
    let one = [value.clone()];
    let items = value.get("items").and_then(Value::as_array).map_or(&one[..], Vec::as_slice);
    items.iter().filter_map(name).map(|name| format!("{name}\n")).collect()
}

fn name(item: &Value) -> Option<&str> {
    let id = item.get("id").and_then(Value::as_str);
    // A run, a task and a claim say where they are, too; their own name is the id.
    let is_work = ["kind", "operation", "fence"].iter().any(|field| item.get(field).is_some());
    if let Some(id) = id.filter(|_| is_work) {
        return Some(id);
    }
    PLACES.iter().find_map(|place| item.pointer(place).and_then(Value::as_str)).or(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_testkit::views;
    use serde_json::json;

    #[test]
    fn each_thing_is_named_as_other_commands_take_it() {
        let names = |value: Value| names(&value);
        let run = serde_json::to_value(views::finished_run()).unwrap();
        let id = run["id"].as_str().unwrap().to_owned();
        let node = serde_json::to_value(views::parked_node()).unwrap();
        let hostname = node["hostname"].as_str().unwrap().to_owned();
        assert_eq!(names(json!({ "items": [node, run] })), format!("{hostname}\n{id}\n"));
        assert_eq!(names(serde_json::to_value(views::site()).unwrap()), "lab\n");
        let claim = json!({ "id": "01a1f9af", "node": hostname, "site": "lab", "fence": 2 });
        assert_eq!(names(json!({ "items": [claim] })), "01a1f9af\n");
        assert_eq!(names(json!({ "items": [] })), "");
    }
}
