//! The agent on a host in trouble: a full disk, a clock that jumps, an end amid a task.
#![expect(clippy::unwrap_used, reason = "a fixture that fails is a failed test")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{ENROLLMENT_TOKEN, FakeControlPlane, FastClock, node_id, run_id, signed};
use async_trait::async_trait;
use gpuaas_node_agent::agent::{self, AgentConfig};
use gpuaas_node_agent::clock::{AgentClock, HostClock};
use gpuaas_node_agent::env::AgentEnv;
use gpuaas_node_agent::host::Host;
use gpuaas_node_agent::identity::IdentityStore;
use gpuaas_node_agent::protocol::ControlPlane;
use gpuaas_types::agent::{Gate, Gates, Operation, ServiceAction, Task, TaskResult, TaskSpec};
use gpuaas_types::slice::{DomainState, SliceAction, SliceTask};
use gpuaas_types::{ClaimId, TaskId, Timestamp};
use host_facts::HostRoot;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

fn config(root: &Path, state: &Path) -> AgentConfig {
    AgentConfig {
        run_id: run_id(),
        hostname: "j22u11".to_owned(),
        enrollment_token: ENROLLMENT_TOKEN.to_owned(),
        identity: IdentityStore::File(state.join("identity.json")),
        ready_file: Some(state.join("run/ready.json")),
        ready: None,
        host: Host::Root(HostRoot::new(root)),
        ca_file: None,
        env: AgentEnv { state_dir: Some(state.to_owned()), ..AgentEnv::default() },
        max_backoff_seconds: 20.0,
    }
}

fn run(
    config: AgentConfig,
    fake: &FakeControlPlane,
    clock: Arc<dyn AgentClock>,
) -> CancellationToken {
    let shutdown = CancellationToken::new();
    let control_plane = ControlPlane::new(&fake.url, None).unwrap();
    let stop = shutdown.clone();
    tokio::spawn(async move { agent::run(config, control_plane, clock, stop).await.unwrap() });
    shutdown
}

fn issue_task(fake: &FakeControlPlane, number: u128, spec: TaskSpec, expires_at: Timestamp) {
    let task = Task { id: TaskId(Uuid::from_u128(number)), spec, expires_at };
    fake.change(|seen| seen.tasks.push_back(signed(&fake.key, node_id(), task)));
}

fn diagnostics() -> TaskSpec {
    TaskSpec::Diagnostics { units: Vec::new() }
}

fn restart(unit: &str) -> TaskSpec {
    let operation = Operation::Service { action: ServiceAction::Restart, unit: unit.to_owned() };
    TaskSpec::Operate { dry_run: false, operation }
}

/// A file system of 64 KiB; gone with this.
struct SmallFileSystem(PathBuf);

impl SmallFileSystem {
    fn mount(path: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&path).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then_some(Self(path))
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().unwrap();
    }
}

#[tokio::test]
async fn a_full_disk_is_reported_and_loses_no_result() {
    let dir = tempfile::tempdir().unwrap();
    let Some(small) = SmallFileSystem::mount(dir.path().join("state")) else {
        test_report::skip("root", "a small file system can be mounted by root only");
        return;
    };
    let ballast = small.0.join("ballast");
    std::fs::write(&ballast, vec![0; 1 << 20]).unwrap_err();
    let fake = FakeControlPlane::start(dir.path()).await;
    // It enrolls with no room for what it is told, and lives on.
    let stop = run(config(dir.path(), &small.0), &fake, Arc::new(FastClock));
    fake.until("it says so", |seen| seen.troubles == ["disk_full"]).await;
    issue_task(&fake, 1, diagnostics(), Timestamp::NEVER);
    issue_task(&fake, 2, restart("nginx.service"), Timestamp::NEVER);
    fake.until("both results", |seen| seen.results.len() == 2).await;
    fake.change(|seen| {
        assert!(seen.results[0].1.succeeded, "what may be done twice is done");
        // What may not is not begun without a note.
        assert_eq!(seen.results[1].1.code, "disk_full");
    });
    // The control plane goes away while a result waits in memory.
    fake.change(|seen| seen.down = true);
    let before = fake.change(|seen| seen.unavailable_answers + 4);
    fake.until("an outage", |seen| seen.unavailable_answers >= before).await;
    fake.change(|seen| seen.down = false);
    issue_task(&fake, 3, diagnostics(), Timestamp::NEVER);
    fake.until("the third result", |seen| seen.results.len() == 3).await;

    std::fs::remove_file(ballast).unwrap();
    fake.until("it is well again", |seen| seen.troubles.is_empty()).await;
    stop.cancel();
    assert!(small.0.join("identity.json").exists() && small.0.join("run/ready.json").exists());
    assert_eq!(fake.count("enroll"), 1);
    let again = run(config(dir.path(), &small.0), &fake, Arc::new(FastClock));
    let heartbeats = fake.count("heartbeat");
    fake.until("it is who it was", |seen| {
        seen.calls.iter().filter(|call| *call == "heartbeat").count() > heartbeats
    })
    .await;
    again.cancel();
    assert_eq!(fake.count("enroll"), 1);
}

/// A clock that can be set while it runs; a second of it takes 2 ms.
#[derive(Default)]
struct SetClock {
    offset_seconds: AtomicI64,
    longest_sleep: Mutex<f64>,
}

#[async_trait]
impl AgentClock for SetClock {
    fn now(&self) -> Timestamp {
        let offset = i32::try_from(self.offset_seconds.load(Ordering::SeqCst)).unwrap();
        HostClock.now().plus_seconds(f64::from(offset))
    }

    fn monotonic_seconds(&self) -> f64 {
        FastClock.monotonic_seconds()
    }

    async fn sleep(&self, seconds: f64) {
        {
            let mut longest = self.longest_sleep.lock().unwrap();
            *longest = longest.max(seconds);
        }
        FastClock.sleep(seconds).await;
    }
}

#[tokio::test]
async fn a_clock_that_jumps_holds_nothing_up_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| seen.poll_seconds = 5);
    let clock = Arc::new(SetClock::default());
    let stop = run(config(dir.path(), &dir.path().join("state")), &fake, clock.clone());
    let settled = async |offset: i64| {
        clock.offset_seconds.store(offset, Ordering::SeqCst);
        // The second heartbeat from now on began after the jump, and was answered.
        let (polls, beats) = fake.change(|seen| (seen.polls, seen.calls.len()));
        fake.until("polls and heartbeats", |seen| {
            seen.polls > polls + 2 && seen.calls.len() > beats + 2
        })
        .await;
    };
    let soon = || HostClock.now().plus_seconds(60.0);
    let mut codes = Vec::new();
    for (number, offset) in [0, 200, -200, 7200, -7200, 0].into_iter().enumerate() {
        settled(offset).await;
        issue_task(&fake, number as u128 + 1, diagnostics(), soon());
        fake.until("a result", |seen| seen.results.len() == number + 1).await;
        codes.push(fake.change(|seen| seen.results[number].1.code.clone()));
    }
    // Within a tolerance the control plane's word counts; beyond, the cause is the clock.
    assert_eq!(codes, ["", "", "", "task_clock", "task_clock", ""]);
    issue_task(&fake, 9, diagnostics(), HostClock.now().plus_seconds(-1.0));
    fake.until("the last", |seen| seen.results.len() == 7).await;
    assert_eq!(fake.change(|seen| seen.results[6].1.code.clone()), "task_expired");
    stop.cancel();
    let longest = *clock.longest_sleep.lock().unwrap();
    assert!(longest <= 120.0, "a jump made it sleep for {longest} s");
}

/// A real process, killed while systemd takes its time.
#[tokio::test]
async fn a_task_that_was_cut_short_is_reported_and_not_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start_tls(dir.path(), 86_400.0).await;
    fake.change(|seen| seen.heartbeat_interval_seconds = 1);
    std::fs::create_dir_all(dir.path().join("root")).unwrap();
    std::fs::write(dir.path().join("root/ca.pem"), fake.anchor_pem().unwrap()).unwrap();
    let emulator = dir.path().join("emulator");
    let script = "#!/bin/sh\nD=${0%/*}\n[ \"$1 $3\" = 'run restart' ] && echo x >> $D/restarts && exec sleep 20\n\
                  printf 'LoadState=loaded\\nActiveState=active\\n'\n";
    std::fs::write(&emulator, script).unwrap();
    std::fs::set_permissions(&emulator, std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = dir.path().join("agent.json");
    let config = serde_json::json!({
        "run_id": run_id(), "hostname": "j22u11", "control_plane_url": fake.url,
        "enrollment_token": ENROLLMENT_TOKEN, "state_dir": "/state", "run_dir": "/run",
        "ca_file": "/ca.pem",
    });
    std::fs::write(&file, config.to_string()).unwrap();
    let start = || {
        tokio::process::Command::new(env!("CARGO_BIN_EXE_gpuaas-node-agent"))
            .args(["run", "--config"])
            .arg(&file)
            .arg("--host-root")
            .arg(dir.path().join("root"))
            .env("GPUAAS_FIXTURE_KERNEL", &emulator)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    };
    let mut first = start();
    issue_task(&fake, 1, restart("nginx.service"), Timestamp::NEVER);
    let restarts = dir.path().join("restarts");
    let begun = async {
        while !restarts.exists() {
            HostClock.sleep(0.02).await;
        }
    };
    tokio::time::timeout(test_report::patience(30.0), begun).await.unwrap();
    first.kill().await.unwrap();

    let _second = start();
    fake.until("the result", |seen| !seen.results.is_empty()).await;
    fake.change(|seen| assert_eq!(seen.results[0].1.code, "task_interrupted"));
    assert_eq!(std::fs::read_to_string(&restarts).unwrap(), "x\n");
}

/// A bundle whose phase brings, after the boot, what its gate asks for.
const AFTER_THE_BOOT: &str = r#"{"name":"asks","version":"1.0.0","kind":"site_bootstrap","about":"x",
    "phases":[{"name":"bring","run":"bring.sh","timeout_seconds":60}],
    "expects":[{"gates":["slice_ready"],"check":"file_exists","path":"/effect"}]}"#;

/// The agent of the next boot looks at the gates again before it hands in that the host was started
/// again: what they were amid the boot is not the last word.
#[tokio::test]
async fn after_a_boot_the_gates_are_known_before_the_result() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    let state = dir.path().join("state");
    let put = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("usr/local/share/gpuaas/site-bootstrap/asks/manifest.json", AFTER_THE_BOOT);
    // It waits until a gate has been reported as it was amid the boot.
    let phase = "source \"$GPUAAS_LIB\"\nuntil [[ -e $(at /reported) ]]; do sleep 0.02; done\n\
                 place /effect 0644 <<<there\n";
    put("usr/local/share/gpuaas/site-bootstrap/asks/bring.sh", phase);
    put("var/lib/gpuaas/site-bootstrap/asks.inputs", "{}");
    put("proc/sys/kernel/random/boot_id", "second\n");
    let task = serde_json::json!({
        "id": Uuid::from_u128(1), "spec": TaskSpec::Reboot { reasons: Vec::new() },
        "reboot": {"boot_id": "first", "bundles": ["asks"], "why": "the kernel's arguments"},
    });
    put("state/task.json", &task.to_string());
    let stop = run(config(dir.path(), &state), &fake, Arc::new(HostClock));
    fake.until("the gates", |seen| !seen.gates.is_empty()).await;
    put("reported", "");
    fake.until("the result", |seen| !seen.results.is_empty()).await;
    stop.cancel();
    let (result, gates) = fake.change(|seen| (seen.results[0].1.clone(), seen.gates.clone()));
    assert!(result.succeeded && result.changes[0].after == "second", "{result:?}");
    let is_open =
        |gates: &Gates| gates.gates.iter().any(|gate| gate.gate == Gate::SliceReady && gate.passed);
    assert!(!is_open(gates.first().unwrap()), "amid the boot: {gates:?}");
    assert!(is_open(gates.last().unwrap()), "after it: {gates:?}");
}

/// Whoever kept a signed task sends it once more, to the next process of the agent.
#[tokio::test]
async fn a_task_that_was_carried_out_is_refused_when_it_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    let tenant = dir.path().join("var/lib/gpuaas/tenant");
    std::fs::create_dir_all(tenant.join("of the first")).unwrap();
    let reset = TaskSpec::SoftReset {};
    let stop = run(config(dir.path(), &dir.path().join("state")), &fake, Arc::new(FastClock));
    issue_task(&fake, 1, reset.clone(), Timestamp::NEVER);
    fake.until("the result", |seen| seen.results.len() == 1).await;
    assert!(!tenant.join("of the first").exists());
    std::fs::create_dir(tenant.join("of the next")).unwrap();
    issue_task(&fake, 1, reset.clone(), Timestamp::NEVER);
    fake.until("a refusal", |seen| seen.results.len() == 2).await;
    stop.cancel();
    let again = run(config(dir.path(), &dir.path().join("state")), &fake, Arc::new(FastClock));
    issue_task(&fake, 1, reset, Timestamp::NEVER);
    fake.until("another refusal", |seen| seen.results.len() == 3).await;
    again.cancel();
    let codes: Vec<String> =
        fake.change(|seen| seen.results.iter().map(|(_, result)| result.code.clone()).collect());
    assert_eq!(codes, ["", "task_replayed", "task_replayed"]);
    assert!(tenant.join("of the next").exists());
    assert_eq!(fake.count("enroll"), 1);
}

/// A host that plays domains: each has a file that says how it stands. As with libvirt, a look finds
/// a whole answer or none, whatever else is done to the domain meanwhile. A start goes on while there is a
/// file `held`.
fn host_with_domains(dir: &Path, claims: &[ClaimId], state: &str) -> Host {
    let emulator = dir.join("emulator.sh");
    let script = format!(
        r#"#!/bin/sh
cd '{}'
case "$2 $5" in
  "virsh domstate") cat "$6" 2>/dev/null || {{ echo "error: failed to get domain '$6'" >&2; exit 1; }} ;;
  "virsh start")
    : >"begun-$6"
    while [ -e held ]; do sleep 0.02; done
    echo running >"new-$6" && mv "new-$6" "$6" ;;
  "virsh destroy") echo "shut off" >"new-$6" && mv "new-$6" "$6" ;;
  "virsh undefine") rm "$7" ;;
esac
"#,
        dir.display()
    );
    std::fs::write(&emulator, script).unwrap();
    std::fs::set_permissions(&emulator, std::fs::Permissions::from_mode(0o755)).unwrap();
    for claim in claims {
        std::fs::write(dir.join(claim.to_string()), format!("{state}\n")).unwrap();
    }
    Host::Emulated(HostRoot::new(dir), emulator)
}

fn slice(claim_id: ClaimId, action: SliceAction) -> TaskSpec {
    let slice = SliceTask {
        claim_id,
        fence: 1,
        action,
        devices: Vec::new(),
        domain_xml: String::new(),
        image: String::new(),
        seed: None,
        mac: "02:00:00:00:00:03".to_owned(),
        partition: None,
        guest_timeout_seconds: None,
    };
    TaskSpec::Slice { slice: Box::new(slice) }
}

/// Of two slices whose guests are waited for one is released, and the other guest takes its address
/// afterwards. Nothing of this waits for anything else.
#[tokio::test]
async fn a_guest_that_is_waited_for_holds_up_no_release() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| seen.keeps_tasks = true);
    let claims = [1, 2].map(|number| ClaimId(Uuid::from_u128(number)));
    let host = host_with_domains(dir.path(), &claims, "running");
    let mut config = config(dir.path(), &dir.path().join("state"));
    config.host = host;
    let stop = run(config, &fake, Arc::new(FastClock));
    issue_task(&fake, 1, slice(claims[0], SliceAction::AwaitGuest), Timestamp::NEVER);
    issue_task(&fake, 2, slice(claims[1], SliceAction::AwaitGuest), Timestamp::NEVER);
    fake.until("two polls of what waits", |seen| seen.polls > 3).await;
    issue_task(&fake, 3, slice(claims[0], SliceAction::Stop), Timestamp::NEVER);
    fake.until("the end of the first", |seen| seen.results.len() == 2).await;
    let leases = dir.path().join("var/lib/misc");
    std::fs::create_dir_all(&leases).unwrap();
    let lease = "1 02:00:00:00:00:03 10.100.0.13 slice *\n";
    std::fs::write(leases.join("dnsmasq.leases"), lease).unwrap();
    fake.until("the guest", |seen| seen.results.len() == 3).await;
    issue_task(&fake, 4, diagnostics(), Timestamp::NEVER);
    fake.until("a task afterwards", |seen| seen.results.len() == 4).await;
    stop.cancel();
    let results = fake.change(|seen| std::mem::take(&mut seen.results));
    let mut ended: Vec<_> = results.iter().map(|(id, one)| (*id, one.code.as_str())).collect();
    let number = |number| TaskId(Uuid::from_u128(number));
    // The look at the stopped guest may come before the result of what stopped it.
    ended[..2].sort();
    let wanted = [(1, "guest_stopped"), (3, ""), (2, ""), (4, "")];
    assert_eq!(ended, wanted.map(|(id, code)| (number(id), code)));
    assert!(!dir.path().join(claims[0].to_string()).exists());
}

/// While one slice starts, another one starts and ends, and a look at the host is answered. What else is for
/// the same claim waits, and so does what may change the host, with what came after it.
#[tokio::test]
async fn a_start_that_goes_on_holds_up_no_other_claim() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| seen.keeps_tasks = true);
    let claims = [1, 2, 3].map(|number| ClaimId(Uuid::from_u128(number)));
    let mut config = config(dir.path(), &dir.path().join("state"));
    config.host = host_with_domains(dir.path(), &claims, "shut off");
    let held = dir.path().join("held");
    std::fs::write(&held, "").unwrap();
    let begun = |claim: ClaimId| dir.path().join(format!("begun-{claim}")).exists();
    let stop = run(config, &fake, Arc::new(FastClock));
    let issue = |number, spec| issue_task(&fake, number, spec, Timestamp::NEVER);
    issue(1, slice(claims[0], SliceAction::Start));
    issue(2, slice(claims[1], SliceAction::Start));
    fake.until("both starts", |_| begun(claims[0]) && begun(claims[1])).await;
    issue(3, slice(claims[0], SliceAction::Probe));
    issue(4, slice(claims[2], SliceAction::Stop));
    issue(5, diagnostics());
    issue(6, TaskSpec::SoftReset {});
    issue(7, slice(claims[2], SliceAction::Probe));
    let issued = fake.change(|seen| seen.polls);
    fake.until("what goes beside", |seen| seen.results.len() == 2).await;
    fake.until("more polls", |seen| seen.polls > issued + 5).await;
    let ended = |results: &[(TaskId, TaskResult)]| -> Vec<u128> {
        results.iter().map(|(id, _)| id.0.as_u128()).collect()
    };
    let mut beside = fake.change(|seen| ended(&seen.results));
    beside.sort_unstable();
    assert_eq!(beside, [4, 5]);
    std::fs::remove_file(&held).unwrap();
    fake.until("the others", |seen| seen.results.len() == 7).await;
    let journal = dir.path().join("state/slice-tasks");
    let is_empty = || std::fs::read_dir(&journal).unwrap().next().is_none();
    fake.until("nothing left of what is over", |_| is_empty()).await;
    stop.cancel();
    let results = fake.change(|seen| std::mem::take(&mut seen.results));
    assert!(results.iter().all(|(_, result)| result.succeeded), "{results:?}");
    let place = |number| ended(&results).iter().position(|id| *id == number).unwrap();
    assert!(place(1) < place(3), "one after the other for one claim");
    assert!([1, 2, 3].iter().all(|number| place(*number) < place(6)), "the reset is alone");
    assert!(place(6) < place(7), "nothing that came after it is before it");
    let probed = results[place(3)].1.slice.clone().unwrap();
    assert_eq!(probed.domain, DomainState::Running);
}

/// An agent that is ended amid the starts of two slices says of both that it does not know how far they came.
#[tokio::test]
async fn each_task_that_an_end_interrupts_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| seen.keeps_tasks = true);
    let claims = [1, 2].map(|number| ClaimId(Uuid::from_u128(number)));
    let state = dir.path().join("state");
    let host = host_with_domains(dir.path(), &claims, "shut off");
    std::fs::write(dir.path().join("held"), "").unwrap();
    let begun = |claim: &ClaimId| dir.path().join(format!("begun-{claim}"));
    let start = || {
        let config = AgentConfig { host: host.clone(), ..config(dir.path(), &state) };
        run(config, &fake, Arc::new(FastClock))
    };
    let stop = start();
    for (number, claim) in [(1, claims[0]), (2, claims[1])] {
        issue_task(&fake, number, slice(claim, SliceAction::Start), Timestamp::NEVER);
    }
    fake.until("both starts", |_| claims.iter().all(|claim| begun(claim).exists())).await;
    stop.cancel();
    for claim in &claims {
        std::fs::remove_file(begun(claim)).unwrap();
    }
    let again = start();
    fake.until("both results", |seen| seen.results.len() == 2).await;
    again.cancel();
    let codes: Vec<String> =
        fake.change(|seen| seen.results.iter().map(|(_, result)| result.code.clone()).collect());
    assert_eq!(codes, ["task_interrupted", "task_interrupted"]);
    assert!(claims.iter().all(|claim| !begun(claim).exists()), "and starts none again");
}

/// An authority that the system trusts certifies a server that takes the control plane's place.
#[tokio::test]
async fn the_agent_trusts_its_anchor_and_not_the_systems_authorities() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start_tls(dir.path(), 86_400.0).await;
    fake.change(|seen| seen.heartbeat_interval_seconds = 1);
    let other = FakeControlPlane::start_tls(dir.path(), 86_400.0).await;
    let root = dir.path().join("root");
    std::fs::create_dir_all(&root).unwrap();
    let system_roots = dir.path().join("system.pem");
    std::fs::write(&system_roots, fake.anchor_pem().unwrap()).unwrap();
    let start = |anchor: &FakeControlPlane, trust_system: bool| {
        std::fs::write(root.join("ca.pem"), anchor.anchor_pem().unwrap()).unwrap();
        let file = dir.path().join("agent.json");
        let config = serde_json::json!({
            "run_id": run_id(), "hostname": "j22u11", "control_plane_url": fake.url,
            "enrollment_token": ENROLLMENT_TOKEN, "state_dir": "/state", "run_dir": "/run",
            "ca_file": "/ca.pem", "trust_system": trust_system,
        });
        std::fs::write(&file, config.to_string()).unwrap();
        tokio::process::Command::new(env!("CARGO_BIN_EXE_gpuaas-node-agent"))
            .args(["run", "--config"])
            .arg(&file)
            .arg("--host-root")
            .arg(&root)
            .env("SSL_CERT_FILE", &system_roots)
            .env_remove("SSL_CERT_DIR")
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    };
    let mut deceived = start(&other, false);
    let log = deceived.stderr.take().unwrap();
    let refused = async {
        let mut lines = BufReader::new(log).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("enrollment failed, retrying") {
                return line;
            }
        }
        panic!("it ended");
    };
    let limit = test_report::patience(30.0);
    let refused = tokio::time::timeout(limit, refused).await.unwrap();
    assert!(refused.to_lowercase().contains("certificate"), "{refused}");
    assert_eq!(fake.count("enroll"), 0, "the token stays on the host");
    drop(deceived);

    // The same server, where the configuration says so.
    let _trusting = start(&other, true);
    fake.until("an enrollment", |seen| seen.calls.contains(&"enroll".to_owned())).await;
}
