//! `/api/v1/sites/SITE/secrets` and `/api/v1/profiles/PROFILE/secrets`: values of bundles' secret
//! inputs. They go in and are never shown again: an answer holds who set one and when. The next
//! deployment gets them; a host that is up keeps those that it was deployed with.

use axum::Json;
use axum::extract::State;
use gpuaas_store::{Secret, SecretOwner};
use gpuaas_types::api::List;
use gpuaas_types::bundle::{InputSecretSet, InputSecretView};
use gpuaas_types::codes::ProblemCode;
use serde::Deserialize;
use serde_json::json;

use crate::body::{Asked, Body, Key, Keys};
use crate::bundles::{refresh, refused, word};
use crate::ctx::Ctx;
use crate::problem::{Answer, problem};

/// Whose, and of which input.
type Place = Keys<(String, String, String)>;

/// Who asks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct By {
    /// Kept in the history.
    actor: String,
}

/// Whose secrets, and how the audit names it.
struct Of {
    owner: SecretOwner,
    kind: &'static str,
    name: String,
}

async fn site(ctx: &Ctx, name: String) -> Answer<Of> {
    let owner = SecretOwner::Site(ctx.store.site_by_name(&name).await?.id);
    Ok(Of { owner, kind: "site", name })
}

async fn profile(ctx: &Ctx, name: String) -> Answer<Of> {
    let owner = SecretOwner::Profile(ctx.store.profile_by_name(&name).await?.id);
    Ok(Of { owner, kind: "profile", name })
}

/// `GET /api/v1/sites/SITE/secrets`.
pub(crate) async fn list_of_site(State(ctx): State<Ctx>, Key(name): Key) -> Listed {
    let of = site(&ctx, name).await?;
    list(&ctx, &of).await
}

/// `GET /api/v1/profiles/PROFILE/secrets`.
pub(crate) async fn list_of_profile(State(ctx): State<Ctx>, Key(name): Key) -> Listed {
    let of = profile(&ctx, name).await?;
    list(&ctx, &of).await
}

/// `PUT /api/v1/sites/SITE/secrets/BUNDLE/INPUT`.
pub(crate) async fn set_of_site(
    State(ctx): State<Ctx>,
    Keys((name, bundle, input)): Place,
    Body(asked): Body<InputSecretSet>,
) -> Answer<Json<InputSecretView>> {
    let of = site(&ctx, name).await?;
    set(&ctx, &of, &bundle, &input, asked).await
}

/// `PUT /api/v1/profiles/PROFILE/secrets/BUNDLE/INPUT`.
pub(crate) async fn set_of_profile(
    State(ctx): State<Ctx>,
    Keys((name, bundle, input)): Place,
    Body(asked): Body<InputSecretSet>,
) -> Answer<Json<InputSecretView>> {
    let of = profile(&ctx, name).await?;
    set(&ctx, &of, &bundle, &input, asked).await
}

/// `DELETE /api/v1/sites/SITE/secrets/BUNDLE/INPUT?actor=`. Answers what is still set.
pub(crate) async fn delete_of_site(
    State(ctx): State<Ctx>,
    Keys((name, bundle, input)): Place,
    Asked(By { actor }): Asked<By>,
) -> Listed {
    let of = site(&ctx, name).await?;
    delete(&ctx, &of, &bundle, &input, &actor).await
}

/// `DELETE /api/v1/profiles/PROFILE/secrets/BUNDLE/INPUT?actor=`. Answers what is still set.
pub(crate) async fn delete_of_profile(
    State(ctx): State<Ctx>,
    Keys((name, bundle, input)): Place,
    Asked(By { actor }): Asked<By>,
) -> Listed {
    let of = profile(&ctx, name).await?;
    delete(&ctx, &of, &bundle, &input, &actor).await
}

type Listed = Answer<Json<List<InputSecretView>>>;

async fn list(ctx: &Ctx, of: &Of) -> Listed {
    Ok(Json(List { items: ctx.store.input_secrets(of.owner).await? }))
}

async fn set(
    ctx: &Ctx,
    of: &Of,
    bundle: &str,
    input: &str,
    asked: InputSecretSet,
) -> Answer<Json<InputSecretView>> {
    let actor = word("actor", &asked.actor)?;
    let value = Secret::new(asked.value);
    // It may have been published through another control plane.
    refresh(ctx).await?;
    let checked = ctx.bundles.check_secret(bundle, input, value.expose());
    checked.map_err(|error| refused(&error))?;
    let set = ctx.store.set_input_secret(ctx.now(), of.owner, bundle, input, &value, &actor);
    let set = set.await?;
    told(ctx, of, "set", bundle, input, &actor).await;
    Ok(Json(set))
}

async fn delete(ctx: &Ctx, of: &Of, bundle: &str, input: &str, actor: &str) -> Listed {
    let actor = word("actor", actor)?;
    if !ctx.store.delete_input_secret(of.owner, bundle, input).await? {
        let Of { kind, name, .. } = of;
        let detail = format!("{kind} {name} keeps nothing for input {input} of {bundle}");
        return Err(problem(ProblemCode::SecretNotFound).with_detail(detail).into());
    }
    told(ctx, of, "delete", bundle, input, &actor).await;
    list(ctx, of).await
}

/// Never with the value.
async fn told(ctx: &Ctx, of: &Of, what: &str, bundle: &str, input: &str, actor: &str) {
    let action = format!("{}.secret.{what}", of.kind);
    let detail = json!({ "bundle": bundle, "input": input, "actor": actor });
    ctx.audit(&action, &of.name, detail).await;
}
