//! Runs a bundle on the host: what it requires first, then its phases, then the checks of its
//! effects.
//!
//! The launcher is part of the agent's executable, so a node needs nothing else to run a bundle,
//! and a person who runs it by hand gets what happens at first boot. It writes below
//! `/var/lib/gpuaas/site-bootstrap`:
//!
//! | file | when | content |
//! |---|---|---|
//! | `NAME.done` | every phase ended well | version, run and digest; see [`marker`] |
//! | `NAME.validation` | its effects were checked | each check with what was observed |
//! | `NAME.inputs` | before the first phase | the values it ran with, without the secret ones |
//! | `NAME.secrets` | before the first phase | the secret ones, if any; see [`stored_inputs`] |
//!
//! Secret values are redacted in reports and in the logs of phases.
//!
//! A marker says that these scripts ended well with the stored values, and no more. Whether the
//! host is as it should be is decided by the checks. A required bundle counts as done only when its
//! marker and its checks say so and it would run with the stored values: a marker that came with an
//! image proves nothing of this host, and few values show in a check. Where no values are stored,
//! the bundle runs; phases change only what differs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use gpuaas_bundle::manifest::{ManifestPhase, Requirement};
use gpuaas_bundle::{Inputs, Manifest};
use gpuaas_types::agent::{BundlePhase, Finding};
use host_facts::HostRoot;
use tokio::sync::mpsc::UnboundedSender;

use super::error::BundleError;
use super::manifest_file::read_manifest;
use super::report::{BundleReport, PhaseOutcome, PhaseReport};
use super::{marker, phase, stored_inputs};
use crate::host::{EMULATOR_VARIABLE, Host, emulator_from_env};
use crate::redact::redact_values;
use crate::{atomic_file, checks, paths, reboot_reasons};

/// The shell functions that phases share; each phase finds them in `GPUAAS_LIB`.
const SHELL_LIBRARY: &str = include_str!("host.sh");
/// Tells a phase to restore its effect whatever its records say; see `host.sh`.
const REPAIR_VARIABLE: &str = "GPUAAS_REPAIR";
/// Longest chain of bundles that require each other.
const MAX_DEPTH: usize = 8;

/// What a bundle is run with. Holds secrets.
#[derive(Clone, Default)]
pub struct BundleContext {
    /// Folder that is the host's `/`.
    pub root: PathBuf,
    /// Folder of the required bundles: `FOLDER/NAME` or `FOLDER/NAME-VERSION`.
    pub bundles: PathBuf,
    /// Folder of sysfs, when not `sys` below the root.
    pub sysfs: Option<PathBuf>,
    /// Name of the site.
    pub site: String,
    /// Short hostname.
    pub hostname: String,
    /// Id of the run that deployed the host; empty where the host does not know it.
    pub run_id: String,
    /// Values of inputs, by name.
    pub values: Inputs,
    /// Whether stored values count where `values` has none. Not at first boot, where the control
    /// plane delivers all of them.
    pub use_stored_inputs: bool,
    /// The process's environment: an input that is set there wins.
    pub environment: BTreeMap<String, String>,
    /// Phases that restore their effect even if nothing of their input has changed, `BUNDLE/PHASE`: those
    /// of checks that fail. With any, a phase that fails keeps no other one from running.
    pub repairs: BTreeSet<String>,
    /// Receives each phase when it has ended.
    pub phase_events: Option<UnboundedSender<BundlePhase>>,
}

impl fmt::Debug for BundleContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BundleContext")
            .field("root", &self.root)
            .field("bundles", &self.bundles)
            .field("run_id", &self.run_id)
            .finish_non_exhaustive()
    }
}

impl BundleContext {
    /// The context of first boot, as far as the host's files still have it.
    #[must_use]
    pub fn from_host(root: &HostRoot) -> Self {
        let boot: serde_json::Value = fs::read(root.join(paths::BOOTSTRAP_FILE))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        let field = |name: &str| boot.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        let line = |path: &str| root.line_of(path).map(|line| line.trim().to_owned());
        let site = field("site").or_else(|| {
            let line = line("/etc/gpuaas/site.conf")?;
            line.strip_prefix("GPUAAS_SITE=").map(str::to_owned)
        });
        // The file may have the domain as well.
        let hostname =
            || line("/etc/hostname").and_then(|name| Some(name.split('.').next()?.to_owned()));
        Self {
            root: root.path().to_owned(),
            bundles: root.join(paths::INSTALLED_BUNDLES),
            // As it was named at first boot: a path that ends in no slash.
            sysfs: Some(root.join("/sys").components().collect()),
            site: site.unwrap_or_default(),
            hostname: field("hostname").or_else(hostname).unwrap_or_default(),
            run_id: field("run_id").unwrap_or_default(),
            use_stored_inputs: true,
            ..Self::default()
        }
    }

    /// The context of a bundle that runs on `host` once more. Its phases find the same kernel as at first
    /// boot: the host's own, or the one that the host's emulator plays.
    pub(crate) fn of_rerun(host: &Host, root: &HostRoot) -> Self {
        let mut context = Self::from_host(root);
        let emulator = match host {
            Host::Emulated(_, emulator) => Some(emulator.clone()),
            Host::Root(_) | Host::Fixed(_) => emulator_from_env(&std::env::vars().collect()),
        };
        let named = emulator.map(|path| (EMULATOR_VARIABLE.to_owned(), path.display().to_string()));
        context.environment.extend(named);
        context
    }

    fn host_root(&self) -> HostRoot {
        let root = HostRoot::new(&self.root);
        match &self.sysfs {
            Some(sysfs) => root.with_sysfs(sysfs),
            None => root,
        }
    }
}

/// Runs the bundle in `folder`, and what it requires.
///
/// # Errors
/// What keeps it from being run at all. A phase that failed is in the report.
pub async fn run(folder: &Path, context: &BundleContext) -> Result<BundleReport, BundleError> {
    let root = context.host_root();
    let state = root.join(paths::BUNDLE_STATE);
    fs::create_dir_all(&state).map_err(|source| BundleError::Io { path: state.clone(), source })?;
    let path = state.join("launcher.lock");
    let failed = |source| BundleError::Io { path: path.clone(), source };
    let lock = File::create(&path).map_err(failed)?;
    if lock.try_lock().is_err() {
        return Err(BundleError::Busy);
    }
    Launcher::new(context, root, state).run_bundle(folder, &context.values).await
}

struct Launcher<'a> {
    context: &'a BundleContext,
    root: HostRoot,
    /// Folder of the markers.
    state: PathBuf,
    /// Bundles that led to the one at hand, each required by the one before.
    required_by: Vec<String>,
    /// Reports of the bundles that the one at hand requires.
    required_reports: Vec<BundleReport>,
    /// Values to redact.
    secrets: Vec<String>,
}

impl<'a> Launcher<'a> {
    /// Whether the run is to restore what fails, rather than to bring the host to a state.
    fn is_repair(&self) -> bool {
        !self.context.repairs.is_empty()
    }

    const fn new(context: &'a BundleContext, root: HostRoot, state: PathBuf) -> Self {
        Self {
            context,
            root,
            state,
            required_by: Vec::new(),
            required_reports: Vec::new(),
            secrets: Vec::new(),
        }
    }

    async fn run_bundle(
        &mut self,
        folder: &Path,
        set: &Inputs,
    ) -> Result<BundleReport, BundleError> {
        let manifest = read_manifest(folder)?;
        let values = self.resolve_values(&manifest, set)?;
        self.required_by.push(manifest.reference());
        if self.required_by.len() > MAX_DEPTH {
            return Err(BundleError::Circle(self.required_by.join(" -> ")));
        }
        for requirement in &manifest.requires {
            let given = manifest
                .values_for(requirement, &values)
                .map_err(|source| BundleError::Input { bundle: manifest.reference(), source })?;
            let ended_well = self.ensure_required(&manifest, requirement, &given).await?;
            if !ended_well && !self.is_repair() {
                self.required_by.pop();
                let text = format!("{} failed", requirement.bundle);
                return Ok(self.report(
                    &manifest,
                    vec![PhaseReport::failed("requires", text)],
                    None,
                ));
            }
        }
        self.required_by.pop();
        let digest = marker::digest(folder, &manifest);
        let phases = self.run_phases(folder, &manifest, &values).await?;
        let ended_well = phases.iter().all(|phase| phase.outcome != PhaseOutcome::Failed);
        if !ended_well {
            return Ok(self.report(&manifest, phases, None));
        }
        let line = marker::line(&manifest, &self.context.run_id, digest);
        self.write_if_changed(&format!("{}.done", manifest.name), line.as_bytes())?;
        let findings = self.check_effects(&manifest, &values).await?;
        let report = self.report(&manifest, phases, Some(findings));
        let text = serde_json::to_vec_pretty(&report.validation()).unwrap_or_default();
        self.write_if_changed(&format!("{}.validation", manifest.name), &text)?;
        Ok(report)
    }

    /// Runs a required bundle unless it is done already; whether it ended well.
    async fn ensure_required(
        &mut self,
        by: &Manifest,
        requirement: &Requirement,
        given: &Inputs,
    ) -> Result<bool, BundleError> {
        let folder =
            self.find_required(&requirement.bundle).ok_or_else(|| BundleError::NotThere {
                bundle: by.reference(),
                required: requirement.bundle.clone(),
                folder: self.context.bundles.clone(),
            })?;
        let manifest = read_manifest(&folder)?;
        let values = self.resolve_values(&manifest, given)?;
        let there = self.is_done(&folder, &manifest, &values) && {
            let findings = self.check_effects(&manifest, &values).await?;
            findings.iter().all(|finding| finding.passed != Some(false))
        };
        if there {
            let done =
                PhaseReport::skipped("all", "already done with these values; effects in place");
            self.send_phase_event(&manifest, &done);
            let report = self.report(&manifest, vec![done], None);
            self.required_reports.push(report);
            return Ok(true);
        }
        let report = Box::pin(self.run_bundle(&folder, given)).await?;
        let ended_well = report.ended_well();
        self.required_reports.push(report);
        Ok(ended_well)
    }

    /// The folder of a bundle that is required as `name@version`.
    fn find_required(&self, reference: &str) -> Option<PathBuf> {
        let (name, version) = reference.split_once('@')?;
        [name.to_owned(), format!("{name}-{version}")]
            .into_iter()
            .map(|folder| self.context.bundles.join(folder))
            .find(|folder| {
                read_manifest(folder).is_ok_and(|manifest| manifest.reference() == reference)
            })
    }

    /// The values of a bundle's inputs, a later source winning: defaults, stored values where they
    /// count, `given`, the environment.
    fn resolve_values(
        &mut self,
        manifest: &Manifest,
        given: &Inputs,
    ) -> Result<Inputs, BundleError> {
        let mut set = Inputs::new();
        if self.context.use_stored_inputs {
            set = stored_inputs::effective_values(&self.root, &self.context.bundles, manifest);
        }
        set.extend(given.clone());
        for (name, input) in &manifest.inputs {
            if let Some(value) = self.context.environment.get(&input.environment) {
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

    async fn run_phases(
        &self,
        folder: &Path,
        manifest: &Manifest,
        values: &Inputs,
    ) -> Result<Vec<PhaseReport>, BundleError> {
        self.write_if_changed("host.sh", SHELL_LIBRARY.as_bytes())?;
        if !self.is_done(folder, manifest, values) {
            // Its marker is of another version, of other bytes or of other values.
            self.remove_marker(manifest)?;
        }
        stored_inputs::store(&self.state, manifest, values)
            .map_err(|source| BundleError::Io { path: self.state.clone(), source })?;
        let environment = self.environment(folder, manifest, values);
        let mut reports = Vec::new();
        for phase in &manifest.phases {
            let forced =
                self.context.repairs.contains(&format!("{}/{}", manifest.name, phase.name));
            let reason = self.skip_reason(phase, manifest, values, forced);
            let mut environment = Cow::Borrowed(&environment);
            if forced {
                environment.to_mut().insert(REPAIR_VARIABLE.to_owned(), "1".to_owned());
            }
            let report = match reason {
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
            self.send_phase_event(manifest, &report);
            reports.push(report);
            if failed && !self.is_repair() {
                break;
            }
        }
        Ok(reports)
    }

    /// A receiver that is gone is no error: the report has the phases again.
    fn send_phase_event(&self, manifest: &Manifest, report: &PhaseReport) {
        if let Some(events) = &self.context.phase_events {
            events.send(report.to_event(manifest.reference())).ok();
        }
    }

    /// Why a phase need not run.
    fn skip_reason(
        &self,
        phase: &ManifestPhase,
        manifest: &Manifest,
        values: &Inputs,
        forced: bool,
    ) -> Option<String> {
        if !manifest.applies(phase.only_when.as_deref(), values) {
            return Some(format!("{} is 0", phase.only_when.as_deref().unwrap_or_default()));
        }
        if forced || !phase.installs_packages {
            return None;
        }
        let is_installed = |package: &str| self.root.package_installed(package) == Some(true);
        let packages = &manifest.packages;
        let has_wanted = packages.required.iter().all(|package| is_installed(package))
            && packages.switched(values, true).all(is_installed);
        // What this bundle installed while its switch was on.
        let has_unwanted = packages
            .switched(values, false)
            .any(|package| is_installed(package) && self.has_brought(manifest, package));
        let is_curated = self.root.image_build().is_some_and(|record| !record.malformed);
        (is_curated && has_wanted && !has_unwanted).then(|| "the image has all packages".to_owned())
    }

    /// Whether a phase of the bundle installed the package by its switch (`host.sh`).
    fn has_brought(&self, manifest: &Manifest, package: &str) -> bool {
        let path = format!("/var/lib/gpuaas/applied/brought-{}", manifest.name);
        self.root.has_line(&path, package) == Some(true)
    }

    fn environment(
        &self,
        folder: &Path,
        manifest: &Manifest,
        values: &Inputs,
    ) -> BTreeMap<String, String> {
        let root = self.context.root.to_string_lossy();
        let root = root.trim_end_matches('/');
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let sysfs = self.context.sysfs.as_deref().map_or_else(|| format!("{root}/sys"), text);
        let switched = |on| manifest.packages.switched(values, on).collect::<Vec<_>>().join(" ");
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
            ("GPUAAS_SITE", self.context.site.clone()),
            ("GPUAAS_HOSTNAME", self.context.hostname.clone()),
            ("GPUAAS_RUN_ID", self.context.run_id.clone()),
            ("GPUAAS_PACKAGES", manifest.packages.required.join(" ")),
            ("GPUAAS_OPTIONAL_PACKAGES", manifest.packages.optional.join(" ")),
            ("GPUAAS_SWITCHED_PACKAGES", switched(true)),
            ("GPUAAS_UNWANTED_PACKAGES", switched(false)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if let Some(emulator) = self.context.environment.get(EMULATOR_VARIABLE) {
            environment.insert(EMULATOR_VARIABLE.to_owned(), emulator.clone());
        }
        for (name, value) in values {
            if let Some(input) = manifest.inputs.get(name) {
                environment.insert(input.environment.clone(), value.clone());
            }
        }
        environment
    }

    async fn check_effects(
        &self,
        manifest: &Manifest,
        values: &Inputs,
    ) -> Result<Vec<Finding>, BundleError> {
        let checks = manifest.checks(values).map_err(|fault| BundleError::NoBundle {
            path: PathBuf::from(manifest.reference()),
            reason: fault.to_string(),
        })?;
        let host = Host::at(self.root.clone(), emulator_from_env(&self.context.environment));
        let facts = host.facts().await;
        let mut findings = checks::evaluate(&host, &facts, &checks).await;
        for finding in &mut findings {
            finding.name = redact_values(&finding.name, &self.secrets);
            finding.seen = redact_values(&finding.seen, &self.secrets);
        }
        Ok(findings)
    }

    fn remove_marker(&self, manifest: &Manifest) -> Result<(), BundleError> {
        let path = self.state.join(format!("{}.done", manifest.name));
        atomic_file::remove_if_there(&path).map_err(|source| BundleError::Io { path, source })
    }

    /// Whether the bundle in `folder`, as it lies there, ran to its end with these values.
    fn is_done(&self, folder: &Path, manifest: &Manifest, values: &Inputs) -> bool {
        let marker = fs::read_to_string(self.state.join(format!("{}.done", manifest.name)));
        marker.is_ok_and(|line| marker::matches(&line, manifest, folder))
            && stored_inputs::equal(&self.state, manifest, values)
    }

    fn report(
        &mut self,
        manifest: &Manifest,
        phases: Vec<PhaseReport>,
        findings: Option<Vec<Finding>>,
    ) -> BundleReport {
        BundleReport {
            bundle: manifest.reference(),
            requires: std::mem::take(&mut self.required_reports),
            phases,
            reboot_needed: Some(reboot_reasons::reasons(&self.root))
                .filter(|reasons| !reasons.is_empty())
                .map(|reasons| redact_values(&reboot_reasons::joined(&reasons), &self.secrets)),
            looked: findings.is_some(),
            checks: findings.unwrap_or_default(),
        }
    }

    /// Writes a file of the launcher's own where its content differs, so that a second run changes
    /// nothing.
    fn write_if_changed(&self, name: &str, bytes: &[u8]) -> Result<(), BundleError> {
        let path = self.state.join(name);
        if fs::read(&path).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        atomic_file::replace(&path, bytes).map_err(|source| BundleError::Io { path, source })
    }
}

#[cfg(test)]
mod tests;
