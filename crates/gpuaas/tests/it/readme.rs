//! The blocks to paste of the README and of the first rack's page, in order, as they stand.
//!
//! They run in one shell in a network namespace of their own, so their ports are free whatever runs
//! on this machine, and nothing of the outside is reached.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

const GPUAAS: &str = env!("CARGO_BIN_EXE_gpuaas");

/// What opens a namespace here; none: this user may not.
fn namespace() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
    ways.into_iter().find(|way| {
        let mut probe = Command::new("unshare");
        probe.args(*way).args(["ip", "link", "set", "lo", "up"]).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    })
}

/// Runs blocks in one shell with the executables where `cargo xtask lab` puts them; what they print.
/// None: no namespace can be opened here, which is reported as a skip.
fn run_blocks(blocks: &[&str], script_head: &str) -> Option<(String, String)> {
    let Some(way) = namespace() else {
        test_report::skip("kernel", "no network namespace can be opened here (unshare, ip)");
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let lab = dir.path().join("target/lab");
    std::fs::create_dir_all(&lab).unwrap();
    for name in ["gpuaas", "gpuaas-node-agent"] {
        let built = Path::new(GPUAAS).with_file_name(name);
        assert!(built.exists(), "{} is missing: cargo build --bins", built.display());
        symlink(built, lab.join(name)).unwrap();
    }
    let script = format!(
        "set -e\nip link set lo up\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT\n{script_head}{}",
        blocks.concat()
    );
    let mut shell = Command::new("unshare");
    shell.args(way).args(["bash", "-c", &script]).current_dir(dir.path()).stdin(Stdio::null());
    for name in ["GPUAAS_SERVER", "GPUAAS_TOKEN", "GPUAAS_TOKEN_FILE", "GPUAAS_DATABASE"] {
        shell.env_remove(name);
    }
    shell.env_remove("GPUAAS_CONTEXT").env("XDG_CONFIG_HOME", dir.path());
    let output = shell.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let printed = format!("{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}");
    Some((stdout, printed))
}

/// Blocks to paste, but for those that build.
fn blocks(page: &str) -> Vec<&str> {
    let parts = page.split("```sh\n").skip(1);
    let blocks = parts.filter_map(|part| part.split("```").next());
    blocks.filter(|block| !block.starts_with("cargo ")).collect()
}

#[test]
fn blocks_of_the_readme_run_as_they_stand() {
    let blocks = blocks(include_str!("../../../../README.md"));
    assert!(blocks.len() >= 4, "the README has blocks to paste");
    let Some((stdout, printed)) = run_blocks(&blocks, "") else { return };
    let nodes: Vec<&str> = stdout
        .lines()
        .skip_while(|line| !line.starts_with("NODE    SITE"))
        .filter(|line| line.contains(" active "))
        .collect();
    for host in ["j22u11", "j22u15", "j27u15"] {
        assert!(
            nodes.iter().any(|line| line.starts_with(host)),
            "{host} is not active:\n{printed}"
        );
    }
}

#[test]
fn first_rack_without_hardware_runs_as_it_stands() {
    let page = include_str!("../../../../docs/first-rack.md");
    let (_, section) = page.split_once("## Without hardware").unwrap();
    let path = "export PATH=\"$PWD/target/lab:$PATH\"\n";
    let Some((stdout, printed)) = run_blocks(&blocks(section), path) else { return };
    let active = |line: &str| line.starts_with("j22u11") && line.contains(" active ");
    assert!(stdout.lines().any(active), "j22u11 is not active:\n{printed}");
}
