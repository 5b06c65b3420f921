//! Programs that make and try images: in namespaces of their own, with a limit, and their last words kept.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

/// Bytes of a program's output that an error keeps.
const TAIL_BYTES: usize = 2000;
/// What `timeout` ends with where the limit was reached, and after the program had to be killed.
const TIMED_OUT: [i32; 2] = [124, 137];

/// Folders that programs are looked for in.
const FOLDERS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Debian's packages of programs that have another name.
const PACKAGES: [(&str, &str); 12] = [
    ("/usr/lib/apt/apt-helper", "apt"),
    (FIRMWARE_FOR_QEMU, "ovmf"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.vfat", "dosfstools"),
    ("qemu-img", "qemu-utils"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("sfdisk", "fdisk"),
    ("systemd-nspawn", "systemd-container"),
    ("timeout", "coreutils"),
    ("truncate", "coreutils"),
    ("unshare", "util-linux"),
    ("xz", "xz-utils"),
];
/// What an emulated machine with UEFI needs beside QEMU.
pub(crate) const FIRMWARE_FOR_QEMU: &str = "UEFI firmware for QEMU";

/// Why this host did not do a step.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// A program or a file that steps need is not here.
    #[error("{0} is not installed")]
    Missing(&'static str),
    /// Who asks is not root.
    #[error("running as user {0}: expected root")]
    NotRoot(u32),
    /// It ended with an error.
    #[error("{step}: {output}")]
    Step {
        /// What was done.
        step: &'static str,
        /// What it said last.
        output: String,
    },
    /// It took too long.
    #[error("{step}: timed out after {seconds} s")]
    TimedOut {
        /// What was done.
        step: &'static str,
        /// Its limit in seconds.
        seconds: u64,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    Files(#[from] io::Error),
}

/// Debian's package of a program.
pub(crate) fn package_of(tool: &'static str) -> &'static str {
    let known = PACKAGES.iter().find(|(name, _)| *name == tool);
    known.map_or(tool, |(_, package)| package)
}

/// Whether root asks, and all of these programs are here.
///
/// # Errors
/// [`ToolError::NotRoot`], [`ToolError::Missing`].
pub(crate) fn need_root_and(tools: &[&'static str]) -> Result<(), ToolError> {
    let user = rustix::process::geteuid();
    if !user.is_root() {
        return Err(ToolError::NotRoot(user.as_raw()));
    }
    tools.iter().try_for_each(|tool| need(tool))
}

/// Whether a program is here, by its name or its path.
///
/// # Errors
/// [`ToolError::Missing`].
pub(crate) fn need(tool: &'static str) -> Result<(), ToolError> {
    let is_here = FOLDERS.iter().any(|folder| Path::new(folder).join(tool).exists());
    is_here.then_some(()).ok_or(ToolError::Missing(tool))
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
            io::ErrorKind::NotFound => ToolError::Missing("timeout"),
            _ => ToolError::Files(error),
        })?;
        self.judge(&output)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it as a filter: `write` gives it its input, and its output is the file's.
    ///
    /// # Errors
    /// As [`Tool::run`]; what is in the file is of no use then.
    pub(crate) fn filter(
        mut self,
        write: impl FnOnce(&mut ChildStdin) -> io::Result<()>,
        output: File,
    ) -> Result<(), ToolError> {
        self.command.stdin(Stdio::piped()).stdout(output).stderr(Stdio::piped());
        let mut child = self.command.spawn()?;
        // Dropped at its end, which the program sees as the end of its input.
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| write(&mut stdin));
        // A program that ends early says why better than the broken pipe does.
        self.judge(&child.wait_with_output()?)?;
        Ok(written?)
    }

    /// Starts it; its output is to be read.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn reader(mut self) -> io::Result<Child> {
        self.command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    }

    fn judge(&self, output: &Output) -> Result<(), ToolError> {
        if output.status.success() {
            return Ok(());
        }
        if output.status.code().is_some_and(|code| TIMED_OUT.contains(&code)) {
            return Err(ToolError::TimedOut { step: self.step, seconds: self.seconds });
        }
        Err(ToolError::Step { step: self.step, output: last_words(output) })
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
    use std::io::Write as _;

    use super::*;

    #[test]
    fn limits_and_last_words_become_errors() {
        let failed = Tool::plain("try", "sh", 20).arg("-c").arg("echo so; exit 3").run();
        assert_eq!(failed.unwrap_err().to_string(), "try: so");
        let slow = Tool::plain("wait", "sleep", 1).arg("60").run().unwrap_err();
        assert_eq!(slow.to_string(), "wait: timed out after 1 s");
        let text = Tool::plain("name", "sh", 20).arg("-c").arg("echo $HOME$X").env("X", "y");
        assert_eq!(text.run().unwrap(), "y\n");
    }

    #[test]
    fn a_filter_writes_a_file_and_says_why_it_ended_early() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let upper = Tool::plain("try", "tr", 20).arg("a-z").arg("A-Z");
        upper.filter(|input| input.write_all(b"so"), file.reopen().unwrap()).unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "SO");
        let ends = Tool::plain("try", "sh", 20).arg("-c").arg("echo full >&2; exit 1");
        let much = |input: &mut ChildStdin| input.write_all(&vec![0; 1 << 20]);
        let error = ends.filter(much, file.reopen().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "try: full");
    }

    #[test]
    fn the_package_that_is_named_has_the_program() {
        let plain = ["gpg", "gpgv", "mmdebstrap", "tar", "bzip2"];
        let tools =
            PACKAGES.iter().map(|(tool, _)| *tool).filter(|tool| *tool != FIRMWARE_FOR_QEMU);
        for tool in tools.chain(plain) {
            let package = package_of(tool);
            let mut dpkg = Command::new("dpkg-query");
            match dpkg.args(["-L", package]).output() {
                Ok(listed) if listed.status.success() => {
                    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
                    let name = tool.rsplit('/').next().unwrap();
                    let has = listed.lines().any(|path| path.ends_with(&format!("/{name}")));
                    assert!(has, "{package} has no {tool}: {listed}");
                    need(tool).unwrap();
                }
                _ => test_report::skip("dpkg", format!("{package} is not installed by dpkg here")),
            }
        }
        assert_eq!(need("no-such-tool").unwrap_err().to_string(), "no-such-tool is not installed");
    }
}
