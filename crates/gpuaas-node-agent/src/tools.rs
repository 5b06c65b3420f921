//! Programs of the host: asked what is so, and told to change it.
//!
//! A program runs with the arguments that it is given and no shell, with a time limit, and in a
//! process group of its own, so that what does not end in time is ended with everything that it
//! started. Only the host that this process runs on is asked; below another root a program may
//! play that host: `PROGRAM ask COMMAND...` prints what the command would print there, and
//! `PROGRAM run COMMAND...` does what it would do (`host.sh` says the same of phases).

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use host_facts::HostRoot;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::tasks::Host;

/// Bytes of each output that are kept; what comes after is thrown away.
const MOST_BYTES: u64 = 4 << 20;
/// How long the pipes of a program that has ended may stay open.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Characters of a failure's words that are told.
const TOLD_CHARS: usize = 500;

/// Whoever answers for a host.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tools<'a> {
    /// The programs of this machine.
    Own,
    /// A program that plays them for a host's folder.
    Played(&'a HostRoot, &'a Path),
}

/// What a program printed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    /// On standard output.
    pub(crate) out: String,
    /// On standard error.
    pub(crate) err: String,
}

/// Why a program did not do what it was to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ToolError {
    /// Nobody answers for this host.
    #[error("{0}")]
    Nobody(&'static str),
    /// It could not be started.
    #[error("{program}: {reason}")]
    NotStarted { program: String, reason: String },
    /// It ended badly.
    #[error("{program} ended with {status}: {said}")]
    Failed { program: String, status: String, said: String },
    /// It did not end in time.
    #[error("{program} gave no answer in {seconds} s")]
    TooSlow { program: String, seconds: u64 },
}

impl ToolError {
    /// Stable code.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::Nobody(_) => "host_not_live",
            Self::NotStarted { .. } => "tool_missing",
            Self::Failed { .. } => "tool_failed",
            Self::TooSlow { .. } => "tool_timeout",
        }
    }
}

impl<'a> Tools<'a> {
    /// Who answers for `host`, or why nobody does.
    pub(crate) fn of(host: &'a Host) -> Result<Self, ToolError> {
        match host {
            Host::Fixed(_) => Err(ToolError::Nobody("a stand-in has nobody to ask")),
            Host::Played(root, player) => Ok(Self::Played(root, player)),
            Host::Root(root) if root.path() == Path::new("/") => Ok(Self::Own),
            Host::Root(_) => Err(ToolError::Nobody("only the host itself can be asked")),
        }
    }

    /// The same, where systemd has to be there.
    pub(crate) fn with_systemd(host: &'a Host) -> Result<Self, ToolError> {
        let tools = Self::of(host)?;
        if matches!(tools, Self::Own) && !Path::new("/run/systemd/system").is_dir() {
            return Err(ToolError::Nobody("the host has no systemd"));
        }
        Ok(tools)
    }

    /// Asks a program; it changes nothing.
    pub(crate) async fn ask(
        self,
        program: &str,
        arguments: &[&str],
        seconds: u64,
    ) -> Result<Said, ToolError> {
        self.call("ask", program, arguments, seconds).await
    }

    /// Has a program change the host.
    pub(crate) async fn run(
        self,
        program: &str,
        arguments: &[&str],
        seconds: u64,
    ) -> Result<Said, ToolError> {
        tracing::info!(program, ?arguments, "runs");
        self.call("run", program, arguments, seconds).await
    }

    async fn call(
        self,
        verb: &str,
        program: &str,
        arguments: &[&str],
        seconds: u64,
    ) -> Result<Said, ToolError> {
        let mut command = match self {
            Self::Own => Command::new(program),
            Self::Played(root, player) => {
                let mut command = Command::new(player);
                command.args([verb, program]).env("GPUAAS_HOST_ROOT", root.path());
                command.env("GPUAAS_SYSFS", root.join("sys"));
                command
            }
        };
        let child = command
            .args(arguments)
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = child.map_err(|error| ToolError::NotStarted {
            program: program.to_owned(),
            reason: error.to_string(),
        })?;
        let mut group = Group(child.id());
        let ended = timeout(Duration::from_secs(seconds), heard(&mut child)).await;
        if ended.is_ok() {
            group.0 = None;
        }
        match ended {
            Ok(Ok((true, _, said))) => Ok(said),
            Ok(Ok((false, status, said))) => Err(ToolError::Failed {
                program: program.to_owned(),
                status,
                said: last_words(&said),
            }),
            Ok(Err(error)) => {
                let (program, reason) = (program.to_owned(), error.to_string());
                Err(ToolError::NotStarted { program, reason })
            }
            Err(_) => Err(ToolError::TooSlow { program: program.to_owned(), seconds }),
        }
    }
}

/// Ends a process group when the wait for it is given up.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let group = self.0.and_then(|id| i32::try_from(id).ok());
        if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
            // Mostly nobody is left.
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        }
    }
}

async fn heard(child: &mut Child) -> std::io::Result<(bool, String, Said)> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (mut kept_out, mut kept_err) = (Vec::new(), Vec::new());
    let status = {
        let read = async { tokio::join!(keep(out, &mut kept_out), keep(err, &mut kept_err)) };
        tokio::pin!(read);
        tokio::select! {
            (out, err) = &mut read => {
                out?;
                err?;
                child.wait().await?
            }
            status = child.wait() => {
                // What it left in the background may hold the pipes for ever.
                timeout(LAST_WORDS, &mut read).await.ok();
                status?
            }
        }
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let said = Said { out: text(kept_out), err: text(kept_err) };
    Ok((status.success(), status.to_string(), said))
}

async fn keep(pipe: Option<impl AsyncRead + Unpin>, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    (&mut pipe).take(MOST_BYTES).read_to_end(bytes).await?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await.map(drop)
}

/// The last lines of what a failed program said.
fn last_words(said: &Said) -> String {
    let from = if said.err.trim().is_empty() { &said.out } else { &said.err };
    let lines: Vec<&str> = from.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    last.join(" | ").chars().take(TOLD_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_does_not_end_in_time_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", pid.display());
        let slow = Tools::Own.run("sh", &["-c", &script], 1).await.unwrap_err();
        assert_eq!(slow, ToolError::TooSlow { program: "sh".to_owned(), seconds: 1 });
        let child = std::fs::read_to_string(pid).unwrap();
        let stat = format!("/proc/{}/stat", child.trim());
        // Gone, or waiting to be collected by whoever inherited it. A signal takes its time.
        let gone = async {
            while std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), gone).await.unwrap();
    }

    #[tokio::test]
    async fn much_output_is_cut_and_does_not_block() {
        let said = Tools::Own.ask("head", &["-c", "6000000", "/dev/zero"], 20).await.unwrap();
        assert_eq!(said.out.len(), 4 << 20);
        let failed = Tools::Own.ask("sh", &["-c", "echo a; echo b >&2; exit 3"], 20).await;
        assert_eq!(failed.unwrap_err().to_string(), "sh ended with exit status: 3: b");
        let missing = Tools::Own.ask("no-such-program", &[], 5).await.unwrap_err();
        assert_eq!(missing.code(), "tool_missing");
    }
}
