//! First boot: the site's bundle from the control plane onto the host.
//!
//! Every archive is fetched, has the digest that was named, is signed by a key that the
//! control plane named, and can be taken apart, before the first file of any is placed. What the
//! control plane names comes in `bootstrap.json`, which cloud-init wrote from the user-data.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuaas_bundle::archive::MAX_ARCHIVE_BYTES;
use gpuaas_bundle::{Archive, Delivery, Digest, SignedBundle, TrustedKey};
use gpuaas_types::agent::BundlePhase;
use gpuaas_types::{RunId, Timestamp};
use host_facts::HostRoot;
use serde::Deserialize;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::gate::INSTALLED;
use super::{BundleError, BundleReport, Setting};
use crate::clock::AgentClock;
use crate::protocol::{CallError, ControlPlane, SetupError};

/// How long the last phase callbacks may take once the bundle has ended.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Where the host is.
#[derive(Debug, Clone)]
pub struct Place {
    /// Folder that is its `/`.
    pub root: PathBuf,
    /// Where sysfs is, when not below that.
    pub sysfs: Option<PathBuf>,
}

/// What the launcher reads of `bootstrap.json`.
#[derive(Deserialize)]
struct BootFile {
    run_id: RunId,
    hostname: String,
    site: String,
    control_plane_url: String,
    bootstrap_token: String,
    #[serde(default)]
    bundle: Option<Delivery>,
    #[serde(default)]
    ca_pem: Option<String>,
    #[serde(default)]
    control_plane_ca_pem: Option<String>,
    limits: BootLimits,
}

#[derive(Deserialize)]
struct BootLimits {
    fetch_attempts: u32,
    retry_milliseconds: u32,
}

/// Why a bundle did not run at first boot.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// `bootstrap.json` is not what the control plane writes.
    #[error("{path} cannot be used: {reason}")]
    Config {
        /// Which file.
        path: PathBuf,
        /// Where and why; holds no value of the file.
        reason: String,
    },
    /// HTTP cannot be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// An archive cannot be had.
    #[error("bundle {bundle} cannot be fetched: {reason}")]
    Fetch {
        /// `name@version`.
        bundle: String,
        /// Why.
        reason: String,
    },
    /// An archive that must not run here.
    #[error("bundle {bundle} is refused: {reason}")]
    Refused {
        /// `name@version`.
        bundle: String,
        /// Why.
        reason: String,
    },
    /// The host's files cannot be written.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What keeps a bundle from being run.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

/// Fetches, verifies, installs and runs what `config` names on the host at `place`. None: it
/// names no bundle.
///
/// # Errors
/// What keeps it from being run at all. A phase that failed is in the report.
pub async fn boot(
    config: &Path,
    place: Place,
    environment: BTreeMap<String, String>,
    clock: &dyn AgentClock,
) -> Result<Option<BundleReport>, BootError> {
    let file = read(config)?;
    let Some(delivery) = &file.bundle else { return Ok(None) };
    let ca_pem = file.control_plane_ca_pem.as_ref().or(file.ca_pem.as_ref()).map(String::as_bytes);
    let control_plane = ControlPlane::new(&file.control_plane_url, ca_pem)?;
    let mut archives = Vec::new();
    for bundle in &delivery.bundles {
        let bytes = fetch(&control_plane, bundle, &file.limits, clock).await?;
        archives.push(verified(bundle, &bytes, &delivery.trusted_keys, clock.now())?);
    }
    let folder = HostRoot::new(&place.root).join(INSTALLED);
    let mut main = None;
    for archive in &archives {
        main = Some(install(&folder, archive)?);
    }
    let Some(main) = main else { return Ok(None) };
    let (ended, phases) = unbounded_channel();
    let setting = Setting {
        root: place.root,
        bundles: folder,
        sysfs: place.sysfs,
        site: file.site.clone(),
        hostname: file.hostname.clone(),
        run_id: file.run_id.to_string(),
        values: delivery.values(),
        kept: false,
        environment,
        ended: Some(ended),
    };
    let telling = tokio::spawn(tell(control_plane, file.run_id, file.bootstrap_token, phases));
    let report = super::run(&main, &setting).await;
    drop(setting);
    // A control plane that does not answer must not hold the bootstrap.
    timeout(LAST_WORDS, telling).await.ok();
    Ok(Some(report?))
}

fn read(path: &Path) -> Result<BootFile, BootError> {
    let wrong = |reason: String| BootError::Config { path: path.to_owned(), reason };
    let text = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    // The error's own text may show a value, and the file holds secrets.
    serde_json::from_slice(&text)
        .map_err(|error| wrong(format!("line {}: {:?} error", error.line(), error.classify())))
}

async fn fetch(
    control_plane: &ControlPlane,
    bundle: &SignedBundle,
    limits: &BootLimits,
    clock: &dyn AgentClock,
) -> Result<Vec<u8>, BootError> {
    let artifact = &bundle.artifact;
    let mut reason = "no attempt".to_owned();
    for attempt in 1..=limits.fetch_attempts {
        if attempt > 1 {
            clock.sleep(f64::from(limits.retry_milliseconds) / 1000.0).await;
        }
        match control_plane.fetch(&artifact.url, MAX_ARCHIVE_BYTES).await {
            Ok(bytes) if Digest::of(&bytes) == artifact.digest => return Ok(bytes),
            Ok(bytes) => {
                reason = format!("its digest is {}, not {}", Digest::of(&bytes), artifact.digest);
            }
            Err(error @ CallError::Refused(_)) => {
                reason = error.to_string();
                break;
            }
            Err(error) => reason = error.to_string(),
        }
    }
    Err(BootError::Fetch { bundle: artifact.reference(), reason })
}

/// The archive, when somebody trusted says that these bytes are the bundle that was named.
fn verified(
    bundle: &SignedBundle,
    bytes: &[u8],
    trusted: &[TrustedKey],
    now: Timestamp,
) -> Result<Archive, BootError> {
    let wanted = bundle.artifact.reference();
    let refused = |reason: String| BootError::Refused { bundle: wanted.clone(), reason };
    bundle.envelope.verify(trusted, &wanted, bytes, now).map_err(|e| refused(e.to_string()))?;
    let archive = Archive::read(bytes).map_err(|error| refused(error.to_string()))?;
    let found = archive.manifest.reference();
    if found != wanted {
        return Err(refused(format!("it is {found}")));
    }
    Ok(archive)
}

/// Places the bundle as a whole, in the stead of another version of it.
fn install(folder: &Path, archive: &Archive) -> Result<PathBuf, BootError> {
    let target = folder.join(&archive.manifest.name);
    let draft = folder.join(format!(".{}.new", archive.manifest.name));
    let failed = |source| BootError::Io { path: target.clone(), source };
    remove(&draft).map_err(failed)?;
    archive.unpack(&draft).map_err(failed)?;
    remove(&target).map_err(failed)?;
    fs::rename(&draft, &target).map_err(failed)?;
    Ok(target)
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Passes on what ended, each once: these inform and decide nothing.
async fn tell(
    control_plane: ControlPlane,
    run_id: RunId,
    bootstrap_token: String,
    mut phases: UnboundedReceiver<BundlePhase>,
) {
    while let Some(phase) = phases.recv().await {
        if let Err(error) = control_plane.phase(run_id, &bootstrap_token, &phase).await {
            tracing::warn!(%error, phase = phase.phase, "phase callback");
        }
    }
}
