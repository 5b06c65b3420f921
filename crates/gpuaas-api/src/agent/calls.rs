//! The agent API: heartbeats, gates, task polls and task results.

use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures::FutureExt as _;
use gpuaas_bundle::Envelope;
use gpuaas_bundle::order::FOREIGN_TASK_CODES;
use gpuaas_identity::server::{Held, MayHold};
use gpuaas_store::ReceivedHeartbeat;
use gpuaas_types::agent::{
    Gate, GateClass, GateReport, Gates, HeartbeatRequest, HeartbeatResponse, Operation, TaskBatch,
    TaskResult, TaskSpec,
};
use gpuaas_types::api::TimelineEvent;
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::{RunId, TaskId, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use crate::agent::repeated_heartbeat;
use crate::audit::rejections;
use crate::ctx::{Ctx, MAX_POLL_SECONDS};
use crate::http::body::{
    Accepted, Body, BodyLimit, Key, MAX_BODY_BYTES, MAX_RESULT_BYTES, QueryParams,
};
use crate::http::long_poll::{PollPermit, TaskSignal};
use crate::http::problem::{ApiResult, Refusal, problem};
use crate::http::request_metrics::HeartbeatForm;
use crate::identity::certificates::{self, Agent};
use crate::identity::{authorities, task_keys};
use crate::node::history::agent_event;
use crate::{check, slice};

pub(crate) const VERSION_CHARS: usize = 64;
const MESSAGE_CHARS: usize = 500;
/// Troubles of an agent that are kept.
const MOST_TROUBLES: usize = 8;
/// Longest trouble that is kept: a word, or a word with a reason.
const TROUBLE_CHARS: usize = 200;
/// Largest result of a task that the node does not have, in bytes.
const MAX_FOREIGN_RESULT_BYTES: usize = 16 << 10;
/// Checks of a gate that are kept.
const MOST_CHECKS: usize = 200;

/// Timeline event for a change of an agent's troubles; empty: they are over.
fn troubles_event(at: Timestamp, run_id: RunId, troubles: &str) -> TimelineEvent {
    if troubles.is_empty() {
        let text = "the agent reported that all its problems are resolved";
        return agent_event(at, run_id, None, TimelineCode::AgentWell, text.to_owned());
    }
    let text = format!("the agent reported problems: {troubles}");
    agent_event(at, run_id, None, TimelineCode::AgentTroubled, text)
}

/// `POST /agent/v1/heartbeat`.
pub(crate) async fn heartbeat(
    State(ctx): State<Ctx>,
    agent: Agent,
    Body(request): Body<HeartbeatRequest>,
) -> ApiResult<Json<HeartbeatResponse<Envelope>>> {
    certificates::of_its_run(&agent, request.run_id)?;
    let now = ctx.now();
    let agent_version = check::plain_text(&request.agent_version, VERSION_CHARS);
    let uptime = request.uptime_seconds.max(0.0);
    let troubles: Vec<String> = request
        .troubles
        .iter()
        .take(MOST_TROUBLES)
        .map(|t| check::plain_text(t, TROUBLE_CHARS))
        .collect();
    let troubles = troubles.join(", ");
    let text = format!("the agent sent its first heartbeat, {uptime:.0} s after the host booted");
    let beat = ReceivedHeartbeat {
        node_id: agent.node_id,
        run_id: agent.run_id,
        agent_version,
        troubles: troubles.clone(),
        first: Some(agent_event(now, agent.run_id, None, TimelineCode::FirstHeartbeat, text)),
        changed: Some(troubles_event(now, agent.run_id, &troubles)),
    };
    let said = (beat.agent_version.clone(), beat.troubles.clone());
    let new = if ctx.settings.heartbeats_together {
        ctx.store.note_heartbeat(now, beat).await?
    } else {
        ctx.store.record_heartbeat(now, beat).await?
    };
    if new {
        ctx.wake_engine();
    }
    let task_keys = task_keys::newer_than(&ctx, request.task_keys_revision).await?;
    let known = request.trust_digest.as_deref();
    let (trust_bundle, renew_certificate) = authorities::for_agent(&ctx, &agent, known).await?;
    let at = Some(ctx.signing_time());
    let is_settled = task_keys.is_none() && trust_bundle.is_none() && !renew_certificate;
    let heartbeat_digest = if is_settled && ctx.settings.heartbeats_together {
        Some(repeated_heartbeat::digest(&ctx, &agent, &said.0, &said.1).await?)
    } else {
        None
    };
    ctx.request_metrics().note_heartbeat(HeartbeatForm::Request);
    Ok(Json(HeartbeatResponse {
        new,
        at,
        task_keys,
        trust_bundle,
        renew_certificate,
        heartbeat_digest,
    }))
}

/// `POST /agent/v1/gates`. What changed goes to the history.
pub(crate) async fn gates(
    State(ctx): State<Ctx>,
    agent: Agent,
    Body(request): Body<Gates>,
) -> ApiResult<Json<Accepted>> {
    certificates::of_its_run(&agent, request.run_id)?;
    let (now, run_id) = (ctx.now(), agent.run_id);
    let mut reports = Vec::new();
    for report in request.gates.into_iter().take(Gate::ALL.len()).map(truncate_report) {
        reports.push(with_tag(&ctx, &agent, report).await?);
    }
    let changed = move |before: Option<&GateReport>, after: &GateReport| {
        let red = |report: &GateReport| -> Vec<String> {
            let red = report.checks.iter().filter(|check| !check.passed);
            red.map(|check| check.name.clone()).collect()
        };
        if before.is_some_and(|before| before.passed == after.passed && red(before) == red(after)) {
            return None;
        }
        let name = after.gate.as_str();
        let text = if after.checks.is_empty() {
            format!("the agent cannot evaluate gate {name}: it has no host to check")
        } else if after.passed {
            format!("the agent reported gate {name} open: {} checks pass", after.checks.len())
        } else {
            let class = after.class.map_or("no class", GateClass::as_str);
            let red = red(after).join(", ");
            format!("the agent reported gate {name} closed ({class}): {red}")
        };
        Some(agent_event(now, run_id, None, TimelineCode::gate(after.gate, after.passed), text))
    };
    ctx.store.set_gates(now, agent.node_id, run_id, reports, changed).await?;
    Ok(Json(Accepted { new: true }))
}

/// What the agent says of slices with what MAAS says of the machine: that it has the tags that the
/// run which deployed it gave it, where it gave any (docs/hosts.md#slice-hosts). An agent that looked
/// at nothing has nothing that a tag could complete.
async fn with_tag(ctx: &Ctx, agent: &Agent, report: GateReport) -> ApiResult<GateReport> {
    if report.gate != Gate::SliceReady || report.checks.is_empty() {
        return Ok(report);
    }
    let state = ctx.store.run(agent.run_id).await?.state;
    let tags: Vec<_> = [state.profile_tag, state.tag].into_iter().flatten().collect();
    if tags.is_empty() {
        return Ok(report);
    }
    let seen = ctx.store.observation(agent.node_id).await?;
    let machine = seen.as_ref().and_then(|seen| seen.machine.as_ref());
    let listed = machine.map(|machine| &machine.tags[..]);
    Ok(tags.iter().fold(report, |report, tag| report.with_machine_tag(&tag.name, listed)))
}

/// A gate report with at most [`MOST_CHECKS`] checks, each text as plain text of bounded length.
fn truncate_report(mut report: GateReport) -> GateReport {
    report.checks.truncate(MOST_CHECKS);
    for check in &mut report.checks {
        for text in [&mut check.name, &mut check.expected, &mut check.seen, &mut check.reason] {
            *text = check::plain_text(text, MESSAGE_CHARS);
        }
    }
    report
}

/// The query of a poll.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Poll {
    /// How long to wait for a task, in seconds.
    #[serde(default)]
    wait_seconds: u32,
    /// Names the agent's last heartbeat, where it would say the same now.
    heartbeat_digest: Option<String>,
}

/// `GET /agent/v1/tasks?wait_seconds=N&heartbeat_digest=D`. Waits in wall time, whatever clock the
/// runs live on: the limit is about the HTTP connection. Where it can be, the request is held by its
/// connection.
pub(crate) async fn tasks(
    State(ctx): State<Ctx>,
    agent: Agent,
    may_hold: Option<Extension<MayHold>>,
    QueryParams(poll): QueryParams<Poll>,
) -> ApiResult<Response> {
    let wait = Duration::from_secs(u64::from(poll.wait_seconds.min(MAX_POLL_SECONDS)));
    let permit = ctx.task_signals().join(agent.node_id);
    let signal = permit.next_signal();
    let now = ctx.now();
    let heard = match &poll.heartbeat_digest {
        Some(digest) => Some(repeated_heartbeat::take(&ctx, &agent, digest, now).await?),
        None => None,
    };
    if heard == Some(true) {
        ctx.request_metrics().note_heartbeat(HeartbeatForm::Poll);
    }
    let heartbeat_wanted = heard == Some(false);
    let tasks = ctx.store.pending_tasks(now, agent.node_id).await?;
    if !tasks.is_empty() || heartbeat_wanted || wait.is_zero() {
        let batch = task_keys::sign_tasks(&ctx, agent.node_id, tasks).await?;
        let at = Some(ctx.signing_time());
        return Ok(Json(TaskBatch { heartbeat_wanted, at, ..batch }).into_response());
    }
    let end = ctx.task_signals().end(wait);
    let waiting = wait_for_tasks(ctx, agent, permit, signal, end);
    match may_hold {
        Some(_) => Ok(Held::response(waiting.map(IntoResponse::into_response))),
        None => waiting.await,
    }
}

/// Answers a poll when its node gets a task, and with none at its end: the next poll reads them anyway.
/// 5,000 of these wait, so what they need beside that is in boxes.
async fn wait_for_tasks(
    ctx: Ctx,
    agent: Agent,
    permit: PollPermit,
    mut signal: TaskSignal,
    end: Instant,
) -> ApiResult<Response> {
    while timeout_at(end, signal.as_mut()).await.is_ok() {
        signal = permit.next_signal();
        // The poll has been open for a while; whoever was shut out meanwhile gets nothing.
        Box::pin(certificates::check_still_good(&ctx, &agent)).await?;
        let tasks = Box::pin(ctx.store.pending_tasks(ctx.now(), agent.node_id)).await?;
        if !tasks.is_empty() {
            let batch = Box::pin(task_keys::sign_tasks(&ctx, agent.node_id, tasks)).await?;
            let at = Some(ctx.signing_time());
            return Ok(Json(TaskBatch { at, ..batch }).into_response());
        }
    }
    let at = Some(ctx.signing_time());
    Ok(Json(TaskBatch { at, ..TaskBatch::<Envelope>::new(Vec::new()) }).into_response())
}

/// The agent of a node and the task that it sends a result of.
///
/// What the node has to do with the task is known before its body is read: another node's task, or one
/// that does not exist, has room for no more than the agent's word that somebody else made it
/// ([`FOREIGN_TASK_CODES`]).
pub(crate) struct ReportingAgent {
    agent: Agent,
    task_id: TaskId,
}

impl FromRequestParts<Ctx> for ReportingAgent {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, ctx: &Ctx) -> Result<Self, Refusal> {
        let agent = Agent::from_request_parts(parts, ctx).await?;
        let Key(task) = Key::from_request_parts(parts, ctx).await?;
        let task_id: TaskId = task.parse().map_err(|_| {
            problem(ProblemCode::TaskNotFound).with_detail("the URL contains no valid task ID")
        })?;
        let (bytes, beyond) = match ctx.store.task_spec(agent.node_id, task_id).await? {
            None => (MAX_FOREIGN_RESULT_BYTES, ProblemCode::TaskNotFound),
            Some(TaskSpec::Operate { operation: Operation::CollectDiagnostics { .. }, .. }) => {
                (MAX_RESULT_BYTES, ProblemCode::BodyTooLarge)
            }
            Some(_) => (MAX_BODY_BYTES, ProblemCode::BodyTooLarge),
        };
        parts.extensions.insert(BodyLimit { bytes, beyond });
        Ok(Self { agent, task_id })
    }
}

/// `POST /agent/v1/tasks/TASK/result`.
pub(crate) async fn task_result(
    State(ctx): State<Ctx>,
    ReportingAgent { agent, task_id }: ReportingAgent,
    Body(mut result): Body<TaskResult>,
) -> ApiResult<Json<Accepted>> {
    let now = ctx.now();
    if let Some(report) = result.topology.take() {
        slice::report::record(&ctx, agent.node_id, task_id, *report, &mut result).await?;
    }
    if let Some(report) = result.slice.take() {
        result.slice = slice::report::bounded_slice_report(*report).map(Box::new);
    }
    if FOREIGN_TASK_CODES.contains(&result.code.as_str()) {
        let message = check::plain_text(&result.message, MESSAGE_CHARS);
        rejections::record_foreign_task(&ctx, agent.node_id, task_id, &result.code, &message).await;
    }
    let step = ctx.store.run(agent.run_id).await?.step;
    let text = if result.succeeded {
        format!("the agent finished a task with {} findings", result.findings.len())
    } else {
        let message = check::plain_text(&result.message, MESSAGE_CHARS);
        format!("the agent could not complete a task: {message}")
    };
    let history =
        vec![agent_event(now, agent.run_id, Some(step), TimelineCode::TaskFinished, text)];
    let new = ctx.store.finish_task(now, agent.node_id, task_id, result, history).await?;
    if new {
        ctx.wake_engine();
    }
    Ok(Json(Accepted { new }))
}
