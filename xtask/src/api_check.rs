//! `cargo xtask api-check`: a control plane that runs, held to its own OpenAPI document.
//!
//! Schemathesis makes requests that the document allows and requests that it does not, and looks
//! whether the answers are what the document says. It is no part of the suite: it takes minutes.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use serde::{Deserialize, Serialize};

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::proc;
use crate::python::Environment;

pub(crate) const HELP: &str = "\
Hold a running control plane to its OpenAPI document, once as each role.

Usage: cargo xtask api-check [--bin DIR] [--role NAME]... [-- ARGS]

--bin DIR takes the executables gpuaas and gpuaas-node-agent from there, instead of building them.
--role NAME asks as viewer, operator, approver or admin alone. ARGS go to Schemathesis, such as
--include-path /api/v1/nodes.

Starts `gpuaas serve` with an empty database on free ports of loopback, makes a token for each role, and
runs Schemathesis 4.32.5 with all checks, the phases examples and coverage, one worker and a fixed seed.
Schemathesis is installed from PyPI into ~/.cache/gpuaas once; where there is no python3, or it cannot be
installed, the check is skipped and says so.

Prints a line for each role and one JSON object. Exit code 0: no failures, or skipped.";

/// Version that the figures are of.
const VERSION: &str = "4.32.5";
const SCHEMATHESIS: Environment =
    Environment { name: "schemathesis-4.32.5", packages: &["schemathesis==4.32.5"] };
const SEED: &str = "1";
/// The last one may take away what the others ask with.
const ROLES: [&str; 4] = ["viewer", "operator", "approver", "admin"];
/// What a document cannot say of a request that is well-formed, and what is answered then: that the
/// content of an archive, a key of a region or a revision is not one that fits (422, 412); and that the
/// region of a new site does not answer (502).
const SETTINGS: &str = "\
[checks.positive_data_acceptance]
expected-statuses = [\"2xx\", \"401\", \"403\", \"404\", \"409\", \"412\", \"422\", \"429\"]

[[operations]]
include-name = \"POST /api/v1/sites\"
checks.positive_data_acceptance.expected-statuses = [\"2xx\", \"401\", \"403\", \"409\", \"422\", \"502\"]
checks.not_a_server_error.expected-statuses = [\"2xx\", \"4xx\", \"502\"]
";

/// What is read of a report of Schemathesis.
#[derive(Deserialize)]
struct Report {
    complete: bool,
    operations: Operations,
    test_cases: TestCases,
    failures: Vec<Failure>,
    errors: Vec<Error>,
}

#[derive(Deserialize)]
struct Operations {
    selected: u64,
    tested: u64,
}

#[derive(Deserialize)]
struct TestCases {
    generated: u64,
    unique_failures: u64,
}

#[derive(Deserialize)]
struct Failure {
    title: String,
    operations: Vec<String>,
}

#[derive(Deserialize)]
struct Error {
    title: String,
    count: u64,
}

/// What came of one role.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Figures {
    role: String,
    operations: u64,
    cases: u64,
    failures: u64,
}

impl Report {
    /// Its figures. Whatever did not come to an end counts as a failure.
    fn figures(&self, role: &str) -> Figures {
        let broken: u64 = self.errors.iter().map(|error| error.count).sum();
        let untested = self.operations.selected.saturating_sub(self.operations.tested);
        let unfinished = u64::from(!self.complete);
        Figures {
            role: role.to_owned(),
            operations: self.operations.tested,
            cases: self.test_cases.generated,
            failures: self.test_cases.unique_failures + broken + untested + unfinished,
        }
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let failure =
            |failure: &Failure| format!("{}: {}", failure.title, failure.operations.join(", "));
        let failures = self.failures.iter().map(failure);
        failures.chain(self.errors.iter().map(|error| error.title.clone()))
    }
}

/// What the arguments ask for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    bin: Option<PathBuf>,
    roles: Vec<String>,
    more: Vec<String>,
}

impl Request {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bin" => {
                    let folder = args.next().ok_or("--bin wants a folder")?;
                    request.bin = Some(PathBuf::from(folder));
                }
                "--role" => match args.next() {
                    Some(role) if ROLES.contains(&role.as_str()) => {
                        request.roles.push(role.clone());
                    }
                    _ => return Err(format!("--role wants one of {}", ROLES.join(", "))),
                },
                "--" => request.more = args.by_ref().cloned().collect(),
                unknown => return Err(format!("there is no argument `{unknown}`; see --help")),
            }
        }
        if request.roles.is_empty() {
            request.roles = ROLES.map(str::to_owned).to_vec();
        }
        Ok(request)
    }
}

pub(crate) fn run(args: &[String]) -> Outcome {
    let request = Request::parse(args)?;
    let schemathesis = match installed() {
        Ok(program) => program,
        Err(why) => {
            eprintln!("skipped: no Schemathesis {VERSION}: {why}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let bin = match request.bin {
        Some(bin) => bin,
        None => build()?,
    };
    let folder = std::env::temp_dir().join(format!("gpuaas-api-check-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    fs::write(folder.join("schemathesis.toml"), SETTINGS).map_err(|error| error.to_string())?;
    let server = Server::start(&bin, &folder)?;
    let mut all = Vec::new();
    for role in &request.roles {
        let token = server.token(role)?;
        let report = check(&schemathesis, &folder, &server.url, role, &token, &request.more)?;
        let figures = report.figures(role);
        let Figures { operations, cases, failures, .. } = &figures;
        println!("{role}: {operations} operations, {cases} cases, {failures} failures");
        report.lines().for_each(|line| println!("  {line}"));
        all.push(figures);
    }
    drop(server);
    let failures: u64 = all.iter().map(|figures| figures.failures).sum();
    let closing =
        serde_json::json!({ "schemathesis": VERSION, "roles": all, "failures": failures });
    println!("{closing}");
    if failures > 0 {
        eprintln!("what was sent and answered is in {}", folder.display());
        return Ok(ExitCode::FAILURE);
    }
    fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// The program, in an environment of its own.
fn installed() -> Result<PathBuf, String> {
    SCHEMATHESIS.make()?;
    SCHEMATHESIS.program("schemathesis").ok_or_else(|| "it was not made".to_owned())
}

/// Builds both executables; answers the folder that they are in.
fn build() -> Result<PathBuf, String> {
    let workspace = Workspace::load(Depth::Own)?;
    let mut build = proc::cargo();
    build.args(["build", "-p", "gpuaas", "-p", "gpuaas-node-agent"]);
    let status = proc::status(build.current_dir(&workspace.root))?;
    if status.success() {
        Ok(workspace.target.join("debug"))
    } else {
        Err("cargo build".to_owned())
    }
}

/// A control plane, until it is dropped.
struct Server {
    child: Child,
    gpuaas: PathBuf,
    url: String,
    admin: PathBuf,
}

impl Server {
    fn start(bin: &Path, folder: &Path) -> Result<Self, String> {
        let gpuaas = bin.join("gpuaas");
        let log = fs::File::create(folder.join("serve.log")).map_err(|error| error.to_string())?;
        let data = folder.join("data");
        let mut serve = Command::new(&gpuaas);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0", "--data"]);
        serve.arg(&data).arg("--limits").arg(
            "operators.requests-per-second=100000,operators.request-burst=100000,\
             operators.new-connections-per-second=100000",
        );
        let spawned = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = spawned.map_err(|error| format!("{}: {error}", gpuaas.display()))?;
        let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
        let url = lines
            .into_iter()
            .flatten()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening: ").map(str::to_owned));
        let (is_up, url) = (url.is_some(), url.unwrap_or_default());
        // Dropped, it ends the process.
        let server = Self { child, gpuaas, url, admin: data.join("admin-token") };
        is_up.then_some(server).ok_or_else(|| {
            format!("gpuaas serve did not start; see {}", folder.join("serve.log").display())
        })
    }

    /// A token that has this role everywhere.
    fn token(&self, role: &str) -> Result<String, String> {
        let mut add = Command::new(&self.gpuaas);
        add.args(["token", "add", &format!("check-{role}"), "--role", role, "--to", "-"]);
        add.args(["--reason", "cargo xtask api-check", "--server", &self.url, "--token-file"]);
        let said = proc::quiet(add.arg(&self.admin).env_remove("GPUAAS_TOKEN"))?;
        let token = said.lines().next().map(|line| line.trim().to_owned());
        token.filter(|token| !token.is_empty()).ok_or_else(|| "no token was made".to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            eprintln!("note: gpuaas serve may still run: {error}");
        }
    }
}

fn check(
    schemathesis: &Path,
    folder: &Path,
    url: &str,
    role: &str,
    token: &str,
    more: &[String],
) -> Result<Report, String> {
    let report = folder.join(format!("{role}.json"));
    let said = fs::File::create(folder.join(format!("{role}.txt")));
    let said = said.map_err(|error| error.to_string())?;
    let mut run = Command::new(schemathesis);
    run.arg("--config-file").arg(folder.join("schemathesis.toml")).arg("run");
    run.arg(format!("{url}/api/v1/openapi.json"));
    run.args(["--checks", "all", "--phases", "examples,coverage", "--workers", "1"]);
    // A stream that never ends; its own tests follow it.
    run.args(["--exclude-path", "/api/v1/events"]);
    run.args(["--seed", SEED, "--continue-on-failure", "--warnings", "off"]);
    run.arg("--header").arg(format!("Authorization: Bearer {token}"));
    run.args(["--report", "json", "--report-json-path"]).arg(&report).args(more);
    run.env("NO_COLOR", "1").current_dir(folder).stdin(Stdio::null());
    let also = said.try_clone().map_err(|error| error.to_string())?;
    let status = run.stdout(said).stderr(also).status();
    status.map_err(|error| format!("{}: {error}", schemathesis.display()))?;
    let said = fs::read(&report).map_err(|error| {
        format!("Schemathesis left no report ({error}); see {}", folder.display())
    })?;
    serde_json::from_slice(&said).map_err(|error| format!("{}: {error}", report.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Report {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn whatever_was_not_tried_is_a_failure() {
        let good = report(
            r#"{"complete":true,"operations":{"total":9,"selected":7,"tested":7},
                "test_cases":{"generated":400,"unique_failures":0},"failures":[],"errors":[]}"#,
        );
        let figures = good.figures("viewer");
        assert_eq!((figures.operations, figures.cases, figures.failures), (7, 400, 0));
        assert_eq!(good.lines().count(), 0);
        let bad = report(
            r#"{"complete":false,"operations":{"selected":7,"tested":5},
                "test_cases":{"generated":40,"unique_failures":1},
                "failures":[{"title":"Server error","operations":["GET /x"]}],
                "errors":[{"title":"Network Error","count":3}]}"#,
        );
        assert_eq!(bad.figures("admin").failures, 1 + 3 + 2 + 1);
        assert_eq!(bad.lines().collect::<Vec<_>>(), ["Server error: GET /x", "Network Error"]);
    }

    #[test]
    fn arguments() {
        let parse = |line: &str| {
            Request::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(parse("").unwrap().roles, ROLES);
        let some = parse("--role admin --bin target/debug -- --include-path /x").unwrap();
        assert_eq!(some.roles, ["admin"]);
        assert_eq!(some.more, ["--include-path", "/x"]);
        assert!(parse("--role boss").is_err() && parse("--bin").is_err() && parse("x").is_err());
    }
}
