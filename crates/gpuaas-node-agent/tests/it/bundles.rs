//! The bundles of this repository, built, taken apart and run by the launcher on a folder that
//! stands for a host.
#![expect(clippy::unwrap_used, reason = "a fixture that fails is a failed test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpuaas_artifact::read_folder;
use gpuaas_bundle::Digest;
use serde_json::Value;

const AGENT: &str = env!("CARGO_BIN_EXE_gpuaas-node-agent");

struct Fixture {
    dir: tempfile::TempDir,
    source: PathBuf,
}

impl Fixture {
    /// A host with both bundles installed; none where the fixture's tools are missing.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundles");
        let fixture = Self { dir, source };
        for tool in ["mkfs.ext4", "blkid", "wipefs"] {
            let found = Command::new("bash").args(["-c", &format!("command -v {tool}")]).output();
            if !found.is_ok_and(|output| output.status.success()) {
                test_report::skip(tool, "not installed");
                return None;
            }
        }
        let make_host = fixture.source.join("fixture/make-host.sh");
        let made = Command::new("bash").arg(make_host).arg(fixture.root()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        for name in ["h200-ib", "h200-slice-vm"] {
            let archive = read_folder(&fixture.source.join(name)).unwrap();
            let bytes = archive.write().unwrap();
            let file = fixture.dir.path().join(format!("{name}.tar"));
            std::fs::write(&file, &bytes).unwrap();
            let output = Command::new(AGENT)
                .args(["bundle", "unpack", "--bundle", &archive.manifest.reference()])
                .args(["--digest", &Digest::sha256(&bytes).to_string(), "--into"])
                .arg(fixture.installed(name))
                .arg(&file)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        Some(fixture)
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn installed(&self, name: &str) -> PathBuf {
        self.root().join("usr/local/share/gpuaas/site-bootstrap").join(name)
    }

    fn agent(&self, arguments: &[&str]) -> Output {
        Command::new(AGENT)
            .args(arguments)
            .arg("--root")
            .arg(self.root())
            .env("GPUAAS_FIXTURE_KERNEL", self.source.join("fixture/kernel"))
            .output()
            .unwrap()
    }

    fn run(&self, name: &str) -> Value {
        self.by_hand(name, &[], &[])
    }

    /// As a person does: from some folder, with values in the environment.
    fn by_hand(&self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Value {
        let output = Command::new(self.installed(name).join("bootstrap.sh"))
            .args(arguments)
            .args(["--root", "root"])
            .current_dir(self.dir.path())
            .env("GPUAAS_LAUNCHER", AGENT)
            .env("GPUAAS_FIXTURE_KERNEL", self.source.join("fixture/kernel"))
            .envs(environment.iter().copied())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stdout));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn file(&self, path: &str) -> String {
        std::fs::read_to_string(self.root().join(path)).unwrap()
    }

    fn saved_input(&self, file: &str, name: &str) -> String {
        let path = format!("var/lib/gpuaas/site-bootstrap/{file}");
        let kept: Value = serde_json::from_str(&self.file(&path)).unwrap();
        kept[name].as_str().unwrap().to_owned()
    }
}

fn changed(report: &Value) -> u64 {
    let own =
        report["phases"].as_array().unwrap().iter().map(|phase| phase["changed"].as_u64().unwrap());
    let required = report["requires"].as_array().unwrap().iter().map(changed);
    own.sum::<u64>() + required.sum::<u64>()
}

#[test]
fn a_slice_host_gets_its_baseline_first_and_a_second_run_changes_nothing() {
    let Some(fixture) = Fixture::new() else { return };
    let site = [
        ["--set", "guest_subnet=10.7.0.0/24"],
        ["--set", "gateway=10.7.0.1/24"],
        ["--set", "dhcp_first=10.7.0.10"],
        ["--set", "dhcp_last=10.7.0.250"],
        ["--set", "login_password_hash=$6$salt$h8sh"],
    ];
    let first = fixture.by_hand("h200-slice-vm", site.as_flattened(), &[]);
    assert_eq!(first["requires"][0]["bundle"], gpuaas_types::built_in_bundle!("h200-ib"));
    assert!(changed(&first) > 10, "{first:#}");
    let edge = fixture.file("etc/nginx/sites-available/gpuaas-netdata-edge");
    assert!(edge.contains("/j22u11/"), "the host's own name: {edge}");
    // As docs/hosts.md#bundles-on-a-host has it: what the site set is what it was.
    let second = fixture.by_hand("h200-slice-vm", &[], &[("GPUAAS_SLICE_INSTALL_PACKAGES", "0")]);
    assert_eq!(changed(&second), 0, "{second:#}");
    assert_eq!(fixture.saved_input("h200-slice-vm.inputs", "gateway"), "10.7.0.1/24");
    assert_eq!(fixture.saved_input("h200-ib.inputs", "install_packages"), "0");
    for bundle in ["h200-ib", "h200-slice-vm"] {
        let secrets = format!("{bundle}.secrets");
        assert_eq!(
            fixture.saved_input(&secrets, "login_password_hash"),
            "$6$salt$h8sh",
            "{bundle}"
        );
    }
    // The baseline alone stays a slice host's.
    let alone = fixture.run("h200-ib");
    assert_eq!(changed(&alone), 0, "{alone:#}");
    assert_eq!(fixture.saved_input("h200-ib.inputs", "nvidia_smi"), "0");
    for name in ["h200-ib.done", "h200-slice-vm.done", "h200-slice-vm.validation"] {
        assert!(
            fixture.root().join("var/lib/gpuaas/site-bootstrap").join(name).is_file(),
            "{name}"
        );
    }
}

/// What the files of a host show is checked for what it is; what only a live host could answer
/// keeps the gate shut, and says so.
#[test]
fn the_gate_sees_effects_and_not_markers() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.run("h200-slice-vm");
    let gate = || {
        let output = fixture.agent(&["check", "--gate", "slice_ready"]);
        assert_eq!(output.status.code(), Some(4), "nobody answers for this host");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["checks"].as_array().unwrap().clone()
    };
    let passed = |checks: &[Value], name: &str| {
        let found = checks.iter().find(|check| check["name"].as_str().unwrap().contains(name));
        found.map(|check| check["passed"].as_bool().unwrap())
    };
    let before = gate();
    for name in ["driver vfio-pci of 10de", "virtual functions of 15b3", "60-ipoib.yaml"] {
        assert_eq!(passed(&before, name), Some(true), "{name}: {before:#?}");
    }
    std::fs::remove_file(fixture.root().join("etc/netplan/60-ipoib.yaml")).unwrap();
    let after = gate();
    let lost =
        after.iter().find(|c| c["name"].as_str().unwrap().contains("60-ipoib.yaml")).unwrap();
    assert_eq!(lost["passed"], false);
    assert!(lost["reason"].as_str().unwrap().starts_with("host baseline incomplete"), "{lost}");
    assert!(fixture.root().join("var/lib/gpuaas/site-bootstrap/h200-ib.done").is_file());
}

/// host.sh follows the variable, the launcher does not: it would change this machine.
#[test]
fn a_host_root_in_the_environment_alone_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], value: &str| {
        let mut command = Command::new(AGENT);
        command.args(arguments).env("GPUAAS_HOST_ROOT", value).env_remove("GPUAAS_FIXTURE_KERNEL");
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let folder = dir.path().to_str().unwrap();
    for words in [
        &["bundle", "run", folder][..],
        &["bundle", "boot"],
        &["check", "--gate", "active"],
        &["facts"],
        &["topology"],
        &["run", "--config", "/nonexistent"],
    ] {
        let (code, said) = run(words, "/srv/host");
        assert_eq!(code, Some(1), "{words:?}: {said}");
        assert!(said.contains("GPUAAS_HOST_ROOT is set to /srv/host"), "{words:?}: {said}");
    }
    let (_, said) = run(&["bundle", "run", folder, "--root", folder], "/srv/host");
    assert!(said.contains("manifest.json"), "the argument counts: {said}");
    assert_eq!(run(&["facts"], "").0, Some(0));
}
