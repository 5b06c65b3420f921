//! What the agent cleans between tenants, and what it does not.
//!
//! A tenant that had root may have written anywhere, and the host that it wrote to is the one that
//! reports. So the agent claims no more than it did: two folders of the tenant, or one of scratch
//! storage. Every other place where tenants write is named with what is in it. A host that is to hold
//! nothing of a tenant is reimaged with its disks erased.

use std::path::Path;

use gpuaas_types::agent::{Finding, KEPT_PREFIX};

use crate::command::{CommandError, CommandRunner};
use crate::host::Host;

/// systemd slice of all processes of a tenant.
const TENANT_SLICE: &str = "gpuaas-tenant.slice";
/// Folders with a tenant's files.
const TENANT_FOLDERS: [&str; 2] = ["var/lib/gpuaas/tenant", "dev/shm"];
/// Folders of tenants' scratch storage.
const SCRATCH_FOLDERS: [&str; 1] = ["var/lib/gpuaas/scratch"];
/// Where else a tenant with root may have left something. None of it is touched: a cleaning by the host
/// itself cannot be trusted with it, so it is named, with what is there.
const KEPT_PLACES: [&str; 15] = [
    "home",
    "root",
    "tmp",
    "var/tmp",
    "var/spool/cron",
    "etc/cron.d",
    "var/lib/docker",
    "var/lib/containerd",
    "var/lib/libvirt/images",
    "data",
    "mnt",
    "srv",
    "opt",
    "swapfile",
    "swap.img",
];
/// Files that are counted in a place; more are not looked at.
const MOST_FILES: u64 = 1_000_000;

/// Stops the tenant's processes and empties its folders; names what it left.
pub(crate) async fn soft_reset(host: &Host) -> Vec<Finding> {
    let mut findings = vec![stop_tenant(host).await];
    findings.extend(empty_all(host, &TENANT_FOLDERS).await);
    findings.extend(kept_places(host, &SCRATCH_FOLDERS).await);
    findings
}

/// Empties the scratch storage; names what it left.
pub(crate) async fn storage_cleanup(host: &Host) -> Vec<Finding> {
    let mut findings = empty_all(host, &SCRATCH_FOLDERS).await;
    findings.extend(kept_places(host, &TENANT_FOLDERS).await);
    findings
}

/// What is in each place that is not cleaned, those of the other cleaning among them.
async fn kept_places(host: &Host, others: &'static [&str]) -> Vec<Finding> {
    let Some(root) = host.root().cloned() else { return Vec::new() };
    let looked = tokio::task::spawn_blocking(move || {
        let mut findings = Vec::new();
        for place in KEPT_PLACES.iter().chain(others) {
            let (files, bytes) = content(&root.join(place));
            if files > 0 {
                findings.push(Finding {
                    name: format!("{KEPT_PREFIX}/{place}"),
                    passed: None,
                    seen: format!("not removed: {files} files, {bytes} bytes"),
                });
            }
        }
        findings
    });
    looked.await.unwrap_or_default()
}

/// Files and bytes at a path; what a link points at is not followed.
fn content(path: &Path) -> (u64, u64) {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return (0, 0) };
    if !metadata.is_dir() {
        return (1, metadata.len());
    }
    let (mut files, mut bytes) = (0, 0);
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                files += 1;
                bytes += metadata.len();
            }
            if files >= MOST_FILES {
                return (files, bytes);
            }
        }
    }
    (files, bytes)
}
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
            finding(Some(false), format!("it did not stop within {seconds} s"))
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
