//! A secret in a request or a response, in memory that is overwritten when it is freed.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroize as _;

/// A text that is neither printed nor left behind in memory. On the wire it is a string; a field says so
/// to `schemars`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// The secret itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

impl Drop for SecretText {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_a_string_on_the_wire_and_hidden_in_output() {
        let secret: SecretText = serde_json::from_str("\"hush\"").unwrap();
        assert_eq!((secret.expose(), secret.is_empty()), ("hush", false));
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"hush\"");
        assert_eq!(format!("{secret:?}"), "SecretText(..)");
    }
}
