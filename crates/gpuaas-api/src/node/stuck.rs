//! Which nodes do not go on as expected or are in service with problems, and why: one call for all
//! of them.
//!
//! A node is on the list when its open run stopped, when that is past the moment by which its step
//! should have ended, or when anything else is wrong with it that is known. Everything said of it
//! is what `explain` says.

use axum::Json;
use axum::extract::State;
use gpuaas_core::node_problem::advice_of_wait;
use gpuaas_store::{ListedNode, NodeFilter, RunBrief};
use gpuaas_types::api::{Lateness, List, NodeProblem, NodeView, StuckNode};
use gpuaas_types::filter::FilterList;
use gpuaas_types::text;

use crate::ctx::Ctx;
use crate::http::body::{QueryParams, SitePageFilter, site_id};
use crate::http::pages::{PageRequest, list_filter};
use crate::http::problem::ApiResult;
use crate::node::explain;
use crate::node::facts::KnownFacts;
use crate::node::view::{is_live, mark};

/// `GET /api/v1/nodes/stuck?site=&filter=&after=&limit=`: those of a page of the list of nodes. Mostly
/// there are few of them, so a page may have no item and another page after it.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(filter): QueryParams<SitePageFilter<text::IdText>>,
) -> ApiResult<Json<List<StuckNode>>> {
    let site_id = site_id(&ctx, filter.site.as_deref()).await?;
    let page = PageRequest::parse(filter.after.as_deref(), filter.limit)?;
    let expression = list_filter(FilterList::Nodes, filter.filter.as_deref())?;
    let expression = expression.as_ref();
    let filter = NodeFilter { site_id, expression, ..NodeFilter::default() };
    let mut nodes = ctx.store.nodes_page(filter, page.query()).await?;
    let next = page.cut(&mut nodes, |listed| listed.node.id.to_string());
    nodes.retain(|listed| is_live(listed.node.state) || is_open(listed));
    let known = KnownFacts::of_nodes(&ctx, &nodes).await?;
    let now = ctx.now();
    let mut items = Vec::new();
    for node in &nodes {
        let marked = node.run.as_ref().and_then(|run| Some((mark(run, now)?, run)));
        if let Some((mark, run)) = marked {
            items.push(late(&ctx, node, mark, run).await?);
        } else if let view = known.view(&ctx, node, Vec::new())
            && let Some(first) = view.problems.first().cloned()
        {
            items.push(troubled(view, first));
        }
    }
    Ok(Json(List { items, next }))
}

fn is_open(listed: &ListedNode) -> bool {
    listed.run.as_ref().is_some_and(|run| run.status.is_open())
}

/// A node whose run is late or stopped.
async fn late(
    ctx: &Ctx,
    node: &ListedNode,
    mark: Lateness,
    run: &RunBrief,
) -> ApiResult<StuckNode> {
    let said = explain::explain_node(ctx, node).await?;
    let of_wait = || advice_of_wait(run.wait.as_ref(), &said.node.hostname, &said.node.site).0;
    Ok(StuckNode {
        owner: said.owner.unwrap_or_else(of_wait),
        node: said.node.hostname,
        site: said.node.site,
        state: said.node.state,
        mark: Some(mark),
        run: Some(run.id),
        kind: Some(run.kind),
        step: Some(run.step),
        waiting_for: said.waiting_for.unwrap_or_default(),
        since: said.since.unwrap_or(run.step_since),
        expected_by: said.expected_by,
        expected_from: said.expected_from,
        code: said.code,
        next_action: said.next_action,
        evidence: said.evidence,
        problems: said.problems,
    })
}

/// A node with problems of which no run is late.
fn troubled(view: NodeView, first: NodeProblem) -> StuckNode {
    let run = view.run.as_ref();
    StuckNode {
        node: view.hostname,
        site: view.site,
        state: view.state,
        mark: None,
        run: run.map(|run| run.id),
        kind: run.map(|run| run.kind),
        step: run.map(|run| run.step),
        waiting_for: first.text,
        code: Some(first.code),
        since: first.since,
        expected_by: None,
        expected_from: None,
        owner: first.owner,
        next_action: first.next_action,
        evidence: view.problems.iter().map(|problem| problem.text.clone()).collect(),
        problems: view.problems,
    }
}
