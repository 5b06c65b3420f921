//! Runs the host's programs: queries, which change nothing, and commands, which do.
//!
//! A program runs with the arguments that it is given and no shell, with a time limit, and in a
//! process group of its own. What does not end in time is killed with everything that it started.
//! Programs run only on the machine of this process. For a host below another root, the host
//! emulator may stand in: `PROGRAM ask COMMAND...` prints what the command prints there, and
//! `PROGRAM run COMMAND...` does what it does there, and `PROGRAM write FILE VALUE` what the kernel
//! does when somebody writes to sysfs (`host.sh` has the same for phases).

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use host_facts::HostRoot;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::host::Host;

/// Bytes of each output stream that are returned; the rest is read and dropped.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;
/// How long the pipes of a program that has ended may stay open.
const PIPE_DRAIN: Duration = Duration::from_secs(2);
/// Characters of a failed program's output that an error shows.
const ERROR_TEXT_CHARS: usize = 500;
/// Lines of a failed program's output that an error shows.
const ERROR_TEXT_LINES: usize = 3;

/// What runs the programs of a host.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CommandRunner<'a> {
    /// This machine.
    Native,
    /// The host emulator (the path) of the host below a folder.
    Emulated(&'a HostRoot, &'a Path),
    /// What programs of a simulated host print, by program.
    Simulated(&'a Value),
}

/// A simulated host has facts, and of its programs what the facts say that they print.
const NO_PROGRAMS: CommandError =
    CommandError::HostNotLive("a simulated host has no programs to run");

/// What a program printed.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandOutput {
    /// Standard output, at most [`MAX_OUTPUT_BYTES`] of it.
    pub(crate) stdout: String,
    /// Standard error, at most [`MAX_OUTPUT_BYTES`] of it.
    pub(crate) stderr: String,
}

/// Why a program did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandError {
    /// No program can be run for this host; the text says why.
    #[error("{0}")]
    HostNotLive(&'static str),
    /// The program could not be started.
    #[error("{program}: {reason}")]
    NotStarted { program: String, reason: String },
    /// The program exited with another status than 0.
    #[error("{program} failed with {status}: {text}")]
    Failed { program: String, status: String, text: String },
    /// The program was killed at its time limit.
    #[error("{program} timed out after {seconds} s")]
    TimedOut { program: String, seconds: u64 },
}

impl CommandError {
    /// Stable code.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::HostNotLive(_) => "host_not_live",
            Self::NotStarted { .. } => "tool_missing",
            Self::Failed { .. } => "tool_failed",
            Self::TimedOut { .. } => "tool_timeout",
        }
    }
}

impl<'a> CommandRunner<'a> {
    /// What runs the programs of `host`.
    ///
    /// # Errors
    /// [`CommandError::HostNotLive`]: the host is neither this machine nor emulated.
    pub(crate) fn for_host(host: &'a Host) -> Result<Self, CommandError> {
        match host {
            Host::Fixed(facts) => facts.get("programs").map(Self::Simulated).ok_or(NO_PROGRAMS),
            Host::Emulated(root, emulator) => Ok(Self::Emulated(root, emulator)),
            Host::Root(root) if root.path() == Path::new("/") => Ok(Self::Native),
            Host::Root(_) => Err(CommandError::HostNotLive("programs run only on the host itself")),
        }
    }

    /// What runs the programs of `host`, where systemd has to be there.
    ///
    /// # Errors
    /// [`CommandError::HostNotLive`]: see [`Self::for_host`], or systemd is not running.
    pub(crate) fn with_systemd(host: &'a Host) -> Result<Self, CommandError> {
        let runner = Self::for_host(host)?;
        if matches!(runner, Self::Native) && !Path::new("/run/systemd/system").is_dir() {
            return Err(CommandError::HostNotLive("the host has no systemd"));
        }
        Ok(runner)
    }

    /// Runs a program that changes nothing.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub(crate) async fn query(
        self,
        program: &str,
        arguments: &[&str],
        seconds: u64,
    ) -> Result<CommandOutput, CommandError> {
        self.exec("ask", program, arguments, seconds).await
    }

    /// Runs a program that changes the host.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub(crate) async fn run(
        self,
        program: &str,
        arguments: &[&str],
        seconds: u64,
    ) -> Result<CommandOutput, CommandError> {
        tracing::info!(program, ?arguments, "runs");
        self.exec("run", program, arguments, seconds).await
    }

    /// Writes `value` to a file of sysfs, `path` being one of this process; an emulated host has its
    /// emulator do it (`PROGRAM write PATH VALUE`), which plays the kernel. A kernel that waits for
    /// whoever uses a device is given up after `seconds`; its thread ends when the kernel lets it.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub(crate) async fn write_sysfs(
        self,
        path: &Path,
        value: &str,
        seconds: u64,
    ) -> Result<(), CommandError> {
        let name = path.display().to_string();
        tracing::info!(path = name, value, "writes");
        if matches!(self, Self::Emulated(..) | Self::Simulated(_)) {
            return self.exec("write", &name, &[value], seconds).await.map(drop);
        }
        let (path, value) = (path.to_owned(), value.to_owned());
        let write = tokio::task::spawn_blocking(move || {
            // Nothing is created: what the kernel does not show cannot be set.
            let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
            std::io::Write::write_all(&mut file, value.as_bytes())
        });
        let failed = |reason: String| CommandError::NotStarted { program: name.clone(), reason };
        match timeout(Duration::from_secs(seconds), write).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(failed(error.to_string())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(CommandError::TimedOut { program: name, seconds }),
        }
    }

    /// `emulator_verb`: what the host emulator is called with before the program.
    async fn exec(
        self,
        emulator_verb: &str,
        program: &str,
        arguments: &[&str],
        seconds: u64,
    ) -> Result<CommandOutput, CommandError> {
        let mut command = match self {
            Self::Native => Command::new(program),
            Self::Emulated(root, emulator) => {
                let mut command = Command::new(emulator);
                command.args([emulator_verb, program]).env("GPUAAS_HOST_ROOT", root.path());
                command.env("GPUAAS_SYSFS", root.join("sys"));
                command
            }
            Self::Simulated(programs) => {
                let stdout = programs.get(program).filter(|_| emulator_verb == "ask");
                let stdout = stdout.and_then(Value::as_str).ok_or(NO_PROGRAMS)?.to_owned();
                return Ok(CommandOutput { stdout, stderr: String::new() });
            }
        };
        let not_started = |error: std::io::Error| CommandError::NotStarted {
            program: program.to_owned(),
            reason: error.to_string(),
        };
        let mut child = command
            .args(arguments)
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(not_started)?;
        let mut group = KillGroupOnDrop(child.id());
        let ended = timeout(Duration::from_secs(seconds), collect_output(&mut child)).await;
        if ended.is_ok() {
            group.0 = None;
        }
        match ended {
            Ok(Ok((status, output))) if status.success() => Ok(output),
            Ok(Ok((status, output))) => Err(CommandError::Failed {
                program: program.to_owned(),
                status: status.to_string(),
                text: error_text(&output),
            }),
            Ok(Err(error)) => Err(not_started(error)),
            Err(_) => Err(CommandError::TimedOut { program: program.to_owned(), seconds }),
        }
    }
}

/// Kills a process group when the wait for it is abandoned.
struct KillGroupOnDrop(Option<u32>);

impl Drop for KillGroupOnDrop {
    fn drop(&mut self) {
        let group = self.0.and_then(|id| i32::try_from(id).ok());
        if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
            // It fails where every process of the group has ended, which is as good.
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        }
    }
}

async fn collect_output(child: &mut Child) -> std::io::Result<(ExitStatus, CommandOutput)> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (mut stdout_bytes, mut stderr_bytes) = (Vec::new(), Vec::new());
    let status = {
        let read = async {
            tokio::join!(read_pipe(stdout, &mut stdout_bytes), read_pipe(stderr, &mut stderr_bytes))
        };
        tokio::pin!(read);
        tokio::select! {
            (stdout, stderr) = &mut read => {
                stdout?;
                stderr?;
                child.wait().await?
            }
            status = child.wait() => {
                // What it left in the background may hold the pipes open for ever.
                timeout(PIPE_DRAIN, &mut read).await.ok();
                status?
            }
        }
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((status, CommandOutput { stdout: text(stdout_bytes), stderr: text(stderr_bytes) }))
}

/// Reads a pipe to its end, so that the writer never blocks, and returns the beginning of it.
async fn read_pipe(
    pipe: Option<impl AsyncRead + Unpin>,
    bytes: &mut Vec<u8>,
) -> std::io::Result<()> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    (&mut pipe).take(MAX_OUTPUT_BYTES).read_to_end(bytes).await?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await.map(drop)
}

/// The last lines of what a failed program printed, on one line.
fn error_text(output: &CommandOutput) -> String {
    let from = if output.stderr.trim().is_empty() { &output.stdout } else { &output.stderr };
    let lines: Vec<&str> = from.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(ERROR_TEXT_LINES)..];
    last.join(" | ").chars().take(ERROR_TEXT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_does_not_end_in_time_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", pid.display());
        let slow = CommandRunner::Native.run("sh", &["-c", &script], 1).await.unwrap_err();
        assert_eq!(slow, CommandError::TimedOut { program: "sh".to_owned(), seconds: 1 });
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
        let output =
            CommandRunner::Native.query("head", &["-c", "6000000", "/dev/zero"], 20).await.unwrap();
        assert_eq!(output.stdout.len(), 4 << 20);
        let failed =
            CommandRunner::Native.query("sh", &["-c", "echo a; echo b >&2; exit 3"], 20).await;
        assert_eq!(failed.unwrap_err().to_string(), "sh failed with exit status: 3: b");
        let missing = CommandRunner::Native.query("no-such-program", &[], 5).await.unwrap_err();
        assert_eq!(missing.code(), "tool_missing");
    }
}
