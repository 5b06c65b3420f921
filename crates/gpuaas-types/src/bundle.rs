//! Bundles in the admin API: publishing them, approving them, trusting their signers.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SecretText;
use crate::text;
use crate::time::Timestamp;

/// Body of `POST /api/v1/bundles`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BundlePublish {
    /// The archive, in base64.
    #[schemars(with = "text::Base64Text")]
    pub archive: String,
    /// Its signature, a DSSE envelope; none: the control plane vouches for it, because who
    /// publishes it is an administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<serde_json::Value>,
    /// Who publishes it; kept in the history.
    pub actor: String,
}

/// A bundle that the control plane has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BundleView {
    /// The bundle, as `name@version`.
    pub bundle: String,
    /// SHA-256 of the archive.
    pub digest: String,
    /// Length of the archive in bytes.
    pub size_bytes: u64,
    /// `site_bootstrap`, `commissioning`, `post_deploy_validation` or `node_agent`.
    pub kind: String,
    /// What it is for, one line.
    pub about: String,
    /// What it requires, `name@version` each.
    pub requires: Vec<String>,
    /// Whether it came with the control plane.
    pub built_in: bool,
    /// Who vouches for it; none: nobody who is trusted now.
    pub signed_by: Option<String>,
    /// Who published it.
    pub published_by: String,
    /// When it was published.
    pub published_at: Timestamp,
    /// Sites at which it may be used; what came with the control plane may be used at all.
    pub approved_for: Vec<String>,
}

/// Answer to `GET /api/v1/bundles/BUNDLE/archive`: a bundle as it was published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BundleArchive {
    /// What the control plane says of it.
    pub bundle: BundleView,
    /// The archive, base64.
    pub archive: String,
    /// Its signature.
    pub envelope: serde_json::Value,
}

/// Body of `POST /api/v1/bundles/BUNDLE/approve` and `.../withdraw`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BundleApprove {
    /// The site.
    pub site: String,
    /// Who says so; kept in the history.
    pub actor: String,
    /// Reason, recorded in the history.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// A key whose signatures count: an item of `GET /api/v1/bundle-keys`, and the body of the `POST`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BundleKeyView {
    /// Who holds the key.
    #[schemars(with = "text::WordsText")]
    pub name: String,
    /// The key: 32 bytes in base64.
    #[schemars(with = "text::PublicKeyText")]
    pub key: String,
    /// From when on it does not count any more; none: it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Body of `PUT /api/v1/sites/SITE/secrets/BUNDLE/INPUT`, and of a profile's.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputSecretSet {
    /// The value; sealed at once, never shown again.
    #[schemars(with = "String")]
    pub value: SecretText,
    /// Who sets it; kept in the history.
    pub actor: String,
}

impl fmt::Debug for InputSecretSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputSecretSet").field("actor", &self.actor).finish_non_exhaustive()
    }
}

/// That a secret input of a bundle has a value for a site or a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputSecretView {
    /// The bundle's name, whatever its version.
    pub bundle: String,
    /// The input.
    pub input: String,
    /// Who set it.
    pub set_by: String,
    /// When it was set.
    pub set_at: Timestamp,
}
