//! A seeded laboratory for commands that show or test the console.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::proc;

/// A laboratory of three simulated servers, until it is dropped.
pub(crate) struct SeededLab {
    child: Child,
    children: Vec<String>,
    folder: PathBuf,
    /// Address of the control plane.
    pub(crate) server: String,
    /// File that holds the admin token.
    pub(crate) token_file: String,
}

impl Drop for SeededLab {
    fn drop(&mut self) {
        let signal = |signal: &str, process: &str| {
            // It may have ended.
            Command::new("kill").args([signal, process]).stderr(Stdio::null()).status().ok();
        };
        let id = self.id().to_string();
        signal("-CONT", &id);
        signal("-INT", &id);
        self.child.wait().ok();
        // A laboratory that was killed leaves its simulated region, which ends the hosts when it ends.
        for child in self.children.iter().filter(|child| runs_in(child, &self.folder)) {
            signal("-TERM", child);
        }
    }
}

/// Processes that a process started.
fn children(id: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Whether a process was started for this folder; another one may have got its number.
fn runs_in(process: &str, folder: &Path) -> bool {
    let folder = folder.display().to_string();
    fs::read_to_string(format!("/proc/{process}/cmdline")).is_ok_and(|line| line.contains(&folder))
}

impl SeededLab {
    /// Starts it, and waits until its machines are active.
    pub(crate) fn start(bin: &Path, scratch: &Path) -> Result<Self, String> {
        let mut command = Command::new(bin.join("gpuaas"));
        command.args(["lab", "--keep", "--seed", "1", "--speed", "120", "--data"]);
        let folder = scratch.join("lab");
        command.arg(&folder).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let child = child.map_err(|error| format!("cannot start the laboratory: {error}"))?;
        let (server, token_file) = (String::new(), String::new());
        let mut lab = Self { child, children: Vec::new(), folder, server, token_file };
        let stderr = lab.child.stderr.take().ok_or("the laboratory has no stderr")?;
        let (mut said, mut lines) = (String::new(), BufReader::new(stderr).lines());
        let mut addresses = 0;
        while addresses < 2 {
            let Some(Ok(line)) = lines.next() else {
                return Err(format!("the laboratory ended: {said}"));
            };
            let value = |name: &str| line.trim().strip_prefix(name).map(|v| v.trim().to_owned());
            if let Some(server) = value("control plane ") {
                lab.server = server;
            } else if let Some(file) = value("admin token ") {
                lab.token_file = file;
            } else if value("console ").is_some() {
                // The first is printed at the start, the second when everything is active.
                addresses += 1;
            }
            said = said + &line + "\n";
        }
        lab.children = children(lab.id());
        // Nobody reads on, and a writer that is not read would wait.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(lab)
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// An address that signs in and goes on to a page.
    pub(crate) fn address(&self, bin: &Path, page: &str) -> Result<String, String> {
        let mut open = Command::new(bin.join("gpuaas"));
        open.args(["console", "open", "--print", "--server", &self.server]);
        let printed = proc::quiet(open.args(["--token-file", &self.token_file]))?;
        let address = printed.lines().next().unwrap_or_default();
        Ok(format!("{address}?next={page}"))
    }
}
