//! `cargo xtask affected`: the tests that a change can break, and nothing else.

use std::collections::BTreeSet;
use std::process::Command;

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::{proc, suite};

pub(crate) const HELP: &str = "\
Run the tests of the crates that a change touches and of the crates that depend on them, and print what
was left out.

Usage: cargo xtask affected [--since REVISION] [--list]

The change is what differs from HEAD, untracked files included; with --since, from REVISION. Slow tests,
the system tests (package gpuaas-systems) and the simulated fleets (gpuaas-simulation) are left out, as
with `cargo xtask test --fast`. PostgreSQL is started if the store is affected.

--list prints the affected packages and runs nothing.";

/// Files outside the crates that crates read at compile time or in their tests: a prefix of their path,
/// and the packages that read them.
const READERS: &[(&str, &[&str])] = &[
    ("ARCHITECTURE.md", &["gpuaas"]),
    ("README.md", &["gpuaas", "xtask"]),
    ("book.toml", &["gpuaas"]),
    ("bundles/", &["gpuaas", "gpuaas-artifact", "gpuaas-lab", "gpuaas-node-agent", "gpuaas-api"]),
    ("docs/", &["gpuaas"]),
    ("docs/checks.md", &["gpuaas-types"]),
    ("docs/openapi.json", &["gpuaas-api", "gpuaas-console"]),
    ("docs/reference/", &["gpuaas-image", "gpuaas-types"]),
    ("docs/troubleshooting.md", &["gpuaas-types"]),
    ("lab/fuzz/", &["fuzz-targets"]),
    ("images/", &["gpuaas", "gpuaas-image"]),
    ("ops/", &["gpuaas", "gpuaas-types", "xtask"]),
    ("scripts/", &["gpuaas"]),
];
/// A change of these can break anything.
const EVERYTHING: &[&str] = &["Cargo.toml", "Cargo.lock", ".cargo/", ".config/", "clippy.toml"];
/// Packages whose tests run by `cargo xtask test` alone.
const LEFT_OUT: &[&str] = &["gpuaas-simulation", "gpuaas-systems"];
const STORE: &str = "gpuaas-store";

/// What a change affects.
#[derive(Debug, Default, PartialEq, Eq)]
struct Affected {
    packages: BTreeSet<String>,
    /// Changed files that no test reads.
    unread: Vec<String>,
}

pub(crate) fn run(args: &[String]) -> Outcome {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (since, list) = match words[..] {
        [] => ("HEAD", false),
        ["--list"] => ("HEAD", true),
        ["--since", since] => (since, false),
        ["--since", since, "--list"] | ["--list", "--since", since] => (since, true),
        _ => return Err("unknown arguments; see `cargo xtask affected --help`".to_owned()),
    };
    let workspace = Workspace::load(Depth::Own)?;
    let affected = affected(&workspace, &changed_files(&workspace, since)?);
    let (run, left_out): (Vec<&str>, Vec<&str>) =
        affected.packages.iter().map(String::as_str).partition(|name| !LEFT_OUT.contains(name));
    for file in &affected.unread {
        println!("no test reads {file}");
    }
    if !left_out.is_empty() {
        println!("left out: {} (cargo xtask test -p NAME)", left_out.join(", "));
    }
    if run.is_empty() {
        println!("no tests are affected by the changes since {since}");
        return Ok(std::process::ExitCode::SUCCESS);
    }
    println!("affected: {}", run.join(", "));
    if list {
        return Ok(std::process::ExitCode::SUCCESS);
    }
    let filter = run.iter().map(|name| format!("package({name})")).collect::<Vec<_>>().join(" or ");
    let request = suite::Request {
        fast: true,
        with_postgres: run.contains(&STORE),
        // All packages are built, so that cargo resolves the same features as for the whole suite.
        rest: vec!["-E", &filter],
        ..suite::Request::default()
    };
    suite::run_request(&workspace, &request)
}

fn changed_files(workspace: &Workspace, since: &str) -> Result<Vec<String>, String> {
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        proc::quiet(git.args(args).current_dir(&workspace.root))
            .map_err(|said| format!("git {}: {}", args.join(" "), said.trim()))
    };
    let tracked = git(&["diff", "--name-only", "--no-renames", "-z", since, "--"])?;
    let untracked = git(&["ls-files", "--others", "--exclude-standard", "-z"])?;
    let files = tracked.split('\0').chain(untracked.split('\0')).filter(|file| !file.is_empty());
    Ok(files.map(str::to_owned).collect())
}

fn affected(workspace: &Workspace, files: &[String]) -> Affected {
    let mut affected = Affected::default();
    for file in files {
        let touched = packages_of(workspace, file);
        if touched.is_empty() {
            affected.unread.push(file.clone());
        }
        affected.packages.extend(touched);
    }
    loop {
        let dependents: Vec<String> = workspace
            .crates
            .iter()
            .filter(|krate| {
                krate.dependencies.iter().any(|d| d.ours && affected.packages.contains(&d.name))
            })
            .map(|krate| krate.name.clone())
            .filter(|name| !affected.packages.contains(name))
            .collect();
        if dependents.is_empty() {
            return affected;
        }
        affected.packages.extend(dependents);
    }
}

/// The packages that a file is a part of, or that read it.
fn packages_of(workspace: &Workspace, file: &str) -> BTreeSet<String> {
    if EVERYTHING.iter().any(|path| file == *path || path.ends_with('/') && file.starts_with(path))
    {
        return workspace.crates.iter().map(|krate| krate.name.clone()).collect();
    }
    let path = workspace.root.join(file);
    let own = workspace
        .crates
        .iter()
        .filter(|krate| krate.manifest.parent().is_some_and(|folder| path.starts_with(folder)));
    let readers = READERS.iter().filter(|(prefix, _)| file.starts_with(prefix));
    own.map(|krate| krate.name.clone())
        .chain(readers.flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Crate, Dependency};

    fn workspace() -> Workspace {
        let krate = |name: &str, needs: &[(&str, bool)]| Crate {
            name: name.to_owned(),
            manifest: format!("/w/crates/{name}/Cargo.toml").into(),
            license: None,
            dependencies: needs
                .iter()
                .map(|(name, dev)| Dependency {
                    name: (*name).to_owned(),
                    dev: *dev,
                    ours: true,
                    features: Vec::new(),
                    default_features: true,
                })
                .collect(),
        };
        Workspace {
            root: "/w".into(),
            crates: vec![
                krate("gpuaas-types", &[]),
                krate("gpuaas-store", &[("gpuaas-types", false)]),
                krate("gpuaas-engine", &[("gpuaas-store", false)]),
                krate("gpuaas-image", &[]),
                krate("gpuaas-systems", &[("gpuaas-engine", true)]),
            ],
            ..Workspace::default()
        }
    }

    fn names(files: &[&str]) -> Vec<String> {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        affected(&workspace(), &files).packages.into_iter().collect()
    }

    #[test]
    fn a_change_reaches_the_crate_and_its_dependents_and_no_other() {
        let store = ["gpuaas-engine", "gpuaas-store", "gpuaas-systems"];
        assert_eq!(names(&["crates/gpuaas-store/src/run/lease.rs"]), store);
        assert_eq!(names(&["crates/gpuaas-image/src/lib.rs"]), ["gpuaas-image"]);
        assert_eq!(names(&["Cargo.lock"]).len(), workspace().crates.len());
    }

    #[test]
    fn files_outside_the_crates_reach_their_readers() {
        assert!(names(&["images/x.yaml"]).contains(&"gpuaas-image".to_owned()));
        let files = ["SECURITY.md".to_owned()];
        let affected = affected(&workspace(), &files);
        assert_eq!((affected.packages.len(), affected.unread), (0, files.to_vec()));
    }

    #[test]
    fn the_readers_are_packages_of_this_workspace() {
        let workspace = Workspace::load(Depth::Own).unwrap();
        let known: BTreeSet<&str> = workspace.crates.iter().map(|k| k.name.as_str()).collect();
        let named = READERS.iter().flat_map(|(_, names)| names.iter()).chain(LEFT_OUT);
        for name in named.chain([&STORE]) {
            assert!(known.contains(name), "{name}");
        }
    }
}
