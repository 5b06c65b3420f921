//! Runs cases: a folder with a `case.yaml` each, as docs/cases.md says.
//!
//! A case prepares an input (an image, a host's tree, a simulated region behind a proxy), runs commands
//! of the product's ordinary executables, and compares their output with what it must and must not
//! contain. Nothing of the product is linked: what a case shows is what a user sees.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line speaks on stdout and stderr"
)]

mod case;
mod expected_text;
mod host_tree;
mod http_message;
mod image_archive;
mod maas_proxy;
mod region_lab;
mod runner;
mod shell;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::case::Case;
use crate::runner::{CaseFailure, Executables};

const HELP: &str = "\
Usage: field-cases --bin DIR --repository DIR [--folder DIR] [--keep] [NAME...]

Runs the cases of a folder [default: the repository's cases], or only the cases whose names start with NAME.";

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    tried: usize,
    passed: usize,
    failed: Vec<CaseFailure>,
}

struct Options {
    executables: Executables,
    folder: PathBuf,
    is_kept: bool,
    names: Vec<String>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match options(&args).and_then(|options| run(&options)) {
        Ok(report) => {
            println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
            if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(message) => {
            eprintln!("field-cases: {message}");
            ExitCode::from(2)
        }
    }
}

fn options(args: &[String]) -> Result<Options, String> {
    let (mut bin, mut repository, mut folder) = (None, None, None);
    let (mut is_kept, mut names) = (false, Vec::new());
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let slot = match arg.as_str() {
            "--keep" => {
                is_kept = true;
                continue;
            }
            "--bin" => &mut bin,
            "--repository" => &mut repository,
            "--folder" => &mut folder,
            option if option.starts_with('-') => {
                return Err(format!("unknown option {option}\n{HELP}"));
            }
            name => {
                names.push(name.to_owned());
                continue;
            }
        };
        let value = rest.next().ok_or_else(|| format!("{arg} requires a value\n{HELP}"))?;
        *slot = Some(absolute(Path::new(value))?);
    }
    let missing = |name: &str| format!("missing option {name}\n{HELP}");
    let repository = repository.ok_or_else(|| missing("--repository"))?;
    let folder = folder.unwrap_or_else(|| repository.join("cases"));
    let bin = bin.ok_or_else(|| missing("--bin"))?;
    Ok(Options { executables: Executables { bin, repository }, folder, is_kept, names })
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn run(options: &Options) -> Result<Report, String> {
    let cases = Case::all(&options.folder)?;
    let is_wanted = |case: &&Case| {
        options.names.is_empty()
            || options.names.iter().any(|name| case.name.starts_with(name.as_str()))
    };
    let mut report = Report { tried: 0, passed: 0, failed: Vec::new() };
    for case in cases.iter().filter(is_wanted) {
        report.tried += 1;
        let failures = runner::run(case, &options.executables, options.is_kept);
        match failures.is_empty() {
            true => report.passed += 1,
            false => report.failed.extend(failures),
        }
        let verdict =
            if report.failed.iter().any(|one| one.case == case.name) { "FAILS" } else { "passes" };
        eprintln!("{verdict:<7} {}", case.name);
    }
    if report.tried == 0 {
        return Err(format!(
            "no matching case in {}: expected NAME/case.yaml",
            options.folder.display()
        ));
    }
    Ok(report)
}
