//! `gpuaas image build` with real packages: the same bytes twice, read back by GNU tar, and booted.
//!
//! Root, mmdebstrap and systemd-nspawn are needed, and the mirror of Debian 12 that this machine's own
//! apt is set to; without them the test says what is missing. What only a machine can show (firmware,
//! grub, a kernel of its own) is not shown here.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::lgetxattr;
use serde_json::Value;

const RECIPE: &str = include_str!("../../../images/host-debian12.yaml");
const TOOLS: [&str; 6] = ["mmdebstrap", "systemd-nspawn", "unshare", "nsenter", "tar", "apt-get"];
/// Written by a recipe's file, so that it changes with the configuration alone.
const SETTING: &str = "--timeout=30";
const CHANGED_SETTING: &str = "--timeout=25";
/// Between two looks at a system that boots.
const LOOK: Duration = Duration::from_millis(200);
const LOOKS: u32 = 600;

/// Boots the folder `$1` in namespaces of its own. systemd wants version 2 of control groups, and in
/// them a group that no other system is in; those of systems that were ended are empty, and go.
const BOOT: &str = r#"
set -eu
mount -t tmpfs tmpfs /run
if [ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ]; then
    mount -t tmpfs tmpfs /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
find /sys/fs/cgroup -mindepth 1 -depth -type d -path '/sys/fs/cgroup/gpuaas-image-*' -exec rmdir -- {} + 2>/dev/null || true
group=/sys/fs/cgroup/gpuaas-image-$(stat -c %i "$1")
mkdir -p "$group"
echo $$ >"$group/cgroup.procs"
exec systemd-nspawn --quiet "--directory=$1" --boot --register=no --keep-unit --private-network \
    --machine=gpuaas-image --console=pipe --kill-signal=SIGRTMIN+4
"#;

/// What keeps this machine from building: a sentence.
fn missing() -> Option<String> {
    if fs::metadata("/proc/self").map_or(1, |own| own.uid()) != 0 {
        return Some("a root file system is made by root".to_owned());
    }
    let folders = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    let is_there = |tool: &&str| folders.iter().any(|dir| Path::new(dir).join(tool).exists());
    TOOLS.iter().find(|tool| !is_there(tool)).map(|tool| format!("there is no {tool}"))
}

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
        fs::write(self.path("host.yaml"), recipe).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuaas"));
        command.args(["image", "build", "--json", "--base-url", &self.mirror, "--to"]);
        command.arg(self.path("host.tar.gz")).arg("--cache").arg(self.path("cache"));
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
        let mut pack = Command::new(env!("CARGO_BIN_EXE_gpuaas"));
        pack.args(["image", "pack", "--threads", threads, "--to"]).arg(&again).arg(tree);
        good(&mut pack);
        assert!(fs::read(&again).unwrap() == fs::read(site.path("host.tar.gz")).unwrap());
        fs::remove_file(&again).unwrap();
    }
}

/// A system under systemd-nspawn; dropping it ends all of its processes.
struct Machine {
    unshare: Child,
    /// Its first process.
    pid: String,
    console: PathBuf,
}

impl Machine {
    /// Boots the folder.
    fn boot(tree: &Path, console: PathBuf) -> Self {
        let own = ["--mount", "--propagation=private", "--pid", "--fork", "--kill-child"];
        let file = fs::File::create(&console).unwrap();
        let mut command = Command::new("unshare");
        command.args(own).args(["--mount-proc", "--", "sh", "-c", BOOT, "boot"]).arg(tree);
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let mut machine = Self { unshare: command.spawn().unwrap(), pid: String::new(), console };
        let is_up = soon(|| {
            machine.pid = first_process(&machine.unshare.id().to_string()).unwrap_or_default();
            !machine.pid.is_empty()
        });
        assert!(is_up, "{}", machine.console_text());
        machine
    }

    fn console_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap()).into_owned()
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &self.pid, "--", "sh", "-euc", line]);
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn text(&self, line: &str) -> String {
        String::from_utf8(self.run(line).stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself.
        if self.unshare.kill().is_ok() {
            self.unshare.wait().unwrap();
        }
    }
}

/// systemd somewhere below a process: unshare, nspawn, systemd.
fn first_process(above: &str) -> Option<String> {
    let children = fs::read_to_string(format!("/proc/{above}/task/{above}/children")).ok()?;
    children.split_whitespace().find_map(|child| {
        let name = fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
        if name.trim() == "systemd" { Some(child.to_owned()) } else { first_process(child) }
    })
}

/// Whether something becomes true.
fn soon(mut is_so: impl FnMut() -> bool) -> bool {
    let (_never, pause) = mpsc::channel::<()>();
    (0..LOOKS).any(|_| is_so() || pause.recv_timeout(LOOK).is_ok())
}

/// What a deployment leaves for cloud-init, so that all of its stages run.
fn deploy(tree: &Path) {
    let seed = tree.join("var/lib/cloud/seed/nocloud");
    fs::create_dir_all(&seed).unwrap();
    fs::write(seed.join("meta-data"), "instance-id: one\nlocal-hostname: h200-1\n").unwrap();
    fs::write(seed.join("user-data"), "#cloud-config\nlocale: C.UTF-8\n").unwrap();
    let settings = "datasource_list: [NoCloud]\nnetwork: {config: disabled}\n";
    fs::write(tree.join("etc/cloud/cloud.cfg.d/90_deployed.cfg"), settings).unwrap();
}

/// Multi-user, no failed unit, the validator green, and an identity of its own.
fn it_boots(site: &Site, tree: &Path) {
    assert_eq!(fs::read_to_string(tree.join("etc/machine-id")).unwrap(), "");
    deploy(tree);
    let machine = Machine::boot(tree, site.path("console"));
    let mut state = String::new();
    let is_booted = soon(|| {
        state = machine.text("timeout 20 systemctl is-system-running --wait");
        ["running", "degraded"].contains(&state.as_str())
    });
    let failed = machine.text("systemctl list-units --failed --plain --no-legend");
    assert!(is_booted && failed.is_empty(), "{state}: {failed}\n{}", machine.console_text());
    assert_eq!(state, "running");
    assert_eq!(machine.text("systemctl is-active multi-user.target"), "active");
    assert!(machine.text("cloud-init status").contains("done"), "{}", machine.console_text());
    let validated = machine.run("gpuaas-h200-host-image-validate.sh");
    let said = String::from_utf8_lossy(&validated.stdout).into_owned();
    assert!(validated.status.success() && !said.contains("fails "), "{said}");
    for line in
        ["ok    build record", "ok    package linux-image-cloud-amd64", "ok    bundle h200-ib"]
    {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    assert_eq!(machine.text("cat /etc/machine-id").len(), 32);
    assert_eq!(machine.text("hostname"), "h200-1");
    assert!(machine.run("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").status.success());
}

#[test]
fn an_image_of_real_packages_is_built_twice_and_boots() {
    if let Some(why) = missing() {
        return println!("skipped: {why}");
    }
    let Some(mirror) = mirror() else {
        return println!("skipped: apt of this machine has no source of Debian 12");
    };
    let [one, two] = [Site::new(&mirror), Site::new(&mirror)];
    // Most of a build waits for packages and for the disk, so both go on at once.
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| two.build(RECIPE));
        (one.build(RECIPE), second.join().unwrap())
    });
    let first = match first {
        Err(said) if said.contains("image_source_unreachable") => {
            return println!("skipped: {mirror} does not answer: {said}");
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
    it_boots(&one, &tree);
    let changed = RECIPE.replace(SETTING, CHANGED_SETTING);
    assert_ne!(changed, RECIPE);
    let changed = one.build(&changed).unwrap();
    assert_eq!((&changed["built_layers"], &changed["reused_layers"]), (&1.into(), &1.into()));
    assert_ne!(changed["digest"], first["digest"]);
    for (what, build) in [("new", &first), ("unchanged", &again), ("one file", &changed)] {
        println!("{what}: {:.1} s", build["wall_seconds"].as_f64().unwrap());
    }
}
