//! Another certificate authority takes the place of the one that signs nodes' certificates, while the
//! agents of two nodes live on; one of them is away while it is staged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpuaas_api::{ApiSettings, load_authorities, new_authority};
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_identity::{Authority as _, BuiltIn};
use gpuaas_node_agent::agent::{self, AgentConfig, AgentError};
use gpuaas_node_agent::clock::{AgentClock, HostClock};
use gpuaas_node_agent::env::AgentEnv;
use gpuaas_node_agent::host::Host;
use gpuaas_node_agent::identity::{AgentCredential, IdentityStore};
use gpuaas_node_agent::protocol::ControlPlane;
use gpuaas_store::{SecretString, TokenPurpose};
use gpuaas_types::Timestamp;
use gpuaas_types::api::OnboardAccepted;
use serde_json::{Value, json};
use test_report::patience_seconds;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::rig::HandClock;
use crate::tls::{Key, Tls, beat};

/// How much faster an agent waits than it says.
const HASTE: f64 = 100.0;
/// Longest time for anything here, in seconds.
const PATIENCE_SECONDS: f64 = 60.0;

/// The control plane's time, in which pauses are short.
struct HastyClock(Arc<HandClock>);

#[async_trait::async_trait]
impl AgentClock for HastyClock {
    fn now(&self) -> Timestamp {
        gpuaas_engine::Clock::now(&*self.0)
    }

    fn monotonic_seconds(&self) -> f64 {
        HostClock.monotonic_seconds() * HASTE
    }

    async fn sleep(&self, seconds: f64) {
        HostClock.sleep(seconds / HASTE).await;
    }
}

/// A host whose agent may be stopped and started.
struct AgentHost {
    node: OnboardAccepted,
    hostname: &'static str,
    token: String,
    folder: tempfile::TempDir,
    running: Option<(CancellationToken, JoinHandle<Result<(), AgentError>>)>,
}

impl AgentHost {
    async fn new(tls: &Tls, hostname: &'static str) -> Self {
        let node = tls.rig.onboard(hostname).await;
        let purpose = TokenPurpose::Enrollment;
        let token = tls.rig.token(purpose, node.node_id, node.run_id, None).await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), tls.issuer.anchors_pem()).unwrap();
        Self { node, hostname, token, folder, running: None }
    }

    fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Certificates that it trusts.
    fn anchors(&self) -> usize {
        let text = std::fs::read_to_string(self.ca_file()).unwrap();
        text.matches("BEGIN CERTIFICATE").count()
    }

    fn start(&mut self, tls: &Tls) {
        let identity = IdentityStore::File(self.folder.path().join("identity.json"));
        let config = AgentConfig {
            run_id: self.node.run_id,
            hostname: self.hostname.to_owned(),
            enrollment_token: self.token.clone(),
            identity,
            ready_file: None,
            ready: None,
            host: Host::Fixed(Arc::new(json!({ "hostname": self.hostname }))),
            ca_file: Some(self.ca_file()),
            env: AgentEnv::default(),
            max_backoff_seconds: 20.0,
        };
        let ca = std::fs::read(self.ca_file()).unwrap();
        let control_plane = ControlPlane::new(&tls.nodes, Some(&ca)).unwrap();
        let shutdown = CancellationToken::new();
        let clock = Arc::new(HastyClock(Arc::clone(&tls.rig.clock)));
        let task = tokio::spawn(agent::run(config, control_plane, clock, shutdown.clone()));
        self.running = Some((shutdown, task));
    }

    async fn stop(&mut self) {
        let (shutdown, task) = self.running.take().unwrap();
        shutdown.cancel();
        task.await.unwrap().unwrap();
    }

    /// The key and the certificate that it has now.
    fn credential(&self) -> (Key, String) {
        let store = IdentityStore::File(self.folder.path().join("identity.json"));
        let credential = store.load(self.node.run_id).unwrap().credential;
        let chain = credential.certificate().unwrap().chain_pem.clone();
        let (AgentCredential::Certificate { key_pem: pem, .. } | AgentCredential::Bearer(pem)) =
            credential;
        (Key { pem: pem.expose().to_owned(), csr: String::new() }, chain)
    }
}

async fn until(what: &str, reached: impl AsyncFn() -> bool) {
    let deadline = RealClock.now().plus_seconds(patience_seconds(PATIENCE_SECONDS));
    while !reached().await {
        assert!(RealClock.now() < deadline, "{what}: not within {PATIENCE_SECONDS} s");
        tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>()).await.ok();
    }
}

/// A control plane with an authority of its own, as `gpuaas serve` makes it.
pub(crate) async fn started() -> Tls {
    // No poll is open with a certificate of before.
    let tls = Tls::with(ApiSettings { poll_seconds: 0, ..ApiSettings::default() }).await;
    let (store, now) = (&tls.rig.store, RealClock.now());
    let first = BuiltIn::generate(now).unwrap();
    store.ensure_node_authority(&SecretString::from(first.to_pem())).await.unwrap();
    let new = new_authority(first.anchors_pem(), None).unwrap();
    store.note_first_authority(now, new).await.unwrap();
    reload(&tls).await;
    tls
}

/// What a control plane does that starts, or that hears of a change: the authorities are those of the
/// database, and the listener has a certificate of the one that signs.
async fn reload(tls: &Tls) {
    let set = load_authorities(&tls.rig.store, true).await.unwrap().unwrap();
    tls.issuer.replace_authority(Arc::new(set)).unwrap();
    tls.renew_listener().await;
}

async fn change(tls: &Tls, verb: &str, force: bool) -> (u16, Value) {
    let body = json!({ "reason": "it ends", "actor": "ann", "force": force });
    let answer = tls.rig.post(&format!("/api/v1/authority/{verb}"), body).await;
    (answer.status, answer.json())
}

async fn report(tls: &Tls) -> Value {
    tls.rig.get("/api/v1/authority").await.ok()
}

fn states(report: &Value) -> Vec<String> {
    let all = report["authorities"].as_array().unwrap().iter();
    all.map(|one| one["state"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_go_over_to_another_authority_and_none_is_refused() {
    let tls = started().await;
    let mut here = AgentHost::new(&tls, "j22u11").await;
    let mut away = AgentHost::new(&tls, "j22u12").await;
    for host in [&mut here, &mut away] {
        host.start(&tls);
    }
    let is_heard = async |host: &AgentHost| {
        let version = tls.rig.store.reported_agent_version(host.node.node_id).await.unwrap();
        version.is_some()
    };
    for host in [&here, &away] {
        until("the first heartbeat", async || is_heard(host).await).await;
    }
    let old = here.credential();
    assert_eq!(report(&tls).await["trust_digest"], Value::Null, "nothing is handed out yet");
    away.stop().await;

    let body = json!({ "reason": "it ends", "actor": "ann" });
    let staged = tls.rig.post("/api/v1/authority", body.clone()).await.ok();
    assert_eq!(states(&staged), ["active", "staged"]);
    assert_eq!(tls.rig.post("/api/v1/authority", body).await.code(), "authority_staged");
    until("one node knows both", async || {
        report(&tls).await["nodes_without_bundle"] == json!(["j22u12"])
    })
    .await;
    assert_eq!((here.anchors(), away.anchors()), (2, 1));
    let (status, refused) = change(&tls, "activate", false).await;
    assert_eq!((status, &refused["code"]), (409, &json!("authority_not_trusted")));
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("j22u12") && !detail.contains("j22u11"), "{detail}");

    // Another process of the control plane has the same from the database.
    reload(&tls).await;
    let (status, active) = change(&tls, "activate", true).await;
    assert_eq!(status, 200, "{active}");
    assert_eq!(states(&active), ["retiring", "active"]);
    reload(&tls).await;
    until("one node has a certificate of the next", async || {
        report(&tls).await["nodes_with_former_certificate"] == json!(["j22u12"])
    })
    .await;
    let (status, refused) = change(&tls, "retire", false).await;
    assert_eq!((status, &refused["code"]), (409, &json!("authority_in_use")));
    assert!(refused["detail"].as_str().unwrap().contains("j22u12"), "{refused}");

    // It knows the former one alone, and the listener has a certificate of the next.
    away.start(&tls);
    until("no node is left behind", async || {
        let report = report(&tls).await;
        report["nodes_without_bundle"] == json!([])
            && report["nodes_with_former_certificate"] == json!([])
    })
    .await;
    let (status, retired) = change(&tls, "retire", false).await;
    assert_eq!(status, 200, "{retired}");
    assert_eq!(states(&retired), ["retired", "active"]);
    reload(&tls).await;
    until("both trust the next alone", async || {
        report(&tls).await["nodes_without_bundle"] == json!([])
            && here.anchors() == 1
            && away.anchors() == 1
    })
    .await;
    assert_eq!(tls.refusals().await, Vec::<String>::new(), "no heartbeat was refused");

    // What the former one signed counts no more.
    let client = tls.client(Some((&old.0, &old.1)));
    let (status, refused) = tls.post(&client, "/agent/v1/heartbeat", None, &beat(&here.node)).await;
    assert_eq!((status, &refused["code"]), (401, &json!("certificate_wrong_authority")));
    for host in [&mut here, &mut away] {
        host.stop().await;
    }
    let actions: Vec<String> = tls
        .rig
        .store
        .audit_entries(0, 1_000)
        .await
        .unwrap()
        .into_iter()
        .map(|line| line.entry.action)
        .filter(|action| action.starts_with("authority."))
        .collect();
    assert_eq!(actions, ["authority.stage", "authority.activate", "authority.retire"]);
}

/// What the refusal names as the way on, and what that costs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retiring_by_force_shuts_out_the_nodes_that_the_refusal_names() {
    let tls = started().await;
    let mut away = AgentHost::new(&tls, "j22u12").await;
    away.start(&tls);
    until("the first heartbeat", async || {
        let version = tls.rig.store.reported_agent_version(away.node.node_id).await.unwrap();
        version.is_some()
    })
    .await;
    let old = away.credential();
    away.stop().await;
    let body = json!({ "reason": "it ends", "actor": "ann" });
    tls.rig.post("/api/v1/authority", body).await.ok();
    assert_eq!(change(&tls, "activate", true).await.0, 200);
    reload(&tls).await;
    let heartbeat = async || {
        let client = tls.client(Some((&old.0, &old.1)));
        tls.post(&client, "/agent/v1/heartbeat", None, &beat(&away.node)).await
    };
    assert_eq!(heartbeat().await.0, 200, "the former one's still count");

    let (status, refused) = change(&tls, "retire", false).await;
    assert_eq!((status, &refused["code"]), (409, &json!("authority_in_use")));
    assert!(refused["detail"].as_str().unwrap().contains("j22u12"), "{refused}");
    let advice = refused["hint"].as_str().unwrap();
    assert!(advice.contains("`gpuaas authority retire --force --reason TEXT`"), "{refused}");
    let (status, retired) = change(&tls, "retire", true).await;
    assert_eq!((status, states(&retired)), (200, vec!["retired".into(), "active".into()]));
    reload(&tls).await;
    let (status, refused) = heartbeat().await;
    assert_eq!((status, &refused["code"]), (401, &json!("certificate_wrong_authority")));
}

#[tokio::test]
async fn a_staged_authority_may_be_dropped_and_the_active_one_may_not() {
    let tls = started().await;
    assert_eq!(change(&tls, "retire", true).await.1["code"], "no_authority_retiring");
    assert_eq!(change(&tls, "activate", true).await.1["code"], "no_authority_staged");
    let body = json!({ "reason": "it ends", "actor": "ann" });
    tls.rig.post("/api/v1/authority", body.clone()).await.ok();
    let (_, dropped) = change(&tls, "retire", false).await;
    assert_eq!(states(&dropped), ["active", "retired"]);
    let staged = tls.rig.post("/api/v1/authority", body).await.ok();
    assert_eq!(states(&staged), ["active", "retired", "staged"]);
}

#[tokio::test]
async fn an_authority_of_the_operator_s_is_changed_elsewhere() {
    let tls = Tls::new().await;
    assert_eq!(tls.rig.get("/api/v1/authority").await.code(), "authority_external");
    assert_eq!(change(&tls, "activate", true).await.1["code"], "authority_external");
}
