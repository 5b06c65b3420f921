//! The check before a deployment that asks MAAS for the image.

use std::sync::Arc;

use gpuaas_core::image_approval::{ImageFile, approved_digests, check_image_file};
use gpuaas_core::policy::normalise_distro_series;
use maas_client::{BootResource, BootResourceSet};

use crate::run_session::RunSession;
use crate::site::{Site, Verdict};

/// What MAAS calls the images that somebody uploaded.
const UPLOADED: &str = "Uploaded";

/// MAAS has the image for the machine's architecture, the site approves it, and an uploaded one is
/// whole and of a form that takes a storage layout.
pub(crate) async fn check_image(site: &Site, session: &RunSession) -> Verdict {
    let wanted = normalise_distro_series(&session.profile().distro_series);
    let digests = approved_digests(&session.site().approved_images, &wanted)?;
    let word_at = session.run.state.reads_count_since();
    let images = site.images(word_at).await.map_err(|e| e.to_string())?;
    let architecture = session
        .observation
        .as_ref()
        .and_then(|o| o.machine.as_ref())
        .map_or("amd64/generic", |m| m.architecture.as_str());
    let Some(image) = images.iter().find(|image| is(image, &wanted, architecture)) else {
        let mut have: Vec<&str> = images.iter().map(|i| i.name.as_str()).collect();
        have.sort_unstable();
        have.dedup();
        return Err(format!("MAAS has no {wanted} for {architecture}; it has {}", have.join(", ")));
    };
    let found = format!("MAAS has {wanted} for {architecture}");
    if image.kind != UPLOADED {
        return match digests.as_slice() {
            [] => Ok(found),
            // The files of a synced image are MAAS' own and change with every release of it.
            _ => Err(format!("{wanted} is approved by a digest, which only an uploaded image has")),
        };
    }
    let image = site.image(image.id, word_at).await.map_err(|e| e.to_string())?;
    let layout = &session.profile().storage_layout_profile;
    let seen = check_image_file(&wanted, file_of(&image).as_ref(), &digests, layout)?;
    Ok(format!("{found}, {seen}"))
}

/// The file of the newest set of an uploaded image: an upload takes the files of older sets away.
fn file_of(image: &Arc<BootResource>) -> Option<ImageFile> {
    let newest = |set: &&BootResourceSet| !set.files.is_empty();
    let set = image.sets.values().rfind(newest)?;
    let file = set.files.values().next()?;
    Some(ImageFile {
        filetype: file.filetype.clone(),
        sha256: file.sha256.clone(),
        complete: set.complete && file.complete,
    })
}

/// An uploaded image shows without its `custom/` (docs/maas.md#boot-images); a series may be named
/// by its version, which MAAS resolves itself (docs/maas.md#deployable-images).
fn is(image: &BootResource, wanted: &str, architecture: &str) -> bool {
    let cpu = |text: &str| text.split('/').next().unwrap_or(text).to_owned();
    let bare = wanted.strip_prefix("custom/").unwrap_or(wanted);
    let by_version = matches!(
        (wanted, image.name.as_str()),
        ("ubuntu/20.04", "ubuntu/focal")
            | ("ubuntu/22.04", "ubuntu/jammy")
            | ("ubuntu/24.04", "ubuntu/noble")
            | ("ubuntu/26.04", "ubuntu/resolute")
    );
    (image.name == wanted || image.name == bare || by_version)
        && cpu(&image.architecture) == cpu(architecture)
}
