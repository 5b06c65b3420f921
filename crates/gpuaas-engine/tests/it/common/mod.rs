//! A control plane without its HTTP face, against a simulated region over real HTTP.
//!
//! The node's side is played here by writing what a node would say straight into the store.
//! The engine's clock may run ahead of the wall, so that its patience costs a test little.

#![expect(clippy::unwrap_used, reason = "a test harness")]

pub(crate) mod played_node;
mod test_database;
pub(crate) mod turns;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use gpuaas_artifact::{ArtifactStore, BootstrapInputs, BundleCatalog};
use gpuaas_bundle::SigningKey;
use gpuaas_core::record::NodeHardware;
use gpuaas_engine::{
    Clock, Connect, Engine, EngineConfig, EngineParts, Failpoints, Fetch, HttpConnect, NodeTrust,
    PacedClock, RealClock, fetch,
};
use gpuaas_store::{
    MasterKey, NewNode, NewOnboarding, NewRun, NewRunOfNode, SecretString, Store, SweepFinding,
};
use gpuaas_types::agent::{BootstrapPhase, ProgressStatus, TaskResult, TaskSpec};
use gpuaas_types::api::{OnboardAccepted, SiteStatus};
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{
    NodeId, ProfileId, RandomIds, RunId, RunKind, RunStatus, SiteId, Step, Timestamp,
};
use maas_sim::{HumanAction, SimHandle, SimOptions, SimServer, Status, ZERO};

use self::played_node::{add_progress_report, play_nodes};

pub(crate) struct Harness {
    pub(crate) store: Store,
    pub(crate) engine: Arc<Engine>,
    pub(crate) sim: Arc<maas_sim::SharedRegion>,
    pub(crate) site_id: SiteId,
    pub(crate) profile_id: ProfileId,
    pub(crate) hosts: Vec<maas_sim::HostView>,
    clock: Arc<Jumping>,
    pub(crate) kit: Kit,
    /// What each host was told at its latest first boot.
    pub(crate) told: Told,
    failing: Failing,
    _database: test_database::TestDatabase,
    dir: tempfile::TempDir,
}

/// Hosts that say, instead of a success, that a phase failed and why; none: that say nothing, since
/// the test speaks for them.
type Failing = Arc<Mutex<HashMap<String, Option<(BootstrapPhase, String)>>>>;

type Told = Arc<Mutex<HashMap<String, BootstrapInputs>>>;

/// A client for the control plane's own URLs, which are plain HTTP here: nobody is trusted.
struct PlainHttp(reqwest::Client);

#[async_trait::async_trait]
impl Fetch for PlainHttp {
    async fn get(
        &self,
        url: &str,
        _trust: &NodeTrust,
        bearer: Option<&str>,
    ) -> Result<Vec<u8>, String> {
        fetch(&self.0, url, bearer).await
    }
}

/// A paced clock that a test moves on where hours would have to pass.
struct Jumping {
    paced: PacedClock,
    ahead_micros: AtomicI64,
}

#[async_trait::async_trait]
impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        let ahead = self.ahead_micros.load(Ordering::SeqCst);
        Timestamp::from_micros(self.paced.now().as_micros() + ahead)
    }

    /// A jump does not end a sleep; whoever looks again finds the new time.
    async fn sleep_until(&self, at: Timestamp) {
        let ahead = self.ahead_micros.load(Ordering::SeqCst);
        self.paced.sleep_until(Timestamp::from_micros(at.as_micros() - ahead)).await;
    }

    fn factor(&self) -> f64 {
        self.paced.factor()
    }
}

/// What it takes to start another engine on the same state.
#[derive(Clone)]
pub(crate) struct Kit {
    pub(crate) url: String,
    clock: Arc<dyn Clock>,
    bundles: Arc<BundleCatalog>,
    artifacts: Arc<ArtifactStore>,
    pub(crate) config: EngineConfig,
}

impl Kit {
    fn parts(&self, store: Store) -> EngineParts {
        EngineParts {
            store,
            clock: Arc::clone(&self.clock),
            ids: Arc::new(RandomIds),
            connect: Arc::new(HttpConnect::new(Arc::clone(&self.clock))),
            bundles: Arc::clone(&self.bundles),
            artifacts: Arc::clone(&self.artifacts),
            http: Arc::new(PlainHttp(reqwest::Client::new())),
            config: self.config.clone(),
        }
    }

    /// The file that the agent is served from.
    pub(crate) fn agent_file(&self) -> std::path::PathBuf {
        self.artifacts.path(&self.config.agent.digest)
    }

    pub(crate) fn engine(&self, store: Store) -> Arc<Engine> {
        Engine::start(self.parts(store))
    }

    /// Runs a whole control plane for `milliseconds`, then drops it wherever it is: between a
    /// call and its record, in the middle of a request, with leases held.
    pub(crate) fn run_and_crash(&self, milliseconds: u64) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let kit = self.clone();
        runtime.block_on(async move {
            let store = Store::open(&kit.url, MasterKey::from_bytes([7; 32])).await.unwrap();
            store.end_leases_of_dead_owner(kit.clock.now()).await.unwrap();
            let _engine = kit.engine(store);
            let until = RealClock.now().plus_seconds(milliseconds as f64 / 1000.0);
            RealClock.sleep_until(until).await;
        });
        runtime.shutdown_background();
    }
}

/// Serves what the checks before a deployment fetch.
async fn own_urls(artifacts: Arc<ArtifactStore>) -> String {
    let artifact = move |axum::extract::Path(digest): axum::extract::Path<String>| {
        let artifacts = Arc::clone(&artifacts);
        async move {
            let file = artifacts.path(&digest.parse().unwrap());
            std::fs::read(file).map_err(|_| axum::http::StatusCode::NOT_FOUND)
        }
    };
    let app = axum::Router::new()
        .route("/bootstrap/v1/health", axum::routing::get(|| async { "ok" }))
        .route("/bootstrap/v1/artifacts/sha256/{digest}", axum::routing::get(artifact));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

impl Harness {
    pub(crate) async fn start(machines: usize, profile: ProfileSpec) -> Self {
        let options = SimOptions { machines, class: &ZERO, scale: 0.0, ..SimOptions::default() };
        Self::with(options, profile, 1.0).await
    }

    pub(crate) async fn with(options: SimOptions, profile: ProfileSpec, factor: f64) -> Self {
        // A second test of the process finds the provider installed already.
        rustls::crypto::ring::default_provider().install_default().ok();
        let dir = tempfile::tempdir().unwrap();
        let sim = SimServer::start(options).await.unwrap();
        let database = test_database::TestDatabase::new(dir.path()).await;
        let url = database.url.clone();
        let store = Store::open(&url, MasterKey::from_bytes([7; 32])).await.unwrap();
        let artifacts = Arc::new(ArtifactStore::open(&dir.path().join("artifacts")).unwrap());
        let agent = artifacts.put_bytes(b"#!/bin/sh\n").unwrap();
        let key = SigningKey::generate().unwrap();
        let bundles = BundleCatalog::with_built_in(&artifacts, &key, RealClock.now()).unwrap();
        let advertise = own_urls(Arc::clone(&artifacts)).await;
        let paced = PacedClock::new(RealClock.now(), factor);
        let jumping = Arc::new(Jumping { paced, ahead_micros: AtomicI64::new(0) });
        let clock: Arc<dyn Clock> = Arc::clone(&jumping) as Arc<dyn Clock>;
        let agent = ArtifactStore::artifact("gpuaas-node-agent", "0.1.0", agent);
        let mut config = EngineConfig::new(&advertise, agent);
        config.poll_seconds = 0.05 * factor;
        (config.sweep_seconds, config.agent_watch_seconds) = (0.0, 0.0);
        let (site_id, profile_id) = register(&store, &sim, &profile, clock.now()).await;
        let kit =
            Kit { url, clock: Arc::clone(&clock), bundles: Arc::new(bundles), artifacts, config };
        let engine = kit.engine(store.clone());
        let region = Arc::clone(&sim.region);
        let hosts = region.with(|region| region.hosts());
        let (failing, told) = (Failing::default(), Told::default());
        let play = (Arc::clone(&failing), Arc::clone(&told));
        tokio::spawn(play_nodes(store.clone(), sim, Arc::clone(&clock), play));
        Self {
            store,
            engine,
            sim: region,
            site_id,
            profile_id,
            hosts,
            clock: jumping,
            kit,
            told,
            failing,
            _database: database,
            dir,
        }
    }

    /// Starts an engine that calls the hooks of `failpoints` and sweeps now and then. The one
    /// before has to be stopped.
    pub(crate) fn start_with(&self, failpoints: Arc<dyn Failpoints>) -> Arc<Engine> {
        let mut kit = self.kit.clone();
        (kit.config.sweep_seconds, kit.config.agent_watch_seconds) = (900.0, 10.0);
        Engine::start_with(kit.parts(self.store.clone()), Some(failpoints))
    }

    /// Starts an engine that makes its clients with `connect`. The one before has to be stopped.
    pub(crate) fn start_connecting(&self, connect: Arc<dyn Connect>) -> Arc<Engine> {
        let parts = self.kit.parts(self.store.clone());
        Engine::start(EngineParts { connect, ..parts })
    }

    /// A file of this name in the harness' own folder.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// An operator lets a parked run go on.
    pub(crate) async fn resume(&self, run_id: RunId) {
        self.store.resume_run(self.now(), run_id, "operator", "corrected").await.unwrap();
    }

    /// Ends the engine and starts another that sweeps every `seconds` of its clock.
    pub(crate) async fn restart_sweeping(&self, seconds: f64) -> Arc<Engine> {
        self.engine.stop().await;
        let mut kit = self.kit.clone();
        kit.config.sweep_seconds = seconds;
        kit.engine(self.store.clone())
    }

    /// Changes what the operator wrote of the site.
    pub(crate) async fn change_site(&self, change: impl FnOnce(&mut SiteSpec)) {
        let (now, mut site) = (self.now(), self.store.site(self.site_id).await.unwrap());
        change(&mut site.spec);
        self.store
            .update_site(
                now,
                (site.id, None),
                site.spec,
                site.status,
                None,
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await
            .unwrap();
    }

    /// Makes the store forget which installation a node has, as one that never knew.
    pub(crate) async fn forget_installation(&self, node_id: NodeId) {
        let mut seen = self.store.observation(node_id).await.unwrap().unwrap();
        seen.machine.as_mut().unwrap().installation_id = None;
        let finding = SweepFinding {
            node_id,
            asked_at: self.now(),
            status: None,
            differences: Vec::new(),
            not_looked_at: Vec::new(),
            maas_user: None,
            remember: seen.machine,
            adopted: Vec::new(),
            hostname: None,
        };
        self.store.record_sweep(self.now(), vec![finding]).await.unwrap();
    }

    /// Has the host call back that `phase` failed.
    pub(crate) fn fail_callback(&self, hostname: &str, phase: BootstrapPhase, message: &str) {
        let said = Some((phase, message.to_owned()));
        self.failing.lock().unwrap().insert(hostname.to_owned(), said);
    }

    /// Has the host say nothing by itself.
    pub(crate) fn silence(&self, hostname: &str) {
        self.failing.lock().unwrap().insert(hostname.to_owned(), None);
    }

    /// The host's bootstrap says how far it is.
    pub(crate) async fn call_back(
        &self,
        run_id: RunId,
        phase: BootstrapPhase,
        status: ProgressStatus,
    ) {
        add_progress_report(&self.store, self.now(), run_id, phase, status, "").await;
    }

    pub(crate) fn human(&self, action: &maas_sim::HumanAction) {
        self.sim.with(|region| region.apply_human_action(0, action)).unwrap();
    }

    pub(crate) async fn until(&self, reached: impl AsyncFn() -> bool) {
        let deadline = RealClock.now().plus_seconds(test_report::patience_seconds(30.0));
        while !reached().await {
            assert!(RealClock.now() < deadline, "not reached in time");
            RealClock.sleep_until(RealClock.now().plus_seconds(0.02)).await;
        }
    }

    pub(crate) async fn drift_until(&self, count: usize) -> Vec<gpuaas_store::ListedDrift> {
        self.drift_when(|seen| seen.len() >= count).await
    }

    /// Waits for differences that `enough` accepts.
    pub(crate) async fn drift_when(
        &self,
        enough: impl Fn(&[gpuaas_store::ListedDrift]) -> bool,
    ) -> Vec<gpuaas_store::ListedDrift> {
        let deadline = RealClock.now().plus_seconds(test_report::patience_seconds(30.0));
        loop {
            let seen = self.store.list_drift(None, None).await.unwrap();
            if enough(&seen) {
                return seen;
            }
            assert!(RealClock.now() < deadline, "{seen:?}");
            RealClock.sleep_until(RealClock.now().plus_seconds(0.02)).await;
        }
    }

    pub(crate) async fn onboard(&self, host: &maas_sim::HostView) -> OnboardAccepted {
        self.onboard_as(&host.name, hardware(host)).await
    }

    pub(crate) async fn onboard_as(
        &self,
        hostname: &str,
        hardware: NodeHardware,
    ) -> OnboardAccepted {
        let mut asked = self.new_onboarding(self.site_id, hostname, hardware);
        asked.node.bmc_password = Some(SecretString::from("secret".to_owned()));
        self.store.onboard(self.clock.now(), asked).await.unwrap().accepted
    }

    /// What it takes to onboard a host at a site, without the password of its BMC.
    pub(crate) fn new_onboarding(
        &self,
        site_id: SiteId,
        hostname: &str,
        hardware: NodeHardware,
    ) -> NewOnboarding {
        let node = NewNode {
            id: NodeId::new(&RandomIds, self.clock.now()),
            site_id,
            profile_id: self.profile_id,
            hostname: hostname.to_owned(),
            hardware,
            bmc_password: None,
        };
        let (run_id, cause) = (RunId::new(&RandomIds, self.clock.now()), "onboarding asked for");
        NewOnboarding::new(node, NewRun::onboard(run_id, 1, cause.to_owned()))
    }

    /// Brings the host to active.
    pub(crate) async fn active(&self, host: &maas_sim::HostView) -> OnboardAccepted {
        let accepted = self.onboard(host).await;
        let run = self.rest(accepted.run_id).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
        accepted
    }

    /// Begins a run on a node that exists.
    pub(crate) async fn begin(&self, node_id: NodeId, kind: RunKind) -> RunId {
        let row = kind.row();
        let run = NewRun {
            id: RunId::new(&RandomIds, self.clock.now()),
            kind,
            step: row.first(),
            profile_revision: 1,
            cause: "asked for".to_owned(),
        };
        let id = run.id;
        let asked = NewRunOfNode {
            node_id,
            run,
            profile_id: None,
            from: row.begins_in,
            history: Vec::new(),
            audit: None,
        };
        self.store.start_run_from(self.clock.now(), asked).await.unwrap();
        id
    }

    /// Answers the next task of the node's agent.
    pub(crate) async fn answer_task(&self, node_id: NodeId, succeeded: bool) -> TaskSpec {
        let task = loop {
            if let Some(task) = self.store.pending_tasks(self.now(), node_id).await.unwrap().pop() {
                break task;
            }
            RealClock.sleep_until(RealClock.now().plus_seconds(0.02)).await;
        };
        let result =
            TaskResult { succeeded, message: "as told".to_owned(), ..TaskResult::default() };
        self.store.finish_task(self.now(), node_id, task.id, result, Vec::new()).await.unwrap();
        task.spec
    }

    /// Waits until the run is in `step` and waits there.
    pub(crate) async fn until_waiting(&self, id: RunId, step: Step) {
        let deadline = RealClock.now().plus_seconds(test_report::patience_seconds(30.0));
        loop {
            let run = self.store.run(id).await.unwrap();
            if run.step == step && run.status == RunStatus::Waiting {
                return;
            }
            assert!(RealClock.now() < deadline, "{} in {}: {:?}", run.status, run.step, run.park);
            RealClock.sleep_until(RealClock.now().plus_seconds(0.02)).await;
        }
    }

    /// Codes of a run's timeline, in order.
    pub(crate) async fn codes(&self, id: RunId) -> Vec<String> {
        let rows = self.store.timeline_of_run(id, 0, 1000).await.unwrap();
        rows.into_iter().map(|row| row.event.code).collect()
    }

    /// Someone releases a machine in MAAS and `user` deploys it.
    pub(crate) async fn repurpose(&self, machine: &str, user: &str) {
        let (machine, user) = (machine.to_owned(), user.to_owned());
        let release = HumanAction::Release { machine: machine.clone() };
        self.sim.with(|region| region.apply_human_action(0, &release)).unwrap();
        while self.sim.with(|region| region.status_of(&machine)) != Some(Status::Ready) {
            RealClock.sleep_until(RealClock.now().plus_seconds(0.01)).await;
        }
        let deploy = HumanAction::DeployAs { machine, user };
        self.sim.with(|region| region.apply_human_action(0, &deploy)).unwrap();
    }

    /// Moves the engine's clock on.
    pub(crate) fn jump(&self, seconds: f64) {
        let micros = Timestamp::EPOCH.plus_seconds(seconds).as_micros();
        self.clock.ahead_micros.fetch_add(micros, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// MAC address of the boot interface of a machine in the region.
    pub(crate) fn mac_of(&self, system_id: &str) -> String {
        let hosts = self.sim.with(|region| region.hosts());
        let host = hosts.iter().find(|h| h.system_id.as_deref() == Some(system_id));
        host.unwrap().mac_address.clone()
    }

    /// Waits until the run neither runs nor waits.
    pub(crate) async fn rest(&self, id: RunId) -> gpuaas_core::record::RunRecord {
        let deadline = RealClock.now().plus_seconds(test_report::patience_seconds(120.0));
        loop {
            let run = self.store.run(id).await.unwrap();
            if !matches!(run.status, RunStatus::Running | RunStatus::Waiting) {
                return run;
            }
            assert!(
                RealClock.now() < deadline,
                "still {} in {}: {:?}",
                run.status,
                run.step,
                run.wait
            );
            RealClock.sleep_until(RealClock.now().plus_seconds(0.02)).await;
        }
    }
}

/// What an operator knows of a host.
pub(crate) fn hardware(host: &maas_sim::HostView) -> NodeHardware {
    NodeHardware {
        bmc_address: Some(host.bmc_address.clone()),
        bmc_user: Some("root".to_owned()),
        power_type: "ipmi".to_owned(),
        mac_addresses: vec![host.mac_address.clone()],
        architecture: "amd64/generic".to_owned(),
    }
}

async fn register(
    store: &Store,
    sim: &SimHandle,
    profile: &ProfileSpec,
    now: Timestamp,
) -> (SiteId, ProfileId) {
    let (site_id, profile_id) = (SiteId::new(&RandomIds, now), ProfileId::new(&RandomIds, now));
    let spec = SiteSpec::new("lab", &sim.url());
    let key = SecretString::from(sim.api_key.clone());
    let status = SiteStatus { maas_user: "admin".to_owned(), ..SiteStatus::default() };
    store
        .create_site(now, site_id, spec, status, &key, gpuaas_store::NewAuditEntry::in_test())
        .await
        .unwrap();
    store
        .create_profile(now, profile_id, "p", profile, &[], gpuaas_store::NewAuditEntry::in_test())
        .await
        .unwrap();
    (site_id, profile_id)
}
