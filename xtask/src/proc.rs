//! Starting other programs, and the little that is read from the environment.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

/// Reads one environment variable; an empty one counts as unset.
pub(crate) fn env(name: &str) -> Option<OsString> {
    #[expect(clippy::disallowed_methods, reason = "this is the executable's argument room")]
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The cargo that started this program.
///
/// `cargo run` describes the package `xtask` in the environment. Build scripts such as ring's
/// are told to run again when those variables change, so leaving them set would rebuild half of
/// the tree each time that a developer alternates between `cargo build` and `cargo xtask`.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Where `name` lies on the `PATH`, or in the folders of the system's own tools.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// Runs a program with our own stdout and stderr.
///
/// # Errors
/// A sentence, where the program cannot be started.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus, String> {
    let status = command.stdin(Stdio::null()).status();
    status.map_err(|error| unstartable(command, &error))
}

/// Runs a program quietly; `Err` holds what it printed, or why it did not start.
pub(crate) fn quiet(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| unstartable(command, &error))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Ok(stdout.into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{stdout}{stderr}"))
}

/// True where the program starts and ends with code 0, whatever it prints.
pub(crate) fn works(command: &mut Command) -> bool {
    quiet(command).is_ok()
}

/// The exit code a shell would report: 128 and the signal for a killed program.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// The last `count` lines of a long answer.
pub(crate) fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn unstartable(command: &Command, error: &std::io::Error) -> String {
    let program = command.get_program().to_string_lossy();
    format!("cannot start {program}: {error}")
}

/// True for root, who may install packages and may not run a PostgreSQL server.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_program_reports_its_signal_like_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(9)), ExitCode::from(137));
        assert_eq!(exit_code(ExitStatus::from_raw(4 << 8)), ExitCode::from(4));
    }

    #[test]
    fn the_tail_keeps_the_last_lines() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a\n", 5), "a");
    }

    #[test]
    fn a_failing_program_hands_back_what_it_said() {
        let said = quiet(Command::new("sh").args(["-c", "echo one; echo two >&2; exit 3"]));
        assert_eq!(said, Err("one\ntwo\n".to_owned()));
        assert!(!works(&mut Command::new("/nonexistent/program")));
    }
}
