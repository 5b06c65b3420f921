//! `/wall`: the fleet and what needs a person, to be read across a room.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use gpuaas_types::api::{List, StuckNode};
use serde_json::json;

use super::fleet_map::FleetMap;
use super::stuck::{Cause, causes};
use super::{Shell, draw, failed, fleet};
use crate::api::Viewer;
use crate::fleet_counts;
use crate::state::Console;

/// Causes that fit on a screen.
const MOST_CAUSES: usize = 8;

#[derive(Template)]
#[template(path = "wall.html")]
struct WallPage {
    shell: Shell,
    map: FleetMap,
    causes: Vec<Cause>,
    /// Causes that do not fit.
    more: usize,
    /// The list of stuck nodes was longer than one page of the API.
    is_cut: bool,
}

/// `GET /wall`.
pub(crate) async fn show(State(console): State<Console>, viewer: Viewer) -> Response {
    let path = "/api/v1/nodes/stuck?limit=1000";
    let stuck = match viewer.api.get::<List<StuckNode>>(path).await {
        Ok(stuck) => stuck,
        Err(failure) => return failed(&viewer, console.now(), &failure),
    };
    let counts = fleet_counts::of_fleet(&console, &viewer).await;
    if viewer.wants_json() {
        return super::json(&json!({ "stuck": stuck, "counts": counts.ok().as_deref() }));
    }
    let now = console.now();
    let map = fleet::map(&[], counts, now);
    let is_cut = stuck.next.is_some();
    let mut causes = causes(stuck.items, now);
    let more = causes.len().saturating_sub(MOST_CAUSES);
    causes.truncate(MOST_CAUSES);
    let shell = Shell::new(&viewer, "Wall", "wall", now)
        .sources("gpuaas node list --stuck".to_owned(), "/api/v1/nodes/stuck".to_owned());
    draw(&WallPage { shell, map, causes, more, is_cut })
}
