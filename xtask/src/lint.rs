//! `cargo xtask lint`: every check of the sources, cheap ones first.

use std::process::ExitCode;

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::{decisions, graph, proc, source_lints, third_party};

pub(crate) const HELP: &str = "\
Check the sources. All parts run, also after one has failed.

Usage: cargo xtask lint [PART]...

Parts:
  sources  length of files, silenced lints, loose ends, leaked paths, fixed ports of
           tests, files that nothing compiles, licences, the dependency page
  graph    the crate graph against its table
  deny     licences, bans and sources of outside crates (deny.toml), where cargo-deny is
           installed
  fmt      cargo fmt, checking only
  clippy   cargo clippy over everything; warnings are errors

Exceptions to sources are in xtask/ratchet.txt, which may only shrink.";

type Part = fn(&Workspace) -> Result<Vec<String>, String>;

const PARTS: [(&str, Part); 5] = [
    ("sources", sources_and_decisions),
    ("graph", |workspace| Ok(graph::check(workspace))),
    ("deny", deny),
    ("fmt", fmt),
    ("clippy", clippy),
];

pub(crate) fn run(args: &[String]) -> Outcome {
    if let Some(unknown) = args.iter().find(|arg| PARTS.iter().all(|p| p.0 != **arg)) {
        return Err(format!("there is no part `{unknown}`; `cargo xtask lint --help` lists them"));
    }
    let workspace = Workspace::load(Depth::Resolved)?;
    let mut code = ExitCode::SUCCESS;
    for (name, part) in PARTS {
        if !args.is_empty() && !args.iter().any(|arg| arg == name) {
            continue;
        }
        let broken = part(&workspace).unwrap_or_else(|message| vec![message]);
        if broken.is_empty() {
            println!("lint: {name} ok");
            continue;
        }
        for line in broken {
            eprintln!("lint: {name}: {line}");
        }
        code = ExitCode::FAILURE;
    }
    Ok(code)
}

fn sources_and_decisions(workspace: &Workspace) -> Result<Vec<String>, String> {
    let mut broken = source_lints::check(workspace)?;
    broken.extend(decisions::check(workspace)?);
    Ok(broken)
}

/// Licences, bans and sources need no network; advisories want a database that is not kept here.
fn deny(workspace: &Workspace) -> Result<Vec<String>, String> {
    let mut cargo = proc::cargo();
    if !proc::works(cargo.args(["deny", "--version"])) {
        eprintln!("note: deny is skipped: cargo install cargo-deny");
        return Ok(Vec::new());
    }
    let args =
        ["deny", "--offline", "--log-level", "error", "check", "licenses", "bans", "sources"];
    let status = proc::status(proc::cargo().args(args).current_dir(&workspace.root))?;
    let advice = "see above; what is admitted is in deny.toml";
    Ok(if status.success() { Vec::new() } else { vec![advice.to_owned()] })
}

fn fmt(workspace: &Workspace) -> Result<Vec<String>, String> {
    // Names the files; the differences themselves are one `cargo fmt` away.
    let args = ["fmt", "--all", "--", "--check", "-l"];
    tool(&args, "rustfmt", "run cargo fmt on the files above", workspace)
}

/// Everything, then the executables as they ship. The second differs from the first in the package
/// `gpuaas` alone, which has the laboratory and the benchmarks in its tests.
fn clippy(workspace: &Workspace) -> Result<Vec<String>, String> {
    third_party::restore(workspace);
    let mut broken = Vec::new();
    for scope in [["--all-targets", "--keep-going"].as_slice(), &[]] {
        let args =
            [&["clippy", "--quiet", "--workspace"], scope, &["--", "-D", "warnings"]].concat();
        broken.extend(tool(&args, "clippy", "see above", workspace)?);
    }
    Ok(broken)
}

fn tool(
    args: &[&str],
    component: &str,
    advice: &str,
    workspace: &Workspace,
) -> Result<Vec<String>, String> {
    if !proc::works(proc::cargo().args([args[0], "--version"])) {
        return Err(format!("it is not installed: rustup component add {component}"));
    }
    let mut cargo = proc::cargo();
    let status = proc::status(cargo.args(args).current_dir(&workspace.root))?;
    Ok(if status.success() { Vec::new() } else { vec![advice.to_owned()] })
}
