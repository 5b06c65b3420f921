//! `cargo xtask console`: browser tests of the console.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::{Value, json};

use crate::metadata::{Depth, Workspace};
use crate::node_packages::NodePackages;
use crate::outcome::Outcome;
use crate::seeded_lab::SeededLab;
use crate::{lab, proc};

pub(crate) const HELP: &str = "\
Test the console in a browser, against a seeded lab.

Usage: cargo xtask console [--bin DIR] [--check NAME]... [--prove]

--bin DIR     Take gpuaas and gpuaas-node-agent from there [default: build them in the profile lab]
--check NAME  Run this check alone: accessible, policy, without-scripts, narrow, keyboard, live,
              twenty-tabs, viewer, foreign-forms or stale [default: all]
--prove       Plant a fault for each check, and fail if the check does not find it

Headless Chromium (Debian's package chromium) opens every page of `gpuaas console map`. Prints one JSON object:
{pages, checks, violations, skipped}.

playwright-core and axe-core are installed with npm into ~/.cache/gpuaas once. If node 20, npm, chromium or the
packages are missing, the tests are skipped with a message.

Exit code 0: no violations; 1: violations; 2: the tests cannot run; 77: skipped.";

/// The exit code of a skip, as Automake has it.
const SKIPPED: u8 = 77;
/// The oldest version that playwright-core takes.
const OLDEST_NODE: u32 = 20;
const CHECKS: &str = "xtask/console/checks.js";
const PACKAGES: NodePackages = NodePackages {
    name: "console-tests-1",
    manifest: include_str!("../console/package.json"),
    lock: include_str!("../console/package-lock.json"),
    settings: include_str!("../console/.npmrc"),
};

/// What the arguments ask for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    bin: Option<PathBuf>,
    checks: Vec<String>,
    is_proof: bool,
}

impl Request {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--bin" => request.bin = Some(PathBuf::from(value()?)),
                "--check" => request.checks.push(value()?.clone()),
                "--prove" => request.is_proof = true,
                unknown => return Err(format!("there is no argument `{unknown}`; see --help")),
            }
        }
        Ok(request)
    }
}

/// What the tests need of this machine.
struct Tools {
    browser: PathBuf,
    node: PathBuf,
    modules: PathBuf,
}

impl Tools {
    /// Finds them, and installs the packages.
    ///
    /// # Errors
    /// What is missing.
    fn find() -> Result<Self, String> {
        let find = |name: &str, package: &str| {
            proc::find(name).ok_or_else(|| format!("{name} is missing: apt-get install {package}"))
        };
        let (browser, node) = (find("chromium", "chromium")?, find("node", "nodejs")?);
        find("npm", "npm")?;
        let said = proc::quiet(Command::new(&node).arg("--version"))?;
        let major = said.trim().trim_start_matches('v').split('.').next().unwrap_or_default();
        if major.parse::<u32>().is_ok_and(|major| major >= OLDEST_NODE) {
            Ok(Self { browser, node, modules: PACKAGES.make()? })
        } else {
            Err(format!("node is {}: expected {OLDEST_NODE} or newer", said.trim()))
        }
    }
}

pub(crate) fn run(args: &[String]) -> Outcome {
    let request = Request::parse(args)?;
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(why) => {
            eprintln!("skipped: {}", why.replace('\n', " "));
            return Ok(ExitCode::from(SKIPPED));
        }
    };
    let workspace = Workspace::load(Depth::Own)?;
    let bin = match &request.bin {
        Some(folder) => folder.clone(),
        None => match lab::build(&workspace)? {
            Ok(folder) => folder,
            Err(code) => return Ok(code),
        },
    };
    let scratch = workspace.target.join("console");
    fs::remove_dir_all(&scratch).ok();
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let map = pages(&bin)?;
    let lab = SeededLab::start(&bin, &scratch)?;
    let wanted = json!({
        "server": lab.server,
        "token_file": lab.token_file,
        "lab": lab.id(),
        "browser": tools.browser,
        "map": map,
        "only": request.checks,
        "prove": request.is_proof,
    });
    let mut checks = Command::new(&tools.node);
    checks.arg(workspace.root.join(CHECKS)).arg(wanted.to_string());
    let status = proc::status(checks.env("NODE_PATH", &tools.modules));
    drop(lab);
    fs::remove_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    Ok(proc::exit_code(status?))
}

/// Pages of the console, as the executable names them.
fn pages(bin: &Path) -> Result<Value, String> {
    let said = proc::quiet(Command::new(bin.join("gpuaas")).args(["console", "map", "--json"]))?;
    let mut map: Value =
        serde_json::from_str(&said).map_err(|error| format!("gpuaas console map: {error}"))?;
    Ok(map["pages"].take())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let parse = |line: &str| {
            Request::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(parse("").unwrap(), Request::default());
        let some = parse("--bin target/lab --check stale --check policy --prove").unwrap();
        assert_eq!(some.checks, ["stale", "policy"]);
        assert!(some.is_proof && some.bin == Some(PathBuf::from("target/lab")));
        assert!(parse("--bin").is_err() && parse("x").is_err());
    }

    /// Exact versions with checksums, and no server that somebody else cannot reach.
    #[test]
    fn packages_are_pinned_and_name_no_registry() {
        let lock: Value = serde_json::from_str(PACKAGES.lock).unwrap();
        let manifest: Value = serde_json::from_str(PACKAGES.manifest).unwrap();
        let wanted = manifest["dependencies"].as_object().unwrap();
        assert_eq!(wanted.len(), 2);
        for (name, version) in wanted {
            let package = &lock["packages"][format!("node_modules/{name}")];
            assert_eq!(&package["version"], version);
            assert!(package["integrity"].as_str().unwrap().starts_with("sha512-"));
        }
        assert!(!PACKAGES.lock.contains("resolved") && !PACKAGES.lock.contains("://"));
    }

    #[test]
    fn help_names_each_check() {
        let script = include_str!("../console/checks.js");
        let table = script.split("const CHECKS = {").nth(1).unwrap().split("\n};").next().unwrap();
        let names = table.lines().filter_map(|line| line.strip_prefix("  \"")?.split_once("\": {"));
        let names: Vec<_> = names.map(|(name, _)| name).collect();
        assert_eq!(names.len(), 10);
        for name in names {
            assert!(HELP.contains(name), "{name}");
        }
    }
}
