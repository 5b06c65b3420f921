//! Puts the loops together and takes them apart.

use std::collections::HashMap;
use std::sync::Arc;

use gpuaas_artifact::{Artifact, ArtifactStore, BundleCatalog};
use gpuaas_store::{Claimed, ProfileRevision, Store, StoreError};
use gpuaas_types::{IdSource, ProfileId, RunId, SiteId, Timestamp};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::fetch::Fetch;
use crate::moments::Moments;
use crate::pace::Paces;
use crate::site::{Connect, Sites};
use crate::{batches, sweep, watcher, worker};

/// What an engine is told.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Base URL under which nodes reach the control plane, without a trailing slash.
    pub advertise_url: String,
    /// What nodes shall trust of the control plane's own, PEM: where its listener has a
    /// certificate of its own authority.
    pub node_anchor_pem: Option<String>,
    /// The node agent that deployed systems fetch.
    pub agent: Artifact,
    /// Runs worked on at once by this process.
    pub parallel_runs: usize,
    /// Seconds for which a claimed run belongs to its worker; renewed while a call lasts.
    pub lease_seconds: f64,
    /// Seconds between two looks at a site's event feed.
    pub poll_seconds: f64,
    /// Seconds between two comparisons of a site's machines with what is remembered of them; 0:
    /// none are made.
    pub sweep_seconds: f64,
}

impl EngineConfig {
    /// Usual values for a control plane at `advertise_url`.
    #[must_use]
    pub fn new(advertise_url: &str, agent: Artifact) -> Self {
        Self {
            advertise_url: advertise_url.trim_end_matches('/').to_owned(),
            node_anchor_pem: None,
            agent,
            parallel_runs: 96,
            lease_seconds: 45.0,
            poll_seconds: 1.0,
            sweep_seconds: 900.0,
        }
    }
}

/// What an engine is made of.
pub struct EngineParts {
    /// State.
    pub store: Store,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// New identifiers.
    pub ids: Arc<dyn IdSource>,
    /// Clients for sites.
    pub connect: Arc<dyn Connect>,
    /// Bundles by name.
    pub bundles: Arc<BundleCatalog>,
    /// Bytes by digest.
    pub artifacts: Arc<ArtifactStore>,
    /// Fetches own URLs in the checks before a deployment.
    pub http: Arc<dyn Fetch>,
    /// Settings.
    pub config: EngineConfig,
}

/// A claimed run: in the hands of this process until its lease ends.
pub struct Work(Claimed);

impl Work {
    /// Which run it is.
    #[must_use]
    pub fn run_id(&self) -> RunId {
        self.0.run.id
    }
}

/// What all loops share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) bundles: Arc<BundleCatalog>,
    pub(crate) http: Arc<dyn Fetch>,
    pub(crate) config: EngineConfig,
    pub(crate) sites: Sites,
    pub(crate) paces: Paces,
    /// Held from counting who deploys until the run that may go is recorded as deploying.
    pub(crate) batch_gate: Mutex<()>,
    /// Who is told of the moments of a worker's hold of a run; nobody in service.
    pub(crate) moments: Option<Arc<dyn Moments>>,
    profiles: Mutex<HashMap<(ProfileId, i64), Arc<ProfileRevision>>>,
    stop: watch::Sender<bool>,
}

impl Shared {
    /// Turns true when the engine stops.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// A profile revision; immutable, so kept for good.
    pub(crate) async fn profile(
        &self,
        id: ProfileId,
        revision: i64,
    ) -> Result<Arc<ProfileRevision>, StoreError> {
        if let Some(known) = self.profiles.lock().await.get(&(id, revision)) {
            return Ok(Arc::clone(known));
        }
        let read = Arc::new(self.store.profile_revision(id, revision).await?);
        self.profiles.lock().await.insert((id, revision), Arc::clone(&read));
        Ok(read)
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
        let mut engine = Self::assemble(parts);
        let shared = &engine.shared;
        let loops = vec![
            tokio::spawn(worker::run(Arc::clone(shared))),
            tokio::spawn(watcher::keep(Arc::clone(shared))),
            tokio::spawn(sweep::keep(Arc::clone(shared))),
            tokio::spawn(batches::keep(Arc::clone(shared))),
        ];
        engine.loops = Mutex::new(loops);
        Arc::new(engine)
    }

    /// An engine without loops: whoever has it claims, works and watches, turn by turn. A
    /// simulation does, so that it decides who runs when.
    #[must_use]
    pub fn assemble(parts: EngineParts) -> Self {
        Self::assemble_for(parts, None)
    }

    /// The same, telling of the moments at which a run can be left by a process that dies.
    #[must_use]
    pub fn assemble_for(parts: EngineParts, moments: Option<Arc<dyn Moments>>) -> Self {
        let (stop, _) = watch::channel(false);
        let mut config = parts.config;
        config.lease_seconds *= parts.clock.factor().max(1.0);
        let sites =
            Sites::new(parts.store.clone(), Arc::clone(&parts.clock), Arc::clone(&parts.connect));
        let shared = Arc::new(Shared {
            store: parts.store,
            clock: parts.clock,
            ids: parts.ids,
            bundles: parts.bundles,
            http: parts.http,
            config,
            sites,
            paces: Paces::default(),
            batch_gate: Mutex::new(()),
            moments,
            profiles: Mutex::new(HashMap::new()),
            stop,
        });
        Self {
            shared,
            connect: parts.connect,
            artifacts: parts.artifacts,
            loops: Mutex::new(Vec::new()),
        }
    }

    /// Claims at most `at_most` due runs.
    ///
    /// # Errors
    /// The store's.
    pub async fn claim(&self, at_most: usize) -> Result<Vec<Work>, StoreError> {
        let claimed = worker::claim(&self.shared, at_most).await?;
        Ok(claimed.into_iter().map(Work).collect())
    }

    /// Carries a claimed run until it waits, parks or ends. Dropping the future is a crash: the
    /// run stays as of its last commit.
    pub async fn work(&self, work: Work) {
        worker::take_up(&self.shared, work.0).await;
    }

    /// When the next run is due, or the next lease ends; none: no run is open and moving.
    ///
    /// # Errors
    /// The store's.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.shared.store.next_due().await
    }

    /// Watches a site until nothing is open there, somebody else watches it, or the engine stops.
    pub async fn watch(&self, site_id: SiteId) {
        watcher::watch(Arc::clone(&self.shared), site_id).await;
    }

    /// Moves every batch that is due; for an engine without loops.
    ///
    /// # Errors
    /// The store's.
    pub async fn move_batches(&self) -> Result<(), StoreError> {
        batches::step_due(&self.shared).await
    }

    /// Compares a site's machines with what is remembered of them, if that is due.
    pub async fn sweep(&self, site_id: SiteId) {
        sweep::sweep(&self.shared, site_id).await;
    }

    /// State.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Time.
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

    /// Forgets a site's connection after its row has changed.
    pub async fn site_changed(&self, id: gpuaas_types::SiteId) {
        self.shared.sites.forget(id).await;
    }

    /// Lets work in hand come to its next rest, then ends the loops.
    pub async fn stop(&self) {
        self.shared.stop.send_replace(true);
        for handle in self.loops.lock().await.drain(..) {
            if let Err(error) = handle.await {
                tracing::error!(%error, "a loop of the engine did not end well");
            }
        }
    }
}
