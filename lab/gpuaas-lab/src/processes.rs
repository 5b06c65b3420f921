//! Other processes of this program, found by what they were started as.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// The arguments of a process, its program's name first; none where it is gone.
#[must_use]
pub fn arguments(pid: u32) -> Vec<Vec<u8>> {
    let path = Path::new("/proc").join(pid.to_string()).join("cmdline");
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

/// Whether a process runs this subcommand, and is not another one that got its number.
#[must_use]
pub fn is(pid: u32, command: &str) -> bool {
    arguments(pid).get(1).is_some_and(|argument| argument == command.as_bytes())
}

/// Processes that run this subcommand.
#[must_use]
pub fn named(command: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| is(*pid, command))
        .collect()
}

/// Sends a signal; a process that is gone already is no failure.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(target) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        kill_process(target, signal).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_known_by_its_first_argument() {
        let mut child = Command::new("cat").arg("-").stdin(Stdio::piped()).spawn().unwrap();
        // The kernel lets the parent go on a little before the arguments can be read.
        while !is(child.id(), "-") {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        assert!(named("-").contains(&child.id()));
        assert!(!is(child.id(), "serve"));
        signal(child.id(), Signal::KILL);
        assert!(!child.wait().unwrap().success());
        assert!(!is(u32::MAX, "serve"));
        signal(u32::MAX, Signal::KILL);
    }
}
