//! The gates of a host: the checks of the bundles that it was given and that block each gate.
//!
//! An image may embed bundles for several roles. A host was given those that its first boot was
//! delivered, and those that the launcher ran on it since; nobody asks it for the effects of another.
//! A folder of a bundle that it was given, but without a manifest that can be read, shuts every gate;
//! any other folder is named by [`foreign_folders`], and counts for nothing.
//!
//! A gate is evaluated from these bundles and the values that they ran with, so it can be
//! evaluated at any time, by hand too. A failing check of a bundle that another one requires is
//! classified as the host's baseline.
//!
//! The gate `active` checks the agent's unit first, on every host; bundles may add checks, as that
//! of bare metal does for its GPUs.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use gpuaas_bundle::{EstablishedCheck, Manifest};
use gpuaas_types::agent::{Finding, Gate, GateCheck, GateClass, GateReport, HostCheck};
use host_facts::HostRoot;
use serde::Deserialize;

use super::error::BundleError;
use super::manifest_file::read_manifest;
use super::stored_inputs;
use crate::host::Host;
use crate::redact::redact_values;
use crate::{checks, paths};

/// systemd unit of the agent.
const AGENT_UNIT: &str = "gpuaas-node-agent.service";

/// A check that an installed bundle has for a gate.
#[derive(Debug, Clone)]
pub(crate) struct BundleCheck {
    /// The check.
    pub(crate) check: HostCheck,
    /// Whether a failure is one of the host's baseline.
    pub(crate) baseline: bool,
    /// `name@version` of the bundle.
    pub(crate) bundle: String,
    /// Folder of the bundle.
    pub(crate) folder: PathBuf,
    /// The phase that establishes the effect, `BUNDLE/PHASE` with the bundle's name; none: the bundle as
    /// a whole.
    pub(crate) phase: Option<String>,
    /// What a person does if a repair does not help; may be empty.
    pub(crate) otherwise: String,
}

/// A check, with the class and the reason of its failure.
struct ClassifiedCheck {
    check: HostCheck,
    class: GateClass,
    reason: String,
}

impl ClassifiedCheck {
    fn agent_unit() -> Self {
        let check = HostCheck::UnitActive { unit: AGENT_UNIT.to_owned() };
        let reason = "agent fault: the agent's unit is not active".to_owned();
        Self { check, class: GateClass::AgentFault, reason }
    }
}

impl From<BundleCheck> for ClassifiedCheck {
    fn from(BundleCheck { check, baseline, bundle, otherwise, .. }: BundleCheck) -> Self {
        let (class, what) = if baseline {
            (GateClass::HostBaselineIncomplete, "host baseline incomplete")
        } else {
            (GateClass::HostSetupIncomplete, "host setup incomplete")
        };
        let mut reason = format!("{what}: {bundle} is not in effect");
        if !otherwise.is_empty() {
            reason = format!("{reason}; if repair-drift does not restore it, {otherwise}");
        }
        Self { check, class, reason }
    }
}

/// Evaluates a gate on `host`.
///
/// # Errors
/// An installed bundle cannot be read. That there is none is a verdict, not an error.
pub async fn evaluate(gate: Gate, host: &Host) -> Result<GateReport, BundleError> {
    let Some(root) = host.root() else {
        return Ok(fixed_report(gate, &host.facts().await));
    };
    let agent = (gate == Gate::Active).then(ClassifiedCheck::agent_unit);
    let bundles = bundle_checks(gate, root)?.into_iter().map(ClassifiedCheck::from);
    let classified: Vec<ClassifiedCheck> = agent.into_iter().chain(bundles).collect();
    let facts = host.facts().await;
    let list: Vec<HostCheck> = classified.iter().map(|one| one.check.clone()).collect();
    let findings = checks::evaluate(host, &facts, &list).await;
    let mut report = gate_report(gate, classified.into_iter().zip(findings));
    for name in broken_bundles(root)? {
        report.passed = false;
        report.class = report.class.or(Some(GateClass::HostSetupIncomplete));
        report.checks.push(broken_manifest(gate, &name));
    }
    let secrets = stored_inputs::secret_values(root);
    for check in &mut report.checks {
        for text in [&mut check.name, &mut check.expected, &mut check.seen] {
            *text = redact_values(text, &secrets);
        }
    }
    Ok(report)
}

/// The checks that the installed bundles have for a gate: each once, the baseline's first.
///
/// # Errors
/// An installed bundle cannot be read.
pub(crate) fn bundle_checks(gate: Gate, root: &HostRoot) -> Result<Vec<BundleCheck>, BundleError> {
    let installed = given_bundles(root)?.readable;
    let required: BTreeSet<&str> = installed
        .iter()
        .flat_map(|(_, manifest)| &manifest.requires)
        .filter_map(|requirement| requirement.bundle.split('@').next())
        .collect();
    let mut all: Vec<BundleCheck> = Vec::new();
    for (folder, manifest) in &installed {
        let wrong = |reason| BundleError::NoBundle { path: folder.clone(), reason };
        let values = stored_inputs::values_for_checks(root, manifest)
            .map_err(|source| BundleError::Input { bundle: manifest.reference(), source })?;
        let own = required.contains(manifest.name.as_str());
        let checks = manifest
            .established_checks(gate, &values, own)
            .map_err(|fault| wrong(fault.to_string()))?;
        for EstablishedCheck { check, bundle: by, phase, otherwise } in checks {
            let marker = matches!(&check, HostCheck::BundleDone { bundle } if required.contains(bundle.as_str()));
            // The bundle whose phase it is runs again; of one that is not there, the one that has the check.
            let owner = installed.iter().find(|(_, other)| other.name == by);
            let (folder, bundle) = match owner {
                Some((folder, other)) => (folder.clone(), other.reference()),
                None => (folder.clone(), manifest.reference()),
            };
            let phase = phase.map(|phase| format!("{by}/{phase}"));
            let baseline = own || marker;
            all.push(BundleCheck { check, baseline, bundle, folder, phase, otherwise });
        }
    }
    // Baseline first, so that a check that two bundles have is classified as the baseline's.
    all.sort_by_key(|one| !one.baseline);
    let mut once: Vec<BundleCheck> = Vec::new();
    for one in all {
        if !once.iter().any(|other| other.check == one.check) {
            once.push(one);
        }
    }
    Ok(once)
}

/// Reports of the gates that an installed bundle has a check for. One that cannot be evaluated is
/// logged and left out.
pub async fn evaluate_all(host: &Host) -> Vec<GateReport> {
    if let Host::Fixed(facts) = host {
        return fixed_reports(facts);
    }
    let mut gates = Vec::new();
    for gate in Gate::ALL {
        // Without bundles only the agent's unit would be checked, and the agent runs this.
        let without_checks = |root| {
            bundle_checks(gate, root).is_ok_and(|checks| checks.is_empty())
                && broken_bundles(root).is_ok_and(|names| names.is_empty())
        };
        if host.root().is_some_and(without_checks) {
            continue;
        }
        match evaluate(gate, host).await {
            Ok(report) if report.checks.is_empty() => {}
            Ok(report) => gates.push(report),
            Err(error) => {
                tracing::warn!(%error, gate = gate.as_str(), "cannot evaluate a gate")
            }
        }
    }
    gates
}

/// The reports that a simulated host has among its facts.
fn fixed_reports(facts: &serde_json::Value) -> Vec<GateReport> {
    let reports = facts.get("gates").and_then(|gates| Deserialize::deserialize(gates).ok());
    reports.unwrap_or_default()
}

/// The one of a gate.
fn fixed_report(gate: Gate, facts: &serde_json::Value) -> GateReport {
    fixed_reports(facts)
        .into_iter()
        .find(|report| report.gate == gate)
        .unwrap_or_else(|| gate_report(gate, std::iter::empty()))
}

fn gate_report(
    gate: Gate,
    findings: impl Iterator<Item = (ClassifiedCheck, Finding)>,
) -> GateReport {
    let (mut checks, mut class) = (Vec::new(), None);
    for (classified, finding) in findings {
        let passed = finding.passed == Some(true);
        if !passed {
            // The first failure decides: the agent and the baseline explain what fails above them.
            class = class.or(Some(classified.class));
        }
        checks.push(GateCheck {
            name: finding.name,
            passed,
            expected: classified.check.expected(),
            seen: finding.seen,
            reason: if passed { String::new() } else { classified.reason },
            blocks: if passed { Vec::new() } else { vec![gate] },
        });
    }
    GateReport { gate, passed: !checks.is_empty() && class.is_none(), class, checks }
}

/// The installed bundles that a host was given.
struct GivenBundles {
    /// Folders and manifests, by name.
    readable: Vec<(PathBuf, Manifest)>,
    /// Names of those whose manifest cannot be read.
    broken: Vec<String>,
}

/// Names of the bundles that the host was given, and whose manifest cannot be read.
///
/// # Errors
/// The folder of the installed bundles cannot be read.
pub(crate) fn broken_bundles(root: &HostRoot) -> Result<Vec<String>, BundleError> {
    Ok(given_bundles(root)?.broken)
}

/// What shuts every gate: nobody knows what to look at.
fn broken_manifest(gate: Gate, name: &str) -> GateCheck {
    GateCheck {
        name: format!("manifest of {name}"),
        passed: false,
        expected: "a readable manifest".to_owned(),
        seen: format!("{}/{name} has no valid manifest", paths::INSTALLED_BUNDLES),
        reason: format!("host setup incomplete: the checks of {name} are unknown"),
        blocks: vec![gate],
    }
}

/// # Errors
/// The folder of the installed bundles cannot be read.
fn given_bundles(root: &HostRoot) -> Result<GivenBundles, BundleError> {
    let given = stored_inputs::given_names(root);
    let (mut readable, mut broken) = (Vec::new(), Vec::new());
    for folder in folders(root)? {
        match read_manifest(&folder) {
            Ok(manifest) if given.contains(&manifest.name) => readable.push((folder, manifest)),
            Ok(_) => {}
            Err(_) => {
                let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                if given.contains(name) {
                    broken.push(name.to_owned());
                }
            }
        }
    }
    Ok(GivenBundles { readable, broken })
}

/// Folders among the installed bundles that hold no bundle, and belong to none that the host was
/// given: scripts that an image brought, or a download that broke off.
pub(crate) fn foreign_folders(root: &HostRoot) -> Vec<String> {
    let given = stored_inputs::given_names(root);
    let folders = folders(root).unwrap_or_default().into_iter();
    let unreadable = folders.filter(|folder| read_manifest(folder).is_err());
    let names = unreadable.filter_map(|folder| Some(folder.file_name()?.to_str()?.to_owned()));
    names.filter(|name| !given.contains(name)).collect()
}

/// The folders of the installed bundles, by name.
fn folders(root: &HostRoot) -> Result<Vec<PathBuf>, BundleError> {
    let path = root.join(paths::INSTALLED_BUNDLES);
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(BundleError::Io { path, source }),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    folders.sort();
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// What the launcher leaves before a bundle's first phase.
    fn record_run(root: &Path, name: &str) {
        let state = root.join(paths::BUNDLE_STATE.trim_start_matches('/'));
        fs::create_dir_all(&state).unwrap();
        fs::write(state.join(format!("{name}.inputs")), "{}").unwrap();
    }

    fn install(root: &Path, manifest: &serde_json::Value) {
        let folder = root.join(paths::INSTALLED_BUNDLES.trim_start_matches('/'));
        let folder = folder.join(manifest["name"].as_str().unwrap());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
        record_run(root, manifest["name"].as_str().unwrap());
    }

    /// The host of docs/hosts.md#incomplete-slice-host: agent, Netdata, VFIO and Open vSwitch, and
    /// no fabric.
    #[tokio::test]
    async fn a_host_without_its_fabric_is_not_ready_and_it_is_the_baseline() {
        let dir = tempfile::tempdir().unwrap();
        let phases = serde_json::json!([{"name": "p", "run": "p.sh", "timeout_seconds": 1}]);
        install(
            dir.path(),
            &serde_json::json!({"name": "h200-ib", "version": "1.0.0", "kind": "site_bootstrap",
                "about": "baseline", "phases": phases, "expects": [
                    {"gates": ["slice_ready"], "check": "file_exists", "path": "/etc/netplan/60-ipoib.yaml"},
                    {"gates": ["telemetry"], "check": "listens", "address": "127.0.0.1", "port": 19998}]}),
        );
        install(
            dir.path(),
            &serde_json::json!({"name": "h200-slice-vm", "version": "1.0.0", "kind": "site_bootstrap",
                "about": "slices", "phases": phases, "requires": [{"bundle": "h200-ib@1.0.0"}],
                "inputs": {"file": {"type": "path", "about": "a file", "default": "/etc/x", "environment": "F"}},
                "expects": [{"gates": ["active", "slice_ready"], "check": "file_exists", "path": "{file}"}]}),
        );
        let host = Host::Root(HostRoot::new(dir.path()));
        fs::create_dir_all(dir.path().join("var/lib/gpuaas/site-bootstrap")).unwrap();
        fs::create_dir_all(dir.path().join("etc/netplan")).unwrap();
        fs::write(dir.path().join("etc/done"), "").unwrap();
        let inputs = dir.path().join("var/lib/gpuaas/site-bootstrap/h200-slice-vm.inputs");
        fs::write(inputs, r#"{"file":"/etc/done","gone":"1"}"#).unwrap();
        let active = evaluate(Gate::Active, &host).await.unwrap();
        assert!(!active.passed && active.class == Some(GateClass::AgentFault), "{active:?}");
        let unit = "sys/fs/cgroup/system.slice/gpuaas-node-agent.service";
        fs::create_dir_all(dir.path().join(unit)).unwrap();
        assert!(evaluate(Gate::Active, &host).await.unwrap().passed);
        let report = evaluate(Gate::SliceReady, &host).await.unwrap();
        assert!(!report.passed);
        let text: Vec<String> = report
            .checks
            .iter()
            .map(|c| format!("{} {} [{}]", c.name, c.passed, c.reason))
            .collect();
        assert_eq!(
            text,
            [
                "file /etc/netplan/60-ipoib.yaml false \
                 [host baseline incomplete: h200-ib@1.0.0 is not in effect]",
                "file /etc/done true []",
            ]
        );
        fs::write(dir.path().join("etc/netplan/60-ipoib.yaml"), "").unwrap();
        assert!(evaluate(Gate::SliceReady, &host).await.unwrap().passed);
        assert!(!evaluate(Gate::Telemetry, &host).await.unwrap().passed);
    }

    #[tokio::test]
    async fn a_check_for_slices_counts_only_on_a_host_with_slices() {
        let dir = tempfile::tempdir().unwrap();
        let phases = serde_json::json!([{"name": "p", "run": "p.sh", "timeout_seconds": 1}]);
        let root = HostRoot::new(dir.path());
        install(
            dir.path(),
            &serde_json::json!({"name": "h200-ib", "version": "1.0.0", "kind": "site_bootstrap",
                "about": "baseline", "phases": phases, "expects": [{"gates": ["slice_ready"],
                    "when_required": true, "check": "file_exists", "path": "/etc/x"}]}),
        );
        assert!(bundle_checks(Gate::SliceReady, &root).unwrap().is_empty());
        install(
            dir.path(),
            &serde_json::json!({"name": "h200-slice-vm", "version": "1.0.0",
                "kind": "site_bootstrap", "about": "slices", "phases": phases,
                "requires": [{"bundle": "h200-ib@1.0.0"}]}),
        );
        let checks = bundle_checks(Gate::SliceReady, &root).unwrap();
        assert!(checks.len() == 1 && checks[0].baseline, "{checks:?}");
    }

    #[tokio::test]
    async fn bundles_that_the_host_was_not_given_are_not_asked_and_silence_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        let phases = serde_json::json!([{"name": "p", "run": "p.sh", "timeout_seconds": 1}]);
        let bundle = |name: &str| {
            serde_json::json!({"name": name, "version": "1.0.0", "kind": "site_bootstrap",
                "about": "x", "phases": phases, "expects": [{"gates": ["active"],
                    "check": "file_exists", "path": format!("/etc/{name}")}]})
        };
        install(dir.path(), &bundle("metal"));
        install(dir.path(), &bundle("slices"));
        let state = root.join(paths::BUNDLE_STATE);
        fs::remove_file(state.join("slices.inputs")).unwrap();
        let installed = root.join(paths::INSTALLED_BUNDLES);
        fs::create_dir(installed.join("raw-scripts")).unwrap();
        let names = |root: &HostRoot| {
            let checks = bundle_checks(Gate::Active, root).unwrap();
            checks.iter().map(|one| one.bundle.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&root), ["metal@1.0.0"]);
        assert_eq!(foreign_folders(&root), ["raw-scripts"]);
        // What the first boot was delivered counts although it never began.
        fs::create_dir_all(root.join("/etc/gpuaas")).unwrap();
        let boot = r#"{"bundle": {"bundles": [{"artifact": {"name": "slices"}}]}}"#;
        fs::write(root.join(paths::BOOTSTRAP_FILE), boot).unwrap();
        assert_eq!(names(&root), ["metal@1.0.0", "slices@1.0.0"]);
        // A half-written one of these shuts the gate, and the other is looked at all the same.
        fs::write(installed.join("slices/manifest.json"), "{").unwrap();
        let report = evaluate(Gate::Active, &Host::Root(root.clone())).await.unwrap();
        let red: Vec<&str> = report.checks.iter().map(|check| check.name.as_str()).collect();
        let expected = ["unit gpuaas-node-agent.service", "file /etc/metal", "manifest of slices"];
        assert_eq!(red, expected);
        assert!(report.checks.iter().all(|check| !check.passed), "{report:?}");
        let telemetry = evaluate_all(&Host::Root(root.clone())).await;
        assert_eq!(telemetry.len(), Gate::ALL.len(), "none of them is left out: {telemetry:?}");
        assert_eq!(foreign_folders(&root), ["raw-scripts"]);
    }

    #[tokio::test]
    async fn a_gate_without_checks_is_shut() {
        let dir = tempfile::tempdir().unwrap();
        let report =
            evaluate(Gate::SliceReady, &Host::Root(HostRoot::new(dir.path()))).await.unwrap();
        assert!(!report.passed && report.checks.is_empty());
    }
}
