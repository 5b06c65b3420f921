//! `cargo xtask real-host`: the bundles on a host that is real but for its hardware.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::{agent, proc, setup};

pub(crate) const HELP: &str = "\
Boot a real host, and run the bundles on it twice.

Usage: cargo xtask real-host [--rootfs-only]

The system is made once from where this machine's apt gets its own, some 900 MB; the host is booted
by systemd-nspawn in namespaces of its own, with PCI and InfiniBand from the bundles' fixture.

As root on Debian or Ubuntu, what is missing of systemd-container, mmdebstrap and e2fsprogs is
installed; elsewhere it says what is missing, and ends with 1.";

pub(crate) fn run(args: &[String]) -> Outcome {
    let rootfs_only = match args {
        [] => false,
        [only] if only == "--rootfs-only" => true,
        [unknown, ..] => {
            return Err(format!("there is no argument `{unknown}`; see --help"));
        }
    };
    let workspace = Workspace::load(Depth::Own)?;
    setup::have(setup::REAL_HOST)?;
    let made = proc::status(&mut make_rootfs(&workspace))?;
    if !made.success() || rootfs_only {
        return Ok(proc::exit_code(made));
    }
    let agent = agent::build(&workspace)?;
    let archives = archives(&workspace)?;
    let mut prove = Command::new(workspace.root.join("bundles/real-host/prove.sh"));
    prove.arg(agent).arg(rootfs(&workspace)).env("GPUAAS_ARCHIVES", archives);
    let status = proc::status(&mut prove)?;
    Ok(if status.success() { ExitCode::SUCCESS } else { proc::exit_code(status) })
}

fn rootfs(workspace: &Workspace) -> PathBuf {
    workspace.target.join("real-host/rootfs")
}

/// Makes the hosts' system, unless it is there.
pub(crate) fn make_rootfs(workspace: &Workspace) -> Command {
    let mut make = Command::new(workspace.root.join("bundles/real-host/make-rootfs.sh"));
    make.arg(rootfs(workspace));
    make
}

/// The bundles as a node gets them, `NAME.tar`.
fn archives(workspace: &Workspace) -> Result<PathBuf, String> {
    let archives = workspace.target.join("real-host/archives");
    let failed = |error: std::io::Error| format!("{}: {error}", archives.display());
    std::fs::create_dir_all(&archives).map_err(failed)?;
    for name in ["h200-ib", "h200-slice-vm"] {
        let mut build = proc::cargo();
        build.args(["run", "--quiet", "--package", "gpuaas", "--", "bundle", "build", "--out"]);
        build.arg(&archives).arg(workspace.root.join("bundles").join(name));
        proc::quiet(build.current_dir(&workspace.root))?;
        let built = archives.join(format!("{name}-1.0.0.tar"));
        std::fs::rename(built, archives.join(format!("{name}.tar"))).map_err(failed)?;
    }
    Ok(archives)
}
