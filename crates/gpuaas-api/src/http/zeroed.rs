//! Request bodies in memory that is overwritten when it is freed: a body may hold a password or a key.

use axum::body::Bytes;
use serde_json::Value;
use zeroize::{Zeroize as _, Zeroizing};

/// Bytes of a body that is being read.
#[derive(Debug, Default)]
pub(crate) struct ZeroedBytes(Zeroizing<Vec<u8>>);

impl ZeroedBytes {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Zeroizing::new(Vec::with_capacity(bytes)))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends a chunk. What becomes too small is overwritten after its bytes were copied.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let length = self.0.len() + chunk.len();
        if length > self.0.capacity() {
            let mut larger = Vec::with_capacity(length.max(self.0.capacity() * 2));
            larger.extend_from_slice(&self.0);
            self.0 = Zeroizing::new(larger);
        }
        self.0.extend_from_slice(chunk);
    }

    /// The whole body. The last one to drop it overwrites it.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self.0)
    }
}

/// A parsed body; dropping it overwrites its texts.
#[derive(Debug)]
pub(crate) struct ZeroedJson(pub(crate) Value);

impl Drop for ZeroedJson {
    fn drop(&mut self) {
        overwrite(&mut self.0);
    }
}

fn overwrite(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(overwrite),
        Value::Object(fields) => fields.values_mut().for_each(overwrite),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_become_one_body() {
        let mut body = ZeroedBytes::with_capacity(2);
        for chunk in ["ab", "", "cde", "f"] {
            body.push(chunk.as_bytes());
        }
        assert_eq!(body.len(), 6);
        assert_eq!(body.into_bytes(), "abcdef");
    }

    #[test]
    fn texts_at_any_depth_are_overwritten() {
        let mut value = serde_json::json!({ "a": ["hush", { "b": "hush" }], "n": 1 });
        overwrite(&mut value);
        assert_eq!(value, serde_json::json!({ "a": ["", { "b": "" }], "n": 1 }));
    }
}
