//! `/api/v1/approvals`: requests that wait for another person, and what that person says.
//!
//! An approved request is executed as its requester, through the handler that it was sent to: with the
//! rights that the requester's token has now, or those that an identity provider gave at the request,
//! because no other token exists then. The decision is committed first: its statement changes the
//! request only while it is open, so the first of several deciders wins. The effect and the state `done` are one transaction. So nothing is executed
//! twice, and [`execute_decided`] executes what a killed control plane left `approved`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::IntoResponse as _;
use gpuaas_core::second_person::{Verdict, VerdictRefusal, may_decide, state_at};
use gpuaas_store::{
    ApprovalExecution, ApprovalFilter, ApprovalRequester, ApprovalVerdict, IdKind, NewAuditEntry,
    RequestOrigin, StoredApproval, current_origin, with_origin,
};
use gpuaas_types::access::operation;
use gpuaas_types::api::{List, Source, TimelineEvent};
use gpuaas_types::approval::{
    ApprovalDecision, ApprovalKind, ApprovalRequest, ApprovalState, ApprovalView,
};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::text;
use gpuaas_types::{ApprovalId, AuditAction, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::agent::tasks;
use crate::bundle::bundles;
use crate::ctx::Ctx;
use crate::http::body::{Body, JsonBytes, Key, QueryParams, site_id};
use crate::http::etag::IfMatch;
use crate::http::id_prefix;
use crate::http::pages::PageRequest;
use crate::http::problem::{ApiResult, Refusal, problem};
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, hide_secrets};
use crate::image::{experiments, images};
use crate::node::{self, nodes};
use crate::run::{self, batches, onboard_plan, runs};
use crate::site::sites;
use crate::slice;

/// Seconds after a decision in which the control plane that took it executes the request.
const EXECUTION_SECONDS: f64 = 15.0;

/// Which requests to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// That concern this site.
    site: Option<String>,
    /// That may be decided.
    #[serde(default)]
    open: bool,
    /// After this one, in the order of the list.
    #[schemars(with = "Option<text::IdText>")]
    after: Option<String>,
    /// Most items.
    #[schemars(range(min = 1))]
    limit: Option<u32>,
}

/// `GET /api/v1/approvals?site=&open=&after=&limit=`: the newest first.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(asked): QueryParams<Filter>,
) -> ApiResult<Json<List<ApprovalView>>> {
    let page = PageRequest::parse(asked.after.as_deref(), asked.limit)?;
    let (site_id, now) = (site_id(&ctx, asked.site.as_deref()).await?, ctx.now());
    let filter = ApprovalFilter { site_id, node_id: None, open_at: asked.open.then_some(now) };
    let found = ctx.store.approvals(filter, page.query()).await?;
    Ok(Json(page.list(found, |one| one.id.to_string(), |one| view(one, now))))
}

/// `GET /api/v1/approvals/APPROVAL`.
pub(crate) async fn show(State(ctx): State<Ctx>, Key(text): Key) -> ApiResult<Json<ApprovalView>> {
    let id = find_approval(&ctx, &text).await?;
    Ok(Json(whole_view(&ctx, id).await?))
}

/// `POST /api/v1/approvals/APPROVAL/approve`: carries the request out.
pub(crate) async fn approve(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(said): Body<ApprovalDecision>,
) -> ApiResult<Json<ApprovalView>> {
    let id = find_approval(&ctx, &text).await?;
    let stored = decidable(&ctx, &caller, id, Verdict::Approve).await?;
    let requester = present_requester(&ctx, &stored.requester).await?;
    let request = ctx.store.held_request(id).await?;
    let word = verdict(&ctx, &caller, &stored, Verdict::Approve, &said)?;
    ctx.store.decide_approval(ctx.now(), word).await?;
    execute(&ctx, requester, stored, request).await?;
    Ok(Json(whole_view(&ctx, id).await?))
}

/// Executes an approved request and stores its response. The state `done` is committed with the effect
/// ([`ApprovalExecution`]), so a request that is `approved` had none and may be executed.
async fn execute(
    ctx: &Ctx,
    requester: ApprovalRequester,
    stored: StoredApproval,
    request: ApprovalRequest,
) -> ApiResult<()> {
    let execution = ApprovalExecution { approval: stored.id, token: Uuid::new_v4() };
    let origin = RequestOrigin { execution: Some(execution), ..current_origin() };
    let work = carry_out(ctx, requester, &stored, request);
    let (state, answer) = match with_origin(origin, work).await {
        Ok(answer) => (ApprovalState::Done, answer),
        // Another control plane executes it, and stores its response.
        Err(Refusal(problem)) if problem.code == ProblemCode::ApprovalDecided.as_str() => {
            return Ok(());
        }
        Err(Refusal(problem)) => {
            (ApprovalState::Failed, serde_json::to_value(problem).unwrap_or_default())
        }
    };
    Ok(ctx.store.end_approval(stored.id, state, answer).await?)
}

/// Executes the approved requests that had no effect, such as those of a control plane that was killed
/// after a decision. Returns how many.
///
/// # Errors
/// The database's.
pub(crate) async fn execute_decided(ctx: &Ctx) -> ApiResult<usize> {
    let before = ctx.now().plus_seconds(-EXECUTION_SECONDS);
    let decided = ctx.store.unexecuted_approvals(before).await?;
    let count = decided.len();
    for stored in decided {
        let id = stored.id;
        tracing::info!(approval = %id, "executing an approved request that had no effect yet");
        match present_requester(ctx, &stored.requester).await {
            Ok(requester) => {
                let request = ctx.store.held_request(id).await?;
                execute(ctx, requester, stored, request).await?;
            }
            Err(Refusal(problem)) => {
                let answer = serde_json::to_value(problem).unwrap_or_default();
                ctx.store.end_approval(id, ApprovalState::Failed, answer).await?;
            }
        }
    }
    Ok(count)
}

/// `POST /api/v1/approvals/APPROVAL/deny`: the request is not carried out.
pub(crate) async fn deny(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(said): Body<ApprovalDecision>,
) -> ApiResult<Json<ApprovalView>> {
    let id = find_approval(&ctx, &text).await?;
    let stored = decidable(&ctx, &caller, id, Verdict::Deny).await?;
    let word = verdict(&ctx, &caller, &stored, Verdict::Deny, &said)?;
    ctx.store.decide_approval(ctx.now(), word).await?;
    Ok(Json(whole_view(&ctx, id).await?))
}

/// The request named by an identifier or a unique prefix of one.
///
/// # Errors
/// `approval_not_found`, `id_ambiguous`; the database's.
pub(crate) async fn find_approval(ctx: &Ctx, text: &str) -> ApiResult<ApprovalId> {
    let missing = (ProblemCode::ApprovalNotFound, "an approval");
    id_prefix::resolve(ctx, text, (IdKind::Approval, ApprovalId), missing).await
}

/// The request, if the caller's word on it counts.
async fn decidable(
    ctx: &Ctx,
    caller: &Caller,
    id: ApprovalId,
    verdict: Verdict,
) -> ApiResult<StoredApproval> {
    let stored = ctx.store.approval(id).await?;
    let state = state_at(stored.state, stored.expires_at, ctx.now());
    if verdict == Verdict::Approve {
        for site in second_person::guarding_sites(ctx, &stored.site).await? {
            caller.check_site(Some(&site))?;
        }
    }
    let persons = (stored.requester.person.as_str(), caller.person());
    let refused = match may_decide(verdict, state, persons) {
        Ok(()) => return Ok(stored),
        Err(refused) => refused,
    };
    let (code, detail) = match refused {
        VerdictRefusal::OwnRequest => {
            let detail =
                format!("{} and {} are the same person", stored.requester.name, caller.name());
            (ProblemCode::ApprovalOwnRequest, detail)
        }
        VerdictRefusal::Expired => {
            (ProblemCode::ApprovalExpired, format!("it expired at {}", stored.expires_at))
        }
        VerdictRefusal::Decided(state) => {
            let by = stored.decided_by.as_deref().unwrap_or_default();
            (ProblemCode::ApprovalDecided, format!("it is already {state}, by {by}"))
        }
    };
    Err(problem(code).with_detail(detail).into())
}

/// The requester with the rights that its token has now; a revoked or expired token asks for nothing any
/// more. A person of an identity provider keeps the rights of the request.
///
/// # Errors
/// `approval_outdated`; the database's.
pub(crate) async fn present_requester(
    ctx: &Ctx,
    requester: &ApprovalRequester,
) -> ApiResult<ApprovalRequester> {
    let mut requester = requester.clone();
    let Some(id) = requester.token else { return Ok(requester) };
    let now = ctx.now();
    let counts = |token: &gpuaas_types::access::TokenView| {
        token.id == id && token.revoked_at.is_none() && token.expires_at.is_none_or(|end| now < end)
    };
    match ctx.store.access_tokens().await?.into_iter().find(counts) {
        Some(token) => {
            requester.grants = token.grants;
            Ok(requester)
        }
        None => {
            let detail = format!("the token of {} was revoked or has expired", requester.name);
            Err(problem(ProblemCode::ApprovalOutdated).with_detail(detail).into())
        }
    }
}

fn verdict(
    ctx: &Ctx,
    caller: &Caller,
    stored: &StoredApproval,
    verdict: Verdict,
    said: &ApprovalDecision,
) -> ApiResult<ApprovalVerdict> {
    let (decided_by, reason) = caller.actor_and_reason(&said.actor, &said.reason)?;
    let (action, verb, code) = match verdict {
        Verdict::Approve => (AuditAction::ApprovalApprove, "approved", TimelineCode::ApprovalGiven),
        Verdict::Deny => (AuditAction::ApprovalDeny, "denied", TimelineCode::ApprovalDenied),
    };
    let who = &stored.requester.name;
    let line = TimelineEvent {
        at: ctx.now(),
        run_id: None,
        step: None,
        source: Source::Operator,
        code: code.into(),
        text: format!("{decided_by} {verb} the request by {who}, {}: {reason}", stored.summary),
    };
    let audit = NewAuditEntry {
        actor: decided_by.clone(),
        action,
        subject: stored.id.to_string(),
        detail: json!({
            "site": stored.site, "kind": stored.kind, "summary": stored.summary,
            "requested_by": who, "reason": reason, "digest": stored.digest,
        }),
    };
    let history = vec![line];
    Ok(ApprovalVerdict { id: stored.id, verdict, decided_by, reason, history, audit })
}

/// Sends the request to its handler again, as whoever asked. Answers what the handler does.
async fn carry_out(
    ctx: &Ctx,
    requester: ApprovalRequester,
    stored: &StoredApproval,
    request: ApprovalRequest,
) -> ApiResult<Value> {
    let ApprovalRequest { method, path, key, body } = request;
    let row = operation(&method, &path).ok_or_else(|| problem(ProblemCode::RoleMissing))?;
    let caller = Caller::agreed(requester, stored.target_digest.clone()).asks_for(row)?;
    caller.check_site(Some(&stored.site))?;
    let (state, key) = (State(ctx.clone()), Key(key));
    let bytes = JsonBytes(body.to_string().into());
    // What is sent again is the same request to whoever keeps answers.
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::try_from(format!("approval-{}", stored.id)) {
        headers.insert("idempotency-key", value);
    }
    match stored.kind {
        ApprovalKind::Run => {
            let (_, Json(plan)) = run::begin::begin(state, caller, key, typed(body)?).await?;
            Ok(json!(plan))
        }
        ApprovalKind::Onboarding => {
            let (_, Json(made)) = nodes::onboard(state, caller, headers, bytes).await?;
            Ok(json!(made))
        }
        ApprovalKind::Batch => {
            let (_, Json(made)) = batches::create(state, caller, headers, bytes).await?;
            Ok(json!(made))
        }
        ApprovalKind::Bundle => {
            let Json(bundles) = bundles::approve(state, caller, key, typed(body)?).await?;
            Ok(json!(bundles))
        }
        ApprovalKind::Image => {
            let Json(image) = images::transition(state, caller, key, typed(body)?).await?;
            Ok(json!(image))
        }
        ApprovalKind::Experiment => {
            let (_, Json(experiment)) = experiments::start(state, caller, typed(body)?).await?;
            Ok(json!(experiment))
        }
        ApprovalKind::AgentUpdate => {
            let (_, Json(task)) = tasks::create(state, caller, key, headers, bytes).await?;
            Ok(json!(task))
        }
        ApprovalKind::Policy => {
            let changed = sites::change(state, caller, key, IfMatch::any(), typed(body)?).await?;
            Ok(json!({ "status": changed.into_response().status().as_u16() }))
        }
        ApprovalKind::NodeChange => {
            let Json(node) = node::change::change(state, caller, key, typed(body)?).await?;
            Ok(json!(node))
        }
        ApprovalKind::ClaimRelease => {
            let asked = QueryParams(typed(body)?.0);
            let Json(claim) = slice::claims::release(state, caller, key, asked).await?;
            Ok(json!(claim))
        }
        ApprovalKind::Continuation => continue_otherwise(&path, state, caller, key, body).await,
    }
}

/// Sends a request on a run or a batch to its handler again.
async fn continue_otherwise(
    path: &str,
    state: State<Ctx>,
    caller: Caller,
    key: Key,
    body: Value,
) -> ApiResult<Value> {
    let run = match path {
        "/api/v1/batches/{batch}/resume" => {
            let Json(batch) = batches::resume(state, caller, key, typed(body)?).await?;
            return Ok(json!(batch));
        }
        "/api/v1/runs/{run}/take-over" => {
            let Json(plan) = onboard_plan::take_over(state, caller, key, typed(body)?).await?;
            return Ok(json!(plan));
        }
        "/api/v1/runs/{run}/retry" => runs::retry(state, caller, key, typed(body)?).await?,
        "/api/v1/runs/{run}/skip-check" => {
            runs::skip_check(state, caller, key, typed(body)?).await?
        }
        _ => runs::resume(state, caller, key, typed(body)?).await?,
    };
    let Json(run) = run;
    Ok(json!({ "run": run.id, "status": run.status }))
}

fn typed<T: DeserializeOwned>(body: Value) -> ApiResult<Body<T>> {
    serde_json::from_value(body).map(Body).map_err(|error| {
        tracing::error!(%error, "a stored request was written by another version");
        problem(ProblemCode::ApprovalOutdated).into()
    })
}

/// The request with what was sent.
async fn whole_view(ctx: &Ctx, id: ApprovalId) -> ApiResult<ApprovalView> {
    let stored = ctx.store.approval(id).await?;
    let mut request = ctx.store.held_request(id).await?;
    hide_secrets(&mut request.body);
    Ok(ApprovalView { request: Some(request), ..view(stored, ctx.now()) })
}

fn view(stored: StoredApproval, now: Timestamp) -> ApprovalView {
    ApprovalView {
        id: stored.id,
        kind: stored.kind,
        state: state_at(stored.state, stored.expires_at, now),
        site: stored.site,
        node: stored.hostname,
        summary: stored.summary,
        requested_by: stored.requester.name,
        reason: stored.reason,
        requested_at: stored.requested_at,
        expires_at: stored.expires_at,
        digest: stored.digest,
        target_digest: stored.target_digest,
        request: None,
        decided_by: stored.decided_by,
        decided_at: stored.decided_at,
        decision_reason: stored.decision_reason,
        answer: stored.answer,
    }
}
