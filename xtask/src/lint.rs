//! `cargo xtask lint`: every check of the sources, cheap ones first.

use std::process::ExitCode;

use crate::metadata::{Depth, Workspace};
use crate::{Outcome, decisions, graph, house, proc};

pub(crate) const HELP: &str = "\
Check the sources. All parts run, also after one has failed.

Usage: cargo xtask lint [PART]...

Parts:
  house    length of files, silenced lints, loose ends, leaked paths, licences, the
           dependency page; exceptions in xtask/ratchet.txt, which may only shrink
  graph    the crate graph against its table
  fmt      cargo fmt, checking only
  clippy   cargo clippy over everything, warnings are errors";

type Part = fn(&Workspace) -> Result<Vec<String>, String>;

const PARTS: [(&str, Part); 4] = [
    ("house", house_and_decisions),
    ("graph", |workspace| Ok(graph::check(workspace))),
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

fn house_and_decisions(workspace: &Workspace) -> Result<Vec<String>, String> {
    let mut broken = house::check(workspace)?;
    broken.extend(decisions::check(workspace)?);
    Ok(broken)
}

fn fmt(workspace: &Workspace) -> Result<Vec<String>, String> {
    // Names the files; the differences themselves are one `cargo fmt` away.
    let args = ["fmt", "--all", "--", "--check", "-l"];
    tool(&args, "rustfmt", "run cargo fmt on the files above", workspace)
}

fn clippy(workspace: &Workspace) -> Result<Vec<String>, String> {
    let args = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--keep-going",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    tool(&args, "clippy", "see above", workspace)
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
