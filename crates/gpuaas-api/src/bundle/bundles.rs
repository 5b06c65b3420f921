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
use gpuaas_bundle::{
    Envelope, HostValue, InputError, Inputs, Manifest, PublicKey, TrustedKey, host_value,
};
use gpuaas_engine::bundles::{self, DeliveryError};
use gpuaas_store::{BundleApproval, BundleKey, NewAuditEntry, NewBundle};
use gpuaas_types::api::{BundlePin, List, ProfileResource, SiteResource};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::bundle::{
    BundleApprove, BundleArchive, BundleKeyView, BundlePublish, BundleView,
};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{AuditAction, Problem};
use serde_json::json;

use crate::ctx::{ARCHIVE_PERMITS, Ctx};
use crate::http::body::{Body, Key};
use crate::http::problem::{ApiResult, Refusal, invalid, problem};
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, CheckedRequest, Guarded};
use crate::{check, image};

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

/// What the bundle references of a profile resolve to: the pins of its site bundle.
pub(crate) async fn pins(
    ctx: &Ctx,
    prefix: &str,
    spec: &ProfileSpec,
) -> Result<Vec<BundlePin>, Problem> {
    let in_field = |field: &'static str, error: CatalogError| {
        refused(&error).with_field(format!("{prefix}{field}"), error.to_string())
    };
    let (store, catalog) = (&ctx.store, &ctx.bundles);
    let reference = &spec.post_deploy_validation_bundle_ref;
    if !reference.is_empty() {
        let found =
            bundles::find_or_refresh(store, catalog, |catalog| catalog.check_validation(reference))
                .await;
        found.map_err(|error| in_field("post_deploy_validation_bundle_ref", error))?;
    }
    let reference = &spec.commissioning_bundle_ref;
    if !reference.is_empty() {
        let found =
            bundles::find_or_refresh(store, catalog, |catalog| catalog.commissioning(reference))
                .await;
        found.map_err(|error| in_field("commissioning_bundle_ref", error))?;
    }
    let reference = &spec.site_bootstrap_bundle_ref;
    if reference.is_empty() {
        if spec.site_bootstrap_inputs.is_empty() {
            return Ok(Vec::new());
        }
        let field = format!("{prefix}site_bootstrap_inputs");
        return Err(invalid(&field, "these inputs require site_bootstrap_bundle_ref"));
    }
    let pins = bundles::find_or_refresh(store, catalog, |catalog| catalog.pins(reference)).await;
    let pins = pins.map_err(|error| in_field("site_bootstrap_bundle_ref", error))?;
    catalog
        .check_inputs(&pins, &spec.site_bootstrap_inputs)
        .map_err(|error| in_field("site_bootstrap_inputs", error))?;
    Ok(pins)
}

/// Whether a run that deploys with this profile at this site may begin.
///
/// # Errors
/// `profile_not_for_site`, `bundle_not_approved`, those of inputs and signatures, and of bundles that are gone.
pub(crate) async fn check_can_begin(
    ctx: &Ctx,
    site: &SiteResource,
    profile: &ProfileResource,
    hostname: Option<&str>,
) -> ApiResult<()> {
    check_site(site, profile)?;
    image::check::check_image(ctx, site, profile).await?;
    let resolved = pins(ctx, "profile ", &profile.spec).await?;
    let pinned = &profile.status.bundle_pins;
    let pins = if pinned.is_empty() { resolved } else { pinned.clone() };
    let (store, catalog, now) = (&ctx.store, &*ctx.bundles, ctx.now());
    let scope = bundles::InputScope {
        site_id: site.id,
        site: &site.spec,
        hostname,
        profile_id: profile.id,
        profile: &profile.spec,
    };
    let delivery = bundles::delivery(store, catalog, &pins, &scope, now).await;
    delivery.map_err(delivery_refusal)?;
    let reference = &profile.spec.post_deploy_validation_bundle_ref;
    if !reference.is_empty() {
        let checks = catalog.validation(reference, &site.spec.bundle_inputs);
        checks.map_err(|error| refused(&error))?;
    }
    let scripts =
        [&profile.spec.commissioning_bundle_ref, &profile.spec.post_deploy_validation_bundle_ref];
    let scripts = scripts.into_iter().filter(|reference| !reference.is_empty());
    let scripts = scripts.map(|reference| catalog.find(reference).map(|one| one.pin()));
    let scripts: Vec<BundlePin> =
        scripts.collect::<Result<_, _>>().map_err(|error| refused(&error))?;
    let missing = bundles::unapproved(store, catalog, &scripts, &site.spec.name).await;
    let missing = missing.map_err(delivery_refusal)?;
    if missing.is_empty() {
        return Ok(());
    }
    let site = site.spec.name.clone();
    Err(delivery_refusal(DeliveryError::NotApproved { bundles: missing, site }))
}

/// Whether nodes of the site may be deployed with the profile.
///
/// # Errors
/// `profile_not_for_site`.
pub(crate) fn check_site(site: &SiteResource, profile: &ProfileResource) -> ApiResult<()> {
    let (sites, site, name) = (&profile.spec.sites, &site.spec.name, &profile.status.name);
    if sites.is_empty() || sites.contains(site) {
        return Ok(());
    }
    let known = sites.join(",");
    let detail = format!("profile {name} is only for {}, not for {site}", sites.join(", "));
    let hint = format!(
        "choose another profile from `gpuaas profile list`, or allow the site: `gpuaas profile set \
         {name} sites={known},{site}`"
    );
    Err(problem(ProblemCode::ProfileNotForSite).with_detail(detail).with_hint(hint).into())
}

/// Whether values that a site sets for bundles fit the newest versions of those that are known, and no
/// two of its hosts share what is of one host.
pub(crate) fn site_inputs(ctx: &Ctx, prefix: &str, site: &SiteSpec) -> Result<(), Problem> {
    let known = ctx.bundles.list();
    let of_name = |bundle: &str| -> Vec<&Manifest> {
        let manifests = known.iter().map(|one| &one.bundle.manifest);
        manifests.filter(|one| one.name == bundle).collect()
    };
    for (bundle, inputs) in &site.bundle_inputs {
        let manifests = of_name(bundle);
        let at = format!("{prefix}bundle_inputs.{bundle}");
        known_inputs(&at, bundle, &manifests, inputs)?;
        for manifest in manifests {
            host_value::refuse_for_many(&manifest.inputs, inputs)
                .map_err(|source| in_bundle(&at, bundle, source))?;
        }
    }
    let mut values = Vec::new();
    for (host, bundles) in &site.host_inputs {
        for (bundle, inputs) in bundles {
            let manifests = of_name(bundle);
            let at = format!("{prefix}host_inputs.{host}.{bundle}");
            check::name(&format!("{prefix}host_inputs.{host}"), host)?;
            known_inputs(&at, bundle, &manifests, inputs)?;
            let Some(manifest) = manifests.last() else { continue };
            let mut all = site.bundle_inputs.get(bundle).cloned().unwrap_or_default();
            all.extend(inputs.clone());
            let all =
                manifest.resolve_public(&all).map_err(|source| in_bundle(&at, bundle, source))?;
            let unique = manifest.inputs.iter().filter(|(_, input)| input.unique);
            let own = unique.filter_map(|(name, _)| Some((name, inputs.get(name)?)));
            values.extend(own.map(|(name, value)| HostValue {
                host,
                input: name,
                value: value.clone(),
            }));
            values.extend(host_value::derived(&manifest.inputs, host, &all));
        }
    }
    let shared = host_value::refuse_shared(values);
    shared.map_err(|source| in_bundle(&format!("{prefix}host_inputs"), "", source))
}

/// Whether the versions of a bundle have these inputs, and none of them is a secret.
fn known_inputs(
    at: &str,
    bundle: &str,
    manifests: &[&Manifest],
    inputs: &Inputs,
) -> Result<(), Problem> {
    for name in inputs.keys() {
        let declared: Vec<_> = manifests.iter().filter_map(|one| one.inputs.get(name)).collect();
        let field = format!("{at}.{name}");
        if !manifests.is_empty() && declared.is_empty() {
            return Err(invalid(&field, format!("no version of {bundle} has this input")));
        }
        if declared.iter().any(|input| input.secret) {
            let source = InputError::SecretNotAllowed { name: name.clone() };
            return Err(in_bundle(&field, bundle, source));
        }
    }
    Ok(())
}

fn in_bundle(field: &str, bundle: &str, source: InputError) -> Problem {
    let text = source.to_string();
    let error = CatalogError::Input { bundle: bundle.to_owned(), source };
    let detail = if bundle.is_empty() { text } else { error.to_string() };
    refused(&error).with_detail(detail.clone()).with_field(field.to_owned(), detail)
}
