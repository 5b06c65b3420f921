//! `/api/v1/bundles` and `/api/v1/bundle-keys`: what may run on nodes, and on whose word.
//!
//! A bundle is looked at here as a build looks at it, whoever built it: an archive that a build
//! would not have written is refused before a byte is kept. What a profile names is checked when
//! the profile is written; what a run would be given, with its inputs, signatures and the site's
//! approval, when the run is asked for.

use std::io::Read as _;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::StreamExt as _;
use gpuaas_artifact::catalog::OWN_NAME;
use gpuaas_artifact::{CatalogBundle, CatalogError, CheckedBundle};
use gpuaas_bundle::{Envelope, PublicKey, TrustedKey};
use gpuaas_engine::bundles::{self, DeliveryError};
use gpuaas_store::{BundleApproval, BundleKey, NewAuditEntry, NewBundle};
use gpuaas_types::api::{List, SiteResource};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::bundle::{
    BundleApprove, BundleArchive, BundleKeyView, BundlePublish, BundleView,
};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{AuditAction, Problem};
use serde_json::json;

use crate::check;
use crate::ctx::{ARCHIVE_PERMITS, Ctx};
use crate::http::body::{Body, Key};
use crate::http::problem::{ApiResult, Refusal, invalid, problem};
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, CheckedRequest, Guarded};

/// Characters of an actor or a reason that are kept.
const WORD_CHARS: usize = 200;

/// The same words as the catalog's own.
pub(crate) fn refused(error: &CatalogError) -> Problem {
    if let CatalogError::Io(error) = error {
        tracing::error!(%error, "cannot write to the artifact store");
        return problem(ProblemCode::Internal);
    }
    let code = ProblemCode::from_code(error.code()).unwrap_or(ProblemCode::Internal);
    problem(code).with_detail(error.to_string()).with_hint(error.hint())
}

pub(crate) fn delivery_refusal(error: DeliveryError) -> Refusal {
    match error {
        DeliveryError::Store(error) => error.into(),
        DeliveryError::Catalog(error) => refused(&error).into(),
        DeliveryError::SecretMissing { .. } => {
            problem(ProblemCode::BundleSecretMissing).with_detail(error.to_string()).into()
        }
        DeliveryError::NotApproved { bundles, site } => {
            let first = bundles.first().cloned().unwrap_or_default();
            problem(ProblemCode::BundleNotApproved)
                .with_detail(format!("{} is not approved for site {site}", bundles.join(", ")))
                .with_hint(format!(
                    "approve it: `gpuaas bundle approve {first} --site {site} --reason WHY`"
                ))
                .into()
        }
    }
}

pub(crate) fn checked_label(field: &str, text: &str) -> Result<String, Problem> {
    check::words(field, text, WORD_CHARS, "expected a name")
}

/// `POST /api/v1/bundles`. The same bytes again are taken and change nothing.
pub(crate) async fn publish(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<BundlePublish>,
) -> ApiResult<(StatusCode, Json<BundleView>)> {
    let actor = caller.actor(&asked.actor);
    let archive =
        BASE64.decode(&asked.archive).map_err(|_| invalid("archive", "expected base64"))?;
    let read = tokio::task::spawn_blocking(move || {
        CheckedBundle::read(&archive).map(|bundle| (bundle, archive))
    });
    let (bundle, archive) = match read.await {
        Ok(read) => read.map_err(|error| refused(&error))?,
        Err(_) => return Err(problem(ProblemCode::Internal).into()),
    };
    let reference = bundle.reference();
    let envelope = verify_or_sign(&ctx, &bundle, asked.envelope).await?;
    bundles::find_or_refresh(&ctx.store, &ctx.bundles, |catalog| {
        catalog.check_requires(&bundle.manifest)
    })
    .await
    .map_err(|error| refused(&error))?;
    let new = NewBundle {
        digest: bundle.digest.to_string(),
        reference: reference.clone(),
        built_in: false,
        archive,
        envelope: serde_json::to_value(&envelope).map_err(|_| problem(ProblemCode::Internal))?,
        published_by: actor.clone(),
    };
    let detail = json!({ "digest": new.digest });
    let audit = NewAuditEntry::new(actor, AuditAction::BundlePublish, reference, detail);
    let new = ctx.store.add_bundle(ctx.now(), new, Some(audit)).await?;
    refresh(&ctx).await?;
    let found = find(&ctx, &bundle.digest.to_string()).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(view(&ctx, &found).await?)))
}

/// The signature that goes with a bundle: the one that came with it, when it counts, or the
/// control plane's own.
async fn verify_or_sign(
    ctx: &Ctx,
    bundle: &CheckedBundle,
    envelope: Option<serde_json::Value>,
) -> ApiResult<Envelope> {
    let reference = bundle.reference();
    let not = |source| refused(&CatalogError::Signature { bundle: reference.clone(), source });
    let Some(envelope) = envelope else {
        return Ok(ctx.bundle_key.sign(&bundle.statement(ctx.signing_time())).map_err(not)?);
    };
    let envelope = Envelope::parse(envelope.to_string().as_bytes()).map_err(not)?;
    let trusted = trusted_keys(ctx).await?;
    envelope.verify_digest(&trusted, &reference, bundle.digest, ctx.signing_time()).map_err(not)?;
    Ok(envelope)
}

pub(crate) async fn trusted_keys(ctx: &Ctx) -> ApiResult<Vec<TrustedKey>> {
    let mut trusted = vec![ctx.bundles.own_key().clone()];
    let kept = bundles::trusted_keys(&ctx.store).await?;
    trusted.extend(kept.into_iter().filter(|one| one.key != ctx.bundles.own_key().key));
    Ok(trusted)
}

pub(crate) async fn refresh(ctx: &Ctx) -> ApiResult<()> {
    match bundles::refresh(&ctx.store, &ctx.bundles).await {
        Ok(_) => Ok(()),
        Err(bundles::SeedError::Store(error)) => Err(error.into()),
        Err(bundles::SeedError::Catalog(error)) => Err(refused(&error).into()),
    }
}

async fn find(ctx: &Ctx, reference: &str) -> ApiResult<std::sync::Arc<CatalogBundle>> {
    let found =
        bundles::find_or_refresh(&ctx.store, &ctx.bundles, |catalog| catalog.find(reference)).await;
    Ok(found.map_err(|error| refused(&error))?)
}

/// `GET /api/v1/bundles`.
pub(crate) async fn list(State(ctx): State<Ctx>) -> ApiResult<Json<List<BundleView>>> {
    refresh(&ctx).await?;
    let (approvals, trusted) = (ctx.store.bundle_approvals().await?, trusted_keys(&ctx).await?);
    let all = ctx.bundles.list();
    let items = all.iter().map(|one| bundle_view(&ctx, one, &approvals, &trusted)).collect();
    Ok(Json(List::whole(items)))
}

/// `GET /api/v1/bundles/BUNDLE`.
pub(crate) async fn show(State(ctx): State<Ctx>, Key(text): Key) -> ApiResult<Json<BundleView>> {
    let found = find(&ctx, &text).await?;
    Ok(Json(view(&ctx, &found).await?))
}

/// The layer around [`archive`]: at most so many archives are in memory at once, each until its last byte is
/// sent. A client that reads slowly holds one for as long.
pub(crate) async fn limit_archives(
    State(ctx): State<Ctx>,
    request: Request,
    next: Next,
) -> ApiResult<Response> {
    let Ok(permit) = Arc::clone(ctx.archive_permits()).try_acquire_owned() else {
        let detail =
            format!("too many archive transfers: at most {ARCHIVE_PERMITS} at a time are allowed");
        let hint = "retry after the time in the `Retry-After` header";
        let busy = problem(ProblemCode::TooManyRequests).with_detail(detail).with_hint(hint);
        return Err(busy.into());
    };
    let held = move |body: axum::body::Body| {
        let chunks = body.into_data_stream().map(move |chunk| {
            let _held = &permit;
            chunk
        });
        axum::body::Body::from_stream(chunks)
    };
    Ok(next.run(request).await.map(held))
}

/// `GET /api/v1/bundles/BUNDLE/archive`: the bytes and their signature, for whoever is to say
/// whether they may run.
pub(crate) async fn archive(
    State(ctx): State<Ctx>,
    Key(text): Key,
) -> ApiResult<Json<BundleArchive>> {
    let found = find(&ctx, &text).await?;
    let digest = found.bundle.digest;
    let artifacts = std::sync::Arc::clone(&ctx.artifacts);
    let read = tokio::task::spawn_blocking(move || {
        let Some((mut file, _)) = artifacts.get(&digest)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map(|_| Some(bytes))
    });
    let bytes = match read.await {
        Ok(Ok(Some(bytes))) => bytes,
        Ok(Ok(None)) => {
            let detail = format!("artifact {digest} does not exist");
            return Err(problem(ProblemCode::ArtifactNotFound).with_detail(detail).into());
        }
        Ok(Err(error)) => {
            tracing::error!(%error, %digest, "cannot read an artifact");
            return Err(problem(ProblemCode::Internal).into());
        }
        Err(_) => return Err(problem(ProblemCode::Internal).into()),
    };
    let envelope =
        serde_json::to_value(&found.envelope).map_err(|_| problem(ProblemCode::Internal))?;
    let bundle = view(&ctx, &found).await?;
    Ok(Json(BundleArchive { bundle, archive: BASE64.encode(bytes), envelope }))
}

async fn view(ctx: &Ctx, one: &CatalogBundle) -> ApiResult<BundleView> {
    let (approvals, trusted) = (ctx.store.bundle_approvals().await?, trusted_keys(ctx).await?);
    Ok(bundle_view(ctx, one, &approvals, &trusted))
}

fn bundle_view(
    ctx: &Ctx,
    one: &CatalogBundle,
    approvals: &[BundleApproval],
    trusted: &[TrustedKey],
) -> BundleView {
    let CheckedBundle { digest, size_bytes, manifest, .. } = &one.bundle;
    let bundle = manifest.reference();
    let verified = one.envelope.verify_digest(trusted, &bundle, *digest, ctx.signing_time());
    let digest = digest.to_string();
    let approved = approvals.iter().filter(|approval| approval.digest == digest);
    BundleView {
        size_bytes: *size_bytes,
        kind: manifest.kind.as_str().to_owned(),
        about: manifest.about.clone(),
        requires: manifest.requires.iter().map(|required| required.bundle.clone()).collect(),
        built_in: one.built_in,
        signed_by: verified.ok(),
        published_by: one.published_by.clone(),
        published_at: one.published_at,
        approved_for: approved.map(|approval| approval.site.clone()).collect(),
        bundle,
        digest,
    }
}

/// `POST /api/v1/bundles/BUNDLE/approve`: with everything that it requires.
pub(crate) async fn approve(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(asked): Body<BundleApprove>,
) -> ApiResult<Json<List<BundleView>>> {
    decide(&ctx, &caller, &text, &asked, true).await
}

/// `POST /api/v1/bundles/BUNDLE/withdraw`: of this bundle alone. Runs that have it go on.
pub(crate) async fn withdraw(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(asked): Body<BundleApprove>,
) -> ApiResult<Json<List<BundleView>>> {
    decide(&ctx, &caller, &text, &asked, false).await
}

async fn decide(
    ctx: &Ctx,
    caller: &Caller,
    text: &str,
    asked: &BundleApprove,
    approved: bool,
) -> ApiResult<Json<List<BundleView>>> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    caller.check_site(Some(&asked.site))?;
    let site = ctx.store.site_by_name(&asked.site).await?;
    let main = find(ctx, text).await?;
    let found = if approved {
        ctx.bundles.with_required(&main).map_err(|error| refused(&error))?
    } else {
        vec![main]
    };
    if approved {
        hold_approval(ctx, caller, &site, (text, asked, &reason), &found).await?;
    }
    let action = match approved {
        true => AuditAction::BundleApprove,
        false => AuditAction::BundleWithdraw,
    };
    let audited = found.iter().filter(|one| !one.built_in).map(|one| {
        let digest = one.bundle.digest.to_string();
        let detail = json!({ "site": asked.site, "digest": digest, "reason": reason });
        (digest, NewAuditEntry::new(&actor, action, one.bundle.reference(), detail))
    });
    if approved {
        ctx.store.approve_bundles(ctx.now(), site.id, audited.collect()).await?;
    } else {
        for (digest, audit) in audited {
            ctx.store.withdraw_bundle(ctx.now(), site.id, &digest, audit).await?;
        }
    }
    let (approvals, trusted) = (ctx.store.bundle_approvals().await?, trusted_keys(ctx).await?);
    let items = found.iter().map(|one| bundle_view(ctx, one, &approvals, &trusted)).collect();
    Ok(Json(List::whole(items)))
}

/// Has an approval wait for another person, where the site wants that.
async fn hold_approval(
    ctx: &Ctx,
    caller: &Caller,
    site: &SiteResource,
    (text, asked, reason): (&str, &BundleApprove, &str),
    found: &[Arc<CatalogBundle>],
) -> ApiResult<()> {
    let named: Vec<String> = found.iter().map(|one| one.bundle.reference()).collect();
    let digests: Vec<String> = found.iter().map(|one| one.bundle.digest.to_string()).collect();
    let body = serde_json::to_vec(asked).map_err(|_| problem(ProblemCode::Internal))?;
    let checked = CheckedRequest {
        guarded: Guarded::ApproveBundle,
        kind: ApprovalKind::Bundle,
        site,
        node_id: None,
        summary: format!("an approval of {}", named.join(", ")),
        reason: reason.to_owned(),
        request: ApprovalRequest::post("/api/v1/bundles/{bundle}/approve", text, &body),
        target: json!({ "digests": digests }),
    };
    second_person::check(ctx, caller, checked).await
}

/// `GET /api/v1/bundle-keys`: the control plane's own first.
pub(crate) async fn keys(State(ctx): State<Ctx>) -> ApiResult<Json<List<BundleKeyView>>> {
    let view = |key: TrustedKey| BundleKeyView {
        name: key.name,
        key: key.key.to_string(),
        until: key.until,
    };
    Ok(Json(List::whole(trusted_keys(&ctx).await?.into_iter().map(view).collect())))
}

/// `POST /api/v1/bundle-keys`: signatures of this key count until `until`.
pub(crate) async fn trust(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<BundleKeyView>,
) -> ApiResult<(StatusCode, Json<BundleKeyView>)> {
    let name = checked_label("name", &asked.name)?;
    if name.starts_with(OWN_NAME) {
        return Err(invalid("name", "this name is reserved for the control plane's own key").into());
    }
    let key: PublicKey = asked.key.parse().map_err(|_| {
        invalid("key", "expected 32 bytes in base64")
            .with_hint("create a key and print it: `gpuaas bundle key FILE`")
    })?;
    let view = BundleKeyView { name, key: key.to_string(), until: asked.until };
    let (name, public_key) = (view.name.clone(), view.key.clone());
    let detail = json!({ "key": key.id(), "until": view.until });
    let audit = NewAuditEntry::new(caller.name(), AuditAction::BundleTrust, &view.name, detail);
    let key = BundleKey { name, public_key, until: view.until };
    ctx.store.trust_bundle_key(ctx.now(), key, audit).await?;
    Ok((StatusCode::CREATED, Json(view)))
}
