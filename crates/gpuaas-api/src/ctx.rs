//! Shared state of the handlers: the store, the clock, the bundle catalog and the settings.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gpuaas_artifact::{Artifact, ArtifactStore, BundleCatalog};
use gpuaas_bundle::SigningKey;
use gpuaas_engine::site::Sites;
use gpuaas_engine::{Clock, Connect, Engine, HostScope, RealClock, Supervisor};
use gpuaas_identity::Issuer;
use gpuaas_store::Store;
use gpuaas_types::agent::HEARTBEAT_INTERVAL_SECONDS;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::health::Health;
use gpuaas_types::limits::{ListenerKind, ListenerLimits};
use gpuaas_types::{AuditAction, IdSource, NodeId, Problem, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::agent::heartbeat_writer;
use crate::audit::rejection_limit::RejectionAudit;
use crate::event::feed::{EventFeed, EventLimits};
use crate::event::stream_limit::EventStreams;
use crate::http::long_poll::TaskSignals;
use crate::http::open_bodies::OpenBodies;
use crate::http::problem::problem;
use crate::http::rate_limit::RateLimits;
use crate::http::request_metrics::RequestMetrics;
use crate::identity::issuing::Issuing;
use crate::identity::known_task_keys::KnownTaskKeys;
use crate::identity::refused_credentials::RefusedCredentials;
use crate::identity::sign_in::SignIn;
use crate::monitoring::health::HealthCheck;
use crate::monitoring::trace_counters::TraceCounters;

/// Longest task poll, in seconds.
pub const MAX_POLL_SECONDS: u32 = 30;

/// Archives of bundles that are sent at once; each is in memory whole.
pub(crate) const ARCHIVE_PERMITS: usize = 4;

/// Telemetry requests that are forwarded at once; each holds a host's response in memory.
const TELEMETRY_PERMITS: usize = 16;

/// Time and size limits of requests to the telemetry edges of hosts.
#[derive(Debug, Clone, Copy)]
pub struct TelemetryLimits {
    /// Longest time until a connection is established.
    pub connect: Duration,
    /// Longest time from then until the response is complete.
    pub answer: Duration,
    /// Longest time for the response to each probe of a diagnosis.
    pub look: Duration,
    /// Largest response, in bytes.
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

/// Settings of the API.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Version of the control plane, as `GET /api/v1/version` returns it.
    pub version: String,
    /// How often agents send a heartbeat, in seconds.
    pub heartbeat_interval_seconds: u32,
    /// Whether heartbeats that say nothing new are written together, once a second of the wall clock,
    /// after they were answered.
    pub heartbeats_together: bool,
    /// How long agents' polls wait, in seconds; at most [`MAX_POLL_SECONDS`].
    pub poll_seconds: u32,
    /// The agent that new nodes get, and that others may be updated to.
    pub agent: Option<Artifact>,
    /// Whether the hosts are simulated ones on this machine.
    pub simulated_hosts: bool,
    /// Whether regions on other hosts may be reached over http://.
    pub insecure_regions: bool,
    /// Whether regions and webhooks on this host may be reached.
    pub loopback_targets: bool,
    /// Seconds for which entries of the audit log are kept; none: for ever.
    pub retention_seconds: Option<u64>,
    /// Limits of requests to the telemetry edges of hosts.
    pub telemetry: TelemetryLimits,
    /// Limits of streams of events.
    pub events: EventLimits,
    /// Sign-in of people; none: only tokens that were made here count.
    pub sign_in: Option<Arc<SignIn>>,
    /// What became of the spans of traces; none: nothing is traced here.
    pub traces: Option<Arc<TraceCounters>>,
    /// How often a token may ask.
    pub operators: ListenerLimits,
    /// How often a node may ask.
    pub nodes: ListenerLimits,
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            heartbeat_interval_seconds: HEARTBEAT_INTERVAL_SECONDS,
            heartbeats_together: false,
            poll_seconds: MAX_POLL_SECONDS,
            agent: None,
            simulated_hosts: false,
            insecure_regions: false,
            loopback_targets: false,
            retention_seconds: None,
            telemetry: TelemetryLimits::default(),
            events: EventLimits::default(),
            sign_in: None,
            traces: None,
            operators: ListenerLimits::defaults(ListenerKind::Operators),
            nodes: ListenerLimits::defaults(ListenerKind::Nodes),
        }
    }
}

/// How agents authenticate.
#[derive(Debug, Clone)]
pub enum NodeAccess {
    /// With certificates of this issuer, on a listener of their own.
    Certificates(Arc<Issuer>),
    /// With bearer credentials, beside the operators: for stand-ins of simulated fleets only, on
    /// an address that nobody else reaches.
    StandIns,
}

/// What a server of the API is made from.
#[derive(Clone)]
pub struct ApiState {
    /// The database.
    pub store: Store,
    /// Source of the time.
    pub clock: Arc<dyn Clock>,
    /// Source of identifiers.
    pub ids: Arc<dyn IdSource>,
    /// Makes clients for MAAS.
    pub connect: Arc<dyn Connect>,
    /// Catalog of the bundles that a profile may name.
    pub bundles: Arc<BundleCatalog>,
    /// Key that signs bundles that are published without a signature.
    pub bundle_key: Arc<SigningKey>,
    /// Artifacts that nodes fetch by digest.
    pub artifacts: Arc<ArtifactStore>,
    /// Called after a write that made a run due.
    pub wake: Arc<dyn Fn() + Send + Sync>,
    /// How agents authenticate.
    pub nodes: NodeAccess,
    /// Watches the loops of this process; a loop that ended makes the health check fail.
    pub supervisor: Supervisor,
    /// The engine of this process, for metrics; none: there is none here.
    pub engine: Option<Arc<Engine>>,
    /// Settings of the API.
    pub settings: ApiSettings,
}

struct Inner {
    state: ApiState,
    task_signals: Arc<TaskSignals>,
    rejection_audit: RejectionAudit,
    rate_limits: RateLimits,
    open_bodies: OpenBodies,
    refused_credentials: RefusedCredentials,
    issuing: Issuing,
    telemetry_permits: Semaphore,
    archive_permits: Arc<Semaphore>,
    health: HealthCheck,
    sites: Sites,
    request_metrics: RequestMetrics,
    task_keys: KnownTaskKeys,
    /// Digests of the trust bundles that agents have, as this process wrote them down.
    trust_noted: Mutex<HashMap<NodeId, String>>,
    event_feed: Arc<EventFeed>,
    event_streams: EventStreams,
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
        if state.settings.heartbeats_together {
            let (store, wake) = (state.store.clone(), Arc::clone(&state.wake));
            heartbeat_writer::start(store, wake, &state.supervisor);
        }
        let telemetry_permits = Semaphore::new(TELEMETRY_PERMITS);
        let rejection_audit = RejectionAudit::default();
        let rate_limits = RateLimits::new(&state.settings.operators, &state.settings.nodes);
        let open_bodies = OpenBodies::new(&state.settings.operators, &state.settings.nodes);
        let refused_credentials =
            RefusedCredentials::new(&state.settings.operators, &state.settings.nodes);
        let health = HealthCheck::default();
        let (store, clock) = (state.store.clone(), Arc::clone(&state.clock));
        let event_feed = EventFeed::new(&store, &state.supervisor, state.settings.events);
        let sites = Sites::new(store, clock, Arc::clone(&state.connect));
        Self(Arc::new(Inner {
            state,
            task_signals,
            rejection_audit,
            rate_limits,
            open_bodies,
            refused_credentials,
            issuing: Issuing::default(),
            telemetry_permits,
            archive_permits: Arc::new(Semaphore::new(ARCHIVE_PERMITS)),
            health,
            sites,
            request_metrics: RequestMetrics::default(),
            task_keys: KnownTaskKeys::default(),
            trust_noted: Mutex::default(),
            event_feed,
            event_streams: EventStreams::default(),
        }))
    }

    /// The keys that sign tasks, as they were read a moment ago.
    pub(crate) fn known_task_keys(&self) -> &KnownTaskKeys {
        &self.0.task_keys
    }

    /// Whether it is not written down yet that a node's agent has the trust bundle of this digest.
    pub(crate) fn is_news_of_trust(&self, node_id: NodeId, digest: &str) -> bool {
        self.0.trust_noted.lock().get(&node_id).is_none_or(|known| known != digest)
    }

    /// It is written down that a node's agent has the trust bundle of this digest.
    pub(crate) fn note_trust(&self, node_id: NodeId, digest: String) {
        self.0.trust_noted.lock().insert(node_id, digest);
    }

    /// Checks that the loops run and that the database takes a write.
    ///
    /// # Errors
    /// See [`HealthCheck::check`].
    pub(crate) async fn check_health(&self) -> Result<Health, Problem> {
        self.0.health.check(&self.supervisor, &self.store, self.clock.as_ref()).await
    }

    /// Checks that the loops run.
    ///
    /// # Errors
    /// `loop_ended`.
    pub(crate) fn check_loops(&self) -> Result<(), Problem> {
        HealthCheck::check_loops(&self.supervisor)
    }

    /// Refuses an address of this host, where services answer that nobody else reaches, unless the
    /// operator of the control plane allows that.
    ///
    /// # Errors
    /// `loopback_target`.
    pub(crate) fn check_target(&self, url: &str) -> Result<(), Problem> {
        if self.settings.loopback_targets || HostScope::of_url(url) == HostScope::Elsewhere {
            return Ok(());
        }
        Err(problem(ProblemCode::LoopbackTarget).with_detail(format!("{url} points to this host")))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time by which bundles are signed and people's tokens are judged: hosts and providers live by
    /// their own clocks, which a clock of a simulation may run ahead of.
    pub(crate) fn signing_time(&self) -> Timestamp {
        self.now().min(RealClock.now())
    }

    /// Regions, for what an operator asks before anything is begun.
    pub(crate) fn sites(&self) -> &Sites {
        &self.0.sites
    }

    /// What happens to nodes, for whoever listens.
    pub(crate) fn event_feed(&self) -> &Arc<EventFeed> {
        &self.0.event_feed
    }

    /// Streams of events that are open.
    pub(crate) fn event_streams(&self) -> &EventStreams {
        &self.0.event_streams
    }

    /// Requests that were answered.
    pub(crate) fn request_metrics(&self) -> &RequestMetrics {
        &self.0.request_metrics
    }

    pub(crate) fn task_signals(&self) -> &Arc<TaskSignals> {
        &self.0.task_signals
    }

    pub(crate) fn rejection_audit(&self) -> &RejectionAudit {
        &self.0.rejection_audit
    }

    /// Counts a request of a caller whose credential is good.
    ///
    /// # Errors
    /// `too_many_requests`.
    pub(crate) fn count_request(&self, kind: ListenerKind, caller: &str) -> Result<(), Problem> {
        self.0.rate_limits.count(kind, caller, self.now())
    }

    /// Request bodies that are not handled yet.
    pub(crate) fn open_bodies(&self) -> &OpenBodies {
        &self.0.open_bodies
    }

    /// Credentials that were refused, by address.
    pub(crate) fn refused_credentials(&self) -> &RefusedCredentials {
        &self.0.refused_credentials
    }

    /// Nodes that a certificate is being signed for.
    pub(crate) fn issuing(&self) -> &Issuing {
        &self.0.issuing
    }

    pub(crate) fn telemetry_permits(&self) -> &Semaphore {
        &self.0.telemetry_permits
    }

    pub(crate) fn archive_permits(&self) -> &Arc<Semaphore> {
        &self.0.archive_permits
    }

    pub(crate) fn wake_engine(&self) {
        (self.wake)();
    }

    /// Appends a refusal to the audit log. Nothing was changed, so a failure is only logged; an entry of
    /// a change is an argument of the store's write instead.
    pub(crate) async fn audit_refusal(
        &self,
        actor: &str,
        action: AuditAction,
        subject: &str,
        detail: serde_json::Value,
    ) {
        let entry = gpuaas_store::NewAuditEntry {
            actor: actor.to_owned(),
            action,
            subject: subject.to_owned(),
            detail,
        };
        if let Err(error) = self.store.append_audit_entry(self.now(), entry).await {
            tracing::error!(%error, %action, subject, "cannot write a refusal to the audit log");
        }
    }
}
