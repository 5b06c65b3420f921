//! The six checks before a deployment (docs/hosts.md#predeploy-checks): fail here, in seconds,
//! instead of after a whole deployment.
//!
//! What is the same for every run of a site (the endpoint, the artifacts) is checked once and
//! shared for a while.

use std::convert::Infallible;

use gpuaas_artifact::{Artifact, Digest, ca_bundle_ends_at, render_user_data, validate_ca_bundle};
use gpuaas_core::decide::preparation::PREDEPLOY_CHECKS;
use gpuaas_types::Timestamp;
use gpuaas_types::api::CheckResult;
use gpuaas_types::spec::SiteSpec;

use crate::node::inputs::{NodeTokens, bootstrap_inputs};
use crate::node::tokens::artifact_pass;
use crate::node::trust::{NodeTrust, trusted_pem};
use crate::predeploy::host_values;
use crate::predeploy::image;
use crate::predeploy::reach_script::{answer_of_host, health_url};
use crate::predeploy::reachability::HostScope;
use crate::run::session::RunSession;
use crate::shared::Shared;
use crate::site::Site;
use crate::site::connected::{Verdict, is_newer};

/// Seconds for which the result of a check that passed is good.
const GOOD_SECONDS: f64 = 60.0;
/// Seconds for which the result of a check that failed is good: as long as many runs that arrive
/// at once take, and shorter than anybody takes who corrects the cause.
const FAILED_SECONDS: f64 = 5.0;

/// All six, in the order of `PREDEPLOY_CHECKS`. Tokens that should be dead are withdrawn with the
/// next commit, and the check fails once, so that the next round sees whether they are.
pub(crate) async fn checks(
    shared: &Shared,
    site: &Site,
    session: &mut RunSession,
) -> Vec<CheckResult> {
    let honoured = shared.store.count_honoured_tokens(session.node.id).await;
    if let Ok(count @ 1..) = honoured {
        session.revoke_tokens(count, shared.clock.now());
    }
    let own = host_values::claim_before_deployment(shared, session).await;
    let session = &*session;
    let by_host = asked_by_host(session);
    let verdicts: [Verdict; 6] = [
        check_once(shared, site, session, "endpoint", || endpoint(shared, site)).await.map(
            |said| {
                let text = by_host.as_deref().unwrap_or(NOT_ASKED_BY_HOST);
                format!("{said}; {text}")
            },
        ),
        artifacts(shared, site, session).await,
        ca(shared, session),
        token_store(session, honoured.map_err(|error| error.to_string())),
        resolve(shared, session, own).await,
        image::check_image(shared, site, session).await,
    ];
    let at = shared.clock.now();
    PREDEPLOY_CHECKS
        .iter()
        .zip(verdicts)
        .map(|(name, verdict)| CheckResult {
            name: (*name).to_owned(),
            passed: verdict.is_ok(),
            // The control plane's own network is not the nodes'.
            verified: *name != PREDEPLOY_CHECKS[0] || verdict.is_err() || by_host.is_some(),
            evidence: verdict.unwrap_or_else(|text| text),
            at,
        })
        .collect()
}

/// Does a check of the site once for all runs that need it. A failure is kept for a short while
/// only, and nothing is for a run that was resumed since.
async fn check_once<F>(
    shared: &Shared,
    site: &Site,
    session: &RunSession,
    name: &str,
    check: impl FnOnce() -> F,
) -> Verdict
where
    F: Future<Output = Verdict>,
{
    let resumed_at = session.run.state.reads_count_since();
    let is_fresh = |at: Timestamp, verdict: &Verdict| {
        let age = shared.clock.now().seconds_since(at);
        let good = if verdict.is_ok() { GOOD_SECONDS } else { FAILED_SECONDS };
        age < good * shared.clock.factor() && is_newer(at, resumed_at)
    };
    let verdict = async || Ok::<Verdict, Infallible>(check().await);
    let answer = site.checks.of_key(name).await;
    match answer.get_or_ask(&*shared.clock, is_fresh, verdict).await {
        Ok(verdict) => Verdict::clone(&verdict),
        Err(never) => match never {},
    }
}

/// The address that nodes are told answers, and is not one that only this host can reach.
async fn endpoint(shared: &Shared, site: &Site) -> Verdict {
    let url = &shared.config.advertise_url;
    // An answer would prove nothing there: the control plane would have reached itself.
    let start = "start the control plane with an address that nodes can reach: `gpuaas serve \
         --node-listen 0.0.0.0:8443 --advertise https://ADDRESS:8443`";
    match (HostScope::of_url(url), HostScope::of_url(&site.record.spec.url)) {
        (HostScope::Unspecified, _) => {
            return Err(format!(
                "{url} is advertised to nodes but is not a reachable address; {start}"
            ));
        }
        (HostScope::Loopback, HostScope::Elsewhere) => {
            return Err(format!(
                "{url} is advertised to nodes but only this host can reach it; {start}"
            ));
        }
        _ => {}
    }
    let health = health_url(url);
    let answer = shared.http.get(&health, &trust(shared, &site.record.spec), None).await;
    answer.map(|_| {
        format!(
            "{health} answered the control plane, with the certificate authorities that nodes trust"
        )
    })
}

/// Whom the nodes of the site trust, as they are told.
fn trust(shared: &Shared, site: &SiteSpec) -> NodeTrust {
    NodeTrust::of_site(site, shared.config.node_anchors.pem().as_deref())
}

/// Why nothing is known from the network of nodes.
const NOT_ASKED_BY_HOST: &str = "not verified from the nodes' network: no commissioning script of \
     this profile checks it on the host (`commissioning_bundle_ref`)";

/// What the machine itself said of the address, from the network of nodes; none: it was not asked.
fn asked_by_host(session: &RunSession) -> Option<String> {
    let scripts = session.context.bundles.commissioning.as_deref().unwrap_or_default();
    let check = answer_of_host(&session.run, scripts).filter(|check| check.passed)?;
    Some(format!("the host reached it during commissioning: {}", check.evidence))
}

/// The exact artifacts can be fetched, whole, under the address that the node will use.
async fn artifacts(shared: &Shared, site: &Site, session: &RunSession) -> Verdict {
    let pins = session.context.bundles.pins.as_ref().map_err(Clone::clone)?;
    let bundles = shared.bundles.artifacts(pins).map_err(|e| e.to_string())?;
    let agent = &shared.config.agent;
    let mut fetched = Vec::new();
    for artifact in [std::slice::from_ref(agent), &bundles].concat() {
        let digest = artifact.digest.to_string();
        let url = format!("{}{}", shared.config.advertise_url, artifact.url);
        let check = async || {
            let size_bytes = check_bytes(shared, site, &artifact, &url).await?;
            Ok(format!("{} {} ({size_bytes} bytes)", artifact.name, artifact.version))
        };
        fetched.push(check_once(shared, site, session, &digest, check).await?);
    }
    Ok(fetched.join(", "))
}

/// Fetches an artifact and compares its digest. Answers its size in bytes.
async fn check_bytes(
    shared: &Shared,
    site: &Site,
    artifact: &Artifact,
    url: &str,
) -> Result<u64, String> {
    let pass = artifact_pass(&shared.store, &artifact.digest, shared.clock.now());
    let pass = pass.map_err(|error| error.to_string())?;
    let bytes = shared.http.get(url, &trust(shared, &site.record.spec), Some(&pass)).await?;
    let found = Digest::sha256(&bytes);
    if found != artifact.digest {
        return Err(format!("{url} has digest {found}"));
    }
    Ok(artifact.size_bytes)
}

fn ca(shared: &Shared, session: &RunSession) -> Verdict {
    let site = session.site();
    let pem = trusted_pem(site, shared.config.node_anchors.pem().as_deref());
    let count = match pem.or_else(|| site.node_ca_pem.clone()) {
        None => return Ok("the site distributes no certificate authority".to_owned()),
        Some(pem) => validate_ca_bundle(&pem).map_err(|e| {
            format!("invalid node_ca_pem of the site, or trust anchor of the control plane: {e}")
        })?,
    };
    match &site.node_ca_pem {
        Some(pem) => ca_until(pem, &site.name, shared.clock.now())
            .map(|until| format!("{count} certificates; the site's are valid until {until}")),
        None => Ok(format!("{count} certificates")),
    }
}

/// Until when nodes can trust anybody by the site's own bundle.
fn ca_until(pem: &str, site: &str, now: Timestamp) -> Result<Timestamp, String> {
    let until =
        ca_bundle_ends_at(pem).map_err(|e| format!("invalid node_ca_pem of the site: {e}"))?;
    if until > now {
        return Ok(until);
    }
    Err(format!(
        "the last certificate in node_ca_pem of the site expired at {until}: replace it with \
         `gpuaas site set {site} --node-ca-file FILE`"
    ))
}

/// Nothing that an earlier deployment of the node was given is honoured any more. A release ends it;
/// what an older version released, or a restored database brought back, did not.
fn token_store(session: &RunSession, honoured: Result<i64, String>) -> Verdict {
    let ttl = session.profile().enrollment_token_ttl_seconds;
    match honoured? {
        0 => Ok(format!(
            "no token of an earlier deployment is valid; new tokens last while the run is in \
             progress, and {ttl} s while it is parked"
        )),
        n => Err(format!(
            "{n} tokens of an earlier deployment of this node were still valid; they have now been \
             revoked"
        )),
    }
}

/// The user-data can be rendered, and what is of this host alone is of no other.
async fn resolve(shared: &Shared, session: &RunSession, own: Verdict) -> Verdict {
    let tokens =
        NodeTokens { bootstrap: format!("gpb_{:064}", 0), enrollment: format!("gpe_{:064}", 0) };
    session.context.host_checks()?;
    let inputs = bootstrap_inputs(shared, session, tokens).await?;
    let rendered = render_user_data(&inputs).map_err(|e| e.to_string())?;
    let own = own?;
    let own = if own.is_empty() { own } else { format!("; {own}") };
    let (parts, size) = (rendered.parts.len(), rendered.bytes.len());
    Ok(format!("user-data of {parts} parts, {size} bytes{own}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate authority that ends in 2126.
    const CA: &str = include_str!("../../../gpuaas-artifact/src/tests/ca.pem");

    #[test]
    fn a_ca_bundle_whose_last_certificate_ended_does_not_pass() {
        let end = Timestamp::from_rfc3339("2126-10-27T16:39:14Z").unwrap();
        assert_eq!(ca_until(CA, "lab", end.plus_seconds(-1.0)), Ok(end));
        let expired = ca_until(CA, "lab", end).unwrap_err();
        assert!(expired.contains("`gpuaas site set lab --node-ca-file FILE`"), "{expired}");
        assert!(ca_until("no pem", "lab", end).is_err());
    }
}
