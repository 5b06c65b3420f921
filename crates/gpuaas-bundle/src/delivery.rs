//! The delivery of a site's bundle to a node: URLs, signatures, and values of inputs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::input::Inputs;
use crate::signature::{Envelope, TrustedKey};

/// A file that a node fetches by digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// Name, `[a-z0-9-]`.
    pub name: String,
    /// Version, `[0-9A-Za-z.+-]`.
    pub version: String,
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// Length in bytes.
    pub size_bytes: u64,
    /// URL: absolute, or a path below the control plane's URL.
    pub url: String,
}

impl Artifact {
    /// The bundle's reference, `name@version`.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// A bundle's archive and its signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedBundle {
    /// The archive, by digest.
    pub artifact: Artifact,
    /// The signed statement about it.
    pub envelope: Envelope,
}

/// Everything that the launcher needs for the bundle of a site.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    /// Required bundles first; the last one is the site's bundle.
    pub bundles: Vec<SignedBundle>,
    /// Values that the profile and the site set for the last one.
    #[serde(default)]
    pub inputs: Inputs,
    /// Values of those inputs of the last one that must never be shown.
    #[serde(default, skip_serializing_if = "Inputs::is_empty")]
    pub secrets: Inputs,
    /// Keys whose signatures are trusted.
    pub trusted_keys: Vec<TrustedKey>,
}

impl Delivery {
    /// All values for the last bundle, secret ones included.
    #[must_use]
    pub fn values(&self) -> Inputs {
        let mut values = self.inputs.clone();
        values.extend(self.secrets.clone());
        values
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("bundles", &self.bundles)
            .field("inputs", &self.inputs)
            .field("secrets", &self.secrets.keys())
            .field("trusted_keys", &self.trusted_keys)
            .finish()
    }
}
