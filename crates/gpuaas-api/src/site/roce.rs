//! `/api/v1/roce-assignments`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_store::{NewAuditEntry, StoreError};
use gpuaas_types::api::{List, RoceResource};
use gpuaas_types::change::RoceChange;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::FilterList;
use gpuaas_types::spec::RoceAssignmentSpec;
use gpuaas_types::text;
use gpuaas_types::{AuditAction, RoceAssignmentId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::audit::entries::spec_digest;
use crate::check;
use crate::ctx::Ctx;
use crate::http::body::{Body, QueryParams, site_id};
use crate::http::pages::{PageRequest, list_filter};
use crate::http::problem::{ApiResult, invalid, problem};
use crate::identity::caller::Caller;

/// `POST /api/v1/roce-assignments`.
pub(crate) async fn create(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<RoceAssignmentSpec>,
) -> ApiResult<(StatusCode, Json<RoceResource>)> {
    caller.check_site(Some(&asked.site))?;
    let site = ctx.store.site_by_name(&asked.site).await?;
    let spec = check::roce(asked)?;
    let now = ctx.now();
    let id = RoceAssignmentId::new(&*ctx.ids, now);
    let audit =
        NewAuditEntry::new(caller.name(), AuditAction::RoceAdd, id.to_string(), json!(spec));
    let made = ctx.store.add_roce_assignment(now, id, site.id, spec, audit).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Which assignments to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Of this site.
    site: Option<String>,
    /// Of this host.
    hostname: Option<String>,
    /// Filter expression, such as `subnet=10.8.0.0/16`.
    #[schemars(length(max = 2000))]
    filter: Option<String>,
    /// After this one, in the order of the list.
    #[schemars(with = "Option<text::FilledText>")]
    after: Option<String>,
    /// Most items.
    #[schemars(range(min = 1))]
    limit: Option<u32>,
}

/// `GET /api/v1/roce-assignments?site=&hostname=&filter=&after=&limit=`: by site, host and interface.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(filter): QueryParams<Filter>,
) -> ApiResult<Json<List<RoceResource>>> {
    site_id(&ctx, filter.site.as_deref()).await?;
    let page = PageRequest::<String>::parse(filter.after.as_deref(), filter.limit)?;
    let hostname = filter.hostname.map(|name| name.to_ascii_lowercase());
    let asked = list_filter(FilterList::Roce, filter.filter.as_deref())?;
    let mut items = ctx.store.list_roce_assignments(asked.as_ref()).await?;
    items.retain(|item| {
        filter.site.as_ref().is_none_or(|site| *site == item.spec.site)
            && hostname.as_ref().is_none_or(|name| *name == item.spec.hostname)
    });
    let page = page.of_whole(items, |item| {
        format!("{},{},{}", item.spec.site, item.spec.hostname, item.spec.interface)
    });
    Ok(Json(page))
}

/// `POST /api/v1/roce-assignments/change`: a run that is parked for it reads it when it is resumed.
pub(crate) async fn change(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<RoceChange>,
) -> ApiResult<Json<RoceResource>> {
    caller.check_site(Some(&asked.site))?;
    let site = ctx.store.site_by_name(&asked.site).await?;
    let hostname = asked.hostname.trim().to_ascii_lowercase();
    let interface = check::interface(&asked.interface);
    let of_host = ctx.store.roce_assignments_of_host(site.id, &hostname).await?;
    let missing = || {
        let detail =
            format!("{interface} of {hostname} at site {} has no fabric address", asked.site);
        problem(ProblemCode::RoceNotFound).with_detail(detail)
    };
    let known = of_host.into_iter().find(|known| known.spec.interface == interface);
    let known = known.ok_or_else(missing)?;
    let before = known.spec;
    let wanted = check::roce(RoceAssignmentSpec {
        interface: asked.to_interface.clone().unwrap_or_else(|| before.interface.clone()),
        subnet_cidr: asked.subnet_cidr.clone().unwrap_or_else(|| before.subnet_cidr.clone()),
        ip_address: asked.ip_address.clone().unwrap_or_else(|| before.ip_address.clone()),
        ..before.clone()
    })?;
    if wanted == before {
        return Err(
            invalid("ip_address", "expected a value that differs from the assignment").into()
        );
    }
    let detail = json!({
        "before": before, "after": wanted,
        "before_digest": spec_digest(&before), "after_digest": spec_digest(&wanted),
    });
    let audit =
        NewAuditEntry::new(caller.name(), AuditAction::RoceChange, known.id.to_string(), detail);
    let changed = ctx.store.change_roce_assignment(ctx.now(), site.id, &interface, wanted, audit);
    match changed.await {
        Ok(changed) => Ok(Json(changed)),
        Err(StoreError::NotFound { .. }) => Err(missing().into()),
        Err(error) => Err(error.into()),
    }
}
