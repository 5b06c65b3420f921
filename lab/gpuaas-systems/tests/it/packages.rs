//! The Debian packages: their files, their units, and what dpkg does with them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuaas_systems::{is_root, missing_tool};
use gpuaas_testkit::processes::executable;
use test_report::SystemTest;

const COVERS: [&str; 9] = [
    "lab/gpuaas-systems/src",
    "lab/gpuaas-systems/tests/it/packages.rs",
    "lab/gpuaas-systems/tests/it/packages.sh",
    "ops/deb",
    "ops/systemd",
    "xtask/src/debug_info.rs",
    "xtask/src/dist",
    "xtask/src/oci.rs",
    "xtask/src/static_build.rs",
];
const TOOLS: [&str; 4] = ["dpkg-deb", "objcopy", "xz", "sha256sum"];
/// What installs a package in a copy of this system.
const INSTALL_TOOLS: [&str; 5] =
    ["dpkg", "unshare", "systemd-sysusers", "systemd-tmpfiles", "deb-systemd-helper"];
/// Every file of the control plane's package but the manual, with its mode.
const CONTROL_PLANE: [&str; 22] = [
    "-rw-r----- etc/gpuaas/serve.yaml",
    "lrwxrwxrwx usr/bin/gpuaas",
    "-rwxr-xr-x usr/lib/gpuaas/gpuaas",
    "-rwxr-xr-x usr/lib/gpuaas/gpuaas-node-agent",
    "-rw-r--r-- usr/lib/systemd/system/gpuaas-backup.service",
    "-rw-r--r-- usr/lib/systemd/system/gpuaas-backup.timer",
    "-rw-r--r-- usr/lib/systemd/system/gpuaas-nodes.socket",
    "-rw-r--r-- usr/lib/systemd/system/gpuaas-operators.socket",
    "-rw-r--r-- usr/lib/systemd/system/gpuaas.service",
    "-rw-r--r-- usr/lib/sysusers.d/gpuaas.conf",
    "-rw-r--r-- usr/lib/tmpfiles.d/gpuaas.conf",
    "-rw-r--r-- usr/share/bash-completion/completions/gpuaas",
    "-rw-r--r-- usr/share/doc/gpuaas/README.md",
    "-rw-r--r-- usr/share/doc/gpuaas/copyright",
    "-rw-r--r-- usr/share/doc/gpuaas/packages.md",
    "-rw-r--r-- usr/share/doc/gpuaas/serve.yaml",
    "-rw-r--r-- usr/share/fish/vendor_completions.d/gpuaas.fish",
    "-rw-r--r-- usr/share/gpuaas/gpuaas-node-agent.cdx.json",
    "-rw-r--r-- usr/share/gpuaas/gpuaas.cdx.json",
    "-rw-r--r-- usr/share/man/man1/gpuaas-node-onboard.1.gz",
    "-rw-r--r-- usr/share/man/man1/gpuaas.1.gz",
    "-rw-r--r-- usr/share/zsh/vendor-completions/_gpuaas",
];
const AGENT: [&str; 5] = [
    "-rwxr-xr-x usr/bin/gpuaas-node-agent",
    "-rw-r--r-- usr/lib/systemd/system/gpuaas-node-agent.service",
    "-rw-r--r-- usr/share/doc/gpuaas-node-agent/copyright",
    "-rw-r--r-- usr/share/doc/gpuaas-node-agent/packages.md",
    "-rw-r--r-- usr/share/gpuaas/gpuaas-node-agent.cdx.json",
];
/// Unit, and the exposure that `systemd-analyze security` may say, times ten.
const UNITS: [(&str, &str); 3] = [
    ("gpuaas.service", "--threshold=15"),
    ("gpuaas-backup.service", "--threshold=15"),
    ("gpuaas-node-agent.service", "--threshold=90"),
];

/// A run that has to end well; its standard output.
fn good(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The packages of this build's executables, by name, and the sums of all files.
fn deliver(out: &Path, more: &[&str]) -> (BTreeMap<String, PathBuf>, String) {
    let bin = executable("gpuaas").with_file_name("");
    let mut dist = Command::new(executable("xtask"));
    let said =
        good(dist.args(["dist", "--quick", "--bin"]).arg(bin).args(more).arg("--out").arg(out));
    let packages = said.lines().filter(|line| line.ends_with(".deb")).map(|line| {
        let path = PathBuf::from(line);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name.split_once('_').unwrap().0.to_owned(), path)
    });
    (packages.collect(), fs::read_to_string(out.join("SHA256SUMS")).unwrap())
}

/// Mode, owner and path of each file, the manual's other pages left out.
fn files(package: &Path) -> Vec<String> {
    let listed = good(Command::new("dpkg-deb").arg("--contents").arg(package));
    let mut files = Vec::new();
    for line in listed.lines().filter(|line| !line.starts_with('d')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[1], "root/root", "{line}");
        files.push(format!("{} {}", words[0], words[5].trim_start_matches("./")));
    }
    let expected = CONTROL_PLANE.iter().chain(&AGENT);
    let expected: Vec<&str> = expected.copied().collect();
    files.retain(|file| !file.contains("/man1/") || expected.contains(&file.as_str()));
    files.sort_by_key(|file| file.split_once(' ').unwrap().1.to_owned());
    files
}

#[test]
fn packages_have_the_same_bytes_and_their_files_twice() {
    let Some(test) = SystemTest::begin(&COVERS) else { return };
    if let Some(tool) = missing_tool(&TOOLS) {
        return test_report::skip(tool, format_args!("there is no {tool}"));
    }
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
    let (packages, sums) = deliver(&one, &[]);
    assert_eq!(deliver(&other, &[]).1, sums);
    assert_eq!(files(&packages["gpuaas"]), CONTROL_PLANE);
    assert_eq!(files(&packages["gpuaas-node-agent"]), AGENT);

    let field = |package: &str, name: &str| {
        let mut dpkg = Command::new("dpkg-deb");
        good(dpkg.arg("--field").arg(&packages[package]).arg(name)).trim().to_owned()
    };
    for package in ["gpuaas", "gpuaas-node-agent"] {
        assert_eq!(field(package, "Package"), package);
        assert!(field(package, "Version").starts_with("0.1.0"));
        assert!(field(package, "Maintainer").contains('@'));
        assert!(field(package, "Installed-Size").parse::<u64>().unwrap() > 1000);
    }
    assert!(field("gpuaas", "Depends").contains("systemd"));
    assert_eq!(field("gpuaas-node-agent", "Conflicts"), "gpuaas");
    let mut dpkg = Command::new("dpkg-deb");
    let conffiles = good(dpkg.arg("--info").arg(&packages["gpuaas"]).arg("conffiles"));
    assert_eq!(conffiles, "/etc/gpuaas/serve.yaml\n");
    units_are_good(&packages, dir.path());
    test.passed();
}

/// systemd takes the units, and says that they are no more exposed than they should be.
fn units_are_good(packages: &BTreeMap<String, PathBuf>, dir: &Path) {
    if missing_tool(&["systemd-analyze"]).is_some() {
        return test_report::skip("systemd-analyze", "there is no systemd-analyze");
    }
    let root = dir.join("root");
    for package in packages.values() {
        good(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&root));
    }
    let folder = root.join("usr/lib/systemd/system");
    for entry in fs::read_dir(&folder).unwrap() {
        // The commands are those of the tree, which is not installed here.
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let text = text.replace("/usr/bin/gpuaas-node-agent.previous", "/bin/true");
        fs::write(&path, text.replace("/usr/bin/", root.join("usr/bin/").to_str().unwrap()))
            .unwrap();
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).args(UNITS.map(|(unit, _)| folder.join(unit)));
    let output = verify.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("gpuaas")).collect();
    assert!(output.status.success() && ours.is_empty(), "{said}");
    for (unit, threshold) in UNITS {
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--offline=true", "--no-pager", threshold]);
        good(security.arg(folder.join(unit)));
    }
}

#[test]
fn an_upgrade_keeps_state_and_a_purge_deletes_it_on_request() {
    let Some(test) = SystemTest::begin(&COVERS) else { return };
    if !is_root() {
        return test_report::skip("root", "mounts a copy of this system");
    }
    let tools: Vec<&str> = TOOLS.iter().chain(&INSTALL_TOOLS).copied().collect();
    if let Some(tool) = missing_tool(&tools) {
        return test_report::skip(tool, format_args!("there is no {tool}"));
    }
    let dir = tempfile::tempdir().unwrap();
    deliver(&dir.path().join("packages"), &["--only", "deb"]);
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/packages.sh");
    good(Command::new(script).arg(&work));
    test.passed();
}
