//! `/api/v1/profiles`. Every change makes a new revision; runs keep the one that they pinned.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_store::{NewAuditEntry, StoreError};
use gpuaas_types::api::{List, ProfileCreate, ProfilePreset, ProfileResource};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::FilterList;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{AuditAction, ProfileId, SiteId};
use serde_json::{Map, Value, json};

use crate::audit::entries::spec_digest;
use crate::bundle::profile_bundles;
use crate::ctx::Ctx;
use crate::http::body::{Body, Key, Keys, QueryParams, WholeListFilter};
use crate::http::etag::{IfMatch, Tagged};
use crate::http::pages::list_filter;
use crate::http::problem::{ApiResult, invalid, problem};
use crate::http::strict;
use crate::identity::caller::Caller;
use crate::{check, image};

/// `POST /api/v1/profiles`.
pub(crate) async fn create(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(mut asked): Body<ProfileCreate>,
) -> ApiResult<(StatusCode, Json<ProfileResource>)> {
    check::name("name", &asked.name)?;
    image::check::pin_image(&ctx, &mut asked.spec).await?;
    check::profile("spec.", &asked.spec)?;
    check_sites(&ctx, "spec.", &asked.spec).await?;
    let pins = profile_bundles::pins(&ctx, "spec.", &asked.spec).await?;
    let now = ctx.now();
    let id = ProfileId::new(&*ctx.ids, now);
    let detail = json!({ "revision": 1 });
    let audit = NewAuditEntry::new(caller.name(), AuditAction::ProfileCreate, &asked.name, detail);
    let made = ctx.store.create_profile(now, id, &asked.name, &asked.spec, &pins, audit).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// `GET /api/v1/profiles`.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(asked): QueryParams<WholeListFilter>,
) -> ApiResult<Json<List<ProfileResource>>> {
    let filter = list_filter(FilterList::Profiles, asked.filter.as_deref())?;
    Ok(Json(List::whole(ctx.store.list_profiles(filter.as_ref()).await?)))
}

/// `GET /api/v1/profile-presets`: one to begin with for each class of hardware.
pub(crate) async fn presets() -> Json<List<ProfilePreset>> {
    Json(List::whole(gpuaas_core::preset::presets()))
}

/// `GET /api/v1/profiles/NAME`.
pub(crate) async fn show(
    State(ctx): State<Ctx>,
    Key(name): Key,
) -> ApiResult<Tagged<ProfileResource>> {
    Ok(ctx.store.profile_by_name(&name).await?.into())
}

/// `GET /api/v1/admin/maas-sites/SITE/profiles/PROFILE`: a profile that nodes of the site may be
/// deployed with. Each is given by name or identifier.
pub(crate) async fn show_at_site(
    State(ctx): State<Ctx>,
    Keys((site, profile)): Keys<(String, String)>,
) -> ApiResult<Tagged<ProfileResource>> {
    Ok(find_at_site(&ctx, &site, &profile).await?.into())
}

/// `PATCH /api/v1/admin/maas-sites/SITE/profiles/PROFILE`: as [`change`], of a profile that nodes of
/// the site may be deployed with.
pub(crate) async fn change_at_site(
    State(ctx): State<Ctx>,
    caller: Caller,
    Keys((site, profile)): Keys<(String, String)>,
    if_match: IfMatch,
    Body(patch): Body<Map<String, Value>>,
) -> ApiResult<Tagged<ProfileResource>> {
    let name = find_at_site(&ctx, &site, &profile).await?.status.name;
    let changed = if_match.change(|| edit(&ctx, &caller, &name, &if_match, patch.clone())).await?;
    Ok(changed.into())
}

async fn find_at_site(ctx: &Ctx, site: &str, profile: &str) -> ApiResult<ProfileResource> {
    let site = match site.parse::<SiteId>() {
        Ok(id) => ctx.store.site(id).await?,
        Err(_) => ctx.store.site_by_name(site).await?,
    };
    let profile = match profile.parse::<ProfileId>() {
        Ok(id) => ctx.store.profile(id).await?,
        Err(_) => ctx.store.profile_by_name(profile).await?,
    };
    profile_bundles::check_site(&site, &profile)?;
    Ok(profile)
}

/// `PATCH /api/v1/profiles/NAME`: the given fields, `null` for the default. A patch that changes
/// nothing makes no revision.
pub(crate) async fn change(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(name): Key,
    if_match: IfMatch,
    Body(patch): Body<Map<String, Value>>,
) -> ApiResult<Tagged<ProfileResource>> {
    let changed = if_match.change(|| edit(&ctx, &caller, &name, &if_match, patch.clone())).await?;
    Ok(changed.into())
}

async fn edit(
    ctx: &Ctx,
    caller: &Caller,
    name: &str,
    if_match: &IfMatch,
    patch: Map<String, Value>,
) -> ApiResult<ProfileResource> {
    let current = ctx.store.profile_by_name(name).await?;
    let fields: Vec<String> = patch.keys().cloned().collect();
    let defaults =
        serde_json::to_value(ProfileSpec::default()).map_err(|_| problem(ProblemCode::Internal))?;
    // A digest is of one image: whoever names another one names its digest, too.
    let names_image = patch.contains_key("distro_series") && !patch.contains_key("image_sha256");
    let mut spec: ProfileSpec = strict::merge(&current.spec, &defaults, patch)?;
    if names_image && spec.distro_series != current.spec.distro_series {
        spec.image_sha256.clear();
        image::check::pin_image(ctx, &mut spec).await?;
    }
    check::profile("", &spec)?;
    check_sites(ctx, "", &spec).await?;
    let pins = profile_bundles::pins(ctx, "", &spec).await?;
    if_match.check(current.revision)?;
    if spec == current.spec && pins == current.status.bundle_pins {
        return Ok(current);
    }
    let seen = Some(current.revision);
    let detail = json!({
        "fields": fields, "revision": current.revision + 1,
        "before_digest": spec_digest(&current.spec), "after_digest": spec_digest(&spec),
    });
    let audit = NewAuditEntry::new(caller.name(), AuditAction::ProfileChange, name, detail);
    Ok(ctx.store.set_profile(ctx.now(), name, seen, &spec, &pins, audit).await?)
}

/// Each site that the profile is for is there: a misspelt one would refuse every node.
async fn check_sites(ctx: &Ctx, prefix: &str, spec: &ProfileSpec) -> ApiResult<()> {
    for (index, site) in spec.sites.iter().enumerate() {
        match ctx.store.site_by_name(site).await {
            Ok(_) => {}
            Err(StoreError::NotFound { .. }) => {
                let field = format!("{prefix}sites.{index}");
                let refusal = invalid(&field, format!("site {site} does not exist"));
                return Err(refusal.with_hint("list the sites: `gpuaas site list`").into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
