//! `/api/v1/images`: which host images a site has, and which of them may be deployed there.
//!
//! Whoever builds and uploads writes down what was done; an approver says what follows from it. Each
//! is kept as a signed statement about the digest of the file. Before an approval, and before a deletion,
//! the region is asked what it has under the name.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_core::image_state::{
    MOST_LIVE_OF_FAMILY, SaidBy, check_transition, crowded_families, image_family, is_live,
    state_at, uploaded_name,
};
use gpuaas_core::image_statement::{ImageWord, STATEMENT_PAYLOAD_TYPE, image_state_statement};
use gpuaas_engine::region_image::{RegionImage, delete_region_image, find_region_image};
use gpuaas_store::{NewAuditEntry, StoredImage};
use gpuaas_types::api::{List, SiteResource};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::image::{
    ImageDeletion, ImageEvent, ImageRecordRequest, ImageState, ImageTransition, ImageView,
};
use gpuaas_types::{AuditAction, Problem, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::check;
use crate::ctx::Ctx;
use crate::http::body::{Body, Key, QueryParams, site_id};
use crate::http::problem::{ApiResult, Refusal, invalid, problem};
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, CheckedRequest, Guarded};
use crate::image;

/// Which images to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// That are of this site.
    site: Option<String>,
}

/// `GET /api/v1/images?site=`: by site and name.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(asked): QueryParams<Filter>,
) -> ApiResult<Json<List<ImageView>>> {
    let site_id = site_id(&ctx, asked.site.as_deref()).await?;
    let stored = ctx.store.images(site_id).await?;
    let (now, crowded) = (ctx.now(), crowded(&stored, ctx.now()));
    Ok(Json(List::whole(stored.into_iter().map(|one| view(one, &crowded, now)).collect())))
}

/// `GET /api/v1/images/IMAGE?site=`: with all that happened to it at the site.
pub(crate) async fn show(
    State(ctx): State<Ctx>,
    Key(text): Key,
    QueryParams(asked): QueryParams<Filter>,
) -> ApiResult<Json<ImageView>> {
    let name = image_name(&text)?;
    let Some(site) = asked.site else {
        return Err(invalid("site", "name a site: each site has its own record of an image").into());
    };
    let site = ctx.store.site_by_name(&site).await?;
    let stored = ctx.store.image(site.id, &name).await?;
    let stored = stored.ok_or_else(|| not_found(&name, &site.spec.name))?;
    Ok(Json(whole_view(&ctx, stored).await?))
}

/// `POST /api/v1/images`: an image was built, judged or uploaded. Saying so again changes nothing.
pub(crate) async fn record(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<ImageRecordRequest>,
) -> ApiResult<(StatusCode, Json<ImageView>)> {
    caller.check_site(Some(&asked.site))?;
    let name = image_name(&asked.name)?;
    let (sha256, parents) = (digest("sha256", &asked.sha256)?, parents(&asked.parents)?);
    let site = ctx.store.site_by_name(&asked.site).await?;
    let stored = ctx.store.image(site.id, &name).await?;
    let known = stored.as_ref().map(|one| (one.state, one.sha256.as_str()));
    if let Some((_, known)) = known.filter(|(_, known)| *known != sha256) {
        let detail =
            format!("custom/{name} is recorded at site {} with sha256 {known}", site.spec.name);
        return Err(problem(ProblemCode::ImageDigestDiffers).with_detail(detail).into());
    }
    let from = known.map(|(state, _)| state);
    if from == Some(asked.state) {
        let stored = stored.ok_or_else(|| problem(ProblemCode::Internal))?;
        return Ok((StatusCode::OK, Json(whole_view(&ctx, stored).await?)));
    }
    allowed(&name, from, asked.state, SaidBy::Record)?;
    let mut image = stored.unwrap_or_else(|| new_image(&site, &name, &sha256));
    image.size_bytes = i64::try_from(asked.size_bytes).unwrap_or(i64::MAX);
    image.resource_id = asked.resource_id.and_then(|id| i64::try_from(id).ok());
    if !parents.is_empty() {
        image.parents = parents;
    }
    let actor = caller.actor(&asked.actor);
    write(&ctx, image, (from, asked.state), (&actor, ""), AuditAction::ImageRecord).await?;
    let stored = ctx.store.image(site.id, &name).await?;
    let stored = stored.ok_or_else(|| not_found(&name, &site.spec.name))?;
    Ok((StatusCode::CREATED, Json(whole_view(&ctx, stored).await?)))
}

/// `POST /api/v1/images/IMAGE/transition`: an approver's word.
pub(crate) async fn transition(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(asked): Body<ImageTransition>,
) -> ApiResult<Json<ImageView>> {
    caller.check_site(Some(&asked.site))?;
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let name = image_name(&text)?;
    let site = ctx.store.site_by_name(&asked.site).await?;
    let lets_deploy = matches!(asked.to, ImageState::Approved | ImageState::Canary);
    let stored = ctx.store.image(site.id, &name).await?;
    let mut image = match (stored, lets_deploy) {
        (Some(image), true) => {
            check_region(&ctx, &image).await?;
            image
        }
        (Some(image), false) => image,
        (None, true) => adopt(&ctx, &site, &name, &actor).await?,
        (None, false) => return Err(not_found(&name, &site.spec.name).into()),
    };
    let from = state_at(image.state, image.expires_at, ctx.now());
    allowed(&name, Some(from), asked.to, SaidBy::Approver)?;
    let mut reason = reason;
    if lets_deploy {
        image::verdicts::check_approval(&ctx, &image, &asked).await?;
        if let Some(waiver) = image::verdicts::waiver(&asked) {
            reason = format!("{reason}; lint waived: {waiver}");
        }
        hold_approval(&ctx, &caller, &site, &image, (&text, &asked, &reason)).await?;
        let seconds = asked.expires_in_seconds.map(|seconds| {
            f64::from(u32::try_from(seconds).unwrap_or(u32::MAX)) * ctx.clock.factor()
        });
        image.expires_at = seconds.map(|seconds| ctx.now().plus_seconds(seconds));
    } else if !asked.lint_waiver.is_empty() {
        return Err(invalid("lint_waiver", "only allowed with an approval").into());
    } else if asked.expires_in_seconds.is_some() {
        return Err(
            invalid("expires_in_seconds", "only an image that may be deployed can expire").into()
        );
    }
    let is_canary = asked.to == ImageState::Canary;
    if !is_canary && asked.canary_nodes.is_some() {
        return Err(invalid("canary_nodes", "only allowed for a canary").into());
    }
    image.canary_nodes = is_canary.then(|| i64::from(asked.canary_nodes.unwrap_or(1).max(1)));
    let action = AuditAction::of_image(asked.to);
    write(&ctx, image, (Some(from), asked.to), (&actor, &reason), action).await?;
    let stored = ctx.store.image(site.id, &name).await?;
    let stored = stored.ok_or_else(|| not_found(&name, &site.spec.name))?;
    Ok(Json(whole_view(&ctx, stored).await?))
}

/// `POST /api/v1/images/IMAGE/delete`: revokes it, forgets it, and has MAAS delete it. Where MAAS does
/// not answer, the same request goes on.
pub(crate) async fn delete(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(asked): Body<ImageDeletion>,
) -> ApiResult<Json<ImageView>> {
    caller.check_site(Some(&asked.site))?;
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let name = image_name(&text)?;
    let site = ctx.store.site_by_name(&asked.site).await?;
    let image = match ctx.store.image(site.id, &name).await? {
        Some(mut image) => {
            let from = image.state;
            let event =
                event(&ctx, &mut image, (Some(from), ImageState::Revoked), (&actor, &reason))?;
            let entry = audit(&image, &actor, AuditAction::ImageDelete, &event);
            ctx.store.delete_image(&image, &event, entry).await?;
            image
        }
        None => {
            let deleted = ctx.store.deleted_image(site.id, &name).await?;
            deleted.ok_or_else(|| not_found(&name, &site.spec.name))?
        }
    };
    let connected = ctx.sites().get(site.id).await.map_err(|error| unreachable(&name, &error))?;
    let found = find_region_image(&connected, &name).await;
    let found = found.map_err(|error| unreachable(&name, &error))?;
    // Another file under the name is not what was asked to be deleted.
    let is_same = |one: &RegionImage| one.sha256.as_deref().is_none_or(|d| d == image.sha256);
    if let Some(found) = found.filter(is_same) {
        let deleted = delete_region_image(&connected, found.id).await;
        deleted.map_err(|error| unreachable(&name, &error))?;
    }
    Ok(Json(view(image, &BTreeMap::new(), ctx.now())))
}

fn unreachable(name: &str, error: &dyn std::fmt::Display) -> Problem {
    let detail =
        format!("custom/{name} is no longer deployed, but MAAS may still have it: {error}");
    problem(ProblemCode::MaasUnreachable)
        .with_detail(detail)
        .with_hint("retry the request once the region answers")
}

fn not_found(name: &str, site: &str) -> Problem {
    let detail = format!("site {site} has no image custom/{name}");
    problem(ProblemCode::ImageNotFound).with_detail(detail)
}

/// The name as records have it.
fn image_name(text: &str) -> Result<String, Problem> {
    let named = uploaded_name(text).ok_or_else(|| {
        let message = "MAAS synced this image; it needs no approval";
        invalid("name", message).with_hint(
            "check `approved_images` of the site to see which synced images may be deployed",
        )
    })?;
    check::image_name("name", &named)?;
    Ok(named)
}

pub(crate) fn digest(field: &str, text: &str) -> Result<String, Problem> {
    let is_digest = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_digest {
        return Err(invalid(field, "expected 64 hexadecimal digits"));
    }
    Ok(text.to_ascii_lowercase())
}

fn parents(texts: &[String]) -> Result<Vec<String>, Problem> {
    let digests = texts.iter().enumerate();
    digests.map(|(index, text)| digest(&format!("parents.{index}"), text)).collect()
}

fn allowed(
    name: &str,
    from: Option<ImageState>,
    to: ImageState,
    said_by: SaidBy,
) -> Result<(), Problem> {
    check_transition(from, to, said_by).map_err(|why| {
        problem(ProblemCode::ImageTransitionRefused).with_detail(format!("custom/{name}: {why}"))
    })
}

fn new_image(site: &SiteResource, name: &str, sha256: &str) -> StoredImage {
    StoredImage {
        site_id: site.id,
        site: site.spec.name.clone(),
        name: name.to_owned(),
        sha256: sha256.to_owned(),
        size_bytes: 0,
        resource_id: None,
        parents: Vec::new(),
        state: ImageState::Built,
        canary_nodes: None,
        expires_at: None,
        changed_by: String::new(),
        changed_at: Timestamp::EPOCH,
        reason: String::new(),
        revision: 0,
    }
}

/// What the region has under a name; not what it was told a while ago.
async fn in_region(
    ctx: &Ctx,
    site_id: gpuaas_types::SiteId,
    name: &str,
) -> ApiResult<Option<RegionImage>> {
    let away = |error: &dyn std::fmt::Display| {
        Refusal::from(problem(ProblemCode::MaasUnreachable).with_detail(error.to_string()))
    };
    let connected = ctx.sites().get(site_id).await.map_err(|error| away(&error))?;
    find_region_image(&connected, name).await.map_err(|error| away(&error))
}

/// An image that is approved is whole in the region, and the one that was recorded.
async fn check_region(ctx: &Ctx, image: &StoredImage) -> ApiResult<()> {
    let name = &image.name;
    let Some(found) = in_region(ctx, image.site_id, name).await? else {
        let detail = format!("MAAS of site {} has no image {name}", image.site);
        return Err(problem(ProblemCode::ImageNotFound).with_detail(detail).into());
    };
    if found.complete && found.sha256.as_deref() == Some(&image.sha256) {
        return Ok(());
    }
    let seen = found.sha256.unwrap_or_else(|| "none".to_owned());
    let whole = if found.complete { "" } else { " (incomplete)" };
    let detail = format!(
        "MAAS has {name} with sha256 {seen}{whole}; the record of site {} has {}",
        image.site, image.sha256
    );
    Err(problem(ProblemCode::ImageDigestDiffers).with_detail(detail).into())
}

/// Records an image that somebody else uploaded, as the region has it.
async fn adopt(ctx: &Ctx, site: &SiteResource, name: &str, actor: &str) -> ApiResult<StoredImage> {
    let found = in_region(ctx, site.id, name).await?.filter(|found| found.complete);
    let Some((found, sha256)) = found.and_then(|found| Some((found.clone(), found.sha256?))) else {
        return Err(not_found(name, &site.spec.name).into());
    };
    let mut image = new_image(site, name, &sha256);
    image.size_bytes = i64::try_from(found.size_bytes).unwrap_or(i64::MAX);
    image.resource_id = i64::try_from(found.id).ok();
    let said = (actor, "found complete in MAAS");
    write(ctx, image, (None, ImageState::Uploaded), said, AuditAction::ImageRecord).await?;
    let stored = ctx.store.image(site.id, name).await?;
    Ok(stored.ok_or_else(|| not_found(name, &site.spec.name))?)
}

/// Has an approval wait for another person, where the site wants that.
async fn hold_approval(
    ctx: &Ctx,
    caller: &Caller,
    site: &SiteResource,
    image: &StoredImage,
    (text, asked, reason): (&str, &ImageTransition, &str),
) -> ApiResult<()> {
    let body = serde_json::to_vec(asked).map_err(|_| problem(ProblemCode::Internal))?;
    let checked = CheckedRequest {
        guarded: Guarded::ApproveImage,
        kind: ApprovalKind::Image,
        site,
        node_id: None,
        summary: format!("image custom/{} as {}", image.name, asked.to),
        reason: reason.to_owned(),
        request: ApprovalRequest::post("/api/v1/images/{image}/transition", text, &body),
        target: json!({ "sha256": image.sha256, "state": image.state }),
    };
    second_person::check(ctx, caller, checked).await
}

/// The image as it is from now on, and the line and the statement of that.
fn event(
    ctx: &Ctx,
    image: &mut StoredImage,
    (from, to): (Option<ImageState>, ImageState),
    (actor, reason): (&str, &str),
) -> ApiResult<ImageEvent> {
    let at = ctx.now();
    image.state = to;
    (image.changed_by, image.changed_at) = (actor.to_owned(), at);
    image.reason = reason.to_owned();
    let word = ImageWord {
        name: &image.name,
        sha256: &image.sha256,
        site: &image.site,
        from,
        to,
        actor,
        reason,
        at,
        expires_at: image.expires_at,
        resource_id: image.resource_id,
    };
    let signed = ctx.bundle_key.sign_payload(STATEMENT_PAYLOAD_TYPE, &image_state_statement(&word));
    let statement = signed.ok().and_then(|envelope| serde_json::to_value(envelope).ok());
    let statement = statement.ok_or_else(|| problem(ProblemCode::Internal))?;
    let (actor, reason) = (actor.to_owned(), reason.to_owned());
    Ok(ImageEvent { at, actor, from, to, reason, statement })
}

fn audit(
    image: &StoredImage,
    actor: &str,
    action: AuditAction,
    event: &ImageEvent,
) -> NewAuditEntry {
    NewAuditEntry {
        actor: actor.to_owned(),
        action,
        subject: format!("custom/{}", image.name),
        detail: json!({
            "site": image.site, "sha256": image.sha256, "from": event.from, "to": event.to,
            "reason": event.reason, "expires_at": image.expires_at,
        }),
    }
}

async fn write(
    ctx: &Ctx,
    mut image: StoredImage,
    states: (Option<ImageState>, ImageState),
    (actor, reason): (&str, &str),
    action: AuditAction,
) -> ApiResult<()> {
    let event = event(ctx, &mut image, states, (actor, reason))?;
    let entry = audit(&image, actor, action, &event);
    ctx.store.put_image(&image, &event, entry).await?;
    Ok(())
}

/// Findings of images, by site and family.
fn crowded(stored: &[StoredImage], now: Timestamp) -> BTreeMap<(String, String), usize> {
    let states = stored.iter().map(|one| {
        (one.site.as_str(), one.name.as_str(), state_at(one.state, one.expires_at, now))
    });
    let owned = |((site, family), count): ((&str, &str), usize)| {
        ((site.to_owned(), family.to_owned()), count)
    };
    crowded_families(states).into_iter().map(owned).collect()
}

fn view(
    stored: StoredImage,
    crowded: &BTreeMap<(String, String), usize>,
    now: Timestamp,
) -> ImageView {
    let family = image_family(&stored.name).to_owned();
    let state = state_at(stored.state, stored.expires_at, now);
    let count = crowded.get(&(stored.site.clone(), family.clone())).filter(|_| is_live(state));
    let findings = count.map(|count| {
        format!(
            "site {} has {count} live images of family {family}, more than {MOST_LIVE_OF_FAMILY}",
            stored.site
        )
    });
    ImageView {
        name: stored.name,
        site: stored.site,
        family,
        state,
        sha256: stored.sha256,
        size_bytes: u64::try_from(stored.size_bytes).unwrap_or_default(),
        resource_id: stored.resource_id.and_then(|id| u64::try_from(id).ok()),
        parents: stored.parents,
        canary_nodes: stored.canary_nodes.and_then(|count| u32::try_from(count).ok()),
        expires_at: stored.expires_at,
        changed_by: stored.changed_by,
        changed_at: stored.changed_at,
        findings: findings.into_iter().collect(),
        lint: None,
        history: Vec::new(),
    }
}

/// An image with what happened to it.
async fn whole_view(ctx: &Ctx, stored: StoredImage) -> ApiResult<ImageView> {
    let history = ctx.store.image_events(stored.site_id, &stored.name).await?;
    let of_site = ctx.store.images(Some(stored.site_id)).await?;
    let crowded = crowded(&of_site, ctx.now());
    let lint = ctx.store.image_verdict(stored.site_id, &stored.sha256).await?;
    Ok(ImageView { history, lint, ..view(stored, &crowded, ctx.now()) })
}
