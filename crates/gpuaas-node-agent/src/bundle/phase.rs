//! One phase of a bundle: a script with a time limit, its output in a log.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gpuaas_bundle::manifest::ManifestPhase;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::report::{PhaseOutcome, PhaseReport};
use crate::atomic_file;
use crate::redact::redact_values;

/// Lines of a failed phase's output that its report shows.
const LAST_LINES: usize = 3;
/// Begins each line in which a phase reports something that it changed.
const CHANGED_PREFIX: &str = "changed ";

/// Runs a phase. Never an error: what failed is in the report.
pub(super) async fn run(
    folder: &Path,
    phase: &ManifestPhase,
    environment: &BTreeMap<String, String>,
    log: &Path,
    secrets: &[String],
) -> PhaseReport {
    let began = Instant::now();
    let ended = match start(folder, phase, environment, log) {
        Ok(child) => wait(child, phase.timeout_seconds).await,
        Err(error) => Err(error.to_string()),
    };
    let seconds = began.elapsed().as_secs_f64();
    let output = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let output = redact_log(log, output.unwrap_or_default(), secrets);
    let changed = output.lines().filter(|line| line.starts_with(CHANGED_PREFIX)).count();
    let (outcome, text) = match ended {
        Ok(()) => (PhaseOutcome::Ran, String::new()),
        Err(reason) => (PhaseOutcome::Failed, format!("{reason}; {}", last_lines(&output))),
    };
    PhaseReport { phase: phase.name.clone(), outcome, seconds, changed, text }
}

/// Redacts the secrets that a phase was given, in its log too; the redacted output.
fn redact_log(log: &Path, output: String, secrets: &[String]) -> String {
    let clean = redact_values(&output, secrets);
    if clean != output
        && let Err(error) = atomic_file::replace(log, clean.as_bytes())
    {
        tracing::warn!(%error, log = %log.display(), "a log with secrets cannot be redacted and is removed");
        fs::remove_file(log).ok();
    }
    clean
}

fn start(
    folder: &Path,
    phase: &ManifestPhase,
    environment: &BTreeMap<String, String>,
    log: &Path,
) -> io::Result<Child> {
    if let Some(parent) = log.parent() {
        fs::create_dir_all(parent)?;
    }
    // Only root may read it: the output of a phase may show its inputs.
    let log = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(log)?;
    log.set_permissions(Permissions::from_mode(0o600))?;
    Command::new("bash")
        .arg(folder.join(&phase.run))
        .current_dir(folder)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Waits for the end of a phase, and kills its process group at the time limit.
async fn wait(mut child: Child, seconds: u32) -> Result<(), String> {
    let group = child.id();
    match timeout(Duration::from_secs(seconds.into()), child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("it ended with {status}")),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => {
            let group = group.and_then(|id| i32::try_from(id).ok());
            if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
                rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
            }
            child.wait().await.ok();
            Err(format!("stopped after {seconds} s"))
        }
    }
}

fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    last.join(" | ").chars().take(500).collect()
}
