//! `/api/v1/runs`.

use axum::Json;
use axum::extract::State;
use gpuaas_core::buckets::seconds_per_bucket;
use gpuaas_types::api::{RunView, StepSpan};
use gpuaas_types::{RunId, Timestamp};
use serde::Deserialize;

use crate::body::{Body, Key};
use crate::problem::{Answer, invalid, problem};
use crate::{Ctx, check};

/// Lines of history in one answer.
const TIMELINE_LINES: i64 = 10_000;
const REASON_CHARS: usize = 500;

fn id(text: &str) -> Answer<RunId> {
    text.parse().map_err(|_| {
        let detail = format!("{text:?} is not the identifier of a run");
        problem("run_not_found").with_detail(detail).into()
    })
}

/// `GET /api/v1/runs/ID`.
pub(crate) async fn show(State(ctx): State<Ctx>, Key(text): Key) -> Answer<Json<RunView>> {
    Ok(Json(view(&ctx, id(&text)?).await?))
}

/// A run as answers show it. Wall time and buckets come from the same spans, so they agree
/// whatever happens to the run between the reads.
async fn view(ctx: &Ctx, id: RunId) -> Answer<RunView> {
    let run = ctx.store.run(id).await?;
    let hostname = ctx.store.node(run.node_id).await?.hostname;
    let steps = ctx.store.spans(id).await?;
    let attempts = ctx.store.attempts(id).await?;
    let timeline = ctx.store.timeline_of_run(id, 0, TIMELINE_LINES).await?;
    let now = ctx.now();
    let buckets = seconds_per_bucket(&steps, now);
    Ok(RunView {
        id,
        node_id: run.node_id,
        hostname,
        kind: run.kind,
        step: run.step,
        status: run.status,
        profile_revision: run.profile_revision,
        wait: run.wait,
        park: run.park,
        created_at: run.created_at,
        ended_at: run.ended_at,
        wall_seconds: wall_seconds(&steps, now),
        buckets: buckets.into_iter().map(|(b, seconds)| (b.as_str().to_owned(), seconds)).collect(),
        steps,
        checks: run.memory.checks.into_values().collect(),
        attempts,
        timeline: timeline.into_iter().map(|row| row.event).collect(),
    })
}

fn wall_seconds(steps: &[StepSpan], now: Timestamp) -> f64 {
    match (steps.first(), steps.last()) {
        (Some(first), Some(last)) => last.until.unwrap_or(now).seconds_since(first.from),
        _ => 0.0,
    }
}

/// Body of a resume.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resume {
    /// Who says so.
    actor: String,
    /// Why it may go on.
    reason: String,
}

/// `POST /api/v1/runs/ID/resume`: a parked run goes on where it stopped.
pub(crate) async fn resume(
    State(ctx): State<Ctx>,
    Key(text): Key,
    Body(asked): Body<Resume>,
) -> Answer<Json<RunView>> {
    let id = id(&text)?;
    let actor = check::plain_text(&asked.actor, 100);
    let reason = check::plain_text(&asked.reason, REASON_CHARS);
    for (field, text) in [("actor", &actor), ("reason", &reason)] {
        if text.trim().is_empty() {
            return Err(invalid(field, "it is empty").into());
        }
    }
    let now = ctx.now();
    ctx.store.resume(now, id, &actor, &reason).await?;
    ctx.wake_engine();
    Ok(Json(view(&ctx, id).await?))
}
