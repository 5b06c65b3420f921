//! The container image of the control plane, and what starts it: read by the tools of others.

use std::fs;
use std::path::Path;
use std::process::Command;

use gpuaas_systems::{is_root, missing_tool};
use gpuaas_testkit::processes::executable;
use serde_json::Value;
use test_report::SystemTest;

const IMAGE: [&str; 5] = [
    "crates/gpuaas-systems/src",
    "crates/gpuaas-systems/tests/it/images.rs",
    "xtask/src/dist",
    "xtask/src/oci.rs",
    "xtask/src/static_build.rs",
];
const IMAGE_TOOLS: [&str; 5] = ["dpkg-deb", "objcopy", "xz", "skopeo", "umoci"];
const STACK: [&str; 5] = [
    "crates/gpuaas-systems/src",
    "crates/gpuaas-systems/tests/it/images.rs",
    "ops/kubernetes",
    "ops/parity",
    "xtask/src/parity",
];

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
