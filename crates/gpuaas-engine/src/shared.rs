//! What all loops of one engine share: the store, the clock, connected sites and caches.

use std::collections::HashMap;
use std::sync::Arc;

use gpuaas_artifact::{ArtifactStore, BundleCatalog};
use gpuaas_store::{ProfileRevision, Store, StoreError};
use gpuaas_types::{IdSource, ProfileId};
use tokio::sync::{Mutex, watch};

use crate::clock::Clock;
use crate::config::EngineConfig;
use crate::loops::failpoint::Failpoints;
use crate::loops::supervisor::Supervisor;
use crate::predeploy::fetch::Fetch;
use crate::run::step_durations::StepDurationEstimates;
use crate::site::Sites;
use crate::site::connect::Connect;

/// What an engine is made of.
pub struct EngineParts {
    /// The database that holds all state.
    pub store: Store,
    /// The clock that everything reads and sleeps on.
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
    /// The engine's settings.
    pub config: EngineConfig,
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
    pub(crate) durations: StepDurationEstimates,
    /// Locked from counting the runs that deploy until the admitted one is recorded as deploying.
    pub(crate) deploy_admission: Mutex<()>,
    /// Hooks of a test or a simulation; none in service.
    pub(crate) failpoints: Option<Arc<dyn Failpoints>>,
    /// Watches the loops.
    pub(crate) supervisor: Supervisor,
    profiles: Mutex<HashMap<(ProfileId, i64), Arc<ProfileRevision>>>,
}

impl Shared {
    /// Takes the parts together.
    pub(crate) fn new(parts: EngineParts, failpoints: Option<Arc<dyn Failpoints>>) -> Self {
        let mut config = parts.config;
        config.idle_poll_seconds *= parts.clock.factor().max(1.0);
        config.mark_seconds *= parts.clock.factor().max(1.0);
        config.agent_watch_seconds *= parts.clock.factor().max(1.0);
        config.lease_seconds *= parts.clock.factor().max(1.0);
        config.watch_lease_seconds *= parts.clock.factor().max(1.0);
        let sites =
            Sites::new(parts.store.clone(), Arc::clone(&parts.clock), Arc::clone(&parts.connect));
        Self {
            store: parts.store,
            clock: parts.clock,
            ids: parts.ids,
            bundles: parts.bundles,
            http: parts.http,
            config,
            sites,
            durations: StepDurationEstimates::default(),
            deploy_admission: Mutex::new(()),
            supervisor: Supervisor::new(failpoints.clone()),
            failpoints,
            profiles: Mutex::new(HashMap::new()),
        }
    }

    /// Turns true when the engine stops.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.supervisor.stopping()
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
