//! `cargo xtask test`: set up what the tests want, then run all of them.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use crate::making::Making;
use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::scratch::Scratch;
use crate::{postgres, proc, python, real_host, setup, vm};

pub(crate) const HELP: &str = "\
Set up what the tests need, then run the whole suite.

Usage: cargo xtask test [--fast] [--no-install] [--no-postgres] [ARGS]

--fast leaves out what takes long (the profile `fast` in .config/nextest.toml says what), installs
nothing, needs no root, and starts no PostgreSQL: the tests for the loop of editing.

--no-install installs no packages and makes no systems: what is missing is named, and its tests skip.

ARGS go to cargo-nextest, or to `cargo test` where nextest is missing; for example
`cargo xtask test -p gpuaas-store`. With ARGS the documentation examples are left out.

What it sets up:
  packages    as root on Debian or Ubuntu, apt-get installs what is missing of postgresql,
              cloud-init (switched off for this machine's own boot), shellcheck,
              python3-venv, curl, qemu-system-x86, systemd-container, mmdebstrap and a few more,
              and asks before where somebody sits at a terminal; otherwise one note names each tool that is absent, and the tests that want it skip
  systems     without ARGS and as root on Debian or Ubuntu, the systems of the emulated machine
              (cargo xtask vm), of the real host (cargo xtask real-host) and of a tenant, some 1.7 GB below
              ~/.cache/gpuaas, made once while the tests are built and used by every checkout
  Python      without ARGS, securesystemslib and spdx-tools from PyPI in ~/.cache/gpuaas, made once;
              set GPUAAS_TEST_PYTHON to an interpreter that has them
  PostgreSQL  a private one, gone afterwards; set GPUAAS_TEST_POSTGRES=postgres://... to use
              your own, or pass --no-postgres to skip its tests
  files       what the tests write is in memory where /dev/shm has 4 GiB of room and 8 GiB of
              memory are free, and gone afterwards; set TMPDIR to choose a place
  recordings  GPUAAS_MAAS_RECORDINGS names a folder of recorded MAAS exchanges; unset, the
              folder ../shared/maas/recordings is used where it exists
  sequence    GPUAAS_MAAS_SEQUENCE names a file of calls in order with a region's answers; unset,
              ../shared/maas/sequence.jsonl is used where it exists
  threads     two tests at once for each processor; set NEXTEST_TEST_THREADS for another number";

const POSTGRES: &str = "GPUAAS_TEST_POSTGRES";
/// Interpreter that reads the statements of images.
const PYTHON: &str = "GPUAAS_TEST_PYTHON";
/// How many tests nextest runs at once.
const THREADS: &str = "NEXTEST_TEST_THREADS";
/// Tests at once for each processor: about half of a test's time it waits for processes and clocks.
const THREADS_PER_PROCESSOR: usize = 2;
/// What of a real region is read where it lies: variable, and where it is looked for.
const OF_A_REGION: &[(&str, &str)] = &[
    ("GPUAAS_MAAS_RECORDINGS", "../shared/maas/recordings"),
    ("GPUAAS_MAAS_SEQUENCE", "../shared/maas/sequence.jsonl"),
];

/// What the arguments ask for.
struct Request<'a> {
    fast: bool,
    /// Whether packages may be installed.
    install: bool,
    with_postgres: bool,
    /// What goes on to the runner.
    rest: Vec<&'a str>,
}

impl<'a> Request<'a> {
    fn parse(args: &'a [String]) -> Self {
        let has = |flag: &str| args.iter().any(|arg| arg == flag);
        let ours = ["--fast", "--no-install", "--no-postgres"];
        let rest = args.iter().map(String::as_str).filter(|arg| !ours.contains(arg));
        let fast = has("--fast");
        let (install, with_postgres) = (!has("--no-install"), !fast && !has("--no-postgres"));
        Self { fast, install, with_postgres, rest: rest.collect() }
    }

    /// The whole suite, with everything that it wants to be set up.
    fn is_whole(&self) -> bool {
        !self.fast && self.rest.is_empty()
    }
}

pub(crate) fn run(args: &[String]) -> Outcome {
    let request = Request::parse(args);
    let workspace = Workspace::load(Depth::Own)?;
    let nextest = proc::works(proc::cargo().args(["nextest", "--version"]));
    if request.fast && !nextest {
        return Err("--fast needs cargo-nextest: cargo install cargo-nextest".to_owned());
    }
    let install = !request.fast && setup::ensure(request.install, request.is_whole());
    let systems =
        if request.is_whole() && install { begin_systems(&workspace) } else { Vec::new() };
    if request.is_whole() && install {
        make_python();
    }
    let built = build_executables(&workspace);
    systems.into_iter().for_each(Making::end);
    let built = built?;
    if !built.success() {
        return Ok(proc::exit_code(built));
    }
    let examples = !nextest || !request.is_whole() || examples_pass(&workspace)?;
    let database = if request.with_postgres { start_postgres()? } else { None };
    let scratch = Scratch::make()?;
    let mut suite = proc::cargo();
    suite.args(runner(nextest));
    if request.fast {
        suite.args(["--profile", "fast"]);
    }
    if !request.rest.iter().any(|arg| *arg == "-p" || arg.starts_with("--package")) {
        suite.arg("--workspace");
    }
    suite.args(&request.rest);
    suite.envs(environment(&workspace, database.as_ref()));
    if !request.with_postgres {
        suite.env_remove(POSTGRES);
    }
    if let Some(scratch) = &scratch {
        suite.env("TMPDIR", scratch.folder());
    }
    let status = proc::status(suite.current_dir(&workspace.root))?;
    if let Some(scratch) = scratch.filter(|_| !status.success()) {
        scratch.save_leftovers();
    }
    drop(database);
    Ok(match (status.success(), examples) {
        (true, false) => ExitCode::FAILURE,
        _ => proc::exit_code(status),
    })
}

/// The tests of `gpuaas` start the agent and the executable itself.
fn build_executables(workspace: &Workspace) -> Result<std::process::ExitStatus, String> {
    let mut build = proc::cargo();
    build.args(["build", "--workspace", "--bins"]);
    proc::status(build.current_dir(&workspace.root))
}

fn begin_systems(workspace: &Workspace) -> Vec<Making> {
    vec![
        Making::begin("emulated machine", setup::MACHINE, vm::make_image(workspace)),
        Making::begin("emulated slice host", setup::MACHINE, vm::make_slices_image(workspace)),
        Making::begin("tenant's", setup::MACHINE, vm::make_guest_image(workspace)),
        Making::begin("real host", setup::REAL_HOST, real_host::make_rootfs(workspace)),
    ]
}

/// What reads images' statements as others do; its tests skip where there is none.
fn make_python() {
    if proc::env(PYTHON).is_some() {
        return;
    }
    if let Err(why) = python::LINEAGE.make() {
        eprintln!("note: no securesystemslib and spdx-tools; their tests are skipped: {why}");
    }
}

fn runner(nextest: bool) -> &'static [&'static str] {
    if nextest { &["nextest", "run"] } else { &["test"] }
}

fn environment(
    workspace: &Workspace,
    database: Option<&postgres::Server>,
) -> Vec<(&'static str, OsString)> {
    let mut set = Vec::new();
    if let Some(database) = database {
        set.push((POSTGRES, database.url().into()));
    }
    for (variable, beside) in OF_A_REGION {
        if proc::env(variable).is_none()
            && let Ok(found) = workspace.root.join(beside).canonicalize()
        {
            set.push((*variable, found.into_os_string()));
        }
    }
    if proc::env(PYTHON).is_none()
        && let Some(python) = python::LINEAGE.program("python")
    {
        set.push((PYTHON, python.into_os_string()));
    }
    if proc::env(THREADS).is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        set.push((THREADS, (processors * THREADS_PER_PROCESSOR).to_string().into()));
    }
    set
}

/// None where the caller brought a database, or where no server is installed (which the set-up
/// has said already). A server that is here and does not start is an error: tests that silently
/// leave out one of two databases are worth little.
fn start_postgres() -> Result<Option<postgres::Server>, String> {
    if proc::env(POSTGRES).is_some() {
        return Ok(None);
    }
    let Some(bin) = postgres::binaries() else {
        return Ok(None);
    };
    postgres::Server::start(bin).map(Some).map_err(|error| {
        format!("the private PostgreSQL: {error}\n(--no-postgres runs the tests without it)")
    })
}

/// Runs the documentation examples, which nextest does not. They print one line where they
/// pass, so that the runner's own closing line stays the last word.
fn examples_pass(workspace: &Workspace) -> Result<bool, String> {
    let mut cargo: Command = proc::cargo();
    cargo.args(["test", "--doc", "--workspace", "--quiet"]);
    match proc::quiet(cargo.current_dir(&workspace.root)) {
        Ok(said) => {
            eprintln!("documentation examples: {} passed", passed(&said));
            Ok(true)
        }
        Err(said) => {
            eprintln!("{said}\ndocumentation examples: failed");
            Ok(false)
        }
    }
}

/// Adds up the `test result: ok. N passed; ...` lines of several crates.
fn passed(said: &str) -> u32 {
    said.lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|rest| rest.split(' ').next()?.parse::<u32>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_takes_no_database_and_is_not_the_whole() {
        let args = ["--fast", "-p", "gpuaas-core"].map(str::to_owned);
        let request = Request::parse(&args);
        assert!(request.fast && !request.with_postgres && !request.is_whole());
        assert_eq!(request.rest, ["-p", "gpuaas-core"]);
        assert!(Request::parse(&[]).is_whole());
        assert!(Request::parse(&[]).with_postgres && Request::parse(&[]).install);
        let kept = ["--no-install".to_owned()];
        assert!(!Request::parse(&kept).install && Request::parse(&kept).is_whole());
    }

    #[test]
    fn examples_of_all_crates_add_up() {
        let said = "\nrunning 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored\n\n\
                    running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
        assert_eq!(passed(said), 3);
        assert_eq!(passed(""), 0);
    }
}
