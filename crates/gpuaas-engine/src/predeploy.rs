//! The six checks before a deployment (docs/hosts.md#predeploy-checks): fail here, in seconds,
//! instead of after a whole deployment.
//!
//! What is the same for every run of a site (the endpoint, the artifacts) is checked once and
//! shared for a while.

use gpuaas_artifact::{Digest, render_user_data, validate_ca_bundle};
use gpuaas_core::decide::ready::PREDEPLOY_CHECKS;
use gpuaas_core::policy::normalise_distro_series;
use gpuaas_types::api::CheckResult;
use maas_client::BootResource;

use crate::bundles;
use crate::engine::Shared;
use crate::journal::Journal;
use crate::perform::{Names, host_checks, inputs, trusted};
use crate::site::{Site, Verdict};

/// Seconds for which a shared result is good.
const GOOD_SECONDS: f64 = 60.0;

/// All six, in the order of `PREDEPLOY_CHECKS`.
pub(crate) async fn checks(shared: &Shared, site: &Site, journal: &Journal) -> Vec<CheckResult> {
    let verdicts: [Verdict; 6] = [
        once(shared, site, "endpoint", endpoint(shared, site)).await,
        artifacts(shared, site, journal).await,
        ca(shared, journal),
        token_store(shared, journal).await,
        resolve(shared, journal).await,
        image(site, journal).await,
    ];
    let at = shared.clock.now();
    PREDEPLOY_CHECKS
        .iter()
        .zip(verdicts)
        .map(|(name, verdict)| CheckResult {
            name: (*name).to_owned(),
            passed: verdict.is_ok(),
            evidence: verdict.unwrap_or_else(|text| text),
            at,
        })
        .collect()
}

/// Does a check at most once a minute per site. Failures are not kept.
async fn once(
    shared: &Shared,
    site: &Site,
    name: &str,
    check: impl Future<Output = Verdict>,
) -> Verdict {
    let mut results = site.checks.lock().await;
    let good = GOOD_SECONDS * shared.clock.factor();
    if let Some((at, verdict)) = results.get(name)
        && shared.clock.now().seconds_since(*at) < good
    {
        return verdict.clone();
    }
    let verdict = check.await;
    if verdict.is_ok() {
        results.insert(name.to_owned(), (shared.clock.now(), verdict.clone()));
    }
    verdict
}

/// The address that nodes are told answers, and is not one that only this host can reach.
async fn endpoint(shared: &Shared, site: &Site) -> Verdict {
    let url = &shared.config.advertise_url;
    let (ours, maas) = (is_loopback(url), is_loopback(&site.record.spec.url));
    if ours && !maas {
        return Err(format!(
            "nodes are told {url}, which only this host can reach; start with --advertise"
        ));
    }
    let health = format!("{url}/bootstrap/v1/health");
    shared.http.get(&health).await.map(|_| format!("{health} answered"))
}

fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?']).next().unwrap_or(rest);
    host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]")
}

/// The exact artifacts can be fetched, whole, under the address that the node will use.
async fn artifacts(shared: &Shared, site: &Site, journal: &Journal) -> Verdict {
    let pins = bundles::pins(&shared.store, &shared.bundles, journal.revision()).await;
    let pins = pins.map_err(|e| e.to_string())?;
    let bundles = shared.bundles.artifacts(&pins).map_err(|e| e.to_string())?;
    let wanted = [vec![shared.config.agent.clone()], bundles].concat();
    let mut seen = Vec::new();
    for artifact in wanted {
        let digest = artifact.digest.to_string();
        let url = format!("{}{}", shared.config.advertise_url, artifact.url);
        let check = async {
            let bytes = shared.http.get(&url).await?;
            let found = Digest::of(&bytes);
            if found != artifact.digest {
                return Err(format!("{url} has digest {found}"));
            }
            Ok(format!("{} {} ({} bytes)", artifact.name, artifact.version, bytes.len()))
        };
        seen.push(once(shared, site, &digest, check).await?);
    }
    Ok(seen.join(", "))
}

fn ca(shared: &Shared, journal: &Journal) -> Verdict {
    let site = journal.site();
    let pem = trusted(site, shared.config.node_anchor_pem.as_deref());
    match pem.or_else(|| site.node_ca_pem.clone()) {
        None => Ok("the site hands out no certificate authority".to_owned()),
        Some(pem) => validate_ca_bundle(&pem)
            .map(|n| format!("{n} certificates"))
            .map_err(|e| format!("node_ca_pem of the site, or the control plane's anchor: {e}")),
    }
}

/// Nothing that this run minted before can still be used by another system than the next one.
async fn token_store(shared: &Shared, journal: &Journal) -> Verdict {
    let stray = shared
        .store
        .stray_tokens(journal.node.id, journal.run.id)
        .await
        .map_err(|e| e.to_string())?;
    let ttl = journal.profile().enrollment_token_ttl_seconds;
    match stray {
        0 => Ok(format!(
            "no usable token of another run; the next ones live as long as the run works, and {ttl} s \
             while it is parked"
        )),
        n => Err(format!("{n} tokens of other runs of this node are still usable")),
    }
}

async fn resolve(shared: &Shared, journal: &Journal) -> Verdict {
    let names = Names {
        run_id: journal.run.id,
        hostname: journal.node.hostname.clone(),
        bootstrap_token: format!("gpb_{:064}", 0),
        enrollment_token: format!("gpe_{:064}", 0),
    };
    host_checks(shared, journal).await?;
    let inputs = inputs(shared, journal, names).await?;
    let rendered = render_user_data(&inputs).map_err(|e| e.to_string())?;
    Ok(format!("user-data of {} parts, {} bytes", rendered.parts.len(), rendered.bytes.len()))
}

/// MAAS has the image for the machine's architecture, and the site approves it.
async fn image(site: &Site, journal: &Journal) -> Verdict {
    let wanted = normalise_distro_series(&journal.profile().distro_series);
    let approved = &journal.site().approved_images;
    if !approved.is_empty() && !approved.iter().any(|i| normalise_distro_series(i) == wanted) {
        return Err(format!(
            "{wanted} is not approved for the site; approved: {}",
            approved.join(", ")
        ));
    }
    let images = site.images().await.map_err(|e| e.to_string())?;
    let architecture = journal
        .observation
        .as_ref()
        .and_then(|o| o.machine.as_ref())
        .map_or("amd64/generic", |m| m.architecture.as_str());
    if images.iter().any(|image| is(image, &wanted, architecture)) {
        return Ok(format!("MAAS has {wanted} for {architecture}"));
    }
    let mut have: Vec<&str> = images.iter().map(|i| i.name.as_str()).collect();
    have.sort_unstable();
    have.dedup();
    Err(format!("MAAS has no {wanted} for {architecture}; it has {}", have.join(", ")))
}

/// An uploaded image shows without its `custom/` (docs/maas.md#boot-images); a series may be named
/// by its version, which MAAS resolves itself (docs/maas.md#deployable-images).
fn is(image: &BootResource, wanted: &str, architecture: &str) -> bool {
    let cpu = |text: &str| text.split('/').next().unwrap_or(text).to_owned();
    let bare = wanted.strip_prefix("custom/").unwrap_or(wanted);
    let by_version = matches!(
        (wanted, image.name.as_str()),
        ("ubuntu/20.04", "ubuntu/focal")
            | ("ubuntu/22.04", "ubuntu/jammy")
            | ("ubuntu/24.04", "ubuntu/noble")
            | ("ubuntu/26.04", "ubuntu/resolute")
    );
    (image.name == wanted || image.name == bare || by_version)
        && cpu(&image.architecture) == cpu(architecture)
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn loopback_urls() {
        assert!(is_loopback("http://127.0.0.1:8080"));
        assert!(is_loopback("http://[::1]:8080/x"));
        assert!(!is_loopback("https://gpuaas.example"));
    }
}
