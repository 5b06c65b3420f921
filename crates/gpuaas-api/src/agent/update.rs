//! Which agents a node may be updated to.
//!
//! The new executable runs as root, so it is nothing that a request may name freely: it came with
//! the control plane, or somebody published it as a bundle of kind `node_agent`, a trusted key has
//! signed that, and an operator approved it for the node's site. Its version is not lower than what
//! the node's agent says it is; the signed task carries that floor, and the agent holds to it.

use gpuaas_artifact::{ArtifactStore, CatalogError};
use gpuaas_engine::bundles;
use gpuaas_store::ListedNode;
use gpuaas_types::AuditAction;
use gpuaas_types::agent::{AgentVersion, Operation};
use gpuaas_types::codes::ProblemCode;
use serde_json::json;

use crate::bundle::bundles::{delivery_refusal, refused, trusted_keys};
use crate::ctx::Ctx;
use crate::http::problem::{ApiResult, Refusal, invalid, problem};

/// Refusals that somebody may have meant ill.
const AUDITED: [ProblemCode; 3] =
    [ProblemCode::AgentSourceForeign, ProblemCode::AgentDowngrade, ProblemCode::BundleNotApproved];

/// Fills in the executable of an update, and its floor; other operations stay as they are.
pub(crate) async fn complete(
    ctx: &Ctx,
    listed: &ListedNode,
    operation: &mut Operation,
) -> ApiResult<()> {
    let Operation::AgentUpdate { bundle, version, digest, size_bytes, url, floor, .. } = operation
    else {
        return Ok(());
    };
    if !(version.is_empty() && digest.is_empty() && url.is_empty() && floor.is_empty())
        || *size_bytes != 0
    {
        let detail = "only the control plane sets version, digest, size, URL and floor";
        return Err(problem(ProblemCode::AgentSourceForeign).with_detail(detail).into());
    }
    let agent = if bundle.is_empty() {
        ctx.settings.agent.clone().ok_or_else(|| {
            invalid(
                "operation.bundle",
                "this control plane has no agent of its own: name an agent bundle",
            )
        })?
    } else {
        published(ctx, &listed.site, bundle).await?
    };
    *floor = ctx.store.reported_agent_version(listed.node.id).await?.unwrap_or_default();
    let (wanted, lowest) = (agent.version.parse::<AgentVersion>(), floor.parse::<AgentVersion>());
    if let (Ok(wanted), Ok(lowest)) = (wanted, lowest)
        && wanted < lowest
    {
        let (hostname, version) = (&listed.node.hostname, &agent.version);
        let detail = format!("the agent of {hostname} reports version {floor}; {version} is older");
        return Err(problem(ProblemCode::AgentDowngrade).with_detail(detail).into());
    }
    *version = agent.version;
    *digest = agent.digest.to_string();
    *size_bytes = agent.size_bytes;
    *url = ArtifactStore::url_path(&agent.digest);
    Ok(())
}

/// A published agent that a trusted key has signed, and that is approved for the site.
async fn published(ctx: &Ctx, site: &str, reference: &str) -> ApiResult<gpuaas_artifact::Artifact> {
    let found =
        bundles::find_or_refresh(&ctx.store, &ctx.bundles, |catalog| catalog.agent(reference));
    let found = found.await.map_err(|error| refused(&error))?;
    let bundle = found.bundle.reference();
    let trusted = trusted_keys(ctx).await?;
    let verified =
        found.envelope.verify_digest(&trusted, &bundle, found.bundle.digest, ctx.signing_time());
    verified
        .map_err(|source| refused(&CatalogError::Signature { bundle: bundle.clone(), source }))?;
    let missing = bundles::unapproved(&ctx.store, &ctx.bundles, &[found.pin()], site).await;
    let missing = missing.map_err(delivery_refusal)?;
    if !missing.is_empty() {
        let site = site.to_owned();
        return Err(delivery_refusal(bundles::DeliveryError::NotApproved {
            bundles: missing,
            site,
        }));
    }
    let manifest = &found.bundle.manifest;
    let stored = found.bundle.agent.ok_or_else(|| problem(ProblemCode::Internal))?;
    Ok(ArtifactStore::artifact(&manifest.name, &manifest.version, stored))
}

/// Writes down who wanted to put what on a node.
pub(crate) async fn audit_refusal(ctx: &Ctx, listed: &ListedNode, actor: &str, refusal: &Refusal) {
    let problem = &refusal.0;
    let of_signature = problem.code.starts_with("signature_");
    if !of_signature && !AUDITED.iter().any(|code| problem.code == *code) {
        return;
    }
    let detail = json!({
        "code": problem.code, "detail": problem.detail, "hostname": listed.node.hostname,
    });
    ctx.audit_refusal(actor, AuditAction::NodeTaskRefused, &listed.node.id.to_string(), detail)
        .await;
}
