//! Carrying out tasks.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use gpuaas_types::agent::{Finding, HostCheck, TaskResult, TaskSpec};
use host_facts::{HostFacts, HostRoot};
use serde_json::Value;

use crate::checks::{self, ask};
use crate::facts;
use crate::operate::{self, Ended, Work, Workplace};

/// What the agent looks at.
#[derive(Debug, Clone)]
pub enum Host {
    /// A host's files; its systemd is asked only where the root is `/`.
    Root(HostRoot),
    /// Files below a folder, and a program that answers for the host: `PROGRAM ask COMMAND...`
    /// prints what the command would print there (`host.sh` says the same of phases).
    Played(HostRoot, PathBuf),
    /// Fixed facts of a stand-in that has no host.
    Fixed(Arc<Value>),
}

impl Host {
    /// The host at `root`; `player` answers for it unless that is the machine's own `/`.
    #[must_use]
    pub fn at(root: HostRoot, player: Option<PathBuf>) -> Self {
        match player {
            Some(player) if root.path() != std::path::Path::new("/") => Self::Played(root, player),
            _ => Self::Root(root),
        }
    }

    /// Host facts as JSON, as far as they are in files: what gates need.
    pub async fn facts(&self) -> Value {
        match self {
            Self::Fixed(facts) => facts.as_ref().clone(),
            Self::Root(root) | Self::Played(root, _) => {
                let root = root.clone();
                let facts = tokio::task::spawn_blocking(move || root.read()).await;
                facts.ok().and_then(|facts| serde_json::to_value(facts).ok()).unwrap_or_default()
            }
        }
    }

    /// The host's files; none for a stand-in.
    #[must_use]
    pub const fn root(&self) -> Option<&HostRoot> {
        match self {
            Self::Root(root) | Self::Played(root, _) => Some(root),
            Self::Fixed(_) => None,
        }
    }

    /// Seconds since the host booted, where it says so.
    #[must_use]
    pub fn uptime_seconds(&self) -> Option<f64> {
        match self {
            Self::Fixed(facts) => facts.get("uptime_seconds")?.as_f64(),
            Self::Root(root) | Self::Played(root, _) => root.uptime_seconds(),
        }
    }
}

/// Carries out `spec` on `host`. Always an answer, never an error: what failed is in it.
pub async fn execute(host: &Host, place: &Workplace, spec: &TaskSpec) -> TaskResult {
    ended(host, place, spec).await.result
}

/// The same, with what is to follow.
pub(crate) async fn ended(host: &Host, place: &Workplace, spec: &TaskSpec) -> Ended {
    let place = operate::with_secrets(host, place);
    let mut ended = carried_out(host, &place, spec).await;
    operate::clean(&mut ended.result, &place.secrets);
    ended
}

async fn carried_out(host: &Host, place: &Workplace, spec: &TaskSpec) -> Ended {
    let mut checks: &[HostCheck] = &[];
    let mut findings = Vec::new();
    match spec {
        TaskSpec::Diagnostics { units } => {
            for unit in units {
                findings.push(ask::unit_state(host, unit).await);
            }
        }
        TaskSpec::Validate { units, checks: wanted } => {
            for unit in units {
                findings.push(ask::unit_state(host, unit).await);
            }
            checks = wanted;
        }
        TaskSpec::SoftReset {} => {
            findings.push(stop_tenant(host).await);
            findings.extend(empty_all(host, &TENANT_FOLDERS).await);
        }
        TaskSpec::StorageCleanup {} => findings = empty_all(host, &SCRATCH_FOLDERS).await,
        TaskSpec::Operate { dry_run, operation } => {
            let work = Work { host, place, dry_run: *dry_run };
            return operate::ended(&work, operation).await;
        }
    }
    let facts = facts::whole(host).await;
    findings.extend(validate(host, &facts, checks).await);
    let result = TaskResult { succeeded: true, findings, facts, ..TaskResult::default() };
    Ended { result, restart: false }
}

/// One finding for each check, each with a verdict.
pub async fn validate(host: &Host, facts: &Value, checks: &[HostCheck]) -> Vec<Finding> {
    let facts: HostFacts = serde_json::from_value(facts.clone()).unwrap_or_default();
    let mut findings = Vec::with_capacity(checks.len());
    for check in checks {
        findings.push(match checks::look(host.root(), &facts, check) {
            Some(finding) => finding,
            None => ask::ask(host, check).await,
        });
    }
    findings
}

/// Everything that a tenant runs is in this slice.
const TENANT_SLICE: &str = "gpuaas-tenant.slice";
/// What a tenant leaves on a host.
const TENANT_FOLDERS: [&str; 2] = ["var/lib/gpuaas/tenant", "dev/shm"];
/// Scratch storage of tenants.
const SCRATCH_FOLDERS: [&str; 1] = ["var/lib/gpuaas/scratch"];
/// Longer than systemd's own patience with a unit that does not stop.
const STOP_SECONDS: u64 = 120;

/// Ends every process of the tenant, so that nothing writes behind the cleaning.
async fn stop_tenant(host: &Host) -> Finding {
    let finding = |passed, seen: String| Finding {
        name: format!("stop {TENANT_SLICE}"),
        passed,
        seen: seen.chars().take(200).collect(),
    };
    let Host::Root(root) = host else { return finding(None, "the host has no systemd".to_owned()) };
    if root.path() != std::path::Path::new("/") || !root.join("run/systemd/system").is_dir() {
        return finding(None, "the host has no systemd".to_owned());
    }
    let stop = tokio::process::Command::new("systemctl")
        .args(["stop", "--", TENANT_SLICE])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(Duration::from_secs(STOP_SECONDS), stop).await {
        Ok(Ok(output)) if output.status.success() => finding(Some(true), "stopped".to_owned()),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            finding(Some(false), format!("systemctl ended with {}: {said}", output.status))
        }
        Ok(Err(error)) => finding(Some(false), format!("systemctl: {error}")),
        Err(_) => finding(Some(false), format!("it did not stop in {STOP_SECONDS} s")),
    }
}

async fn empty_all(host: &Host, folders: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in folders {
        let name = format!("empty /{folder}");
        let Some(root) = host.root() else {
            let seen = "a stand-in has no folders".to_owned();
            findings.push(Finding { name, passed: None, seen });
            continue;
        };
        let path = root.join(folder);
        let emptied = tokio::task::spawn_blocking(move || empty(&path)).await;
        let (passed, seen) = match emptied {
            Ok(Ok(seen)) => (true, seen),
            Ok(Err(error)) => (false, error.to_string()),
            Err(error) => (false, error.to_string()),
        };
        findings.push(Finding { name, passed: Some(passed), seen });
    }
    findings
}

/// Removes everything in a folder, never what a symbolic link points at.
fn empty(folder: &std::path::Path) -> std::io::Result<String> {
    let kind = match std::fs::symlink_metadata(folder) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok("it does not exist".to_owned());
        }
        Err(error) => return Err(error),
    };
    if !kind.is_dir() {
        return Err(std::io::Error::other("it is not a folder"));
    }
    let mut removed = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
        removed += 1;
    }
    Ok(format!("{removed} entries removed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn diagnostics_below_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let slice = dir.path().join("sys/fs/cgroup/system.slice");
        std::fs::create_dir_all(slice.join("nginx.service")).unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join("proc/uptime"), "77.5 1\n").unwrap();
        let host = Host::Root(HostRoot::new(dir.path()));
        let units = ["nginx.service", "netdata.service", "--force", "../x.service"];
        let units = units.map(str::to_owned).to_vec();
        let result = execute(&host, &Workplace::default(), &TaskSpec::Diagnostics { units }).await;
        assert!(result.succeeded);
        let passed: Vec<_> = result.findings.iter().map(|finding| finding.passed).collect();
        assert_eq!(passed, [Some(true), Some(false), None, None]);
        assert_eq!(result.facts["uptime_seconds"], 77.5);
        assert_eq!(host.uptime_seconds(), Some(77.5));
    }

    #[tokio::test]
    async fn a_soft_reset_empties_the_tenants_folders_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let tenant = dir.path().join("var/lib/gpuaas/tenant");
        std::fs::create_dir_all(tenant.join("home/.ssh")).unwrap();
        let kept = dir.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(&kept, tenant.join("link")).unwrap();
        let host = Host::Root(HostRoot::new(dir.path()));
        let result = execute(&host, &Workplace::default(), &TaskSpec::SoftReset {}).await;
        assert!(result.succeeded);
        let seen: Vec<_> = result.findings.iter().map(|f| (f.passed, f.seen.as_str())).collect();
        assert_eq!(
            seen,
            [
                (None, "the host has no systemd"),
                (Some(true), "2 entries removed"),
                (Some(true), "it does not exist"),
            ]
        );
        assert!(tenant.is_dir() && std::fs::read_dir(&tenant).unwrap().next().is_none());
        assert!(kept.join("file").exists());
        std::os::unix::fs::symlink(&kept, dir.path().join("var/lib/gpuaas/scratch")).unwrap();
        let result = execute(&host, &Workplace::default(), &TaskSpec::StorageCleanup {}).await;
        assert_eq!(result.findings[0].passed, Some(false));
        assert!(kept.join("file").exists());
    }

    #[tokio::test]
    async fn a_stand_in_answers_with_its_fixed_facts() {
        let host = Host::Fixed(Arc::new(serde_json::json!({"uptime_seconds": 5.0, "pci": []})));
        let units = vec!["ssh.service".to_owned()];
        let result = execute(&host, &Workplace::default(), &TaskSpec::Diagnostics { units }).await;
        assert_eq!(result.findings[0].passed, None);
        assert_eq!((result.facts["pci"].is_array(), host.uptime_seconds()), (true, Some(5.0)));
    }
}
