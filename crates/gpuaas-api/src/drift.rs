//! `/api/v1/drift`: how machines differ from what their nodes remember.

use axum::Json;
use axum::extract::State;
use gpuaas_core::drift::next_action;
use gpuaas_types::api::{List, NodeDrift};
use serde::Deserialize;

use crate::Ctx;
use crate::body::Asked;
use crate::problem::Answer;

/// Which nodes to look at.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Of this site.
    site: Option<String>,
}

/// `GET /api/v1/drift?site=`.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    Asked(filter): Asked<Filter>,
) -> Answer<Json<List<NodeDrift>>> {
    let site_id = match &filter.site {
        Some(name) => Some(ctx.store.site_by_name(name).await?.id),
        None => None,
    };
    let listed = ctx.store.list_drift(site_id).await?;
    let items = listed
        .into_iter()
        .map(|listed| NodeDrift {
            node: listed.hostname,
            site: listed.site,
            next_action: next_action(listed.drift.kind).to_owned(),
            drift: listed.drift,
        })
        .collect();
    Ok(Json(List { items }))
}
