//! `/api/v1/tokens`: credentials for programs.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_store::{NewAccessToken, NewAuditEntry, StoreError, sha256};
use gpuaas_types::access::{MintedToken, RoleGrant, TokenRequest, TokenRevocation, TokenView};
use gpuaas_types::api::List;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::FilterList;
use gpuaas_types::{AuditAction, Problem, TokenId};
use serde_json::json;

use crate::check;
use crate::ctx::Ctx;
use crate::http::body::{Body, Key, QueryParams, WholeListFilter};
use crate::http::pages::list_filter;
use crate::http::problem::{ApiResult, invalid, problem};
use crate::identity::access::TOKEN_PREFIX;
use crate::identity::auth;
use crate::identity::caller::{Caller, RESERVED_NAMES};
use crate::identity::second_person;

/// Longest life of a token that has an end, in seconds: ten years.
const LONGEST_SECONDS: u64 = 10 * 366 * 86_400;
/// Most roles of one token.
const MOST_GRANTS: usize = 32;
/// Characters of a person's name that are kept.
const PERSON_CHARS: usize = 100;

/// `GET /api/v1/tokens?filter=`: by name, those that are revoked last.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(asked): QueryParams<WholeListFilter>,
) -> ApiResult<Json<List<TokenView>>> {
    let filter = list_filter(FilterList::Tokens, asked.filter.as_deref())?;
    Ok(Json(List::whole(ctx.store.list_access_tokens(filter.as_ref()).await?)))
}

/// `POST /api/v1/tokens`.
pub(crate) async fn create(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<TokenRequest>,
) -> ApiResult<(StatusCode, Json<MintedToken>)> {
    check::name("name", &asked.name)?;
    if RESERVED_NAMES.contains(&asked.name.as_str()) {
        return Err(invalid("name", format!("{:?} is a reserved name", asked.name)).into());
    }
    let reason = check::reason(&asked.reason)?;
    check_grants(&ctx, &asked.grants).await?;
    let now = ctx.now();
    let expires_at = match asked.expires_in_seconds {
        None => None,
        Some(seconds @ 60..=LONGEST_SECONDS) => {
            Some(now.plus_seconds(std::time::Duration::from_secs(seconds).as_secs_f64()))
        }
        Some(_) => {
            let message = format!("60 to {LONGEST_SECONDS} seconds");
            return Err(invalid("expires_in_seconds", message).into());
        }
    };
    let person = match asked.person.as_deref().map(str::trim) {
        None => caller.person().to_owned(),
        Some("") => return Err(invalid("person", "must not be empty").into()),
        Some(person) => check::plain_text(person, PERSON_CHARS),
    };
    if person != caller.person() {
        second_person::refuse_new_person(&ctx, &person, &asked.grants).await?;
    }
    let token = auth::mint(TOKEN_PREFIX)?;
    let id = TokenId::new(&*ctx.ids, now);
    let entry = NewAuditEntry {
        actor: caller.name().to_owned(),
        action: AuditAction::TokenCreate,
        subject: asked.name.clone(),
        detail: json!({
            "id": id, "grants": asked.grants, "expires_at": expires_at, "reason": reason,
            "person": person,
        }),
    };
    let new = NewAccessToken {
        id,
        hash: sha256(&token),
        name: asked.name,
        grants: asked.grants,
        created_by: caller.name().to_owned(),
        person: person.clone(),
        expires_at,
    };
    let view = ctx.store.add_access_token(now, new, entry).await?;
    Ok((StatusCode::CREATED, Json(MintedToken { token: token.into(), view })))
}

/// Roles that say something, at sites that are there.
async fn check_grants(ctx: &Ctx, grants: &[RoleGrant]) -> ApiResult<()> {
    if !(1..=MOST_GRANTS).contains(&grants.len()) {
        return Err(invalid("grants", format!("expected 1 to {MOST_GRANTS} roles")).into());
    }
    for (index, grant) in grants.iter().enumerate() {
        let field = format!("grants.{index}.sites");
        let Some(sites) = &grant.sites else { continue };
        if sites.is_empty() {
            let message = "empty: leave it out to grant the role at all sites";
            return Err(invalid(&field, message).into());
        }
        for site in sites {
            match ctx.store.site_by_name(site).await {
                Ok(_) => {}
                Err(StoreError::NotFound { .. }) => return Err(no_site(field, site).into()),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn no_site(field: String, site: &str) -> Problem {
    let message = format!("site {site} does not exist");
    problem(ProblemCode::SiteNotFound).with_detail(&message).with_field(field, message)
}

/// `POST /api/v1/tokens/NAME/revoke`: refused from the next request on.
pub(crate) async fn revoke(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(name): Key,
    Body(asked): Body<TokenRevocation>,
) -> ApiResult<Json<List<TokenView>>> {
    let reason = check::reason(&asked.reason)?;
    let entry = NewAuditEntry {
        actor: caller.name().to_owned(),
        action: AuditAction::TokenRevoke,
        subject: name.clone(),
        detail: json!({ "reason": reason }),
    };
    ctx.store.revoke_access_token(ctx.now(), &name, entry).await?;
    Ok(Json(List::whole(ctx.store.access_tokens().await?)))
}
