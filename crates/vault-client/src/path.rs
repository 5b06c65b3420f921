//! Names of what a Vault holds.

use std::fmt;
use std::str::FromStr;

/// A field of a secret of KV version 2: `MOUNT/PATH#FIELD`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    /// Where the engine is mounted, such as `secret`.
    pub mount: String,
    /// Path of the secret below it, such as `maas/lab`.
    pub path: String,
    /// Field of the secret, such as `api_key`.
    pub field: String,
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}#{}", self.mount, self.path, self.field)
    }
}

impl FromStr for FieldPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "write MOUNT/PATH#FIELD, such as secret/maas/lab#api_key".to_owned();
        let (path, field) = text.split_once('#').ok_or_else(form)?;
        let (mount, path) = path.split_once('/').ok_or_else(form)?;
        if field.is_empty() || !is_segment(mount) || !path.split('/').all(is_segment) {
            return Err(form());
        }
        Ok(Self { mount: mount.to_owned(), path: path.to_owned(), field: field.to_owned() })
    }
}

/// A key of Transit: `MOUNT/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitKey {
    /// Where the engine is mounted, such as `transit`.
    pub mount: String,
    /// Name of the key.
    pub name: String,
}

impl fmt::Display for TransitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.mount, self.name)
    }
}

impl FromStr for TransitKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once('/').filter(|(mount, name)| is_segment(mount) && is_segment(name));
        let (mount, name) = parts.ok_or("write MOUNT/NAME, such as transit/gpuaas")?;
        Ok(Self { mount: mount.to_owned(), name: name.to_owned() })
    }
}

/// Letters, digits and what needs no escape in a URL.
fn is_segment(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text != "." && text != ".." && text.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["secret/maas/lab#api_key", "kv/lab#api key"] {
            assert_eq!(text.parse::<FieldPath>().unwrap().to_string(), text);
        }
        for bad in ["", "secret", "secret/lab", "secret/lab#", "/lab#a", "secret/../x#a", "s/a b#c"]
        {
            assert!(bad.parse::<FieldPath>().is_err(), "{bad}");
        }
        assert_eq!("transit/gpuaas".parse::<TransitKey>().unwrap().to_string(), "transit/gpuaas");
        for bad in ["", "transit", "transit/", "transit/a/b", "transit/.."] {
            assert!(bad.parse::<TransitKey>().is_err(), "{bad}");
        }
    }
}
