//! Which nodes do not go on as expected, and why: one call for all of them.
//!
//! A node is on the list when its open run stopped, or when it is past the moment by which its
//! step should have ended. Everything said of it is what `explain` says.

use axum::Json;
use axum::extract::State;
use gpuaas_store::{ListedNode, NodeFilter, RunBrief};
use gpuaas_types::api::{Lateness, List, Owner, StuckNode};
use gpuaas_types::codes::WaitCode;

use crate::body::{QueryParams, SiteFilter};
use crate::ctx::Ctx;
use crate::explain;
use crate::node_view::mark;
use crate::problem::ApiResult;

/// `GET /api/v1/nodes/stuck?site=`.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(filter): QueryParams<SiteFilter>,
) -> ApiResult<Json<List<StuckNode>>> {
    let site_id = filter.site_id(&ctx).await?;
    let open = NodeFilter { site_id, open: true, ..NodeFilter::default() };
    let now = ctx.now();
    let mut items = Vec::new();
    for node in ctx.store.list_nodes(open).await? {
        let marked = node.run.as_ref().and_then(|run| Some((mark(run, now)?, run.clone())));
        if let Some((mark, run)) = marked {
            items.push(stuck(&ctx, node, mark, &run).await?);
        }
    }
    Ok(Json(List { items }))
}

async fn stuck(
    ctx: &Ctx,
    node: ListedNode,
    mark: Lateness,
    run: &RunBrief,
) -> ApiResult<StuckNode> {
    let said = explain::explain_node(ctx, node).await?;
    Ok(StuckNode {
        node: said.node.hostname,
        site: said.node.site,
        mark,
        run: run.id,
        kind: run.kind,
        step: run.step,
        waiting_for: said.waiting_for.unwrap_or_default(),
        since: said.since.unwrap_or(run.step_since),
        expected_by: said.expected_by,
        expected_from: said.expected_from,
        owner: said.owner.unwrap_or_else(|| owner(said.code.as_deref())),
        code: said.code,
        next_action: said.next_action,
        evidence: said.evidence,
    })
}

/// Who to ask about a run that is late but has not stopped: whoever can help with what it waits
/// for. One that waits for nothing is the control plane's own matter.
fn owner(code: Option<&str>) -> Owner {
    let wait = code.and_then(WaitCode::from_code);
    wait.map_or(Owner::PlatformOperator, |code| code.row().owner)
}
