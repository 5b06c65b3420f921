//! The one door to the admin API: whose credential it is, and whether its role allows what is
//! asked, where it is asked. The rules are the table of [`gpuaas_types::access`].

use std::collections::HashMap;

use axum::Json;
use axum::extract::{MatchedPath, Query, RawPathParams, Request, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use gpuaas_identity::oidc::TokenHead;
use gpuaas_store::{RequestOrigin, TokenPurpose, current_origin, sha256, with_origin};
use gpuaas_types::TaskId;
use gpuaas_types::access::{AccessView, OperationRow, Scope, operation};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::limits::ListenerKind;

use crate::ctx::Ctx;
use crate::http::problem::{ApiResult, problem};
use crate::identity::approvals::find_approval;
use crate::identity::auth::{self, judge};
use crate::identity::caller::Caller;
use crate::identity::refused_credentials::ShownCredential;
use crate::node::view::find_listed;
use crate::run::runs::find_run;
use crate::slice::claims::find_claim;

/// Name of the caller whose credential is good and does not permit the request, for the audit log.
#[derive(Debug, Clone)]
pub(crate) struct RefusedCaller(pub(crate) String);

/// What tokens of programs begin with.
pub(crate) const TOKEN_PREFIX: &str = "gptoken";

/// Lets a request through that its credential may send.
pub(crate) async fn check(
    State(ctx): State<Ctx>,
    params: RawPathParams,
    mut request: Request,
    next: Next,
) -> ApiResult<Response> {
    let headers = request.headers().clone();
    let digest = sha256(auth::bearer(&headers)?);
    let shown = ShownCredential::new(ListenerKind::Operators, request.extensions(), digest);
    let caller = judge(&ctx, shown, authenticate(&ctx, &headers)).await?;
    ctx.count_request(ListenerKind::Operators, caller.id())?;
    let row = row(&request)?;
    let (name, uri) = (caller.name().to_owned(), request.uri().clone());
    let caller = match permit(&ctx, caller, row, &params, &uri).await {
        Ok(caller) => caller,
        Err(refusal) => {
            let mut response = refusal.into_response();
            response.extensions_mut().insert(RefusedCaller(name));
            return Ok(response);
        }
    };
    request.extensions_mut().insert(caller);
    let origin = RequestOrigin { role: Some(row.role.to_string()), ..current_origin() };
    Ok(with_origin(origin, next.run(request)).await)
}

/// The caller, if its credential permits the operation there.
async fn permit(
    ctx: &Ctx,
    caller: Caller,
    row: &'static OperationRow,
    params: &RawPathParams,
    uri: &Uri,
) -> ApiResult<Caller> {
    let caller = caller.asks_for(row)?;
    check_site(ctx, &caller, row, params, uri).await?;
    Ok(caller)
}

/// Whose credential it still is that a request came with which is long under way, if it still opens
/// the path.
///
/// # Errors
/// As for a new request.
pub(crate) async fn authenticate_again(
    ctx: &Ctx,
    headers: &HeaderMap,
    path: &str,
) -> ApiResult<Caller> {
    let row = operation("GET", path).ok_or_else(|| problem(ProblemCode::RoleMissing))?;
    Ok(authenticate(ctx, headers).await?.asks_for(row)?)
}

/// Whose credential the request carries.
async fn authenticate(ctx: &Ctx, headers: &HeaderMap) -> ApiResult<Caller> {
    let token = auth::bearer(headers)?;
    if token.starts_with(TOKEN_PREFIX) {
        let token = ctx.store.use_access_token(ctx.now(), sha256(token)).await?;
        return Ok(Caller::of_token(token));
    }
    if let Some(sign_in) = ctx.settings.sign_in.as_ref().filter(|_| TokenHead::is_likely(token)) {
        let (signed_in, grants) = sign_in.judge(token, ctx.signing_time()).await?;
        return Ok(Caller::signed_in(signed_in.id, signed_in.display, grants));
    }
    auth::check_token(ctx, headers, TokenPurpose::Admin).await?;
    Ok(Caller::admin())
}

fn row(request: &Request) -> ApiResult<&'static OperationRow> {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let method = match *request.method() {
        Method::HEAD => "GET",
        ref method => method.as_str(),
    };
    operation(method, path).ok_or_else(|| {
        let detail = format!("no role is allowed to send {method} {path}");
        problem(ProblemCode::RoleMissing).with_detail(detail).into()
    })
}

/// Refuses what a role for some sites asks at another one. The site of a body is read by the
/// handler, which asks [`Caller::check_site`].
async fn check_site(
    ctx: &Ctx,
    caller: &Caller,
    row: &OperationRow,
    params: &RawPathParams,
    uri: &Uri,
) -> ApiResult<()> {
    if caller.holds_everywhere() {
        return Ok(());
    }
    let text = params.iter().next().map_or("", |(_, value)| value);
    let site = match row.scope {
        Scope::Shared | Scope::SiteOfBody => return Ok(()),
        Scope::Everywhere => None,
        Scope::SiteOfPath => Some(text.to_owned()),
        Scope::SiteOfQuery => {
            let query = Query::<HashMap<String, String>>::try_from_uri(uri);
            query.ok().and_then(|Query(mut query)| query.remove("site"))
        }
        Scope::SiteOfNode => Some(find_listed(ctx, text).await?.site),
        Scope::SiteOfRun => {
            let run = ctx.store.run(find_run(ctx, text).await?).await?;
            Some(ctx.store.site(run.site_id).await?.spec.name)
        }
        Scope::SiteOfTask => {
            let id: TaskId = text.parse().map_err(|_| problem(ProblemCode::TaskNotFound))?;
            Some(site_of_node(ctx, ctx.store.operator_task(id).await?.node_id).await?)
        }
        Scope::SiteOfClaim => Some(ctx.store.slot_claim(find_claim(ctx, text).await?).await?.site),
        Scope::SiteOfApproval => {
            Some(ctx.store.approval(find_approval(ctx, text).await?).await?.site)
        }
        Scope::SiteOfExperiment => Some(ctx.store.experiment(text).await?.site),
        Scope::SiteOfBatch => Some(ctx.store.batch(text).await?.spec.site),
    };
    Ok(caller.check_site(site.as_deref())?)
}

async fn site_of_node(ctx: &Ctx, id: gpuaas_types::NodeId) -> ApiResult<String> {
    Ok(ctx.store.listed_node(id).await?.site)
}

/// `GET /api/v1/access`: who the credential stands for.
pub(crate) async fn show(caller: Caller) -> Json<AccessView> {
    Json(caller.view())
}
