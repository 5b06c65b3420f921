//! `cargo xtask test`: set up what the tests want, then run all of them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};

use crate::making::Making;
use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::scratch::Scratch;
use crate::test_report::{self, Records};
use crate::{
    machine_speed, parity, postgres, proc, python, real_host, setup, slow_tests, third_party, vm,
};

pub(crate) const HELP: &str = "\
Set up what the tests need, then run the whole suite.

Usage: cargo xtask test [--fast] [--strict] [--no-cache] [--no-install] [--no-postgres] [ARGS]

--fast leaves out slow tests, the packages that boot systems or simulate fleets, and PostgreSQL; it
installs nothing and needs no root. Use it while editing.

--strict fails on every skip that xtask/skips.txt does not name, and tries a failed test once more: one
that passes then is listed as FLAKY. CI uses it.

--no-cache runs system tests again although they passed with the same files.

--no-install installs no packages and makes no systems: what is missing is named, and its tests skip.

ARGS go to cargo-nextest, or to `cargo test` if nextest is not installed; for example
`cargo xtask test -p gpuaas-store`. With ARGS nothing is installed, and documentation examples are
left out.

The last lines list every skip with its reason, then count passed, failed and skipped tests. A system
test (package gpuaas-systems) that already passed with the same files is not run again; it counts as
passed and is reported as cached.

What it sets up:
  packages    as root on Debian or Ubuntu, apt-get installs what is missing of postgresql,
              cloud-init (disabled for this machine's own boot), shellcheck, python3-venv, curl,
              qemu-system-x86, systemd-container, mmdebstrap and a few more; at a terminal it asks
              first. Otherwise a note names each missing tool, and its tests skip
  systems     without ARGS and as root on Debian or Ubuntu, the systems of the emulated machine
              (cargo xtask vm), of the real host (cargo xtask real-host), of a tenant and of the
              services of cargo xtask parity: 2.5 GB in ~/.cache/gpuaas, made once while the tests compile and used by every checkout
  Python      without ARGS, securesystemslib, spdx-tools and kubernetes-validate from PyPI in
              ~/.cache/gpuaas, made once; set GPUAAS_TEST_PYTHON to an interpreter that has them
  crates      compiled third-party crates are shared by all checkouts in ~/.cache/gpuaas/third-party;
              set GPUAAS_SHARE_THIRD_PARTY=0 to compile them here
  PostgreSQL  a private server, removed afterwards; set GPUAAS_TEST_POSTGRES=postgres://... to use
              your own, or pass --no-postgres to skip its tests
  files       tests write into memory if /dev/shm has 4 GiB of room and 8 GiB of memory are free;
              set TMPDIR to choose a folder
  recordings  GPUAAS_MAAS_RECORDINGS names a folder of recorded MAAS exchanges; by default
              ../shared/maas/recordings if it exists
  sequence    GPUAAS_MAAS_SEQUENCE names a file of calls in order with a region's answers; by default
              ../shared/maas/sequence.jsonl if it exists
  threads     two tests at once per processor; set NEXTEST_TEST_THREADS for another number
  limits      the machine's speed is measured once, and every time limit is scaled by it";

const POSTGRES: &str = "GPUAAS_TEST_POSTGRES";
/// What lab/test-report reads: the folder for records, the slowness of this machine, whether slow
/// tests are left out, and the folder with the passes of system tests.
const REPORT: &str = "GPUAAS_TEST_REPORT";
const SLOWNESS: &str = "GPUAAS_TEST_SLOWNESS";
const FAST: &str = "GPUAAS_TEST_FAST";
const PASSES_FOLDER: &str = "GPUAAS_TEST_PASSES";
/// Interpreter that reads the statements of images.
const PYTHON: &str = "GPUAAS_TEST_PYTHON";
/// How many tests nextest runs at once.
const THREADS: &str = "NEXTEST_TEST_THREADS";
/// Tests at once for each processor: about half of a test's time it waits for processes and clocks.
const THREADS_PER_PROCESSOR: usize = 2;
/// A test that depends on the machine's pace fails some run of CI out of hundreds; it is named, and the
/// change that did not cause it is not refused.
const SECOND_TRY: [&str; 4] = ["--retries", "1", "--final-status-level", "flaky"];
/// What of a real region is read where it lies: variable, and where it is looked for.
const REGION_RECORDINGS: &[(&str, &str)] = &[
    ("GPUAAS_MAAS_RECORDINGS", "../shared/maas/recordings"),
    ("GPUAAS_MAAS_SEQUENCE", "../shared/maas/sequence.jsonl"),
];

/// Folder for the passes of system tests, below the user's cache.
const PASSES: &str = ".cache/gpuaas/passes";
/// The runner's configuration, whose time limits are for the reference machine.
const CONFIG: &str = ".config/nextest.toml";

/// What the arguments ask for.
#[derive(Default)]
pub(crate) struct Request<'a> {
    /// Leaves out slow tests, systems and the database.
    pub(crate) fast: bool,
    /// Whether packages may be installed.
    pub(crate) install: bool,
    pub(crate) with_postgres: bool,
    /// A skip that is not on the list fails the run.
    pub(crate) strict: bool,
    /// System tests run although they passed with the same files.
    pub(crate) no_cache: bool,
    /// What goes on to the runner.
    pub(crate) rest: Vec<&'a str>,
}

impl<'a> Request<'a> {
    fn parse(args: &'a [String]) -> Self {
        let has = |flag: &str| args.iter().any(|arg| arg == flag);
        let ours = ["--fast", "--no-install", "--no-postgres", "--strict", "--no-cache"];
        let rest = args.iter().map(String::as_str).filter(|arg| !ours.contains(arg));
        let fast = has("--fast");
        Self {
            fast,
            install: !has("--no-install"),
            with_postgres: !fast && !has("--no-postgres"),
            strict: has("--strict"),
            no_cache: has("--no-cache"),
            rest: rest.collect(),
        }
    }

    /// The whole suite, with everything that it needs set up.
    fn is_whole(&self) -> bool {
        !self.fast && self.rest.is_empty()
    }
}

pub(crate) fn run(args: &[String]) -> Outcome {
    let request = Request::parse(args);
    let workspace = Workspace::load(Depth::Own)?;
    if !request.is_whole() {
        return run_request(&workspace, &request);
    }
    let install = setup::ensure(request.install, true);
    let systems = if install { begin_systems(&workspace) } else { Vec::new() };
    if install {
        make_python();
    }
    // The systems are made while the tests are compiled.
    let built = build(&workspace);
    systems.into_iter().for_each(Making::end);
    let built = built?;
    if !built.success() {
        return Ok(proc::exit_code(built));
    }
    third_party::save(&workspace);
    let examples = examples_pass(&workspace)?;
    let code = run_request(&workspace, &request)?;
    Ok(if examples { code } else { ExitCode::FAILURE })
}

/// Compiles everything that the runner starts, once: libraries, executables and tests.
fn build(workspace: &Workspace) -> Result<ExitStatus, String> {
    third_party::restore(workspace);
    let mut build = proc::cargo();
    if has_nextest() {
        build.args(["nextest", "run", "--no-run", "--workspace"]);
    } else {
        build.args(["test", "--no-run", "--workspace"]);
    }
    proc::status(build.current_dir(&workspace.root))
}

fn has_nextest() -> bool {
    proc::works(proc::cargo().args(["nextest", "--version"]))
}

/// Runs the requested tests, and says what they told beyond passed and failed.
pub(crate) fn run_request(workspace: &Workspace, request: &Request<'_>) -> Outcome {
    third_party::restore(workspace);
    let nextest = has_nextest();
    let profile = if request.fast { "fast" } else { "default" };
    let database = if request.with_postgres { start_postgres()? } else { None };
    let scratch = Scratch::make()?;
    let slowness = machine_speed::slowness();
    let report = test_report::prepare(&workspace.target)?;
    let mut suite = proc::cargo();
    suite.args(runner(nextest));
    if nextest {
        suite.arg("--config-file").arg(scaled_config(workspace, slowness)?);
        suite.args(["--profile", profile]);
        if request.strict {
            suite.args(SECOND_TRY);
        }
    }
    let selects = |arg: &&str| matches!(*arg, "-p" | "--workspace") || arg.starts_with("--package");
    if !request.rest.iter().any(selects) {
        suite.arg("--workspace");
    }
    suite.args(&request.rest);
    let environment = environment(workspace, database.as_ref());
    let has_recordings = has_recordings(&environment);
    suite.envs(environment);
    suite.env(REPORT, &report).env(SLOWNESS, slowness.to_string());
    if request.fast {
        suite.env(FAST, "1");
    }
    if !request.no_cache
        && let Some(home) = std::env::home_dir()
    {
        suite.env(PASSES_FOLDER, home.join(PASSES));
    }
    if !request.with_postgres {
        suite.env_remove(POSTGRES);
    }
    if let Some(scratch) = &scratch {
        suite.env("TMPDIR", scratch.folder());
    }
    // A run that does not build leaves no report, and the last one is of another run.
    std::fs::remove_file(slow_tests::report(&workspace.target, profile)).ok();
    let status = proc::status(suite.current_dir(&workspace.root))?;
    if let Some(scratch) = scratch.filter(|_| !status.success()) {
        scratch.save_leftovers();
    }
    drop(database);
    let records = Records::read(&report)?;
    let objections = if request.strict {
        records.objections(&workspace.root, has_recordings, request.is_whole())?
    } else {
        Vec::new()
    };
    records.summary().iter().for_each(|line| println!("{line}"));
    objections.iter().for_each(|line| eprintln!("error: {line}"));
    if slowness > 1.0 {
        println!("time limits were {slowness} times those of the reference machine");
    }
    if nextest {
        print_counts(workspace, profile, &records)?;
    }
    Ok(if objections.is_empty() { proc::exit_code(status) } else { ExitCode::FAILURE })
}

/// The closing line: a test that skipped or was left out did not pass.
fn print_counts(workspace: &Workspace, profile: &str, records: &Records) -> Result<(), String> {
    let tests = slow_tests::read(&workspace.target, profile)?;
    let failed = tests.iter().filter(|test| test.failed).count();
    let skipped = records.skipped_tests() + records.left_out.len();
    let passed = tests.len().saturating_sub(failed + skipped);
    if !records.cached.is_empty() {
        println!("of the passed tests {} are cached system tests", records.cached.len());
    }
    println!("tests: {passed} passed, {failed} failed, {skipped} skipped");
    Ok(())
}

fn scaled_config(workspace: &Workspace, slowness: f64) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("{CONFIG}: {error}");
    let text = std::fs::read_to_string(workspace.root.join(CONFIG)).map_err(failed)?;
    let scaled = workspace.target.join("nextest.toml");
    std::fs::create_dir_all(&workspace.target).map_err(failed)?;
    std::fs::write(&scaled, machine_speed::scale_limits(&text, slowness)).map_err(failed)?;
    Ok(scaled)
}

fn has_recordings(environment: &[(&'static str, OsString)]) -> bool {
    REGION_RECORDINGS.iter().all(|(variable, _)| {
        proc::env(variable).is_some() || environment.iter().any(|(set, _)| set == variable)
    })
}

fn begin_systems(workspace: &Workspace) -> Vec<Making> {
    vec![
        Making::begin("emulated machine", setup::MACHINE, vm::make_image(workspace)),
        Making::begin("emulated slice host", setup::MACHINE, vm::make_slices_image(workspace)),
        Making::begin("tenant's", setup::MACHINE, vm::make_guest_image(workspace)),
        Making::begin("real host", setup::REAL_HOST, real_host::make_rootfs(workspace)),
        Making::begin("parity stack", setup::MACHINE, parity::make_services(workspace)),
    ]
}

/// What reads manifests and images' statements as others do; its tests skip where there is none.
fn make_python() {
    if let Err(why) = python::KUBERNETES.make() {
        eprintln!("note: no kubernetes-validate; its test is skipped: {why}");
    }
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
    for (variable, beside) in REGION_RECORDINGS {
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

/// Runs the documentation examples, which nextest does not; crates without any say so in their
/// manifest (`doctest = false`). They print one line if they pass, so that the closing line of the
/// tests stays the last one.
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
        let kept = ["--no-install", "--strict", "--no-cache"].map(str::to_owned);
        let request = Request::parse(&kept);
        assert!(!request.install && request.strict && request.no_cache && request.is_whole());
    }

    #[test]
    fn examples_of_all_crates_add_up() {
        let said = "\nrunning 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored\n\n\
                    running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
        assert_eq!(passed(said), 3);
        assert_eq!(passed(""), 0);
    }
}
