//! One bundle: as its archive has it, and as the catalog has it.

use gpuaas_bundle::{
    AGENT_FILE, Archive, Artifact, BundleKind, Digest, Envelope, Manifest, SignedBundle, Statement,
};
use gpuaas_types::Timestamp;
use gpuaas_types::api::BundlePin;

use super::error::CatalogError;
use crate::scripts::{self, CommissioningScript};
use crate::source;
use crate::store::{ArtifactStore, StoredArtifact};

/// A bundle whose archive passed every check of `gpuaas bundle lint`.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedBundle {
    /// SHA-256 of the archive.
    pub digest: Digest,
    /// Length of the archive in bytes.
    pub size_bytes: u64,
    /// Its manifest.
    pub manifest: Manifest,
    /// Scripts of a commissioning bundle; empty for other kinds.
    pub scripts: Vec<CommissioningScript>,
    /// The executable of an agent; none for other kinds.
    pub agent: Option<StoredArtifact>,
}

/// A bundle of the catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogBundle {
    /// The bundle.
    pub bundle: CheckedBundle,
    /// Its signature.
    pub envelope: Envelope,
    /// Whether it came with the control plane.
    pub built_in: bool,
    /// Name of the operator who published it.
    pub published_by: String,
    /// Time of the publication.
    pub published_at: Timestamp,
}

impl CheckedBundle {
    /// Reads the bytes of an archive and checks them as `gpuaas bundle lint` does.
    ///
    /// # Errors
    /// [`CatalogError::Archive`], [`CatalogError::Invalid`].
    pub fn read(bytes: &[u8]) -> Result<Self, CatalogError> {
        let archive = Archive::read(bytes)?;
        let findings = source::lint_scripts(&archive);
        if !findings.is_empty() {
            return Err(CatalogError::Invalid(findings));
        }
        let scripts = match archive.manifest.kind {
            BundleKind::Commissioning => scripts::commissioning_scripts(&archive)
                .map_err(|f| CatalogError::Invalid(vec![f]))?,
            BundleKind::SiteBootstrap
            | BundleKind::PostDeployValidation
            | BundleKind::NodeAgent => Vec::new(),
        };
        let agent = (archive.manifest.kind == BundleKind::NodeAgent)
            .then(|| archive.files.get(AGENT_FILE))
            .flatten()
            .map(|entry| StoredArtifact {
                digest: Digest::sha256(&entry.bytes),
                size_bytes: entry.bytes.len() as u64,
            });
        Ok(Self {
            agent,
            digest: Digest::sha256(bytes),
            size_bytes: bytes.len() as u64,
            manifest: archive.manifest,
            scripts,
        })
    }

    /// The bundle's reference, `name@version`.
    #[must_use]
    pub fn reference(&self) -> String {
        self.manifest.reference()
    }

    /// The statement to sign.
    #[must_use]
    pub fn statement(&self, signed_at: Timestamp) -> Statement {
        Statement { bundle: self.reference(), digest: self.digest, signed_at, expires_at: None }
    }
}

impl CatalogBundle {
    /// Its reference and its digest.
    #[must_use]
    pub fn pin(&self) -> BundlePin {
        BundlePin { bundle: self.bundle.reference(), digest: self.bundle.digest.to_string() }
    }

    /// What a node downloads and verifies.
    pub(super) fn signed(&self) -> SignedBundle {
        let CheckedBundle { digest, size_bytes, manifest, .. } = &self.bundle;
        let artifact = Artifact {
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            digest: *digest,
            size_bytes: *size_bytes,
            url: ArtifactStore::url_path(digest),
        };
        SignedBundle { artifact, envelope: self.envelope.clone() }
    }
}
