//! The container image of the control plane read by the tools of others, and the stacks of parity.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gpuaas_systems::{is_root, made_system, missing_tool};
use gpuaas_testkit::processes::executable;
use serde_json::Value;
use test_report::SystemTest;

const IMAGE: [&str; 5] = [
    "lab/gpuaas-systems/src",
    "lab/gpuaas-systems/tests/it/images.rs",
    "xtask/src/dist",
    "xtask/src/oci.rs",
    "xtask/src/static_build.rs",
];
const IMAGE_TOOLS: [&str; 5] = ["dpkg-deb", "objcopy", "xz", "skopeo", "umoci"];
const STACK: [&str; 8] = [
    "lab/gpuaas-systems/src",
    "lab/gpuaas-systems/tests/it/images.rs",
    "ops/kubernetes",
    "ops/parity",
    "ops/prometheus",
    "xtask/src/dist",
    "xtask/src/oci.rs",
    "xtask/src/parity",
];
const SERVICE: [&str; 7] = [
    "lab/gpuaas-systems/src",
    "lab/gpuaas-systems/tests/it/images.rs",
    "ops/deb",
    "ops/parity",
    "ops/systemd",
    "xtask/src/dist",
    "xtask/src/parity",
];
const STACK_TOOLS: [&str; 5] = ["dockerd", "docker-compose", "skopeo", "mmdebstrap", "objcopy"];

/// A run that has to end well; its standard output.
fn good(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn image_has_all_that_the_control_plane_needs_and_no_rights() {
    let Some(test) = SystemTest::begin(&IMAGE) else { return };
    if !is_root() {
        return test_report::skip("root", "unpacks an image with its owners");
    }
    if let Some(tool) = missing_tool(&IMAGE_TOOLS) {
        return test_report::skip(tool, format_args!("there is no {tool}"));
    }
    let dir = tempfile::tempdir().unwrap();
    let bin = executable("gpuaas").with_file_name("");
    let mut dist = Command::new(executable("xtask"));
    dist.args(["dist", "--quick", "--only", "oci", "--bin"]).arg(bin);
    let said = good(dist.arg("--out").arg(dir.path()));
    let archive = said.lines().find(|line| line.ends_with(".oci.tar")).unwrap();

    let name = format!("oci-archive:{archive}");
    let config = good(Command::new("skopeo").args(["inspect", "--config", &name]));
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/gpuaas");

    let layout = dir.path().join("layout");
    fs::create_dir(&layout).unwrap();
    good(Command::new("tar").args(["--extract", "--file", archive, "-C"]).arg(&layout));
    let listed = good(Command::new("umoci").args(["list", "--layout"]).arg(&layout));
    let image = format!("{}:{}", layout.display(), listed.trim());
    let bundle = dir.path().join("bundle");
    good(Command::new("umoci").args(["unpack", "--image", &image]).arg(&bundle));
    let root = bundle.join("rootfs");
    inside(&root, &["/usr/bin/gpuaas", "--version"]);
    inside(&root, &["/usr/lib/gpuaas/gpuaas-node-agent", "version"]);
    test.passed();
}

/// Runs a program of the image as its user.
fn inside(root: &Path, program: &[&str]) {
    let mut chroot = Command::new("chroot");
    good(chroot.arg("--userspec=65532:65532").arg(root).args(program).current_dir("/"));
}

#[test]
fn compose_file_and_manifests_are_valid() {
    let Some(test) = SystemTest::begin(&STACK) else { return };
    for tool in ["docker-compose", "kubectl"] {
        if missing_tool(&[tool]).is_some() {
            return test_report::skip(tool, format_args!("there is no {tool}"));
        }
    }
    // Kustomize before 4.1 has no `labels`; Debian 12 has version 2.
    let version = Command::new("kubectl").args(["version", "--client"]).output().unwrap();
    if !String::from_utf8_lossy(&version.stdout).contains("Kustomize Version: v5") {
        return test_report::skip("kubectl", "kubectl is too old for the manifests");
    }
    let home = std::env::home_dir().unwrap_or_default();
    if !home.join(".cache/gpuaas/kubernetes-validate-1/made").is_file() {
        return test_report::skip("kubernetes-validate", "`cargo xtask test` installs it");
    }
    let said = good(Command::new(executable("xtask")).args(["parity", "check"]));
    assert_eq!(said.lines().count(), 3, "{said}");
    test.passed();
}

/// A Docker of its own, which ends with the test.
struct Docker {
    child: Child,
    dir: tempfile::TempDir,
}

impl Docker {
    /// None: this kernel does not let it start.
    fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut dockerd = Command::new("dockerd");
        dockerd.args(["--iptables=false", "--bridge=none", "--ip-forward=false"]);
        let folders = [("--data-root", "data"), ("--exec-root", "exec"), ("--pidfile", "pid")];
        for (option, name) in folders {
            dockerd.arg(option).arg(dir.path().join(name));
        }
        let log = fs::File::create(dir.path().join("log")).unwrap();
        dockerd.arg("--host").arg(host(dir.path())).stdout(Stdio::null()).stderr(log);
        let mut docker = Self { child: dockerd.spawn().unwrap(), dir };
        let socket = docker.dir.path().join("socket");
        while UnixStream::connect(&socket).is_err() {
            if docker.child.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::yield_now();
        }
        Some(docker)
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        // It ends its containers and its containerd.
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        self.child.wait().unwrap();
    }
}

fn host(folder: &Path) -> String {
    format!("unix://{}", folder.join("socket").display())
}

#[test]
fn stack_of_production_survives_the_loss_of_a_control_plane() {
    let Some(test) = SystemTest::begin(&STACK) else { return };
    if !is_root() {
        return test_report::skip("root", "starts a Docker of its own");
    }
    if let Some(tool) = missing_tool(&STACK_TOOLS) {
        return test_report::skip(tool, format_args!("there is no {tool}"));
    }
    if let Err(why) = made_system("parity") {
        return test_report::skip("system", why);
    }
    let Some(docker) = Docker::start() else {
        return test_report::skip("kernel", "this kernel does not let Docker start");
    };
    let mut parity = Command::new(executable("xtask"));
    parity.args(["parity", "compose", "--bin"]).arg(executable("gpuaas").with_file_name(""));
    parity.env("DOCKER_HOST", host(docker.dir.path()));
    for port in ["PARITY_PORT_1", "PARITY_PORT_2", "PARITY_PORT_PROMETHEUS"] {
        parity.env(port, "0");
    }
    let said = good(&mut parity);
    assert!(said.contains("ok  another node becomes active without it"), "{said}");
    test.passed();
}

#[test]
fn package_runs_under_systemd_and_survives_a_kill() {
    let Some(test) = SystemTest::begin(&SERVICE) else { return };
    if !is_root() {
        return test_report::skip("root", "boots a system");
    }
    if let Some(tool) = missing_tool(&["systemd-nspawn", "unshare", "dpkg-deb", "objcopy"]) {
        return test_report::skip(tool, format_args!("there is no {tool}"));
    }
    if let Err(why) = made_system("real-host") {
        return test_report::skip("system", why);
    }
    let mut parity = Command::new(executable("xtask"));
    parity.args(["parity", "nspawn", "--bin"]).arg(executable("gpuaas").with_file_name(""));
    let said = good(&mut parity);
    assert!(said.ends_with("all good\n"), "{said}");
    test.passed();
}
