//! Starting the host again, where its bundles ask for that.
//!
//! Each phase that waits for a boot says why in a file of its own below `/run`, so no phase takes away
//! what another one needs, and a boot takes all of it away. That alone proves nothing: after the boot
//! the bundles that asked run once more, and ask again where the boot did not bring what they need.
//!
//! The agent that orders the reboot ends with the host. It has noted the task before, with the boot
//! that it began in; the agent of the next boot finds that, looks, and hands the result in.

use std::path::Path;
use std::time::Duration;

use gpuaas_types::agent::{Change, Finding, MAX_REBOOTS, TaskResult};
use host_facts::HostRoot;

use crate::bundle::{self, BundleContext};
use crate::command::CommandRunner;
use crate::env::AgentEnv;
use crate::host::Host;
use crate::reboot_reasons::{PendingReboot, boot_id, joined, reasons};
use crate::{atomic_file, paths};

/// Longest time of the command that reboots, in seconds.
const COMMAND_SECONDS: u64 = 120;
/// Seconds until a host that was told to reboot has to be going down.
const SHUTDOWN_SECONDS: u64 = 600;
/// Counts the reboots of a system, in the agent's folder.
const COUNT_FILE: &str = "reboots";

/// Starts the host again where something asks for it. Where the host is this machine, this ends with
/// it, and [`look_after_boot`] goes on.
pub(crate) async fn run(host: &Host, env: &AgentEnv) -> TaskResult {
    let Some(root) = host.root() else {
        return refused("host_not_live", "a simulated host has no files");
    };
    let pending = PendingReboot::from_host(root);
    if pending.bundles.is_empty() {
        return TaskResult {
            succeeded: true,
            message: "no reboot is needed".to_owned(),
            findings: vec![reasons_finding(root)],
            ..TaskResult::default()
        };
    }
    if pending.boot_id.is_none() {
        return refused("boot_unknown", "the host reports no boot ID");
    }
    let runner = match CommandRunner::with_systemd(host) {
        Ok(runner) => runner,
        Err(error) => return refused(error.code(), &error.to_string()),
    };
    if let Err((code, why)) = count_reboot(env.state_dir.as_deref()) {
        return refused(code, &why);
    }
    tracing::warn!(why = pending.why, "rebooting the host");
    if let Err(error) = runner.run("systemctl", &["reboot"], COMMAND_SECONDS).await {
        return refused(error.code(), &error.to_string());
    }
    let mut looks = tokio::time::interval(Duration::from_secs(1));
    for _ in 0..SHUTDOWN_SECONDS {
        looks.tick().await;
        if pending.is_over(host) {
            return look_after_boot(host, &pending).await;
        }
    }
    refused("reboot_did_not_happen", "systemd accepted the reboot, but the host is still up")
}

/// Notes one more reboot of this system.
fn count_reboot(state_dir: Option<&Path>) -> Result<(), (&'static str, String)> {
    let Some(folder) = state_dir else {
        return Err(("state_unwritable", "the agent has no state folder".to_owned()));
    };
    let path = folder.join(COUNT_FILE);
    let count = std::fs::read_to_string(&path).unwrap_or_default();
    let count: u32 = count.trim().parse().unwrap_or_default();
    if count >= MAX_REBOOTS {
        return Err(("reboots_exhausted", format!("the host was already rebooted {count} times")));
    }
    atomic_file::replace(&path, format!("{}\n", count + 1).as_bytes())
        .map_err(|error| ("state_unwritable", error.to_string()))
}

/// After the boot: the bundles that asked for it run once more, and what asks still is the result.
pub(crate) async fn look_after_boot(host: &Host, pending: &PendingReboot) -> TaskResult {
    let Some(root) = host.root() else {
        return refused("host_not_live", "a simulated host has no files");
    };
    let mut findings = Vec::new();
    for name in &pending.bundles {
        let context = BundleContext::of_rerun(host, root);
        let folder = root.join(paths::INSTALLED_BUNDLES).join(name);
        let (ended_well, seen) = match bundle::run(&folder, &context).await {
            Ok(report) => (report.ended_well(), report.summary()),
            Err(error) => (false, error.to_string()),
        };
        let seen = seen.chars().take(2000).collect();
        findings.push(Finding {
            name: format!("bundle {name} after reboot"),
            passed: Some(ended_well),
            seen,
        });
    }
    let failed = findings.iter().find(|finding| finding.passed == Some(false));
    let failed = failed.map(|finding| format!("{}: {}", finding.name, finding.seen));
    findings.push(reasons_finding(root));
    let change = Change {
        what: "boot".to_owned(),
        before: pending.boot_id.clone().unwrap_or_default(),
        after: boot_id(root).unwrap_or_default(),
    };
    TaskResult {
        succeeded: failed.is_none(),
        code: if failed.is_some() { "bundle_failed".to_owned() } else { String::new() },
        message: failed.unwrap_or_else(|| format!("started again because {}", pending.why)),
        changes: vec![change],
        findings,
        ..TaskResult::default()
    }
}

/// Whether nothing asks for a boot any more.
fn reasons_finding(root: &HostRoot) -> Finding {
    let reasons = reasons(root);
    let seen = if reasons.is_empty() { "none".to_owned() } else { joined(&reasons) };
    Finding { name: "reboot reasons".to_owned(), passed: Some(reasons.is_empty()), seen }
}

fn refused(code: &str, why: &str) -> TaskResult {
    TaskResult { code: code.to_owned(), message: format!("{code}: {why}"), ..TaskResult::default() }
}

#[cfg(test)]
#[path = "reboot_tests.rs"]
mod tests;
