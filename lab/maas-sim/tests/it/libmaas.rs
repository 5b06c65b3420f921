//! An independent client, python-libmaas, logs in, lists, allocates and deploys.
//!
//! Needs `python3` with `venv` and a reachable package index for the first run; without them the
//! test says so and passes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use maas_sim::{
    MachineSpec, PacedSimClock, Region, RegionConfig, SimHandle, SimServer, Status, ZERO,
};

/// A virtual environment with the pinned requirements, made once per target folder.
fn environment(requirements: &Path) -> Result<PathBuf, String> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("libmaas");
    let python = folder.join("bin/python");
    let wanted = std::fs::read(requirements).map_err(|e| e.to_string())?;
    let stamp = folder.join("requirements.installed");
    if std::fs::read(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let pip =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "-r"];
    run(Command::new(&python).args(pip).arg(requirements))?;
    std::fs::write(&stamp, wanted).map_err(|e| e.to_string())?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<Output, String> {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if out.status.success() {
        return Ok(out);
    }
    let text = String::from_utf8_lossy(&out.stderr);
    Err(format!("{:?} failed: {}", command.get_program(), text.lines().last().unwrap_or("")))
}

#[tokio::test(flavor = "multi_thread")]
async fn python_libmaas_deploys_a_machine() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/libmaas");
    let python = match environment(&folder.join("requirements.txt")) {
        Ok(python) => python,
        Err(why) => {
            test_report::skip("network", why);
            return;
        }
    };
    let sim = started().await;
    let said = run_script(&python, &folder.join("deploy.py"), sim.url()).await;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "listed lab1 lab2 lab3",
            "whoami admin",
            "allocated lab2 True",
            "deployed lab2 True jammy",
            "newest Deployed"
        ]
    );
    assert_eq!(sim.region.with(|r| r.status_of("lab2")), Some(Status::Deployed));
    sim.shutdown().await;
    documented_calls_work(&python, &folder).await;
}

/// A region with three hosts that take no time.
#[expect(clippy::expect_used, reason = "test harness")]
async fn started() -> SimHandle {
    let mut region =
        Region::new(RegionConfig { class: &ZERO, scale: 0.0, ..RegionConfig::default() });
    for name in ["lab1", "lab2", "lab3"] {
        region.add_machine(MachineSpec::new(name, Status::Ready));
    }
    let listen = ([127, 0, 0, 1], 0).into();
    SimServer::start_region(region, String::new(), listen, Arc::new(PacedSimClock::new(1.0)))
        .await
        .expect("start")
}

/// Every call of the library's own documentation.
async fn documented_calls_work(python: &Path, folder: &Path) {
    let sim = started().await;
    let said = run_script(python, &folder.join("documented.py"), sim.url()).await;
    let failed: Vec<&str> = said.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert!(failed.is_empty() && said.contains("ok delete"), "{}", failed.join("\n"));
    sim.shutdown().await;
}

#[expect(clippy::expect_used, reason = "test harness")]
async fn run_script(python: &Path, script: &Path, url: String) -> String {
    let (python, script) = (python.to_owned(), script.to_owned());
    let run = move || Command::new(python).arg(script).arg(url).output();
    let out = tokio::task::spawn_blocking(run).await.expect("task").expect("python");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}\n{}", String::from_utf8_lossy(&out.stderr));
    said
}
