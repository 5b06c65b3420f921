//! Runs a bundle on the host: what it requires first, then its phases, then a look at the effects.
//!
//! The launcher is part of the agent's executable, so a node needs nothing else to take a bundle,
//! and by hand it does what it does at first boot. What it leaves is below
//! `/var/lib/gpuaas/site-bootstrap`:
//!
//! | file | when | what |
//! |---|---|---|
//! | `NAME.done` | every phase ended well | version, run and digest; see [`marker`] |
//! | `NAME.validation` | whenever it looked | each check with what was seen |
//! | `NAME.inputs` | before the first phase | the values it ran with, without the secret ones |
//! | `NAME.secrets` | before the first phase | the secret ones, where it has any; see [`kept`] |
//!
//! What the launcher tells and what a phase leaves in its log have the secret values taken out.
//!
//! At first boot ([`boot`]) the bundles come from the control plane, and nothing of them is placed
//! before all of them are verified.
//!
//! A marker says that these scripts ended well with the values that are kept, and no more. Whether the host
//! is as it should be is what the checks see; a required bundle counts as there only when both say so
//! and it would be given the values that it ran with, because a marker in an image proves nothing of
//! the host that the image was put on, and few values show in a check. Where nobody kept the values,
//! it runs: phases change only what differs.

pub mod boot;
pub mod gate;
pub(crate) mod kept;
mod marker;
mod phase;
mod report;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use gpuaas_bundle::manifest::{ARCHIVED_NAME, Phase, Requirement, SOURCE_NAME};
use gpuaas_bundle::{InputError, Inputs, Manifest};
use gpuaas_types::agent::{BundlePhase, Finding};
use host_facts::HostRoot;
use tokio::sync::mpsc::UnboundedSender;

use crate::checks::MARKERS;
use crate::redact::without;
use crate::tasks::{Host, validate};
pub use report::{BundleReport, PhaseOutcome, PhaseReport};

/// The functions that phases share.
const LIBRARY: &str = include_str!("host.sh");
/// A curated image says here what was put into it.
const IMAGE_RECORD: &str = "/etc/gpuaas/maas-host-image-build.json";
/// What cloud-init wrote at first boot.
const BOOT_FILE: &str = "/etc/gpuaas/bootstrap.json";
/// A phase says here why the host has to be started again.
const REBOOT_NEEDED: &str = "/run/gpuaas/reboot-needed";
/// Names the program that plays the rest of a host that is a folder.
pub(crate) const PLAYER: &str = "GPUAAS_FIXTURE_KERNEL";
/// Bundles that require bundles at most.
const MAX_DEPTH: usize = 8;

/// What a bundle is run with. Holds secrets.
#[derive(Clone, Default)]
pub struct Setting {
    /// Folder that is the host's `/`.
    pub root: PathBuf,
    /// Where required bundles are: `FOLDER/NAME` or `FOLDER/NAME-VERSION`.
    pub bundles: PathBuf,
    /// Where sysfs is, when not below the root.
    pub sysfs: Option<PathBuf>,
    /// Site's name.
    pub site: String,
    /// Host's name.
    pub hostname: String,
    /// The run that deployed the host, as text; empty where the host does not know it.
    pub run_id: String,
    /// Values of inputs, by name.
    pub values: Inputs,
    /// Whether those that the host keeps count, where none of these does. Not at first boot: what
    /// the control plane delivers is all there is.
    pub kept: bool,
    /// The process's environment: an input that is set there wins.
    pub environment: BTreeMap<String, String>,
    /// Told of each phase when it has ended.
    pub ended: Option<UnboundedSender<BundlePhase>>,
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setting")
            .field("root", &self.root)
            .field("bundles", &self.bundles)
            .field("run_id", &self.run_id)
            .finish_non_exhaustive()
    }
}

impl Setting {
    /// As at first boot, as far as the host keeps it.
    #[must_use]
    pub fn of_host(root: &HostRoot) -> Self {
        let boot: serde_json::Value = fs::read(root.join(BOOT_FILE))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        let told = |name: &str| boot.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        let line = |path: &str| root.line_of(path).map(|line| line.trim().to_owned());
        let site = told("site").or_else(|| {
            let line = line("/etc/gpuaas/site.conf")?;
            line.strip_prefix("GPUAAS_SITE=").map(str::to_owned)
        });
        // It may have the domain as well.
        let hostname =
            || line("/etc/hostname").and_then(|name| Some(name.split('.').next()?.to_owned()));
        Self {
            root: root.path().to_owned(),
            bundles: root.join(gate::INSTALLED),
            sysfs: Some(root.join("/sys")),
            site: site.unwrap_or_default(),
            hostname: told("hostname").or_else(hostname).unwrap_or_default(),
            run_id: told("run_id").unwrap_or_default(),
            kept: true,
            ..Self::default()
        }
    }
}

/// Why a bundle was not run.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The folder holds no bundle.
    #[error("{path} is no bundle: {reason}")]
    NoBundle {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A value that cannot be used.
    #[error("{bundle}: {source}")]
    Input {
        /// `name@version`.
        bundle: String,
        /// Which value and why.
        source: InputError,
    },
    /// A required bundle is not there.
    #[error("{bundle} requires {required}, which is not in {folder}")]
    NotThere {
        /// Who requires it.
        bundle: String,
        /// What is required.
        required: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// Bundles that require each other.
    #[error("bundles require each other: {0}")]
    Circle(String),
    /// Another launcher is at work.
    #[error("another launcher runs a bundle on this host")]
    Busy,
    /// The host's files cannot be written.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Runs the bundle in `folder`, and what it requires.
///
/// # Errors
/// What keeps it from being run at all. A phase that failed is in the report.
pub async fn run(folder: &Path, setting: &Setting) -> Result<BundleReport, BundleError> {
    let root = host_root(setting);
    let state = root.join(MARKERS);
    fs::create_dir_all(&state).map_err(|source| BundleError::Io { path: state.clone(), source })?;
    let path = state.join("launcher.lock");
    let failed = |source| BundleError::Io { path: path.clone(), source };
    let lock = File::create(&path).map_err(failed)?;
    if lock.try_lock().is_err() {
        return Err(BundleError::Busy);
    }
    Launcher::new(setting, root, state).bundle(folder, &setting.values).await
}

/// The program that plays a host, where the environment names one.
#[must_use]
pub fn player(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    environment.get(PLAYER).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn host_root(setting: &Setting) -> HostRoot {
    let root = HostRoot::new(&setting.root);
    match &setting.sysfs {
        Some(sysfs) => root.with_sysfs(sysfs),
        None => root,
    }
}

fn read_manifest(folder: &Path) -> Result<Manifest, BundleError> {
    let no = |reason: String| BundleError::NoBundle { path: folder.to_owned(), reason };
    let text = fs::read(folder.join(ARCHIVED_NAME)).map_err(|error| {
        if folder.join(SOURCE_NAME).is_file() {
            return no(format!(
                "it is the source of one; `gpuaas bundle build {}` makes the bundle's file, and \
                 `gpuaas-node-agent bundle unpack` the folder to run",
                folder.display()
            ));
        }
        no(format!("{ARCHIVED_NAME}: {error}"))
    })?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| no(format!("{ARCHIVED_NAME}: {error}")))?;
    for phase in &manifest.phases {
        gpuaas_bundle::archive::check_path(&phase.run)
            .map_err(|reason| no(format!("{}: {reason}", phase.run)))?;
    }
    Ok(manifest)
}

struct Launcher<'a> {
    setting: &'a Setting,
    root: HostRoot,
    state: PathBuf,
    /// Bundles on the way to the one at hand.
    above: Vec<String>,
    /// Of required bundles.
    reports: Vec<BundleReport>,
    /// Values that must not be told.
    secrets: Vec<String>,
}

impl<'a> Launcher<'a> {
    const fn new(setting: &'a Setting, root: HostRoot, state: PathBuf) -> Self {
        Self { setting, root, state, above: Vec::new(), reports: Vec::new(), secrets: Vec::new() }
    }

    async fn bundle(&mut self, folder: &Path, set: &Inputs) -> Result<BundleReport, BundleError> {
        let manifest = read_manifest(folder)?;
        let values = self.values(&manifest, set)?;
        self.above.push(manifest.reference());
        if self.above.len() > MAX_DEPTH {
            return Err(BundleError::Circle(self.above.join(" -> ")));
        }
        for requirement in &manifest.requires {
            let given = manifest
                .given(requirement, &values)
                .map_err(|source| BundleError::Input { bundle: manifest.reference(), source })?;
            let ended_well = self.required(&manifest, requirement, &given).await?;
            if !ended_well {
                self.above.pop();
                let text = format!("{} did not end well", requirement.bundle);
                return Ok(self.report(
                    &manifest,
                    vec![PhaseReport::failed("requires", text)],
                    None,
                ));
            }
        }
        self.above.pop();
        let digest = marker::digest(folder, &manifest);
        let phases = self.phases(folder, &manifest, &values).await?;
        let ended_well = phases.iter().all(|phase| phase.outcome != PhaseOutcome::Failed);
        if !ended_well {
            return Ok(self.report(&manifest, phases, None));
        }
        let line = marker::line(&manifest, &self.setting.run_id, digest);
        self.place(&format!("{}.done", manifest.name), line.as_bytes())?;
        let findings = self.effects(&manifest, &values).await?;
        let report = self.report(&manifest, phases, Some(findings));
        let text = serde_json::to_vec_pretty(&report.validation()).unwrap_or_default();
        self.place(&format!("{}.validation", manifest.name), &text)?;
        Ok(report)
    }

    /// Whether a required bundle is there, after it was run where it was not.
    async fn required(
        &mut self,
        by: &Manifest,
        requirement: &Requirement,
        given: &Inputs,
    ) -> Result<bool, BundleError> {
        let folder = self.find(&requirement.bundle).ok_or_else(|| BundleError::NotThere {
            bundle: by.reference(),
            required: requirement.bundle.clone(),
            folder: self.setting.bundles.clone(),
        })?;
        let manifest = read_manifest(&folder)?;
        let values = self.values(&manifest, given)?;
        let there = self.is_done(&folder, &manifest, &values) && {
            let findings = self.effects(&manifest, &values).await?;
            findings.iter().all(|finding| finding.passed != Some(false))
        };
        if there {
            let done =
                PhaseReport::skipped("all", "its marker, its values and its effects are there");
            self.tell(&manifest, &done);
            let report = self.report(&manifest, vec![done], None);
            self.reports.push(report);
            return Ok(true);
        }
        let report = Box::pin(self.bundle(&folder, given)).await?;
        let ended_well = report.ended_well();
        self.reports.push(report);
        Ok(ended_well)
    }

    /// The folder of a bundle that is required as `name@version`.
    fn find(&self, reference: &str) -> Option<PathBuf> {
        let (name, version) = reference.split_once('@')?;
        [name.to_owned(), format!("{name}-{version}")]
            .into_iter()
            .map(|folder| self.setting.bundles.join(folder))
            .find(|folder| {
                read_manifest(folder).is_ok_and(|manifest| manifest.reference() == reference)
            })
    }

    /// Defaults, then what the host keeps where that counts, then what was set, then the
    /// environment.
    fn values(&mut self, manifest: &Manifest, given: &Inputs) -> Result<Inputs, BundleError> {
        let mut set = Inputs::new();
        if self.setting.kept {
            set = kept::values(&self.root, &self.setting.bundles, manifest);
        }
        set.extend(given.clone());
        for (name, input) in &manifest.inputs {
            if let Some(value) = self.setting.environment.get(&input.environment) {
                set.insert(name.clone(), value.clone());
            }
        }
        let values = manifest
            .resolve(&set)
            .map_err(|source| BundleError::Input { bundle: manifest.reference(), source })?;
        let secret = |name: &str| manifest.inputs.get(name).is_some_and(|input| input.secret);
        let secrets = values.iter().filter(|(name, _)| secret(name)).map(|(_, value)| value);
        self.secrets.extend(secrets.cloned());
        Ok(values)
    }

    async fn phases(
        &self,
        folder: &Path,
        manifest: &Manifest,
        values: &Inputs,
    ) -> Result<Vec<PhaseReport>, BundleError> {
        self.place("host.sh", LIBRARY.as_bytes())?;
        if !self.is_done(folder, manifest, values) {
            // Its marker tells of another version, of other bytes or of other values.
            self.unmark(manifest)?;
        }
        kept::keep(&self.state, manifest, values)
            .map_err(|source| BundleError::Io { path: self.state.clone(), source })?;
        let environment = self.environment(folder, manifest, values);
        let mut reports = Vec::new();
        for phase in &manifest.phases {
            let report = match self.needless(phase, manifest, values) {
                Some(reason) => PhaseReport::skipped(&phase.name, reason),
                None => {
                    let log = self.root.join(format!(
                        "/var/log/gpuaas/bundles/{}/{}.log",
                        manifest.name, phase.name
                    ));
                    phase::run(folder, phase, &environment, &log, &self.secrets).await
                }
            };
            let failed = report.outcome == PhaseOutcome::Failed;
            self.tell(manifest, &report);
            reports.push(report);
            if failed {
                break;
            }
        }
        Ok(reports)
    }

    /// Nobody listening is fine: the report says it all again.
    fn tell(&self, manifest: &Manifest, report: &PhaseReport) {
        if let Some(ended) = &self.setting.ended {
            ended.send(report.told(manifest.reference())).ok();
        }
    }

    /// Why a phase need not run.
    fn needless(&self, phase: &Phase, manifest: &Manifest, values: &Inputs) -> Option<String> {
        if !manifest.applies(phase.only_when.as_deref(), values) {
            return Some(format!("{} is 0", phase.only_when.as_deref().unwrap_or_default()));
        }
        let baked = phase.installs_packages
            && self.root.exists(IMAGE_RECORD)
            && manifest
                .packages
                .required
                .iter()
                .all(|package| self.root.package_installed(package) == Some(true));
        baked.then(|| "the image has the packages".to_owned())
    }

    fn environment(
        &self,
        folder: &Path,
        manifest: &Manifest,
        values: &Inputs,
    ) -> BTreeMap<String, String> {
        let root = self.setting.root.to_string_lossy();
        let root = root.trim_end_matches('/');
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let sysfs = self.setting.sysfs.as_deref().map_or_else(|| format!("{root}/sys"), text);
        let mut environment: BTreeMap<String, String> = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("HOME", "/root".to_owned()),
            ("LC_ALL", "C".to_owned()),
            ("DEBIAN_FRONTEND", "noninteractive".to_owned()),
            ("GPUAAS_HOST_ROOT", root.to_owned()),
            ("GPUAAS_SYSFS", sysfs),
            ("GPUAAS_BUNDLE_DIR", text(folder)),
            ("GPUAAS_BUNDLE", manifest.reference()),
            ("GPUAAS_LIB", text(&self.state.join("host.sh"))),
            ("GPUAAS_SITE", self.setting.site.clone()),
            ("GPUAAS_HOSTNAME", self.setting.hostname.clone()),
            ("GPUAAS_RUN_ID", self.setting.run_id.clone()),
            ("GPUAAS_PACKAGES", manifest.packages.required.join(" ")),
            ("GPUAAS_OPTIONAL_PACKAGES", manifest.packages.optional.join(" ")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        // A test plays the kernel of a simulated host.
        if let Some(kernel) = self.setting.environment.get(PLAYER) {
            environment.insert(PLAYER.to_owned(), kernel.clone());
        }
        for (name, value) in values {
            if let Some(input) = manifest.inputs.get(name) {
                environment.insert(input.environment.clone(), value.clone());
            }
        }
        environment
    }

    async fn effects(
        &self,
        manifest: &Manifest,
        values: &Inputs,
    ) -> Result<Vec<Finding>, BundleError> {
        let checks = manifest.checks(values).map_err(|fault| BundleError::NoBundle {
            path: PathBuf::from(manifest.reference()),
            reason: fault.to_string(),
        })?;
        let host = Host::at(self.root.clone(), player(&self.setting.environment));
        let facts = host.facts().await;
        let mut findings = validate(&host, &facts, &checks).await;
        for finding in &mut findings {
            finding.name = without(&finding.name, &self.secrets);
            finding.seen = without(&finding.seen, &self.secrets);
        }
        Ok(findings)
    }

    fn unmark(&self, manifest: &Manifest) -> Result<(), BundleError> {
        let path = self.state.join(format!("{}.done", manifest.name));
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(BundleError::Io { path, source })
            }
            _ => Ok(()),
        }
    }

    /// Whether what lies in `folder` has run to its end with these values.
    fn is_done(&self, folder: &Path, manifest: &Manifest, values: &Inputs) -> bool {
        let marker = fs::read_to_string(self.state.join(format!("{}.done", manifest.name)));
        marker.is_ok_and(|line| marker::fits(&line, manifest, folder))
            && kept::are(&self.state, manifest, values)
    }

    fn report(
        &mut self,
        manifest: &Manifest,
        phases: Vec<PhaseReport>,
        findings: Option<Vec<Finding>>,
    ) -> BundleReport {
        BundleReport {
            bundle: manifest.reference(),
            requires: std::mem::take(&mut self.reports),
            phases,
            reboot_needed: self
                .root
                .line_of(REBOOT_NEEDED)
                .map(|line| without(&line, &self.secrets)),
            looked: findings.is_some(),
            checks: findings.unwrap_or_default(),
        }
    }

    /// Writes a file of the launcher's own, only where it differs: a second run changes nothing.
    fn place(&self, name: &str, bytes: &[u8]) -> Result<(), BundleError> {
        let path = self.state.join(name);
        if fs::read(&path).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        let written = crate::files::replace(&path, bytes);
        written.map_err(|source| BundleError::Io { path, source })
    }
}

#[cfg(test)]
mod tests;
