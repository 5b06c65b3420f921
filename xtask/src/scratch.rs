//! Where the tests of a run keep their files: in memory, where there is enough of it.
//!
//! The store and the agent wait for the disk at each commit and each file that they place, as they
//! have to. Their tests wait with them, some thousand times, for files that are gone a moment later.
//! A file system in memory keeps every promise that a test can look at, and waits for nothing.
//!
//! As with the database (postgres.rs), a small shell that waits for the end of its standard input
//! removes the folder, however this program ends.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::proc;

/// Linux keeps a file system in memory there for every program.
const IN_MEMORY: &str = "/dev/shm";
/// KiB that the file system has to have room for: several times what the tests need at once.
const ROOM_KIB: u64 = 4 << 20;
/// KiB of memory that have to be free besides, for what is started from there.
const MEMORY_KIB: u64 = 8 << 20;

const WATCHDOG: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
rm -rf -- "$1"
"#;

/// A folder in memory; dropping it removes it.
pub(crate) struct Scratch {
    folder: PathBuf,
    watchdog: Child,
}

impl Scratch {
    /// Makes one; None where the caller named a place in `TMPDIR`, or where this machine has no room
    /// for it, and the tests keep their files where every program does.
    ///
    /// # Errors
    /// A sentence, where the folder or the shell that removes it cannot be made.
    pub(crate) fn make() -> Result<Option<Self>, String> {
        if proc::env("TMPDIR").is_some() || !is_fit(Path::new(IN_MEMORY)) {
            return Ok(None);
        }
        Self::make_in(Path::new(IN_MEMORY)).map(Some)
    }

    fn make_in(place: &Path) -> Result<Self, String> {
        let folder = place.join(format!("gpuaas-test-{}", std::process::id()));
        fs::create_dir(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", WATCHDOG, "watchdog"]).arg(&folder);
        // In a group of its own, an interrupt from the terminal does not reach it.
        shell.process_group(0).stdin(Stdio::piped());
        shell.stdout(Stdio::null()).stderr(Stdio::null());
        let watchdog = shell.spawn().map_err(|error| format!("cannot start /bin/sh: {error}"))?;
        Ok(Self { folder, watchdog })
    }

    /// What `TMPDIR` is to be.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Copies what failed tests left to where it takes no memory, to be looked at.
    pub(crate) fn save_leftovers(&self) {
        let left = fs::read_dir(&self.folder).is_ok_and(|mut entries| entries.next().is_some());
        let saved = std::env::temp_dir().join(self.folder.file_name().unwrap_or_default());
        let mut copy = Command::new("cp");
        copy.args(["-a", "--sparse=always", "--"]).arg(&self.folder).arg(&saved);
        if left && proc::works(&mut copy) {
            eprintln!("note: what failed tests left is in {}", saved.display());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        if self.watchdog.wait().is_err() {
            eprintln!("note: {} may be left behind", self.folder.display());
        }
    }
}

/// Whether a folder is a file system in memory, with room, from which programs may be started.
fn is_fit(folder: &Path) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let free = Command::new("df").args(["--output=avail", "-k", "--"]).arg(folder).output();
    let free = free.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let free = free.ok().and_then(|text| text.lines().nth(1)?.trim().parse::<u64>().ok());
    runs_programs_in_memory(&read("/proc/mounts"), folder)
        && free.is_some_and(|kib| kib >= ROOM_KIB)
        && available_kib(&read("/proc/meminfo")).is_some_and(|kib| kib >= MEMORY_KIB)
}

/// What proc(5) says of the mount at a folder. The last line counts: it covers those before.
fn runs_programs_in_memory(mounts: &str, folder: &Path) -> bool {
    let fields = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let at_folder = |row: &Vec<String>| row.get(1).is_some_and(|at| Path::new(at) == folder);
    mounts.lines().map(fields).rfind(at_folder).is_some_and(|row| {
        let options = row.get(3).map_or("", String::as_str);
        row.get(2).is_some_and(|kind| kind == "tmpfs")
            && !options.split(',').any(|option| option == "noexec" || option == "ro")
    })
}

fn available_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_system_in_memory_that_runs_programs_will_do() {
        let fits = |mounts: &str| runs_programs_in_memory(mounts, Path::new(IN_MEMORY));
        assert!(fits("tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n"));
        assert!(!fits("shm /dev/shm tmpfs rw,nosuid,nodev,noexec,size=65536k 0 0\n"));
        assert!(!fits("/dev/vda / ext4 rw 0 0\n"));
        let covered = "tmpfs /dev/shm tmpfs rw 0 0\n/dev/vdb /dev/shm ext4 rw 0 0\n";
        assert!(!fits(covered));
        assert_eq!(available_kib("MemFree: 1 kB\nMemAvailable:   12 kB\n"), Some(12));
    }

    #[test]
    fn it_is_gone_with_what_is_in_it() {
        let place = tempfile::tempdir().unwrap();
        let scratch = Scratch::make_in(place.path()).unwrap();
        let folder = scratch.folder().to_owned();
        fs::write(folder.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!folder.exists());
    }
}
