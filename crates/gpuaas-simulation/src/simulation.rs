//! A whole world on a virtual clock, in one process: a region, a control plane, every node.
//!
//! Time stands still while anything can run and then jumps to the next moment at which something
//! happens, so an hour of hardware costs the milliseconds of work that lie in it. The engine is the
//! real one, driven turn by turn ([`Engine::claim`], [`Engine::work`], [`Engine::watch`]); MAAS is
//! the simulator's region behind the client's own transport; nodes say what they say straight into
//! the store's functions that the API's handlers call, because fifty thousand of them over HTTP
//! would measure HTTP. Nobody runs at the same time as anybody else ([`crew`]), so a seed gives one
//! history, and a crash is a future that is dropped.
//!
//! There may be several control planes ([`replica`]); one that is stopped keeps what it has in
//! hand and goes on with it later, while another has taken over.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gpuaas_artifact::{Artifact, ArtifactStore, BundleCatalog};
use gpuaas_bundle::SigningKey;
use gpuaas_client::failure::Failure;
use gpuaas_engine::{Clock as _, VirtualClock};
use gpuaas_lab::clock::SharedClock;
use gpuaas_lab::hosts::options::BootTimes;
use gpuaas_lab::of_store;
use gpuaas_store::{MasterKey, Secret, Store};
use gpuaas_types::api::SiteStatus;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{IdSource, NodeId, ProfileId, SiteId, Timestamp};
use maas_sim::SimOptions;
use tokio::sync::broadcast;

use crate::deployed_system::System;
use crate::executor::Crew;
use crate::failpoint::Fuse;
use crate::plan::{BEGIN, Plan, SITE};
use crate::replica::Replica;
use crate::seeded_ids::SeededIds;
use crate::shared_state::{Credential, Plane, Touched};
use crate::transport::{Arrival, Network};

/// See the module text.
pub struct World {
    /// Time.
    pub clock: VirtualClock,
    /// The region.
    pub region: Arc<maas_sim::SharedRegion>,
    /// State of the control plane; survives its crashes.
    pub store: Store,
    /// Site of all nodes.
    pub site_id: SiteId,
    /// Profile of all nodes.
    pub profile_id: ProfileId,
    /// Ends a control plane, or stops it, at a moment chosen beforehand.
    pub fuse: Arc<Fuse>,
    pub(crate) plane: Arc<Plane>,
    pub(crate) network: Arc<Network>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) last_replica: u32,
    pub(crate) parts: Parts,
    pub(crate) crew: Crew,
    pub(crate) touched: Arc<Touched>,
    pub(crate) tasks: broadcast::Receiver<NodeId>,
    /// Of the store, by the clocks of control planes.
    pub(crate) next_due: Option<Timestamp>,
    pub(crate) looked_at_write: u64,
    pub(crate) next_sweep: Timestamp,
    pub(crate) systems: BTreeMap<String, System>,
    pub(crate) dir: tempfile::TempDir,
}

/// What outlives an engine.
pub(crate) struct Parts {
    pub(crate) ids: Arc<SeededIds>,
    pub(crate) bundles: Arc<BundleCatalog>,
    pub(crate) artifacts: Arc<ArtifactStore>,
    pub(crate) agent: Artifact,
    pub(crate) times: BootTimes,
    pub(crate) plan: Plan,
}

fn local(error: &dyn std::fmt::Display) -> Failure {
    Failure::local("world_not_made", "The simulated world cannot be made", error.to_string())
}

impl World {
    /// Makes the world of a plan. Nothing has happened in it yet, and the control plane is down.
    ///
    /// # Errors
    /// When its temporary files cannot be written.
    pub async fn new(plan: Plan) -> Result<Self, Failure> {
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
        let store = Store::in_memory(key).await.map_err(of_store)?;
        let ids = Arc::new(SeededIds::new(plan.seed));
        let artifacts =
            ArtifactStore::open(&dir.path().join("artifacts")).map_err(|e| local(&e))?;
        let artifacts = Arc::new(artifacts);
        let agent = artifacts.put_bytes(b"#!/bin/sh\n").map_err(|e| local(&e))?;
        let key = SigningKey::generate().map_err(|e| local(&e))?;
        let bundles = BundleCatalog::with_built_in(&artifacts, &key, clock.now());
        let bundles = bundles.map_err(|e| local(&e))?;
        let (site_id, profile_id) = register(&store, &*ids, &api_key, &plan).await?;
        let plane = Arc::new(Plane {
            store: store.clone(),
            clock: clock.clone(),
            ids: Arc::clone(&ids),
            up: AtomicBool::new(false),
            tokens_taken_twice: AtomicUsize::new(0),
            credentials: Mutex::default(),
            failing_tasks: plan.failing_tasks,
        });
        let tasks = store.task_signal();
        let parts = Parts {
            ids,
            bundles: Arc::new(bundles),
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
            fuse: Arc::default(),
            plane,
            replicas: Vec::new(),
            last_replica: 0,
            next_sweep: BEGIN.plus_seconds(parts.plan.sweep_seconds),
            parts,
            crew: Crew::default(),
            touched: Arc::default(),
            tasks,
            next_due: None,
            looked_at_write: 0,
            systems: BTreeMap::new(),
            dir,
        })
    }

    /// Folder of the world's files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Enrollment tokens that worked although their agent had long been heard.
    #[must_use]
    pub fn tokens_taken_twice(&self) -> usize {
        self.plane.tokens_taken_twice.load(Ordering::SeqCst)
    }

    /// What nodes are to be.
    #[must_use]
    pub fn profile(&self) -> &ProfileSpec {
        &self.parts.plan.profile
    }

    /// Credentials of every agent that was ever taken.
    #[must_use]
    pub fn credentials(&self) -> Vec<Credential> {
        self.plane.credentials.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes that reached the region since the last time this was asked.
    #[must_use]
    pub fn take_arrivals(&self) -> Vec<Arrival> {
        self.network.take_arrivals()
    }
}

async fn register(
    store: &Store,
    ids: &dyn IdSource,
    api_key: &str,
    plan: &Plan,
) -> Result<(SiteId, ProfileId), Failure> {
    let site_id = SiteId::new(ids, BEGIN);
    let spec = SiteSpec {
        name: SITE.to_owned(),
        url: "http://127.0.0.1:5240/MAAS".to_owned(),
        ca_pem: None,
        node_ca_pem: None,
        pxe_vlan: None,
        approved_images: Vec::new(),
        batch_max_parallel: plan.site_batch_max_parallel,
        image_bandwidth_mbit_per_second: 0,
        bundle_inputs: std::collections::BTreeMap::new(),
        drift_policy: BTreeMap::new(),
    };
    let key = Secret::new(api_key.to_owned());
    let made = store.create_site(BEGIN, site_id, spec, SiteStatus::default(), &key).await;
    made.map_err(of_store)?;
    let profile_id = ProfileId::new(ids, BEGIN);
    let made = store.create_profile(BEGIN, profile_id, "h200", &plan.profile, &[]).await;
    made.map_err(of_store)?;
    Ok((site_id, profile_id))
}
