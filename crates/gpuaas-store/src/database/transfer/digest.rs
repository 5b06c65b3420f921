//! A digest over rows that does not depend on their order, nor on how a database writes a value.
//!
//! Each row's SHA-256 is added up: the two databases give rows in orders of their own, and sorting
//! would need the whole table. It guards against mistakes, not against somebody who wants one.
//! JSON is compared as a value: PostgreSQL orders its members anew, and writes `1e16` as an integer.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::layout::TransferredTable;
use crate::database::Val;
use crate::error::StoreError;

/// Rows, bytes and digest of a table, added up row by row.
#[derive(Default)]
pub(super) struct TableDigest {
    rows: u64,
    bytes: u64,
    sum: [u64; 4],
}

impl TableDigest {
    /// Adds a row.
    pub(super) fn add(&mut self, row: &[Val]) -> Result<(), StoreError> {
        let mut hash = Sha256::new();
        for value in row {
            let (kind, bytes) = canonical(value)?;
            hash.update([kind]);
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(&bytes);
            self.bytes += bytes.len() as u64;
        }
        let digest: [u8; 32] = hash.finalize().into();
        for (sum, part) in self.sum.iter_mut().zip(digest.chunks_exact(8)) {
            let part = part.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            *sum = sum.wrapping_add(part);
        }
        self.rows += 1;
        Ok(())
    }

    /// What was added up.
    pub(super) fn finish(self, name: &'static str) -> TransferredTable {
        let digest = self.sum.iter().map(|part| format!("{part:016x}")).collect();
        TransferredTable { name, rows: self.rows, bytes: self.bytes, digest }
    }
}

/// The kind of a value, and its bytes in a form that both databases agree on.
fn canonical(value: &Val) -> Result<(u8, Vec<u8>), StoreError> {
    Ok(match value {
        Val::Int(None) | Val::Text(None) | Val::Id(None) | Val::Bytes(None) | Val::Json(None) => {
            (0, Vec::new())
        }
        Val::Int(Some(number)) => (1, number.to_be_bytes().to_vec()),
        Val::Bool(value) => (2, vec![u8::from(*value)]),
        Val::Text(Some(text)) => (3, text.clone().into_bytes()),
        Val::Id(Some(id)) => (4, id.as_bytes().to_vec()),
        Val::Bytes(Some(bytes)) => (5, bytes.clone()),
        Val::Json(Some(json)) => {
            let value = serde_json::from_str(json.get())
                .map_err(|error| StoreError::corrupt("value", error))?;
            let mut text = String::with_capacity(json.get().len());
            write_json(&value, &mut text);
            (6, text.into_bytes())
        }
    })
}

fn write_json(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            text.push('{');
            for (name, value) in members {
                write!(text, "{}:", Value::from(name.as_str())).unwrap_or_default();
                write_json(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_json(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Number(number) => {
            // An f64 as one, so that an integer and its exponent form are the same.
            let float = number.as_f64().unwrap_or_default();
            match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => write!(text, "{whole}"),
                (None, Some(whole)) => write!(text, "{whole}"),
                // Adding zero makes -0 plain.
                (None, None) => write!(text, "{}", float + 0.0),
            }
            .unwrap_or_default();
        }
        scalar => write!(text, "{scalar}").unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn digest(rows: &[Vec<Val>]) -> TransferredTable {
        let mut digest = TableDigest::default();
        rows.iter().for_each(|row| digest.add(row).unwrap());
        digest.finish("t")
    }

    fn json(text: &str) -> Vec<Val> {
        vec![Val::Json(Some(RawValue::from_string(text.to_owned()).unwrap()))]
    }

    #[test]
    fn the_order_of_rows_does_not_count_and_everything_else_does() {
        let (one, other) = (vec![Val::from(1), Val::from("a")], vec![Val::from(2), Val::from("b")]);
        let both = digest(&[one.clone(), other.clone()]);
        assert_eq!(both, digest(&[other.clone(), one.clone()]));
        assert_eq!((both.rows, both.bytes), (2, 18));
        assert_ne!(both.digest, digest(std::slice::from_ref(&one)).digest);
        assert_ne!(both.digest, digest(&[one.clone(), one.clone()]).digest);
        let shifted = vec![Val::from("ab"), Val::from("c")];
        assert_ne!(
            digest(&[shifted]).digest,
            digest(&[vec![Val::from("a"), Val::from("bc")]]).digest
        );
        assert_ne!(digest(&[vec![Val::Text(None)]]).digest, digest(&[vec![Val::from("")]]).digest);
    }

    #[test]
    fn json_is_compared_as_a_value() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, r#"{ "b": [true, null], "a": 1 }"#),
            ("1e16", "10000000000000000"),
            ("-0.0", "0.0"),
            (r#""\u00e9""#, "\"é\""),
        ] {
            assert_eq!(digest(&[json(one)]).digest, digest(&[json(other)]).digest, "{one}");
        }
        for (one, other) in [("1", "2"), (r#"["a","b"]"#, r#"["b","a"]"#), ("1.5", "1.25")] {
            assert_ne!(digest(&[json(one)]).digest, digest(&[json(other)]).digest, "{one}");
        }
    }
}
