//! Nodes that need a person, grouped by cause.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use gpuaas_types::Timestamp;
use gpuaas_types::api::{List, StuckNode};

use super::{Shell, draw, failed};
use crate::api::Viewer;
use crate::format::{self, Mark};
use crate::requests::{part, with_query};
use crate::state::Console;

/// Pages of the list that are read: 10,000 nodes.
const MOST_PAGES: usize = 10;

pub(super) struct StuckLine {
    href: String,
    hostname: String,
    site: String,
    mark: Mark,
    since: String,
    text: String,
}

/// Nodes with one cause.
pub(super) struct Cause {
    /// Its stable code, and the same in words.
    pub(super) code: String,
    pub(super) words: String,
    pub(super) owner: &'static str,
    pub(super) next_action: String,
    pub(super) oldest: String,
    pub(super) evidence: Vec<String>,
    pub(super) nodes: Vec<StuckLine>,
}

#[derive(Template)]
#[template(path = "stuck.html")]
struct StuckPage {
    shell: Shell,
    total: usize,
    causes: Vec<Cause>,
    is_cut: bool,
}

/// `GET /stuck`.
pub(crate) async fn show(State(console): State<Console>, viewer: Viewer) -> Response {
    let mut nodes: Vec<StuckNode> = Vec::new();
    let mut after = String::new();
    let mut is_cut = true;
    for _ in 0..MOST_PAGES {
        let path = with_query("/api/v1/nodes/stuck", &[("after", &after), ("limit", "1000")]);
        match viewer.api.get::<List<StuckNode>>(&path).await {
            Ok(list) => {
                nodes.extend(list.items);
                let Some(next) = list.next else {
                    is_cut = false;
                    break;
                };
                after = next;
            }
            Err(failure) => return failed(&viewer, console.now(), &failure),
        }
    }
    if viewer.wants_json() {
        return super::json(&List::whole(nodes));
    }
    let now = console.now();
    let shell = Shell::new(&viewer, "Stuck", "stuck", now)
        .sources("gpuaas node list --stuck".to_owned(), "/api/v1/nodes/stuck".to_owned());
    let total = nodes.len();
    draw(&StuckPage { shell, total, causes: causes(nodes, now), is_cut })
}

/// One entry per cause, the one with most nodes first.
pub(super) fn causes(nodes: Vec<StuckNode>, now: Timestamp) -> Vec<Cause> {
    let mut groups: Vec<((String, &'static str), Vec<StuckNode>)> = Vec::new();
    for node in nodes {
        let key =
            (node.code.clone().unwrap_or_else(|| "unknown".to_owned()), format::owner(node.owner));
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(node),
            None => groups.push((key, vec![node])),
        }
    }
    groups.sort_by_key(|(_, members)| std::cmp::Reverse(members.len()));
    groups.into_iter().map(|((code, owner), members)| cause(code, owner, &members, now)).collect()
}

fn cause(code: String, owner: &'static str, members: &[StuckNode], now: Timestamp) -> Cause {
    let oldest = members.iter().map(|node| node.since).min().unwrap_or(now);
    let first = members.first();
    Cause {
        words: code.replace('_', " "),
        code,
        owner,
        next_action: first.map(|node| node.next_action.clone()).unwrap_or_default(),
        oldest: format::age(oldest, now),
        evidence: first.map(|node| node.evidence.clone()).unwrap_or_default(),
        nodes: members.iter().map(|node| line(node, now)).collect(),
    }
}

fn line(node: &StuckNode, now: Timestamp) -> StuckLine {
    StuckLine {
        href: format!("/nodes/{}", part(&node.node)),
        hostname: node.node.clone(),
        site: node.site.clone(),
        mark: format::node_mark(node.state, node.mark),
        since: format::age(node.since, now),
        text: node.waiting_for.clone(),
    }
}
