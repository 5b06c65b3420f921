//! `cargo xtask lab`: from a fresh clone to the first onboarding in one command.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::{proc, third_party};

/// The profile of Cargo.toml, which is the name of its folder below the target folder, too.
const PROFILE: &str = "lab";
/// Both executables with what the laboratory needs of them, and no more: no benchmarks.
const BUILD: [&str; 9] = [
    "build",
    "--profile",
    PROFILE,
    "--features",
    // Not `gpuaas/lab`: its own dev-dependency takes that name, and the feature would be for tests alone.
    "lab",
    "-p",
    "gpuaas",
    "-p",
    "gpuaas-node-agent",
];

/// Builds both executables, then becomes `gpuaas lab`: the agent lies beside it, which is
/// where the lab looks for the one that its simulated hosts start.
pub(crate) fn run(args: &[String]) -> Outcome {
    let workspace = Workspace::load(Depth::Own)?;
    third_party::restore(&workspace);
    let folder = match build(&workspace)? {
        Ok(folder) => folder,
        Err(code) => return Ok(code),
    };
    third_party::save(&workspace);
    let program = folder.join("gpuaas");
    let error = Command::new(&program).arg("lab").args(args).exec();
    Err(format!("cannot start {}: {error}", program.display()))
}

/// Builds both executables, and returns their folder, or cargo's exit code.
pub(crate) fn build(workspace: &Workspace) -> Result<Result<PathBuf, ExitCode>, String> {
    let mut build = proc::cargo();
    let status = proc::status(build.args(BUILD).current_dir(&workspace.root))?;
    let folder = workspace.target.join(PROFILE);
    Ok(if status.success() { Ok(folder) } else { Err(proc::exit_code(status)) })
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
        assert!(!BUILD.contains(&"--release"));
    }

    /// Cargo takes an unknown feature of a dependency without a word, so cargo is asked what it would build.
    #[test]
    fn what_is_built_has_the_laboratory_in_it() {
        let selection = BUILD.iter().skip_while(|word| **word != "--features");
        let mut tree = proc::cargo();
        tree.args(["tree", "--locked", "--offline", "--edges", "no-dev", "--invert", "gpuaas-lab"]);
        let output = tree.args(selection).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(printed.lines().any(|line| line.contains("── gpuaas v")), "{printed}{said}");
    }
}
