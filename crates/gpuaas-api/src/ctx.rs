//! What every handler gets: the store, the clock, the bundles, and what may be set.

use std::sync::Arc;
use std::time::Duration;

use gpuaas_artifact::{Artifact, ArtifactStore, BundleCatalog};
use gpuaas_bundle::SigningKey;
use gpuaas_engine::{Clock, Connect, RealClock, Supervisor};
use gpuaas_identity::Issuer;
use gpuaas_store::Store;
use gpuaas_types::{IdSource, Problem, Timestamp};
use tokio::sync::Semaphore;

use crate::health::HealthCheck;
use crate::long_poll::TaskSignals;
use crate::rejection_audit::RejectionAudit;

/// Longest task poll, in seconds.
pub const MAX_POLL_SECONDS: u32 = 30;

/// Who acts with the admin token, in the audit.
pub(crate) const ADMIN: &str = "admin";
/// Telemetry requests that are carried at once; each holds a host's answer in memory.
const TELEMETRY_PERMITS: usize = 16;

/// How long hosts are waited for, and how much they may say.
#[derive(Debug, Clone, Copy)]
pub struct TelemetryLimits {
    /// Until a connection stands.
    pub connect: Duration,
    /// From then until the whole answer is there.
    pub answer: Duration,
    /// The same, for each look of a diagnosis.
    pub look: Duration,
    /// Largest answer, in bytes.
    pub body_bytes: usize,
}

impl Default for TelemetryLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            answer: Duration::from_secs(15),
            look: Duration::from_secs(6),
            body_bytes: 8 << 20,
        }
    }
}

/// What may be set.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Version of the control plane, as it says of itself.
    pub version: String,
    /// How often agents send a heartbeat, in seconds.
    pub heartbeat_interval_seconds: u32,
    /// How long agents' polls wait, in seconds; at most [`MAX_POLL_SECONDS`].
    pub poll_seconds: u32,
    /// The agent that new nodes get, and that others may be updated to.
    pub agent: Option<Artifact>,
    /// Whether the hosts are simulated ones on this machine.
    pub simulated_hosts: bool,
    /// How long hosts are waited for when somebody reads their telemetry.
    pub telemetry: TelemetryLimits,
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            heartbeat_interval_seconds: 30,
            poll_seconds: 25,
            agent: None,
            simulated_hosts: false,
            telemetry: TelemetryLimits::default(),
        }
    }
}

/// How agents say who they are.
#[derive(Debug, Clone)]
pub enum NodeAccess {
    /// With certificates of this issuer, on a listener of their own.
    Certificates(Arc<Issuer>),
    /// With bearer credentials, beside the operators: for stand-ins of simulated fleets only, on
    /// an address that nobody else reaches.
    StandIns,
}

/// What the handlers work with.
#[derive(Clone)]
pub struct ApiState {
    /// Everything that lasts.
    pub store: Store,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where identifiers come from.
    pub ids: Arc<dyn IdSource>,
    /// Makes clients for MAAS.
    pub connect: Arc<dyn Connect>,
    /// Bundles that a profile may name.
    pub bundles: Arc<BundleCatalog>,
    /// Signs what is published without a signature.
    pub bundle_key: Arc<SigningKey>,
    /// What nodes fetch by digest.
    pub artifacts: Arc<ArtifactStore>,
    /// Tells the engine that a run is due.
    pub wake: Arc<dyn Fn() + Send + Sync>,
    /// How agents say who they are.
    pub nodes: NodeAccess,
    /// Watches the loops of this process; a loop that ended makes the health check fail.
    pub supervisor: Supervisor,
    /// What may be set.
    pub settings: ApiSettings,
}

struct Inner {
    state: ApiState,
    task_signals: Arc<TaskSignals>,
    rejection_audit: RejectionAudit,
    telemetry_permits: Semaphore,
    health: HealthCheck,
}

/// The state of the API behind one shared pointer, as axum hands it to every handler.
#[derive(Clone)]
pub(crate) struct Ctx(Arc<Inner>);

impl std::ops::Deref for Ctx {
    type Target = ApiState;

    fn deref(&self) -> &ApiState {
        &self.0.state
    }
}

impl Ctx {
    /// Starts the listener that wakes task polls; needs a tokio runtime.
    pub(crate) fn start(state: ApiState) -> Self {
        let task_signals = TaskSignals::start(&state.store, &state.clock, &state.supervisor);
        let telemetry_permits = Semaphore::new(TELEMETRY_PERMITS);
        let rejection_audit = RejectionAudit::default();
        let health = HealthCheck::default();
        Self(Arc::new(Inner { state, task_signals, rejection_audit, telemetry_permits, health }))
    }

    /// Checks that the loops run and that the database takes a write.
    ///
    /// # Errors
    /// See [`HealthCheck::check`].
    pub(crate) async fn check_health(&self) -> Result<(), Problem> {
        self.0.health.check(&self.supervisor, &self.store, self.clock.as_ref()).await
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time by which bundles are signed: hosts verify by their own clocks, which a clock of
    /// a simulation may run ahead of.
    pub(crate) fn signing_time(&self) -> Timestamp {
        self.now().min(RealClock.now())
    }

    pub(crate) fn task_signals(&self) -> &Arc<TaskSignals> {
        &self.0.task_signals
    }

    pub(crate) fn rejection_audit(&self) -> &RejectionAudit {
        &self.0.rejection_audit
    }

    pub(crate) fn telemetry_permits(&self) -> &Semaphore {
        &self.0.telemetry_permits
    }

    pub(crate) fn wake_engine(&self) {
        (self.wake)();
    }

    /// Writes down what an operator did. The deed is done by then, so a failure is only logged.
    pub(crate) async fn audit(&self, action: &str, subject: &str, detail: serde_json::Value) {
        let entry = gpuaas_store::NewAuditEntry {
            actor: ADMIN.to_owned(),
            action: action.to_owned(),
            subject: subject.to_owned(),
            detail,
        };
        if let Err(error) = self.store.append_audit_entry(self.now(), entry).await {
            tracing::error!(%error, action, subject, "an action was not written down");
        }
    }
}
