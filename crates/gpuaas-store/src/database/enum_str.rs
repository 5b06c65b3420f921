//! Plain enumerations as the strings that are stored.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StoreError;

/// The word that serde writes for a plain enumeration.
pub(crate) fn enum_str<T: Serialize>(value: &T) -> Result<String, StoreError> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => Ok(word),
        Ok(other) => Err(StoreError::corrupt("word", format!("{other} is not a string"))),
        Err(error) => Err(StoreError::corrupt("word", error)),
    }
}

pub(crate) fn enum_from_str<T: DeserializeOwned>(word: &str) -> Result<T, StoreError> {
    serde_json::from_value(serde_json::Value::from(word))
        .map_err(|error| StoreError::corrupt("word", error))
}
