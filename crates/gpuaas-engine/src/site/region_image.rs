//! Uploaded images of a region, for what operators do with them outside of runs.

use maas_client::{BootResource, Client};

use crate::predeploy::image::{UPLOADED, file_of};
use crate::site::{CallError, Site};

/// An uploaded image as the region has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionImage {
    /// MAAS' identifier.
    pub id: u64,
    /// SHA-256 of its file, hex; none: it has none yet.
    pub sha256: Option<String>,
    /// Length of its file in bytes.
    pub size_bytes: u64,
    /// Whether all of it is there.
    pub complete: bool,
}

/// The uploaded image of a name, without `custom/`, as the region has it; none: it has none. The region
/// is asked now: what runs share of its images may be a minute old.
///
/// # Errors
/// See [`CallError`].
pub async fn find_region_image(site: &Site, name: &str) -> Result<Option<RegionImage>, CallError> {
    let images = site.call(|client: Client| async move { client.boot_resources().await }).await?;
    let is_named = |image: &&BootResource| image.kind == UPLOADED && image.name == name;
    let Some(id) = images.iter().find(is_named).map(|found| found.id) else { return Ok(None) };
    let image = site.call(|client: Client| async move { client.boot_resource(id).await }).await?;
    let file = file_of(&image);
    Ok(Some(RegionImage {
        id,
        size_bytes: image.sets.values().last().map_or(0, |set| set.size),
        complete: file.as_ref().is_some_and(|file| file.complete),
        sha256: file.map(|file| file.sha256.to_ascii_lowercase()),
    }))
}

/// Deletes an image in MAAS.
///
/// # Errors
/// See [`CallError`].
pub async fn delete_region_image(site: &Site, id: u64) -> Result<(), CallError> {
    site.change(|client: Client| async move { client.delete_boot_resource(id).await }).await
}
