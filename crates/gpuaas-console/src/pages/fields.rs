//! Fields of what operators write, as rows: the value, where it comes from, and another value
//! beside it.

use serde::Serialize;
use serde_json::{Map, Value};

/// Characters of a value that a row shows.
const MOST_CHARS: usize = 160;

/// A field of a specification.
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) value: String,
    /// `default`, or who set it.
    pub(crate) origin: &'static str,
    /// The value that it is compared with, if that differs.
    pub(crate) other: Option<String>,
    /// Revision that changed it last, as far as the audit log says.
    pub(crate) changed: String,
}

fn object(spec: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(spec) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// Rows of `spec`, in the order of its fields. What differs from `default` is marked `origin`.
pub(crate) fn rows<S: Serialize>(
    spec: &S,
    default: &S,
    other: Option<&S>,
    origin: &'static str,
) -> Vec<Field> {
    let (spec, default, other) = (object(spec), object(default), other.map(object));
    let mut names: Vec<&String> = spec.keys().collect();
    let others = default.keys().chain(other.iter().flat_map(Map::keys));
    for name in others {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let row = |name: &String| {
        let value = spec.get(name).unwrap_or(&Value::Null);
        let is_set = !is_same(value, default.get(name));
        let other = other.as_ref().map(|other| other.get(name));
        let other = other.filter(|other| !is_same(value, *other));
        Field {
            name: name.clone(),
            value: text(value),
            origin: if is_set { origin } else { "default" },
            other: other.map(|other| text(other.unwrap_or(&Value::Null))),
            changed: String::new(),
        }
    };
    names.into_iter().map(row).collect()
}

/// Whether two values are the same; a field that is left out is the same as an empty one.
fn is_same(value: &Value, other: Option<&Value>) -> bool {
    let other = other.unwrap_or(&Value::Null);
    value == other || (is_empty(value) && is_empty(other))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A value for people.
fn text(value: &Value) -> String {
    if is_empty(value) {
        return "none".to_owned();
    }
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let pair = |(name, value): (&String, &Value)| format!("{name}={}", text(value));
            let pairs = fields.iter().filter(|(_, value)| !is_empty(value)).map(pair);
            pairs.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    let chars = text.chars().count();
    if chars <= MOST_CHARS {
        return text;
    }
    let begin: String = text.chars().take(MOST_CHARS).collect();
    format!("{begin}… ({chars} characters)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_have_an_origin_and_a_difference() {
        let (spec, default) =
            (json!({"a": "x", "b": 2, "c": {"d": "e"}}), json!({"b": 2, "f": []}));
        let other = json!({"a": "y", "b": 2, "c": {"d": "e"}});
        let rows = rows(&spec, &default, Some(&other), "set");
        let seen: Vec<_> = rows
            .iter()
            .map(|row| (&*row.name, &*row.value, row.origin, row.other.as_deref()))
            .collect();
        let expected = [
            ("a", "x", "set", Some("y")),
            ("b", "2", "default", None),
            ("c", "d=e", "set", None),
            ("f", "none", "default", None),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn long_values_are_cut() {
        let text = text(&json!("x".repeat(500)));
        assert!(text.ends_with("… (500 characters)") && text.chars().count() < 190);
    }
}
