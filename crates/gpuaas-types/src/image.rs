//! Host images of a site: how far each has come, who said so, and what refers to it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::string_enum::string_enum;
use crate::text;
use crate::time::Timestamp;

string_enum! {
    /// How far a host image has come at a site.
    ImageState {
        /// An archive was made of a recipe.
        Built = "built",
        /// Its archive was judged, without an error.
        Verified = "verified",
        /// The site's region has it whole, with the digest that was sent.
        Uploaded = "uploaded",
        /// A limited number of nodes may be deployed with it.
        Canary = "canary",
        /// Nodes may be deployed with it.
        Approved = "approved",
        /// Nodes may still be deployed with it, and another one is meant to take its place.
        Deprecated = "deprecated",
        /// No node may be deployed with it any more, for good.
        Revoked = "revoked",
        /// What let it be deployed has ended.
        Expired = "expired",
    }
}

/// What happened to an image at a site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImageEvent {
    /// Moment of it.
    pub at: Timestamp,
    /// Who said so.
    pub actor: String,
    /// State before; none: the site did not know the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ImageState>,
    /// State since then.
    pub to: ImageState,
    /// Reason that was given; empty: none.
    pub reason: String,
    /// The same as an in-toto statement about the image's digest, signed by the control plane (DSSE).
    pub statement: Value,
}

/// An image at a site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImageView {
    /// Name in MAAS, without `custom/`.
    pub name: String,
    /// Name of the site.
    pub site: String,
    /// What builds of one recipe have in common: the name without day and digest.
    pub family: String,
    /// How far it has come, as of now.
    pub state: ImageState,
    /// SHA-256 of its file, hex.
    pub sha256: String,
    /// Length of its file in bytes; 0: unknown.
    pub size_bytes: u64,
    /// MAAS' identifier; none: the region does not have it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<u64>,
    /// SHA-256 of what it was built on, hex each.
    pub parents: Vec<String>,
    /// Nodes that may have it while it is a canary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary_nodes: Option<u32>,
    /// When what lets it be deployed ends; none: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Who said last what its state is.
    pub changed_by: String,
    /// Moment of that.
    pub changed_at: Timestamp,
    /// Findings: more images of its family than a site needs.
    pub findings: Vec<String>,
    /// What the lint found in its file, as the site was told; only if one image is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lint: Option<ImageVerdict>,
    /// All that happened to it, oldest first; only where one image is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ImageEvent>,
}

/// Body of `POST /api/v1/images`: what was done with an image before anybody approves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageRecordRequest {
    /// Name in MAAS, with or without `custom/`.
    #[schemars(with = "text::HostImageText")]
    pub name: String,
    /// The site.
    pub site: String,
    /// `built`, `verified` or `uploaded`.
    pub state: ImageState,
    /// SHA-256 of its file.
    #[schemars(with = "text::Sha256Text")]
    pub sha256: String,
    /// Length of its file in bytes; 0: unknown.
    #[serde(default)]
    pub size_bytes: u64,
    /// MAAS' identifier, of an upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<u64>,
    /// SHA-256 of what it was built on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<text::Sha256Text>", length(max = 64))]
    pub parents: Vec<String>,
    /// Name of whoever did it, as the audit keeps it.
    #[serde(default)]
    pub actor: String,
}

/// Body of `POST /api/v1/image-verdicts`: what `gpuaas image lint` found in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageVerdictRequest {
    /// The site that is told.
    pub site: String,
    /// SHA-256 of the file.
    #[schemars(with = "text::Sha256Text")]
    pub sha256: String,
    /// Errors that were found.
    pub errors: u32,
    /// Warnings that were found.
    #[serde(default)]
    pub warnings: u32,
    /// Codes of what was found, errors first; `docs/reference/image-lint.md` has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub codes: Vec<String>,
    /// MAAS' file type that it was judged as.
    #[serde(default)]
    pub file_type: String,
    /// Program and version that judged it.
    #[serde(default)]
    pub linted_by: String,
    /// Name of the person, as the audit keeps it.
    #[serde(default)]
    pub actor: String,
}

/// What the lint found in a file, as a site was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageVerdict {
    /// SHA-256 of the file, hex.
    pub sha256: String,
    /// Errors that were found; 0: it may be approved.
    pub errors: u32,
    /// Warnings that were found.
    pub warnings: u32,
    /// Codes of what was found, errors first.
    pub codes: Vec<String>,
    /// MAAS' file type that it was judged as.
    pub file_type: String,
    /// Program and version that judged it.
    pub linted_by: String,
    /// Identity that told it.
    pub actor: String,
    /// Time at which it was told.
    pub at: Timestamp,
}

/// Body of `POST /api/v1/images/IMAGE/transition`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageTransition {
    /// The site.
    pub site: String,
    /// `canary`, `approved`, `deprecated` or `revoked`.
    pub to: ImageState,
    /// Nodes that may have it, of a canary; default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub canary_nodes: Option<u32>,
    /// Why it is approved although the site has no verdict of the lint on its file, or one with errors;
    /// empty: a verdict without errors is required.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 500))]
    pub lint_waiver: String,
    /// Seconds after which it may not be deployed any more; none: it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 316_224_000))]
    pub expires_in_seconds: Option<u64>,
    /// Name of the operator, as the audit keeps it.
    #[serde(default)]
    pub actor: String,
    /// Reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// Body of `POST /api/v1/images/IMAGE/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageDeletion {
    /// The site.
    pub site: String,
    /// Name of the operator, as the audit keeps it.
    #[serde(default)]
    pub actor: String,
    /// Reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// Body of `POST /api/v1/profiles/PROFILE/rollback-image`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageRollback {
    /// The site whose approvals count.
    pub site: String,
    /// Image to go back to; none: the one before that the site still approves, else `ubuntu/noble`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::HostImageText>")]
    pub to: Option<String>,
    /// Name of the operator, as the audit keeps it.
    #[serde(default)]
    pub actor: String,
    /// Reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// An image as a profile names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImagePin {
    /// `custom/NAME`, or one that MAAS synced, such as `ubuntu/noble`.
    pub image: String,
    /// SHA-256 of the file of an uploaded one, hex; empty: not pinned.
    pub sha256: String,
}

/// Answer to an [`ImageRollback`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageRollbackView {
    /// The profile.
    pub profile: String,
    /// Its newest revision.
    pub revision: i64,
    /// What it named before.
    pub from: ImagePin,
    /// What it names now.
    pub to: ImagePin,
    /// Nodes of the site whose run is parked with what it named before.
    pub parked: Vec<String>,
}
