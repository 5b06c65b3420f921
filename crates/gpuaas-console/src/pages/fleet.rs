//! All nodes: the map, and the table.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use gpuaas_types::Timestamp;
use gpuaas_types::api::{List, NodeView, SiteResource};
use serde::Deserialize;
use serde_json::json;

use super::fleet_map::{self, FleetMap};
use super::{Shell, draw, json, list_or_failure};
use crate::api::{Failure, Viewer};
use crate::fleet_counts::{self, Counts};
use crate::format::{self, Mark};
use crate::requests::{PER_PAGE, part, shell_word, with_query};
use crate::state::Console;

/// Which nodes to show.
#[derive(Deserialize, Default)]
pub(crate) struct Asked {
    #[serde(default)]
    filter: String,
    #[serde(default)]
    after: String,
}

/// A line of the table.
struct Line {
    href: String,
    hostname: String,
    mark: Mark,
    site: String,
    profile: String,
    run: String,
    run_href: String,
    waits_for: String,
    since: String,
    expected: String,
    maas: String,
}

#[derive(Template)]
#[template(path = "fleet.html")]
struct FleetPage {
    shell: Shell,
    filter: String,
    map: FleetMap,
    lines: Vec<Line>,
    next: Option<String>,
    /// Why there is no table.
    failure: Option<Failure>,
    /// No site was added yet: the first steps are shown.
    is_new: bool,
    filters: &'static [(&'static str, &'static str)],
}

/// Filters that people ask for most.
const FILTERS: &[(&str, &str)] = &[
    ("all", ""),
    ("active", "state=active"),
    ("in progress", "state=registered,bootstrap_issued,enrolling"),
    ("offline", "state=offline"),
    ("quarantined", "state=quarantined"),
];

/// `GET /nodes`.
pub(crate) async fn show(
    State(console): State<Console>,
    viewer: Viewer,
    Query(asked): Query<Asked>,
) -> Response {
    let limit = PER_PAGE.to_string();
    let pairs = [("filter", &*asked.filter), ("after", &*asked.after), ("limit", &*limit)];
    let path = with_query("/api/v1/nodes", &pairs);
    let now = console.now();
    let (nodes, failure) = match list_or_failure::<NodeView>(&viewer, now, &path).await {
        Ok(answer) => answer,
        Err(response) => return response,
    };
    let is_new = failure.is_none()
        && nodes.items.is_empty()
        && asked.filter.is_empty()
        && viewer
            .api
            .get::<List<SiteResource>>("/api/v1/sites")
            .await
            .is_ok_and(|sites| sites.items.is_empty());
    let counts = fleet_counts::of_fleet(&console, &viewer).await;
    if viewer.wants_json() {
        return json(&json!({ "nodes": nodes, "counts": counts.ok().as_deref() }));
    }
    let map = map(&nodes.items, counts, now);
    let cli = match &*asked.filter {
        "" => "gpuaas node list".to_owned(),
        filter => format!("gpuaas node list --filter {}", shell_word(filter)),
    };
    let next = nodes
        .next
        .map(|after| with_query("/nodes", &[("filter", &asked.filter), ("after", &after)]));
    let shell = Shell::new(&viewer, "Fleet", "nodes", now).sources(cli, path);
    let lines = nodes.items.iter().map(|node| line(node, now)).collect();
    let filter = asked.filter;
    draw(&FleetPage { shell, filter, map, lines, next, failure, is_new, filters: FILTERS })
}

/// The map of the whole fleet, or of the page's nodes if the fleet was not counted.
pub(super) fn map(
    nodes: &[NodeView],
    counts: Result<Arc<Counts>, Failure>,
    now: Timestamp,
) -> FleetMap {
    match counts {
        Ok(counts) => {
            let at = format::clock(counts.counted_at);
            let covers = format!("All managed nodes at every site, counted at {at} UTC.");
            fleet_map::layout(&counts, covers)
        }
        Err(failure) => {
            let why = match failure.problem.status {
                403 => "your role does not cover every site".to_owned(),
                _ => failure.problem.title,
            };
            let covers = format!("Only the nodes in the table below: {why}.");
            fleet_map::layout(&Counts::of_nodes(nodes, now), covers)
        }
    }
}

fn line(node: &NodeView, now: Timestamp) -> Line {
    let href = format!("/nodes/{}", part(&node.hostname));
    let open = node.run.as_ref().filter(|run| run.status.is_open());
    let waits_for = node.park.as_ref().map(|park| park.text.clone());
    let waits_for = waits_for.or_else(|| node.waiting_for.clone());
    let waits_for = waits_for.or_else(|| node.problems.first().map(|problem| problem.text.clone()));
    let since = node.park.as_ref().map(|park| park.since);
    let since = since.or_else(|| node.wait.as_ref().map(|wait| wait.since));
    let expected = node.wait.as_ref().and_then(|wait| wait.expected_by);
    let age = node.maas.observed_seconds_ago;
    Line {
        hostname: node.hostname.clone(),
        mark: format::node_mark(node.state, node.mark),
        site: node.site.clone(),
        profile: node.profile.clone(),
        run: open.map(|run| format!("{}/{}", run.kind, run.step)).unwrap_or_default(),
        run_href: open.map(|run| format!("/runs/{}", run.id)).unwrap_or_default(),
        waits_for: waits_for.unwrap_or_default(),
        since: format::age(since.unwrap_or(node.updated_at), now),
        expected: expected.map(format::clock).unwrap_or_default(),
        maas: match (&node.maas.status_name, age) {
            (Some(status), Some(age)) => format!("{status}, {} ago", format::duration(age)),
            (Some(status), None) => status.clone(),
            (None, _) => "unknown".to_owned(),
        },
        href,
    }
}
