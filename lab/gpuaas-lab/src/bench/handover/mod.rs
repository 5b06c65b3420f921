//! `gpuaas bench handover`: what a tenant's data become when a host is made ready for the next one.
//!
//! A folder stands for a host. A tenant writes marked data to every place where tenants write: its own
//! folders, homes, keys, crontabs, containers, data disks, swap, temporary files, and places that no
//! list names. Then the agent's own task runs, and the marked bytes that are left are counted. Its
//! findings are held against them: what it says it emptied has to be empty, and what it leaves it has
//! to name. Then the same is done to a deployed host by the control plane, over MAAS ([`deployed`]).

mod deployed;
mod marks;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_node_agent::env::AgentEnv;
use gpuaas_node_agent::host::Host;
use gpuaas_node_agent::tasks;
use gpuaas_types::agent::{Finding, KEPT_PREFIX, TaskSpec};
use host_facts::HostRoot;
use serde::Serialize;

use self::deployed::DeployedMode;
use self::marks::{EMPTY_PREFIX, marked_files, not_made, plant};
use crate::arguments::BenchHandoverArgs;
use crate::control_plane::ControlPlaneLauncher;

/// What became of the marked data.
#[derive(Debug, Serialize)]
pub struct HandoverReport {
    /// Bytes of marks that the tenant wrote to each host.
    pub bytes_marked: u64,
    /// Bytes of marks that each mode left. `soft_reset` and `storage_cleanup` are of the agent alone;
    /// the others are runs on a deployed host.
    pub bytes_left_by_mode: BTreeMap<&'static str, u64>,
    /// Places that the agent said it emptied, and runs whose history says that disks were erased.
    pub said_clean: usize,
    /// Files with marks below a place that was said to be emptied, and files with marks in no place
    /// that was named as left.
    pub lied: usize,
    /// Those files.
    pub lies: Vec<String>,
}

impl HandoverReport {
    fn add(&mut self, mode: DeployedMode) {
        self.bytes_left_by_mode.insert(mode.name, mode.bytes_left);
        self.said_clean += mode.said_clean;
        self.lies.extend(mode.lies.into_iter().map(|file| format!("{}: {file}", mode.name)));
        self.lied = self.lies.len();
    }
}

/// Runs the benchmark and prints its report.
///
/// # Errors
/// `test_host_unavailable` where the folders cannot be written; what keeps a region, a control plane
/// or a host from starting; `scenario_unset` where a run of the host did not succeed.
pub async fn run(
    args: BenchHandoverArgs,
    launcher: &dyn ControlPlaneLauncher,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut report = super::isolated_thread::run_isolated(async move || measure().await).await?;
    for mode in deployed::measure(launcher, terminal).await? {
        report.add(mode);
    }
    if args.json {
        return terminal.data(&super::report::json(&report)?);
    }
    let mut text = String::new();
    // Writing to a String cannot fail.
    writeln!(text, "bytes marked                    {}", report.bytes_marked).ok();
    for (mode, left) in &report.bytes_left_by_mode {
        writeln!(text, "left by {mode:<24}{left}").ok();
    }
    writeln!(text, "places reported clean           {}", report.said_clean).ok();
    writeln!(text, "false reports                   {}", report.lied).ok();
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
