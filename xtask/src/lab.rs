//! `cargo xtask lab`: from a fresh clone to the first onboarding in one command.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::proc;

/// The profile of Cargo.toml, which is the name of its folder below the target folder, too.
const PROFILE: &str = "lab";
/// Both executables with what the laboratory needs of them, and no more: no benchmarks.
const BUILD: [&str; 10] = [
    "build",
    "--profile",
    PROFILE,
    "--no-default-features",
    "--features",
    "gpuaas/lab",
    "-p",
    "gpuaas",
    "-p",
    "gpuaas-node-agent",
];

/// Builds both executables, then becomes `gpuaas lab`: the agent lies beside it, which is
/// where the lab looks for the one that its simulated hosts start.
pub(crate) fn run(args: &[String]) -> Outcome {
    let workspace = Workspace::load(Depth::Own)?;
    let mut build = proc::cargo();
    let status = proc::status(build.args(BUILD).current_dir(&workspace.root))?;
    if !status.success() {
        return Ok(proc::exit_code(status));
    }
    let program = workspace.target.join(PROFILE).join("gpuaas");
    let error = Command::new(&program).arg("lab").args(args).exec();
    Err(format!("cannot start {}: {error}", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The README's next block takes the executables from where this command puts them.
    #[test]
    fn the_readme_goes_on_with_what_was_built() {
        let readme = include_str!("../../README.md");
        assert!(readme.contains(&format!("$PWD/target/{PROFILE}:")), "the quick start's PATH");
        let manifest = include_str!("../../Cargo.toml");
        assert!(manifest.contains(&format!("\n[profile.{PROFILE}]\n")));
        assert!(BUILD.contains(&"gpuaas/lab") && !BUILD.contains(&"--release"));
    }
}
