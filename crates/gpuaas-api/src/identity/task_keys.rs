//! `/api/v1/task-keys`, and the signing of tasks.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_bundle::{Envelope, SigningKey, order};
use gpuaas_store::{ExposeSecret as _, NewAuditEntry, SecretString, StoreError};
use gpuaas_types::agent::{
    AssignedTask, SignedTask, Task, TaskBatch, TaskKey, TaskKeyState, TaskKeys,
};
use gpuaas_types::api::{ActivateTaskKey, RetireTaskKey};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{AuditAction, NodeId};
use serde_json::json;

use crate::ctx::Ctx;
use crate::http::body::Body;
use crate::http::problem::{ApiResult, problem};
use crate::identity::caller::Caller;

/// `GET /api/v1/task-keys`.
pub(crate) async fn list(State(ctx): State<Ctx>) -> ApiResult<Json<TaskKeys>> {
    ensure_active_key(&ctx).await?;
    read_anew(&ctx).await.map(Json)
}

/// `POST /api/v1/task-keys`: makes a key that agents learn of before it signs.
pub(crate) async fn stage_key(
    State(ctx): State<Ctx>,
    caller: Caller,
) -> ApiResult<(StatusCode, Json<TaskKeys>)> {
    ensure_active_key(&ctx).await?;
    let (public_key, secret) = new_key()?;
    let audit =
        NewAuditEntry::new(caller.name(), AuditAction::TaskKeyStage, &public_key, json!({}));
    ctx.store.add_task_key(ctx.now(), &public_key, &secret, Some(audit)).await?;
    Ok((StatusCode::CREATED, Json(read_anew(&ctx).await?)))
}

/// The keys as they are now, such as after a change.
async fn read_anew(ctx: &Ctx) -> ApiResult<TaskKeys> {
    ctx.known_task_keys().forget();
    Ok(ctx.store.task_keys().await?)
}

/// `POST /api/v1/task-keys/activate`: lets the staged key sign.
pub(crate) async fn activate(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<ActivateTaskKey>,
) -> ApiResult<Json<TaskKeys>> {
    let until = ctx.now().plus_seconds(f64::from(asked.grace_seconds));
    let audit = NewAuditEntry::new(caller.name(), AuditAction::TaskKeyActivate, "", json!(asked));
    ctx.store.activate_task_key(ctx.now(), until, audit).await?;
    read_anew(&ctx).await.map(Json)
}

/// `POST /api/v1/task-keys/retire`: agents refuse what the key signed.
pub(crate) async fn retire(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<RetireTaskKey>,
) -> ApiResult<Json<TaskKeys>> {
    let audit =
        NewAuditEntry::new(caller.name(), AuditAction::TaskKeyRetire, &asked.public_key, json!({}));
    ctx.store.retire_task_key(ctx.now(), &asked.public_key, audit).await?;
    read_anew(&ctx).await.map(Json)
}

/// The keys that agents accept: all but the retired ones.
pub(crate) async fn for_agents(ctx: &Ctx) -> ApiResult<TaskKeys> {
    let mut keys = ensure_active_key(ctx).await?;
    keys.keys.retain(|key| key.state != TaskKeyState::Retired);
    Ok(keys)
}

/// The keys for an agent that has those of `known`, signed, when there are newer ones.
pub(crate) async fn newer_than(ctx: &Ctx, known: i64) -> ApiResult<Option<Envelope>> {
    let keys = for_agents(ctx).await?;
    if keys.revision <= known {
        return Ok(None);
    }
    let key = signing_key(ctx, &keys).await?;
    order::sign_keys(&key, &keys).map(Some).map_err(|error| key_problem(&error).into())
}

/// Tasks, each signed with the active key.
pub(crate) async fn sign_tasks(
    ctx: &Ctx,
    node_id: NodeId,
    tasks: Vec<Task>,
) -> ApiResult<TaskBatch<Envelope>> {
    if tasks.is_empty() {
        return Ok(TaskBatch::new(Vec::new()));
    }
    let key = signing_key(ctx, &ensure_active_key(ctx).await?).await?;
    let tasks = tasks.into_iter().map(|task| {
        let id = task.id;
        order::sign(&key, &AssignedTask { node_id, task }).map(|order| SignedTask { id, order })
    });
    let tasks = tasks.collect::<Result<_, _>>().map_err(|error| key_problem(&error))?;
    Ok(TaskBatch::new(tasks))
}

/// The keys of this database, of which one is active: the first is made when it is first needed.
async fn ensure_active_key(ctx: &Ctx) -> ApiResult<TaskKeys> {
    let now = ctx.now();
    if let Some(keys) = ctx.known_task_keys().keys(now) {
        return Ok(keys);
    }
    let mut keys = ctx.store.task_keys().await?;
    if keys.revision == 0 {
        let (public_key, secret) = new_key()?;
        ctx.store.add_task_key(now, &public_key, &secret, None).await?;
        keys = ctx.store.task_keys().await?;
    }
    ctx.known_task_keys().note(now, &keys);
    Ok(keys)
}

async fn signing_key(ctx: &Ctx, keys: &TaskKeys) -> ApiResult<Arc<SigningKey>> {
    let is_active = |key: &&TaskKey| key.state == TaskKeyState::Active;
    let public_key = keys.keys.iter().find(is_active).map(|key| key.public_key.as_str());
    let public_key = public_key
        .ok_or_else(|| StoreError::NotFound { what: "task key", key: "active".to_owned() })?;
    if let Some(key) = ctx.known_task_keys().signer(public_key) {
        return Ok(key);
    }
    let secret = ctx.store.task_key_secret(public_key).await?;
    let key = SigningKey::from_pem(secret.expose_secret()).map_err(|error| key_problem(&error))?;
    let key = Arc::new(key);
    ctx.known_task_keys().note_signer(public_key, &key);
    Ok(key)
}

fn new_key() -> ApiResult<(String, SecretString)> {
    let key = SigningKey::generate().map_err(|error| key_problem(&error))?;
    Ok((key.public().to_string(), SecretString::from(key.to_pem())))
}

fn key_problem(error: &gpuaas_bundle::SignatureError) -> gpuaas_types::Problem {
    tracing::error!(%error, "cannot use a task key");
    problem(ProblemCode::Internal)
}
