//! One node: what it waits for, where its time went, its gates and its history.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use gpuaas_types::api::{GateView, List, NodeView, RunView};
use gpuaas_types::change::RunListItem;
use gpuaas_types::explain::Explanation;
use gpuaas_types::{RunStatus, Timestamp};
use serde_json::json;

use super::{Shell, draw, failed, name_and_form};
use crate::actions::{Button, RUN_CANCEL, RUN_RESUME, RUN_RETRY};
use crate::api::{Failure, Viewer};
use crate::format::{self, Mark};
use crate::requests::{part, shell_word, with_query};
use crate::state::Console;
use crate::waterfall::{self, Waterfall};

/// Lines of history that the page shows; the rest is a link away.
const TIMELINE_LINES: usize = 60;

/// A command that may help, as `explain` gives it.
pub(crate) struct Advice {
    pub(crate) command: String,
    pub(crate) needs: String,
}

/// A line of a history.
pub(crate) struct HistoryLine {
    pub(crate) at: String,
    pub(crate) source: &'static str,
    pub(crate) code: String,
    pub(crate) text: String,
}

struct Gate {
    name: String,
    mark: Mark,
    text: String,
    said: String,
    failing: Vec<(String, String)>,
}

struct RunLine {
    href: String,
    kind: String,
    mark: Mark,
    created: String,
    took: String,
}

#[derive(Template)]
#[template(path = "node.html")]
struct NodePage {
    shell: Shell,
    node: NodeView,
    mark: Mark,
    maas: String,
    agent: String,
    explain: Result<Explanation, Failure>,
    advice: Vec<Advice>,
    owner: &'static str,
    run: Option<RunView>,
    run_mark: Mark,
    waterfall: Option<Waterfall>,
    actions: Vec<Button>,
    gates: Vec<Gate>,
    runs: Vec<RunLine>,
    history: Vec<HistoryLine>,
    is_cut: bool,
}

/// `GET /nodes/NODE`.
pub(crate) async fn show(
    State(console): State<Console>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Response {
    let (name, as_json) = name_and_form(&name);
    let api = &viewer.api;
    let path = format!("/api/v1/nodes/{}", part(name));
    let node = match api.get::<NodeView>(&path).await {
        Ok(node) => node,
        Err(failure) => return failed(&viewer, console.now(), &failure),
    };
    let explain = api.get::<Explanation>(&format!("{path}/explain")).await;
    let run = match &node.run {
        Some(run) => api.get::<RunView>(&format!("/api/v1/runs/{}", run.id)).await.ok(),
        None => None,
    };
    if as_json {
        return super::json(&json!({
            "node": node, "explain": explain.ok(), "run": run,
        }));
    }
    let runs = with_query("/api/v1/runs", &[("node", &node.id.to_string()), ("limit", "10")]);
    let runs = api.get::<List<RunListItem>>(&runs).await.map(|list| list.items);
    let now = console.now();
    let shell = Shell::new(&viewer, &node.hostname, "nodes", now).of_node(&node.hostname).sources(
        format!("gpuaas explain {}", shell_word(&node.hostname)),
        format!("{path}/explain"),
    );
    draw(&page(shell, &viewer, node, explain, run, &runs.unwrap_or_default()))
}

fn page(
    shell: Shell,
    viewer: &Viewer,
    node: NodeView,
    explain: Result<Explanation, Failure>,
    run: Option<RunView>,
    runs: &[RunListItem],
) -> NodePage {
    let now = shell.as_of;
    let said = explain.as_ref().ok();
    let advice = said.map(|said| {
        said.actions
            .iter()
            .map(|action| Advice { command: action.command.clone(), needs: action.needs.clone() })
            .collect()
    });
    let history = node.timeline.iter().rev().take(TIMELINE_LINES);
    NodePage {
        mark: format::node_mark(node.state, node.mark),
        maas: maas(&node),
        agent: agent(&node),
        advice: advice.unwrap_or_default(),
        owner: said.and_then(|said| said.owner).map_or("nobody", format::owner),
        run_mark: run
            .as_ref()
            .map_or(format::run_mark(RunStatus::Waiting), |run| format::run_mark(run.status)),
        waterfall: run.as_ref().map(waterfall::layout),
        actions: run
            .as_ref()
            .map(|run| run_buttons(viewer, run, Some(&node.site)))
            .unwrap_or_default(),
        gates: node.gates.iter().map(|gate| gate_line(gate, now)).collect(),
        runs: runs.iter().map(|run| run_line(run, now)).collect(),
        history: history.map(history_line).collect(),
        is_cut: node.timeline_is_cut || node.timeline.len() > TIMELINE_LINES,
        explain,
        run,
        shell,
        node,
    }
}

fn maas(node: &NodeView) -> String {
    let status = node.maas.status_name.as_deref().unwrap_or("nothing known yet");
    match node.maas.observed_seconds_ago {
        Some(age) => format!("{status}, {} ago", format::duration(age)),
        None => status.to_owned(),
    }
}

fn agent(node: &NodeView) -> String {
    match node.connectivity.heard_seconds_ago {
        Some(age) => {
            format!("{}, last heartbeat {} ago", node.connectivity.state, format::duration(age))
        }
        None => "no heartbeat yet".to_owned(),
    }
}

fn gate_line(gate: &GateView, now: Timestamp) -> Gate {
    let mark = match (gate.open, gate.said_at) {
        (true, _) => Mark { shape: "✓", word: "open", class: "ok" },
        (false, Some(_)) => Mark { shape: "✗", word: "closed", class: "bad" },
        (false, None) => Mark { shape: "?", word: "unknown", class: "unknown" },
    };
    Gate {
        name: gate.gate.as_str().replace('_', " "),
        mark,
        text: gate.text.clone(),
        said: gate.said_at.map(|at| format!("{} ago", format::age(at, now))).unwrap_or_default(),
        failing: gate
            .failing
            .iter()
            .map(|check| {
                (check.name.clone(), format!("{}; expected {}", check.seen, check.expected))
            })
            .collect(),
    }
}

fn run_line(run: &RunListItem, now: Timestamp) -> RunLine {
    RunLine {
        href: format!("/runs/{}", run.id),
        kind: run.kind.to_string(),
        mark: format::run_mark(run.status),
        created: format::time(run.created_at),
        took: format::duration(run.ended_at.unwrap_or(now).seconds_since(run.created_at)),
    }
}

pub(crate) fn history_line(event: &gpuaas_types::api::TimelineEvent) -> HistoryLine {
    HistoryLine {
        at: format::time(event.at),
        source: format::source(event.source),
        code: event.code.clone(),
        text: event.text.clone(),
    }
}

const fn ended_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Failed => "failed",
        RunStatus::Cancelled => "been cancelled",
        _ => "succeeded",
    }
}

/// What may be done with a run, and why not; the answer about a run does not name its site.
pub(crate) fn run_buttons(viewer: &Viewer, run: &RunView, site: Option<&str>) -> Vec<Button> {
    let not_parked = if run.status == RunStatus::Parked { "" } else { "only for parked runs" };
    let ended = format!("the run has already {}", ended_word(run.status));
    let ended = if run.status.is_open() { "" } else { &*ended };
    let href = |verb: &str| format!("/runs/{}/{verb}", run.id);
    vec![
        Button::new(RUN_RESUME, href("resume"), viewer, site, not_parked),
        Button::new(RUN_RETRY, href("retry"), viewer, site, not_parked),
        Button::new(RUN_CANCEL, href("cancel"), viewer, site, ended),
    ]
}
