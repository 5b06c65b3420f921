//! `cargo xtask agent`: the node agent as nodes get it, one static executable.
//!
//! A static executable cannot load NVML; the agent asks nvidia-smi where there is one.

use std::fs;
use std::path::PathBuf;

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::static_build;

pub(crate) const HELP: &str = "\
Build the node agent as nodes get it: one static executable, and print where it is.

Usage: cargo xtask agent

Give it to a control plane with `gpuaas serve --agent-binary FILE`.";

const PACKAGE: &str = "gpuaas-node-agent";
const PROFILE: &str = "agent";
/// Limit of its size: every node fetches it at every deployment.
const MAX_BYTES: u64 = 10_000_000;

pub(crate) fn run(args: &[String]) -> Outcome {
    if let Some(unknown) = args.first() {
        return Err(format!("there is no argument `{unknown}`; see cargo xtask agent --help"));
    }
    let program = build(&Workspace::load(Depth::Own)?)?;
    println!("{}", program.display());
    Ok(std::process::ExitCode::SUCCESS)
}

/// Builds it and returns its path.
pub(crate) fn build(workspace: &Workspace) -> Result<PathBuf, String> {
    let program = static_build::build(workspace, "agent", (PACKAGE, PACKAGE), PROFILE)?;
    let bytes = fs::metadata(&program).map_err(|e| format!("{}: {e}", program.display()))?.len();
    if bytes > MAX_BYTES {
        return Err(format!("the agent has {bytes} bytes, and {MAX_BYTES} is the limit"));
    }
    Ok(program)
}
