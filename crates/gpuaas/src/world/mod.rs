//! A whole world on a virtual clock, in one process: a region, a control plane, every node.
//!
//! Time stands still while anything can run and then jumps to the next moment at which something
//! happens, so an hour of hardware costs the milliseconds of work that lie in it. The engine is the
//! real one, driven turn by turn ([`Engine::claim`], [`Engine::work`], [`Engine::watch`]); MAAS is
//! the simulator's region behind the client's own transport; nodes say what they say straight into
//! the store's functions that the API's handlers call, because fifty thousand of them over HTTP
//! would measure HTTP. Nobody runs at the same time as anybody else ([`crew`]), so a seed gives one
//! history, and a crash is a future that is dropped.

mod crew;
mod node;
mod transport;
mod trap;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use gpuaas_artifact::{ArtifactStore, Bundle, BundleCatalog, parse_user_data};
use gpuaas_core::record::NodeHardware;
use gpuaas_core::steps;
use gpuaas_engine::{Clock, Engine, EngineConfig, EngineParts, Fetch, Moments, VirtualClock};
use gpuaas_store::{MasterKey, NewNode, NewRun, Onboard, Secret, StartRun, Store, StoreError};
use gpuaas_types::api::{OnboardAccepted, SiteStatus};
use gpuaas_types::ids::uuid_v7;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{IdSource, NodeId, ProfileId, RunId, RunKind, SiteId, Step, Timestamp};
use maas_sim::{Chance, FirstBoot, HardwareClass, HostView, Notice, SimOptions};
use uuid::Uuid;

use crate::clock::SharedClock;
use crate::failure::Failure;
use crate::hosts::BootTimes;
use crate::serve::of_store;
use crew::{Crew, Group};
pub use transport::Fuse;
pub use trap::{Intended, Passed, Trap};

/// When every world begins: any moment will do, as long as it is the same one.
const BEGIN: Timestamp = Timestamp::from_micros(1_795_190_400_000_000);
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
}

/// What moved time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Something ran at this moment.
    Ran,
    /// Nothing could run; the clock moved on.
    Waited,
    /// The control plane came to the end of its fuse.
    Burnt,
    /// Nothing will ever happen by itself again.
    Still,
}

/// See the module text.
pub struct World {
    /// Time.
    pub clock: VirtualClock,
    /// The region.
    pub region: Arc<maas_sim::Shared>,
    /// State of the control plane; survives its crashes.
    pub store: Store,
    /// Site of all nodes.
    pub site_id: SiteId,
    /// Ends the control plane at a boundary of a call.
    pub fuse: Arc<Fuse>,
    plane: Arc<Plane>,
    engine: Option<Arc<Engine>>,
    parts: Parts,
    crew: Crew,
    working: Arc<AtomicUsize>,
    watching: Arc<AtomicBool>,
    next_due: Option<Timestamp>,
    /// Writes of the store when `next_due` was asked for.
    due_as_of: Option<u64>,
    skew_seconds: f64,
    systems: BTreeMap<String, System>,
    dir: tempfile::TempDir,
}

/// What outlives an engine.
struct Parts {
    ids: Arc<SeededIds>,
    bundles: Arc<BundleCatalog>,
    artifacts: Arc<ArtifactStore>,
    agent: Bundle,
    times: BootTimes,
    plan: Plan,
    profile_id: ProfileId,
    parallel_runs: usize,
}

/// What nodes and operators share with the control plane.
struct Plane {
    store: Store,
    clock: VirtualClock,
    ids: Arc<SeededIds>,
    up: AtomicBool,
    /// Enrollment tokens that were taken a second time after their first heartbeat.
    tokens_taken_twice: AtomicUsize,
}

/// A deployed system.
struct System {
    deployment: u64,
    life: u64,
    enrolled: Arc<Mutex<Option<node::Enrolled>>>,
}

/// Identifiers from a seeded stream.
struct SeededIds(Mutex<Chance>);

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
        let (region, api_key) = maas_sim::build(&options);
        let shared = SharedClock(Arc::new(clock.clone()));
        let region = maas_sim::Shared::new(region, Arc::new(shared));
        let path = dir.path().join("gpuaas.db").display().to_string();
        let key = MasterKey::from_bytes([7; 32]);
        let store = Store::open_unsynced(&path, key).await.map_err(of_store)?;
        let ids = Arc::new(SeededIds(Mutex::new(Chance::of(plan.seed, "ids"))));
        let artifacts =
            ArtifactStore::open(&dir.path().join("artifacts")).map_err(|e| local(&e))?;
        let artifacts = Arc::new(artifacts);
        let agent = artifacts.put_bytes(b"#!/bin/sh\n").map_err(|e| local(&e))?;
        let bundles = BundleCatalog::open(&artifacts, None).map_err(|e| local(&e))?;
        let (site_id, profile_id) = register(&store, &*ids, &api_key, &plan.profile).await?;
        let plane = Arc::new(Plane {
            store: store.clone(),
            clock: clock.clone(),
            ids: Arc::clone(&ids),
            up: AtomicBool::new(false),
            tokens_taken_twice: AtomicUsize::new(0),
        });
        let parts = Parts {
            ids,
            bundles: Arc::new(bundles),
            artifacts,
            agent: Bundle::of_stored("gpuaas-node-agent", "0.1.0", agent),
            times: BootTimes::of_class(plan.class, 1.0),
            plan,
            profile_id,
            parallel_runs: 0,
        };
        Ok(Self {
            clock,
            region,
            store,
            site_id,
            fuse: Arc::default(),
            plane,
            engine: None,
            parts,
            crew: Crew::default(),
            working: Arc::default(),
            watching: Arc::default(),
            next_due: None,
            due_as_of: None,
            skew_seconds: 0.0,
            systems: BTreeMap::new(),
            dir,
        })
    }

    /// Folder of the world's files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Whether the control plane runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    /// Enrollment tokens that worked although their agent had long been heard.
    #[must_use]
    pub fn tokens_taken_twice(&self) -> usize {
        self.plane.tokens_taken_twice.load(Ordering::SeqCst)
    }

    /// Starts the control plane with a clock that is `skew_seconds` ahead of MAAS'.
    ///
    /// # Errors
    /// The store's.
    pub async fn start(&mut self, skew_seconds: f64) -> Result<(), Failure> {
        let now = self.clock.now().plus_seconds(skew_seconds);
        self.store.end_leases_of_dead_owner(now).await.map_err(of_store)?;
        self.start_beside(skew_seconds, None);
        Ok(())
    }

    /// The same beside a control plane that may not be dead, as another replica starts: whatever
    /// is leased stays so until its time is over. It tells of the `moments` of its runs.
    pub fn start_beside(&mut self, skew_seconds: f64, moments: Option<Arc<dyn Moments>>) {
        self.skew_seconds = skew_seconds;
        let clock: Arc<dyn Clock> = Arc::new(self.clock.ahead(skew_seconds));
        let connect =
            transport::Within::new(Arc::clone(&self.region), &self.clock, Arc::clone(&self.fuse))
                .signed_by(Arc::clone(&clock));
        let parts = EngineParts {
            store: self.store.clone(),
            clock,
            ids: Arc::clone(&self.parts.ids) as Arc<dyn IdSource>,
            connect: Arc::new(connect),
            bundles: Arc::clone(&self.parts.bundles),
            artifacts: Arc::clone(&self.parts.artifacts),
            http: Arc::new(OwnUrls(Arc::clone(&self.parts.artifacts))),
            config: {
                let mut config = EngineConfig::new(ADVERTISE, self.parts.agent.clone());
                config.poll_seconds = self.parts.plan.poll_seconds;
                self.parts.parallel_runs = config.parallel_runs;
                config
            },
        };
        self.engine = Some(Arc::new(Engine::assemble_for(parts, moments)));
        self.plane.up.store(true, Ordering::SeqCst);
        self.next_due = Some(self.clock.now());
        self.due_as_of = None;
    }

    /// Drops the control plane wherever it is: between a call and its record, in the middle of an
    /// answer, with leases held.
    pub fn crash(&mut self) {
        self.plane.up.store(false, Ordering::SeqCst);
        self.crew.dismiss(Group::Plane);
        self.leave();
    }

    fn leave(&mut self) {
        self.engine = None;
        self.fuse.replace();
        self.working = Arc::default();
        self.watching = Arc::default();
    }

    /// Lets the control plane stand still wherever it is, as a machine that is suspended does:
    /// nothing of it runs, and it knows of nothing, until [`World::let_go`].
    pub fn hold(&mut self) {
        self.crew.hold(Group::Plane);
        self.leave();
    }

    /// Lets what stands still go on with the work in its hands. It takes up no new work.
    pub fn let_go(&mut self) {
        self.crew.let_go(Group::Plane);
    }

    /// Looks for work at the next turn: somebody wrote to the store from outside.
    pub fn look_again(&mut self) {
        self.next_due = Some(self.clock.now());
        self.due_as_of = None;
    }

    /// An operator names one racked machine.
    ///
    /// # Errors
    /// The store's.
    pub async fn onboard(&mut self, machine: &HostView) -> Result<OnboardAccepted, Failure> {
        let now = self.clock.now();
        let place = (self.site_id, self.parts.profile_id);
        let asked = request(&*self.parts.ids, now, place, machine);
        let onboarded = self.store.onboard(now, asked).await.map_err(of_store)?;
        self.look_again();
        Ok(onboarded.accepted)
    }

    /// An operator begins a run on a node that exists, where the table of kinds allows it.
    ///
    /// # Errors
    /// The store's.
    pub async fn begin(&mut self, node_id: NodeId, kind: RunKind) -> Result<RunId, Failure> {
        let now = self.clock.now();
        let row = steps::kind(kind);
        let run = NewRun {
            id: RunId::new(&*self.parts.ids, now),
            kind,
            step: row.first(),
            profile_revision: 1,
            cause: "asked for".to_owned(),
        };
        let id = run.id;
        let asked = StartRun { node_id, run, from: row.from, history: Vec::new(), audit: None };
        self.store.start_run_from(now, asked).await.map_err(of_store)?;
        self.look_again();
        Ok(id)
    }

    /// An agent of `node_id` that does what it is told until `run_id` is over.
    pub fn serve_tasks(&mut self, node_id: NodeId, run_id: RunId) {
        let enrolled = node::Enrolled { node_id, run_id };
        self.crew.add(Group::World, node::serve(Arc::clone(&self.plane), enrolled));
    }

    /// Lets an operator name every racked machine, one after the other.
    pub fn name_all(&mut self) {
        let machines = self.region.with(|region| region.hosts());
        let plane = Arc::clone(&self.plane);
        let (site_id, profile_id) = (self.site_id, self.parts.profile_id);
        let apart = self.parts.plan.apart_seconds;
        self.crew.add(Group::World, async move {
            for machine in machines {
                plane.reached().await;
                let now = plane.clock.now();
                let asked = request(&*plane.ids, now, (site_id, profile_id), &machine);
                if let Err(error) = plane.store.onboard(now, asked).await {
                    tracing::error!(%error, machine = machine.name, "not onboarded");
                }
                plane.clock.sleep_until(now.plus_seconds(apart)).await;
            }
        });
    }

    /// Does everything that can be done at this moment, or moves on to the next one, which is not
    /// after `until`.
    ///
    /// # Errors
    /// The store's.
    pub async fn turn(&mut self, until: Timestamp) -> Result<Turn, Failure> {
        let ran = self.crew.settle(&self.store, &self.fuse).await;
        if self.fuse.is_burnt() {
            return Ok(Turn::Burnt);
        }
        let now = self.clock.now();
        for notice in self.region.with(|region| region.advance(now.as_micros())) {
            self.act(notice);
        }
        if ran {
            self.look().await.map_err(of_store)?;
        }
        self.claim(now).await.map_err(of_store)?;
        if self.crew.is_ready() {
            return Ok(Turn::Ran);
        }
        let region = self.region.with(|region| region.next_event_at());
        let due = self.next_due.filter(|_| self.engine.is_some() && self.free() > 0);
        let moments = [self.clock.next(), region.map(Timestamp::from_micros), due];
        let Some(next) = moments.into_iter().flatten().min() else { return Ok(Turn::Still) };
        self.clock.advance_to(next.min(until));
        Ok(Turn::Waited)
    }

    fn free(&self) -> usize {
        self.parts.parallel_runs.saturating_sub(self.working.load(Ordering::SeqCst))
    }

    /// What the engine's own loops would ask for next.
    async fn look(&mut self) -> Result<(), StoreError> {
        let Some(engine) = self.engine.clone() else { return Ok(()) };
        // Most of what runs only hands a request on. What was not written changes nothing here.
        let written = Some(self.store.counters().write_transactions);
        if self.due_as_of == written {
            return Ok(());
        }
        self.due_as_of = written;
        self.next_due = engine.next_due().await?.map(|at| at.plus_seconds(-self.skew_seconds));
        if !self.watching.load(Ordering::SeqCst) && self.store.has_moving_runs(self.site_id).await?
        {
            self.watching.store(true, Ordering::SeqCst);
            let (site_id, watching) = (self.site_id, Arc::clone(&self.watching));
            let clock = self.clock.clone();
            self.crew.add(Group::Plane, async move {
                let began = clock.now();
                engine.watch(site_id).await;
                // Another control plane may watch already; it is not asked all the time.
                if clock.now() == began {
                    clock.sleep_until(began.plus_seconds(15.0)).await;
                }
                watching.store(false, Ordering::SeqCst);
            });
        }
        Ok(())
    }

    async fn claim(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let (Some(engine), free) = (self.engine.clone(), self.free()) else { return Ok(()) };
        if free == 0 || self.next_due.is_none_or(|at| at > now) {
            return Ok(());
        }
        let claimed = engine.claim(free).await?;
        if claimed.is_empty() {
            // Nothing is due, or only after the rounding between two clocks: a moment later it is.
            let due = engine.next_due().await?.map(|at| at.plus_seconds(-self.skew_seconds));
            self.next_due = due.map(|at| at.max(now.plus_seconds(0.001)));
        }
        for work in claimed {
            let (engine, working) = (Arc::clone(&engine), Arc::clone(&self.working));
            working.fetch_add(1, Ordering::SeqCst);
            self.crew.add(Group::Plane, async move {
                engine.work(work).await;
                working.fetch_sub(1, Ordering::SeqCst);
            });
        }
        Ok(())
    }

    fn act(&mut self, notice: Notice) {
        let host = notice.host().clone();
        let known = self.systems.get(&host.system_id).map(|system| system.deployment);
        if known.is_some_and(|deployment| deployment > host.deployment) {
            return;
        }
        match notice {
            Notice::FirstBoot(boot) => self.first_boot(*boot),
            Notice::PoweredOn(host) => {
                let Some(system) = self.systems.get_mut(&host.system_id) else { return };
                let enrolled = *system.enrolled.lock().unwrap_or_else(PoisonError::into_inner);
                if let (Some(enrolled), false) = (enrolled, self.crew.has(system.life)) {
                    let life = node::agent(Arc::clone(&self.plane), enrolled);
                    system.life = self.crew.add(Group::World, life);
                }
            }
            Notice::PoweredOff(host) => {
                if let Some(system) = self.systems.get(&host.system_id) {
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
            chance: Chance::of(self.parts.plan.seed, &name),
            lost_callbacks: self.parts.plan.lost_callbacks,
            enrolled: Arc::clone(&enrolled),
        };
        let life = self.crew.add(Group::World, newborn.live());
        let system = System { deployment: boot.host.deployment, life, enrolled };
        self.systems.insert(boot.host.system_id, system);
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
    profile: &ProfileSpec,
) -> Result<(SiteId, ProfileId), Failure> {
    let site_id = SiteId::new(ids, BEGIN);
    let spec = SiteSpec {
        name: "world".to_owned(),
        url: "http://127.0.0.1:5240/MAAS".to_owned(),
        ca_pem: None,
        node_ca_pem: None,
        pxe_vlan: None,
        approved_images: Vec::new(),
        batch_max_parallel: 0,
        image_bandwidth_mbit_per_second: 0,
        drift_policy: std::collections::BTreeMap::new(),
    };
    let key = Secret::new(api_key.to_owned());
    let made = store.create_site(BEGIN, site_id, spec, SiteStatus::default(), &key).await;
    made.map_err(of_store)?;
    let profile_id = ProfileId::new(ids, BEGIN);
    let made = store.create_profile(BEGIN, profile_id, "h200", profile, "").await;
    made.map_err(of_store)?;
    Ok((site_id, profile_id))
}

fn request(
    ids: &dyn IdSource,
    now: Timestamp,
    (site_id, profile_id): (SiteId, ProfileId),
    machine: &HostView,
) -> Onboard {
    let hardware = NodeHardware {
        bmc_address: Some(machine.bmc_address.clone()),
        bmc_user: Some("maas".to_owned()),
        power_type: "ipmi".to_owned(),
        mac_addresses: vec![machine.mac_address.clone()],
        architecture: "amd64/generic".to_owned(),
    };
    let node = NewNode {
        id: NodeId::new(ids, now),
        site_id,
        profile_id,
        hostname: machine.name.clone(),
        hardware,
        bmc_password: Some(Secret::new("secret".to_owned())),
    };
    let run = NewRun {
        id: RunId::new(ids, now),
        kind: RunKind::Onboard,
        step: Step::Accept,
        profile_revision: 1,
        cause: "onboarding asked for".to_owned(),
    };
    Onboard { node, run, timeline: Vec::new(), audit: None, idempotency: None }
}
