//! Whether the image that a profile names may be deployed at a site, as far as the records of both say.

use gpuaas_core::image_approval::approved_digests;
use gpuaas_core::image_state::{ImageStanding, deployable_digests, uploaded_name};
use gpuaas_core::policy::normalise_distro_series;
use gpuaas_engine::image_standing;
use gpuaas_store::StoredImage;
use gpuaas_types::api::{ProfileResource, SiteResource};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::image::ImagePin;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{Problem, Timestamp};

use crate::ctx::Ctx;
use crate::http::problem::{ApiResult, problem};

/// An image as a profile of the site may name it now: with the digest that is approved.
pub(crate) fn named_image(
    text: &str,
    site: &SiteResource,
    stored: &[StoredImage],
    now: Timestamp,
) -> Result<ImagePin, Problem> {
    let (name, digest) = text.split_once("@sha256:").unwrap_or((text, ""));
    let image = normalise_distro_series(name);
    let Some(bare) = uploaded_name(name) else {
        let listed = approved_digests(&site.spec.approved_images, &image);
        let refused = |why: String| problem(ProblemCode::ImageNotApproved).with_detail(why);
        return listed.map(|_| ImagePin { image, sha256: String::new() }).map_err(refused);
    };
    let record = stored.iter().find(|one| one.name == bare);
    let standing = record.map(image_standing);
    let listed = &site.spec.approved_images;
    let digests = deployable_digests(&bare, standing.as_ref(), listed, digest, now)?;
    let sha256 = match digests.as_slice() {
        [one] => (*one).to_owned(),
        _ => String::new(),
    };
    Ok(ImagePin { image, sha256 })
}

/// Fills in the digest of an uploaded image that a profile names without one, where the sites that know
/// the image agree on it.
pub(crate) async fn pin_image(ctx: &Ctx, spec: &mut ProfileSpec) -> ApiResult<()> {
    if !spec.image_sha256.is_empty() {
        return Ok(());
    }
    let Some(name) = uploaded_name(&spec.distro_series) else { return Ok(()) };
    let stored = ctx.store.images(None).await?;
    let mut digests = stored.iter().filter(|one| one.name == name).map(|one| &one.sha256);
    if let Some(first) = digests.next()
        && digests.all(|one| one == first)
    {
        spec.image_sha256.clone_from(first);
    }
    Ok(())
}

/// Whether a run that deploys with this profile at this site would get its image, as far as the site's
/// records say.
///
/// # Errors
/// `image_not_approved`, `image_revoked`, `image_expired`, `image_parent_revoked`,
/// `image_digest_differs`.
pub(crate) async fn check_image(
    ctx: &Ctx,
    site: &SiteResource,
    profile: &ProfileResource,
) -> ApiResult<()> {
    let Some(name) = uploaded_name(&profile.spec.distro_series) else { return Ok(()) };
    // What no site has a record of is looked for in MAAS, before the deployment.
    let Some(record) = ctx.store.image(site.id, &name).await? else {
        let known = ctx.store.images(None).await?.iter().any(|one| one.name == name);
        let listed = &site.spec.approved_images;
        let pinned = &profile.spec.image_sha256;
        return match deployable_digests(&name, None, listed, pinned, ctx.now()) {
            Err(refusal) if known => Err(explained(refusal.into(), &name, site, profile).into()),
            _ => Ok(()),
        };
    };
    let revoked_parent = ctx.store.revoked_digest(&record.parents).await?;
    let standing =
        ImageStanding { revoked_parent: revoked_parent.as_deref(), ..image_standing(&record) };
    let (listed, pinned) = (&site.spec.approved_images, &profile.spec.image_sha256);
    let found = deployable_digests(&name, Some(&standing), listed, pinned, ctx.now());
    found.map_err(|refusal| explained(refusal.into(), &name, site, profile))?;
    Ok(())
}

/// The refusal with commands for this image, site and profile.
fn explained(
    refusal: Problem,
    name: &str,
    site: &SiteResource,
    profile: &ProfileResource,
) -> Problem {
    let (site, profile) = (&site.spec.name, &profile.status.name);
    let words = [("IMAGE", name), ("SITE", site), ("PROFILE", profile)];
    let hint =
        words.iter().fold(refusal.hint.clone(), |hint, (word, value)| hint.replace(word, value));
    refusal.with_hint(hint)
}
