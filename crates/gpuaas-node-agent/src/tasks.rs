//! Tasks: what the control plane tells the agent of a host to do.

use std::path::Path;

use gpuaas_types::agent::{Finding, HostCheck, TaskResult, TaskSpec};

use crate::bundle::stored_inputs;
use crate::checks::{self, unit_state};
use crate::command::{CommandError, CommandRunner};
use crate::env::AgentEnv;
use crate::facts;
use crate::host::Host;
use crate::operate::{self, CompletedTask, OperationContext};
use crate::redact::redact_values;

/// Carries out `spec` on `host`. Never an error: what failed is in the result.
pub async fn execute(host: &Host, env: &AgentEnv, spec: &TaskSpec) -> TaskResult {
    run(host, env, spec).await.result
}

/// Carries out `spec` on `host`, with the secrets of the agent and of the host's bundles redacted
/// in the result.
pub(crate) async fn run(host: &Host, env: &AgentEnv, spec: &TaskSpec) -> CompletedTask {
    let mut env = env.clone();
    env.secrets.extend(host.root().map(stored_inputs::secret_values).unwrap_or_default());
    let mut completed = dispatch(host, &env, spec).await;
    redact_result(&mut completed.result, &env.secrets);
    completed
}

fn redact_result(result: &mut TaskResult, secrets: &[String]) {
    let changes = result.changes.iter_mut();
    let changes = changes.flat_map(|one| [&mut one.what, &mut one.before, &mut one.after]);
    let findings = result.findings.iter_mut().flat_map(|one| [&mut one.name, &mut one.seen]);
    for text in changes.chain(findings).chain([&mut result.message]) {
        *text = redact_values(text, secrets);
    }
}

async fn dispatch(host: &Host, env: &AgentEnv, spec: &TaskSpec) -> CompletedTask {
    let mut requested: &[HostCheck] = &[];
    let mut findings = Vec::new();
    match spec {
        TaskSpec::Diagnostics { units } => {
            for unit in units {
                findings.push(unit_state(host, unit).await);
            }
        }
        TaskSpec::Validate { units, checks } => {
            for unit in units {
                findings.push(unit_state(host, unit).await);
            }
            requested = checks;
        }
        TaskSpec::SoftReset {} => {
            findings.push(stop_tenant(host).await);
            findings.extend(empty_all(host, &TENANT_FOLDERS).await);
        }
        TaskSpec::StorageCleanup {} => findings = empty_all(host, &SCRATCH_FOLDERS).await,
        TaskSpec::Operate { dry_run, operation } => {
            let context = OperationContext { host, env, dry_run: *dry_run };
            return operate::run(&context, operation).await;
        }
    }
    let facts = facts::collect(host).await;
    findings.extend(checks::evaluate(host, &facts, requested).await);
    let result = TaskResult { succeeded: true, findings, facts, ..TaskResult::default() };
    CompletedTask { result, restart: false }
}

/// systemd slice of all processes of a tenant.
const TENANT_SLICE: &str = "gpuaas-tenant.slice";
/// Folders with a tenant's files.
const TENANT_FOLDERS: [&str; 2] = ["var/lib/gpuaas/tenant", "dev/shm"];
/// Folders of tenants' scratch storage.
const SCRATCH_FOLDERS: [&str; 1] = ["var/lib/gpuaas/scratch"];
/// Longest time of stopping the tenant, in seconds: more than systemd waits for a unit.
const STOP_SECONDS: u64 = 120;

/// Stops every process of the tenant, so that none writes behind the cleaning.
async fn stop_tenant(host: &Host) -> Finding {
    let finding = |passed, seen: String| Finding {
        name: format!("stop {TENANT_SLICE}"),
        passed,
        seen: seen.chars().take(200).collect(),
    };
    let runner = match (host, CommandRunner::with_systemd(host)) {
        (Host::Root(_), Ok(runner)) => runner,
        _ => return finding(None, "the host has no systemd".to_owned()),
    };
    match runner.run("systemctl", &["stop", "--", TENANT_SLICE], STOP_SECONDS).await {
        Ok(_) => finding(Some(true), "stopped".to_owned()),
        Err(CommandError::TimedOut { seconds, .. }) => {
            finding(Some(false), format!("it did not stop in {seconds} s"))
        }
        Err(error) => finding(Some(false), error.to_string()),
    }
}

async fn empty_all(host: &Host, folders: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in folders {
        let name = format!("empty /{folder}");
        let Some(root) = host.root() else {
            let seen = "a simulated host has no folders".to_owned();
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
fn empty(folder: &Path) -> std::io::Result<String> {
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
    use std::sync::Arc;

    use host_facts::HostRoot;

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
        let result = execute(&host, &AgentEnv::default(), &TaskSpec::Diagnostics { units }).await;
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
        let result = execute(&host, &AgentEnv::default(), &TaskSpec::SoftReset {}).await;
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
        let result = execute(&host, &AgentEnv::default(), &TaskSpec::StorageCleanup {}).await;
        assert_eq!(result.findings[0].passed, Some(false));
        assert!(kept.join("file").exists());
    }

    #[tokio::test]
    async fn a_simulated_host_answers_with_its_fixed_facts() {
        let host = Host::Fixed(Arc::new(serde_json::json!({"uptime_seconds": 5.0, "pci": []})));
        let units = vec!["ssh.service".to_owned()];
        let result = execute(&host, &AgentEnv::default(), &TaskSpec::Diagnostics { units }).await;
        assert_eq!(result.findings[0].passed, None);
        assert_eq!((result.facts["pci"].is_array(), host.uptime_seconds()), (true, Some(5.0)));
    }
}
