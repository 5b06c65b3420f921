//! `/api/v1/task-keys`, and the signing of tasks.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_bundle::{Envelope, SigningKey, order};
use gpuaas_store::{Secret, StoreError};
use gpuaas_types::NodeId;
use gpuaas_types::agent::{
    AssignedTask, SignedTask, Task, TaskBatch, TaskKey, TaskKeyState, TaskKeys,
};
use gpuaas_types::api::{ActivateTaskKey, RetireTaskKey};
use gpuaas_types::codes::ProblemCode;
use serde_json::json;

use crate::body::Body;
use crate::ctx::Ctx;
use crate::problem::{ApiResult, problem};

/// `GET /api/v1/task-keys`.
pub(crate) async fn list(State(ctx): State<Ctx>) -> ApiResult<Json<TaskKeys>> {
    ensured(&ctx).await.map(Json)
}

/// `POST /api/v1/task-keys`: makes a key that agents learn of before it signs.
pub(crate) async fn stage_key(State(ctx): State<Ctx>) -> ApiResult<(StatusCode, Json<TaskKeys>)> {
    ensured(&ctx).await?;
    let (public_key, secret) = new_key()?;
    ctx.store.add_task_key(&public_key, &secret, false).await?;
    ctx.audit("task_key.stage", &public_key, json!({})).await;
    Ok((StatusCode::CREATED, Json(ctx.store.task_keys().await?)))
}

/// `POST /api/v1/task-keys/activate`: lets the staged key sign.
pub(crate) async fn activate(
    State(ctx): State<Ctx>,
    Body(asked): Body<ActivateTaskKey>,
) -> ApiResult<Json<TaskKeys>> {
    let until = ctx.now().plus_seconds(f64::from(asked.grace_seconds));
    ctx.store.activate_task_key(until).await?;
    ctx.audit("task_key.activate", "", json!(asked)).await;
    Ok(Json(ctx.store.task_keys().await?))
}

/// `POST /api/v1/task-keys/retire`: what the key signed counts no more.
pub(crate) async fn retire(
    State(ctx): State<Ctx>,
    Body(asked): Body<RetireTaskKey>,
) -> ApiResult<Json<TaskKeys>> {
    ctx.store.retire_task_key(&asked.public_key).await?;
    ctx.audit("task_key.retire", &asked.public_key, json!({})).await;
    Ok(Json(ctx.store.task_keys().await?))
}

/// What agents are told: the keys that count.
pub(crate) async fn for_agents(ctx: &Ctx) -> ApiResult<TaskKeys> {
    let mut keys = ensured(ctx).await?;
    keys.keys.retain(|key| key.state != TaskKeyState::Retired);
    Ok(keys)
}

/// The keys for an agent that has those of `known`, signed, when there are newer ones.
pub(crate) async fn newer(ctx: &Ctx, known: i64) -> ApiResult<Option<Envelope>> {
    let keys = for_agents(ctx).await?;
    if keys.revision <= known {
        return Ok(None);
    }
    let key = active(ctx, &keys).await?;
    order::sign_keys(&key, &keys).map(Some).map_err(|error| broken(&error).into())
}

/// Tasks as they travel to the node.
pub(crate) async fn signed(
    ctx: &Ctx,
    node_id: NodeId,
    tasks: Vec<Task>,
) -> ApiResult<TaskBatch<Envelope>> {
    if tasks.is_empty() {
        return Ok(TaskBatch { tasks: Vec::new() });
    }
    let key = active(ctx, &ensured(ctx).await?).await?;
    let tasks = tasks.into_iter().map(|task| {
        let id = task.id;
        order::sign(&key, &AssignedTask { node_id, task }).map(|order| SignedTask { id, order })
    });
    let tasks = tasks.collect::<Result<_, _>>().map_err(|error| broken(&error))?;
    Ok(TaskBatch { tasks })
}

/// The keys of this database, of which one is active: the first is made when it is first needed.
async fn ensured(ctx: &Ctx) -> ApiResult<TaskKeys> {
    let keys = ctx.store.task_keys().await?;
    if keys.revision > 0 {
        return Ok(keys);
    }
    let (public_key, secret) = new_key()?;
    ctx.store.add_task_key(&public_key, &secret, true).await?;
    Ok(ctx.store.task_keys().await?)
}

async fn active(ctx: &Ctx, keys: &TaskKeys) -> ApiResult<SigningKey> {
    let is_active = |key: &&TaskKey| key.state == TaskKeyState::Active;
    let public_key = keys.keys.iter().find(is_active).map(|key| key.public_key.as_str());
    let public_key = public_key
        .ok_or_else(|| StoreError::NotFound { what: "task key", key: "active".to_owned() })?;
    let secret = ctx.store.task_key_secret(public_key).await?;
    SigningKey::from_pem(secret.expose()).map_err(|error| broken(&error).into())
}

fn new_key() -> ApiResult<(String, Secret)> {
    let key = SigningKey::generate().map_err(|error| broken(&error))?;
    Ok((key.public().to_string(), Secret::new(key.to_pem())))
}

fn broken(error: &gpuaas_bundle::SignatureError) -> gpuaas_types::Problem {
    tracing::error!(%error, "a task key does not work");
    problem(ProblemCode::Internal)
}
