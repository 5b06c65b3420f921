//! `/api/v1/nodes/NODE/tasks` and `/api/v1/tasks/ID`: what operators have agents do.
//!
//! A task is checked here before it is signed, with the same bounds that the agent checks again,
//! and refused where it would touch what is not ours or get in the way of a run.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use gpuaas_artifact::validate_ca_bundle;
use gpuaas_store::{
    IdKind, IdempotencyKey, ListedNode, NewAuditEntry, NewOperatorTask, OperatorTask,
};
use gpuaas_types::agent::{Operation, Task, TaskSpec};
use gpuaas_types::api::{List, Source, TimelineEvent};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::filter::FilterList;
use gpuaas_types::spec::ReleaseMode;
use gpuaas_types::task::{TaskRequest, TaskState, TaskView};
use gpuaas_types::text;
use gpuaas_types::{AuditAction, NodeId, NodeState, RunStatus, TaskId, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::agent;
use crate::ctx::Ctx;
use crate::http::body::{JsonBytes, Key, QueryParams};
use crate::http::id_prefix;
use crate::http::idempotency::idempotency_key;
use crate::http::pages::{PageRequest, list_filter};
use crate::http::problem::{ApiResult, invalid, problem};
use crate::http::strict;
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, CheckedRequest, Guarded};
use crate::node::view::find_node;

/// Seconds within which an agent may be told to begin: least, and most.
const WITHIN_SECONDS: (u32, u32) = (10, 24 * 3600);

/// `POST /api/v1/nodes/NODE/tasks`.
pub(crate) async fn create(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    headers: HeaderMap,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<(StatusCode, Json<TaskView>)> {
    let request: TaskRequest = strict::from_slice(&bytes)?;
    let node_id = find_node(&ctx, &text).await?;
    let key = idempotency_key(&format!("task:{node_id}"), &caller, &headers, &bytes)?;
    issue(&ctx, &caller, node_id, request, key).await
}

/// Checks a task and gives it to the agent of a node; the earlier one where `key` was used.
pub(crate) async fn issue(
    ctx: &Ctx,
    caller: &Caller,
    node_id: NodeId,
    request: TaskRequest,
    key: Option<IdempotencyKey>,
) -> ApiResult<(StatusCode, Json<TaskView>)> {
    if let Some(key) = &key
        && let Some(id) = ctx.store.replayed_response::<TaskId>(key).await?
    {
        return Ok((StatusCode::ACCEPTED, Json(view(ctx, ctx.store.operator_task(id).await?))));
    }
    let (actor, reason) = caller.actor_and_reason(&request.actor, &request.reason)?;
    let kept = serde_json::to_vec(&request).map_err(|_| problem(ProblemCode::Internal))?;
    let listed = ctx.store.listed_node(node_id).await?;
    let operation = match complete_operation(ctx, &listed, request.operation).await {
        Ok(operation) => operation,
        Err(refusal) => {
            agent::update::audit_refusal(ctx, &listed, &actor, &refusal).await;
            return Err(refusal);
        }
    };
    let (least, most) = WITHIN_SECONDS;
    if !(least..=most).contains(&request.within_seconds) {
        return Err(invalid("within_seconds", format!("{least} to {most}")).into());
    }
    check_node(ctx, &listed, &operation, request.dry_run).await?;
    if !request.dry_run {
        hold_update(ctx, caller, &listed, &operation, (&kept, &reason)).await?;
    }
    let now = ctx.now();
    let id = TaskId::new(&*ctx.ids, now);
    let within = f64::from(request.within_seconds) * ctx.clock.factor();
    let (kind, dry_run) = (operation.kind(), request.dry_run);
    let how = if dry_run { ", as a dry run" } else { "" };
    let line = TimelineEvent {
        at: now,
        run_id: None,
        step: None,
        source: Source::Operator,
        code: TimelineCode::TaskAsked.into(),
        text: format!("{actor} requested the task {kind}{how}: {reason}"),
    };
    let audit = NewAuditEntry {
        actor: actor.clone(),
        action: AuditAction::NodeTask,
        subject: node_id.to_string(),
        detail: json!({
            "task": id, "hostname": listed.node.hostname, "operation": operation,
            "dry_run": dry_run, "reason": reason,
        }),
    };
    let spec = TaskSpec::Operate { dry_run, operation };
    let asked = NewOperatorTask {
        node_id,
        task: Task { id, spec, expires_at: now.plus_seconds(within) },
        actor,
        reason,
        history: vec![line],
        audit,
        idempotency: key,
    };
    let id = ctx.store.add_operator_task(now, asked).await?;
    Ok((StatusCode::ACCEPTED, Json(view(ctx, ctx.store.operator_task(id).await?))))
}

/// Has an update of the agent wait for another person, where the site wants that.
async fn hold_update(
    ctx: &Ctx,
    caller: &Caller,
    listed: &ListedNode,
    operation: &Operation,
    (kept, reason): (&[u8], &str),
) -> ApiResult<()> {
    let Operation::AgentUpdate { version, digest, .. } = operation else { return Ok(()) };
    let site = ctx.store.site(listed.node.site_id).await?;
    let node = &listed.node;
    let checked = CheckedRequest {
        guarded: Guarded::UpdateAgent,
        kind: ApprovalKind::AgentUpdate,
        site: &site,
        node_id: Some(node.id),
        summary: format!("an update of the agent on {} to {version}", node.hostname),
        reason: reason.to_owned(),
        request: ApprovalRequest::post("/api/v1/nodes/{node}/tasks", &node.id.to_string(), kept),
        target: json!({ "node": node.id, "version": version, "digest": digest }),
    };
    second_person::check(ctx, caller, checked).await
}

/// The operation within its bounds; an update of the agent with the executable that it is to.
async fn complete_operation(
    ctx: &Ctx,
    listed: &ListedNode,
    mut operation: Operation,
) -> ApiResult<Operation> {
    agent::update::complete(ctx, listed, &mut operation).await?;
    operation
        .check()
        .map_err(|fault| invalid(&format!("operation.{}", fault.field), fault.reason))?;
    if let Operation::RefreshTrust { registries } = &operation {
        for (index, registry) in registries.iter().enumerate() {
            if !registry.ca_pem.is_empty()
                && let Err(error) = validate_ca_bundle(&registry.ca_pem)
            {
                let field = format!("operation.registries.{index}.ca_pem");
                return Err(invalid(&field, error.to_string()).into());
            }
        }
    }
    Ok(operation)
}

async fn check_node(
    ctx: &Ctx,
    listed: &ListedNode,
    operation: &Operation,
    dry_run: bool,
) -> ApiResult<()> {
    let hostname = &listed.node.hostname;
    let state = listed.node.state;
    if matches!(state, NodeState::Retired | NodeState::Detached | NodeState::Deleted) {
        let detail = format!("{hostname} is {state}; its agent's credential was revoked");
        return Err(problem(ProblemCode::NodeWithoutAgent).with_detail(detail).into());
    }
    if listed.node.heartbeat_at.is_none() {
        let detail =
            format!("the agent of {hostname} has never sent a heartbeat; the node is {state}");
        return Err(problem(ProblemCode::NodeWithoutAgent).with_detail(detail).into());
    }
    let profile = ctx.store.profile(listed.node.profile_id).await?;
    if profile.spec.release_mode == ReleaseMode::Handoff && state == NodeState::Active {
        let detail = format!("profile {} has release_mode=handoff", profile.status.name);
        return Err(problem(ProblemCode::MachineHandedOff).with_detail(detail).into());
    }
    // A parked run rests, and what parked it may be what the task is to mend.
    let at_work = |status| matches!(status, RunStatus::Running | RunStatus::Waiting);
    if let Some(run) = listed.run.as_ref().filter(|run| at_work(run.status))
        && operation.disturbs()
        && !dry_run
    {
        let detail = format!(
            "{} would disturb {} run {} of {hostname}, which is {} at step {}",
            operation.kind(),
            run.kind,
            run.id,
            run.status,
            run.step
        );
        let hint = "wait for the run to end, or request a dry run";
        return Err(problem(ProblemCode::NodeHasOpenRun)
            .with_detail(detail)
            .with_hint(hint)
            .into());
    }
    Ok(())
}

/// Which tasks of a node to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskQuery {
    /// Filter expression, such as `kind=service succeeded=false`.
    #[schemars(length(max = 2000))]
    filter: Option<String>,
    /// After this one, in the order of the list.
    #[schemars(with = "Option<text::IdText>")]
    after: Option<String>,
    /// Most items.
    #[schemars(range(min = 1))]
    limit: Option<u32>,
}

/// `GET /api/v1/nodes/NODE/tasks?filter=&after=&limit=`: newest first, without the bytes of archives.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    Key(text): Key,
    QueryParams(asked): QueryParams<TaskQuery>,
) -> ApiResult<Json<List<TaskView>>> {
    let node_id = find_node(&ctx, &text).await?;
    let page = PageRequest::parse(asked.after.as_deref(), asked.limit)?;
    let filter = list_filter(FilterList::Tasks, asked.filter.as_deref())?;
    let tasks = ctx.store.operator_tasks(node_id, filter.as_ref(), page.query()).await?;
    let brief = |task| {
        let mut view = view(&ctx, task);
        if let Some(archive) = view.result.as_mut().and_then(|result| result.archive.as_mut()) {
            archive.data = None;
        }
        view
    };
    Ok(Json(page.list(tasks, |task| task.task.id.to_string(), brief)))
}

/// `GET /api/v1/tasks/ID`.
pub(crate) async fn show(State(ctx): State<Ctx>, Key(text): Key) -> ApiResult<Json<TaskView>> {
    let missing = (ProblemCode::TaskNotFound, "a task");
    let id = id_prefix::resolve(&ctx, &text, (IdKind::Task, TaskId), missing).await?;
    Ok(Json(view(&ctx, ctx.store.operator_task(id).await?)))
}

fn view(ctx: &Ctx, stored: OperatorTask) -> TaskView {
    let state = state(&stored, ctx.now(), ctx.clock.factor());
    let OperatorTask { task, node_id, hostname, actor, reason, created_at, .. } = stored;
    let (dry_run, operation) = match task.spec {
        TaskSpec::Operate { dry_run, operation } => (dry_run, operation),
        // Nothing else is stored with an actor.
        _ => (true, Operation::RepairDrift { gates: Vec::new() }),
    };
    TaskView {
        id: task.id,
        node_id,
        hostname,
        state,
        dry_run,
        operation,
        actor,
        reason,
        created_at,
        expires_at: task.expires_at,
        taken_at: stored.delivered_at,
        finished_at: stored.finished_at,
        result: stored.result,
    }
}

/// How a task stands: an agent that has it may take its time, and then counts as lost.
fn state(task: &OperatorTask, now: Timestamp, factor: f64) -> TaskState {
    let limit = match &task.task.spec {
        TaskSpec::Operate { operation, .. } => f64::from(operation.limit_seconds()) * factor,
        _ => 0.0,
    };
    let expires_at = task.task.expires_at;
    match (&task.result, task.delivered_at) {
        (Some(result), _) if result.succeeded => TaskState::Done,
        (Some(_), _) => TaskState::Failed,
        (None, None) if now > expires_at => TaskState::Expired,
        (None, None) => TaskState::Queued,
        (None, Some(_)) if now > expires_at.plus_seconds(limit) => TaskState::Expired,
        (None, Some(_)) => TaskState::Taken,
    }
}
