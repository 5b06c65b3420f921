//! Written and read again.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Asserts that a value reads back from its JSON as the same value.
pub(crate) fn assert_json_round_trip<T>(value: &T)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let text = serde_json::to_string(value).unwrap_or_default();
    let again: Result<T, String> = serde_json::from_str(&text).map_err(|error| error.to_string());
    assert_eq!(again.as_ref(), Ok(value), "written as {text}");
}
