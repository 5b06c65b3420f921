//! What lies on this host: folder, files, disk, limits, executables, certificates.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use gpuaas_client::executables::find_agent;
use gpuaas_identity::{CertificateLifetime, certificate_lifetimes};
use gpuaas_types::Timestamp;
use gpuaas_types::agent::AGENT_VERSION;
use gpuaas_types::codes::DoctorCheckCode as Check;
use rustix::process::{Resource, geteuid, getrlimit};
use tokio::process::Command;
use tokio::time::timeout;

use super::finding::Finding;
use crate::args::DoctorArgs;

/// Files of the data folder that nobody else may read.
const PRIVATE_FILES: [&str; 3] = ["master.key", "admin-token", "gpuaas.db"];
/// Open files below which listeners have to shrink much (`docs/reference/limits.md`).
const MIN_OPEN_FILES: u64 = 4_096;
/// Longest time that the agent may take to say its version.
const VERSION_LIMIT: Duration = Duration::from_secs(5);
/// Seconds of a day.
const DAY_SECONDS: f64 = 86_400.0;

/// Looks at everything that needs no database.
pub(super) async fn check(args: &DoctorArgs, now: Timestamp) -> Vec<Finding> {
    let mut findings = vec![data_folder(&args.data)];
    findings.extend(PRIVATE_FILES.iter().filter_map(|name| private_file(&args.data.join(name))));
    findings.push(disk_room(&args.data, args.min_free_bytes));
    findings.push(open_files());
    findings.push(agent(args.agent_binary.as_deref()).await);
    let anchors = args.data.join("ca.pem");
    let files = Some(&anchors).filter(|file| file.exists()).into_iter();
    for file in files.chain(&args.certificate_files) {
        findings.extend(certificates(file, args.certificate_days, now));
    }
    findings
}

fn data_folder(folder: &Path) -> Finding {
    let subject = folder.display().to_string();
    let metadata = match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => return Finding::fault(Check::DataFolder, &subject, "not a folder"),
        Err(error) => return Finding::fault(Check::DataFolder, &subject, error.to_string()),
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Finding::fault(
            Check::DataFolder,
            &subject,
            format!("mode {mode:o} gives access to other users"),
        );
    }
    let (owner, user) = (metadata.uid(), geteuid().as_raw());
    if owner != user {
        let seen = format!("owned by user {owner}, but this is user {user}");
        return Finding::fault(Check::DataFolder, &subject, seen);
    }
    Finding::ok(Check::DataFolder, &subject, format!("mode {mode:o}"))
}

/// None: there is no such file, which other checks tell.
fn private_file(file: &Path) -> Option<Finding> {
    let mode = fs::metadata(file).ok()?.permissions().mode() & 0o777;
    let (subject, seen) = (file.display().to_string(), format!("mode {mode:o}"));
    Some(if mode & 0o077 == 0 {
        Finding::ok(Check::KeyFiles, &subject, seen)
    } else {
        Finding::fault(Check::KeyFiles, &subject, seen)
    })
}

fn disk_room(folder: &Path, min_free_bytes: u64) -> Finding {
    let subject = folder.display().to_string();
    match rustix::fs::statvfs(folder) {
        Err(error) => Finding::skipped(Check::DiskRoom, &subject, error.to_string()),
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let seen = format!("{} MiB are free", free >> 20);
            if free >= min_free_bytes {
                Finding::ok(Check::DiskRoom, &subject, seen)
            } else {
                let seen = format!("{seen}, expected at least {} MiB", min_free_bytes >> 20);
                Finding::fault(Check::DiskRoom, &subject, seen)
            }
        }
    }
}

fn open_files() -> Finding {
    let most = getrlimit(Resource::Nofile).maximum;
    let seen = most.map_or_else(|| "no limit".to_owned(), |files| format!("{files} at most"));
    if most.is_none_or(|files| files >= MIN_OPEN_FILES) {
        Finding::ok(Check::OpenFiles, "this user", seen)
    } else {
        Finding::fault(Check::OpenFiles, "this user", seen)
    }
}

async fn agent(explicit: Option<&Path>) -> Finding {
    let file = match find_agent(explicit) {
        Ok(file) => file,
        Err(failure) => {
            return Finding::fault(Check::AgentExecutable, "-", failure.problem.detail.clone());
        }
    };
    let subject = file.display().to_string();
    let fault = |seen: String| Finding::fault(Check::AgentExecutable, &subject, seen);
    let run = Command::new(&file).arg("--version").kill_on_drop(true).output();
    let output = match timeout(VERSION_LIMIT, run).await {
        Err(_) => return fault("no response to --version".to_owned()),
        Ok(Err(error)) => return fault(format!("does not start: {error}")),
        Ok(Ok(output)) => output,
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let version = said.split_whitespace().last().unwrap_or("none");
    if version == AGENT_VERSION {
        Finding::ok(Check::AgentExecutable, &subject, format!("version {version}"))
    } else {
        fault(format!("version {version}, expected {}", AGENT_VERSION))
    }
}

fn certificates(file: &Path, days: u32, now: Timestamp) -> Vec<Finding> {
    let subject = file.display().to_string();
    let fault = |seen: String| vec![Finding::fault(Check::CertificateEnd, &subject, seen)];
    let pem = match fs::read_to_string(file) {
        Ok(pem) => pem,
        Err(error) => return fault(error.to_string()),
    };
    let read = match certificate_lifetimes(&pem) {
        Ok(read) => read,
        Err(error) => return fault(error.to_string()),
    };
    read.iter().map(|certificate| lifetime(certificate, &subject, days, now)).collect()
}

fn lifetime(certificate: &CertificateLifetime, file: &str, days: u32, now: Timestamp) -> Finding {
    let left = certificate.not_after.seconds_since(now) / DAY_SECONDS;
    let subject = format!("{file}: {}", certificate.subject);
    let at = certificate.not_after;
    if left < 0.0 {
        Finding::fault(Check::CertificateEnd, &subject, format!("expired at {at}"))
    } else if left < f64::from(days) {
        let seen = format!("expires in {left:.1} days, at {at}");
        Finding::fault(Check::CertificateEnd, &subject, seen)
    } else {
        Finding::ok(Check::CertificateEnd, &subject, format!("expires in {left:.0} days"))
    }
}
