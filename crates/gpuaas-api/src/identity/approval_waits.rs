//! What of a node waits for another person, for whoever asks why nothing happens.

use gpuaas_store::{ApprovalFilter, Page, StoredApproval};
use gpuaas_types::NodeId;
use gpuaas_types::api::ParkAction;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::explain::Explanation;

use crate::ctx::Ctx;
use crate::http::problem::ApiResult;

/// Requests that an explanation names.
const NAMED: u32 = 5;

/// The requests on a node that another person may decide now.
pub(crate) async fn of_node(ctx: &Ctx, node_id: NodeId) -> ApiResult<Vec<StoredApproval>> {
    let filter = ApprovalFilter { site_id: None, node_id: Some(node_id), open_at: Some(ctx.now()) };
    Ok(ctx.store.approvals(filter, Page::first(NAMED)).await?)
}

/// Adds them to what is said of the node. Where no run of it is open, they are what it waits for.
pub(crate) fn add(said: &mut Explanation, waiting: &[StoredApproval]) {
    let Some(first) = waiting.first() else { return };
    let lines: Vec<String> = waiting.iter().map(line).collect();
    // The last line says what to do next.
    let end = said.text.len().saturating_sub(1);
    said.text.splice(end..end, lines.iter().cloned());
    said.evidence.extend(lines);
    if said.run.as_ref().is_some_and(|run| run.status.is_open()) {
        return;
    }
    said.waiting_for = Some(format!("a second approver to decide on {}", first.summary));
    said.code = Some(ProblemCode::SecondPersonNeeded.as_str().to_owned());
    said.since = Some(first.requested_at);
    said.deadline = Some(first.expires_at);
    let command = format!("gpuaas approval approve {} --reason WHY", first.id);
    let who = &first.requester.name;
    said.next_action = format!("ask an approver other than {who} to run `{command}`");
    said.actions = vec![ParkAction { command, needs: format!("an approver other than {who}") }];
    if let Some(last) = said.text.last_mut() {
        *last = format!("Next: {}.", said.next_action);
    }
}

fn line(one: &StoredApproval) -> String {
    let (who, expires_at, id) = (&one.requester.name, one.expires_at, one.id);
    format!(
        "Pending approval {id}: {}, requested by {who}; it expires at {expires_at}.",
        one.summary
    )
}
