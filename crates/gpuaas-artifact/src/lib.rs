//! Artifacts for nodes: bundles by digest, and the cloud-init user-data that fetches them.
//!
//! Three parts that build on each other:
//!
//! - [`store`]: content-addressed bytes. A digest is the only name an artifact is served under,
//!   so a node needs no credential to fetch one and cannot be handed other bytes unnoticed.
//! - [`catalog`]: `name@version` to digest, the one place where a name becomes bytes. The bundles
//!   of this repository are part of it.
//! - [`user_data`]: [`user_data::BootstrapInputs`] to the exact bytes handed to MAAS, and back.
//!   Rendering is pure: the same inputs give the same bytes, so a digest of the user-data can be
//!   recorded beside the intent that used it.
//!
//! Inputs reach the scripts as one JSON file, never by substitution into shell text: the scripts
//! are constants of this crate and a hostile hostname is only ever a JSON string.

mod built_in;
pub mod ca;
pub mod catalog;
mod lint;
mod mime;
pub mod scripts;
pub mod source;
pub mod store;
#[cfg(test)]
mod tests;
pub mod user_data;

pub use ca::{CaError, ca_bundle_ends_at, validate_ca_bundle};
pub use catalog::{BundleCatalog, CatalogBundle, CatalogError, CheckedBundle, built_in_archives};
pub use gpuaas_bundle::digest::DigestError;
pub use gpuaas_bundle::{Artifact, Digest};
pub use lint::LintFinding;
pub use scripts::CommissioningScript;
pub use source::{SourceError, read_folder};
pub use store::{ArtifactStore, StoredArtifact};
pub use user_data::{
    BootstrapInputs, BootstrapLimits, ParseError, ParsedUserData, RenderError, UserData,
    parse_user_data, render_user_data, unpack_user_data,
};
