//! Bundles that a profile names: whether they exist, and whether a run may begin with them.

use gpuaas_artifact::CatalogError;
use gpuaas_engine::bundles::{self, DeliveryError};
use gpuaas_types::Problem;
use gpuaas_types::api::{BundlePin, ProfileResource, SiteResource};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::spec::ProfileSpec;

use crate::bundle::bundles::{delivery_refusal, refused};
use crate::ctx::Ctx;
use crate::http::problem::{ApiResult, invalid, problem};
use crate::image;

/// What the bundle references of a profile resolve to: the pins of its site bundle.
pub(crate) async fn pins(
    ctx: &Ctx,
    prefix: &str,
    spec: &ProfileSpec,
) -> Result<Vec<BundlePin>, Problem> {
    let in_field = |field: &'static str, error: CatalogError| {
        refused(&error).with_field(format!("{prefix}{field}"), error.to_string())
    };
    let (store, catalog) = (&ctx.store, &ctx.bundles);
    let reference = &spec.post_deploy_validation_bundle_ref;
    if !reference.is_empty() {
        let found =
            bundles::find_or_refresh(store, catalog, |catalog| catalog.check_validation(reference))
                .await;
        found.map_err(|error| in_field("post_deploy_validation_bundle_ref", error))?;
    }
    let reference = &spec.commissioning_bundle_ref;
    if !reference.is_empty() {
        let found =
            bundles::find_or_refresh(store, catalog, |catalog| catalog.commissioning(reference))
                .await;
        found.map_err(|error| in_field("commissioning_bundle_ref", error))?;
    }
    let reference = &spec.site_bootstrap_bundle_ref;
    if reference.is_empty() {
        if spec.site_bootstrap_inputs.is_empty() {
            return Ok(Vec::new());
        }
        let field = format!("{prefix}site_bootstrap_inputs");
        return Err(invalid(&field, "these inputs require site_bootstrap_bundle_ref"));
    }
    let pins = bundles::find_or_refresh(store, catalog, |catalog| catalog.pins(reference)).await;
    let pins = pins.map_err(|error| in_field("site_bootstrap_bundle_ref", error))?;
    catalog
        .check_inputs(&pins, &spec.site_bootstrap_inputs)
        .map_err(|error| in_field("site_bootstrap_inputs", error))?;
    Ok(pins)
}

/// Whether a run that deploys with this profile at this site may begin.
///
/// # Errors
/// `profile_not_for_site`, `bundle_not_approved`, those of inputs and signatures, and of bundles that are gone.
pub(crate) async fn check_can_begin(
    ctx: &Ctx,
    site: &SiteResource,
    profile: &ProfileResource,
    hostname: Option<&str>,
) -> ApiResult<()> {
    check_site(site, profile)?;
    image::check::check_image(ctx, site, profile).await?;
    let resolved = pins(ctx, "profile ", &profile.spec).await?;
    let pinned = &profile.status.bundle_pins;
    let pins = if pinned.is_empty() { resolved } else { pinned.clone() };
    let (store, catalog, now) = (&ctx.store, &*ctx.bundles, ctx.now());
    let scope = bundles::InputScope {
        site_id: site.id,
        site: &site.spec,
        hostname,
        profile_id: profile.id,
        profile: &profile.spec,
    };
    let delivery = bundles::delivery(store, catalog, &pins, &scope, now).await;
    delivery.map_err(delivery_refusal)?;
    let reference = &profile.spec.post_deploy_validation_bundle_ref;
    if !reference.is_empty() {
        let checks = catalog.validation(reference, &site.spec.bundle_inputs);
        checks.map_err(|error| refused(&error))?;
    }
    let scripts =
        [&profile.spec.commissioning_bundle_ref, &profile.spec.post_deploy_validation_bundle_ref];
    let scripts = scripts.into_iter().filter(|reference| !reference.is_empty());
    let scripts = scripts.map(|reference| catalog.find(reference).map(|one| one.pin()));
    let scripts: Vec<BundlePin> =
        scripts.collect::<Result<_, _>>().map_err(|error| refused(&error))?;
    let missing = bundles::unapproved(store, catalog, &scripts, &site.spec.name).await;
    let missing = missing.map_err(delivery_refusal)?;
    if missing.is_empty() {
        return Ok(());
    }
    let site = site.spec.name.clone();
    Err(delivery_refusal(DeliveryError::NotApproved { bundles: missing, site }))
}

/// Whether nodes of the site may be deployed with the profile.
///
/// # Errors
/// `profile_not_for_site`.
pub(crate) fn check_site(site: &SiteResource, profile: &ProfileResource) -> ApiResult<()> {
    let (sites, site, name) = (&profile.spec.sites, &site.spec.name, &profile.status.name);
    if sites.is_empty() || sites.contains(site) {
        return Ok(());
    }
    let known = sites.join(",");
    let detail = format!("profile {name} is only for {}, not for {site}", sites.join(", "));
    let hint = format!(
        "choose another profile from `gpuaas profile list`, or allow the site: `gpuaas profile set \
         {name} sites={known},{site}`"
    );
    Err(problem(ProblemCode::ProfileNotForSite).with_detail(detail).with_hint(hint).into())
}
