//! Values to bind to a statement's placeholders.
//!
//! Neither database accepts the same strings: PostgreSQL refuses U+0000 in text and in JSONB.
//! A node's report may hold one, so it is replaced here, on both.

use gpuaas_types::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::error::StoreError;

/// A value to bind.
#[derive(Debug, Clone)]
pub(crate) enum Val {
    Int(Option<i64>),
    Bool(bool),
    Text(Option<String>),
    Id(Option<Uuid>),
    Bytes(Option<Vec<u8>>),
    Json(Option<Box<RawValue>>),
}

impl Val {
    /// `value` as JSON.
    pub(crate) fn json<T: Serialize>(value: &T) -> Result<Self, StoreError> {
        let raw = serde_json::value::to_raw_value(value)
            .map_err(|error| StoreError::corrupt("value to store", error))?;
        Ok(Self::Json(Some(without_nul(raw)?)))
    }

    /// `value` as JSON, or SQL's null.
    pub(crate) fn opt_json<T: Serialize>(value: Option<&T>) -> Result<Self, StoreError> {
        value.map_or(Ok(Self::Json(None)), Self::json)
    }
}

fn without_nul(raw: Box<RawValue>) -> Result<Box<RawValue>, StoreError> {
    if !raw.get().contains("\\u0000") {
        return Ok(raw);
    }
    let mut value: serde_json::Value = serde_json::from_str(raw.get())
        .map_err(|error| StoreError::corrupt("value to store", error))?;
    replace_nul(&mut value);
    serde_json::value::to_raw_value(&value)
        .map_err(|error| StoreError::corrupt("value to store", error))
}

fn replace_nul(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = text.replace('\0', "\u{fffd}"),
        serde_json::Value::Array(items) => items.iter_mut().for_each(replace_nul),
        serde_json::Value::Object(map) => {
            let old = std::mem::take(map);
            for (key, mut item) in old {
                replace_nul(&mut item);
                map.insert(key.replace('\0', "\u{fffd}"), item);
            }
        }
        _ => {}
    }
}

/// The values of one column, from the first row to the last.
#[derive(Debug)]
pub(crate) enum Column {
    Int(Vec<Option<i64>>),
    Bool(Vec<bool>),
    Text(Vec<Option<String>>),
    Id(Vec<Option<Uuid>>),
    Bytes(Vec<Option<Vec<u8>>>),
    Json(Vec<Option<Box<RawValue>>>),
}

impl Column {
    fn with_first(value: Val) -> Self {
        match value {
            Val::Int(v) => Self::Int(vec![v]),
            Val::Bool(v) => Self::Bool(vec![v]),
            Val::Text(v) => Self::Text(vec![v]),
            Val::Id(v) => Self::Id(vec![v]),
            Val::Bytes(v) => Self::Bytes(vec![v]),
            Val::Json(v) => Self::Json(vec![v]),
        }
    }

    fn push(&mut self, value: Val) {
        match (self, value) {
            (Self::Int(all), Val::Int(v)) => all.push(v),
            (Self::Bool(all), Val::Bool(v)) => all.push(v),
            (Self::Text(all), Val::Text(v)) => all.push(v),
            (Self::Id(all), Val::Id(v)) => all.push(v),
            (Self::Bytes(all), Val::Bytes(v)) => all.push(v),
            (Self::Json(all), Val::Json(v)) => all.push(v),
            // The column is then too short, and the database refuses the statement.
            _ => debug_assert!(false, "all values of a column have one type"),
        }
    }
}

/// Rows as columns. Each column has values of one type in all rows.
pub(crate) fn columns_of(rows: Vec<Vec<Val>>) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for row in rows {
        for (at, value) in row.into_iter().enumerate() {
            match columns.get_mut(at) {
                Some(column) => column.push(value),
                None => columns.push(Column::with_first(value)),
            }
        }
    }
    columns
}

macro_rules! val_from {
    ($($from:ty => |$v:ident| $to:expr;)+) => {
        $(
            impl From<$from> for Val {
                fn from($v: $from) -> Self { $to }
            }
        )+
    };
}

val_from! {
    i64 => |v| Self::Int(Some(v));
    Option<i64> => |v| Self::Int(v);
    Timestamp => |v| Self::Int(Some(v.as_micros()));
    Option<Timestamp> => |v| Self::Int(v.map(Timestamp::as_micros));
    bool => |v| Self::Bool(v);
    &str => |v| Self::Text(Some(v.replace('\0', "\u{fffd}")));
    &String => |v| Self::from(v.as_str());
    Option<&str> => |v| v.map_or(Self::Text(None), Self::from);
    Uuid => |v| Self::Id(Some(v));
    Option<Uuid> => |v| Self::Id(v);
    &[u8] => |v| Self::Bytes(Some(v.to_vec()));
    &[u8; 32] => |v| Self::Bytes(Some(v.to_vec()));
    Vec<u8> => |v| Self::Bytes(Some(v));
    Option<Vec<u8>> => |v| Self::Bytes(v);
}

/// `args![a, b]`: values to bind, in order.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$($crate::database::Val::from($value)),*] };
}
pub(crate) use args;
