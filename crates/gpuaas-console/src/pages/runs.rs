//! Runs: the list, one run, and what people do with it.

use askama::Template;
use axum::Form;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use gpuaas_types::api::RunView;
use gpuaas_types::change::RunListItem;
use serde::Deserialize;

use super::node::{HistoryLine, history_line, run_buttons};
use super::{Shell, draw, failed, list_or_failure, name_and_form, no_such_action, send_form};
use crate::actions::Button;
use crate::api::{Failure, Viewer};
use crate::format::{self, Mark};
use crate::requests::{PER_PAGE, Reasoned, part, shell_word, with_query};
use crate::security::own_path;
use crate::state::Console;
use crate::waterfall::{self, Waterfall};

/// Lines of a run's history that the page shows, its last ones.
const TIMELINE_LINES: usize = 200;

/// Which runs to show.
#[derive(Deserialize, Default)]
pub(crate) struct Asked {
    #[serde(default)]
    filter: String,
    #[serde(default)]
    after: String,
}

struct Line {
    href: String,
    node_href: String,
    hostname: String,
    site: String,
    kind: String,
    step: String,
    mark: Mark,
    waits_for: String,
    created: String,
    took: String,
}

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage {
    shell: Shell,
    filter: String,
    lines: Vec<Line>,
    next: Option<String>,
    failure: Option<Failure>,
    filters: &'static [(&'static str, &'static str)],
}

const FILTERS: &[(&str, &str)] = &[
    ("all", ""),
    ("parked", "status=parked"),
    ("in progress", "status=running,waiting"),
    ("failed", "status=failed"),
    ("succeeded", "status=succeeded"),
];

/// `GET /runs`.
pub(crate) async fn list(
    State(console): State<Console>,
    viewer: Viewer,
    Query(asked): Query<Asked>,
) -> Response {
    let limit = PER_PAGE.to_string();
    let pairs = [("filter", &*asked.filter), ("after", &*asked.after), ("limit", &*limit)];
    let path = with_query("/api/v1/runs", &pairs);
    let now = console.now();
    let (runs, failure) = match list_or_failure::<RunListItem>(&viewer, now, &path).await {
        Ok(answer) => answer,
        Err(response) => return response,
    };
    if viewer.wants_json() {
        return super::json(&runs);
    }
    let cli = match &*asked.filter {
        "" => "gpuaas run list".to_owned(),
        filter => format!("gpuaas run list --filter {}", shell_word(filter)),
    };
    let next =
        runs.next.map(|after| with_query("/runs", &[("filter", &asked.filter), ("after", &after)]));
    let line = |run: &RunListItem| Line {
        href: format!("/runs/{}", run.id),
        node_href: format!("/nodes/{}", part(&run.hostname)),
        hostname: run.hostname.clone(),
        site: run.site.clone(),
        kind: run.kind.to_string(),
        step: run.step.to_string(),
        mark: format::run_mark(run.status),
        waits_for: run.waiting_for.clone().unwrap_or_default(),
        created: format::time(run.created_at),
        took: format::duration(run.ended_at.unwrap_or(now).seconds_since(run.created_at)),
    };
    let lines = runs.items.iter().map(line).collect();
    let shell = Shell::new(&viewer, "Runs", "runs", now).sources(cli, path);
    draw(&RunsPage { shell, filter: asked.filter, lines, next, failure, filters: FILTERS })
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    shell: Shell,
    run: RunView,
    mark: Mark,
    created: String,
    waterfall: Waterfall,
    buckets: Vec<(String, String)>,
    actions: Vec<Button>,
    history: Vec<HistoryLine>,
    is_cut: bool,
}

/// `GET /runs/RUN`.
pub(crate) async fn show(
    State(console): State<Console>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Response {
    let (name, as_json) = name_and_form(&name);
    let path = format!("/api/v1/runs/{}", part(name));
    let run = match viewer.api.get::<RunView>(&path).await {
        Ok(run) => run,
        Err(failure) => return failed(&viewer, console.now(), &failure),
    };
    if as_json {
        return super::json(&run);
    }
    let title = format!("{} {}", run.hostname, run.kind);
    let shell = Shell::new(&viewer, &title, "runs", console.now())
        .sources(format!("gpuaas run show {}", run.id), path);
    let order = gpuaas_types::Bucket::ALL.iter();
    let buckets = order.filter_map(|bucket| {
        let seconds = *run.buckets.get(bucket.as_str())?;
        (seconds > 0.0).then(|| (bucket.as_str().replace('_', " "), format::duration(seconds)))
    });
    draw(&RunPage {
        mark: format::run_mark(run.status),
        created: format::time(run.created_at),
        waterfall: waterfall::layout(&run),
        buckets: buckets.collect(),
        actions: run_buttons(&viewer, &run, None),
        history: run.timeline.iter().rev().take(TIMELINE_LINES).map(history_line).collect(),
        is_cut: run.timeline.len() > TIMELINE_LINES,
        shell,
        run,
    })
}

/// A form with a reason.
#[derive(Deserialize)]
pub(crate) struct Reason {
    #[serde(default)]
    reason: String,
    /// Page to go back to.
    #[serde(default)]
    back: String,
}

/// `POST /runs/RUN/{resume, retry, cancel}`.
pub(crate) async fn act(
    State(console): State<Console>,
    viewer: Viewer,
    Path((run, action)): Path<(String, String)>,
    Form(form): Form<Reason>,
) -> Response {
    if !["resume", "retry", "cancel"].contains(&&*action) {
        return no_such_action(&console, &viewer);
    }
    let path = format!("/api/v1/runs/{}/{action}", part(&run));
    let body = Reasoned { actor: &viewer.access.name, reason: form.reason.trim() };
    send_form(&console, &viewer, &path, &body, own_path(Some(&form.back))).await
}
