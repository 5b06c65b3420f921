//! `/api/v1/sites`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_core::image_approval::ImageApproval;
use gpuaas_engine::HostScope;
use gpuaas_store::{ExposeSecret as _, NewAuditEntry, SecretString, StoreError};
use gpuaas_types::api::{List, SiteCreate, SiteResource, SiteStatus};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::FilterList;
use gpuaas_types::key_reference::KeyReference;
use gpuaas_types::spec::{SecondPersonPolicy, SiteSpec};
use gpuaas_types::{AuditAction, Problem, SiteId};
use serde_json::{Map, Value, json};

use crate::audit::entries::spec_digest;
use crate::bundle::inputs;
use crate::check;
use crate::ctx::Ctx;
use crate::http::body::{Body, Key, QueryParams, WholeListFilter};
use crate::http::etag::{IfMatch, Tagged};
use crate::http::pages::list_filter;
use crate::http::problem::{ApiResult, invalid, problem};
use crate::http::strict;
use crate::http::zeroed::ZeroedJson;
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, CheckedRequest, Guarded, is_same_server};
use crate::site::{self, probe};

/// `POST /api/v1/sites`. Nothing is stored before MAAS has been asked.
pub(crate) async fn create(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<SiteCreate>,
) -> ApiResult<(StatusCode, Json<SiteResource>)> {
    let SiteCreate { spec, api_key } = asked;
    check::site("spec.", &spec)?;
    let given = api_key.map(|key| SecretString::from(key.expose().trim()));
    if given.is_some() == spec.api_key_ref.is_some() {
        return Err(one_key(
            "api_key",
            "`gpuaas site add NAME --url MAAS_URL --api-key-file FILE`",
        )
        .into());
    }
    secure(&ctx, &spec.url)?;
    inputs::site_inputs(&ctx, "spec.", &spec)?;
    match ctx.store.site_by_name(&spec.name).await {
        Err(StoreError::NotFound { .. }) => {}
        Ok(_) => {
            let detail = format!("a site named {} already exists", spec.name);
            return Err(problem(ProblemCode::SiteNameTaken).with_detail(detail).into());
        }
        Err(error) => return Err(error.into()),
    }
    let key = match (given, &spec.api_key_ref) {
        (None, Some(reference)) => read_key(&ctx, reference).await?,
        (given, _) => given.unwrap_or_default(),
    };
    let id = SiteId::new(&*ctx.ids, ctx.now());
    let status = probe::probe(&ctx, &spec, key.expose_secret()).await?;
    probe::check_pool(&ctx, &spec, key.expose_secret()).await?;
    let force = second_person::policy_of_region(&ctx, &spec.url, &status.region).await?;
    if force.image_approvals && !spec.approved_images.is_empty() {
        let text = "another site of the region requires a second approver: add the site without \
                    images, then request each image with `gpuaas site set SITE --approve-image \
                    IMAGE`";
        return Err(invalid("spec.approved_images", text).into());
    }
    let detail = json!({ "url": spec.url, "api_key_ref": spec.api_key_ref });
    let audit = NewAuditEntry::new(caller.name(), AuditAction::SiteCreate, &spec.name, detail);
    let made = ctx.store.create_site(ctx.now(), id, spec, status, &key, audit).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// `GET /api/v1/sites`: those at which the caller may look.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    caller: Caller,
    QueryParams(asked): QueryParams<WholeListFilter>,
) -> ApiResult<Json<List<SiteResource>>> {
    let filter = list_filter(FilterList::Sites, asked.filter.as_deref())?;
    let sites = ctx.store.list_sites(filter.as_ref()).await?.into_iter();
    let sites = sites.filter(|site| caller.holds_at(&site.spec.name));
    let now = ctx.now();
    Ok(Json(List::whole(sites.map(|site| site::ownership::shown(site, now)).collect())))
}

/// `GET /api/v1/sites/NAME`.
pub(crate) async fn show(
    State(ctx): State<Ctx>,
    Key(name): Key,
) -> ApiResult<Tagged<SiteResource>> {
    Ok(site::ownership::shown(ctx.store.site_by_name(&name).await?, ctx.now()).into())
}

/// `PATCH /api/v1/sites/NAME`: the given fields of the specification, `null` for the default, and
/// `api_key` for another key, which takes the place of a reference as well. What MAAS has a say in is asked of MAAS first.
pub(crate) async fn change(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(name): Key,
    if_match: IfMatch,
    Body(patch): Body<Map<String, Value>>,
) -> ApiResult<Tagged<SiteResource>> {
    let changed = if_match.change(|| edit(&ctx, &caller, &name, &if_match, patch.clone())).await?;
    Ok(changed.into())
}

async fn edit(
    ctx: &Ctx,
    caller: &Caller,
    name: &str,
    if_match: &IfMatch,
    mut patch: Map<String, Value>,
) -> ApiResult<SiteResource> {
    let site = ctx.store.site_by_name(name).await?;
    let whole = patch.clone();
    let new_key = match patch.remove("api_key").map(ZeroedJson) {
        None => None,
        Some(ZeroedJson(Value::String(ref text))) => Some(SecretString::from(text.trim())),
        Some(_) => return Err(invalid("api_key", "expected a string").into()),
    };
    if patch.is_empty() && new_key.is_none() {
        if_match.check(site.revision)?;
        return Ok(site);
    }
    let key_is_named = patch.get("api_key_ref").is_some_and(|value| !value.is_null());
    if new_key.is_some() && key_is_named {
        return Err(one_key("api_key", "`gpuaas site set SITE --api-key-file FILE`").into());
    }
    if key_is_named {
        // Every site's keys are behind one role of the Vault: a reference may name any of them.
        caller.check_site(None)?;
    }
    let kept = patch.clone();
    let fields: Vec<String> = patch.keys().cloned().collect();
    let defaults = json!({ "api_key_ref": null, "ca_pem": null, "node_ca_pem": null, "pool": null, "pxe_vlan": null, "approved_images": [],
        "drift_policy": {}, "batch_max_parallel": 0, "image_bandwidth_mbit_per_second": 0,
        "idle_poll_seconds": 0, "bundle_inputs": {}, "host_inputs": {}, "second_person": {} });
    let mut spec: SiteSpec = strict::merge(&site.spec, &defaults, patch)?;
    check::site("", &spec)?;
    if new_key.is_some() {
        spec.api_key_ref = None;
    } else if spec.api_key_ref.is_none() && site.spec.api_key_ref.is_some() {
        return Err(one_key("api_key", "`gpuaas site set SITE --api-key-file FILE`").into());
    }
    if spec.url != site.spec.url {
        secure(ctx, &spec.url)?;
    }
    inputs::site_inputs(ctx, "", &spec)?;
    if spec.name != site.spec.name {
        return Err(invalid("name", "the name of a site cannot be changed").into());
    }
    if_match.check(site.revision)?;
    if lists_more_images(&site.spec, &spec) {
        hold_images(ctx, caller, &site, &spec, &kept).await?;
    }
    if spec.second_person != site.spec.second_person {
        hold_policy(ctx, caller, &site, &spec, (kept, new_key.is_some())).await?;
    } else if !is_same_server(&site.spec.url, &spec.url) {
        hold_move(ctx, caller, &site, &spec, &whole).await?;
    }
    let key_is_given = new_key.is_some() || key_is_named;
    let status = ask_region(ctx, &site, &spec, (new_key.as_ref(), key_is_given)).await?;
    let now = ctx.now();
    let detail = json!({
        "fields": fields, "api_key": new_key.is_some(), "api_key_ref": spec.api_key_ref,
        "before_digest": spec_digest(&site.spec), "after_digest": spec_digest(&spec),
    });
    let audit = NewAuditEntry::new(caller.name(), AuditAction::SiteChange, name, detail);
    let (seen, key) = (Some(site.revision), new_key.as_ref());
    Ok(ctx.store.update_site(now, (site.id, seen), spec, status, key, audit).await?)
}

/// Asks the region what it has a say in, with the key that the site will have. Answers what it said.
async fn ask_region(
    ctx: &Ctx,
    site: &SiteResource,
    spec: &SiteSpec,
    (new_key, key_is_given): (Option<&SecretString>, bool),
) -> ApiResult<SiteStatus> {
    let status = site.status.clone();
    let other_region = key_is_given || spec.url != site.spec.url || spec.ca_pem != site.spec.ca_pem;
    if !other_region && spec.pool == site.spec.pool {
        return Ok(status);
    }
    if !key_is_given && !is_same_server(&site.spec.url, &spec.url) {
        return Err(key_stays().into());
    }
    let key = match (new_key, &spec.api_key_ref) {
        (Some(key), _) => key.clone(),
        (None, Some(reference)) => read_key(ctx, reference).await?,
        (None, None) => ctx.store.site_api_key(site.id).await?,
    };
    let status = match other_region {
        true => probe::probe(ctx, spec, key.expose_secret()).await?,
        false => status,
    };
    probe::check_pool(ctx, spec, key.expose_secret()).await?;
    Ok(status)
}

/// The key that a reference names, as it is there now.
async fn read_key(ctx: &Ctx, reference: &KeyReference) -> ApiResult<SecretString> {
    ctx.connect.read_key(reference).await.map_err(|error| probe::key_problem(&error).into())
}

/// Neither or both of a key and a reference to one were given.
fn one_key(field: &str, command: &str) -> Problem {
    let text = "expected either the API key or a reference to it (api_key_ref), not both";
    let hint =
        format!("run {command}, or use --api-key-ref vault:MOUNT/PATH#FIELD instead of the file");
    invalid(field, text).with_hint(hint)
}

/// Has a change that weakens the policy of a second person wait for one. Such a change comes alone: an
/// API key is kept for nobody to look at.
async fn hold_policy(
    ctx: &Ctx,
    caller: &Caller,
    site: &SiteResource,
    spec: &SiteSpec,
    (patch, has_key): (Map<String, Value>, bool),
) -> ApiResult<()> {
    if has_key || patch.len() > 1 {
        let text = "change it alone, so that the approver sees the whole change";
        return Err(invalid("second_person", text).into());
    }
    let name = &site.spec.name;
    let body = serde_json::to_vec(&patch).map_err(|_| problem(ProblemCode::Internal))?;
    let request = ApprovalRequest {
        method: "PATCH".to_owned(),
        ..ApprovalRequest::post("/api/v1/sites/{name}", name, &body)
    };
    let checked = CheckedRequest {
        guarded: Guarded::ChangePolicy(spec.second_person.clone()),
        kind: ApprovalKind::Policy,
        site,
        node_id: None,
        summary: format!("a change of the second-person policy at site {name}"),
        reason: String::new(),
        request,
        target: json!({ "from": site.spec.second_person, "to": spec.second_person }),
    };
    second_person::check(ctx, caller, checked).await
}

/// A site that moves to another region takes its policy away from the machines that it protected: the
/// move waits as a weaker policy does.
async fn hold_move(
    ctx: &Ctx,
    caller: &Caller,
    site: &SiteResource,
    spec: &SiteSpec,
    patch: &Map<String, Value>,
) -> ApiResult<()> {
    let name = &site.spec.name;
    let body = serde_json::to_vec(patch).map_err(|_| problem(ProblemCode::Internal))?;
    let checked = CheckedRequest {
        guarded: Guarded::ChangePolicy(SecondPersonPolicy::default()),
        kind: ApprovalKind::Policy,
        site,
        node_id: None,
        summary: format!("a change of site {name}'s MAAS URL to {}", spec.url),
        reason: String::new(),
        request: ApprovalRequest {
            method: "PATCH".to_owned(),
            ..ApprovalRequest::post("/api/v1/sites/{name}", name, &body)
        },
        target: json!({ "from": site.spec.url, "to": spec.url, "policy": site.spec.second_person }),
    };
    second_person::check(ctx, caller, checked).await
}

/// Whether an image may be deployed by the changed list that might not before.
fn lists_more_images(from: &SiteSpec, to: &SiteSpec) -> bool {
    to.approved_images.iter().any(|image| !from.approved_images.contains(image))
}

/// An image that is added to the site's own list is approved by that: it waits for another person as an
/// approval of an image does.
async fn hold_images(
    ctx: &Ctx,
    caller: &Caller,
    site: &SiteResource,
    spec: &SiteSpec,
    patch: &Map<String, Value>,
) -> ApiResult<()> {
    if !second_person::policy_at(ctx, site).await?.image_approvals {
        return Ok(());
    }
    if patch.len() > 1 {
        let text = "change it alone, so that the approver sees the whole change";
        return Err(invalid("approved_images", text).into());
    }
    let added: Vec<&str> = spec
        .approved_images
        .iter()
        .filter(|image| !site.spec.approved_images.contains(image))
        .map(String::as_str)
        .collect();
    let without_digest =
        |image: &&&str| ImageApproval::parse(image).is_ok_and(|approval| approval.sha256.is_none());
    if let Some(image) = added.iter().find(without_digest) {
        let text = format!("{image} has no digest: expected custom/NAME@sha256:DIGEST");
        return Err(invalid("approved_images", text).into());
    }
    let name = &site.spec.name;
    let body = serde_json::to_vec(patch).map_err(|_| problem(ProblemCode::Internal))?;
    let checked = CheckedRequest {
        guarded: Guarded::ApproveImage,
        kind: ApprovalKind::Policy,
        site,
        node_id: None,
        summary: format!(
            "the addition of {} to the approved images of site {name}",
            added.join(", ")
        ),
        reason: String::new(),
        request: ApprovalRequest {
            method: "PATCH".to_owned(),
            ..ApprovalRequest::post("/api/v1/sites/{name}", name, &body)
        },
        target: json!({ "from": site.spec.approved_images, "to": spec.approved_images }),
    };
    second_person::check(ctx, caller, checked).await
}

/// Refuses an address of this host, and one at which the key, and all that MAAS is told, would be anybody's
/// to read.
fn secure(ctx: &Ctx, url: &str) -> Result<(), Problem> {
    ctx.check_target(url)?;
    let is_plain = url.starts_with("http://") && HostScope::of_url(url) == HostScope::Elsewhere;
    if !is_plain || ctx.settings.insecure_regions {
        return Ok(());
    }
    Err(problem(ProblemCode::RegionInsecure).with_detail(format!("{url} is not on this host")))
}

/// The key that is kept was given for one server, and is shown to no other.
fn key_stays() -> Problem {
    let text = "the stored key is never sent to another server: give the new server's key, or a \
                reference to it, with the URL";
    invalid("api_key", text).with_hint(
        "run `gpuaas site set SITE --url MAAS_URL --api-key-file FILE`, or use --api-key-ref \
         vault:MOUNT/PATH#FIELD instead of the file",
    )
}
