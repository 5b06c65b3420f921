//! First boot: fetches the site's bundle from the control plane, installs it and runs it.
//!
//! Nothing is installed before every archive is fetched, has the digest and a trusted signature
//! that the delivery names, and can be unpacked. The delivery is in `bootstrap.json`, which
//! cloud-init wrote from the user-data.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuaas_bundle::archive::MAX_ARCHIVE_BYTES;
use gpuaas_bundle::{Archive, Delivery, Digest, SignedBundle, TrustedKey};
use gpuaas_types::agent::BundlePhase;
use gpuaas_types::{RunId, SecretText, Timestamp};
use host_facts::HostRoot;
use serde::Deserialize;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::error::BundleError;
use super::launcher::{self, BundleContext};
use super::report::BundleReport;
use super::stored_inputs;
use crate::clock::AgentClock;
use crate::identity::AgentCredential;
use crate::paths;
use crate::protocol::{ControlPlane, ControlPlaneError, SetupError};

/// How long the last phase callbacks may take once the bundle has ended.
const CALLBACK_GRACE: Duration = Duration::from_secs(10);

/// Folders of the host that boots.
#[derive(Debug, Clone)]
pub struct HostFolders {
    /// Folder that is the host's `/`.
    pub root: PathBuf,
    /// Folder of sysfs, when not `sys` below the root.
    pub sysfs: Option<PathBuf>,
}

/// The fields of `bootstrap.json` that the launcher needs.
#[derive(Deserialize)]
struct BootFile {
    run_id: RunId,
    hostname: String,
    site: String,
    control_plane_url: String,
    bootstrap_token: SecretText,
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
    #[error("invalid boot configuration {path}: {reason}")]
    Config {
        /// The file.
        path: PathBuf,
        /// Line and kind of the error; no value of the file.
        reason: String,
    },
    /// HTTP cannot be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// An archive cannot be downloaded.
    #[error("cannot download bundle {bundle}: {reason}")]
    Fetch {
        /// The bundle's reference, `name@version`.
        bundle: String,
        /// Error of the last attempt.
        reason: String,
    },
    /// An archive that must not be installed.
    #[error("rejected bundle {bundle}: {reason}")]
    Refused {
        /// The bundle's reference, `name@version`.
        bundle: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file of the host cannot be written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The bundle cannot be run.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

/// Fetches, verifies, installs and runs the bundles that `config` names on the host in `folders`.
/// `None`: it names no bundle.
///
/// # Errors
/// The bundle was not run. A phase that failed is no error: it is in the report.
pub async fn boot(
    config: &Path,
    folders: HostFolders,
    environment: BTreeMap<String, String>,
    clock: &dyn AgentClock,
) -> Result<Option<BundleReport>, BootError> {
    let file = read(config)?;
    let Some(delivery) = &file.bundle else { return Ok(None) };
    let (url, ca_pem) = (&file.control_plane_url, file.ca_pem.as_ref().map(String::as_bytes));
    let control_plane = match &file.control_plane_ca_pem {
        Some(anchor) => ControlPlane::new(url, Some(anchor.as_bytes()))?,
        None => ControlPlane::with_system_roots(url, ca_pem)?,
    };
    let token = AgentCredential::Bearer(file.bootstrap_token.clone());
    let own = control_plane.with_credential(&token)?;
    let mut archives = Vec::new();
    for bundle in &delivery.bundles {
        let bytes = fetch(&own, bundle, &file.limits, clock).await?;
        archives.push(verify_archive(bundle, &bytes, &delivery.trusted_keys, clock.now())?);
    }
    let installed = HostRoot::new(&folders.root).join(paths::INSTALLED_BUNDLES);
    let delivered: Vec<&str> = archives.iter().map(|a| a.manifest.name.as_str()).collect();
    stored_inputs::forget_others(&HostRoot::new(&folders.root), &delivered).map_err(|source| {
        BootError::Io { path: HostRoot::new(&folders.root).join(paths::BUNDLE_STATE), source }
    })?;
    let mut main = None;
    for archive in &archives {
        main = Some(install(&installed, archive)?);
    }
    let Some(main) = main else { return Ok(None) };
    let (phase_events, phases) = unbounded_channel();
    let context = BundleContext {
        root: folders.root,
        bundles: installed,
        sysfs: folders.sysfs,
        site: file.site.clone(),
        hostname: file.hostname.clone(),
        run_id: file.run_id.to_string(),
        values: delivery.values(),
        use_stored_inputs: false,
        environment,
        repairs: BTreeSet::new(),
        phase_events: Some(phase_events),
    };
    let callbacks =
        tokio::spawn(report_phases(control_plane, file.run_id, file.bootstrap_token, phases));
    let report = launcher::run(&main, &context).await;
    drop(context);
    // A control plane that does not answer must not hold the bootstrap.
    timeout(CALLBACK_GRACE, callbacks).await.ok();
    Ok(Some(report?))
}

fn read(path: &Path) -> Result<BootFile, BootError> {
    let unusable = |reason: String| BootError::Config { path: path.to_owned(), reason };
    let text = fs::read(path).map_err(|error| unusable(error.to_string()))?;
    // The error's own text may show a value, and the file holds secrets.
    serde_json::from_slice(&text)
        .map_err(|error| unusable(format!("line {}: {:?} error", error.line(), error.classify())))
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
            Ok(bytes) if Digest::sha256(&bytes) == artifact.digest => return Ok(bytes),
            Ok(bytes) => {
                reason =
                    format!("digest is {}, expected {}", Digest::sha256(&bytes), artifact.digest);
            }
            Err(error @ ControlPlaneError::Refused(_)) => {
                reason = error.to_string();
                break;
            }
            Err(error) => reason = error.to_string(),
        }
    }
    Err(BootError::Fetch { bundle: artifact.reference(), reason })
}

/// The archive, when a trusted key has signed these bytes as the bundle that was named.
fn verify_archive(
    bundle: &SignedBundle,
    bytes: &[u8],
    trusted: &[TrustedKey],
    now: Timestamp,
) -> Result<Archive, BootError> {
    let expected = bundle.artifact.reference();
    let refused = |reason: String| BootError::Refused { bundle: expected.clone(), reason };
    bundle.envelope.verify(trusted, &expected, bytes, now).map_err(|e| refused(e.to_string()))?;
    let archive = Archive::read(bytes).map_err(|error| refused(error.to_string()))?;
    let found = archive.manifest.reference();
    if found != expected {
        return Err(refused(format!("it is {found}")));
    }
    Ok(archive)
}

/// Installs a bundle as a whole, in place of another version of it.
fn install(folder: &Path, archive: &Archive) -> Result<PathBuf, BootError> {
    let target = folder.join(&archive.manifest.name);
    let draft = folder.join(format!(".{}.new", archive.manifest.name));
    let failed = |source| BootError::Io { path: target.clone(), source };
    remove_folder(&draft).map_err(failed)?;
    archive.unpack(&draft).map_err(failed)?;
    remove_folder(&target).map_err(failed)?;
    fs::rename(&draft, &target).map_err(failed)?;
    Ok(target)
}

fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reports each phase that ended, once and without retries: these callbacks inform and decide
/// nothing.
async fn report_phases(
    control_plane: ControlPlane,
    run_id: RunId,
    bootstrap_token: SecretText,
    mut phases: UnboundedReceiver<BundlePhase>,
) {
    while let Some(phase) = phases.recv().await {
        if let Err(error) = control_plane.phase(run_id, bootstrap_token.expose(), &phase).await {
            tracing::warn!(%error, phase = phase.phase, "phase callback");
        }
    }
}
