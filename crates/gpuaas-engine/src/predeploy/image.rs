//! The check before a deployment that asks MAAS for the image.

use gpuaas_core::image_approval::{ImageFile, approved_digests, check_image_file};
use gpuaas_core::image_state::{ImageStanding, deployable_digests, uploaded_name};
use gpuaas_core::policy::normalise_distro_series;
use gpuaas_store::StoredImage;
use maas_client::{BootResource, BootResourceSet};

use crate::run::session::RunSession;
use crate::shared::Shared;
use crate::site::Site;
use crate::site::connected::Verdict;

/// What MAAS calls the images that somebody uploaded.
pub(crate) const UPLOADED: &str = "Uploaded";

/// MAAS has the image for the machine's architecture, the site approves it, and an uploaded one is
/// whole and of a form that takes a storage layout.
pub(crate) async fn check_image(shared: &Shared, site: &Site, session: &RunSession) -> Verdict {
    let wanted = normalise_distro_series(&session.profile().distro_series);
    let approved = match uploaded_name(&wanted) {
        Some(name) => deployable(shared, site, session, &name).await?,
        None => {
            let listed = approved_digests(&session.site().approved_images, &wanted)?;
            Approved::Digests(listed.into_iter().map(str::to_owned).collect())
        }
    };
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
        let choose = format!(
            "run `gpuaas profile set {} distro_series=NAME` to choose another one",
            session.context.profile.name
        );
        return Err(match approved {
            // An approval would help nobody, such as that of a release which this MAAS does not know.
            Approved::Unknown { name, .. } => format!(
                "MAAS has neither ubuntu/{name} nor an uploaded {name} for {architecture}; it has {}; \
                 {choose}; write an uploaded image as custom/NAME",
                have.join(", ")
            ),
            Approved::Digests(_) => {
                format!(
                    "MAAS has no {wanted} for {architecture}; it has {}; {choose}",
                    have.join(", ")
                )
            }
        });
    };
    let digests = match approved {
        Approved::Digests(digests) => digests,
        Approved::Unknown { refusal, .. } => return Err(refusal),
    };
    let digests: Vec<&str> = digests.iter().map(String::as_str).collect();
    let found = format!("MAAS has {wanted} for {architecture}");
    if image.kind != UPLOADED {
        return match digests.as_slice() {
            [] => Ok(found),
            // The files of a synced image are MAAS' own and change with every release of it.
            _ => Err(format!(
                "{wanted} is approved by digest, but only an uploaded image has a digest"
            )),
        };
    }
    let image = site.image(image.id, word_at).await.map_err(|e| e.to_string())?;
    let layout = &session.profile().storage_layout_profile;
    let seen = check_image_file(&wanted, file_of(&image).as_ref(), &digests, layout)?;
    Ok(format!("{found}, {seen}"))
}

/// What the site's records say of an image.
enum Approved {
    /// Digests one of which the file of an uploaded image has to have; none: any file of MAAS' own will do.
    Digests(Vec<String>),
    /// The site has no record of the uploaded image, and does not list it.
    Unknown {
        /// Name without `custom/`.
        name: String,
        /// Why it is not deployed even if MAAS has it.
        refusal: String,
    },
}

/// What the site's record of an uploaded image says.
async fn deployable(
    shared: &Shared,
    site: &Site,
    session: &RunSession,
    name: &str,
) -> Result<Approved, String> {
    let (store, site_id) = (&shared.store, site.record.id);
    let record = store.image(site_id, name).await.map_err(|e| e.to_string())?;
    let (mut nodes_before, mut revoked_parent) = (0, None);
    if let Some(record) = &record {
        let before = store.nodes_with_image_before(site_id, name, session.run.id).await;
        nodes_before = before.map_err(|e| e.to_string())?;
        let revoked = store.revoked_digest(&record.parents).await;
        revoked_parent = revoked.map_err(|e| e.to_string())?;
    }
    let standing = record.as_ref().map(|record| ImageStanding {
        nodes_before: u32::try_from(nodes_before).unwrap_or(u32::MAX),
        revoked_parent: revoked_parent.as_deref(),
        ..image_standing(record)
    });
    let (listed, pinned) = (&session.site().approved_images, &session.profile().image_sha256);
    let found = deployable_digests(name, standing.as_ref(), listed, pinned, shared.clock.now());
    let advice = format!(
        "run `gpuaas image approve {name} --site {site} --reason WHY` to approve it, or `gpuaas \
         image rollback --profile {profile} --site {site} --reason WHY` to go back to an earlier image",
        site = session.site().name,
        profile = session.context.profile.name,
    );
    match found {
        Ok(digests) => Ok(Approved::Digests(digests.into_iter().map(str::to_owned).collect())),
        Err(refusal) => {
            let refusal = format!("{}; {advice}", refusal.with_code());
            match standing {
                Some(_) => Err(refusal),
                None => Ok(Approved::Unknown { name: name.to_owned(), refusal }),
            }
        }
    }
}

/// What the record of an image says of its deployment; nothing of the nodes that have it, and nothing
/// of its parents.
#[must_use]
pub fn image_standing(record: &StoredImage) -> ImageStanding<'_> {
    ImageStanding {
        state: record.state,
        expires_at: record.expires_at,
        sha256: &record.sha256,
        canary_nodes: record.canary_nodes.and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
        nodes_before: 0,
        revoked_parent: None,
        said: (&record.changed_by, &record.reason),
    }
}

/// The file of the newest set of an uploaded image: an upload takes the files of older sets away.
pub(crate) fn file_of(image: &BootResource) -> Option<ImageFile> {
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
