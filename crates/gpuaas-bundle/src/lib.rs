//! Bundles: typed folders of scripts and checks that configure a node, as signed archives.
//!
//! Four parts, for the control plane that builds a bundle and the agent that runs one:
//!
//! - [`manifest`]: the typed manifest, checked as a whole before an archive is built.
//! - [`archive`]: the folder as one file. The same folder gives the same bytes everywhere, and a
//!   reader accepts only what a writer of this crate could have written.
//! - [`signature`]: signed statements about an archive's digest.
//! - [`delivery`]: the bundles, signatures and inputs that a node gets.
//!
//! Tasks for agents are signed in the same envelope: [`order`]. What a machine's TPM signs when its agent
//! enrolls is read here as well, for both sides make its nonce: [`tpm_quote`].
//!
//! No clock, no network, and no file is touched but those below a folder that the caller names.

pub mod archive;
pub mod bundle_kind;
pub mod delivery;
pub mod digest;
mod expectation;
pub mod format;
pub mod host_value;
pub mod input;
pub mod manifest;
pub mod order;
mod packages;
pub mod signature;
pub mod tpm_quote;

pub use archive::{Archive, ArchiveError, Entry};
pub use bundle_kind::{AGENT_FILE, BundleKind};
pub use delivery::{Artifact, Delivery, SignedBundle};
pub use digest::Digest;
pub use expectation::{EstablishedCheck, Expectation};
pub use host_value::HostValue;
pub use input::{Derivation, Input, InputError, InputType, Inputs};
pub use manifest::{BundleReference, Gate, Manifest, ManifestFault, ManifestPhase, Requirement};
pub use signature::{Envelope, PublicKey, SignatureError, SigningKey, Statement, TrustedKey};
