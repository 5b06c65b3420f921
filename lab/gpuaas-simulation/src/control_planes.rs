//! The control planes of a simulation: any number on one store, each with a clock of its own, each
//! crashing, pausing and resuming by itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_engine::{Clock, Engine, EngineConfig, EngineParts, Failpoints, step_slice_runs};
use gpuaas_store::StoreError;
use gpuaas_types::{IdSource, RunId, Timestamp};

use crate::artifact_urls::ArtifactUrls;
use crate::breakpoint::Breakpoint;
use crate::executor::TaskOwner;
use crate::plan::{ADVERTISE, AGENT_WATCH_SECONDS, SimulationPlan};
use crate::planted_loop::PlantedLoop;
use crate::planted_panic::PlantedPanic;
use crate::replica::Replica;
use crate::simulation::Simulation;
use crate::transport;

/// Seconds after which a control plane whose clock rounds looks again.
const ROUNDING_SECONDS: f64 = 0.001;

/// Seconds for which a watcher has a site. Some looks long: a virtual clock stops at every renewal.
const WATCH_LEASE_SECONDS: f64 = 30.0;

/// Seconds between two looks at launches and releases of slices.
const SLICE_LOOK_SECONDS: f64 = 5.0;

/// Seconds between two tries to watch a site that somebody else watches.
const KEEPER_SECONDS: f64 = 15.0;

/// The defect that a plan wants in its control planes; none: it wants none.
fn planted_defect(plan: &SimulationPlan) -> Option<Arc<dyn Failpoints>> {
    if let Some(step) = plan.panics_in {
        return Some(Arc::new(PlantedPanic::new(step)));
    }
    Some(Arc::new(PlantedLoop::new(plan.loops_in?)))
}

impl Simulation {
    /// Whether a control plane runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.replicas.iter().any(|replica| !replica.paused)
    }

    /// Whether a control plane sends nothing to the region at the moment: its circuit is open.
    pub async fn is_region_away(&self) -> bool {
        for replica in self.replicas.iter().filter(|replica| !replica.paused) {
            if replica.engine.site_usage().await.iter().any(|usage| !usage.reachable) {
                return true;
            }
        }
        false
    }

    /// The control planes that run.
    pub fn running(&self) -> impl Iterator<Item = u32> {
        self.replicas.iter().filter(|replica| !replica.paused).map(|replica| replica.id)
    }

    /// Starts a control plane with a clock that is `skew_seconds` ahead of MAAS'. Where no other
    /// one is there, running or stopped, it owns the database and ends the leases of the dead.
    ///
    /// # Errors
    /// The store's.
    pub async fn start(&mut self, skew_seconds: f64) -> Result<u32, Failure> {
        if self.replicas.is_empty() {
            let now = self.clock.now().plus_seconds(skew_seconds);
            self.store.end_leases_of_dead_owner(now).await.map_err(store_failure)?;
        }
        Ok(self.start_beside(skew_seconds, None))
    }

    /// The same beside a control plane that may not be dead: whatever is leased stays so until its
    /// time is over. A `breakpoint` is told of the moments of its runs.
    pub fn start_beside(&mut self, skew_seconds: f64, breakpoint: Option<Arc<Breakpoint>>) -> u32 {
        self.last_replica += 1;
        let id = self.last_replica;
        let ahead = self.clock.ahead(skew_seconds);
        let clock: Arc<dyn Clock> = Arc::new(ahead.clone());
        if let Some(breakpoint) = &breakpoint {
            breakpoint.attach_to(id);
        }
        let mut config = EngineConfig::new(ADVERTISE, self.parts.agent.clone());
        config.poll_seconds = self.parts.plan.poll_seconds;
        config.idle_poll_seconds = self.parts.plan.idle_poll_seconds;
        config.mark_seconds = self.parts.plan.mark_seconds;
        config.watch_lease_seconds = WATCH_LEASE_SECONDS;
        config.agent_watch_seconds = AGENT_WATCH_SECONDS;
        let parallel_runs = config.parallel_runs;
        let connect = transport::InProcessConnector::new(
            Arc::clone(&self.network),
            &self.clock,
            Arc::clone(&self.failpoint),
            id,
            Arc::clone(&clock),
        );
        let parts = EngineParts {
            store: self.store.clone(),
            clock,
            ids: Arc::clone(&self.parts.ids) as Arc<dyn IdSource>,
            connect: Arc::new(connect),
            bundles: Arc::clone(&self.parts.bundles),
            artifacts: Arc::clone(&self.parts.artifacts),
            http: Arc::new(ArtifactUrls(Arc::clone(&self.parts.artifacts))),
            config,
        };
        let engine = Engine::assemble_with(
            parts,
            breakpoint
                .map(|breakpoint| breakpoint as Arc<dyn Failpoints>)
                .or_else(|| planted_defect(&self.parts.plan)),
        );
        self.replicas.push(Replica {
            id,
            clock: ahead,
            paused: false,
            engine: Arc::new(engine),
            working: Arc::default(),
            watching: Arc::default(),
            sweeping: Arc::default(),
            not_before: self.clock.now(),
            parallel_runs,
        });
        self.next_due = Some(Timestamp::EPOCH);
        self.shared.up.store(true, Ordering::SeqCst);
        id
    }

    /// Drops a control plane wherever it is: between a call and its record, between two writes, in
    /// the middle of an answer, with leases held.
    pub fn crash(&mut self, id: u32) {
        self.executor.cancel_replica(id);
        self.replicas.retain(|replica| replica.id != id);
        self.failpoint.reset();
        self.shared.up.store(self.is_up(), Ordering::SeqCst);
    }

    /// Pauses a control plane: its tasks are kept and not polled, and its leases stay claimed.
    pub fn pause(&mut self, id: u32) {
        self.executor.pause_replica(id);
        self.set_paused(id, true);
    }

    /// Lets a stopped control plane go on, as if no time had passed for it.
    pub fn resume(&mut self, id: u32) {
        self.executor.resume_replica(id);
        self.set_paused(id, false);
    }

    fn set_paused(&mut self, id: u32, paused: bool) {
        for replica in self.replicas.iter_mut().filter(|replica| replica.id == id) {
            replica.paused = paused;
        }
        self.failpoint.reset();
        self.next_due = Some(Timestamp::EPOCH);
        self.shared.up.store(self.is_up(), Ordering::SeqCst);
    }

    /// Moves the clocks of all control planes by `seconds`, as an administrator or a bad time
    /// server does.
    pub fn step_clocks(&mut self, seconds: f64) {
        for replica in &mut self.replicas {
            replica.clock.step(seconds);
            replica.not_before = self.clock.now();
        }
        self.next_due = Some(Timestamp::EPOCH);
    }

    async fn refresh_recheck(&mut self) -> Result<(), StoreError> {
        if self.rechecks {
            self.next_recheck = self.store.next_recheck().await?;
        }
        Ok(())
    }

    /// What the loops of the engines would ask for next.
    pub(crate) async fn refresh_due_runs(&mut self) -> Result<(), StoreError> {
        let unwatched = |r: &&Replica| !r.paused && !r.watching.load(Ordering::SeqCst);
        let unseen = self.replicas.iter().any(|replica| unwatched(&replica));
        let written = self.store.counters().write_transactions;
        if written != self.looked_at_write || self.next_due == Some(Timestamp::EPOCH) {
            self.looked_at_write = written;
            self.next_due = self.store.next_due().await?;
            self.refresh_recheck().await?;
        }
        if !unseen || !self.is_to_be_watched().await? {
            return Ok(());
        }
        for replica in self.replicas.iter().filter(unwatched) {
            replica.watching.store(true, Ordering::SeqCst);
            let (site_id, engine) = (self.site_id, Arc::clone(&replica.engine));
            let (watching, clock) = (Arc::clone(&replica.watching), self.clock.clone());
            self.executor.spawn(TaskOwner::ControlPlane(replica.id), async move {
                let began = clock.now();
                engine.watch_site(site_id).await;
                // Another control plane may watch already; it is not asked all the time.
                if clock.now() == began {
                    clock.sleep_until(began.plus_seconds(KEEPER_SECONDS)).await;
                }
                watching.store(false, Ordering::SeqCst);
            });
        }
        Ok(())
    }

    async fn is_to_be_watched(&self) -> Result<bool, StoreError> {
        let follows = self.parts.plan.idle_poll_seconds > 0.0;
        Ok(self.store.has_moving_runs(self.site_id).await?
            || follows && self.store.has_nodes_in_service(self.site_id).await?)
    }

    pub(crate) async fn claim_due_runs(&mut self, now: Timestamp) -> Result<(), StoreError> {
        for index in 0..self.replicas.len() {
            let replica = &self.replicas[index];
            if replica.claims_at(self.next_claim()).is_none_or(|at| at > now) {
                continue;
            }
            let (id, engine) = (replica.id, Arc::clone(&replica.engine));
            let claimed = engine.claim_runs(replica.free_workers()).await?;
            self.next_due = engine.next_due().await?;
            self.refresh_recheck().await?;
            if claimed.is_empty() {
                // Nothing is due, or only after the rounding between two clocks.
                self.replicas[index].not_before = now.plus_seconds(ROUNDING_SECONDS);
            }
            for work in claimed {
                let (engine, working) =
                    (Arc::clone(&engine), Arc::clone(&self.replicas[index].working));
                let (touched, run_id) = (Arc::clone(&self.touched), work.run_id());
                working.fetch_add(1, Ordering::SeqCst);
                self.executor.spawn(TaskOwner::ControlPlane(id), async move {
                    engine.process_run(work).await;
                    working.fetch_sub(1, Ordering::SeqCst);
                    touched.add(run_id);
                });
            }
        }
        Ok(())
    }

    /// Lets the first control plane that runs compare the site with MAAS, if that is due.
    pub(crate) fn start_sweep(&mut self) -> Option<u32> {
        let replica = self.replicas.iter().find(|replica| !replica.paused)?;
        if replica.sweeping.swap(true, Ordering::SeqCst) {
            return None;
        }
        let (site_id, engine) = (self.site_id, Arc::clone(&replica.engine));
        let sweeping = Arc::clone(&replica.sweeping);
        self.executor.spawn(TaskOwner::ControlPlane(replica.id), async move {
            engine.sweep_site(site_id).await;
            sweeping.store(false, Ordering::SeqCst);
        });
        Some(replica.id)
    }

    /// Has every control plane that runs look for silent agents.
    pub(crate) fn start_agent_watch(&mut self) {
        for replica in self.replicas.iter().filter(|replica| !replica.paused) {
            let engine = Arc::clone(&replica.engine);
            self.executor.spawn(TaskOwner::ControlPlane(replica.id), async move {
                if let Err(error) = engine.watch_agents().await {
                    tracing::error!(%error, "cannot check for silent agents");
                }
            });
        }
    }

    /// Has control planes look at launches and releases of slices until none goes on any more.
    pub fn follow_slices(&mut self) {
        self.next_slice_look = Some(self.clock.now());
    }

    /// Whether launches or releases of slices go on.
    #[must_use]
    pub const fn slices_move(&self) -> bool {
        self.next_slice_look.is_some()
    }

    pub(crate) async fn start_slice_looks_if_due(
        &mut self,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if self.next_slice_look.is_none_or(|at| at > now) {
            return Ok(());
        }
        let moving = self.store.due_slice_runs(Timestamp::NEVER, 1).await?;
        self.next_slice_look = (!moving.is_empty()).then(|| now.plus_seconds(SLICE_LOOK_SECONDS));
        if moving.is_empty() {
            return Ok(());
        }
        for replica in self.replicas.iter().filter(|replica| !replica.paused) {
            let (store, ids) = (self.store.clone(), Arc::clone(&self.parts.ids));
            let clock = replica.clock.clone();
            self.executor.spawn(TaskOwner::ControlPlane(replica.id), async move {
                if let Err(error) = step_slice_runs(&store, &*ids, clock.now(), 1.0).await {
                    tracing::error!(%error, "cannot advance slice runs");
                }
            });
        }
        Ok(())
    }

    /// Runs that a control plane has looked at since the last time this was asked.
    #[must_use]
    pub fn take_touched_runs(&self) -> Vec<RunId> {
        self.touched.take()
    }
}
