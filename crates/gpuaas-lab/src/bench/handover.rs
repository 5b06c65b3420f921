//! `gpuaas bench handover`: what a tenant's data become when the agent cleans its host.
//!
//! A folder stands for a host. A tenant writes marked data to every place where tenants write: its own
//! folders, homes, keys, crontabs, containers, data disks, swap, temporary files, and places that no
//! list names. Then the agent's own task runs, and the marked bytes that are left are counted. Its
//! findings are held against them: what it says it emptied has to be empty, and what it leaves it has
//! to name. A reimage is not measured here: MAAS erases the disks, and nothing here has any.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_node_agent::env::AgentEnv;
use gpuaas_node_agent::host::Host;
use gpuaas_node_agent::tasks;
use gpuaas_types::agent::{Finding, KEPT_PREFIX, TaskSpec};
use gpuaas_types::codes::CommandCode;
use host_facts::HostRoot;
use serde::Serialize;

use crate::arguments::BenchHandoverArgs;

/// What stands in everything that the tenant writes.
const MARK: &[u8] = b"tenant-4711 ";
/// What the name of a finding begins with that says that a folder was emptied.
const EMPTY_PREFIX: &str = "empty ";
/// Where the tenant writes, and how often the mark.
const PLANTED: [(&str, usize); 14] = [
    ("var/lib/gpuaas/tenant/work/data", 100),
    ("var/lib/gpuaas/scratch/0/data", 100),
    ("dev/shm/data", 10),
    ("home/tenant/.bashrc", 3),
    ("home/ubuntu/.ssh/authorized_keys", 2),
    ("root/.ssh/authorized_keys", 2),
    ("var/spool/cron/crontabs/root", 4),
    ("etc/cron.d/tenant", 4),
    ("var/lib/docker/containers/c1/config.v2.json", 20),
    ("var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/b1", 50),
    ("data/0/model.bin", 500),
    ("swapfile", 300),
    ("tmp/data", 8),
    ("var/tmp/data", 8),
];

/// What became of the marked data.
#[derive(Debug, Serialize)]
pub struct HandoverReport {
    /// Bytes of marks that the tenant wrote to each host.
    pub bytes_marked: u64,
    /// Bytes of marks that each mode left.
    pub bytes_left_by_mode: BTreeMap<&'static str, u64>,
    /// Places that the agent said it emptied.
    pub said_clean: usize,
    /// Files with marks below a place that was said to be emptied, and files with marks in no place
    /// that the agent named as left.
    pub lied: usize,
    /// Those files.
    pub lies: Vec<String>,
}

/// Runs the benchmark and prints its report.
///
/// # Errors
/// `test_host_unavailable` where the folders cannot be written.
pub async fn run(args: BenchHandoverArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let report = super::isolated_thread::run_isolated(async move || measure().await).await?;
    if args.json {
        return terminal.data(&super::report::json(&report)?);
    }
    let mut text = String::new();
    // Writing to a String cannot fail.
    writeln!(text, "bytes marked          {}", report.bytes_marked).ok();
    for (mode, left) in &report.bytes_left_by_mode {
        writeln!(text, "left by {mode:<14}{left}").ok();
    }
    writeln!(text, "places said clean     {}", report.said_clean).ok();
    writeln!(text, "lies                  {}", report.lied).ok();
    terminal.data(&text)
}

/// Cleans a host in each mode.
///
/// # Errors
/// As [`run`].
pub async fn measure() -> Result<HandoverReport, Failure> {
    let modes =
        [("soft_reset", TaskSpec::SoftReset {}), ("storage_cleanup", TaskSpec::StorageCleanup {})];
    let mut report = HandoverReport {
        bytes_marked: 0,
        bytes_left_by_mode: BTreeMap::new(),
        said_clean: 0,
        lied: 0,
        lies: Vec::new(),
    };
    for (mode, task) in modes {
        let dir = tempfile::tempdir().map_err(|error| not_made(&error))?;
        report.bytes_marked = plant(dir.path()).map_err(|error| not_made(&error))?;
        let host = Host::Root(HostRoot::new(dir.path()));
        let result = tasks::execute(&host, &AgentEnv::default(), &task).await;
        let left = marked_files(dir.path()).map_err(|error| not_made(&error))?;
        let bytes = left.iter().map(|(_, bytes)| bytes).sum();
        report.bytes_left_by_mode.insert(mode, bytes);
        let (said_clean, lies) = compare(&result.findings, &left);
        report.said_clean += said_clean;
        report.lies.extend(lies.into_iter().map(|file| format!("{mode}: {file}")));
    }
    report.lied = report.lies.len();
    Ok(report)
}

/// How many places were said to be clean, and the files that make a finding untrue.
fn compare(findings: &[Finding], left: &[(PathBuf, u64)]) -> (usize, Vec<String>) {
    let places = |prefix: &str| -> Vec<PathBuf> {
        let named = findings.iter().filter(|finding| finding.passed != Some(false));
        let named = named.filter_map(|finding| finding.name.strip_prefix(prefix));
        named.map(|place| PathBuf::from(place.trim_start_matches('/'))).collect()
    };
    let (clean, kept) = (places(EMPTY_PREFIX), places(KEPT_PREFIX));
    let within = |file: &Path, places: &[PathBuf]| places.iter().any(|one| file.starts_with(one));
    let lies = left.iter().filter(|(file, _)| within(file, &clean) || !within(file, &kept));
    (clean.len(), lies.map(|(file, _)| file.display().to_string()).collect())
}

/// Writes what a tenant leaves; the bytes of it.
fn plant(root: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for (path, times) in PLANTED {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap_or(root))?;
        fs::write(&file, MARK.repeat(times))?;
        bytes += (MARK.len() * times) as u64;
    }
    Ok(bytes)
}

/// Every file with marks, relative to the root, with the bytes of them.
fn marked_files(root: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
                continue;
            }
            let text = fs::read(entry.path())?;
            let marks = text.windows(MARK.len()).filter(|window| *window == MARK).count();
            if marks > 0 {
                let path = entry.path();
                let path = path.strip_prefix(root).unwrap_or(&path).to_owned();
                found.push((path, (marks * MARK.len()) as u64));
            }
        }
    }
    Ok(found)
}

fn not_made(error: &io::Error) -> Failure {
    Failure::local(CommandCode::TestHostUnavailable, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_called_clean_that_is_not() {
        let report = measure().await.unwrap();
        assert_eq!((report.lied, &report.lies), (0, &Vec::new()));
        assert!(report.said_clean >= 3, "{report:?}");
        let left = &report.bytes_left_by_mode;
        assert!(left["soft_reset"] < report.bytes_marked, "{report:?}");
        assert!(left["storage_cleanup"] < report.bytes_marked, "{report:?}");
    }

    /// What is said to be empty and is not, and what is left unnamed, both count.
    #[test]
    fn a_lie_is_found() {
        let finding =
            |name: &str, passed| Finding { name: name.to_owned(), passed, seen: String::new() };
        let left = [(PathBuf::from("home/a/b"), 12), (PathBuf::from("opt/c"), 12)];
        let said = [finding("empty /home", Some(true)), finding("kept /opt", None)];
        assert_eq!(compare(&said, &left), (1, vec!["home/a/b".to_owned()]));
        let silent = [finding("empty /home", Some(false)), finding("kept /home", None)];
        assert_eq!(compare(&silent, &left), (0, vec!["opt/c".to_owned()]));
    }
}
