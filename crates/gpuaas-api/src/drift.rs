//! `/api/v1/drift`: how machines differ from what their nodes remember.

use axum::Json;
use axum::extract::State;
use gpuaas_core::drift::{AdviceSubject, advice};
use gpuaas_types::api::{List, NodeDrift};

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
            let subject = AdviceSubject {
                node: &listed.hostname,
                site: &listed.site,
                system_id: &listed.system_id,
                expected: &listed.drift.expected,
                found: &listed.drift.found,
            };
            NodeDrift {
                next_action: advice(listed.drift.kind, &subject),
                node: listed.hostname,
                site: listed.site,
                drift: listed.drift,
            }
        })
        .collect();
    Ok(Json(List { items }))
}
