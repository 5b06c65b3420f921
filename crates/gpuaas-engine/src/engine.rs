//! An engine: its loops, started and stopped together, or driven one turn at a time.

use std::sync::Arc;

use gpuaas_artifact::{ArtifactStore, BundleCatalog};
use gpuaas_store::{LeasedRun, Store, StoreError};
use gpuaas_types::{IdSource, RunId, SiteId, Timestamp};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::event::{sweep, watcher};
use crate::loops::failpoint::Failpoints;
use crate::loops::supervisor::Supervisor;
use crate::node::agent_watch;
use crate::run::{batches, slices, worker};
use crate::shared::{EngineParts, Shared};
use crate::site::SiteUsage;
use crate::site::connect::Connect;

/// A claimed run: in the hands of this process until its lease ends.
pub struct ClaimedRun(LeasedRun);

impl ClaimedRun {
    /// Which run it is.
    #[must_use]
    pub fn run_id(&self) -> RunId {
        self.0.run.id
    }
}

/// A running engine.
pub struct Engine {
    shared: Arc<Shared>,
    connect: Arc<dyn Connect>,
    artifacts: Arc<ArtifactStore>,
    loops: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Starts the loops.
    #[must_use]
    pub fn start(parts: EngineParts) -> Arc<Self> {
        Self::start_with(parts, None)
    }

    /// Starts the loops, which call the hooks of `failpoints`.
    #[must_use]
    pub fn start_with(parts: EngineParts, failpoints: Option<Arc<dyn Failpoints>>) -> Arc<Self> {
        let mut engine = Self::assemble_with(parts, failpoints);
        let (shared, supervisor) = (&engine.shared, engine.supervisor());
        let mut loops = vec![
            supervisor.spawn(worker::LOOP, worker::run_loop(Arc::clone(shared))),
            supervisor.spawn(watcher::LOOP, watcher::run_loop(Arc::clone(shared))),
            supervisor.spawn(batches::LOOP, batches::run_loop(Arc::clone(shared))),
            supervisor.spawn(slices::LOOP, slices::run_loop(Arc::clone(shared))),
        ];
        if shared.config.sweep_seconds > 0.0 {
            loops.push(supervisor.spawn(sweep::LOOP, sweep::run_loop(Arc::clone(shared))));
        }
        if shared.config.agent_watch_seconds > 0.0 {
            loops.push(
                supervisor.spawn(agent_watch::LOOP, agent_watch::run_loop(Arc::clone(shared))),
            );
        }
        engine.loops = Mutex::new(loops);
        Arc::new(engine)
    }

    /// Watches the loops of this engine, and those that are spawned with it.
    #[must_use]
    pub fn supervisor(&self) -> &Supervisor {
        &self.shared.supervisor
    }

    /// An engine without loops: whoever has it claims, works and watches, turn by turn. A
    /// simulation does, so that it decides who runs when.
    #[must_use]
    pub fn assemble(parts: EngineParts) -> Self {
        Self::assemble_with(parts, None)
    }

    /// An engine without loops that calls the hooks of `failpoints`.
    #[must_use]
    pub fn assemble_with(parts: EngineParts, failpoints: Option<Arc<dyn Failpoints>>) -> Self {
        let (connect, artifacts) = (Arc::clone(&parts.connect), Arc::clone(&parts.artifacts));
        let shared = Arc::new(Shared::new(parts, failpoints));
        Self { shared, connect, artifacts, loops: Mutex::new(Vec::new()) }
    }

    /// Claims at most `at_most` due runs.
    ///
    /// # Errors
    /// The store's.
    pub async fn claim_runs(&self, at_most: usize) -> Result<Vec<ClaimedRun>, StoreError> {
        let claimed = worker::claim_due_runs(&self.shared, at_most).await?;
        Ok(claimed.into_iter().map(ClaimedRun).collect())
    }

    /// Carries a claimed run until it waits, parks or ends. Dropping the future is a crash: the
    /// run stays as of its last commit.
    pub async fn process_run(&self, run: ClaimedRun) {
        worker::process_run(&self.shared, run.0).await;
    }

    /// When the next run is due, or the next lease ends; none: no run is open and moving.
    ///
    /// # Errors
    /// The store's.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.shared.store.next_due().await
    }

    /// Watches a site until nothing is open there, somebody else watches it, or the engine stops.
    pub async fn watch_site(&self, site_id: SiteId) {
        watcher::watch_site(Arc::clone(&self.shared), site_id).await;
    }

    /// Moves every batch that is due; for an engine without loops.
    ///
    /// # Errors
    /// The store's.
    pub async fn step_batches(&self) -> Result<(), StoreError> {
        batches::step_due(&self.shared).await
    }

    /// Compares a site's machines with what is remembered of them, if that is due.
    pub async fn sweep_site(&self, site_id: SiteId) {
        sweep::sweep_site(&self.shared, site_id).await;
    }

    /// Notes which agents have become silent and which are heard again, unless that was done just
    /// now. Answers how many changes were noted.
    ///
    /// # Errors
    /// The store's.
    pub async fn watch_agents(&self) -> Result<usize, StoreError> {
        agent_watch::look_if_due(&self.shared).await
    }

    /// The database that the engine works on.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// The clock that the engine reads and sleeps on.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// New identifiers.
    #[must_use]
    pub fn ids(&self) -> &Arc<dyn IdSource> {
        &self.shared.ids
    }

    /// Clients for sites.
    #[must_use]
    pub fn connect(&self) -> &Arc<dyn Connect> {
        &self.connect
    }

    /// Bundles by name.
    #[must_use]
    pub fn bundles(&self) -> &Arc<BundleCatalog> {
        &self.shared.bundles
    }

    /// Bytes by digest.
    #[must_use]
    pub fn artifacts(&self) -> &Arc<ArtifactStore> {
        &self.artifacts
    }

    /// What the engine has asked of each site that it is connected to.
    pub async fn site_usage(&self) -> Vec<SiteUsage> {
        self.shared.sites.usage().await
    }

    /// Forgets a site's connection after its row has changed.
    pub async fn site_changed(&self, id: gpuaas_types::SiteId) {
        self.shared.sites.forget(id).await;
    }

    /// Lets work in hand come to its next rest, then ends the loops.
    pub async fn stop(&self) {
        self.shared.supervisor.stop();
        for handle in self.loops.lock().await.drain(..) {
            if let Err(error) = handle.await {
                tracing::error!(%error, "an engine loop ended with an error");
            }
        }
    }
}
