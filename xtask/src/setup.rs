//! Finds what the tests want besides Rust, and installs what is missing where it may.
//!
//! Nothing here is required: a test whose tool is absent skips. What must not happen is that
//! nobody notices, so each absent tool ends in one line that says so, whatever the reason.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{postgres, proc};

struct Tool {
    /// What the notes call it.
    name: &'static str,
    /// The Debian and Ubuntu package that brings it.
    package: &'static str,
    present: fn() -> bool,
    /// Files to write before a first installation, so that a package which starts something
    /// by itself does not: `(path, content)`.
    guards: &'static [(&'static str, &'static str)],
}

const TOOLS: [Tool; 5] = [
    Tool {
        name: "postgresql",
        package: "postgresql",
        present: || postgres::binaries().is_some(),
        // Without this the package starts a cluster of its own on port 5432.
        guards: &[("/etc/postgresql-common/createcluster.conf", "create_main_cluster = false\n")],
    },
    Tool {
        name: "cloud-init",
        package: "cloud-init",
        present: || proc::find("cloud-init").is_some(),
        // Without this the machine's next boot would be configured by cloud-init.
        guards: &[("/etc/cloud/cloud-init.disabled", "")],
    },
    Tool {
        name: "shellcheck",
        package: "shellcheck",
        present: || proc::find("shellcheck").is_some(),
        guards: &[],
    },
    Tool {
        name: "python3-venv",
        package: "python3-venv",
        present: || proc::works(Command::new("python3").args(["-c", "import ensurepip, venv"])),
        guards: &[],
    },
    Tool { name: "curl", package: "curl", present: || proc::find("curl").is_some(), guards: &[] },
];

/// True for root, who may install packages and may not run a PostgreSQL server.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Installs what is missing, as far as this user and this machine allow, and prints a note for
/// each tool that is still missing afterwards.
pub(crate) fn ensure() {
    let missing: Vec<&Tool> = TOOLS.iter().filter(|tool| !(tool.present)()).collect();
    if missing.is_empty() {
        return;
    }
    if proc::find("apt-get").is_some() && is_root() {
        Apt::default().install(&missing);
    }
    let absent: Vec<&Tool> = missing.into_iter().filter(|t| !(t.present)()).collect();
    for tool in &absent {
        eprintln!("note: {} is not installed; its tests are skipped", tool.name);
    }
    if !absent.is_empty() {
        let packages: Vec<&str> = absent.iter().map(|tool| tool.package).collect();
        eprintln!("note: to run them: apt-get install {}", packages.join(" "));
    }
}

/// One use of apt-get: the package lists are fetched at most once, and only when needed.
#[derive(Default)]
struct Apt {
    updated: bool,
}

impl Apt {
    fn install(&mut self, tools: &[&Tool]) {
        for tool in tools {
            eprintln!("installing {} (apt-get)", tool.package);
            if let Err(said) = self.install_one(tool) {
                eprintln!(
                    "note: apt-get could not install {}: {}",
                    tool.package,
                    proc::tail(&said, 3)
                );
            }
        }
    }

    fn install_one(&mut self, tool: &Tool) -> Result<(), String> {
        for (path, content) in tool.guards {
            guard(Path::new(path), content)?;
        }
        let mut install = apt_get();
        install.args(["install", "-y", "--no-install-recommends", tool.package]);
        let first = proc::quiet(&mut install);
        if first.is_ok() || self.updated {
            return first.map(drop);
        }
        self.updated = true;
        proc::quiet(apt_get().arg("update"))?;
        proc::quiet(&mut install).map(drop)
    }
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(["-q", "-o", "DPkg::Lock::Timeout=120"])
        .env("DEBIAN_FRONTEND", "noninteractive")
        // The files of `guards` are ours; ucf must keep them without asking.
        .env("UCF_FORCE_CONFFOLD", "1");
    command
}

/// Writes a guard where the machine has no such file yet; an existing one is somebody's choice.
fn guard(path: &Path, content: &str) -> Result<(), String> {
    if path.exists() {
        return Ok(());
    }
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, content))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_never_replaces_a_choice() {
        let folder = std::env::temp_dir().join(format!("xtask-guard-{}", std::process::id()));
        let path = folder.join("etc/guard.conf");
        guard(&path, "ours\n").unwrap();
        guard(&path, "again\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours\n");
        fs::remove_dir_all(folder).unwrap();
    }
}
