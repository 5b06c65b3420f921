//! A whole world on a virtual clock, in one process: a region, a control plane, every node.
//!
//! Time stands still while anything can run and then jumps to the next moment at which something
//! happens, so an hour of hardware costs the milliseconds of work that lie in it. The engine is the
//! real one, driven turn by turn ([`Engine::claim_runs`], [`Engine::process_run`], [`Engine::watch_site`]); MAAS is
//! the simulator's region behind the client's own transport; nodes say what they say straight into
//! the store's functions that the API's handlers call, because fifty thousand of them over HTTP
//! would measure HTTP. Nobody runs at the same time as anybody else ([`crew`]), so a seed gives one
//! history, and a crash is a future that is dropped.
//!
//! There may be several control planes ([`replica`]); one that is stopped keeps what it has in
//! hand and goes on with it later, while another has taken over.

mod crew;
mod fuse;
mod node;
mod operator;
mod replica;
mod transport;
mod trap;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use gpuaas_artifact::{Artifact, ArtifactStore, BundleCatalog, parse_user_data};
use gpuaas_bundle::SigningKey;
use gpuaas_engine::{Clock, Fetch, ResourceHead, VirtualClock};
use gpuaas_store::{MasterKey, Secret, Store};
use gpuaas_types::api::SiteStatus;
use gpuaas_types::ids::uuid_v7;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{IdSource, NodeId, ProfileId, RunId, SiteId, Timestamp};
use maas_sim::{FirstBoot, HardwareClass, HostRef, Notice, SimOptions, SimRng};
use tokio::sync::broadcast;
use uuid::Uuid;

use crate::clock::SharedClock;
use crate::failure::Failure;
use crate::hosts::BootTimes;
use crate::serve::of_store;
use crew::{Crew, Group};
pub use fuse::{Counts, End, Fuse};
pub use node::Credential;
pub use operator::Refusal;
use replica::Replica;
pub use transport::Arrival;
pub use trap::{Intended, Passed, Trap};

/// When every world begins: any moment will do, as long as it is the same one.
const BEGIN: Timestamp = Timestamp::from_micros(1_795_190_400_000_000);
/// Name of the site.
const SITE: &str = "world";
/// Name under which nodes are told to reach the control plane.
const ADVERTISE: &str = "http://127.0.0.1:8080";
/// Seconds after which an operator or an agent tries again while the control plane is away.
const AWAY_SECONDS: f64 = 5.0;

/// What a world is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seed of everything random.
    pub seed: u64,
    /// Racked machines.
    pub nodes: usize,
    /// What they are.
    pub class: &'static HardwareClass,
    /// Seconds from one request of the operator to the next.
    pub apart_seconds: f64,
    /// Seconds between two looks at the event feed.
    pub poll_seconds: f64,
    /// Chance that a node's callback is lost.
    pub lost_callbacks: f64,
    /// What nodes are to be.
    pub profile: ProfileSpec,
    /// Nodes of the site that may deploy at once; 0: all.
    pub site_batch_max_parallel: u32,
    /// Chance that an agent cannot do a task, or finds its host not as it should be.
    pub failing_tasks: f64,
    /// Seconds between two sweeps; 0: none.
    pub sweep_seconds: f64,
}

impl Plan {
    /// A fleet in which nothing goes wrong.
    #[must_use]
    pub fn calm(seed: u64, nodes: usize, class: &'static HardwareClass) -> Self {
        Self {
            seed,
            nodes,
            class,
            apart_seconds: 1.0,
            poll_seconds: 5.0,
            lost_callbacks: 0.0,
            profile: ProfileSpec::default(),
            site_batch_max_parallel: 0,
            failing_tasks: 0.0,
            sweep_seconds: 0.0,
        }
    }
}

/// What moved time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Something ran at this moment.
    Ran,
    /// Nothing could run; the clock moved on.
    Waited,
    /// A control plane came to the end of its fuse.
    Burnt(u32, End),
    /// A control plane began to compare the site with MAAS.
    Swept(u32),
    /// Nothing will ever happen by itself again.
    Still,
}

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
    plane: Arc<Plane>,
    network: Arc<transport::Network>,
    replicas: Vec<Replica>,
    last_replica: u32,
    parts: Parts,
    crew: Crew,
    touched: Arc<Touched>,
    tasks: broadcast::Receiver<NodeId>,
    /// Of the store, by the clocks of control planes.
    next_due: Option<Timestamp>,
    looked_at_write: u64,
    next_sweep: Timestamp,
    systems: BTreeMap<String, System>,
    dir: tempfile::TempDir,
}

/// Runs that somebody has looked at.
#[derive(Default)]
struct Touched(Mutex<Vec<RunId>>);

impl Touched {
    fn add(&self, run_id: RunId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(run_id);
    }

    fn take(&self) -> Vec<RunId> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What outlives an engine.
struct Parts {
    ids: Arc<SeededIds>,
    bundles: Arc<BundleCatalog>,
    artifacts: Arc<ArtifactStore>,
    agent: Artifact,
    times: BootTimes,
    plan: Plan,
}

/// What nodes and operators share with the control plane.
struct Plane {
    store: Store,
    clock: VirtualClock,
    ids: Arc<SeededIds>,
    up: AtomicBool,
    /// Enrollment tokens that were taken a second time after their first heartbeat.
    tokens_taken_twice: AtomicUsize,
    /// Of every agent that was ever taken.
    credentials: Mutex<Vec<Credential>>,
    failing_tasks: f64,
}

/// A deployed system.
struct System {
    deployment: u64,
    life: u64,
    on: bool,
    enrolled: Arc<Mutex<Option<node::Enrolled>>>,
}

/// Identifiers from a seeded stream.
struct SeededIds(Mutex<SimRng>);

impl IdSource for SeededIds {
    fn uuid(&self, now: Timestamp) -> Uuid {
        let mut chance = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0u8; 10];
        for byte in &mut bytes {
            *byte = u8::try_from(chance.below(256)).unwrap_or_default();
        }
        uuid_v7(now, bytes)
    }
}

/// Our own URLs, read from the artifact store that would serve them.
struct OwnUrls(Arc<ArtifactStore>);

#[async_trait]
impl Fetch for OwnUrls {
    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let Some((_, digest)) = url.rsplit_once("/sha256/") else { return Ok(Vec::new()) };
        let digest = digest.parse().map_err(|_| format!("{url} names no digest"))?;
        std::fs::read(self.0.path(&digest)).map_err(|error| format!("{url}: {error}"))
    }

    async fn head(&self, url: &str) -> Result<ResourceHead, String> {
        let bytes = self.get(url).await?;
        Ok(ResourceHead { size_bytes: u64::try_from(bytes.len()).ok(), etag: None })
    }
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
        let dir = crate::sim::temporary_dir()?;
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
        let ids = Arc::new(SeededIds(Mutex::new(SimRng::for_name(plan.seed, "ids"))));
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
            network: Arc::new(transport::Network::new(Arc::clone(&region))),
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

    /// Does everything that can be done at this moment, or moves on to the next one, which is not
    /// after `until`.
    ///
    /// # Errors
    /// The store's.
    pub async fn turn(&mut self, until: Timestamp) -> Result<Turn, Failure> {
        let ran = self.crew.settle(&self.store, &self.fuse).await;
        if let Some((replica, end)) = self.fuse.burnt() {
            return Ok(Turn::Burnt(replica, end));
        }
        let now = self.clock.now();
        let came = self.network.deliver(now);
        for notice in self.region.with(|region| region.advance(now.as_micros())) {
            self.act(notice);
        }
        self.wake_agents().await?;
        if ran || self.next_due == Some(Timestamp::EPOCH) {
            self.look().await.map_err(of_store)?;
        }
        if let Some(replica) = self.sweep_if_due(now) {
            return Ok(Turn::Swept(replica));
        }
        self.claim(now).await.map_err(of_store)?;
        if came || self.crew.is_ready() {
            return Ok(Turn::Ran);
        }
        let region = self.region.with(|region| region.next_event_at());
        let mut moments = vec![self.clock.next(), region.map(Timestamp::from_micros)];
        moments.push(self.network.next());
        moments.extend(self.replicas.iter().map(|replica| replica.looks_at(self.next_due)));
        let Some(next) = moments.into_iter().flatten().min() else { return Ok(Turn::Still) };
        self.clock.advance_to(next.min(until));
        Ok(Turn::Waited)
    }

    /// Whether a run moves.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.next_due.is_some()
    }

    /// Sweeps while something else moves: by itself it would never come to an end.
    fn sweep_if_due(&mut self, now: Timestamp) -> Option<u32> {
        let every_seconds = self.parts.plan.sweep_seconds;
        if every_seconds <= 0.0 || now < self.next_sweep {
            return None;
        }
        self.next_sweep = now.plus_seconds(every_seconds);
        self.sweep()
    }

    /// An agent that has long been silent still hears of a task.
    async fn wake_agents(&mut self) -> Result<(), Failure> {
        while let Ok(node_id) = self.tasks.try_recv() {
            let node = self.store.node(node_id).await.map_err(of_store)?;
            let system = node.system_id.and_then(|id| self.systems.get_mut(&id));
            let system = system.filter(|s| s.on && s.node_id() == Some(node_id));
            if let Some(system) = system {
                system.revive(&mut self.crew, &self.plane);
            }
        }
        Ok(())
    }

    fn act(&mut self, notice: Notice) {
        let host: HostRef = notice.host().clone();
        let known = self.systems.get(&host.system_id).map(|system| system.deployment);
        if known.is_some_and(|deployment| deployment > host.deployment) {
            return;
        }
        match notice {
            Notice::FirstBoot(boot) => self.first_boot(*boot),
            Notice::PoweredOn(host) => {
                let Some(system) = self.systems.get_mut(&host.system_id) else { return };
                system.on = true;
                system.revive(&mut self.crew, &self.plane);
            }
            Notice::PoweredOff(host) => {
                if let Some(system) = self.systems.get_mut(&host.system_id) {
                    system.on = false;
                    self.crew.end(system.life);
                }
            }
            Notice::Released(host) => {
                if let Some(system) = self.systems.remove(&host.system_id) {
                    self.crew.end(system.life);
                }
            }
        }
    }

    fn first_boot(&mut self, boot: FirstBoot) {
        if let Some(old) = self.systems.remove(&boot.host.system_id) {
            self.crew.end(old.life);
        }
        let Ok(data) = parse_user_data(&boot.user_data) else { return };
        let enrolled = Arc::default();
        let name = format!("boot/{}/{}", boot.host.hostname, boot.host.deployment);
        let newborn = node::Newborn {
            plane: Arc::clone(&self.plane),
            inputs: data.inputs,
            times: self.parts.times,
            chance: SimRng::for_name(self.parts.plan.seed, &name),
            lost_callbacks: self.parts.plan.lost_callbacks,
            enrolled: Arc::clone(&enrolled),
        };
        let life = self.crew.add(Group::World, newborn.live());
        let system = System { deployment: boot.host.deployment, life, on: true, enrolled };
        self.systems.insert(boot.host.system_id, system);
    }
}

impl System {
    fn enrolled(&self) -> Option<node::Enrolled> {
        *self.enrolled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node_id(&self) -> Option<NodeId> {
        self.enrolled().map(|enrolled| enrolled.node_id)
    }

    /// Lets its agent, if it has one, run again.
    fn revive(&mut self, crew: &mut Crew, plane: &Arc<Plane>) {
        if let (Some(enrolled), false) = (self.enrolled(), crew.has(self.life)) {
            self.life = crew.add(Group::World, node::agent(Arc::clone(plane), enrolled));
        }
    }
}

impl Plane {
    /// Returns once the control plane answers.
    async fn reached(&self) {
        while !self.up.load(Ordering::SeqCst) {
            self.clock.sleep_until(self.clock.now().plus_seconds(AWAY_SECONDS)).await;
        }
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
