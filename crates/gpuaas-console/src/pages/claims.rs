//! Slots and the claims that have them.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use gpuaas_types::Timestamp;
use gpuaas_types::claim::{ClaimState, ClaimView};
use gpuaas_types::slot::SlotInventory;
use serde::Deserialize;

use super::{Shell, draw, failed, list_or_failure};
use crate::api::{Failure, Viewer};
use crate::format::{self, Mark};
use crate::requests::{PER_PAGE, part, with_query};
use crate::state::Console;

#[derive(Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    filter: String,
    #[serde(default)]
    after: String,
}

struct Line {
    id: String,
    owner: String,
    mark: Mark,
    node: String,
    node_href: String,
    site: String,
    gpus: String,
    created: String,
    ends: String,
    reason: String,
}

#[derive(Template)]
#[template(path = "claims.html")]
struct ClaimsPage {
    shell: Shell,
    reviewable: usize,
    schedulable: usize,
    slots: usize,
    lines: Vec<Line>,
    next: Option<String>,
    failure: Option<Failure>,
}

/// `GET /claims`.
pub(crate) async fn show(
    State(console): State<Console>,
    viewer: Viewer,
    Query(asked): Query<Asked>,
) -> Response {
    let slots = match viewer.api.get::<SlotInventory>("/api/v1/admin/slots").await {
        Ok(slots) => slots,
        Err(failure) => return failed(&viewer, console.now(), &failure),
    };
    let limit = PER_PAGE.to_string();
    let pairs = [("filter", &*asked.filter), ("after", &*asked.after), ("limit", &*limit)];
    let path = with_query("/api/v1/admin/slice-claims", &pairs);
    let now = console.now();
    let (list, failure) = match list_or_failure::<ClaimView>(&viewer, now, &path).await {
        Ok(answer) => answer,
        Err(response) => return response,
    };
    if viewer.wants_json() {
        return super::json(&list);
    }
    let shell =
        Shell::new(&viewer, "Claims", "claims", now).sources("gpuaas slice show".to_owned(), path);
    draw(&ClaimsPage {
        shell,
        reviewable: slots.reviewable,
        schedulable: slots.schedulable,
        slots: slots.slots.len(),
        lines: list.items.iter().map(|claim| line(claim, now)).collect(),
        next: list
            .next
            .map(|after| with_query("/claims", &[("filter", &asked.filter), ("after", &after)])),
        failure,
    })
}

fn line(claim: &ClaimView, now: Timestamp) -> Line {
    let (shape, class) = match claim.state {
        ClaimState::InUse => ("✓", "ok"),
        ClaimState::Reserved => ("◌", "wait"),
        ClaimState::Preparing | ClaimState::Releasing => ("▶", "run"),
        ClaimState::CleanupBlocked | ClaimState::Lost => ("▲", "bad"),
        ClaimState::Released | ClaimState::Expired => ("–", "off"),
    };
    Line {
        id: claim.id.to_string(),
        owner: claim.owner.clone(),
        mark: Mark { shape, word: claim.state.as_str(), class },
        node: claim.node.clone(),
        node_href: format!("/nodes/{}/slots", part(&claim.node)),
        site: claim.site.clone(),
        gpus: if claim.whole_node { "whole node".to_owned() } else { claim.gpus.to_string() },
        created: format!("{} ago", format::age(claim.created_at, now)),
        ends: claim.expires_at.map(|at| format!("in {}", format::age(now, at))).unwrap_or_default(),
        reason: claim.reason.clone(),
    }
}
