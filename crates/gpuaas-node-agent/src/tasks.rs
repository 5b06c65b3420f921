//! Tasks: what the control plane tells the agent of a host to do.

use gpuaas_types::agent::{HostCheck, TaskResult, TaskSpec};
use gpuaas_types::slice::SliceTask;

use crate::bundle::stored_inputs;
use crate::checks::{self, unit_state};
use crate::cleanup;
use crate::env::AgentEnv;
use crate::facts;
use crate::host::Host;
use crate::operate::{self, CompletedTask, OperationContext};
use crate::reboot;
use crate::redact::redact_values;
use crate::slice;

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

/// One look of `task` of a slice, which waits: nothing is kept from being done meanwhile. None: it is
/// still to be waited for.
pub(crate) async fn check_guest(
    host: &Host,
    env: &AgentEnv,
    task: &SliceTask,
    waited_seconds: f64,
) -> Option<TaskResult> {
    let mut result = slice::check_guest(host, &env.slices, task, waited_seconds).await?;
    let mut secrets = host.root().map(stored_inputs::secret_values).unwrap_or_default();
    secrets.extend(env.secrets.iter().cloned());
    redact_result(&mut result, &secrets);
    Some(result)
}

fn redact_result(result: &mut TaskResult, secrets: &[String]) {
    let changes = result.changes.iter_mut();
    let changes = changes.flat_map(|one| [&mut one.what, &mut one.before, &mut one.after]);
    let proofs = result.slice.iter_mut().flat_map(|report| &mut report.proofs);
    let proofs = proofs.map(|proof| &mut proof.detail);
    let findings = result.findings.iter_mut().flat_map(|one| [&mut one.name, &mut one.seen]);
    for text in changes.chain(findings).chain(proofs).chain([&mut result.message]) {
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
            findings = cleanup::soft_reset(host).await;
        }
        TaskSpec::StorageCleanup {} => findings = cleanup::storage_cleanup(host).await,
        TaskSpec::Reboot { .. } => {
            let result = reboot::run(host, env).await;
            return CompletedTask { result, restart: false };
        }
        TaskSpec::Slice { slice } => {
            let result = slice::run(host, &env.slices, slice).await;
            return CompletedTask { result, restart: false };
        }
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
        std::fs::create_dir_all(dir.path().join("home/tenant/.ssh")).unwrap();
        std::fs::write(dir.path().join("home/tenant/.ssh/authorized_keys"), "key").unwrap();
        let host = Host::Root(HostRoot::new(dir.path()));
        let result = execute(&host, &AgentEnv::default(), &TaskSpec::SoftReset {}).await;
        assert!(result.succeeded);
        let seen: Vec<_> = result.findings.iter().map(|f| (f.passed, f.seen.as_str())).collect();
        assert_eq!(
            seen[..3],
            [
                (None, "the host has no systemd"),
                (Some(true), "2 entries removed"),
                (Some(true), "it does not exist"),
            ]
        );
        // Whatever else a tenant may have written is named, and none of it is called clean.
        assert!(seen[3..].iter().all(|(passed, _)| passed.is_none()) && seen.len() > 3, "{seen:?}");
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
