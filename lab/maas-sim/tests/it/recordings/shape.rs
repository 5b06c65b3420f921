//! The shape of JSON: keys and types, not values.

use std::collections::BTreeMap;

use serde_json::Value;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Types seen here other than null.
    kinds: Vec<&'static str>,
    keys: BTreeMap<String, Shape>,
    /// How often an object was seen here, and how often each key in it.
    objects: usize,
    seen: BTreeMap<String, usize>,
    items: Option<Box<Shape>>,
}

/// Objects whose keys are data.
const MAPS: &[&str] = &[
    "owner_data",
    "workload_annotations",
    "params",
    "sets",
    "files",
    "parameters",
    "packages",
    "results_map",
];

pub(crate) fn shape_of(value: &Value) -> Shape {
    let mut out = Shape::default();
    add(&mut out, value, "");
    out
}

fn kind(shape: &mut Shape, word: &'static str) {
    if !shape.kinds.contains(&word) {
        shape.kinds.push(word);
        shape.kinds.sort_unstable();
    }
}

fn add(shape: &mut Shape, value: &Value, name: &str) {
    match value {
        Value::Null => {}
        Value::Bool(_) => kind(shape, "bool"),
        Value::Number(n) => kind(shape, if n.is_f64() { "float" } else { "int" }),
        Value::String(_) => kind(shape, "string"),
        Value::Array(items) => {
            kind(shape, "list");
            for item in items {
                add(shape.items.get_or_insert_default(), item, "");
            }
        }
        Value::Object(map) if MAPS.contains(&name) => {
            kind(shape, "map");
            for item in map.values() {
                add(shape.items.get_or_insert_default(), item, "");
            }
        }
        Value::Object(map) => {
            kind(shape, "object");
            shape.objects += 1;
            for (key, item) in map {
                *shape.seen.entry(key.clone()).or_default() += 1;
                add(shape.keys.entry(key.clone()).or_default(), item, key);
            }
        }
    }
}

/// Differences; `optional` keys may be absent on either side.
pub(crate) fn differences(real: &Shape, sim: &Shape, optional: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    compare(real, sim, optional, "$", &mut out);
    out
}

fn compare(real: &Shape, sim: &Shape, optional: &[&str], at: &str, out: &mut Vec<String>) {
    let both = !real.kinds.is_empty() && !sim.kinds.is_empty();
    if both && !sim.kinds.iter().all(|k| real.kinds.contains(k)) {
        out.push(format!("{at}: {:?} there, {:?} here", real.kinds, sim.kinds));
        return;
    }
    if real.objects > 0 && sim.objects > 0 {
        for (key, shape) in &real.keys {
            match sim.keys.get(key) {
                Some(other) => compare(shape, other, optional, &format!("{at}.{key}"), out),
                // A key that only some of the real objects have is optional by evidence.
                None if real.seen.get(key) == Some(&real.objects)
                    && !optional.contains(&key.as_str()) =>
                {
                    out.push(format!("{at}.{key}: missing here"));
                }
                None => {}
            }
        }
        for key in sim
            .keys
            .keys()
            .filter(|k| !real.keys.contains_key(*k) && !optional.contains(&k.as_str()))
        {
            out.push(format!("{at}.{key}: not there"));
        }
    }
    if let (Some(a), Some(b)) = (&real.items, &sim.items) {
        compare(a, b, optional, &format!("{at}[]"), out);
    }
}

#[test]
fn shapes_see_keys_and_types_and_forgive_null() {
    let a = shape_of(&serde_json::json!({"x": 1, "y": null, "z": [{"k": "a"}]}));
    let b = shape_of(&serde_json::json!({"x": 2, "y": "s", "z": []}));
    assert!(differences(&a, &b, &[]).is_empty());
    let c = shape_of(&serde_json::json!({"x": "1", "z": [{"q": 1}]}));
    assert_eq!(differences(&a, &c, &[]).len(), 4);
}
