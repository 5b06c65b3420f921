//! HTTP of the control plane: the admin API, and the bootstrap and agent API.
//!
//! # Shape of a request
//! `guard` (span, time limit, panics) -> credential -> body (`strict`: a mistake is named with its
//! place) -> checks (`check`: pure) -> one call of the store -> a type of `gpuaas_types`. Every
//! failure is an RFC 9457 problem from the one table in `problem`.
//!
//! # Who may do what
//! | path | credential |
//! |---|---|
//! | `/api/v1/health`, `/api/v1/version` | none |
//! | `/api/v1/...` | admin token |
//! | `/bootstrap/v1/...`, `/agent/v1/...` | see `gpuaas_types::agent` |
//!
//! Operators and nodes have listeners of their own ([`Faces`]); what belongs on the one is not to
//! be found on the other. The admin credential is checked by a layer around all admin routes, so a
//! new route cannot forget it. A good credential on another's endpoint is refused as what it is
//! (`token_wrong_purpose`), never taken, and every refusal is written down (`refusals`).

mod agent;
mod auth;
mod batches;
mod body;
mod bootstrap;
mod bundles;
mod certificates;
mod check;
mod drift;
pub mod explain;
mod gates;
mod guard;
mod hub;
mod leave;
mod nodes;
mod probe;
pub mod problem;
mod profiles;
mod refusals;
mod roce;
mod runs;
mod secrets;
mod sites;
mod strict;
mod stuck;
mod task_keys;
mod tasks;
mod telemetry;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post, put};
use axum::{Json, Router, middleware};
use gpuaas_artifact::{Artifact, ArtifactStore, BundleCatalog};
use gpuaas_bundle::SigningKey;
use gpuaas_engine::{Clock, Connect, RealClock};
use gpuaas_identity::Issuer;
use gpuaas_store::Store;
use gpuaas_types::{IdSource, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

pub use auth::{ensure_admin_token, propose_admin_token};
use hub::TaskHub;
use problem::{Answer, Refusal, problem};
use refusals::Refusals;
pub use telemetry::TelemetryLimits;

/// Largest body of an admin request, an enrollment or a callback, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// Largest body of a task result, in bytes.
pub const MAX_RESULT_BYTES: usize = 4 << 20;
/// Largest body of a published bundle, in bytes: 16 MiB in base64, and a signature.
pub const MAX_BUNDLE_BODY_BYTES: usize = 22 << 20;
/// Longest task poll, in seconds.
pub const MAX_POLL_SECONDS: u32 = 30;

/// Longer than the probe of a MAAS region.
const ADMIN_LIMIT: Duration = Duration::from_secs(60);
/// Longer than a poll.
const AGENT_LIMIT: Duration = Duration::from_secs(45);

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
    /// What may be set.
    pub settings: ApiSettings,
}

struct Inner {
    state: ApiState,
    hub: Arc<TaskHub>,
    refusals: Refusals,
    telemetry_seats: Semaphore,
}

/// What every handler gets.
#[derive(Clone)]
struct Ctx(Arc<Inner>);

impl std::ops::Deref for Ctx {
    type Target = ApiState;

    fn deref(&self) -> &ApiState {
        &self.0.state
    }
}

impl Ctx {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time by which bundles are signed: hosts verify by their own clocks, which a clock of
    /// a simulation may run ahead of.
    fn signing_time(&self) -> Timestamp {
        self.now().min(RealClock.now())
    }

    fn hub(&self) -> &Arc<TaskHub> {
        &self.0.hub
    }

    fn refusals(&self) -> &Refusals {
        &self.0.refusals
    }

    fn telemetry_seats(&self) -> &Semaphore {
        &self.0.telemetry_seats
    }

    fn wake_engine(&self) {
        (self.wake)();
    }

    /// Writes down what an operator did. The deed is done by then, so a failure is only logged.
    async fn audit(&self, action: &str, subject: &str, detail: serde_json::Value) {
        let entry = gpuaas_store::NewAudit {
            actor: auth::ADMIN.to_owned(),
            action: action.to_owned(),
            subject: subject.to_owned(),
            detail,
        };
        if let Err(error) = self.store.audit(self.now(), entry).await {
            tracing::error!(%error, action, subject, "an action was not written down");
        }
    }
}

/// Answer of `GET /api/v1/health` and `GET /bootstrap/v1/health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok`; anything else is a problem body.
    pub status: String,
}

/// Answer of `GET /api/v1/version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Version of the control plane.
    pub version: String,
    /// `sqlite` or `postgresql`.
    pub database: String,
    /// What the control plane believes the time is.
    pub now: Timestamp,
}

/// What is served, by who is to reach it.
#[derive(Debug, Clone)]
pub struct Faces {
    /// For operators. In a control plane for stand-ins, for them as well.
    pub operators: Router,
    /// For nodes, behind a listener that asks for certificates and says who the
    /// [`Peer`](gpuaas_identity::Peer) is.
    pub nodes: Option<Router>,
}

/// All routes. Call it inside a tokio runtime: it starts the listener that wakes task polls.
pub fn faces(state: ApiState) -> Faces {
    let hub = TaskHub::start(&state.store, &state.clock);
    let apart = matches!(state.nodes, NodeAccess::Certificates(_));
    let telemetry_seats = Semaphore::new(telemetry::SEATS);
    let refusals = Refusals::default();
    let ctx = Ctx(Arc::new(Inner { state, hub, refusals, telemetry_seats }));
    let face = |router: Router<Ctx>| {
        router
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
            .layer(middleware::from_fn_with_state(ctx.clone(), refusals::note))
            .with_state(ctx.clone())
    };
    if apart {
        Faces { operators: face(admin(&ctx)), nodes: Some(face(node_side())) }
    } else {
        Faces { operators: face(admin(&ctx).merge(node_side())), nodes: None }
    }
}

fn admin(ctx: &Ctx) -> Router<Ctx> {
    let open =
        Router::new().route("/api/v1/health", get(health)).route("/api/v1/version", get(version));
    let publish = post(bundles::publish).layer(DefaultBodyLimit::max(MAX_BUNDLE_BODY_BYTES));
    Router::new()
        .route("/api/v1/bundles", publish.get(bundles::list))
        .route("/api/v1/bundles/{bundle}", get(bundles::show))
        .route("/api/v1/bundles/{bundle}/archive", get(bundles::archive))
        .route("/api/v1/bundles/{bundle}/approve", post(bundles::approve))
        .route("/api/v1/bundles/{bundle}/withdraw", post(bundles::withdraw))
        .route("/api/v1/bundle-keys", post(bundles::trust).get(bundles::keys))
        .route("/api/v1/sites", post(sites::create).get(sites::list))
        .route("/api/v1/sites/{name}", get(sites::show).patch(sites::change))
        .route("/api/v1/sites/{name}/secrets", get(secrets::list_of_site))
        .route(
            "/api/v1/sites/{name}/secrets/{bundle}/{input}",
            put(secrets::set_of_site).delete(secrets::delete_of_site),
        )
        .route("/api/v1/profiles/{name}/secrets", get(secrets::list_of_profile))
        .route(
            "/api/v1/profiles/{name}/secrets/{bundle}/{input}",
            put(secrets::set_of_profile).delete(secrets::delete_of_profile),
        )
        .route("/api/v1/profiles", post(profiles::create).get(profiles::list))
        .route("/api/v1/profiles/{name}", get(profiles::show).patch(profiles::change))
        .route("/api/v1/profile-presets", get(profiles::presets))
        .route("/api/v1/roce-assignments", post(roce::create).get(roce::list))
        .route("/api/v1/nodes", post(nodes::onboard).get(nodes::list))
        .route("/api/v1/drift", get(drift::list))
        .route("/api/v1/nodes/stuck", get(stuck::list))
        .route("/api/v1/nodes/{node}", get(nodes::show))
        .route("/api/v1/nodes/{node}/explain", get(explain::explain))
        .route("/api/v1/nodes/{node}/certificates", get(certificates::list))
        .route("/api/v1/nodes/{node}/revoke-certificate", post(certificates::revoke))
        .route("/api/v1/nodes/{node}/telemetry", get(telemetry::show))
        .route("/api/v1/nodes/{node}/telemetry/", get(telemetry::read))
        .route("/api/v1/nodes/{node}/telemetry/{*path}", get(telemetry::read))
        .route("/api/v1/runs/{run}", get(runs::show))
        .route("/api/v1/nodes/{node}/runs", post(leave::begin))
        .route("/api/v1/nodes/{node}/tasks", post(tasks::give).get(tasks::list))
        .route("/api/v1/tasks/{task}", get(tasks::show))
        .route("/api/v1/runs/{run}/resume", post(runs::resume))
        .route("/api/v1/runs/{run}/retry", post(runs::retry))
        .route("/api/v1/runs/{run}/cancel", post(runs::cancel))
        .route("/api/v1/runs/{run}/skip-check", post(runs::skip_check))
        .route("/api/v1/task-keys", post(task_keys::stage).get(task_keys::list))
        .route("/api/v1/task-keys/activate", post(task_keys::activate))
        .route("/api/v1/task-keys/retire", post(task_keys::retire))
        .route("/api/v1/batches", post(batches::create).get(batches::list))
        .route("/api/v1/batches/{batch}", get(batches::show))
        .route("/api/v1/batches/{batch}/stop", post(batches::stop))
        .route("/api/v1/batches/{batch}/resume", post(batches::resume))
        .route_layer(middleware::from_fn_with_state(ctx.clone(), auth::require_admin))
        .merge(open)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(ADMIN_LIMIT, guard::guard))
}

fn node_side() -> Router<Ctx> {
    let result = post(agent::task_result).layer(DefaultBodyLimit::max(MAX_RESULT_BYTES));
    Router::new()
        .route("/bootstrap/v1/health", get(alive))
        .route("/bootstrap/v1/artifacts/sha256/{digest}", get(bootstrap::artifact))
        .route("/bootstrap/v1/runs/{run}/progress", post(bootstrap::progress))
        .route("/bootstrap/v1/runs/{run}/phases", post(bootstrap::phase))
        .route("/agent/v1/enroll", post(agent::enroll))
        .route("/agent/v1/heartbeat", post(agent::heartbeat))
        .route("/agent/v1/tasks", get(agent::tasks))
        .route("/agent/v1/gates", post(agent::gates))
        .route("/agent/v1/certificate", post(certificates::renew))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .route("/agent/v1/tasks/{task}/result", result)
        .layer(middleware::from_fn_with_state(AGENT_LIMIT, guard::guard))
}

async fn alive() -> Json<Health> {
    Json(Health { status: "ok".to_owned() })
}

async fn health(axum::extract::State(ctx): axum::extract::State<Ctx>) -> Answer<Json<Health>> {
    ctx.store.next_due().await?;
    Ok(alive().await)
}

async fn version(axum::extract::State(ctx): axum::extract::State<Ctx>) -> Json<Version> {
    Json(Version {
        version: ctx.settings.version.clone(),
        database: ctx.store.engine().to_owned(),
        now: ctx.now(),
    })
}

async fn not_found(uri: axum::http::Uri) -> Refusal {
    problem("not_found").with_detail(format!("there is nothing at {}", uri.path())).into()
}

async fn method_not_allowed(method: axum::http::Method, uri: axum::http::Uri) -> Refusal {
    let detail = format!("{} does not take {method}", uri.path());
    problem("method_not_allowed").with_detail(detail).into()
}
