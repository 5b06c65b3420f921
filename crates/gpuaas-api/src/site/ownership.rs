//! Which control plane changes the machines of a site's region.

use axum::Json;
use axum::extract::State;
use gpuaas_engine::ownership::{TakeControlError, other_control_plane, take_control};
use gpuaas_engine::{SiteKeyError, site_key};
use gpuaas_store::{ExposeSecret as _, NewAuditEntry, StoreError};
use gpuaas_types::api::SiteResource;
use gpuaas_types::change::{ControlPlan, ControlRequest};
use gpuaas_types::codes::{TimelineCode, WaitCode};
use gpuaas_types::{AuditAction, Timestamp};
use serde_json::json;

use crate::ctx::Ctx;
use crate::http::body::{Body, Key};
use crate::http::problem::{ApiResult, Refusal};
use crate::identity::caller::Caller;
use crate::site::probe;

/// Tries to take control while the control plane's own watcher writes the mark.
const MAX_TRIES: u32 = 5;
/// Seconds for which a region that was restored from a backup is not called healthy.
const PAST_SECONDS: f64 = 86_400.0;

/// `POST /api/v1/sites/NAME/take-control`.
pub(crate) async fn take(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(name): Key,
    Body(asked): Body<ControlRequest>,
) -> ApiResult<Json<ControlPlan>> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let site = ctx.store.site_by_name(&name).await?;
    let key = site_key(&ctx.store, &*ctx.connect, &site).await.map_err(|error| match error {
        SiteKeyError::Kept(error) => Refusal::from(probe::key_problem(&error)),
        SiteKeyError::Store(error) => error.into(),
    })?;
    let client = probe::connect(&ctx, &site.spec, key.expose_secret())?;
    let other = other_control_plane(&ctx.store, &client, site.id).await.map_err(failure)?;
    let follows = match &other {
        Some(other) => vec![
            format!(
                "control plane {} manages the region; it wrote its mark at {}. It stops changing \
                 machines once it reads the new mark, which it checks once a minute",
                other.plane, other.at
            ),
            "its runs wait; operations that they already started continue in MAAS".to_owned(),
            format!("runs of {name} that wait for control resume and change machines"),
        ],
        None => vec![
            "the region's mark names no other control plane; this one manages its machines"
                .to_owned(),
        ],
    };
    let from = other.as_ref().map(|other| &other.plane);
    let detail = json!({ "reason": reason, "from": from });
    let audit = NewAuditEntry::new(actor, AuditAction::SiteTakeControl, &name, detail);
    let mut taken = false;
    let mut tries = 0;
    while !asked.dry_run && !taken {
        tries += 1;
        let of_site = (site.id, site.status.region.as_str());
        let done = take_control(&ctx.store, &client, &*ctx.ids, of_site, ctx.now(), &audit).await;
        taken = done.map_err(failure)?;
        if !taken && tries == MAX_TRIES {
            let detail = "the stored copy of the region's mark kept changing".to_owned();
            return Err(StoreError::Unavailable { detail }.into());
        }
    }
    Ok(Json(ControlPlan { name, follows, taken }))
}

fn failure(error: TakeControlError) -> Refusal {
    match error {
        TakeControlError::Maas(error) => probe::explain_call(&error).into(),
        TakeControlError::Store(error) => error.into(),
    }
}

/// A site as operators see it: one that another control plane has, or that was restored from a
/// backup lately, is not called healthy.
pub(crate) fn shown(mut site: SiteResource, now: Timestamp) -> SiteResource {
    let status = &mut site.status;
    if let Some(control) = &status.control {
        status.health.clone_from(&control.code);
        let advice = WaitCode::from_code(&control.code).map_or("", |code| code.row().next_action);
        status.health_detail =
            format!("{}; {}", control.text, advice.replace("SITE", &site.spec.name));
        return site;
    }
    let lately = |at| now.seconds_since(at) < PAST_SECONDS;
    if let Some(past) = status.past.as_ref().filter(|past| lately(past.at) && status.health == "ok")
    {
        status.health = TimelineCode::RegionRewound.into();
        status.health_detail = past.to_string();
    }
    site
}
