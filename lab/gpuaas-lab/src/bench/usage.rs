//! Processor time and memory of processes, from `/proc` (proc(5)).

use std::path::Path;

use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;

/// The kernel reports processor time to user space in hundredths of a second on every
/// architecture that Linux still boots (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor seconds, user and system, that this process has used with all its threads.
///
/// # Errors
/// `usage_unreadable` where `/proc` is not mounted.
pub fn own_cpu_seconds() -> Result<f64, Failure> {
    cpu_seconds_of(std::process::id())
}

/// Processor seconds, user and system, that a process has used with all threads that it ever had.
///
/// # Errors
/// `usage_unreadable` where the process is gone or `/proc` is not mounted.
pub fn cpu_seconds_of(pid: u32) -> Result<f64, Failure> {
    let path = format!("/proc/{pid}/stat");
    let text = read(Path::new(&path))?;
    cpu_seconds(&text).ok_or_else(|| unreadable(&path, "too few fields"))
}

/// Resident memory of a process, in bytes.
///
/// # Errors
/// `usage_unreadable` where the process is gone or `/proc` is not mounted.
pub fn rss_bytes(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/status");
    let text = read(Path::new(&path))?;
    kib_of(&text, "VmRSS:").ok_or_else(|| unreadable(&path, "no VmRSS line"))
}

/// Largest resident memory of a process so far, in bytes.
///
/// # Errors
/// `usage_unreadable` where the process is gone or `/proc` is not mounted.
pub fn peak_rss_bytes(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/status");
    let text = read(Path::new(&path))?;
    kib_of(&text, "VmHWM:").ok_or_else(|| unreadable(&path, "no VmHWM line"))
}

/// Has the kernel count the largest resident memory of a process from now on (proc(5),
/// `clear_refs`).
///
/// # Errors
/// `usage_unreadable` where the process is gone or somebody else's.
pub fn reset_peak_rss(pid: u32) -> Result<(), Failure> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, "5").map_err(|error| unreadable(&path, &error.to_string()))
}

/// Files that a process may open at once.
///
/// # Errors
/// `usage_unreadable` where the process is gone or `/proc` is not mounted.
pub fn open_files_limit(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/limits");
    let text = read(Path::new(&path))?;
    soft_limit(&text, "Max open files")
        .ok_or_else(|| unreadable(&path, "no \"Max open files\" line"))
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| unreadable(&path.display().to_string(), &error.to_string()))
}

fn unreadable(path: &str, why: &str) -> Failure {
    Failure::local(CommandCode::UsageUnreadable, format!("{path}: {why}"))
}

/// `utime + stime`: the 14th and 15th field. The second field is the program's name in
/// parentheses and may hold blanks, so fields are counted from its end.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// A line of `status`, in bytes.
fn kib_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The soft limit in a line of `limits`.
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let stat = "42 (gpu a) s) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 7 8 20 0 3 0 100 0 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("42 (x) S 1"), None);
        assert_eq!(kib_of("VmPeak:\t 9 kB\nVmHWM:\t  12 kB\n", "VmHWM:"), Some(12_288));
        assert_eq!(kib_of("VmPeak:\t 9 kB\n", "VmHWM:"), None);
        let limits = "Max data size  unlimited  unlimited  bytes\nMax open files  400  4096  files";
        assert_eq!(soft_limit(limits, "Max open files"), Some(400));
        assert_eq!(soft_limit(limits, "Max data size"), Some(u64::MAX));
    }

    #[test]
    fn this_process_has_used_something() {
        assert!(own_cpu_seconds().unwrap() >= 0.0);
        assert!(peak_rss_bytes(std::process::id()).unwrap() > 100_000);
        assert!(peak_rss_bytes(u32::MAX).is_err() && rss_bytes(u32::MAX).is_err());
        let own = std::process::id();
        assert!(rss_bytes(own).unwrap() > 100_000 && cpu_seconds_of(own).unwrap() >= 0.0);
        assert!(cpu_seconds_of(u32::MAX).is_err());
        assert!(open_files_limit(own).unwrap() > 0 && reset_peak_rss(own).is_ok());
        assert!(open_files_limit(u32::MAX).is_err() && reset_peak_rss(u32::MAX).is_err());
    }
}
