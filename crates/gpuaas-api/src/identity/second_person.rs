//! Holds a request back that a site's policy wants another person's word for.
//!
//! A handler that is about to do what a policy may name asks here first, with everything that it has
//! checked. What is held becomes an approval and the request is refused with `second_person_needed`,
//! since nothing was done; [`crate::identity::approvals`] carries it out when somebody else agrees, through the
//! same handler, which asks here again. By then the question is only whether what it is about is still
//! the same.

use axum::http::Uri;
use gpuaas_core::second_person::{
    APPROVAL_SECONDS, GuardedRequest, policy_in_force, wants_second_person,
};
use gpuaas_store::{NewApproval, NewAuditEntry};
use gpuaas_types::access::{Role, RoleGrant};
use gpuaas_types::api::{SiteResource, Source, TimelineEvent};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::spec::SecondPersonPolicy;
use gpuaas_types::{ApprovalId, AuditAction, NodeId, SiteId};
use serde_json::{Value, json};

use crate::audit::entries::spec_digest;
use crate::ctx::Ctx;
use crate::http::problem::{ApiResult, problem};
use crate::identity::caller::Caller;

/// Members of a body that nobody is shown, and that no digest is made of.
const SECRETS: [&str; 2] = ["bmc_password", "api_key"];

/// What a policy may name.
#[derive(Debug, Clone)]
pub(crate) enum Guarded {
    /// Erasing runs on so many nodes.
    Erase(u32),
    /// A bundle is approved.
    ApproveBundle,
    /// A host image is approved.
    ApproveImage,
    /// An agent is updated.
    UpdateAgent,
    /// The policy becomes this one.
    ChangePolicy(SecondPersonPolicy),
}

/// A request that was checked, and what it is about.
#[derive(Debug, Clone)]
pub(crate) struct CheckedRequest<'a> {
    /// What it asks.
    pub(crate) guarded: Guarded,
    /// What kind of request it is.
    pub(crate) kind: ApprovalKind,
    /// The site that it concerns.
    pub(crate) site: &'a SiteResource,
    /// The node that it concerns, where it is one.
    pub(crate) node_id: Option<NodeId>,
    /// What is asked, a clause.
    pub(crate) summary: String,
    /// The reason that was given; empty: none.
    pub(crate) reason: String,
    /// The request as it was sent.
    pub(crate) request: ApprovalRequest,
    /// What it is about, as it is now.
    pub(crate) target: Value,
}

/// Lets a request through that needs no other person, or that another person agreed to.
///
/// # Errors
/// `second_person_needed`: it waits as an approval; `approval_outdated`: what somebody agreed to is not
/// what it was.
pub(crate) async fn check(
    ctx: &Ctx,
    caller: &Caller,
    checked: CheckedRequest<'_>,
) -> ApiResult<()> {
    let force = InForce::at_site(ctx, checked.site).await?;
    if force.policy.is_off() && caller.approved_target().is_none() {
        return Ok(());
    }
    if caller.is_counted() && matches!(checked.guarded, Guarded::Erase(_)) {
        return Ok(());
    }
    let target_digest = spec_digest(&checked.target);
    if let Some(agreed) = caller.approved_target() {
        if agreed == target_digest {
            return Ok(());
        }
        let detail = format!("{}: the target has changed since the request", checked.summary);
        return Err(problem(ProblemCode::ApprovalOutdated).with_detail(detail).into());
    }
    if !waits(ctx, caller, &checked, &force).await? {
        return Ok(());
    }
    let (summary, site) = (checked.summary.clone(), checked.site.spec.name.clone());
    let new = new_approval(ctx, caller, checked, target_digest);
    let expires_at = new.expires_at;
    let id = ctx.store.hold_request(ctx.now(), new).await?;
    let detail = format!("{summary} at site {site} is pending as approval {id} until {expires_at}");
    let hint = format!(
        "see it with `gpuaas approval show {id}`; ask an approver other than {} to run `gpuaas \
         approval approve {id} --reason WHY`",
        caller.person()
    );
    Err(problem(ProblemCode::SecondPersonNeeded).with_detail(detail).with_hint(hint).into())
}

/// The policy that a request at a site is held to.
struct InForce {
    policy: SecondPersonPolicy,
    /// The other sites of the region: what is erased there counts as well.
    others: Vec<SiteId>,
    /// Names of the region's sites that have a policy.
    sites: Vec<String>,
}

impl InForce {
    async fn at_site(ctx: &Ctx, site: &SiteResource) -> ApiResult<Self> {
        let all = ctx.store.sites().await?;
        let others = all.iter().filter(|one| one.id != site.id && is_same_region(one, site));
        let region: Vec<&SiteResource> = std::iter::once(site).chain(others).collect();
        let guarded = region.iter().filter(|one| !one.spec.second_person.is_off());
        Ok(Self {
            policy: policy_in_force(region.iter().map(|one| &one.spec.second_person)),
            others: region.iter().skip(1).map(|one| one.id).collect(),
            sites: guarded.map(|one| one.spec.name.clone()).collect(),
        })
    }
}

/// Whether two sites are of one region: it has one identity, or one address.
fn is_same_region(one: &SiteResource, other: &SiteResource) -> bool {
    let identity = &one.status.region;
    (!identity.is_empty() && *identity == other.status.region)
        || is_same_server(&one.spec.url, &other.spec.url)
}

/// Whether both addresses have one scheme, host and port.
pub(crate) fn is_same_server(one: &str, other: &str) -> bool {
    let origin = |url: &str| {
        let parts = Uri::try_from(url).ok()?.into_parts();
        Some((parts.scheme?, parts.authority?))
    };
    one == other || origin(one).is_some_and(|one| Some(one) == origin(other))
}

/// The policy in force at a site.
///
/// # Errors
/// The database's.
pub(crate) async fn policy_at(ctx: &Ctx, site: &SiteResource) -> ApiResult<SecondPersonPolicy> {
    Ok(InForce::at_site(ctx, site).await?.policy)
}

/// The policy in force for a site that is not stored yet: that of the other sites of its region.
///
/// # Errors
/// The database's.
pub(crate) async fn policy_of_region(
    ctx: &Ctx,
    url: &str,
    region: &str,
) -> ApiResult<SecondPersonPolicy> {
    let sites = ctx.store.sites().await?;
    let same = sites.iter().filter(|one| {
        (!region.is_empty() && one.status.region == region) || is_same_server(&one.spec.url, url)
    });
    Ok(policy_in_force(same.map(|one| &one.spec.second_person)))
}

/// Names of the sites whose policies a request at `site` is held to: the second person has to be an
/// approver at each of them.
///
/// # Errors
/// The database's.
pub(crate) async fn guarding_sites(ctx: &Ctx, site: &str) -> ApiResult<Vec<String>> {
    let site = ctx.store.site_by_name(site).await?;
    Ok(InForce::at_site(ctx, &site).await?.sites)
}

/// Refuses a credential that lets the caller act as a second person, or as one with a budget of its own,
/// where a policy is in force: requesters cannot create approvers. `grants` are what the credential of
/// somebody else may do.
///
/// # Errors
/// `person_not_creatable`; the database's.
pub(crate) async fn refuse_new_person(
    ctx: &Ctx,
    person: &str,
    grants: &[RoleGrant],
) -> ApiResult<()> {
    let acts: Vec<_> = grants.iter().filter(|grant| grant.role != Role::Viewer).collect();
    if acts.is_empty() {
        return Ok(());
    }
    let sites = ctx.store.sites().await?;
    let guarded = |site: &SiteResource| {
        let has_policy = |one: &&SiteResource| !one.spec.second_person.is_off();
        sites.iter().filter(has_policy).any(|one| one.id == site.id || is_same_region(one, site))
    };
    let acts_at = |site: &&SiteResource| {
        acts.iter().any(|grant| grant.holds_at(Some(&site.spec.name))) && guarded(site)
    };
    let Some(site) = sites.iter().find(acts_at) else { return Ok(()) };
    let detail = format!(
        "{person:?} would count as a second person at site {}, where a policy requires one",
        site.spec.name
    );
    Err(problem(ProblemCode::PersonNotCreatable).with_detail(detail).into())
}

async fn waits(
    ctx: &Ctx,
    caller: &Caller,
    checked: &CheckedRequest<'_>,
    force: &InForce,
) -> ApiResult<bool> {
    let policy = &force.policy;
    Ok(match &checked.guarded {
        Guarded::Erase(_) if policy.erasing_above.is_none() => false,
        Guarded::Erase(nodes) => {
            let sites = (checked.site.id, force.others.clone());
            ctx.store
                .count_erasing(ctx.now(), sites, policy.clone(), caller.person(), *nodes)
                .await?
        }
        Guarded::ApproveBundle => wants_second_person(policy, GuardedRequest::ApproveBundle),
        Guarded::ApproveImage => wants_second_person(policy, GuardedRequest::ApproveImage),
        Guarded::UpdateAgent => wants_second_person(policy, GuardedRequest::UpdateAgent),
        // A site changes its own policy; those of the region's other sites stay in force.
        Guarded::ChangePolicy(to) => {
            wants_second_person(&checked.site.spec.second_person, GuardedRequest::ChangePolicy(to))
        }
    })
}

fn new_approval(
    ctx: &Ctx,
    caller: &Caller,
    checked: CheckedRequest<'_>,
    target_digest: String,
) -> NewApproval {
    let CheckedRequest { kind, site, node_id, summary, reason, request, .. } = checked;
    let now = ctx.now();
    let id = ApprovalId::new(&*ctx.ids, now);
    let mut shown = request.clone();
    hide_secrets(&mut shown.body);
    // A digest of what holds a secret is like no other, so that it tells nothing of it.
    let salt = if shown == request { Value::Null } else { json!(id) };
    let digest = spec_digest(&json!([shown, salt]));
    let line = TimelineEvent {
        at: now,
        run_id: None,
        step: None,
        source: Source::Operator,
        code: TimelineCode::ApprovalAsked.into(),
        text: format!(
            "{} requested {summary}; it needs a second approver (approval {id})",
            caller.name()
        ),
    };
    let audit = NewAuditEntry {
        actor: caller.name().to_owned(),
        action: AuditAction::ApprovalAsk,
        subject: id.to_string(),
        detail: json!({
            "site": site.spec.name, "kind": kind, "summary": summary, "reason": reason,
            "digest": digest, "target_digest": target_digest,
        }),
    };
    NewApproval {
        id,
        kind,
        site_id: site.id,
        node_id,
        summary,
        requester: caller.requester(),
        reason,
        digest,
        target_digest,
        request,
        expires_at: now.plus_seconds(APPROVAL_SECONDS * ctx.clock.factor()),
        history: vec![line],
        audit,
    }
}

/// Takes secrets out of a body that is shown.
pub(crate) fn hide_secrets(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if SECRETS.contains(&name.as_str()) && !value.is_null() {
                    *value = Value::from("hidden");
                } else {
                    hide_secrets(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_secrets),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_a_body_is_shown() {
        let mut body = json!({
            "spec": { "machines": [{ "bmc_password": "hush", "bmc_user": "root" }] },
            "api_key": "a:b:c",
        });
        hide_secrets(&mut body);
        let shown = body.to_string();
        assert!(!shown.contains("hush") && !shown.contains("a:b:c"), "{shown}");
        assert!(shown.contains("root"), "{shown}");
    }
}
