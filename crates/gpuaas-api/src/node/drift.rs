//! `/api/v1/drift`: how machines differ from what their nodes remember.

use axum::Json;
use axum::extract::State;
use gpuaas_core::drift::{AdviceSubject, advice};
use gpuaas_types::api::{List, NodeDrift};
use gpuaas_types::filter::FilterList;
use gpuaas_types::text;

use crate::ctx::Ctx;
use crate::http::body::{QueryParams, SitePageFilter, site_id};
use crate::http::pages::{PageRequest, list_filter};
use crate::http::problem::ApiResult;

/// `GET /api/v1/drift?site=&filter=&after=&limit=`: by hostname.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(filter): QueryParams<SitePageFilter<text::FilledText>>,
) -> ApiResult<Json<List<NodeDrift>>> {
    let site_id = site_id(&ctx, filter.site.as_deref()).await?;
    let page = PageRequest::<String>::parse(filter.after.as_deref(), filter.limit)?;
    let asked = list_filter(FilterList::Drift, filter.filter.as_deref())?;
    let listed = ctx.store.list_drift(site_id, asked.as_ref()).await?;
    let page = page.of_whole(listed, |listed| {
        format!("{},{},{}", listed.hostname, listed.site, listed.drift.kind)
    });
    let items = page
        .items
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
    Ok(Json(List { items, next: page.next }))
}
