//! `/api/v1/approvals`: requests that wait for another person, and what that person says.
//!
//! An approval is carried out as its requester, through the handler that the request was sent to: with
//! the rights that its token has now, or those that an identity provider gave when it was asked, since
//! nobody can be asked for another token then. The decision is written down before that, by a statement that
//! one of several deciders wins: nothing is carried out twice, and what a control plane that dies leaves
//! undone stays `approved` without an answer.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::IntoResponse as _;
use gpuaas_core::second_person::{Verdict, VerdictRefusal, may_decide, state_at};
use gpuaas_store::{
    ApprovalFilter, ApprovalRequester, ApprovalVerdict, IdKind, NewAuditEntry, StoredApproval,
    current_origin, with_origin,
};
use gpuaas_types::access::operation;
use gpuaas_types::api::{List, Source, TimelineEvent};
use gpuaas_types::approval::{
    ApprovalDecision, ApprovalKind, ApprovalRequest, ApprovalState, ApprovalView,
};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::text;
use gpuaas_types::{ApprovalId, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::Instrument as _;

use crate::body::{Body, JsonBytes, Key, QueryParams, site_id};
use crate::caller::Caller;
use crate::ctx::Ctx;
use crate::etag::IfMatch;
use crate::pages::PageRequest;
use crate::problem::{ApiResult, Refusal, problem};
use crate::second_person::hide_secrets;
use crate::{batches, bundles, id_prefix, images, nodes, offboarding, sites, tasks};

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
    let requester = present_requester(&ctx, &stored).await?;
    let request = ctx.store.held_request(id).await?;
    let word = verdict(&ctx, &caller, &stored, Verdict::Approve, &said)?;
    ctx.store.decide_approval(ctx.now(), word).await?;
    let done = ctx.clone();
    // Whoever hangs up now ends neither the work nor the keeping of its answer.
    let work = async move {
        let outcome = carry_out(&done, requester, &stored, request).await;
        let (state, answer) = match outcome {
            Ok(answer) => (ApprovalState::Done, answer),
            Err(Refusal(problem)) => {
                (ApprovalState::Failed, serde_json::to_value(problem).unwrap_or_default())
            }
        };
        done.store.end_approval(stored.id, state, answer).await
    };
    let ended = tokio::spawn(with_origin(current_origin(), work).in_current_span()).await;
    ended.map_err(|error| {
        tracing::error!(%error, approval = %id, "what was agreed to did not end well");
        Refusal::from(problem(ProblemCode::Internal))
    })??;
    Ok(Json(whole_view(&ctx, id).await?))
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

/// The request that an identifier, or the begin of one that no other has, names.
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
    let persons = (stored.requester.person.as_str(), caller.person());
    let refused = match may_decide(verdict, state, persons) {
        Ok(()) => return Ok(stored),
        Err(refused) => refused,
    };
    let (code, detail) = match refused {
        VerdictRefusal::OwnRequest => {
            let detail = format!("{} and {} are one person", stored.requester.name, caller.name());
            (ProblemCode::ApprovalOwnRequest, detail)
        }
        VerdictRefusal::Expired => {
            (ProblemCode::ApprovalExpired, format!("it expired at {}", stored.expires_at))
        }
        VerdictRefusal::Decided(state) => {
            let by = stored.decided_by.as_deref().unwrap_or_default();
            (ProblemCode::ApprovalDecided, format!("it is {state}, by {by}"))
        }
    };
    Err(problem(code).with_detail(detail).into())
}

/// Who asked, with the rights that its token has now: one that was taken back since asks for nothing any
/// more. Whoever signed in at an identity provider keeps the rights of then.
async fn present_requester(ctx: &Ctx, stored: &StoredApproval) -> ApiResult<ApprovalRequester> {
    let mut requester = stored.requester.clone();
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
            let detail = format!("the token of {} was taken back, or has expired", requester.name);
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
        Verdict::Approve => ("approval.approve", "agreed to", TimelineCode::ApprovalGiven),
        Verdict::Deny => ("approval.deny", "said no to", TimelineCode::ApprovalDenied),
    };
    let who = &stored.requester.name;
    let line = TimelineEvent {
        at: ctx.now(),
        run_id: None,
        step: None,
        source: Source::Operator,
        code: code.into(),
        text: format!("{decided_by} {verb} what {who} asked, {}: {reason}", stored.summary),
    };
    let audit = NewAuditEntry {
        actor: decided_by.clone(),
        action: action.to_owned(),
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
            let (_, Json(plan)) = offboarding::begin(state, caller, key, typed(body)?).await?;
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
        ApprovalKind::AgentUpdate => {
            let (_, Json(task)) = tasks::create(state, caller, key, headers, bytes).await?;
            Ok(json!(task))
        }
        ApprovalKind::Policy => {
            let changed = sites::change(state, caller, key, IfMatch::any(), typed(body)?).await?;
            Ok(json!({ "status": changed.into_response().status().as_u16() }))
        }
    }
}

fn typed<T: DeserializeOwned>(body: Value) -> ApiResult<Body<T>> {
    serde_json::from_value(body).map(Body).map_err(|error| {
        tracing::error!(%error, "a request that was kept is of another version");
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
