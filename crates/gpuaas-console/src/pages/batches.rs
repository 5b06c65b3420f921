//! Batches: the list, and one batch with its failures first.

use askama::Template;
use axum::Form;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use gpuaas_types::MemberState;
use gpuaas_types::api::List;
use gpuaas_types::batch::{BatchCounts, BatchMember, BatchResource};
use serde::Deserialize;

use super::{Shell, draw, failed, name_and_form, no_such_action, send_form};
use crate::actions::{BATCH_RESUME, BATCH_STOP, Button};
use crate::api::Viewer;
use crate::format::{self, Mark};
use crate::requests::{PER_PAGE, Reasoned, part, with_query};
use crate::state::Console;

#[derive(Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    after: String,
}

struct Line {
    href: String,
    name: String,
    site: String,
    profile: String,
    phase: String,
    counts: BatchCounts,
    total: u32,
    waits_for: String,
}

#[derive(Template)]
#[template(path = "batches.html")]
struct BatchesPage {
    shell: Shell,
    lines: Vec<Line>,
    next: Option<String>,
}

/// `GET /batches`.
pub(crate) async fn list(
    State(console): State<Console>,
    viewer: Viewer,
    Query(asked): Query<Asked>,
) -> Response {
    let limit = PER_PAGE.to_string();
    let path = with_query("/api/v1/batches", &[("after", &*asked.after), ("limit", &*limit)]);
    let list = match viewer.api.get::<List<BatchResource>>(&path).await {
        Ok(list) => list,
        Err(failure) => return failed(&viewer, console.now(), &failure),
    };
    if viewer.wants_json() {
        return super::json(&list);
    }
    let shell = Shell::new(&viewer, "Batches", "batches", console.now())
        .sources("gpuaas batch list".to_owned(), path);
    let next = list.next.map(|after| with_query("/batches", &[("after", &after)]));
    draw(&BatchesPage { shell, lines: list.items.into_iter().map(line).collect(), next })
}

fn line(batch: BatchResource) -> Line {
    Line {
        href: format!("/batches/{}", part(&batch.spec.name)),
        total: total(&batch.status.counts),
        name: batch.spec.name,
        site: batch.spec.site,
        profile: batch.spec.profile,
        phase: batch.status.phase.to_string(),
        counts: batch.status.counts,
        waits_for: batch.status.waiting_for,
    }
}

const fn total(counts: &BatchCounts) -> u32 {
    counts.waiting
        + counts.running
        + counts.active
        + counts.parked
        + counts.failed
        + counts.withdrawn
}

struct Member {
    href: String,
    run_href: String,
    hostname: String,
    mark: Mark,
    is_canary: bool,
    step: String,
    text: String,
    took: String,
}

#[derive(Template)]
#[template(path = "batch.html")]
struct BatchPage {
    shell: Shell,
    batch: BatchResource,
    total: u32,
    percent_limit: String,
    percent_failed: String,
    median: String,
    slowest: String,
    end: String,
    members: Vec<Member>,
    buttons: Vec<Button>,
}

/// `GET /batches/BATCH`.
pub(crate) async fn show(
    State(console): State<Console>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Response {
    let (name, as_json) = name_and_form(&name);
    let path = format!("/api/v1/batches/{}", part(name));
    let batch = match viewer.api.get::<BatchResource>(&path).await {
        Ok(batch) => batch,
        Err(failure) => return failed(&viewer, console.now(), &failure),
    };
    if as_json {
        return super::json(&batch);
    }
    let now = console.now();
    let shell = Shell::new(&viewer, &format!("Batch {}", batch.spec.name), "batches", now)
        .sources(format!("gpuaas batch show {}", batch.spec.name), path);
    let mut ordered: Vec<&BatchMember> = batch.status.members.iter().collect();
    ordered.sort_by_key(|member| urgency(member.state));
    let seconds = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), format::duration);
    let members = ordered.into_iter().map(|one| member(one, now)).collect();
    draw(&BatchPage {
        total: total(&batch.status.counts),
        percent_limit: format!("{:.0} %", batch.spec.stop_at_failure_ratio * 100.0),
        percent_failed: format!("{:.0} %", batch.status.failure_ratio * 100.0),
        median: seconds(batch.status.p50_seconds),
        slowest: seconds(batch.status.p95_seconds),
        end: batch.status.estimated_end.map_or_else(|| "unknown".to_owned(), format::time),
        members,
        buttons: buttons(&viewer, &batch),
        shell,
        batch,
    })
}

fn buttons(viewer: &Viewer, batch: &BatchResource) -> Vec<Button> {
    let has_ended = batch.status.ended_at.is_some();
    let is_stopped = batch.status.stop.is_some();
    let ended = "the batch has ended";
    let resume = if has_ended {
        ended
    } else if is_stopped {
        ""
    } else {
        "only for stopped batches"
    };
    let stop = if has_ended {
        ended
    } else if is_stopped {
        "the batch is stopped"
    } else {
        ""
    };
    let site = Some(&*batch.spec.site);
    let href = |verb: &str| format!("/batches/{}/{verb}", part(&batch.spec.name));
    vec![
        Button::new(BATCH_RESUME, href("resume"), viewer, site, resume),
        Button::new(BATCH_STOP, href("stop"), viewer, site, stop),
    ]
}

#[derive(Deserialize)]
pub(crate) struct Reason {
    #[serde(default)]
    reason: String,
}

/// `POST /batches/BATCH/{resume, stop}`.
pub(crate) async fn act(
    State(console): State<Console>,
    viewer: Viewer,
    Path((name, action)): Path<(String, String)>,
    Form(form): Form<Reason>,
) -> Response {
    if !["resume", "stop"].contains(&&*action) {
        return no_such_action(&console, &viewer);
    }
    let name = part(&name);
    let body = Reasoned { actor: &viewer.access.name, reason: form.reason.trim() };
    let path = format!("/api/v1/batches/{name}/{action}");
    send_form(&console, &viewer, &path, &body, &format!("/batches/{name}")).await
}

/// What needs a person comes first.
const fn urgency(state: MemberState) -> u8 {
    match state {
        MemberState::Failed | MemberState::Parked => 0,
        MemberState::Running => 1,
        MemberState::Waiting => 2,
        MemberState::Active | MemberState::Withdrawn => 3,
    }
}

fn member(member: &BatchMember, now: gpuaas_types::Timestamp) -> Member {
    let (shape, class) = match member.state {
        MemberState::Failed | MemberState::Parked => ("▲", "bad"),
        MemberState::Running => ("▶", "run"),
        MemberState::Waiting => ("◌", "wait"),
        MemberState::Active => ("✓", "ok"),
        MemberState::Withdrawn => ("–", "off"),
    };
    let took = member.started_at.map(|from| member.ended_at.unwrap_or(now).seconds_since(from));
    Member {
        href: format!("/nodes/{}", part(&member.hostname)),
        run_href: member.run_id.map(|run| format!("/runs/{run}")).unwrap_or_default(),
        hostname: member.hostname.clone(),
        mark: Mark { shape, word: member.state.as_str(), class },
        is_canary: member.canary,
        step: member.step.map(|step| step.to_string()).unwrap_or_default(),
        text: member.waiting_for.clone(),
        took: took.map(format::duration).unwrap_or_default(),
    }
}
