//! The bundles of this repository in the catalog.

use gpuaas_bundle::SigningKey;
use gpuaas_types::Timestamp;

use super::bundle::{CatalogBundle, CheckedBundle};
use super::error::CatalogError;
use super::index::{BundleCatalog, OWN_NAME};
use crate::built_in;
use crate::store::ArtifactStore;

/// Archives of the bundles of this repository.
///
/// # Errors
/// One of them is invalid, which a test excludes.
pub fn built_in_archives() -> Result<Vec<Vec<u8>>, CatalogError> {
    let archives = built_in::BUNDLES.iter().map(|files| {
        let archive = built_in::archive(files).map_err(CatalogError::Invalid)?;
        Ok(archive.write()?)
    });
    archives.collect()
}

impl BundleCatalog {
    /// A catalog with the bundles of this repository, signed with `key` at `now`.
    ///
    /// # Errors
    /// The artifact store cannot be written.
    pub fn with_built_in(
        artifacts: &ArtifactStore,
        key: &SigningKey,
        now: Timestamp,
    ) -> Result<Self, CatalogError> {
        let catalog = Self::new(artifacts.clone(), key);
        for archive in built_in_archives()? {
            let bundle = CheckedBundle::read(&archive)?;
            let envelope = key
                .sign(&bundle.statement(now))
                .map_err(|source| CatalogError::Signature { bundle: bundle.reference(), source })?;
            let published_by = OWN_NAME.to_owned();
            let one =
                CatalogBundle { bundle, envelope, built_in: true, published_by, published_at: now };
            catalog.add(&archive, one)?;
        }
        Ok(catalog)
    }
}
