//! The agent against a control plane that works, is away, refuses, or comes back.
#![expect(clippy::unwrap_used, reason = "a fixture that fails is a failed test")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::common::{
    BOOTSTRAP_TOKEN, ENROLLMENT_TOKEN, FakeControlPlane, FastClock, Recorded, node_id, run_id,
    signed, task_keys,
};
use gpuaas_bundle::{Envelope, SigningKey, order};
use gpuaas_identity::key_digest;
use gpuaas_node_agent::agent::{self, AgentConfig, AgentError};
use gpuaas_node_agent::clock::{AgentClock, HostClock};
use gpuaas_node_agent::env::AgentEnv;
use gpuaas_node_agent::host::Host;
use gpuaas_node_agent::identity::{AgentCredential, Identity, IdentityStore, NodeKey};
use gpuaas_node_agent::protocol::{ControlPlane, ControlPlaneError, http_client};
use gpuaas_node_agent::simulated_host::{self, SimulatedHost};
use gpuaas_types::agent::{NodeCertificate, SignedTask, Task, TaskKeyState, TaskSpec};
use gpuaas_types::{NodeId, RunId, TaskId, Timestamp};
use host_facts::HostRoot;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

fn config(root: &Path) -> AgentConfig {
    AgentConfig {
        run_id: run_id(),
        hostname: "j22u11".to_owned(),
        enrollment_token: ENROLLMENT_TOKEN.to_owned(),
        identity: IdentityStore::File(root.join("identity.json")),
        ready_file: Some(root.join("run/ready.json")),
        ready: None,
        host: Host::Root(HostRoot::new(root)),
        ca_file: None,
        env: AgentEnv::default(),
        max_backoff_seconds: 20.0,
    }
}

struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
}

impl Running {
    fn start(config: AgentConfig, url: &str) -> Self {
        let control_plane = ControlPlane::new(url, None).unwrap();
        let shutdown = CancellationToken::new();
        let task =
            tokio::spawn(agent::run(config, control_plane, Arc::new(FastClock), shutdown.clone()));
        Self { shutdown, task }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn plain(number: u128, spec: TaskSpec) -> Task {
    Task { id: TaskId(Uuid::from_u128(number)), spec, expires_at: Timestamp::NEVER }
}

fn task(fake: &FakeControlPlane, number: u128, expires_at: Timestamp) -> SignedTask<Envelope> {
    let units = vec!["ssh.service".to_owned()];
    let task = Task { expires_at, ..plain(number, TaskSpec::Diagnostics { units }) };
    signed(&fake.key, node_id(), task)
}

#[tokio::test]
async fn enrolls_then_heartbeats_then_carries_out_tasks() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("etc")).unwrap();
    std::fs::write(dir.path().join("etc/hostname"), "j22u11\n").unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| {
        seen.tasks = [task(&fake, 1, Timestamp::NEVER), task(&fake, 2, Timestamp::EPOCH)].into()
    });
    let (ready, is_ready) = oneshot::channel();
    let agent = Running::start(AgentConfig { ready: Some(ready), ..config(dir.path()) }, &fake.url);

    assert_eq!(is_ready.await.unwrap().0, Uuid::from_u128(9));
    let line = std::fs::read_to_string(dir.path().join("run/ready.json")).unwrap();
    assert!(line.contains(&format!("\"run_id\":\"{}\"", run_id())), "{line}");
    assert_eq!(line.lines().count(), 1);
    fake.until("two results", |seen| seen.results.len() == 2).await;
    fake.until("three heartbeats", |seen| {
        seen.calls.iter().filter(|call| *call == "heartbeat").count() >= 3
    })
    .await;
    agent.stop().await;

    let calls = fake.calls();
    assert_eq!(calls[..2], ["enroll", "heartbeat"]);
    fake.change(|seen| {
        let enrollment = &seen.enrollments[0];
        assert_eq!(enrollment.facts["hostname"], "j22u11");
        assert!(enrollment.started_at > Timestamp::EPOCH);
        let (done, expired) = (&seen.results[0].1, &seen.results[1].1);
        assert!(done.succeeded && done.findings.len() == 1);
        assert_eq!(done.facts["hostname"], "j22u11");
        assert!(!expired.succeeded && expired.message.contains("expired"), "{}", expired.message);
    });
}

#[tokio::test]
async fn a_task_without_a_trusted_signature_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tenant = dir.path().join("var/lib/gpuaas/tenant/data");
    std::fs::create_dir_all(&tenant).unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    let strange = SigningKey::generate().unwrap();
    let reset = |number| plain(number, TaskSpec::SoftReset {});
    let of_another = signed(&fake.key, NodeId(Uuid::from_u128(8)), reset(2));
    let mut forged = signed(&fake.key, node_id(), reset(3));
    forged.order.signatures[0].sig =
        signed(&strange, node_id(), reset(3)).order.signatures[0].sig.clone();
    let expired = Task { expires_at: Timestamp::EPOCH, ..reset(4) };
    // The signature is good, and for another task than the one that it claims to be.
    let swapped = SignedTask {
        id: TaskId(Uuid::from_u128(5)),
        ..signed(&fake.key, node_id(), plain(1, TaskSpec::SoftReset {}))
    };
    let tasks = [
        signed(&strange, node_id(), reset(1)),
        of_another,
        forged,
        signed(&fake.key, node_id(), expired),
        swapped,
    ];
    fake.change(|seen| seen.tasks = tasks.into());
    let agent = Running::start(config(dir.path()), &fake.url);
    fake.until("five results", |seen| seen.results.len() == 5).await;
    agent.stop().await;
    let codes = fake.change(|seen| {
        let results = seen.results.iter().map(|(_, result)| result);
        results
            .map(|result| (result.succeeded, result.message.split(':').next().unwrap().to_owned()))
            .collect::<Vec<_>>()
    });
    let causes = [
        "signature_key_unknown",
        "task_of_other_node",
        "signature_forged",
        "task_expired",
        "task_id_mismatch",
    ];
    assert_eq!(codes, causes.map(|cause| (false, cause.to_owned())));
    assert!(tenant.is_dir());
}

#[tokio::test]
async fn new_keys_come_from_known_ones_and_outlast_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    let [next, strange] = [0; 2].map(|_| SigningKey::generate().unwrap());
    let newer = |revision, key: &SigningKey| {
        task_keys(revision, &[(TaskKeyState::Grace, &fake.key), (TaskKeyState::Active, key)])
    };
    let imposed = order::sign_keys(&strange, &newer(9, &strange)).unwrap();
    fake.change(|seen| seen.newer_keys = Some(imposed));
    let agent = Running::start(config(dir.path()), &fake.url);
    fake.until("heartbeats after the imposed keys", |seen| seen.calls.len() >= 4).await;
    assert_eq!(fake.change(|seen| seen.task_keys_revision), 1);
    let rotated = order::sign_keys(&fake.key, &newer(2, &next)).unwrap();
    fake.change(|seen| seen.newer_keys = Some(rotated));
    fake.until("the new keys are known", |seen| seen.task_keys_revision == 2).await;
    agent.stop().await;

    let mine = signed(&next, node_id(), plain(1, TaskSpec::StorageCleanup {}));
    fake.change(|seen| (seen.newer_keys, seen.tasks) = (None, [mine].into()));
    let agent = Running::start(config(dir.path()), &fake.url);
    fake.until("the result", |seen| seen.results.len() == 1).await;
    agent.stop().await;
    assert_eq!(fake.count("enroll"), 1);
    assert!(fake.change(|seen| seen.results[0].1.succeeded));
}

#[tokio::test]
async fn outages_before_and_amid_do_not_end_it() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| (seen.down, seen.poll_seconds) = (true, 5));
    let agent = Running::start(config(dir.path()), &fake.url);
    fake.until("refused for a while", |seen| seen.unavailable_answers >= 3).await;
    fake.change(|seen| seen.down = false);
    fake.until("a heartbeat", |seen| seen.calls.len() >= 2).await;

    let before = fake.change(|seen| {
        seen.down = true;
        seen.unavailable_answers + 6
    });
    fake.until("a second outage", |seen| seen.unavailable_answers >= before).await;
    fake.change(|seen| {
        (seen.down, seen.tasks) = (false, [task(&fake, 1, Timestamp::NEVER)].into())
    });
    fake.until("the result", |seen| seen.results.len() == 1).await;
    let heartbeats = fake.count("heartbeat");
    fake.until("heartbeats again", |seen| {
        seen.calls.iter().filter(|call| *call == "heartbeat").count() > heartbeats
    })
    .await;
    agent.stop().await;
    assert_eq!(fake.count("enroll"), 1);
}

#[tokio::test]
async fn polls_stand_for_heartbeats_for_as_long_as_they_may() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| (seen.poll_seconds, seen.heartbeat_digest) = (5, Some("ab".to_owned())));
    let agent = Running::start(config(dir.path()), &fake.url);
    fake.until("polls", |seen| seen.heartbeats_by_poll >= 20).await;
    assert_eq!(
        fake.count("heartbeat"),
        1,
        "twenty polls take longer than two heartbeats are apart"
    );

    let beats = |seen: &Recorded| seen.calls.iter().filter(|call| *call == "heartbeat").count();
    let by_poll = fake.change(|seen| {
        seen.heartbeat_digest = Some("cd".to_owned());
        seen.heartbeats_by_poll
    });
    fake.until("it says more when it is asked to", |seen| beats(seen) == 2).await;
    fake.until("and less again", |seen| seen.heartbeats_by_poll > by_poll + 3).await;

    // Polls that say nothing keep no heartbeat.
    fake.change(|seen| seen.heartbeat_digest = None);
    fake.until("heartbeats", |seen| beats(seen) >= 4).await;
    // Nor does an outage.
    let heartbeats = fake.change(|seen| {
        (seen.down, seen.heartbeat_digest) = (true, Some("ef".to_owned()));
        beats(seen)
    });
    fake.until("an outage", |seen| seen.unavailable_answers >= 2).await;
    fake.change(|seen| seen.down = false);
    fake.until("a heartbeat after it", |seen| beats(seen) > heartbeats).await;
    agent.stop().await;
}

#[tokio::test]
async fn an_agent_in_trouble_says_so_itself() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| (seen.poll_seconds, seen.heartbeat_digest) = (5, Some("ab".to_owned())));
    let agent = Running::start(config(dir.path()), &fake.url);
    fake.until("polls", |seen| seen.heartbeats_by_poll >= 3).await;
    let reason = dir.path().join("run/gpuaas/reboot-needed.d/h200-ib.sriov");
    std::fs::create_dir_all(reason.parent().unwrap()).unwrap();
    std::fs::write(&reason, "the number of functions was changed\n").unwrap();
    fake.until("its trouble", |seen| !seen.troubles.is_empty()).await;
    let by_poll = fake.change(|seen| seen.heartbeats_by_poll);
    let beats = |seen: &Recorded| seen.calls.iter().filter(|call| *call == "heartbeat").count();
    let heartbeats = fake.count("heartbeat");
    fake.until("heartbeats", |seen| beats(seen) >= heartbeats + 2).await;
    assert_eq!(fake.change(|seen| seen.heartbeats_by_poll), by_poll);
    std::fs::remove_file(&reason).unwrap();
    fake.until("that it is over", |seen| seen.troubles.is_empty()).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_refused_token_ends_it_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| seen.refuse_enrollment = true);
    let agent = Running::start(config(dir.path()), &fake.url);
    let AgentError::EnrollmentRefused(problem) = agent.task.await.unwrap().unwrap_err() else {
        panic!("it was refused for another reason");
    };
    assert_eq!((problem.status, problem.code.as_str()), (403, "token_spent"));
    assert!(AgentError::EnrollmentRefused(problem).to_string().contains("start a new run"));
    assert!(!dir.path().join("identity.json").exists());
    assert!(!dir.path().join("run/ready.json").exists());
}

#[tokio::test]
async fn a_restart_keeps_the_identity_and_another_run_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    for _ in 0..2 {
        let before = fake.count("heartbeat");
        let agent = Running::start(config(dir.path()), &fake.url);
        fake.until("a heartbeat", |seen| {
            seen.calls.iter().filter(|call| *call == "heartbeat").count() > before
        })
        .await;
        agent.stop().await;
    }
    assert_eq!(fake.count("enroll"), 1);
    let other = AgentConfig { run_id: RunId(Uuid::from_u128(8)), ..config(dir.path()) };
    let agent = Running::start(other, &fake.url);
    fake.until("another enrollment", |seen| seen.enrollments.len() == 2).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_refused_result_is_dropped_and_the_next_task_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| {
        seen.refuse_results = true;
        seen.tasks.push_back(task(&fake, 1, Timestamp::NEVER));
    });
    let agent = Running::start(config(dir.path()), &fake.url);
    fake.until("the refusal", |seen| seen.calls.contains(&"result refused".to_owned())).await;
    fake.change(|seen| {
        seen.refuse_results = false;
        seen.tasks.push_back(task(&fake, 2, Timestamp::NEVER));
    });
    fake.until("the second", |seen| seen.results.len() == 1).await;
    agent.stop().await;
    assert_eq!(fake.change(|seen| seen.results[0].0), TaskId(Uuid::from_u128(2)));
}

#[tokio::test]
async fn many_simulated_hosts_share_one_client() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| seen.heartbeat_interval_seconds = 3600);
    let control_plane = ControlPlane::with_client(&fake.url, http_client(None, false).unwrap());
    let facts = Arc::new(serde_json::json!({"hostname": "stand-in"}));
    let shutdown = CancellationToken::new();
    let agents: Vec<_> = (0..50)
        .map(|n| {
            let config = AgentConfig {
                hostname: format!("node-{n}"),
                identity: IdentityStore::memory(),
                ready_file: None,
                host: Host::Fixed(Arc::clone(&facts)),
                ..config(dir.path())
            };
            let clock = Arc::new(FastClock);
            tokio::spawn(agent::run(config, control_plane.clone(), clock, shutdown.clone()))
        })
        .collect();
    fake.until("every heartbeat and poll", |seen| {
        seen.polls == 50 && seen.calls.iter().filter(|call| *call == "heartbeat").count() == 50
    })
    .await;
    shutdown.cancel();
    for agent in agents {
        agent.await.unwrap().unwrap();
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

fn simulated_host(root: &Path) -> SimulatedHost {
    SimulatedHost {
        agent: AgentConfig { identity: IdentityStore::memory(), ..config(root) },
        bootstrap_token: BOOTSTRAP_TOKEN.to_owned(),
        site_seconds: 1.0,
        site_failure: None,
        node_seconds: 1.0,
    }
}

/// A worker's stack has 2 MiB, and a future lies there several times over while it is made and moved.
#[test]
fn hosts_of_a_fleet_are_small_enough_for_the_stack_of_a_worker() {
    let dir = tempfile::tempdir().unwrap();
    let plane = || ControlPlane::new("http://127.0.0.1:9", None).unwrap();
    let (clock, stop) = (|| Arc::new(FastClock), CancellationToken::new());
    let host = simulated_host(dir.path());
    let life = simulated_host::run(host, plane(), clock(), stop.clone());
    let of_agent = agent::run(simulated_host(dir.path()).agent, plane(), clock(), stop);
    for (name, bytes) in [("host", size_of_val(&life)), ("agent", size_of_val(&of_agent))] {
        assert!(bytes < 8 * 1024, "the future of a {name} has {bytes} bytes");
    }
}

async fn run_simulated_host(
    fake: &FakeControlPlane,
    simulated_host: SimulatedHost,
    last_call: &str,
) -> Vec<String> {
    let control_plane = ControlPlane::new(&fake.url, None).unwrap();
    let shutdown = CancellationToken::new();
    let run =
        simulated_host::run(simulated_host, control_plane, Arc::new(FastClock), shutdown.clone());
    let task = tokio::spawn(run);
    fake.until(last_call, |seen| seen.calls.iter().any(|call| call == last_call)).await;
    shutdown.cancel();
    task.await.unwrap();
    fake.calls()
}

#[tokio::test]
async fn a_simulated_host_reports_as_the_scripts_do() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| seen.heartbeat_interval_seconds = 3600);
    let calls =
        run_simulated_host(&fake, simulated_host(dir.path()), "node_bootstrap succeeded").await;
    let order = [
        "site_bootstrap started",
        "site_bootstrap succeeded",
        "node_bootstrap started",
        "enroll",
        "heartbeat",
        "node_bootstrap succeeded",
    ];
    assert_eq!(calls, order);

    let fake = FakeControlPlane::start(dir.path()).await;
    let failing =
        SimulatedHost { site_failure: Some("no disk".to_owned()), ..simulated_host(dir.path()) };
    let calls = run_simulated_host(&fake, failing, "node_bootstrap failed").await;
    let order = ["site_bootstrap started", "site_bootstrap failed", "node_bootstrap failed"];
    assert_eq!(calls, order);

    let fake = FakeControlPlane::start(dir.path()).await;
    fake.change(|seen| seen.refuse_enrollment = true);
    let calls =
        run_simulated_host(&fake, simulated_host(dir.path()), "node_bootstrap failed").await;
    assert_eq!(calls.len(), 4);
}

/// A clock on which a second takes 2 ms, for the one who reads it as well.
struct FastForward(Timestamp);

#[async_trait::async_trait]
impl AgentClock for FastForward {
    fn now(&self) -> Timestamp {
        self.0.plus_seconds(500.0 * HostClock.now().seconds_since(self.0))
    }

    fn monotonic_seconds(&self) -> f64 {
        HostClock.monotonic_seconds() * 500.0
    }

    async fn sleep(&self, seconds: f64) {
        HostClock.sleep(seconds / 500.0).await;
    }
}

#[tokio::test]
async fn a_certificate_is_renewed_in_time_and_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start_tls(dir.path(), 600.0).await;
    let start = |clock: Arc<dyn AgentClock>| {
        let shutdown = CancellationToken::new();
        let run = agent::run(config(dir.path()), fake.plane(), clock, shutdown.clone());
        Running { shutdown, task: tokio::spawn(run) }
    };
    let agent = start(Arc::new(FastForward(HostClock.now())));
    fake.until("a heartbeat with another certificate", |seen| seen.serials.len() >= 2).await;
    agent.stop().await;
    assert_eq!(fake.count("enroll"), 1);
    assert!(fake.count("renew") >= 1);
    let kept = IdentityStore::File(dir.path().join("identity.json")).load(run_id()).unwrap();
    let serial = &kept.credential.certificate().unwrap().serial;
    let serials = fake.change(|seen| std::mem::take(&mut seen.serials));
    let file = std::fs::read_to_string(dir.path().join("identity.json")).unwrap();
    assert!(file.contains("PRIVATE KEY") && serial != &serials[0]);

    // The one that is kept is the newest, and opens the door after a restart.
    let agent = start(Arc::new(FastClock));
    fake.until("a certificate again", |seen| !seen.serials.is_empty()).await;
    agent.stop().await;
    assert_eq!(
        (fake.count("enroll"), fake.change(|seen| seen.serials[0].clone())),
        (1, serial.clone())
    );
}

#[tokio::test]
async fn an_agent_killed_before_it_stored_the_response_enrolls_with_the_same_key() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start_tls(dir.path(), 86_400.0).await;
    let start = || {
        let shutdown = CancellationToken::new();
        let run =
            agent::run(config(dir.path()), fake.plane(), Arc::new(FastClock), shutdown.clone());
        Running { shutdown, task: tokio::spawn(run) }
    };
    fake.change(|seen| seen.lose_enrollments = true);
    let killed = start();
    fake.until("an enrollment", |seen| seen.enrollments.len() == 1).await;
    killed.task.abort();
    assert!(killed.task.await.unwrap_err().is_cancelled());
    let key = dir.path().join("identity.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!dir.path().join("identity.json").exists());

    fake.change(|seen| seen.lose_enrollments = false);
    let agent = start();
    fake.until("a heartbeat", |seen| seen.calls.contains(&"heartbeat".to_owned())).await;
    agent.stop().await;
    let keys = fake.change(|seen| {
        let asked = seen.enrollments.iter();
        asked.map(|one| key_digest(one.csr_pem.as_ref().unwrap()).unwrap()).collect::<Vec<_>>()
    });
    assert_eq!((keys.len(), keys[0]), (2, keys[1]));
    assert!(!key.exists() && dir.path().join("identity.json").exists());
}

#[tokio::test]
async fn an_agent_whose_certificate_has_expired_keeps_asking_and_enrolls_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start_tls(dir.path(), 600.0).await;
    let key = NodeKey::generate().unwrap();
    let long_ago = HostClock.now().plus_seconds(-3600.0);
    let issued = fake.issuer.as_ref().unwrap().node(node_id(), &key.csr_pem, long_ago);
    let issued = issued.await.unwrap();
    let certificate = NodeCertificate {
        chain_pem: issued.chain_pem,
        serial: issued.serial,
        not_before: issued.not_before,
        not_after: issued.not_after,
    };
    let identity = Identity {
        run_id: run_id(),
        node_id: node_id(),
        credential: AgentCredential::Certificate { key_pem: key.key_pem, certificate },
        heartbeat_interval_seconds: 10,
        poll_seconds: 0,
        task_keys: task_keys(1, &[]),
        trust_digest: None,
    };
    let config = config(dir.path());
    config.identity.save(&identity).unwrap();
    let shutdown = CancellationToken::new();
    let run = agent::run(config, fake.plane(), Arc::new(FastClock), shutdown.clone());
    let agent = Running { shutdown, task: tokio::spawn(run) };
    fake.until("five refusals", |seen| seen.expired >= 5).await;
    agent.stop().await;
    assert!(fake.calls().is_empty(), "{:?}", fake.calls());
}

#[tokio::test]
async fn failures_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let fake = FakeControlPlane::start(dir.path()).await;
    let plane = |url: &str| ControlPlane::new(url, None).unwrap();
    let stranger = AgentCredential::Bearer("not the credential".into());
    let plane = |url: &str| plane(url).with_credential(&stranger).unwrap();
    let poll = async |url: &str| plane(url).poll_tasks(0, None).await.unwrap_err();
    assert!(
        matches!(poll(&fake.url).await, ControlPlaneError::Refused(p) if p.code == "token_invalid")
    );
    let elsewhere = format!("{}/elsewhere", fake.url);
    assert!(matches!(poll(&elsewhere).await, ControlPlaneError::Malformed(_)));
    fake.change(|seen| seen.down = true);
    assert!(matches!(poll(&fake.url).await, ControlPlaneError::Unavailable(_)));
    let nobody = "http://127.0.0.1:1";
    let error = poll(nobody).await;
    assert!(matches!(error, ControlPlaneError::Unavailable(_)));
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(HostClock.now() > Timestamp::EPOCH);
}
