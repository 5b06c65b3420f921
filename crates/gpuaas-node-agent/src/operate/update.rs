//! The operation `agent_update`: replaces the agent's executable, and rolls back.
//!
//! The executable comes from the control plane's artifact store and from nowhere else, and is not
//! older than this one: the signed task names the lowest version, and an agent takes none below its
//! own, so an old task that somebody kept brings no old agent back.
//!
//! Nothing replaces an agent that works before it has proven that it works too. The new executable
//! is downloaded beside the old one, verified, and gets a heartbeat accepted in a trial while the
//! old one still runs. Only then are the files swapped; the old executable stays as
//! `NAME.previous`. Every failure ends with the old executable in its place:
//!
//! | failure | what follows |
//! |---|---|
//! | the trial fails three times, or not in time | the new executable is removed, the old one goes on |
//! | the host dies amid the trial | the old one is still in its place |
//! | the new one is started more than three times without a heartbeat | [`guard`], run by the old executable before each start, rolls back |
//! | the new one runs and no heartbeat is accepted in time | it rolls back itself and restarts as the old one |
//!
//! The process that runs after that submits the result of the task.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuaas_bundle::Digest;
use gpuaas_types::agent::{AgentVersion, Change, Operation, TaskResult, TaskSpec};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::operation::{OperationContext, OperationError, OperationOutcome};
use crate::atomic_file;
use crate::command::{CommandError, CommandRunner};
use crate::env::LaunchCommand;
use crate::task_journal::{TaskEntry, TaskJournal};

/// Trials of a new executable; and starts of one from which no heartbeat is accepted.
const ATTEMPTS: u32 = 3;
/// Longest time in which an executable prints its version, in seconds.
const VERSION_SECONDS: u64 = 20;

/// The executable to update to.
pub(super) struct UpdateTarget<'a> {
    pub(super) version: &'a str,
    /// SHA-256, hexadecimal.
    pub(super) digest: &'a str,
    pub(super) size_bytes: u64,
    /// A path of the control plane.
    pub(super) url: &'a str,
    /// Seconds in which a heartbeat of the new executable has to be accepted.
    pub(super) confirm_seconds: u32,
}

/// The file `update.json`: an executable was replaced, and no heartbeat of the new one is accepted
/// yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PendingUpdate {
    /// Version of the previous executable.
    from: String,
    /// Version of the new executable.
    to: String,
    confirm_seconds: u32,
    /// How often the new executable was started.
    starts: u32,
}

/// The code of a parameter out of its bounds.
pub(super) fn fault_code(operation: &Operation, field: &str) -> &'static str {
    match (operation, field) {
        (Operation::AgentUpdate { .. }, "url") => "agent_source_foreign",
        (Operation::AgentUpdate { floor, .. }, "version") if !floor.is_empty() => "agent_downgrade",
        _ => "operation_out_of_bounds",
    }
}

/// Checks that `version` is not lower than that of this agent.
fn check_not_older(version: &str) -> Result<(), OperationError> {
    let (wanted, own) = (version.parse::<AgentVersion>(), crate::VERSION.parse::<AgentVersion>());
    if matches!((wanted, own), (Ok(wanted), Ok(own)) if wanted >= own) {
        return Ok(());
    }
    let message = format!("{version} is older than the running version {}", crate::VERSION);
    Err(OperationError::new("agent_downgrade", message))
}

pub(super) async fn run(
    context: &OperationContext<'_>,
    target: &UpdateTarget<'_>,
) -> Result<OperationOutcome, OperationError> {
    let (Some(launch), Some(state), Some(control_plane)) =
        (&context.env.launch, &context.env.state_dir, &context.env.control_plane)
    else {
        return Err(OperationError::new(
            "agent_not_replaceable",
            "this agent has no executable to replace",
        ));
    };
    check_not_older(target.version)?;
    let digest: Digest = target.digest.parse().map_err(|_| {
        OperationError::new("digest_mismatch", "the digest is not a SHA-256 digest")
    })?;
    let installed = &launch.executable;
    let unreadable = |error: io::Error| {
        let message = format!("{}: {error}", installed.display());
        OperationError::new("file_unwritable", message)
    };
    let now = Digest::sha256(&fs::read(installed).map_err(unreadable)?);
    let before = format!("{} {}", crate::VERSION, short(&now));
    let after = format!("{} {}", target.version, short(&digest));
    let mut outcome = OperationOutcome::default();
    if now == digest {
        outcome.message = format!("already running {before}");
        return Ok(outcome);
    }
    outcome.changes.push(Change { what: "gpuaas-node-agent".to_owned(), before, after });
    if context.dry_run {
        return Ok(outcome);
    }
    let bytes = control_plane
        .fetch(target.url, target.size_bytes)
        .await
        .map_err(|error| OperationError::new("download_failed", error.to_string()))?;
    let downloaded = Digest::sha256(&bytes);
    if downloaded != digest || bytes.len() as u64 != target.size_bytes {
        let size = bytes.len();
        let message = format!("received {size} bytes with digest {downloaded}, expected {digest}");
        return Err(OperationError::new("digest_mismatch", message));
    }
    let draft = sibling(installed, "new");
    let unwritable = |error: io::Error| OperationError::unwritable_path(&draft, &error);
    write_executable(&draft, &bytes).map_err(unwritable)?;
    drop(bytes);
    let tried = async {
        check_version(&draft, target.version).await?;
        trial(&draft, &launch.arguments, target.confirm_seconds).await
    };
    if let Err(error) = tried.await {
        remove(&draft);
        return Err(error);
    }
    let pending = PendingUpdate {
        from: crate::VERSION.to_owned(),
        to: target.version.to_owned(),
        confirm_seconds: target.confirm_seconds,
        starts: 0,
    };
    let record = serde_json::to_vec(&pending).unwrap_or_default();
    let recorded = atomic_file::replace(&pending_file(state), &record);
    recorded.and_then(|()| swap_executables(installed, &draft)).map_err(|error| {
        remove(&draft);
        remove(&pending_file(state));
        unwritable(error)
    })?;
    outcome.message = format!("updated from {} to {}", crate::VERSION, target.version);
    outcome.restart = true;
    Ok(outcome)
}

fn short(digest: &Digest) -> String {
    digest.to_string().chars().take(12).collect()
}

fn pending_file(state: &Path) -> PathBuf {
    state.join("update.json")
}

/// `NAME.SUFFIX` in the folder of `NAME`.
fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

fn remove(path: &Path) {
    if let Err(error) = atomic_file::remove_if_there(path) {
        tracing::warn!(%error, path = %path.display(), "cannot remove a file");
    }
}

fn write_executable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    remove(path);
    let written = (|| {
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    })();
    if written.is_err() {
        remove(path);
    }
    written
}

/// Puts the new executable in place of the installed one, which stays as `NAME.previous`. Whenever
/// this is interrupted, one of the two is installed.
fn swap_executables(installed: &Path, draft: &Path) -> io::Result<()> {
    let previous = sibling(installed, "previous");
    remove(&previous);
    fs::hard_link(installed, &previous)?;
    fs::rename(draft, installed)?;
    File::open(installed.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Whether the executable runs on this host at all, and prints the version that is expected.
async fn check_version(draft: &Path, expected: &str) -> Result<(), OperationError> {
    let program = draft.display().to_string();
    let output = CommandRunner::Native.query(&program, &["version"], VERSION_SECONDS).await;
    let output =
        output.map_err(|error| OperationError::new("agent_does_not_run", error.to_string()))?;
    if output.stdout.trim() == expected {
        return Ok(());
    }
    let printed: String = output.stdout.trim().chars().take(100).collect();
    let message = format!("the executable reports version {printed:?}, expected {expected:?}");
    Err(OperationError::new("agent_version_mismatch", message))
}

/// Runs the new executable until one heartbeat of it is accepted, with the identity and the
/// configuration of this agent.
async fn trial(draft: &Path, arguments: &[OsString], seconds: u32) -> Result<(), OperationError> {
    let program = draft.display().to_string();
    let arguments: Vec<String> =
        arguments.iter().map(|text| text.to_string_lossy().into_owned()).collect();
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.push("--trial");
    let seconds = u64::from(seconds);
    let begun = Instant::now();
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let left = seconds.saturating_sub(begun.elapsed().as_secs());
        if left == 0 {
            break;
        }
        match CommandRunner::Native.query(&program, &arguments, left).await {
            Ok(_) => return Ok(()),
            Err(error @ CommandError::TimedOut { .. }) => {
                let message = format!("no heartbeat succeeded within {seconds} s ({error})");
                return Err(OperationError::new("agent_not_heard", message));
            }
            Err(error) => last = error.to_string(),
        }
    }
    Err(OperationError::new("agent_does_not_last", format!("it failed {ATTEMPTS} times; {last}")))
}

/// Ends a pending update: a heartbeat of the new executable was accepted.
pub(crate) fn confirm(state: &Path) {
    let path = pending_file(state);
    if path.exists() {
        tracing::info!("confirmed the update to this version of the agent");
        remove(&path);
    }
}

/// Seconds in which a heartbeat of this process has to be accepted; `None`: no update is pending.
fn confirm_seconds(state: &Path) -> Option<f64> {
    read(state).map(|pending| f64::from(pending.confirm_seconds))
}

fn read(state: &Path) -> Option<PendingUpdate> {
    serde_json::from_slice(&fs::read(pending_file(state)).ok()?).ok()
}

/// Restores the previous executable, and records that as the result of the task.
///
/// # Errors
/// A file of the host cannot be written.
pub(crate) fn roll_back(state: &Path, executable: &Path, cause: &str) -> io::Result<()> {
    let Some(pending) = read(state) else { return Ok(()) };
    fs::rename(sibling(executable, "previous"), executable)?;
    File::open(executable.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    let journal = TaskJournal::new(Some(state));
    let is_update = |entry: &TaskEntry| {
        matches!(&entry.spec, TaskSpec::Operate { operation: Operation::AgentUpdate { .. }, .. })
    };
    if let Some(mut task) = journal.entries().into_iter().find(is_update) {
        let PendingUpdate { from, to, .. } = &pending;
        task.result = Some(TaskResult {
            code: "agent_rolled_back".to_owned(),
            message: format!("rolled back from {to} to {from}: {cause}"),
            ..TaskResult::default()
        });
        journal.write(&task)?;
    }
    remove(&pending_file(state));
    tracing::error!(cause, "restored the previous version of the agent");
    Ok(())
}

/// Counts the starts of an executable whose update is pending, and rolls back when they are too
/// many; whether it did. The previous executable runs this before each start.
///
/// # Errors
/// A file of the host cannot be written.
pub fn guard(state: &Path, executable: &Path) -> io::Result<bool> {
    let Some(mut pending) = read(state) else { return Ok(false) };
    pending.starts += 1;
    if pending.starts > ATTEMPTS {
        let cause = format!("started {ATTEMPTS} times without a successful heartbeat");
        roll_back(state, executable, &cause)?;
        return Ok(true);
    }
    atomic_file::replace(&pending_file(state), &serde_json::to_vec(&pending)?)?;
    Ok(false)
}

/// Hands over to the executable that is installed now: systemd starts it when this process ends;
/// without systemd this process becomes it.
///
/// # Errors
/// The executable cannot be run.
pub fn hand_over(launch: &LaunchCommand, under_systemd: bool) -> io::Result<()> {
    if under_systemd {
        return Ok(());
    }
    use std::os::unix::process::CommandExt as _;
    let mut command = std::process::Command::new(&launch.executable);
    Err(command.args(&launch.arguments).exec())
}

/// Waits for `accepted`, the first accepted heartbeat, where an update is pending.
///
/// # Errors
/// The reason for a rollback: it did not come in time.
pub(crate) async fn await_confirmation(
    state: Option<&Path>,
    accepted: impl Future<Output = ()>,
) -> Result<(), String> {
    let Some(seconds) = state.and_then(confirm_seconds) else { return Ok(()) };
    let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    timeout(limit, accepted).await.map_err(|_| format!("no heartbeat succeeded within {seconds} s"))
}
