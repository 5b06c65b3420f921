//! Removing sites, profiles and fabric addresses.

use axum::Json;
use axum::extract::State;
use gpuaas_core::record::NodeRecord;
use gpuaas_store::{NewAuditEntry, NodeFilter, SecretOwner, StoreError};
use gpuaas_types::AuditAction;
use gpuaas_types::api::List;
use gpuaas_types::api::RoceResource;
use gpuaas_types::change::{RemovalPlan, RemovalRequest, RoceRemoval};
use gpuaas_types::codes::ProblemCode;
use serde_json::json;

use crate::check;
use crate::ctx::Ctx;
use crate::http::body::{Body, Key};
use crate::http::problem::{ApiResult, counted, problem};
use crate::identity::caller::Caller;
use crate::node;

/// `POST /api/v1/sites/NAME/remove`.
pub(crate) async fn site(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(name): Key,
    Body(asked): Body<RemovalRequest>,
) -> ApiResult<Json<RemovalPlan>> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let site = ctx.store.site_by_name(&name).await?;
    let roces = ctx.store.roce_assignments().await?;
    let roces = roces.iter().filter(|roce| roce.spec.site == name).count();
    let secrets = ctx.store.input_secrets(SecretOwner::Site(site.id)).await?.len();
    let destroys = vec![
        format!(
            "the API key of {}, the watch on the region and the site's bundle approvals",
            site.spec.url
        ),
        format!(
            "{} of bundles, {}",
            counted(secrets, "secret input"),
            if roces == 1 {
                "1 fabric address".to_owned()
            } else {
                format!("{roces} fabric addresses")
            }
        ),
        "nothing changes in MAAS, and the records of nodes that left the site are kept".to_owned(),
    ];
    if !asked.dry_run && !site.spec.second_person.is_off() {
        let detail =
            format!("site {name} has a second-person policy, which would be removed with it");
        let hint = format!(
            "turn the policy off first: `gpuaas site set {name} --second-person off`; this needs a \
             second approver"
        );
        return Err(problem(ProblemCode::SiteInUse).with_detail(detail).with_hint(hint).into());
    }
    let entry = entry(actor, AuditAction::SiteRemove, &name, &reason);
    if !asked.dry_run {
        ctx.store.remove_site(ctx.now(), site.id, entry).await?;
    }
    let used_by = match asked.dry_run {
        true => users(&ctx, |node| node.site_id == site.id).await?,
        false => Vec::new(),
    };
    Ok(Json(RemovalPlan { name, destroys, used_by, removed: !asked.dry_run }))
}

/// The nodes that keep a site or a profile from being removed: in service, or with an open run.
async fn users(ctx: &Ctx, has_node: impl Fn(&NodeRecord) -> bool) -> ApiResult<Vec<String>> {
    let nodes = ctx.store.list_nodes(NodeFilter::default()).await?;
    let used = nodes.iter().filter(|listed| {
        let open = listed.run.as_ref().is_some_and(|run| run.status.is_open());
        has_node(&listed.node) && (open || node::view::is_live(listed.node.state))
    });
    let nodes = used.map(|listed| {
        let (host, state) = (&listed.node.hostname, listed.node.state);
        format!(
            "node {host} is {state}: run `gpuaas node decommission {host}` or `gpuaas node detach {host}`"
        )
    });
    Ok(nodes.collect())
}

/// `POST /api/v1/profiles/NAME/remove`.
pub(crate) async fn profile(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(name): Key,
    Body(asked): Body<RemovalRequest>,
) -> ApiResult<Json<RemovalPlan>> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let profile = ctx.store.profile_by_name(&name).await?;
    let secrets = ctx.store.input_secrets(SecretOwner::Profile(profile.id)).await?.len();
    let destroys = vec![
        format!(
            "the profile and its {}, for new runs",
            counted(usize::try_from(profile.revision).unwrap_or_default(), "revision")
        ),
        format!("{} of bundles", counted(secrets, "secret input")),
    ];
    let entry = entry(actor, AuditAction::ProfileRemove, &name, &reason);
    if !asked.dry_run {
        ctx.store.remove_profile(ctx.now(), profile.id, entry).await?;
    }
    let used_by = match asked.dry_run {
        true => users(&ctx, |node| node.profile_id == profile.id).await?,
        false => Vec::new(),
    };
    Ok(Json(RemovalPlan { name, destroys, used_by, removed: !asked.dry_run }))
}

fn entry(actor: String, action: AuditAction, name: &str, reason: &str) -> NewAuditEntry {
    let detail = json!({ "reason": reason });
    NewAuditEntry { actor, action, subject: name.to_owned(), detail }
}

/// `POST /api/v1/roce-assignments/remove`: answers those that are left of the host.
pub(crate) async fn roce(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<RoceRemoval>,
) -> ApiResult<Json<List<RoceResource>>> {
    caller.check_site(Some(&asked.site))?;
    let site = ctx.store.site_by_name(&asked.site).await?;
    let hostname = asked.hostname.trim().to_ascii_lowercase();
    let interface = check::interface(&asked.interface);
    let subject = format!("{} {hostname} {interface}", asked.site);
    let audit = NewAuditEntry::new(caller.name(), AuditAction::RoceRemove, subject, json!({}));
    let removed =
        ctx.store.remove_roce_assignment(ctx.now(), site.id, &hostname, &interface, audit);
    match removed.await {
        Ok(()) => {}
        Err(StoreError::NotFound { .. }) => {
            let detail =
                format!("{interface} of {hostname} at site {} has no fabric address", asked.site);
            return Err(problem(ProblemCode::RoceNotFound).with_detail(detail).into());
        }
        Err(error) => return Err(error.into()),
    }
    Ok(Json(List::whole(ctx.store.roce_assignments_of_host(site.id, &hostname).await?)))
}
