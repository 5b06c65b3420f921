//! A gate, as the host sees it: the checks of the bundles on it that block the gate.
//!
//! A gate is evaluated from what was installed and with what it was run with, so the same question
//! can be asked at any time, by hand too. A check of a bundle that another one requires is a
//! matter of the host's baseline, whoever notices it.
//!
//! `active` asks for the agent first, on every host; bundles may add to it, as that of bare metal
//! does with its GPUs.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use gpuaas_bundle::Manifest;
use gpuaas_types::agent::{Finding, Gate, GateCheck, GateClass, GateReport, HostCheck};
use host_facts::HostRoot;
use serde::Deserialize;

use super::{BundleError, kept, read_manifest};
use crate::redact::without;
use crate::tasks::{Host, validate};

/// Where bundles are installed on a host (docs/hosts.md#bundles-on-a-host).
pub const INSTALLED: &str = "/usr/local/share/gpuaas/site-bootstrap";

/// The agent's own unit.
const AGENT_UNIT: &str = "gpuaas-node-agent.service";

/// A check that a bundle on the host has for a gate.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// What has to be so.
    pub(crate) check: HostCheck,
    /// Whether it is a matter of the host's baseline.
    pub(crate) baseline: bool,
    /// Whose it is, `name@version`.
    pub(crate) bundle: String,
    /// Where that is installed.
    pub(crate) folder: PathBuf,
}

/// A check, and whose matter it is.
struct Wanted {
    check: HostCheck,
    class: GateClass,
    reason: String,
}

impl Wanted {
    fn agent() -> Self {
        let check = HostCheck::UnitActive { unit: AGENT_UNIT.to_owned() };
        let reason = "agent fault: the agent's unit is not active".to_owned();
        Self { check, class: GateClass::AgentFault, reason }
    }
}

impl From<Asked> for Wanted {
    fn from(Asked { check, baseline, bundle, .. }: Asked) -> Self {
        let (class, what) = if baseline {
            (GateClass::HostBaselineIncomplete, "host baseline incomplete")
        } else {
            (GateClass::HostSetupIncomplete, "host setup incomplete")
        };
        Self { check, class, reason: format!("{what}: {bundle} is not in effect") }
    }
}

/// Evaluates a gate on `host`.
///
/// # Errors
/// An installed bundle cannot be read. That there is none is a verdict, not an error.
pub async fn evaluate(gate: Gate, host: &Host) -> Result<GateReport, BundleError> {
    let Some(root) = host.root() else {
        return Ok(fixed(gate, &host.facts().await));
    };
    let own = (gate == Gate::Active).then(Wanted::agent);
    let wanted: Vec<Wanted> =
        own.into_iter().chain(asked(gate, root)?.into_iter().map(Wanted::from)).collect();
    let facts = host.facts().await;
    let list: Vec<HostCheck> = wanted.iter().map(|one| one.check.clone()).collect();
    let findings = validate(host, &facts, &list).await;
    let mut report = verdict(gate, wanted.into_iter().zip(findings));
    let secrets = kept::secrets(root);
    for check in &mut report.checks {
        for text in [&mut check.name, &mut check.expected, &mut check.seen] {
            *text = without(text, &secrets);
        }
    }
    Ok(report)
}

/// What the bundles on a host ask for a gate: each check once, the baseline's first.
///
/// # Errors
/// An installed bundle cannot be read.
pub(crate) fn asked(gate: Gate, root: &HostRoot) -> Result<Vec<Asked>, BundleError> {
    let installed = installed(root)?;
    let required: BTreeSet<&str> = installed
        .iter()
        .flat_map(|(_, manifest)| &manifest.requires)
        .filter_map(|requirement| requirement.bundle.split('@').next())
        .collect();
    let mut wanted: Vec<Asked> = Vec::new();
    for (folder, manifest) in &installed {
        let wrong = |reason| BundleError::NoBundle { path: folder.clone(), reason };
        let values = kept::looked_with(root, manifest)
            .map_err(|source| BundleError::Input { bundle: manifest.reference(), source })?;
        let own = required.contains(manifest.name.as_str());
        let checks = manifest.gate(gate, &values, own).map_err(|fault| wrong(fault.to_string()))?;
        for check in checks {
            let marker = matches!(&check, HostCheck::BundleDone { bundle } if required.contains(bundle.as_str()));
            let (bundle, folder) = (manifest.reference(), folder.clone());
            wanted.push(Asked { check, baseline: own || marker, bundle, folder });
        }
    }
    // The baseline speaks first; what another bundle asks a second time is its matter still.
    wanted.sort_by_key(|one| !one.baseline);
    let mut once: Vec<Asked> = Vec::new();
    for one in wanted {
        if !once.iter().any(|other| other.check == one.check) {
            once.push(one);
        }
    }
    Ok(once)
}

/// The gates that a bundle on the host has a check for. What cannot be evaluated is logged.
pub async fn all(host: &Host) -> Vec<GateReport> {
    let mut gates = Vec::new();
    for gate in Gate::ALL {
        // That the agent lives is said by whoever asks it.
        if host.root().is_some_and(|root| asked(gate, root).is_ok_and(|asked| asked.is_empty())) {
            continue;
        }
        match evaluate(gate, host).await {
            Ok(report) if report.checks.is_empty() => {}
            Ok(report) => gates.push(report),
            Err(error) => tracing::warn!(%error, gate = gate.as_str(), "a gate"),
        }
    }
    gates
}

/// What a stand-in was told to say.
fn fixed(gate: Gate, facts: &serde_json::Value) -> GateReport {
    let told: Vec<GateReport> =
        facts.get("gates").and_then(|told| Deserialize::deserialize(told).ok()).unwrap_or_default();
    told.into_iter()
        .find(|report| report.gate == gate)
        .unwrap_or_else(|| verdict(gate, std::iter::empty()))
}

fn verdict(gate: Gate, findings: impl Iterator<Item = (Wanted, Finding)>) -> GateReport {
    let (mut checks, mut class) = (Vec::new(), None);
    for (wanted, finding) in findings {
        let passed = finding.passed == Some(true);
        if !passed {
            // What is missing below explains what is missing above.
            class = class.or(Some(wanted.class));
        }
        checks.push(GateCheck {
            name: finding.name,
            passed,
            expected: wanted.check.expected(),
            seen: finding.seen,
            reason: if passed { String::new() } else { wanted.reason },
            blocks: if passed { Vec::new() } else { vec![gate] },
        });
    }
    GateReport { gate, passed: !checks.is_empty() && class.is_none(), class, checks }
}

/// The bundles on a host, by name.
fn installed(root: &HostRoot) -> Result<Vec<(PathBuf, Manifest)>, BundleError> {
    let folder = root.join(INSTALLED);
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders.into_iter().map(|path| Ok((path.clone(), read_manifest(&path)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn install(root: &Path, manifest: &serde_json::Value) {
        let folder = root.join(INSTALLED.trim_start_matches('/'));
        let folder = folder.join(manifest["name"].as_str().unwrap());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
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
    async fn what_slices_need_is_asked_only_where_there_are_some() {
        let dir = tempfile::tempdir().unwrap();
        let phases = serde_json::json!([{"name": "p", "run": "p.sh", "timeout_seconds": 1}]);
        let root = HostRoot::new(dir.path());
        install(
            dir.path(),
            &serde_json::json!({"name": "h200-ib", "version": "1.0.0", "kind": "site_bootstrap",
                "about": "baseline", "phases": phases, "expects": [{"gates": ["slice_ready"],
                    "when_required": true, "check": "file_exists", "path": "/etc/x"}]}),
        );
        assert!(asked(Gate::SliceReady, &root).unwrap().is_empty());
        install(
            dir.path(),
            &serde_json::json!({"name": "h200-slice-vm", "version": "1.0.0",
                "kind": "site_bootstrap", "about": "slices", "phases": phases,
                "requires": [{"bundle": "h200-ib@1.0.0"}]}),
        );
        let asked = asked(Gate::SliceReady, &root).unwrap();
        assert!(asked.len() == 1 && asked[0].baseline, "{asked:?}");
    }

    #[tokio::test]
    async fn a_gate_that_nobody_looked_at_is_shut() {
        let dir = tempfile::tempdir().unwrap();
        let report =
            evaluate(Gate::SliceReady, &Host::Root(HostRoot::new(dir.path()))).await.unwrap();
        assert!(!report.passed && report.checks.is_empty());
    }
}
