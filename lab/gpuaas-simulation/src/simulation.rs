//! A region, control planes and every node on a virtual clock, in one process.
//!
//! Time stands still while anything can run and then jumps to the next event, so an hour of hardware
//! costs the milliseconds of work that lie in it. The engine is the real one, driven call by call
//! (`Engine::claim`, `Engine::work`, `Engine::watch`). MAAS is the simulator's region behind the
//! client's own transport. Nodes report straight to the functions of the store that the API's
//! handlers call, because fifty thousand of them over HTTP would measure HTTP. One task runs at a
//! time (`executor.rs`), so a seed gives one history, and a crash is a future that is dropped.
//!
//! There may be several control planes (`control_planes.rs`). A paused one keeps its work and
//! resumes it later, while another has taken over.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gpuaas_artifact::{Artifact, ArtifactStore, BundleCatalog};
use gpuaas_bundle::SigningKey;
use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_engine::{Clock as _, VirtualClock};
use gpuaas_lab::clock::SharedClock;
use gpuaas_lab::hosts::options::BootTimes;
use gpuaas_store::{MasterKey, SecretString, Store};
use gpuaas_types::api::SiteStatus;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{IdSource, NodeId, ProfileId, SiteId, Timestamp};
use maas_sim::SimOptions;
use tokio::sync::broadcast;

use crate::control_plane_parts::ControlPlaneParts;
use crate::deployed_system::DeployedSystem;
use crate::executor::Executor;
use crate::failpoint::FailpointTrigger;
use crate::plan::{BEGIN, SITE, SimulationPlan};
use crate::replica::Replica;
use crate::seeded_ids::SeededIds;
use crate::shared_state::{AgentCredentialRecord, HostFault, SharedState, TouchedRuns};
use crate::transport::{ArrivedChange, DirectConnector, Network};

/// One simulation with everything in it.
pub struct Simulation {
    /// The virtual clock of everything in it.
    pub clock: VirtualClock,
    /// The simulated MAAS region.
    pub region: Arc<maas_sim::SharedRegion>,
    /// State of the control planes; survives their crashes.
    pub store: Store,
    /// Site of all nodes.
    pub site_id: SiteId,
    /// Profile of all nodes.
    pub profile_id: ProfileId,
    /// Crashes or pauses a control plane at an event chosen beforehand.
    pub failpoint: Arc<FailpointTrigger>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) network: Arc<Network>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) last_replica: u32,
    pub(crate) parts: SharedParts,
    pub(crate) executor: Executor,
    pub(crate) touched: Arc<TouchedRuns>,
    pub(crate) tasks: broadcast::Receiver<NodeId>,
    /// Of the store, by the clocks of control planes.
    pub(crate) next_due: Option<Timestamp>,
    /// When the next parked run looks again by itself, where the clock is to go on for that.
    pub(crate) next_recheck: Option<Timestamp>,
    /// Whether the clock goes on for the rechecks of parked runs. They alone would keep a simulation
    /// running for ever, so else they happen only beside other work.
    pub(crate) rechecks: bool,
    pub(crate) looked_at_write: u64,
    pub(crate) next_sweep: Timestamp,
    pub(crate) next_agent_watch: Timestamp,
    /// When control planes look at launches and releases of slices next; none: there are none.
    pub(crate) next_slice_look: Option<Timestamp>,
    pub(crate) systems: BTreeMap<String, DeployedSystem>,
    /// What each machine was deployed with last, by its identifier in MAAS.
    pub(crate) images: BTreeMap<String, String>,
    /// Kernel options of each machine's last deployment, by its identifier in MAAS.
    pub(crate) kernel_options: BTreeMap<String, String>,
    pub(crate) dir: tempfile::TempDir,
}

/// What every control plane is started with.
pub(crate) struct SharedParts {
    pub(crate) ids: Arc<SeededIds>,
    pub(crate) bundles: Arc<BundleCatalog>,
    pub(crate) bundle_key: Arc<SigningKey>,
    pub(crate) artifacts: Arc<ArtifactStore>,
    pub(crate) agent: Artifact,
    pub(crate) times: BootTimes,
    pub(crate) plan: SimulationPlan,
}

fn local(error: &dyn std::fmt::Display) -> Failure {
    Failure::local(CommandCode::SimulationNotMade, error.to_string())
}

impl Simulation {
    /// Makes the simulation of a plan. Nothing has happened in it yet, and the control plane is down.
    ///
    /// # Errors
    /// When its temporary files cannot be written.
    pub async fn new(plan: SimulationPlan) -> Result<Self, Failure> {
        let dir = gpuaas_lab::region::temporary_dir()?;
        let clock = VirtualClock::new(BEGIN);
        let options = SimOptions {
            machines: plan.nodes,
            class: plan.class,
            seed: plan.seed,
            ..SimOptions::default()
        };
        let (region, api_key) = maas_sim::build_region(&options);
        let shared = SharedClock(Arc::new(clock.clone()));
        let region = maas_sim::SharedRegion::new(region, Arc::new(shared));
        let key = MasterKey::from_bytes([7; 32]);
        let store = match &plan.database {
            Some(url) => Store::open(url, key).await,
            None => Store::in_memory(key).await,
        };
        let store = store.map_err(store_failure)?;
        let ids = Arc::new(SeededIds::new(plan.seed));
        let artifacts =
            ArtifactStore::open(&dir.path().join("artifacts")).map_err(|e| local(&e))?;
        let artifacts = Arc::new(artifacts);
        let agent = artifacts.put_bytes(b"#!/bin/sh\n").map_err(|e| local(&e))?;
        let bundle_key = Arc::new(SigningKey::generate().map_err(|e| local(&e))?);
        let bundles = BundleCatalog::with_built_in(&artifacts, &bundle_key, clock.now());
        let bundles = bundles.map_err(|e| local(&e))?;
        let (site_id, profile_id) = register(&store, &*ids, &api_key, &plan).await?;
        let shared = Arc::new(SharedState {
            store: store.clone(),
            clock: clock.clone(),
            ids: Arc::clone(&ids),
            up: AtomicBool::new(false),
            tokens_taken_twice: AtomicUsize::new(0),
            credentials: Mutex::default(),
            failing_tasks: plan.failing_tasks,
            heartbeat_seconds: plan.heartbeat_seconds,
            slice_hosts: Mutex::default(),
            host_fault: Mutex::default(),
        });
        let tasks = store.task_signal();
        let parts = SharedParts {
            ids,
            bundles: Arc::new(bundles),
            bundle_key,
            artifacts,
            agent: ArtifactStore::artifact("gpuaas-node-agent", "0.1.0", agent),
            times: BootTimes::of_class(plan.class, 1.0),
            plan,
        };
        Ok(Self {
            clock,
            network: Arc::new(Network::new(Arc::clone(&region))),
            region,
            store,
            site_id,
            profile_id,
            failpoint: Arc::default(),
            shared,
            replicas: Vec::new(),
            last_replica: 0,
            next_agent_watch: BEGIN,
            next_sweep: BEGIN.plus_seconds(parts.plan.sweep_seconds),
            parts,
            executor: Executor::default(),
            touched: Arc::default(),
            tasks,
            next_due: None,
            next_recheck: None,
            rechecks: false,
            next_slice_look: None,
            looked_at_write: 0,
            systems: BTreeMap::new(),
            images: BTreeMap::new(),
            kernel_options: BTreeMap::new(),
            dir,
        })
    }

    /// Folder of the simulation's files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Enrollment tokens that worked although their agent had long been heard.
    #[must_use]
    pub fn tokens_taken_twice(&self) -> usize {
        self.shared.tokens_taken_twice.load(Ordering::SeqCst)
    }

    /// What nodes are to be.
    #[must_use]
    pub fn profile(&self) -> &ProfileSpec {
        &self.parts.plan.profile
    }

    /// Credentials of every agent that was ever taken.
    #[must_use]
    pub fn credentials(&self) -> Vec<AgentCredentialRecord> {
        self.shared.credentials.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the admin API of the control plane works with.
    #[must_use]
    pub fn control_plane_parts(&self) -> ControlPlaneParts {
        ControlPlaneParts {
            store: self.store.clone(),
            clock: Arc::new(self.clock.clone()),
            ids: Arc::clone(&self.parts.ids) as Arc<dyn IdSource>,
            bundles: Arc::clone(&self.parts.bundles),
            bundle_key: Arc::clone(&self.parts.bundle_key),
            artifacts: Arc::clone(&self.parts.artifacts),
            connect: Arc::new(DirectConnector::new(&self.region, &self.clock)),
        }
    }

    /// Something goes wrong on every host from now on; none: nothing does any more.
    pub fn set_host_fault(&self, fault: Option<HostFault>) {
        *self.shared.host_fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Changes that reached the region since the last time this was asked.
    #[must_use]
    pub fn take_arrived_changes(&self) -> Vec<ArrivedChange> {
        self.network.take_arrived_changes()
    }
}

async fn register(
    store: &Store,
    ids: &dyn IdSource,
    api_key: &str,
    plan: &SimulationPlan,
) -> Result<(SiteId, ProfileId), Failure> {
    let site_id = SiteId::new(ids, BEGIN);
    let spec = SiteSpec {
        batch_max_parallel: plan.site_batch_max_parallel,
        ..SiteSpec::new(SITE, "http://127.0.0.1:5240/MAAS")
    };
    let key = SecretString::from(api_key.to_owned());
    let status = SiteStatus { maas_user: "admin".to_owned(), ..SiteStatus::default() };
    let made = store
        .create_site(BEGIN, site_id, spec, status, &key, gpuaas_store::NewAuditEntry::in_test())
        .await;
    made.map_err(store_failure)?;
    let profile_id = ProfileId::new(ids, BEGIN);
    let made = store
        .create_profile(
            BEGIN,
            profile_id,
            "h200",
            &plan.profile,
            &[],
            gpuaas_store::NewAuditEntry::in_test(),
        )
        .await;
    made.map_err(store_failure)?;
    Ok((site_id, profile_id))
}
