//! A gate, as the host sees it: the checks of the bundles on it that block the gate.
//!
//! A gate is evaluated from what was installed and with what it was run with, so the same question
//! can be asked at any time, by hand too. A check of a bundle that another one requires is a
//! matter of the host's baseline, whoever notices it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use gpuaas_bundle::{Gate, Inputs, Manifest};
use gpuaas_types::agent::HostCheck;
use host_facts::HostRoot;
use serde::{Deserialize, Serialize};

use super::{BundleError, read_manifest};
use crate::checks::MARKERS;
use crate::tasks::{Host, validate};

/// Where bundles are installed on a host (seed 2).
pub const INSTALLED: &str = "/usr/local/share/gpuaas/site-bootstrap";

/// A gate's verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateReport {
    /// The gate.
    pub gate: Gate,
    /// Whether nothing blocks it. A gate without checks is shut: nobody looked.
    pub passed: bool,
    /// Every check.
    pub checks: Vec<GateCheck>,
}

/// A check of a gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateCheck {
    /// Its name.
    pub name: String,
    /// Whether it passes.
    pub passed: bool,
    /// What has to be seen.
    pub expected: String,
    /// What was seen.
    pub seen: String,
    /// What it means when it does not pass; empty when it does.
    pub reason: String,
    /// Gates that it blocks now.
    pub blocks: Vec<Gate>,
}

/// Evaluates a gate on the host below `root`.
///
/// # Errors
/// An installed bundle cannot be read. That there is none is a verdict, not an error.
pub async fn evaluate(gate: Gate, root: &HostRoot) -> Result<GateReport, BundleError> {
    let installed = installed(root)?;
    let required: BTreeSet<&str> = installed
        .iter()
        .flat_map(|(_, manifest)| &manifest.requires)
        .filter_map(|requirement| requirement.bundle.split('@').next())
        .collect();
    let mut wanted: Vec<(HostCheck, String)> = Vec::new();
    for (folder, manifest) in &installed {
        let wrong = |reason| BundleError::NoBundle { path: folder.clone(), reason };
        let values = inputs(root, manifest)
            .map_err(|source| BundleError::Input { bundle: manifest.reference(), source })?;
        let checks = manifest.gate(gate, &values).map_err(|fault| wrong(fault.to_string()))?;
        let baseline = required.contains(manifest.name.as_str());
        let reason = if baseline { "host baseline incomplete" } else { "host setup incomplete" };
        let reason = format!("{reason}: {} is not in effect", manifest.reference());
        wanted.extend(checks.into_iter().map(|check| (check, reason.clone())));
    }
    let host = Host::Root(root.clone());
    let facts = host.facts().await;
    let list: Vec<HostCheck> = wanted.iter().map(|(check, _)| check.clone()).collect();
    let findings = validate(&host, &facts, &list).await;
    let checks: Vec<GateCheck> = wanted
        .into_iter()
        .zip(findings)
        .map(|((check, reason), finding)| {
            let passed = finding.passed == Some(true);
            GateCheck {
                name: finding.name,
                passed,
                expected: check.expected(),
                seen: finding.seen,
                reason: if passed { String::new() } else { reason },
                blocks: if passed { Vec::new() } else { vec![gate] },
            }
        })
        .collect();
    let passed = !checks.is_empty() && checks.iter().all(|check| check.passed);
    Ok(GateReport { gate, passed, checks })
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

/// What a bundle was run with; its defaults where it was not.
fn inputs(root: &HostRoot, manifest: &Manifest) -> Result<Inputs, gpuaas_bundle::InputError> {
    let path = root.join(Path::new(MARKERS).join(format!("{}.inputs", manifest.name)));
    let mut set: Inputs =
        fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    // An older version of the bundle may have had other inputs, and secrets are not kept.
    set.retain(|name, _| manifest.inputs.contains_key(name));
    for (name, input) in &manifest.inputs {
        if input.secret && !set.contains_key(name) {
            set.insert(name.clone(), String::new());
        }
    }
    manifest.resolve(&set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(root: &Path, manifest: &serde_json::Value) {
        let folder = root.join(INSTALLED.trim_start_matches('/'));
        let folder = folder.join(manifest["name"].as_str().unwrap());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
    }

    /// The host of 2026-04-26 (seed 2): agent, Netdata, VFIO and Open vSwitch, and no fabric.
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
        let root = HostRoot::new(dir.path());
        fs::create_dir_all(dir.path().join("var/lib/gpuaas/site-bootstrap")).unwrap();
        fs::create_dir_all(dir.path().join("etc/netplan")).unwrap();
        fs::write(dir.path().join("etc/done"), "").unwrap();
        let inputs = dir.path().join("var/lib/gpuaas/site-bootstrap/h200-slice-vm.inputs");
        fs::write(inputs, r#"{"file":"/etc/done","gone":"1"}"#).unwrap();
        assert!(evaluate(Gate::Active, &root).await.unwrap().passed);
        let report = evaluate(Gate::SliceReady, &root).await.unwrap();
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
        assert!(evaluate(Gate::SliceReady, &root).await.unwrap().passed);
        assert!(!evaluate(Gate::Telemetry, &root).await.unwrap().passed);
    }

    #[tokio::test]
    async fn a_gate_that_nobody_looked_at_is_shut() {
        let dir = tempfile::tempdir().unwrap();
        let report = evaluate(Gate::SliceReady, &HostRoot::new(dir.path())).await.unwrap();
        assert!(!report.passed && report.checks.is_empty());
    }
}
