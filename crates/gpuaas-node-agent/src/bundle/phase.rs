//! One phase: a script with a time limit, its output in a log.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gpuaas_bundle::manifest::Phase;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::report::{PhaseOutcome, PhaseReport};
use crate::files;
use crate::redact::without;

/// Lines of a failed phase's output that are shown.
const LAST_LINES: usize = 3;
/// What a phase prints for everything that it changed.
const CHANGED: &str = "changed ";

/// Runs a phase. Never an error: what failed is in the report.
pub(super) async fn run(
    folder: &Path,
    phase: &Phase,
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
    let said = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let said = clean(log, said.unwrap_or_default(), secrets);
    let changed = said.lines().filter(|line| line.starts_with(CHANGED)).count();
    let (outcome, text) = match ended {
        Ok(()) => (PhaseOutcome::Ran, String::new()),
        Err(reason) => (PhaseOutcome::Failed, format!("{reason}; {}", last_words(&said))),
    };
    PhaseReport { phase: phase.name.clone(), outcome, seconds, changed, text }
}

/// What a phase said without the secrets that it was given, in its log as well.
fn clean(log: &Path, said: String, secrets: &[String]) -> String {
    let clean = without(&said, secrets);
    if clean != said
        && let Err(error) = files::replace(log, clean.as_bytes())
    {
        tracing::warn!(%error, log = %log.display(), "a log with secrets is taken away");
        fs::remove_file(log).ok();
    }
    clean
}

fn start(
    folder: &Path,
    phase: &Phase,
    environment: &BTreeMap<String, String>,
    log: &Path,
) -> io::Result<Child> {
    if let Some(parent) = log.parent() {
        fs::create_dir_all(parent)?;
    }
    // Root's alone: what a phase says may show what it was given.
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

/// Waits for the end; what does not end in time is ended with everything that it started.
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

fn last_words(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    last.join(" | ").chars().take(500).collect()
}
