//! `cargo xtask lab`: from a fresh clone to the first onboarding in one command.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::debug_info;
use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::proc;

/// Builds both executables, then becomes `gpuaas lab`: the agent lies beside it, which is
/// where the lab looks for the one that its simulated hosts start.
pub(crate) fn run(args: &[String]) -> Outcome {
    let workspace = Workspace::load(Depth::Own)?;
    let mut build = proc::cargo();
    build.args(["build", "--release", "-p", "gpuaas", "-p", "gpuaas-node-agent"]);
    let status = proc::status(build.current_dir(&workspace.root))?;
    if !status.success() {
        return Ok(proc::exit_code(status));
    }
    let release = workspace.target.join("release");
    let program = release.join("gpuaas");
    debug_info::split_all(&[program.clone(), release.join("gpuaas-node-agent")])?;
    let error = Command::new(&program).arg("lab").args(args).exec();
    Err(format!("cannot start {}: {error}", program.display()))
}
