//! An answer as text, whole or in pieces.

use gpuaas_types::codes::CommandCode;
use serde::Serialize;
use serde_json::Value;

use crate::arguments::Format;
use crate::failure::Failure;
use crate::names::names;
use crate::terminal::Style;
use crate::wrap::wrap_lines;

fn unwritable(error: &impl ToString) -> Failure {
    Failure::local(CommandCode::AnswerUnprintable, error.to_string())
}

fn json<T: Serialize>(value: &T) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| unwritable(&error))
}

/// `value` in `format`; `table` draws it for people, within the terminal's width where it has one.
///
/// # Errors
/// `answer_unprintable`.
pub fn text<T: Serialize>(
    style: Style,
    format: Format,
    value: &T,
    table: impl FnOnce(&T, Style) -> String,
) -> Result<String, Failure> {
    match format {
        Format::Table if style.bounded => Ok(wrap_lines(&table(value, style), style.width)),
        Format::Table | Format::Wide => Ok(table(value, style.unbounded())),
        Format::Name => Ok(names(&json(value)?)),
        Format::Json => serde_json::to_string_pretty(value).map_err(|error| unwritable(&error)),
        Format::Yaml => serde_saphyr::to_string(value).map_err(|error| unwritable(&error)),
    }
}

/// The same in pieces that are written one after the other: lines for people, items for programs, one
/// line of JSON or one document of YAML each.
///
/// # Errors
/// `answer_unprintable`.
pub fn pieces<T: Serialize>(
    style: Style,
    format: Format,
    value: &T,
    table: impl FnOnce(&T, Style) -> String,
) -> Result<Vec<String>, Failure> {
    match format {
        Format::Table | Format::Wide | Format::Name => {
            let text = text(style.unbounded(), format, value, table)?;
            Ok(text.lines().map(str::to_owned).collect())
        }
        Format::Json => items(json(value)?)
            .iter()
            .map(|item| serde_json::to_string(item).map_err(|error| unwritable(&error)))
            .collect(),
        Format::Yaml => items(json(value)?)
            .iter()
            .map(|item| serde_saphyr::to_string(item).map(|text| format!("---\n{text}")))
            .map(|text| text.map_err(|error| unwritable(&error)))
            .collect(),
    }
}

/// The items of a list; anything else is one.
fn items(mut value: Value) -> Vec<Value> {
    for name in ["items", "slots"] {
        // A claim has slots as well, and is one thing.
        let is_list = value.get("id").is_none();
        if let Some(Value::Array(items)) = value.get_mut(name).filter(|_| is_list) {
            return std::mem::take(items);
        }
    }
    vec![value]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_come_apart_and_one_thing_does_not() {
        let pieces = |format, value: &Value| {
            pieces(Style::default(), format, value, |value, _| format!("{value}\n\n")).unwrap()
        };
        let list = json!({ "items": [{ "name": "a" }, { "name": "b" }] });
        assert_eq!(pieces(Format::Json, &list), [r#"{"name":"a"}"#, r#"{"name":"b"}"#]);
        assert_eq!(pieces(Format::Yaml, &list)[1], "---\nname: b\n");
        assert_eq!(pieces(Format::Name, &list), ["a", "b"]);
        assert_eq!(pieces(Format::Table, &list).len(), 2);
        let claim = json!({ "id": "c", "slots": [1, 2] });
        assert_eq!(pieces(Format::Json, &claim), [claim.to_string()]);
        assert_eq!(pieces(Format::Json, &json!({ "slots": [1, 2] })), ["1", "2"]);
    }
}
