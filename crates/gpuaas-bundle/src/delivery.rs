//! What a node is told of its site's bundle: where the bytes are, who vouches for them, and with
//! which values they run.

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
    /// Where to fetch it: absolute, or a path below the control plane's URL.
    pub url: String,
}

impl Artifact {
    /// `name@version`.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// A bundle's archive, and who vouches for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedBundle {
    /// The archive.
    pub artifact: Artifact,
    /// The signature.
    pub envelope: Envelope,
}

/// Everything that the launcher needs for the bundle of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    /// What is required first; the last one is the bundle that runs.
    pub bundles: Vec<SignedBundle>,
    /// Values that the profile and the site set for the last one.
    #[serde(default)]
    pub inputs: Inputs,
    /// Keys whose signatures count.
    pub trusted_keys: Vec<TrustedKey>,
}
