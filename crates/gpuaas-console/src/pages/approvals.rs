//! Requests that wait for a second person.

use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::response::Response;
use gpuaas_types::api::List;
use gpuaas_types::approval::{ApprovalState, ApprovalView};
use serde::Deserialize;

use super::{Shell, draw, failed, no_such_action, send_form};
use crate::actions::{APPROVAL_APPROVE, APPROVAL_DENY, Button};
use crate::api::Viewer;
use crate::format;
use crate::requests::{Reasoned, part};
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
    buttons: Vec<Button>,
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
    if viewer.wants_json() {
        return super::json(&list);
    }
    let now = console.now();
    let shell = Shell::new(&viewer, "Approvals", "approvals", now)
        .sources("gpuaas approval list".to_owned(), path.to_owned());
    let buttons = |view: &ApprovalView| {
        let is_own = view.requested_by == viewer.access.name;
        let obstacle = if is_own { "requesters cannot approve their own request" } else { "" };
        let href = |verb: &str| format!("/approvals/{}/{verb}", view.id);
        vec![
            Button::new(APPROVAL_APPROVE, href("approve"), &viewer, Some(&view.site), obstacle),
            Button::new(APPROVAL_DENY, href("deny"), &viewer, Some(&view.site), obstacle),
        ]
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
        buttons: buttons(view),
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
        return no_such_action(&console, &viewer);
    }
    let path = format!("/api/v1/approvals/{}/{action}", part(&id));
    let body = Reasoned { actor: &viewer.access.name, reason: form.reason.trim() };
    send_form(&console, &viewer, &path, &body, "/approvals").await
}
