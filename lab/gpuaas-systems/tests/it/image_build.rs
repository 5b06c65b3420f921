//! `gpuaas image build` with real packages: the same bytes twice, read back by GNU tar, and booted.
//!
//! Root and mmdebstrap are needed, and the mirror of Debian 12 that this machine's own apt is set to; for
//! the boots systemd-nspawn, QEMU and its UEFI firmware. Without them the test says what is missing.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use gpuaas_systems::{is_root, missing_tool};
use gpuaas_testkit::processes::executable;
use rustix::fs::lgetxattr;
use serde_json::Value;
use test_report::SystemTest;

const RECIPE: &str = include_str!("../../../../images/host-debian12.yaml");
const TOOLS: [&str; 4] = ["mmdebstrap", "unshare", "tar", "apt-get"];
/// Written by a recipe's file, so that it changes with the configuration alone.
const SETTING: &str = "--timeout=30";
const CHANGED_SETTING: &str = "--timeout=25";
/// The recipe, and everything that builds, packs, judges and boots an image.
const COVERS: [&str; 5] = [
    "bundles/vm",
    "crates/gpuaas-image/src",
    "lab/gpuaas-systems/src",
    "lab/gpuaas-systems/tests/it/image_build.rs",
    "images",
];

/// The mirror of Debian 12 that apt of this machine is set to.
fn mirror() -> Option<String> {
    let filters = ["Created-By: Packages", "Codename: bookworm", "Component: main"];
    let listed = Command::new("apt-get")
        .args(["indextargets", "--format", "$(SITE)"])
        .args(filters)
        .output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    listed.lines().next().map(str::to_owned)
}

/// A run that has to end well; its standard output.
fn good(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A folder that images are built in.
struct Site {
    folder: tempfile::TempDir,
    mirror: String,
}

impl Site {
    fn new(mirror: &str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), mirror: mirror.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds a recipe of that text; what the command prints.
    fn build(&self, recipe: &str) -> Result<Value, String> {
        self.build_to("host.tar.gz", recipe, &[])
    }

    /// The same to another file, with more to say.
    fn build_to(&self, file: &str, recipe: &str, more: &[&str]) -> Result<Value, String> {
        fs::write(self.path("host.yaml"), recipe).unwrap();
        let mut command = Command::new(executable("gpuaas"));
        command.args(["image", "build", "--json", "--base-url", &self.mirror, "--to"]);
        command.arg(self.path(file)).arg("--cache").arg(self.path("cache")).args(more);
        let output = command.arg(self.path("host.yaml")).output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(serde_json::from_slice(&output.stdout).unwrap())
    }

    /// The one layer of packages in the cache.
    fn packages(&self) -> PathBuf {
        let mut layers = fs::read_dir(self.path("cache/layers")).unwrap();
        let layer = layers.next().unwrap().unwrap().path();
        assert!(layers.next().is_none(), "a changed file made a layer of packages");
        layer.join("tree")
    }

    /// Unpacks the archive as curtin does (curtin/commands/extract.py).
    fn extract(&self) -> PathBuf {
        let tree = self.path("machine");
        fs::create_dir(&tree).unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&tree).args(["--xattrs", "--xattrs-include=*", "-Sxpzf"]);
        good(tar.arg(self.path("host.tar.gz")).arg("--numeric-owner"));
        tree
    }
}

/// Type, mode, owner, number of names, size and target by path, and the capabilities, of
/// everything below a folder. Of a folder, size and number of names are the file system's own.
fn entries(folder: &Path) -> BTreeMap<String, String> {
    let mut find = Command::new("find");
    find.arg(folder).args(["-mindepth", "1"]);
    find.args(["-type", "d", "-printf", "%P\\t%y %m %U %G\\n", "-o"]);
    find.args(["-printf", "%P\\t%y %m %U %G %n %s %l\\n"]);
    let listed = good(&mut find);
    let row = |line: &str| {
        let (path, row) = line.split_once('\t').unwrap();
        (path.to_owned(), row.to_owned())
    };
    let mut entries: BTreeMap<String, String> = listed.lines().map(row).collect();
    for (path, row) in &mut entries {
        let mut value = [0; 64];
        if let Ok(length) = lgetxattr(folder.join(path), "security.capability", &mut value) {
            row.push_str(&format!("capability {:?}", &value[..length]));
        }
    }
    entries
}

/// What GNU tar reads is what packages made: owners, modes, links, capabilities and contents.
fn the_archive_has_the_tree(site: &Site, tree: &Path) {
    // What a recipe and a build change is elsewhere, but for what is of this site below `local`.
    let of = |root: &Path| {
        let mut all = entries(&root.join("usr"));
        all.retain(|path, _| !path.starts_with("local"));
        all
    };
    let (wanted, found) = (of(&site.packages()), of(tree));
    let differs = wanted.iter().find(|(path, row)| found.get(*path) != Some(row));
    assert_eq!(differs, None, "{:?}", differs.map(|(path, _)| found.get(path)));
    assert_eq!(wanted.len(), found.len());
    assert!(wanted.len() > 5_000, "{} entries are no system", wanted.len());
    let any = |what: &str| found.values().any(|row| row.contains(what));
    assert!(any("capability") && any("f 4755 0 0"), "a capability and a setuid program");
    good(
        Command::new("diff")
            .args(["-r", "-q", "--no-dereference", "--exclude=local"])
            .args([site.packages().join("usr"), tree.join("usr")]),
    );
    // And tar compares each time, owner and byte of the archive with what it wrote.
    let mut compare = Command::new("tar");
    compare.arg("-C").arg(tree).args(["--compare", "--numeric-owner", "-zf"]);
    good(compare.arg(site.path("host.tar.gz")));
    // Packed again it is the same archive, by one thread as by all.
    let again = site.path("again.tar.gz");
    for threads in ["1", "2"] {
        let mut pack = Command::new(executable("gpuaas"));
        pack.args(["image", "pack", "--threads", threads, "--to"]).arg(&again).arg(tree);
        good(&mut pack);
        assert!(fs::read(&again).unwrap() == fs::read(site.path("host.tar.gz")).unwrap());
        fs::remove_file(&again).unwrap();
    }
}

/// Container and machine: multi-user, no failed unit, the validator green, the slices' arguments of the
/// kernel, and an identity of its own.
/// Answers what was seen, or why there is nothing to see here.
fn it_boots_twice(site: &Site) -> String {
    let mut command = Command::new(executable("gpuaas"));
    command.args(["image", "boot-test", "--json", "--scratch"]).arg(site.folder.path());
    let output = command.arg(site.path("host.tar.gz")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("image_boot_test_impossible_here") {
        test_report::skip("kernel", format!("not booted: {said}"));
        return String::new();
    }
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{said}");
    let seen: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&seen["passed"], &seen["problems"]), (&true.into(), &Value::Array(Vec::new())));
    let word = |name: &str| seen[name].as_str().unwrap().to_owned();
    assert!(word("firmware").starts_with("UEFI "), "{text}");
    assert!(word("boot_entry").ends_with(r"\EFI\debian\shimx64.efi)"), "{text}");
    assert!(word("kernel").ends_with("-cloud-amd64"), "{text}");
    // The image's arguments stand before those that took the place of its defaults.
    let cmdline = word("cmdline");
    assert!(
        cmdline.ends_with("intel_iommu=on iommu=pt console=ttyS0 no_timer_check panic=-1"),
        "{text}"
    );
    assert_eq!(word("root_source"), "/dev/vda2");
    for (name, wanted) in [("esp_mounted", true), ("machine_id_new", true)] {
        assert_eq!(seen[name], wanted, "{name}: {text}");
    }
    assert_eq!(seen["failed_units"], Value::Array(Vec::new()));
    assert!(seen["seconds_to_multi_user"].as_f64().unwrap() > 1.0, "{text}");
    text
}

/// A machine, which is off when this is dropped.
struct Switched(Child);

impl Drop for Switched {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Makes a whole disk of the same packages, and boots it by firmware that knows nothing of it.
/// Answers what was seen, or why there is nothing to see here.
fn a_whole_disk_boots(site: &Site) -> String {
    // The distribution's own defaults have the kernel say nothing of its arguments (`quiet`).
    let wanted = "intel_iommu=on iommu=pt console=ttyS0 no_timer_check ignore_loglevel";
    let more = ["--maas-filetype", "ddgz", "--slice-kernel-args", wanted];
    let built = match site.build_to("host.ddgz", RECIPE, &more) {
        Err(said) if said.contains("image_build_impossible_here") => {
            test_report::skip("kernel", format!("no whole disk: {said}"));
            return String::new();
        }
        built => built.unwrap(),
    };
    assert_eq!((&built["built_layers"], &built["reused_layers"]), (&1.into(), &1.into()));
    let lint = |layout: &str| {
        let mut lint = Command::new(executable("gpuaas"));
        lint.args(["image", "lint", "--file-type", "ddgz", "--storage-layout", layout]);
        lint.arg(site.path("host.ddgz")).output().unwrap()
    };
    assert!(lint("blank").status.success());
    let flat = String::from_utf8(lint("flat").stdout).unwrap();
    assert!(flat.contains("disk_image_for_layout"), "{flat}");
    // As curtin writes it (curtin/commands/block_meta.py, write_image_to_disk).
    let write = "zcat \"$1\" | dd of=\"$2\" bs=1M conv=sparse status=none";
    let disk = site.path("written");
    good(Command::new("sh").args(["-c", write, "sh"]).arg(site.path("host.ddgz")).arg(&disk));
    let firmware = ["/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_CODE.fd"];
    let firmware = firmware.iter().find(|path| Path::new(path).exists()).unwrap();
    let drive = |rest: &str, path: &Path| format!("{rest},format=raw,file={}", path.display());
    let mut machine = Command::new("qemu-system-x86_64");
    machine.args([
        "-nodefaults",
        "-no-reboot",
        "-machine",
        "q35",
        "-accel",
        "tcg,thread=multi",
        "-smp",
        "2",
        "-m",
        "1536",
    ]);
    machine.args(["-cpu", "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt", "-display", "none"]);
    machine.args(["-serial", "stdio", "-drive", &drive("if=virtio,cache=unsafe", &disk)]);
    machine.args(["-drive", &drive("if=pflash,readonly=on", Path::new(firmware))]);
    let mut machine =
        Switched(machine.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    let mut console = BufReader::new(machine.0.stdout.take().unwrap());
    let mut said = String::new();
    // A prompt is no line, and ends with a blank.
    while !said.ends_with("login: ") {
        let mut part = Vec::new();
        let read = console.read_until(b' ', &mut part).unwrap();
        assert!(read > 0, "no prompt: {said}");
        said.push_str(&String::from_utf8_lossy(&part));
    }
    drop(machine);
    let line = said.lines().find(|line| line.contains("Command line: ")).unwrap_or_default();
    assert!(line.trim_end().contains(wanted), "{line}: {said}");
    format!("a whole disk of {} bytes in {} s: {line}", built["size_bytes"], built["wall_seconds"])
}

#[test]
fn an_image_of_real_packages_is_built_twice_and_boots() {
    let Some(test) = SystemTest::begin(&COVERS) else { return };
    if !is_root() {
        return test_report::skip("root", "only root makes a root file system");
    }
    if let Some(tool) = missing_tool(&TOOLS) {
        return test_report::skip(tool, format!("{tool} is not installed"));
    }
    let Some(mirror) = mirror() else {
        return test_report::skip("network", "apt of this machine has no source of Debian 12");
    };
    let [one, two] = [Site::new(&mirror), Site::new(&mirror)];
    // Most of a build waits for packages and for the disk, so both go on at once.
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| two.build(RECIPE));
        (one.build(RECIPE), second.join().unwrap())
    });
    let first = match first {
        Err(said) if said.contains("image_source_unreachable") => {
            return test_report::skip("network", format!("{mirror} does not answer: {said}"));
        }
        built => built.unwrap(),
    };
    let second = second.unwrap();
    assert_eq!((&first["built_layers"], &first["reused_layers"]), (&2.into(), &0.into()));
    assert_eq!(first["input_digest"], second["input_digest"], "the index changed in between");
    assert_eq!(first["digest"], second["digest"], "{first}\n{second}");
    drop(two);
    let again = one.build(RECIPE).unwrap();
    assert_eq!((&again["built_layers"], &again["digest"]), (&0.into(), &first["digest"]));
    let tree = one.extract();
    the_archive_has_the_tree(&one, &tree);
    println!("{}", it_boots_twice(&one));
    println!("{}", a_whole_disk_boots(&one));
    let changed = RECIPE.replace(SETTING, CHANGED_SETTING);
    assert_ne!(changed, RECIPE);
    let changed = one.build(&changed).unwrap();
    assert_eq!((&changed["built_layers"], &changed["reused_layers"]), (&1.into(), &1.into()));
    assert_ne!(changed["digest"], first["digest"]);
    for (what, build) in [("new", &first), ("unchanged", &again), ("one file", &changed)] {
        println!("{what}: {:.1} s", build["wall_seconds"].as_f64().unwrap());
    }
    test.passed();
}
