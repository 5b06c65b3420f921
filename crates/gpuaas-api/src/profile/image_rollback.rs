//! `POST /api/v1/profiles/PROFILE/rollback-image`: back to the image before, in one request.

use axum::Json;
use axum::extract::State;
use gpuaas_core::image_state::{previous_image, uploaded_name};
use gpuaas_core::policy::normalise_distro_series;
use gpuaas_store::{NewAuditEntry, StoredImage};
use gpuaas_types::api::{ProfileResource, SiteResource};
use gpuaas_types::image::{ImagePin, ImageRollback, ImageRollbackView};
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{AuditAction, Timestamp};
use serde_json::json;

use crate::bundle::profile_bundles;
use crate::check;
use crate::ctx::Ctx;
use crate::http::body::{Body, Key};
use crate::http::problem::ApiResult;
use crate::identity::caller::Caller;
use crate::image::check::named_image;

/// What is there without any approval of ours.
const STOCK: &str = "ubuntu/noble";

/// `POST /api/v1/profiles/PROFILE/rollback-image`.
pub(crate) async fn roll_back(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(name): Key,
    Body(asked): Body<ImageRollback>,
) -> ApiResult<Json<ImageRollbackView>> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let site = ctx.store.site_by_name(&asked.site).await?;
    let profile = ctx.store.profile_by_name(&name).await?;
    profile_bundles::check_site(&site, &profile)?;
    let stored = ctx.store.images(Some(site.id)).await?;
    let from = pin_of(&profile.spec);
    let to = match &asked.to {
        Some(text) => named_image(text, &site, &stored, ctx.now())?,
        None => {
            let earlier = ctx.store.images_of_profile(&name).await?;
            before(&profile, &earlier, &site, &stored, ctx.now())
        }
    };
    let spec = ProfileSpec {
        distro_series: to.image.clone(),
        image_sha256: to.sha256.clone(),
        // Of another image nobody said how large it is.
        image_size_megabytes: size_megabytes(&to, &stored),
        ..profile.spec.clone()
    };
    check::profile("", &spec)?;
    let revision = if spec == profile.spec {
        profile.revision
    } else {
        let pins = profile_bundles::pins(&ctx, "", &spec).await?;
        let seen = Some(profile.revision);
        let detail = json!({
            "site": site.spec.name, "from": from, "to": to, "revision": profile.revision + 1,
            "reason": reason,
        });
        let audit = NewAuditEntry::new(actor, AuditAction::ProfileRollbackImage, &name, detail);
        let changed = ctx.store.set_profile(ctx.now(), &name, seen, &spec, &pins, audit).await?;
        changed.revision
    };
    let parked = ctx.store.parked_with_image(site.id, &profile.spec.distro_series).await?;
    Ok(Json(ImageRollbackView { profile: name, revision, from, to, parked }))
}

/// The image that a profile names.
fn pin_of(spec: &ProfileSpec) -> ImagePin {
    let image = normalise_distro_series(&spec.distro_series);
    ImagePin { image, sha256: spec.image_sha256.clone() }
}

/// The one before that may still be deployed; else the stock image.
fn before(
    profile: &ProfileResource,
    earlier: &[(String, String)],
    site: &SiteResource,
    stored: &[StoredImage],
    now: Timestamp,
) -> ImagePin {
    let spelled = |name: &str, digest: &str| {
        if digest.is_empty() { name.to_owned() } else { format!("{name}@sha256:{digest}") }
    };
    let may_deploy =
        |name: &str, digest: &str| named_image(&spelled(name, digest), site, stored, now).is_ok();
    let current = (profile.spec.distro_series.as_str(), profile.spec.image_sha256.as_str());
    let earlier = earlier.iter().map(|(name, digest)| (name.as_str(), digest.as_str()));
    let found = previous_image(current, earlier, may_deploy);
    found
        .and_then(|(name, digest)| named_image(&spelled(name, digest), site, stored, now).ok())
        .unwrap_or_else(|| ImagePin { image: STOCK.to_owned(), sha256: String::new() })
}

/// What a machine fetches of an image, in megabytes; 0: unknown.
fn size_megabytes(pin: &ImagePin, stored: &[StoredImage]) -> u32 {
    let name = uploaded_name(&pin.image);
    let record = stored.iter().find(|one| Some(&one.name) == name.as_ref());
    record.and_then(|one| u32::try_from(one.size_bytes / 1_000_000).ok()).unwrap_or(0)
}
