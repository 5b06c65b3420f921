//! `cargo xtask cases`: cases from the field against the ordinary executables.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::{lab, proc, third_party};

pub(crate) const HELP: &str = "\
Run cases from the field against the product's executables, and compare what they print.

Usage: cargo xtask cases [--folder DIR] [--bin DIR] [--keep] [NAME...]

--folder DIR  Folder of cases, each a folder with a case.yaml (docs/cases.md) [default: cases]
--bin DIR     Take gpuaas and gpuaas-node-agent from there [default: build them in the profile lab]
--keep        Keep the folders that commands ran in
NAME          Only cases whose names begin with it

Prints one JSON object: tried, passed, failed (case, command, what was expected, the output).
Exit code 0: every case passed.";

/// Builds what is missing, then becomes the program that runs cases. It is a crate of its own, because
/// this one has to build in seconds.
pub(crate) fn run(args: &[String]) -> Outcome {
    let workspace = Workspace::load(Depth::Own)?;
    third_party::restore(&workspace);
    let mut rest = args.to_vec();
    let bin = match rest.iter().position(|arg| arg == "--bin") {
        Some(at) if at + 1 < rest.len() => {
            let named = rest.drain(at..at + 2).next_back();
            PathBuf::from(named.unwrap_or_default())
        }
        Some(_) => return Err("--bin has no value; write --bin DIR".to_owned()),
        None => match lab::build(&workspace)? {
            Ok(folder) => folder,
            Err(code) => return Ok(code),
        },
    };
    let mut build = proc::cargo();
    let status = proc::status(
        build.args(["build", "-q", "-p", "field-cases"]).current_dir(&workspace.root),
    )?;
    if !status.success() {
        return Ok(proc::exit_code(status));
    }
    third_party::save(&workspace);
    let program = workspace.target.join("debug/field-cases");
    let mut command = Command::new(&program);
    command.arg("--bin").arg(&bin).arg("--repository").arg(&workspace.root).args(rest);
    Err(format!("cannot start {}: {}", program.display(), command.exec()))
}
