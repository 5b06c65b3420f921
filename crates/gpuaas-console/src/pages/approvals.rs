//! Requests that wait for a second person.

use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::response::Response;
use gpuaas_types::Problem;
use gpuaas_types::access::Role;
use gpuaas_types::api::List;
use gpuaas_types::approval::{ApprovalState, ApprovalView};
use serde::Deserialize;

use super::{Shell, draw, failed};
use crate::api::{Failure, Viewer};
use crate::format;
use crate::requests::{Reasoned, part};
use crate::security::redirect;
use crate::state::Console;

struct Line {
    id: String,
    kind: String,
    state: String,
    is_pending: bool,
    site: String,
    node: String,
    summary: String,
    requester: String,
    reason: String,
    requested: String,
    expires: String,
    decision: String,
    why_not: String,
}

#[derive(Template)]
#[template(path = "approvals.html")]
struct ApprovalsPage {
    shell: Shell,
    lines: Vec<Line>,
}

/// `GET /approvals`.
pub(crate) async fn list(State(console): State<Console>, viewer: Viewer) -> Response {
    let path = "/api/v1/approvals?limit=50";
    let list = match viewer.api.get::<List<ApprovalView>>(path).await {
        Ok(list) => list.items,
        Err(failure) => return failed(&viewer, console.now(), &failure),
    };
    let now = console.now();
    let shell = Shell::new(&viewer, "Approvals", "approvals", now)
        .sources("gpuaas approval list".to_owned(), path.to_owned());
    let why_not = |view: &ApprovalView| {
        if view.requested_by == viewer.access.name {
            "requesters cannot approve their own request".to_owned()
        } else if viewer.has(Role::Approver) {
            String::new()
        } else {
            "needs the role approver".to_owned()
        }
    };
    let line = |view: &ApprovalView| Line {
        id: view.id.to_string(),
        kind: view.kind.to_string(),
        state: view.state.to_string(),
        is_pending: view.state == ApprovalState::Pending,
        site: view.site.clone(),
        node: view.node.clone().unwrap_or_default(),
        summary: view.summary.clone(),
        requester: view.requested_by.clone(),
        reason: view.reason.clone(),
        requested: format!("{} ago", format::age(view.requested_at, now)),
        expires: format::time(view.expires_at),
        decision: match (&view.decided_by, &view.decision_reason) {
            (Some(person), Some(reason)) => format!("{person}: {reason}"),
            (Some(person), None) => person.clone(),
            (None, _) => String::new(),
        },
        why_not: why_not(view),
    };
    draw(&ApprovalsPage { shell, lines: list.iter().map(line).collect() })
}

#[derive(Deserialize)]
pub(crate) struct Reason {
    #[serde(default)]
    reason: String,
}

/// `POST /approvals/APPROVAL/{approve, deny}`.
pub(crate) async fn act(
    State(console): State<Console>,
    viewer: Viewer,
    Path((id, action)): Path<(String, String)>,
    Form(form): Form<Reason>,
) -> Response {
    if !["approve", "deny"].contains(&&*action) {
        let problem = Problem::new(404, "not_found", "there is no such action on an approval");
        return failed(&viewer, console.now(), &Failure::of_problem(problem));
    }
    let path = format!("/api/v1/approvals/{}/{action}", part(&id));
    let body = Reasoned { actor: &viewer.access.name, reason: form.reason.trim() };
    match viewer.api.post(&path, &body).await {
        Ok(_) => redirect("/approvals"),
        Err(failure) => failed(&viewer, console.now(), &failure),
    }
}
