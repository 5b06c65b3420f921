//! `/api/v1/roce-assignments`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_types::RoceAssignmentId;
use gpuaas_types::api::{List, RoceResource};
use gpuaas_types::spec::RoceAssignmentSpec;
use serde::Deserialize;
use serde_json::json;

use crate::body::{Body, QueryParams, site_id};
use crate::check;
use crate::ctx::Ctx;
use crate::problem::ApiResult;

/// `POST /api/v1/roce-assignments`.
pub(crate) async fn create(
    State(ctx): State<Ctx>,
    Body(asked): Body<RoceAssignmentSpec>,
) -> ApiResult<(StatusCode, Json<RoceResource>)> {
    let spec = check::roce(asked)?;
    let site = ctx.store.site_by_name(&spec.site).await?;
    let now = ctx.now();
    let id = RoceAssignmentId::new(&*ctx.ids, now);
    let made = ctx.store.add_roce_assignment(now, id, site.id, spec).await?;
    ctx.audit("roce.add", &made.id.to_string(), json!(made.spec)).await;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Which assignments to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Of this site.
    site: Option<String>,
    /// Of this host.
    hostname: Option<String>,
}

/// `GET /api/v1/roce-assignments?site=&hostname=`.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(filter): QueryParams<Filter>,
) -> ApiResult<Json<List<RoceResource>>> {
    site_id(&ctx, filter.site.as_deref()).await?;
    let hostname = filter.hostname.map(|name| name.to_ascii_lowercase());
    let mut items = ctx.store.roce_assignments().await?;
    items.retain(|item| {
        filter.site.as_ref().is_none_or(|site| *site == item.spec.site)
            && hostname.as_ref().is_none_or(|name| *name == item.spec.hostname)
    });
    Ok(Json(List { items }))
}
