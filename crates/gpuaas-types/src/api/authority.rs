//! The certificate authority of nodes, and how another one takes its place.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text;
use crate::time::Timestamp;

/// How an authority stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthorityState {
    /// Nodes learn to trust it; it signs nothing yet.
    Staged,
    /// It signs.
    Active,
    /// It signs no more, and what it signed counts.
    Retiring,
    /// What it signed counts no more; its key is deleted.
    Retired,
}

impl AuthorityState {
    /// Its written form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Active => "active",
            Self::Retiring => "retiring",
            Self::Retired => "retired",
        }
    }
}

impl fmt::Display for AuthorityState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AuthorityState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Staged, Self::Active, Self::Retiring, Self::Retired];
        let known = all.into_iter().find(|one| one.as_str() == text);
        known.ok_or_else(|| format!("unknown authority state {text:?}"))
    }
}

/// An authority that this control plane has or had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthorityView {
    /// 1 for the first one, and so on.
    pub generation: i64,
    /// How it stands.
    pub state: AuthorityState,
    /// SHA-256 of its certificate's DER, hexadecimal.
    pub digest: String,
    /// Last moment of its certificate.
    pub not_after: Timestamp,
    /// When it was made.
    pub staged_at: Timestamp,
    /// Since when it signs, or signed.
    pub activated_at: Option<Timestamp>,
    /// Since when it is not trusted.
    pub retired_at: Option<Timestamp>,
}

/// What nodes' certificates come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthorityReport {
    /// The authorities, oldest first.
    pub authorities: Vec<AuthorityView>,
    /// SHA-256 of the bundle of trust anchors that nodes are given; none: they have what their
    /// user-data carried.
    pub trust_digest: Option<String>,
    /// Hostnames of nodes whose agents have not said that they have this bundle.
    pub nodes_without_bundle: Vec<String>,
    /// Hostnames of nodes with a live certificate of an authority that does not sign any more.
    pub nodes_with_former_certificate: Vec<String>,
    /// Hostnames of nodes that may still enroll with user-data of before the next authority was staged:
    /// they would trust the former one alone.
    #[serde(default)]
    pub nodes_to_enroll: Vec<String>,
}

/// Body of `POST /api/v1/authority`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageAuthority {
    /// Reason, recorded in the audit log.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
    /// Who says so; kept in the audit.
    pub actor: String,
}

/// Body of `POST /api/v1/authority/activate` and `/retire`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeAuthority {
    /// Reason, recorded in the audit log.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
    /// Who says so; kept in the audit.
    pub actor: String,
    /// Whether nodes are left behind that it names otherwise.
    #[serde(default)]
    pub force: bool,
}
