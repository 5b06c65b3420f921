//! The manifest in the folder of a bundle on the host.

use std::fs;
use std::path::Path;

use gpuaas_bundle::Manifest;
use gpuaas_bundle::manifest::{ARCHIVED_NAME, SOURCE_NAME};

use super::error::BundleError;

/// Reads the manifest of the bundle in `folder`.
///
/// # Errors
/// [`BundleError::NoBundle`]: there is no manifest, or none that can be used.
pub(super) fn read_manifest(folder: &Path) -> Result<Manifest, BundleError> {
    let no_bundle = |reason: String| BundleError::NoBundle { path: folder.to_owned(), reason };
    let text = fs::read(folder.join(ARCHIVED_NAME)).map_err(|error| {
        if folder.join(SOURCE_NAME).is_file() {
            return no_bundle(format!(
                "it contains bundle source; `gpuaas bundle build {}` builds the archive, and \
                 `gpuaas-node-agent bundle unpack` unpacks it into a folder to run",
                folder.display()
            ));
        }
        no_bundle(format!("{ARCHIVED_NAME}: {error}"))
    })?;
    let manifest: Manifest = gpuaas_bundle::format::manifest_from_json(&text)
        .map_err(|error| no_bundle(format!("{ARCHIVED_NAME}: {error}")))?;
    for phase in &manifest.phases {
        gpuaas_bundle::archive::check_path(&phase.run)
            .map_err(|reason| no_bundle(format!("{}: {reason}", phase.run)))?;
    }
    Ok(manifest)
}
