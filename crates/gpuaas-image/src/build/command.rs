//! Programs that a build runs: in namespaces of their own, with a limit, and their last words kept.

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Output, Stdio};

use super::error::BuildError;

/// Bytes of a program's output that an error keeps.
const TAIL_BYTES: usize = 2000;
/// What `timeout` ends with where the limit was reached, and after the program had to be killed.
const TIMED_OUT: [i32; 2] = [124, 137];

/// What a program sees of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Isolation {
    /// Mounts, processes, host name and message queues of its own; the network, for archives of
    /// packages.
    WithNetwork,
    /// That, and no network.
    WithoutNetwork,
}

/// A program with its limit.
pub(super) struct Tool {
    step: &'static str,
    seconds: u64,
    command: Command,
}

impl Tool {
    /// A program that takes at most `seconds`. What it mounts and starts ends with it.
    pub(super) fn isolated(
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
    pub(super) fn plain(step: &'static str, program: &str, seconds: u64) -> Self {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", &seconds.to_string(), program]);
        // What a build makes must not depend on who builds.
        command.env_clear().env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null());
        Self { step, seconds, command }
    }

    pub(super) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it; what it wrote to stdout.
    ///
    /// # Errors
    /// [`BuildError::Step`] with the end of its output, [`BuildError::TimedOut`].
    pub(super) fn run(mut self) -> Result<String, BuildError> {
        let output = self.command.output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BuildError::ToolMissing("coreutils"),
            _ => BuildError::Files(error),
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        if output.status.code().is_some_and(|code| TIMED_OUT.contains(&code)) {
            return Err(BuildError::TimedOut { step: self.step, seconds: self.seconds });
        }
        Err(BuildError::Step { step: self.step, output: last_words(&output) })
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
        let error = failed.unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), ("image_build_failed", "try: so"));
        assert!(error.hint().contains("layers that are done are kept"));
        let slow = Tool::plain("wait", "sleep", 1).arg("60").run().unwrap_err();
        assert_eq!(slow.to_string(), "wait did not end within 1 s");
        let text = Tool::plain("name", "sh", 20).arg("-c").arg("echo $HOME$X").env("X", "y");
        assert_eq!(text.run().unwrap(), "y\n");
    }
}
