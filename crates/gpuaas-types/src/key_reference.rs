//! Where a MAAS API key is kept that is not kept here.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::text::KeyReferenceText;

/// A field of a secret of KV version 2 in a Vault, `vault:MOUNT/PATH#FIELD`. It is no secret itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyReference {
    /// Where the secrets engine is mounted, such as `secret`.
    pub mount: String,
    /// Path of the secret below it, such as `maas/lab`.
    pub path: String,
    /// Field of the secret, such as `api_key`.
    pub field: String,
}

const SCHEME: &str = "vault:";

impl fmt::Display for KeyReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}#{}", self.mount, self.path, self.field)
    }
}

impl FromStr for KeyReference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form =
            || "expected vault:MOUNT/PATH#FIELD, such as vault:secret/maas/lab#api_key".to_owned();
        let rest = text.strip_prefix(SCHEME).ok_or_else(form)?;
        let (path, field) = rest.split_once('#').ok_or_else(form)?;
        let (mount, path) = path.split_once('/').ok_or_else(form)?;
        let fits = is_name(field) && is_name(mount) && path.split('/').all(is_name);
        let known =
            Self { mount: mount.to_owned(), path: path.to_owned(), field: field.to_owned() };
        if fits { Ok(known) } else { Err(form()) }
    }
}

/// Letters, digits, `-`, `_` and `.`, which is not the first: it needs no escape in a URL.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=128).contains(&text.len()) && !text.starts_with('.') && text.chars().all(fits)
}

impl TryFrom<String> for KeyReference {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<KeyReference> for String {
    fn from(reference: KeyReference) -> Self {
        reference.to_string()
    }
}

impl JsonSchema for KeyReference {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        KeyReferenceText::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        KeyReferenceText::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_they_are_written() {
        for text in ["vault:secret/maas/lab#api_key", "vault:kv-2/lab#key.v2"] {
            assert_eq!(text.parse::<KeyReference>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "secret/maas/lab#api_key",
            "vault:secret",
            "vault:secret#a",
            "vault:secret/lab",
            "vault:secret/lab#",
            "vault:secret//lab#a",
            "vault:/lab#a",
            "vault:secret/../x#a",
            "vault:secret/lab#a b",
            "file:/etc/key",
        ] {
            assert!(bad.parse::<KeyReference>().is_err(), "{bad}");
        }
    }
}
