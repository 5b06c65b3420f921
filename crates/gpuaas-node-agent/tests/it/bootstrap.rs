//! The rendered scripts, run for real in a private folder, with the real agent.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that fails is a failed test")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::{BOOTSTRAP_TOKEN, ENROLLMENT_TOKEN, FakeControlPlane, run_id};
use gpuaas_artifact::{
    ArtifactStore, BootstrapInputs, BootstrapLimits, BundleCatalog, CatalogBundle, CheckedBundle,
    parse_user_data, read_folder, render_user_data, unpack_user_data,
};
use gpuaas_bundle::{Delivery, Digest, Inputs, SigningKey};
use gpuaas_node_agent::clock::{AgentClock as _, HostClock};
use gpuaas_types::agent::PhaseOutcome;
use tokio::process::Command;

const AGENT: &str = env!("CARGO_BIN_EXE_gpuaas-node-agent");
const CA: &str = include_str!("../../../gpuaas-artifact/src/tests/ca.pem");
/// A secret input of the bundle site-test.
const TOKEN: &str = "h8sh-of-a-site";

/// A simulated host. What it started ends with it.
struct Machine {
    dir: tempfile::TempDir,
    fake: FakeControlPlane,
    store: ArtifactStore,
    catalog: BundleCatalog,
    key: SigningKey,
    path: String,
}

struct ScriptRun {
    ok: bool,
    output: String,
}

impl Machine {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = ArtifactStore::open(&dir.path().join("artifacts")).unwrap();
        let fake = FakeControlPlane::start_tls(&dir.path().join("artifacts"), 86_400.0).await;
        fake.change(|seen| seen.heartbeat_interval_seconds = 600);
        fs::create_dir(dir.path().join("root")).unwrap();
        let path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned();
        let key = SigningKey::generate().unwrap();
        let catalog = BundleCatalog::with_built_in(&store, &key, HostClock.now()).unwrap();
        Self { dir, fake, store, catalog, key, path }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn inputs(&self, bundle: Option<Delivery>) -> BootstrapInputs {
        let agent = self.store.put_file(Path::new(AGENT)).unwrap();
        BootstrapInputs {
            run_id: run_id(),
            hostname: "j22u11".to_owned(),
            site: "lab-1".to_owned(),
            control_plane_url: self.fake.url.clone(),
            bootstrap_token: BOOTSTRAP_TOKEN.to_owned(),
            enrollment_token: ENROLLMENT_TOKEN.to_owned(),
            bundle,
            agent: ArtifactStore::artifact("gpuaas-node-agent", "0.1.0", agent),
            ca_pem: Some(CA.to_owned()),
            control_plane_ca_pem: self.fake.anchor_pem(),
            deploy_user: None,
            limits: BootstrapLimits {
                callback_attempts: 2,
                fetch_attempts: 2,
                retry_milliseconds: 10,
                ready_seconds: 20,
            },
        }
    }

    /// A bundle of one phase, published.
    fn bundle(&self, script: &str) -> Option<Delivery> {
        let folder = self.dir.path().join("site-test");
        fs::create_dir_all(&folder).unwrap();
        let manifest = "name: site-test\nversion: 1.0.0\nkind: site_bootstrap\nabout: a test\n\
                        inputs:\n  word: {type: string, about: x, environment: WORD, default: fine}\n  \
                        token: {type: string, about: x, environment: TOKEN, default: '', \
                        secret: true}\n\
                        phases: [{name: only, run: only.sh, timeout_seconds: 20}]\n";
        fs::write(folder.join("bundle.yaml"), manifest).unwrap();
        let script = format!("#!/bin/bash\nset -euo pipefail\n{script}");
        fs::write(folder.join("only.sh"), script).unwrap();
        let bytes = read_folder(&folder).unwrap().write().unwrap();
        let bundle = CheckedBundle::read(&bytes).unwrap();
        let envelope = self.key.sign(&bundle.statement(HostClock.now())).unwrap();
        let (published_by, published_at) = ("ann".to_owned(), HostClock.now());
        let one = CatalogBundle { bundle, envelope, built_in: false, published_by, published_at };
        self.catalog.add(&bytes, one).unwrap();
        self.delivery("site-test@1.0.0", Inputs::new())
    }

    fn delivery(&self, reference: &str, inputs: Inputs) -> Option<Delivery> {
        let pins = self.catalog.pins(reference).unwrap();
        let secrets = [("token".to_owned(), TOKEN.to_owned())].into();
        self.catalog.delivery(&pins, inputs, secrets, &[], HostClock.now()).unwrap()
    }

    fn site_base(&self) -> Option<Delivery> {
        self.delivery("site-base@1.0.0", Inputs::new())
    }

    /// Runs every script as cloud-init does, also after one that failed.
    async fn boot(&self, inputs: &BootstrapInputs) -> [ScriptRun; 2] {
        let parsed = parse_user_data(&render_user_data(inputs).unwrap().bytes).unwrap();
        let scripts = unpack_user_data(&parsed, &self.root()).unwrap();
        let [site, node] = &scripts[..] else { panic!("{scripts:?}") };
        [self.run(site).await, self.run(node).await]
    }

    async fn run(&self, script: &Path) -> ScriptRun {
        let output = Command::new("bash")
            .arg(script)
            .env_clear()
            .env("PATH", &self.path)
            .env("GPUAAS_HOST_ROOT", self.root())
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        ScriptRun {
            ok: output.status.success(),
            output: String::from_utf8_lossy(&text).into_owned(),
        }
    }

    fn file(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap()
    }

    fn agent_pid(&self) -> Option<u32> {
        fs::read_to_string(self.root().join("run/gpuaas/agent.pid")).ok()?.trim().parse().ok()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(pid) = self.agent_pid() {
            // The agent leads a process group of its own; it may be gone already.
            let group = format!("-{pid}");
            let kill = std::process::Command::new("kill").args(["-KILL", "--", &group]).status();
            assert!(kill.is_ok());
        }
    }
}

fn is_alive(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[tokio::test]
async fn a_host_comes_up_in_order_and_a_second_boot_changes_nothing() {
    let machine = Machine::new().await;
    let inputs = machine.inputs(machine.site_base());
    let [site, node] = machine.boot(&inputs).await;
    assert!(site.ok && node.ok, "{}\n{}", site.output, node.output);
    let order = [
        "site_bootstrap started",
        "site_bootstrap succeeded",
        "node_bootstrap started",
        "enroll",
        "heartbeat",
        "node_bootstrap succeeded",
    ];
    assert_eq!(machine.fake.calls(), order);

    assert_eq!(machine.file("etc/gpuaas/site.conf"), "GPUAAS_SITE=lab-1\n");
    assert_eq!(machine.file("usr/local/share/ca-certificates/gpuaas-site.crt"), CA);
    let delivered = inputs.bundle.as_ref().unwrap().bundles[0].artifact.digest;
    let done = format!("1.0.0 {} {delivered}\n", run_id());
    assert_eq!(machine.file("var/lib/gpuaas/site-bootstrap/site-base.done"), done);
    let phases = machine.fake.change(|seen| std::mem::take(&mut seen.phases));
    let told: Vec<(&str, PhaseOutcome, usize)> =
        phases.iter().map(|p| (p.phase.as_str(), p.outcome, p.changed)).collect();
    let ran = PhaseOutcome::Ran;
    assert_eq!(told, [("site-name", ran, 1), ("site-trust", ran, 1)]);
    assert!(phases.iter().all(|phase| phase.bundle == "site-base@1.0.0"));
    for secret in ["etc/gpuaas/agent.json", "var/lib/gpuaas/agent/identity.json"] {
        let mode = fs::metadata(machine.root().join(secret)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
    for output in [&site.output, &node.output, &machine.file("var/log/gpuaas/agent.log")] {
        assert!(!output.contains(BOOTSTRAP_TOKEN) && !output.contains(ENROLLMENT_TOKEN));
    }

    let pid = machine.agent_pid().unwrap();
    let [site, node] = machine.boot(&inputs).await;
    assert!(site.ok && node.ok, "{}\n{}", site.output, node.output);
    assert_eq!(machine.agent_pid(), Some(pid));
    assert!(is_alive(pid));
    assert_eq!(machine.fake.count("enroll"), 1);
    let phases = machine.fake.change(|seen| std::mem::take(&mut seen.phases));
    assert!(phases.iter().all(|phase| phase.changed == 0), "{phases:?}");
    let messages = machine.fake.change(|seen| seen.messages.clone());
    assert!(messages[1].starts_with("site-base@1.0.0: site-name 0."), "{messages:?}");
    assert!(messages[1].ends_with("1 of 1 effects in place"), "{messages:?}");
}

#[tokio::test]
async fn a_bundle_that_fails_stops_the_node_bootstrap() {
    let machine = Machine::new().await;
    let script = "echo preparing\necho \"no disk for $WORD $TOKEN\" >&2\nexit 7\n";
    let [site, node] = machine.boot(&machine.inputs(machine.bundle(script))).await;
    assert!(!site.ok && !node.ok);
    let order = ["site_bootstrap started", "site_bootstrap failed", "node_bootstrap failed"];
    assert_eq!(machine.fake.calls(), order);
    let messages = machine.fake.change(|seen| seen.messages.clone());
    assert!(messages[1].contains("site-test@1.0.0: only failed: it failed with"), "{messages:?}");
    assert!(messages[1].contains("preparing | no disk for fine [redacted]"), "{messages:?}");
    let phases = machine.fake.change(|seen| std::mem::take(&mut seen.phases));
    let told = format!("{} {} {messages:?} {phases:?}", site.output, node.output);
    assert!(told.contains("fine [redacted]") && !told.contains(TOKEN), "{told}");
    assert!(messages[2].contains("site bootstrap of this run did not succeed"), "{messages:?}");
    assert_eq!(machine.agent_pid(), None);

    let repaired = machine.inputs(machine.bundle("echo fine\n"));
    let [site, node] = machine.boot(&repaired).await;
    assert!(site.ok && node.ok, "{}\n{}", site.output, node.output);
}

/// Whatever is wrong with what a node is told or given, nothing of the bundle is placed or run.
#[tokio::test]
async fn a_bundle_without_a_trusted_signature_is_not_run() {
    let machine = Machine::new().await;
    let good = machine.bundle("touch \"$GPUAAS_HOST_ROOT/ran\"\n").unwrap();
    let refused = async |delivery: Delivery, reason: &str| {
        let [site, node] = machine.boot(&machine.inputs(Some(delivery))).await;
        assert!(!site.ok && !node.ok, "{reason}");
        let messages = machine.fake.change(|seen| std::mem::take(&mut seen.messages));
        assert!(messages[1].contains(reason), "{reason}: {messages:?}");
        assert!(!machine.root().join("ran").exists());
        assert!(!machine.root().join("usr/local/share/gpuaas").exists(), "{reason}");
    };
    let with = |change: fn(&mut Delivery)| {
        let mut delivery = good.clone();
        change(&mut delivery);
        delivery
    };
    refused(with(|d| d.trusted_keys.clear()), "not signed by a trusted key").await;
    refused(
        with(|d| d.trusted_keys[0].until = Some(HostClock.now())),
        "has not been trusted since",
    )
    .await;
    refused(with(|d| d.bundles[0].artifact.version = "1.0.1".into()), "was requested").await;
    let forged = |d: &mut Delivery| {
        let other = SigningKey::generate().unwrap();
        let statement = d.bundles[0].envelope.unverified_statement().unwrap();
        let own = d.bundles[0].envelope.signatures[0].keyid.clone();
        d.bundles[0].envelope = other.sign(&statement).unwrap();
        d.bundles[0].envelope.signatures[0].keyid = own;
    };
    refused(with(forged), "does not match the key of").await;
    let missing = |d: &mut Delivery| {
        let digest = Digest::sha256(b"x");
        d.bundles[0].artifact.digest = digest;
        d.bundles[0].artifact.url = ArtifactStore::url_path(&digest);
    };
    refused(with(missing), "artifact_not_found").await;
    fs::write(machine.store.path(&good.bundles[0].artifact.digest), "tampered").unwrap();
    refused(good.clone(), "digest is").await;
}

#[tokio::test]
async fn a_site_sets_what_its_bundle_is_run_with() {
    let machine = Machine::new().await;
    machine.bundle("echo \"$WORD at $GPUAAS_SITE $TOKEN\" >\"$GPUAAS_HOST_ROOT/said\"\n");
    let inputs = [("word".to_owned(), "hello; $(reboot)".to_owned())].into();
    let [site, _] =
        machine.boot(&machine.inputs(machine.delivery("site-test@1.0.0", inputs))).await;
    assert!(site.ok, "{}", site.output);
    assert_eq!(machine.file("said"), format!("hello; $(reboot) at lab-1 {TOKEN}\n"));
    let kept = "var/lib/gpuaas/site-bootstrap/site-test.secrets";
    assert!(machine.file(kept).contains(TOKEN));
    for secret in [kept, "etc/gpuaas/bootstrap.json"] {
        let mode = fs::metadata(machine.root().join(secret)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
}

#[tokio::test]
async fn callbacks_that_fail_do_not_matter_and_no_bundle_is_fine() {
    let machine = Machine::new().await;
    machine.fake.change(|seen| seen.callbacks_down = true);
    let [site, node] = machine.boot(&machine.inputs(None)).await;
    assert!(site.ok && node.ok, "{}\n{}", site.output, node.output);
    assert!(site.output.contains("was given up"), "{}", site.output);
    assert_eq!(machine.fake.calls()[..2], ["enroll", "heartbeat"]);
}

/// Each execution of a script has a greater number than every earlier one, also where the file that
/// keeps it is lost, and a control plane that knows no numbers gets its callbacks.
#[tokio::test]
async fn callbacks_carry_the_attempt() {
    let machine = Machine::new().await;
    let failing = machine.inputs(machine.bundle("exit 1\n"));
    let kept = machine.root().join("var/lib/gpuaas/site-bootstrap/attempt");
    machine.boot(&failing).await;
    machine.boot(&failing).await;
    fs::write(&kept, "x7\n").unwrap();
    machine.boot(&failing).await;
    let numbers = machine.fake.change(|seen| std::mem::take(&mut seen.attempts));
    let calls = machine.fake.calls();
    let one = ["site_bootstrap started", "site_bootstrap failed", "node_bootstrap failed"];
    let progress: Vec<&str> =
        calls.iter().map(String::as_str).filter(|call| one.contains(call)).collect();
    assert_eq!(progress, [one, one, one].concat());
    let numbers: Vec<u64> = numbers.into_iter().map(Option::unwrap).collect();
    for boot in numbers.chunks(3) {
        assert!(boot[0] == boot[1] && boot[1] < boot[2], "{numbers:?}");
    }
    assert!(numbers[2] < numbers[3] && numbers[3] > 1_700_000_000, "{numbers:?}");
    assert!(numbers[6] > 1_700_000_000, "by the clock: {numbers:?}");
    machine.fake.change(|seen| seen.knows_no_attempts = true);
    machine.boot(&failing).await;
    assert_eq!(machine.fake.change(|seen| std::mem::take(&mut seen.attempts)), [None; 3]);
}

#[tokio::test]
async fn a_refused_enrollment_fails_the_node_bootstrap_with_the_reason() {
    let machine = Machine::new().await;
    machine.fake.change(|seen| seen.refuse_enrollment = true);
    let [site, node] = machine.boot(&machine.inputs(None)).await;
    assert!(site.ok && !node.ok);
    assert_eq!(machine.fake.calls().last().unwrap(), "node_bootstrap failed");
    let message = machine.fake.change(|seen| seen.messages.last().unwrap().clone());
    assert!(message.contains("token_spent"), "{message}");
}

#[tokio::test]
async fn a_host_without_curl_comes_up_the_same() {
    let mut machine = Machine::new().await;
    let tools = machine.dir.path().join("tools");
    fs::create_dir(&tools).unwrap();
    for tool in [
        "bash",
        "cat",
        "chmod",
        "cmp",
        "date",
        "realpath",
        "stat",
        "sync",
        "dirname",
        "env",
        "grep",
        "mkdir",
        "mktemp",
        "mv",
        "python3",
        "rm",
        "setsid",
        "sha256sum",
        "sleep",
        "tail",
        "timeout",
        "tr",
    ] {
        let places = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool));
        let found = places.iter().find(|path| path.exists()).unwrap();
        symlink(found, tools.join(tool)).unwrap();
    }
    machine.path = tools.to_str().unwrap().to_owned();
    let [site, node] = machine.boot(&machine.inputs(machine.site_base())).await;
    assert!(site.ok && node.ok, "{}\n{}", site.output, node.output);
    assert_eq!(machine.fake.calls().last().unwrap(), "node_bootstrap succeeded");
}

/// What the node bootstrap must not do (docs/hosts.md#node-bootstrap), as the programs
/// that would do it: each is there, notes that it was called, and fails.
const FORBIDDEN: [&str; 27] = [
    // Installing packages.
    "add-apt-repository",
    "apt",
    "apt-get",
    "aptitude",
    "dpkg",
    "pip",
    "pip3",
    "snap",
    // Repairing or configuring hosts: users, storage, kernel, network.
    "chpasswd",
    "ip",
    "mkfs.ext4",
    "modprobe",
    "mount",
    "netplan",
    "nft",
    "ovs-vsctl",
    "update-grub",
    "useradd",
    "usermod",
    // A way in that is not the agent's.
    "ssh",
    "ssh-keygen",
    "sshd",
    // Work that comes again without the agent.
    "at",
    "crontab",
    "systemd-run",
    // Another boot.
    "reboot",
    "shutdown",
];
/// Where it may leave something: the agent, its configuration, its state, its unit and the logs.
const WRITTEN: [&str; 7] = [
    "etc/gpuaas/",
    "etc/systemd/system/gpuaas-node-agent.service",
    "run/gpuaas/",
    "usr/local/bin/gpuaas-node-agent",
    // The executable under its digest, which is the launcher as well.
    "usr/local/lib/gpuaas/",
    "var/lib/gpuaas/",
    "var/log/gpuaas/",
];

/// Every file below `folder`, as a path from `root`, with its content.
fn tree(root: &Path, folder: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            tree(root, &path, into);
        } else if let Ok(content) = fs::read(&path) {
            into.insert(path.strip_prefix(root).unwrap().display().to_string(), content);
        }
    }
}

#[tokio::test]
async fn the_node_bootstrap_does_nothing_but_its_own() {
    let mut machine = Machine::new().await;
    let (stubs, calls) = (machine.dir.path().join("stubs"), machine.dir.path().join("calls"));
    fs::create_dir(&stubs).unwrap();
    for program in FORBIDDEN {
        let path = stubs.join(program);
        let text = format!("#!/bin/sh\necho \"{program} $*\" >>'{}'\nexit 1\n", calls.display());
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    machine.path = format!("{}:{}", stubs.display(), machine.path);
    let inputs = machine.inputs(None);
    let parsed = parse_user_data(&render_user_data(&inputs).unwrap().bytes).unwrap();
    let scripts = unpack_user_data(&parsed, &machine.root()).unwrap();
    let [site, node] = &scripts[..] else { panic!("{scripts:?}") };
    assert!(machine.run(site).await.ok);
    let (root, mut before, mut after) = (machine.root(), BTreeMap::new(), BTreeMap::new());
    tree(&root, &root, &mut before);
    let ran = machine.run(node).await;
    assert!(ran.ok, "{}", ran.output);
    tree(&root, &root, &mut after);
    assert_eq!(fs::read_to_string(&calls).unwrap_or_default(), "", "it called what it must not");
    let changed: Vec<&String> =
        after.iter().filter(|(path, now)| before.get(*path) != Some(now)).map(|(p, _)| p).collect();
    assert!(changed.iter().any(|path| *path == "usr/local/bin/gpuaas-node-agent"), "{changed:?}");
    for path in changed {
        assert!(WRITTEN.iter().any(|start| path.starts_with(start)), "it wrote {path}");
    }
    assert!(before.keys().all(|path| after.contains_key(path)), "it removed something");
    // The stubs are what a program would find: a script that installs is caught.
    assert!(!machine.run(&stubs.join("apt-get")).await.ok);
    assert_eq!(fs::read_to_string(&calls).unwrap(), "apt-get \n");
}

#[tokio::test]
async fn sigterm_ends_the_agent() {
    let machine = Machine::new().await;
    machine.boot(&machine.inputs(None)).await;
    let config = machine.root().join("etc/gpuaas/agent.json");
    let mut agent = Command::new(AGENT)
        .args(["run", "--config"])
        .arg(config)
        .arg("--host-root")
        .arg(machine.root())
        .env_clear()
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let before = machine.fake.count("heartbeat");
    machine
        .fake
        .until("its heartbeat", |seen| {
            seen.calls.iter().filter(|call| *call == "heartbeat").count() > before
        })
        .await;
    let pid = agent.id().unwrap().to_string();
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().filter(|word| *word == "0").count(), 2, "{core}");
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    assert!(agent.wait().await.unwrap().success());
    assert_eq!(machine.fake.count("enroll"), 1);
}
