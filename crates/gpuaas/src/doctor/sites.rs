//! The regions of the sites, asked from this host with the keys that are kept.

use std::sync::Arc;
use std::time::Duration;

use gpuaas_core::image_state::{crowded_families, state_at};
use gpuaas_engine::region_diagnosis::{KeyDiagnosis, RegionDiagnosis, diagnose_region};
use gpuaas_engine::{
    Clock, HostScope, HttpConnect, KeyUnreadable, ReadKey, SiteKeyError, site_key,
};
use gpuaas_store::{ExposeSecret as _, Store};
use gpuaas_types::Timestamp;
use gpuaas_types::api::SiteResource;
use gpuaas_types::codes::{DoctorCheckCode as Check, ProblemCode};
use gpuaas_types::spec::SiteSpec;
use reqwest::header::DATE;

use super::finding::Finding;

/// The oldest and the newest release that is known (docs/maas.md).
const RELEASES: std::ops::RangeInclusive<(u32, u32)> = (3, 4)..=(3, 7);
/// Seconds that two clocks may differ by: answers are dated to the second, and take their time.
const ALLOWED_SKEW_SECONDS: f64 = 30.0;
/// Longest time for one answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Looks at each site that there is.
pub(super) async fn check(
    store: &Store,
    clock: &Arc<dyn Clock>,
    keys: Option<Arc<dyn ReadKey>>,
    findings: &mut Vec<Finding>,
) {
    match store.sites().await {
        Ok(sites) => {
            for site in sites {
                check_site(store, (clock, &keys), &site, findings).await;
            }
            check_images(store, clock, findings).await;
        }
        Err(error) => {
            findings.push(Finding::fault(Check::DatabaseHealth, "sites", error.to_string()));
        }
    }
}

/// Looks for sites with more images than they need.
async fn check_images(store: &Store, clock: &Arc<dyn Clock>, findings: &mut Vec<Finding>) {
    let images = match store.images(None).await {
        Ok(images) => images,
        Err(error) => {
            findings.push(Finding::fault(Check::DatabaseHealth, "images", error.to_string()));
            return;
        }
    };
    let now = clock.now();
    let states = images.iter().map(|one| {
        (one.site.as_str(), one.name.as_str(), state_at(one.state, one.expires_at, now))
    });
    let crowded = crowded_families(states);
    if crowded.is_empty() {
        let seen = format!("{} images", images.len());
        findings.push(Finding::ok(Check::SiteImages, "images", seen));
    }
    for ((site, family), count) in crowded {
        let seen = format!("{count} live images of family {family}");
        findings.push(Finding::fault(Check::SiteImages, site, seen));
    }
}

async fn check_site(
    store: &Store,
    (clock, keys): (&Arc<dyn Clock>, &Option<Arc<dyn ReadKey>>),
    site: &SiteResource,
    findings: &mut Vec<Finding>,
) {
    let name = site.spec.name.as_str();
    findings.push(match &site.status.control {
        Some(control) => Finding::fault(Check::SiteControl, name, control.text.clone()),
        None => Finding::ok(Check::SiteControl, name, "no other control plane known"),
    });
    let url = &site.spec.url;
    let is_plain = url.starts_with("http://") && HostScope::of_url(url) == HostScope::Elsewhere;
    findings.push(if is_plain {
        Finding::fault(Check::SiteTransport, name, format!("{url} is not encrypted"))
    } else {
        Finding::ok(Check::SiteTransport, name, url.clone())
    });
    let connect = HttpConnect::new(Arc::clone(clock)).with_keys(keys.clone());
    let key = match site_key(store, &connect, site).await {
        Ok(key) => key,
        Err(error) => return findings.push(key_fault(name, &error)),
    };
    let reference = site.spec.api_key_ref.as_ref();
    let kept = reference.map_or_else(|| "sealed in the database".to_owned(), ToString::to_string);
    findings.push(Finding::ok(Check::SiteKeyKept, name, kept));
    let RegionDiagnosis { version, key } =
        diagnose_region(&connect, &site.spec, key.expose_secret()).await;
    let release = version.as_ref().ok().map(|(_, release)| *release);
    findings.push(match &version {
        Ok(_) => Finding::ok(Check::SiteReachable, name, site.spec.url.clone()),
        Err(why) => Finding::fault(Check::SiteReachable, name, why.clone()),
    });
    if let Ok((version, release)) = &version {
        let seen = format!("MAAS {version}");
        findings.push(if RELEASES.contains(release) {
            Finding::ok(Check::SiteVersion, name, seen)
        } else {
            Finding::fault(Check::SiteVersion, name, seen)
        });
    }
    findings.extend(key_findings(name, key));
    if release.is_some() {
        findings.push(clock_skew(&site.spec, clock.as_ref()).await);
    }
}

fn key_fault(name: &str, error: &SiteKeyError) -> Finding {
    let seen = error.to_string();
    match error {
        SiteKeyError::Store(_) => Finding::fault(Check::SiteKey, name, seen),
        SiteKeyError::Kept(KeyUnreadable { code: ProblemCode::VaultNotNamed, .. }) => {
            let seen = "the key is in Vault: pass the same --vault-url URL as to `gpuaas serve`";
            Finding::skipped(Check::SiteKeyKept, name, seen.to_owned())
        }
        SiteKeyError::Kept(_) => Finding::fault(Check::SiteKeyKept, name, seen),
    }
}

fn key_findings(name: &str, key: KeyDiagnosis) -> Vec<Finding> {
    let taken = |user: &str| Finding::ok(Check::SiteKey, name, format!("it is {user}'s"));
    match key {
        KeyDiagnosis::Administrator(user) => vec![
            taken(&user),
            Finding::ok(Check::SiteKeyRights, name, format!("{user} is an administrator")),
        ],
        KeyDiagnosis::User(user) => vec![
            taken(&user),
            Finding::fault(Check::SiteKeyRights, name, format!("{user} is not an administrator")),
        ],
        KeyDiagnosis::Refused(why) => vec![Finding::fault(Check::SiteKey, name, why)],
        KeyDiagnosis::Unknown(why) => vec![Finding::skipped(Check::SiteKey, name, why)],
    }
}

/// Compares the date of an answer with the middle between question and answer.
async fn clock_skew(spec: &SiteSpec, clock: &dyn Clock) -> Finding {
    let name = spec.name.as_str();
    let before = clock.now();
    let date = match answer_date(spec).await {
        Ok(date) => date,
        Err(why) => return Finding::skipped(Check::SiteClock, name, why),
    };
    let took = clock.now().seconds_since(before);
    let skew = date.seconds_since(before.plus_seconds(took / 2.0));
    let seen = match skew {
        skew if skew > 0.0 => format!("the region's clock is {skew:.0} s ahead"),
        skew => format!("the region's clock is {:.0} s behind", -skew),
    };
    if skew.abs() > ALLOWED_SKEW_SECONDS {
        Finding::fault(Check::SiteClock, name, seen)
    } else {
        Finding::ok(Check::SiteClock, name, format!("within {ALLOWED_SKEW_SECONDS:.0} s"))
    }
}

async fn answer_date(spec: &SiteSpec) -> Result<Timestamp, String> {
    // As the control plane asks a region: never through a proxy of the environment.
    let mut builder = reqwest::Client::builder().timeout(LIMIT).no_proxy();
    if spec.url.starts_with("http:") {
        builder = builder.tls_certs_only([]);
    } else if let Some(pem) = &spec.ca_pem {
        let anchors = reqwest::Certificate::from_pem_bundle(pem.as_bytes());
        builder = builder.tls_certs_merge(anchors.map_err(|error| error.to_string())?);
    }
    let client = builder.build().map_err(|error| error.to_string())?;
    let url = format!("{}/api/2.0/version/", spec.url.trim_end_matches('/'));
    let answer = client.get(url).send().await.map_err(|error| error.to_string())?;
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(Timestamp::from_http_date);
    date.ok_or_else(|| "the response has no Date header".to_owned())
}
