//! `/api/v1/runs`.

use axum::Json;
use axum::extract::State;
use gpuaas_core::buckets::seconds_per_bucket;
use gpuaas_core::decide::preparation::IMAGE_CHECK;
use gpuaas_core::gates::COMPLETION_GATES;
use gpuaas_core::record::RunRecord;
use gpuaas_core::second_person::erases;
use gpuaas_store::{IdKind, ListedNode, ListedRun, OperatorCommand, RunFilter};
use gpuaas_types::api::{List, RunView, StepSpan};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::change::RunListItem;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::FilterList;
use gpuaas_types::text;
use gpuaas_types::{RunId, RunStatus, Step, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bundle::profile_bundles;
use crate::ctx::Ctx;
use crate::http::body::{Body, Key, QueryParams, site_id};
use crate::http::id_prefix;
use crate::http::pages::{PageRequest, list_filter};
use crate::http::problem::{ApiResult, invalid, problem};
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, CheckedRequest, Guarded};
use crate::node::view::{find_named, find_node};

/// Lines of history in one answer.
const TIMELINE_LINES: i64 = 10_000;

/// The run of this identifier, the latest one of the node that answers to `text`, or the one whose
/// identifier begins so.
pub(crate) async fn find_run(ctx: &Ctx, text: &str) -> ApiResult<RunId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let missing = |detail: String| problem(ProblemCode::RunNotFound).with_detail(detail).into();
    let Some(ListedNode { node, .. }) = find_named(ctx, text).await? else {
        let begun = id_prefix::find(ctx, IdKind::Run, text).await?;
        return begun.map(RunId).ok_or_else(|| missing(format!("no run or node matches {text:?}")));
    };
    node.run_id.ok_or_else(|| missing(format!("node {text} has never had a run")))
}

/// Which runs to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Of this site.
    site: Option<String>,
    /// Of the node that answers to this.
    node: Option<String>,
    /// With this status.
    #[schemars(with = "Option<RunStatus>")]
    status: Option<String>,
    /// Not over.
    #[serde(default)]
    open: bool,
    /// Filter expression, such as `status=parked created>2026-11-01`.
    #[schemars(length(max = 2000))]
    filter: Option<String>,
    /// After this run, in the order of the list.
    #[schemars(with = "Option<text::IdText>")]
    after: Option<String>,
    /// Most items.
    #[schemars(range(min = 1))]
    limit: Option<u32>,
}

/// `GET /api/v1/runs?site=&node=&status=&open=&filter=&after=&limit=`: the newest first.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(asked): QueryParams<Filter>,
) -> ApiResult<Json<List<RunListItem>>> {
    let status = asked.status.as_deref().map(str::parse::<RunStatus>).transpose();
    let status = status.map_err(|error| {
        let known: Vec<&str> = RunStatus::ALL.iter().map(|status| status.as_str()).collect();
        problem(ProblemCode::InvalidQuery)
            .with_detail(error.to_string())
            .with_hint(format!("use one of: {}", known.join(", ")))
    })?;
    let node_id = match &asked.node {
        Some(text) => Some(find_node(&ctx, text).await?),
        None => None,
    };
    let site_id = site_id(&ctx, asked.site.as_deref()).await?;
    let expression = list_filter(FilterList::Runs, asked.filter.as_deref())?;
    let expression = expression.as_ref();
    let filter = RunFilter { site_id, node_id, status, open: asked.open, expression };
    let page = PageRequest::parse(asked.after.as_deref(), asked.limit)?;
    let runs = ctx.store.runs_page(filter, page.query()).await?;
    Ok(Json(page.list(runs, |listed| listed.run.id.to_string(), list_item)))
}

fn list_item(listed: ListedRun) -> RunListItem {
    let ListedRun { run, hostname, site } = listed;
    let park = run.park.map(|park| park.text);
    RunListItem {
        id: run.id,
        node_id: run.node_id,
        hostname,
        site,
        kind: run.kind,
        step: run.step,
        status: run.status,
        failure_class: run.state.failure_class,
        waiting_for: park.or_else(|| run.wait.map(|wait| wait.text)),
        created_at: run.created_at,
        ended_at: run.ended_at,
    }
}

/// `GET /api/v1/runs/ID`.
pub(crate) async fn show(State(ctx): State<Ctx>, Key(text): Key) -> ApiResult<Json<RunView>> {
    Ok(Json(view(&ctx, find_run(&ctx, &text).await?).await?))
}

/// A run as answers show it. Wall time and buckets come from the same spans, so they agree
/// whatever happens to the run between the reads.
async fn view(ctx: &Ctx, id: RunId) -> ApiResult<RunView> {
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
        failure_class: run.state.failure_class,
        created_at: run.created_at,
        ended_at: run.ended_at,
        wall_seconds: wall_seconds(&steps, now),
        buckets: buckets.into_iter().map(|(b, seconds)| (b.as_str().to_owned(), seconds)).collect(),
        steps,
        checks: run.state.checks.into_values().collect(),
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

async fn apply_command(
    ctx: &Ctx,
    text: &str,
    command: OperatorCommand,
    (actor, reason): (String, String),
) -> ApiResult<Json<RunView>> {
    let id = find_run(ctx, text).await?;
    ctx.store.apply_operator_command(ctx.now(), id, command, &actor, &reason).await?;
    ctx.wake_engine();
    Ok(Json(view(ctx, id).await?))
}

/// Body of a resume or a retry.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resume {
    /// Name of the operator, as the audit keeps it.
    actor: String,
    /// Why it may go on.
    #[schemars(with = "text::WordsText")]
    reason: String,
    /// Pin the run to the latest revision of its profile: for a cause that lies in the profile.
    #[serde(default)]
    latest_profile: bool,
}

/// `POST /api/v1/runs/ID/resume`: a parked run goes on where it stopped.
pub(crate) async fn resume(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(asked): Body<Resume>,
) -> ApiResult<Json<RunView>> {
    continue_run(&ctx, &caller, &text, OperatorCommand::Resume, &asked).await
}

/// `POST /api/v1/runs/ID/retry`: the same, and what was tried in the step does not count any more.
pub(crate) async fn retry(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(asked): Body<Resume>,
) -> ApiResult<Json<RunView>> {
    continue_run(&ctx, &caller, &text, OperatorCommand::Retry, &asked).await
}

/// Lets a parked run go on, with the profile revision that it pinned or with the latest one. The
/// latest one is held to what a new run of this kind would be.
async fn continue_run(
    ctx: &Ctx,
    caller: &Caller,
    text: &str,
    command: OperatorCommand,
    asked: &Resume,
) -> ApiResult<Json<RunView>> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    if !asked.latest_profile {
        return apply_command(ctx, text, command, (actor, reason)).await;
    }
    let id = find_run(ctx, text).await?;
    let run = ctx.store.run(id).await?;
    let profile = ctx.store.profile(run.profile_id).await?;
    let site = ctx.store.site(run.site_id).await?;
    let hostname = ctx.store.node(run.node_id).await?.hostname;
    if run.kind.row().steps.contains(&Step::Deploy) {
        profile_bundles::check_can_begin(ctx, &site, &profile, Some(&hostname)).await?;
    }
    let revision = profile.revision;
    if run.status == RunStatus::Parked && erases(run.kind) && revision != run.profile_revision {
        let (kind, from) = (run.kind, run.profile_revision);
        let name = &profile.status.name;
        let checked = CheckedRequest {
            guarded: Guarded::Erase(1),
            kind: ApprovalKind::Continuation,
            site: &site,
            node_id: Some(run.node_id),
            summary: format!(
                "the {kind} of {hostname} with profile {name} revision {revision} instead of {from}"
            ),
            reason: reason.clone(),
            request: kept(command_path(&command), id, asked)?,
            target: json!({ "run": id, "from": from, "profile_revision": revision }),
        };
        second_person::check(ctx, caller, checked).await?;
    }
    let command = (command, revision);
    ctx.store.continue_with_profile(ctx.now(), id, command, &actor, &reason).await?;
    ctx.wake_engine();
    Ok(Json(view(ctx, id).await?))
}

const fn command_path(command: &OperatorCommand) -> &'static str {
    match command {
        OperatorCommand::Retry => "/api/v1/runs/{run}/retry",
        _ => "/api/v1/runs/{run}/resume",
    }
}

/// A request on a run, as it is kept for another person to decide on.
pub(crate) fn kept(path: &str, id: RunId, asked: &impl Serialize) -> ApiResult<ApprovalRequest> {
    let body = serde_json::to_vec(asked).map_err(|_| problem(ProblemCode::Internal))?;
    Ok(ApprovalRequest::post(path, &id.to_string(), &body))
}

/// Body of a cancel.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelRun {
    /// Name of the operator, as the audit keeps it.
    actor: String,
    /// The operator's reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    reason: String,
    /// Leave the machine in MAAS as it is, whatever it is doing.
    #[serde(default)]
    leave_machine: bool,
}

/// `POST /api/v1/runs/ID/cancel`: the run ends, as its step allows.
pub(crate) async fn cancel(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(asked): Body<CancelRun>,
) -> ApiResult<Json<RunView>> {
    let command = OperatorCommand::Cancel { leave_machine: asked.leave_machine };
    apply_command(&ctx, &text, command, caller.actor_and_reason(&asked.actor, &asked.reason)?).await
}

/// Longest time for which an operator's word may stand in for a check, in seconds.
const LONGEST_SKIP_SECONDS: u32 = 7 * 86_400;

/// Body of a skipped check.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkipCheck {
    /// Name of the operator, as the audit keeps it.
    actor: String,
    /// The operator's reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    reason: String,
    /// Name of the check.
    #[schemars(with = "text::FilledText")]
    check: String,
    /// For how long, in seconds.
    #[schemars(range(min = 1, max = 604_800))]
    seconds: u32,
}

/// `POST /api/v1/runs/ID/skip-check`: an operator answers for a check of the run, for a while.
pub(crate) async fn skip_check(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(asked): Body<SkipCheck>,
) -> ApiResult<Json<RunView>> {
    let actor_and_reason = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    if !(1..=LONGEST_SKIP_SECONDS).contains(&asked.seconds) {
        let message = format!("expected 1 to {LONGEST_SKIP_SECONDS} seconds");
        return Err(invalid("seconds", message).into());
    }
    if COMPLETION_GATES.contains(&asked.check.as_str()) {
        let detail = format!("{} is one of the seven completion gates", asked.check);
        return Err(problem(ProblemCode::GateNotSkippable).with_detail(detail).into());
    }
    let id = find_run(&ctx, &text).await?;
    let run = ctx.store.run(id).await?;
    let checks = &run.state.checks;
    if !checks.contains_key(&asked.check) {
        let names: Vec<&str> = checks.keys().map(String::as_str).collect();
        let message = format!("unknown check; the run has these checks: {}", names.join(", "));
        return Err(invalid("check", message).into());
    }
    hold_skip(&ctx, &caller, &run, &asked).await?;
    let until = ctx.now().plus_seconds(f64::from(asked.seconds));
    let command = OperatorCommand::SkipCheck { check: asked.check, until };
    apply_command(&ctx, &id.to_string(), command, actor_and_reason).await
}

/// A run that skips the check of its image deploys one that nobody approved: the skip waits as an
/// approval of the image does.
async fn hold_skip(
    ctx: &Ctx,
    caller: &Caller,
    run: &RunRecord,
    asked: &SkipCheck,
) -> ApiResult<()> {
    if asked.check != IMAGE_CHECK {
        return Ok(());
    }
    let site = ctx.store.site(run.site_id).await?;
    let hostname = ctx.store.node(run.node_id).await?.hostname;
    let checked = CheckedRequest {
        guarded: Guarded::ApproveImage,
        kind: ApprovalKind::Continuation,
        site: &site,
        node_id: Some(run.node_id),
        summary: format!("the {} of {hostname} without its image check", run.kind),
        reason: asked.reason.clone(),
        request: kept("/api/v1/runs/{run}/skip-check", run.id, asked)?,
        target: json!({ "run": run.id, "profile_revision": run.profile_revision }),
    };
    second_person::check(ctx, caller, checked).await
}
