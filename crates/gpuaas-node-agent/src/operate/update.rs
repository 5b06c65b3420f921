//! Another version of the agent in its place, and back.
//!
//! Nothing takes the place of an agent that works before it has proven that it works too: the new
//! executable is fetched and verified beside the old one, and gets a heartbeat through in a trial
//! while the old one still runs. Only then the names are exchanged; the old executable stays as
//! `NAME.previous`. What lies in wait after that ends in the same place:
//!
//! | what happens | what follows |
//! |---|---|
//! | the trial ends badly three times, or not in time | the new executable is removed, the old one goes on |
//! | the host dies amid the trial | the old one is still in its place |
//! | the new one is started more than three times without a heartbeat | [`guard`], run by the old executable before each start, puts the old one back |
//! | the new one runs and is not heard in time | it puts the old one back itself, and gives way to it |
//!
//! The result of the task is handed in by whoever has the place then.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuaas_bundle::Digest;
use gpuaas_types::agent::{Change, TaskResult};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::{Fault, Outcome, Work};
use crate::files;
use crate::journal::Journal;
use crate::tools::{ToolError, Tools};

/// Trials of a new executable, and starts of one that is not heard.
const ATTEMPTS: u32 = 3;
const VERSION_SECONDS: u64 = 20;

/// How this process was started, and where from.
#[derive(Debug, Clone)]
pub struct Started {
    /// The executable, by the name that it was started by.
    pub executable: PathBuf,
    /// What followed that name.
    pub arguments: Vec<OsString>,
}

/// What is wanted.
pub(super) struct Wanted<'a> {
    pub(super) version: &'a str,
    pub(super) digest: &'a str,
    pub(super) size_bytes: u64,
    pub(super) url: &'a str,
    pub(super) confirm_seconds: u32,
}

/// A new executable that has its place and was not heard yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Unconfirmed {
    from: String,
    to: String,
    confirm_seconds: u32,
    starts: u32,
}

pub(super) async fn carry_out(work: &Work<'_>, wanted: &Wanted<'_>) -> Result<Outcome, Fault> {
    let (Some(started), Some(state), Some(control_plane)) =
        (&work.place.started, &work.place.state_dir, &work.place.control_plane)
    else {
        return Err(Fault::new("agent_not_replaceable", "this agent has no executable of its own"));
    };
    let digest: Digest =
        wanted.digest.parse().map_err(|_| Fault::new("digest_mismatch", "it is no SHA-256"))?;
    let place = &started.executable;
    let unreadable = |error: io::Error| Fault::new("file_unwritable", named(place, &error));
    let now = Digest::of(&fs::read(place).map_err(unreadable)?);
    let before = format!("{} {}", crate::VERSION, short(&now));
    let after = format!("{} {}", wanted.version, short(&digest));
    let mut outcome = Outcome::default();
    if now == digest {
        outcome.message = format!("it is {before} already");
        return Ok(outcome);
    }
    outcome.changes.push(Change { what: "gpuaas-node-agent".to_owned(), before, after });
    if work.dry_run {
        return Ok(outcome);
    }
    let bytes = control_plane
        .fetch(wanted.url, wanted.size_bytes)
        .await
        .map_err(|error| Fault::new("download_failed", error.to_string()))?;
    let seen = Digest::of(&bytes);
    if seen != digest || bytes.len() as u64 != wanted.size_bytes {
        let message = format!("{} bytes came, with digest {seen}, not {digest}", bytes.len());
        return Err(Fault::new("digest_mismatch", message));
    }
    let draft = beside(place, "new");
    let unwritable = |error: io::Error| {
        let code = if files::is_full(&error) { "disk_full" } else { "file_unwritable" };
        Fault::new(code, named(&draft, &error))
    };
    put_executable(&draft, &bytes).map_err(unwritable)?;
    drop(bytes);
    let tried = async {
        answers_to_its_version(&draft, wanted.version).await?;
        trial(&draft, &started.arguments, wanted.confirm_seconds).await
    };
    if let Err(fault) = tried.await {
        remove(&draft);
        return Err(fault);
    }
    let note = Unconfirmed {
        from: crate::VERSION.to_owned(),
        to: wanted.version.to_owned(),
        confirm_seconds: wanted.confirm_seconds,
        starts: 0,
    };
    let kept = files::replace(&note_in(state), &serde_json::to_vec(&note).unwrap_or_default());
    kept.and_then(|()| exchange(place, &draft)).map_err(|error| {
        remove(&draft);
        remove(&note_in(state));
        unwritable(error)
    })?;
    outcome.message = format!("updated from {} to {}", crate::VERSION, wanted.version);
    outcome.restart = true;
    Ok(outcome)
}

fn named(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn short(digest: &Digest) -> String {
    digest.to_string().chars().take(12).collect()
}

fn note_in(state: &Path) -> PathBuf {
    state.join("update.json")
}

/// `NAME.SUFFIX` in the folder of `NAME`.
fn beside(place: &Path, suffix: &str) -> PathBuf {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    place.with_file_name(name)
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "a file stays");
        }
        _ => {}
    }
}

fn put_executable(path: &Path, bytes: &[u8]) -> io::Result<()> {
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

/// The new executable in its place, the old one beside it. Whenever this is cut short, there is an
/// executable in the place.
fn exchange(place: &Path, draft: &Path) -> io::Result<()> {
    let previous = beside(place, "previous");
    remove(&previous);
    fs::hard_link(place, &previous)?;
    fs::rename(draft, place)?;
    File::open(place.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Whether it runs on this host at all, and is what it is said to be.
async fn answers_to_its_version(draft: &Path, wanted: &str) -> Result<(), Fault> {
    let program = draft.display().to_string();
    let said = Tools::Own.ask(&program, &["version"], VERSION_SECONDS).await;
    let said = said.map_err(|error| Fault::new("agent_does_not_run", error.to_string()))?;
    if said.out.trim() == wanted {
        return Ok(());
    }
    let said: String = said.out.trim().chars().take(100).collect();
    let message = format!("it says that it is {said:?}, not {wanted:?}");
    Err(Fault::new("agent_version_mismatch", message))
}

/// Has the new executable get one heartbeat through, with the identity and the configuration of
/// this agent.
async fn trial(draft: &Path, arguments: &[OsString], seconds: u32) -> Result<(), Fault> {
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
        match Tools::Own.ask(&program, &arguments, left).await {
            Ok(_) => return Ok(()),
            Err(error @ ToolError::TooSlow { .. }) => {
                let message = format!("no heartbeat got through in {seconds} s ({error})");
                return Err(Fault::new("agent_not_heard", message));
            }
            Err(error) => last = error.to_string(),
        }
    }
    Err(Fault::new("agent_does_not_last", format!("it ended {ATTEMPTS} times; {last}")))
}

/// The new executable was heard: it keeps its place.
pub(crate) fn confirm(state: &Path) {
    let path = note_in(state);
    if path.exists() {
        tracing::info!("this version of the agent keeps its place");
        remove(&path);
    }
}

/// How long this process has to be heard, when it is new in its place; in seconds.
pub(crate) fn must_be_heard_in(state: &Path) -> Option<f64> {
    read(state).map(|note| f64::from(note.confirm_seconds))
}

fn read(state: &Path) -> Option<Unconfirmed> {
    serde_json::from_slice(&fs::read(note_in(state)).ok()?).ok()
}

/// Puts the previous executable back, and says so in the result of the task.
///
/// # Errors
/// The names cannot be exchanged.
pub(crate) fn roll_back(state: &Path, executable: &Path, cause: &str) -> io::Result<()> {
    let Some(note) = read(state) else { return Ok(()) };
    fs::rename(beside(executable, "previous"), executable)?;
    File::open(executable.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    let journal = Journal::new(Some(state));
    if let Some(mut task) = journal.read() {
        let Unconfirmed { from, to, .. } = &note;
        task.result = Some(TaskResult {
            code: "agent_rolled_back".to_owned(),
            message: format!("{from} is back in the place of {to}: {cause}"),
            ..TaskResult::default()
        });
        journal.write(&task)?;
    }
    remove(&note_in(state));
    tracing::error!(cause, "the previous version of the agent is put back");
    Ok(())
}

/// Run by the previous executable before each start of the one in its place: counts the starts,
/// and takes its place back when they are too many. Answers whether it did.
///
/// # Errors
/// The host's files cannot be written.
pub fn guard(state: &Path, executable: &Path) -> io::Result<bool> {
    let Some(mut note) = read(state) else { return Ok(false) };
    note.starts += 1;
    if note.starts > ATTEMPTS {
        let cause = format!("it was started {ATTEMPTS} times and was not heard");
        roll_back(state, executable, &cause)?;
        return Ok(true);
    }
    files::replace(&note_in(state), &serde_json::to_vec(&note)?)?;
    Ok(false)
}

/// Gives way to the executable that has the place now: systemd starts it when this process ends;
/// without systemd this process becomes it.
///
/// # Errors
/// The executable cannot be run.
pub fn give_way(started: &Started, under_systemd: bool) -> io::Result<()> {
    if under_systemd {
        return Ok(());
    }
    use std::os::unix::process::CommandExt as _;
    let mut command = std::process::Command::new(&started.executable);
    Err(command.args(&started.arguments).exec())
}

/// Ends `life` when it is not `heard` in time.
pub(crate) async fn watch(
    state: Option<&Path>,
    heard: impl Future<Output = ()>,
) -> Result<(), String> {
    let Some(seconds) = state.and_then(must_be_heard_in) else { return Ok(()) };
    let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    timeout(limit, heard).await.map_err(|_| format!("no heartbeat got through in {seconds} s"))
}
