//! The loops of `gpuaas serve` beside the engine's, under the same supervisor.

use std::sync::Arc;

use axum::Router;
use gpuaas_api::ApiState;
use gpuaas_console::ConsoleSettings;
use gpuaas_engine::{Clock, RealClock, Supervisor};
use gpuaas_events::EventDelivery;
use gpuaas_identity::server::{HttpServer, Security};
use gpuaas_store::Store;
use gpuaas_types::limits::ListenerLimits;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::authority_watch::AuthorityWatch;
use super::limits::BothLimits;
use super::retention::Retention;
use super::server_certificate::Upkeep;
use super::{audit_relay, control_plane, nodes, operators};

/// What is served, and where.
pub(super) struct Sockets {
    /// That of operators.
    pub(super) socket: TcpListener,
    pub(super) operators: operators::Prepared,
    pub(super) nodes: Option<nodes::Prepared>,
    pub(super) limits: BothLimits,
    /// What follows the certificate authority of nodes.
    pub(super) watch: Option<AuthorityWatch>,
}

/// What loops beside the listeners are told.
pub(super) struct Loops {
    pub(super) retention: Option<Retention>,
    /// Version that the control plane says it is.
    pub(super) version: String,
}

/// Answers operators, and nodes where they have a listener of their own; delivers events; has
/// experiments go on; applies the retention.
pub(super) fn spawn(
    sockets: Sockets,
    Loops { retention, version }: Loops,
    delivery: EventDelivery,
    state: ApiState,
    stop: &CancellationToken,
) -> Vec<JoinHandle<()>> {
    let Sockets { socket, operators, nodes, limits, watch } = sockets;
    let (store, clock) = (state.store.clone(), Arc::clone(&state.clock));
    let supervisor = state.supervisor.clone();
    let database = store.clone();
    supervisor.spawn("database writer", {
        let database = database.clone();
        async move { database.closed().await }
    });
    let routers = gpuaas_api::routers(state);
    let experiments = routers.experiments.clone().run(stop.clone());
    let pages = console(routers.operators, &database, &clock, &operators.security);
    let server = HttpServer::new(socket, operators.security, limits.operators, stop.clone());
    let mut loops = vec![supervisor.spawn_fallible("operator listener", server.run(pages))];
    if let Some(upkeep) = operators.upkeep {
        loops.push(spawn_upkeep("operator listener certificate", upkeep, &supervisor, stop));
    }
    if let (Some(nodes), Some(router)) = (nodes, routers.nodes) {
        loops.extend(spawn_for_nodes(nodes, limits.nodes, router, &supervisor, stop));
    }
    if let Some(watch) = watch {
        loops.push(supervisor.spawn("certificate authority", watch.run(stop.clone())));
    }
    loops.push(supervisor.spawn("experiments", experiments));
    loops.push(supervisor.spawn("event delivery", delivery.run(stop.clone())));
    if store.engine() == "postgresql" {
        loops.extend(spawn_for_replicas(&store, version, &clock, &supervisor, stop));
    }
    if let Some(retention) = retention {
        let stop = stop.clone();
        loops.push(supervisor.spawn("retention", async move {
            retention.run(store, clock.as_ref(), stop).await;
        }));
    }
    loops
}

/// The console's pages in front of the API's operations.
fn console(
    operators: Router,
    store: &Store,
    clock: &Arc<dyn Clock>,
    security: &Security,
) -> Router {
    let clock = Arc::clone(clock);
    let settings = ConsoleSettings {
        session_key: store.derived_key("console session"),
        is_tls: matches!(security, Security::Tls { .. }),
        now: Arc::new(move || clock.now()),
        wall: Arc::new(|| RealClock.now()),
    };
    gpuaas_console::router(operators, settings)
}

/// What control planes that share a database owe each other. An SQLite file has one, and its entries
/// of the audit are chained as they are written.
fn spawn_for_replicas(
    store: &Store,
    version: String,
    clock: &Arc<dyn Clock>,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> [JoinHandle<()>; 2] {
    let parts = || (store.clone(), Arc::clone(clock), stop.clone());
    let (chained, its_clock, its_stop) = parts();
    let chain = supervisor.spawn("audit chain", async move {
        audit_relay::run(chained, its_clock.as_ref(), its_stop).await;
    });
    let (store, clock, stop) = parts();
    let lease = supervisor.spawn_fallible("control plane lease", async move {
        control_plane::run(store, &version, clock.as_ref(), stop).await
    });
    [chain, lease]
}

fn spawn_for_nodes(
    nodes: nodes::Prepared,
    limits: ListenerLimits,
    router: Router,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> [JoinHandle<()>; 2] {
    let nodes::Prepared { socket, security, upkeep, .. } = nodes;
    let server = HttpServer::new(socket, security, limits, stop.clone());
    [
        supervisor.spawn_fallible("node listener", server.run(router)),
        spawn_upkeep("node listener certificate", upkeep, supervisor, stop),
    ]
}

fn spawn_upkeep(
    name: &str,
    upkeep: Upkeep,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> JoinHandle<()> {
    let stopped = stop.clone();
    supervisor.spawn(name, async move {
        tokio::select! {
            () = stopped.cancelled() => {}
            () = upkeep.run() => {}
        }
    })
}
