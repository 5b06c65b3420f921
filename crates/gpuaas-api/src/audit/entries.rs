//! `/api/v1/audit`: who did what.

use axum::Json;
use axum::extract::State;
use gpuaas_core::audit_chain::value_digest;
use gpuaas_store::{AuditChainRows, AuditEntry, AuditFilter};
use gpuaas_types::Timestamp;
use gpuaas_types::api::List;
use gpuaas_types::audit::{AuditChainPage, AuditItem};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::FilterList;
use gpuaas_types::text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ctx::Ctx;
use crate::http::body::QueryParams;
use crate::http::pages::{PageRequest, list_filter};
use crate::http::problem::{ApiResult, problem};
use crate::node::view::find_node;

/// Which entries to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// About the site that has or had this name, its nodes or its batches.
    site: Option<String>,
    /// About the node that answers to this, or its runs.
    node: Option<String>,
    /// By this actor.
    actor: Option<String>,
    /// Of this moment or later.
    #[schemars(with = "Option<text::TimestampText>")]
    since: Option<String>,
    /// Filter expression, such as `action~node. result!=done`.
    #[schemars(length(max = 2000))]
    filter: Option<String>,
    /// After this entry, in the order of the list.
    #[schemars(with = "Option<text::NumberText>")]
    after: Option<String>,
    /// Most items.
    #[schemars(range(min = 1))]
    limit: Option<u32>,
}

/// `GET /api/v1/audit?site=&node=&actor=&since=&filter=&after=&limit=`: the newest first.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(asked): QueryParams<Filter>,
) -> ApiResult<Json<List<AuditItem>>> {
    let page = PageRequest::parse(asked.after.as_deref(), asked.limit)?;
    let since = asked.since.map(|text| {
        Timestamp::from_rfc3339(&text).ok_or_else(|| {
            problem(ProblemCode::InvalidQuery)
                .with_detail(format!("invalid since {text:?}: expected an RFC 3339 time"))
                .with_hint("write it as 2026-11-23T14:05:00Z")
        })
    });
    let node_id = match &asked.node {
        Some(text) => Some(find_node(&ctx, text).await?),
        None => None,
    };
    let expression = list_filter(FilterList::Audit, asked.filter.as_deref())?;
    let (site, actor, since) = (asked.site, asked.actor, since.transpose()?);
    let filter = AuditFilter { node_id, site, actor, since, expression };
    let entries = ctx.store.audit_page(filter, page.query()).await?;
    Ok(Json(page.list(entries, |entry| entry.id.to_string(), list_item)))
}

/// Which rows of the chain to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChainQuery {
    /// After this row of the chain.
    #[schemars(with = "Option<text::NumberText>")]
    after: Option<String>,
    /// Most rows.
    #[schemars(range(min = 1))]
    limit: Option<u32>,
}

/// `GET /api/v1/audit/chain?after=&limit=`: the rows of the log as they follow on each other, for
/// whoever verifies or exports them.
pub(crate) async fn chain(
    State(ctx): State<Ctx>,
    QueryParams(asked): QueryParams<ChainQuery>,
) -> ApiResult<Json<AuditChainPage>> {
    let page = PageRequest::parse(asked.after.as_deref(), asked.limit)?;
    let AuditChainRows { mut items, head, anchor } = ctx.store.audit_chain(page.query()).await?;
    let next = page.cut(&mut items, |row| row.seq.to_string());
    let strays = match next {
        Some(_) => Vec::new(),
        None => ctx.store.unchained_audit_entries().await?,
    };
    let retention_seconds = ctx.settings.retention_seconds;
    let oldest_at = ctx.store.oldest_audit_entry().await?;
    Ok(Json(AuditChainPage { items, next, head, anchor, strays, retention_seconds, oldest_at }))
}

/// SHA-256 of a resource as it is shown, hex: what an entry says of it before and after a change.
pub(crate) fn spec_digest<T: Serialize>(spec: &T) -> String {
    value_digest(&serde_json::to_value(spec).unwrap_or_default())
}

fn list_item(stored: AuditEntry) -> AuditItem {
    let AuditEntry { id, at, entry, hostname, site, origin, result, before, after } = stored;
    AuditItem {
        role: origin.role,
        address: origin.address,
        request_id: origin.request_id,
        result,
        before,
        after,
        id,
        at,
        actor: entry.actor,
        action: entry.action,
        subject: entry.subject,
        hostname,
        site,
        detail: entry.detail,
    }
}
