//! Who did what, to which, with what effect.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use gpuaas_types::audit::AuditItem;
use serde::Deserialize;

use super::{Shell, draw, list_or_failure};
use crate::api::{Failure, Viewer};
use crate::format;
use crate::requests::{PER_PAGE, shell_word, with_query};
use crate::state::Console;

#[derive(Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    filter: String,
    #[serde(default)]
    after: String,
}

struct Line {
    id: i64,
    at: String,
    actor: String,
    action: String,
    subject: String,
    class: &'static str,
    result: String,
    reason: String,
    address: String,
    request_id: String,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    shell: Shell,
    filter: String,
    lines: Vec<Line>,
    next: Option<String>,
    failure: Option<Failure>,
}

/// `GET /audit`.
pub(crate) async fn show(
    State(console): State<Console>,
    viewer: Viewer,
    Query(asked): Query<Asked>,
) -> Response {
    let limit = PER_PAGE.to_string();
    let pairs = [("filter", &*asked.filter), ("after", &*asked.after), ("limit", &*limit)];
    let path = with_query("/api/v1/audit", &pairs);
    let now = console.now();
    let (list, failure) = match list_or_failure::<AuditItem>(&viewer, now, &path).await {
        Ok(answer) => answer,
        Err(response) => return response,
    };
    if viewer.wants_json() {
        return super::json(&list);
    }
    let cli = match &*asked.filter {
        "" => "gpuaas audit list".to_owned(),
        filter => format!("gpuaas audit list --filter {}", shell_word(filter)),
    };
    let shell = Shell::new(&viewer, "Audit", "audit", now).sources(cli, path);
    draw(&AuditPage {
        shell,
        lines: list.items.into_iter().map(line).collect(),
        next: list
            .next
            .map(|after| with_query("/audit", &[("filter", &asked.filter), ("after", &after)])),
        filter: asked.filter,
        failure,
    })
}

fn line(item: AuditItem) -> Line {
    let is_done = matches!(&*item.result, "done" | "");
    let reason = item.detail.get("reason").and_then(|reason| reason.as_str());
    Line {
        id: item.id,
        at: format::time(item.at),
        actor: item.actor,
        action: item.action,
        reason: reason.unwrap_or_default().to_owned(),
        subject: item.hostname.unwrap_or(item.subject),
        class: if is_done { "" } else { "bad" },
        result: item.result,
        address: item.address.unwrap_or_default(),
        request_id: item.request_id.unwrap_or_default(),
    }
}
