//! One phase of a bundle: a script with a time limit, its output in a log.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gpuaas_bundle::manifest::ManifestPhase;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::report::{PhaseOutcome, PhaseReport};
use crate::atomic_file;
use crate::redact::redact_values;

/// Environment variable that all processes of a phase have, and no others.
const PHASE_VARIABLE: &str = "GPUAAS_PHASE_ID";
/// How often the processes of a phase are looked for, which may start others while they are killed.
const KILL_ROUNDS: u32 = 20;
/// Phases that this process has begun.
static PHASES_BEGUN: AtomicU64 = AtomicU64::new(0);

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
    let number = PHASES_BEGUN.fetch_add(1, Ordering::Relaxed);
    let id = format!("{}-{}-{number}", phase.name, std::process::id());
    let ended = match start(folder, phase, environment, &id, log) {
        Ok(child) => wait(child, phase.timeout_seconds, &id).await,
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
        tracing::warn!(%error, log = %log.display(), "removing a log that cannot be redacted");
        fs::remove_file(log).ok();
    }
    clean
}

fn start(
    folder: &Path,
    phase: &ManifestPhase,
    environment: &BTreeMap<String, String>,
    id: &str,
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
        .env(PHASE_VARIABLE, id)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Waits for the end of a phase, and kills all of its processes at the time limit: its group, and those
/// that made themselves another.
async fn wait(mut child: Child, seconds: u32, id: &str) -> Result<(), String> {
    let group = child.id();
    match timeout(Duration::from_secs(seconds.into()), child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("it failed with {status}")),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => {
            let group = group.and_then(|id| i32::try_from(id).ok());
            if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
                rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
            }
            child.wait().await.ok();
            kill_processes_of(id);
            Err(format!("timed out after {seconds} s"))
        }
    }
}

/// Kills every process that has the phase's `id` in its environment.
fn kill_processes_of(id: &str) {
    let wanted = format!("{PHASE_VARIABLE}={id}");
    for _ in 0..KILL_ROUNDS {
        let Ok(entries) = fs::read_dir("/proc") else { return };
        let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let of_phase: Vec<i32> = ids
            .filter(|process| {
                // That of a process that has ended is empty.
                let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
                environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
            })
            .collect();
        if of_phase.is_empty() {
            return;
        }
        for process in of_phase.into_iter().filter_map(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(process, rustix::process::Signal::KILL).ok();
        }
    }
}

fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    last.join(" | ").chars().take(500).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_phase_that_is_stopped_leaves_no_process_not_even_one_of_another_group() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = "setsid bash -c 'echo $$ >\"$0\"; exec sleep 600' \"$PWD/pid\" & sleep 600\n";
        fs::write(dir.path().join("slow.sh"), script).unwrap();
        let phase = ManifestPhase {
            name: "slow".to_owned(),
            run: "slow.sh".to_owned(),
            timeout_seconds: 2,
            only_when: None,
            installs_packages: false,
            touches: Vec::new(),
        };
        let environment = [("PATH".to_owned(), "/usr/sbin:/usr/bin:/sbin:/bin".to_owned())].into();
        let report = run(dir.path(), &phase, &environment, &dir.path().join("log"), &[]).await;
        assert_eq!(report.outcome, PhaseOutcome::Failed);
        assert!(report.text.starts_with("timed out after 2 s"), "{}", report.text);
        let child = fs::read_to_string(pid).unwrap();
        let stat = format!("/proc/{}/stat", child.trim());
        // Gone, or waiting to be collected by whoever inherited it. A signal takes its time.
        let gone = async {
            while fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), gone).await.unwrap();
    }
}
