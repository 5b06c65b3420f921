//! Programs that make and try images: in namespaces of their own, with a limit, and their last words kept.

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Output, Stdio};

/// Bytes of a program's output that an error keeps.
const TAIL_BYTES: usize = 2000;
/// What `timeout` ends with where the limit was reached, and after the program had to be killed.
const TIMED_OUT: [i32; 2] = [124, 137];

/// Why a program did not end well.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// The program that limits others is not here.
    #[error("there is no {0}")]
    Missing(&'static str),
    /// It ended with an error.
    #[error("{step}: {output}")]
    Step {
        /// What was done.
        step: &'static str,
        /// What it said last.
        output: String,
    },
    /// It took too long.
    #[error("{step} did not end within {seconds} s")]
    TimedOut {
        /// What was done.
        step: &'static str,
        /// Its limit in seconds.
        seconds: u64,
    },
    /// It cannot be started.
    #[error(transparent)]
    Files(#[from] io::Error),
}

/// What a program sees of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Mounts, processes, host name and message queues of its own; the network, for archives of
    /// packages.
    WithNetwork,
    /// That, and no network.
    WithoutNetwork,
}

/// A program with its limit.
pub(crate) struct Tool {
    step: &'static str,
    seconds: u64,
    command: Command,
}

impl Tool {
    /// A program that takes at most `seconds`. What it mounts and starts ends with it.
    pub(crate) fn isolated(
        step: &'static str,
        program: &str,
        isolation: Isolation,
        seconds: u64,
    ) -> Self {
        let mut tool = Self::plain(step, "unshare", seconds);
        tool.command.args(["--mount", "--propagation", "private", "--pid", "--fork"]);
        tool.command.args(["--kill-child", "--mount-proc", "--uts", "--ipc"]);
        if isolation == Isolation::WithoutNetwork {
            tool.command.arg("--net");
        }
        tool.command.arg("--").arg(program);
        tool
    }

    /// A program that takes at most `seconds`, in the namespaces of this process.
    pub(crate) fn plain(step: &'static str, program: &str, seconds: u64) -> Self {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", &seconds.to_string(), program]);
        // What a build makes must not depend on who builds.
        command.env_clear().env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null());
        Self { step, seconds, command }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it; what it wrote to stdout.
    ///
    /// # Errors
    /// [`ToolError::Step`] with the end of its output, [`ToolError::TimedOut`].
    pub(crate) fn run(mut self) -> Result<String, ToolError> {
        let output = self.command.output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ToolError::Missing("coreutils"),
            _ => ToolError::Files(error),
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        if output.status.code().is_some_and(|code| TIMED_OUT.contains(&code)) {
            return Err(ToolError::TimedOut { step: self.step, seconds: self.seconds });
        }
        Err(ToolError::Step { step: self.step, output: last_words(&output) })
    }
}

fn last_words(output: &Output) -> String {
    let all = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text = String::from_utf8_lossy(&all[all.len().saturating_sub(TAIL_BYTES)..]).into_owned();
    let text = text.trim();
    if text.is_empty() { output.status.to_string() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_last_words_become_errors() {
        let failed = Tool::plain("try", "sh", 20).arg("-c").arg("echo so; exit 3").run();
        assert_eq!(failed.unwrap_err().to_string(), "try: so");
        let slow = Tool::plain("wait", "sleep", 1).arg("60").run().unwrap_err();
        assert_eq!(slow.to_string(), "wait did not end within 1 s");
        let text = Tool::plain("name", "sh", 20).arg("-c").arg("echo $HOME$X").env("X", "y");
        assert_eq!(text.run().unwrap(), "y\n");
    }
}
