//! `/api/v1/sites/SITE/secrets` and `/api/v1/profiles/PROFILE/secrets`: values of bundles' secret
//! inputs. They go in and are never shown again: an answer holds who set one and when. The next
//! deployment gets them; a host that is up keeps those that it was deployed with.

use axum::Json;
use axum::extract::State;
use gpuaas_store::{ExposeSecret as _, NewAuditEntry, SecretOwner, SecretString};
use gpuaas_types::AuditAction;
use gpuaas_types::api::List;
use gpuaas_types::bundle::{InputSecretSet, InputSecretView};
use gpuaas_types::codes::ProblemCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::bundle::bundles::{refresh, refused};
use crate::ctx::Ctx;
use crate::http::body::{Body, Key, Keys, QueryParams};
use crate::http::problem::{ApiResult, problem};
use crate::identity::caller::Caller;

/// Path parameters: name of the owner, of the bundle and of its input.
type InputPath = Keys<(String, String, String)>;

/// Query of a deletion.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActorQuery {
    /// Name of the operator, as the audit keeps it.
    actor: String,
}

/// Owner of secrets, and its kind and name for the audit.
struct AuditedOwner {
    owner: SecretOwner,
    kind: &'static str,
    name: String,
}

/// A change of a secret.
#[derive(Clone, Copy)]
enum SecretChange {
    Set,
    Delete,
}

impl SecretChange {
    fn action(self, owner: SecretOwner) -> AuditAction {
        match (owner, self) {
            (SecretOwner::Site(_), Self::Set) => AuditAction::SiteSecretSet,
            (SecretOwner::Site(_), Self::Delete) => AuditAction::SiteSecretDelete,
            (SecretOwner::Profile(_), Self::Set) => AuditAction::ProfileSecretSet,
            (SecretOwner::Profile(_), Self::Delete) => AuditAction::ProfileSecretDelete,
        }
    }
}

async fn site(ctx: &Ctx, name: String) -> ApiResult<AuditedOwner> {
    let owner = SecretOwner::Site(ctx.store.site_by_name(&name).await?.id);
    Ok(AuditedOwner { owner, kind: "site", name })
}

async fn profile(ctx: &Ctx, name: String) -> ApiResult<AuditedOwner> {
    let owner = SecretOwner::Profile(ctx.store.profile_by_name(&name).await?.id);
    Ok(AuditedOwner { owner, kind: "profile", name })
}

/// `GET /api/v1/sites/SITE/secrets`.
pub(crate) async fn list_of_site(State(ctx): State<Ctx>, Key(name): Key) -> Listed {
    let owned = site(&ctx, name).await?;
    list(&ctx, &owned).await
}

/// `GET /api/v1/profiles/PROFILE/secrets`.
pub(crate) async fn list_of_profile(State(ctx): State<Ctx>, Key(name): Key) -> Listed {
    let owned = profile(&ctx, name).await?;
    list(&ctx, &owned).await
}

/// `PUT /api/v1/sites/SITE/secrets/BUNDLE/INPUT`.
pub(crate) async fn set_of_site(
    State(ctx): State<Ctx>,
    caller: Caller,
    Keys((name, bundle, input)): InputPath,
    Body(asked): Body<InputSecretSet>,
) -> ApiResult<Json<InputSecretView>> {
    let owned = site(&ctx, name).await?;
    set(&ctx, &caller, &owned, &bundle, &input, asked).await
}

/// `PUT /api/v1/profiles/PROFILE/secrets/BUNDLE/INPUT`.
pub(crate) async fn set_of_profile(
    State(ctx): State<Ctx>,
    caller: Caller,
    Keys((name, bundle, input)): InputPath,
    Body(asked): Body<InputSecretSet>,
) -> ApiResult<Json<InputSecretView>> {
    let owned = profile(&ctx, name).await?;
    set(&ctx, &caller, &owned, &bundle, &input, asked).await
}

/// `DELETE /api/v1/sites/SITE/secrets/BUNDLE/INPUT?actor=`. Answers what is still set.
pub(crate) async fn delete_of_site(
    State(ctx): State<Ctx>,
    caller: Caller,
    Keys((name, bundle, input)): InputPath,
    QueryParams(ActorQuery { actor }): QueryParams<ActorQuery>,
) -> Listed {
    let owned = site(&ctx, name).await?;
    delete(&ctx, &caller, &owned, &bundle, &input, &actor).await
}

/// `DELETE /api/v1/profiles/PROFILE/secrets/BUNDLE/INPUT?actor=`. Answers what is still set.
pub(crate) async fn delete_of_profile(
    State(ctx): State<Ctx>,
    caller: Caller,
    Keys((name, bundle, input)): InputPath,
    QueryParams(ActorQuery { actor }): QueryParams<ActorQuery>,
) -> Listed {
    let owned = profile(&ctx, name).await?;
    delete(&ctx, &caller, &owned, &bundle, &input, &actor).await
}

type Listed = ApiResult<Json<List<InputSecretView>>>;

async fn list(ctx: &Ctx, owned: &AuditedOwner) -> Listed {
    Ok(Json(List::whole(ctx.store.input_secrets(owned.owner).await?)))
}

async fn set(
    ctx: &Ctx,
    caller: &Caller,
    owned: &AuditedOwner,
    bundle: &str,
    input: &str,
    asked: InputSecretSet,
) -> ApiResult<Json<InputSecretView>> {
    let actor = caller.actor(&asked.actor);
    let value = SecretString::from(asked.value.expose());
    // It may have been published through another control plane.
    refresh(ctx).await?;
    let checked = ctx.bundles.check_secret(bundle, input, value.expose_secret());
    checked.map_err(|error| refused(&error))?;
    let (now, audit) = (ctx.now(), audit_entry(owned, SecretChange::Set, bundle, input, &actor));
    let owner = owned.owner;
    let set = ctx.store.set_input_secret(now, owner, bundle, input, &value, audit).await?;
    Ok(Json(set))
}

async fn delete(
    ctx: &Ctx,
    caller: &Caller,
    owned: &AuditedOwner,
    bundle: &str,
    input: &str,
    actor: &str,
) -> Listed {
    let actor = caller.actor(actor);
    let audit = audit_entry(owned, SecretChange::Delete, bundle, input, &actor);
    if !ctx.store.delete_input_secret(ctx.now(), owned.owner, bundle, input, audit).await? {
        let AuditedOwner { kind, name, .. } = owned;
        let detail = format!("{kind} {name} has no secret for input {input} of {bundle}");
        return Err(problem(ProblemCode::SecretNotFound).with_detail(detail).into());
    }
    list(ctx, owned).await
}

/// The audit entry of a change of a secret, never with the value.
fn audit_entry(
    owned: &AuditedOwner,
    change: SecretChange,
    bundle: &str,
    input: &str,
    actor: &str,
) -> NewAuditEntry {
    let detail = json!({ "bundle": bundle, "input": input });
    NewAuditEntry::new(actor, change.action(owned.owner), &owned.name, detail)
}
