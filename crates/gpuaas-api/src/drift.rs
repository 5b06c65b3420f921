//! `/api/v1/drift`: how machines differ from what their nodes remember.

use axum::Json;
use axum::extract::State;
use gpuaas_types::api::{List, NodeDrift};
use gpuaas_types::codes::NodeProblemCode;

use crate::body::{QueryParams, SiteFilter};
use crate::ctx::Ctx;
use crate::problem::ApiResult;

/// `GET /api/v1/drift?site=`.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(filter): QueryParams<SiteFilter>,
) -> ApiResult<Json<List<NodeDrift>>> {
    let listed = ctx.store.list_drift(filter.site_id(&ctx).await?).await?;
    let items = listed
        .into_iter()
        .map(|listed| {
            let row = NodeProblemCode::of_drift(listed.drift.kind).row();
            NodeDrift {
                next_action: row.advice(&listed.hostname, &listed.site),
                node: listed.hostname,
                site: listed.site,
                drift: listed.drift,
            }
        })
        .collect();
    Ok(Json(List { items }))
}
