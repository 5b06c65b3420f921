//! The loops of `gpuaas serve` beside the engine's, under the same supervisor.

use std::io;
use std::sync::Arc;

use axum::Router;
use gpuaas_api::ApiState;
use gpuaas_engine::Supervisor;
use gpuaas_identity::Peer;
use gpuaas_identity::listener::{NodeListener, PlainListener};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::nodes::Prepared;
use super::retention::Retention;

/// Answers operators, and nodes where they have a listener of their own; applies the retention.
pub(super) fn spawn(
    listener: TcpListener,
    nodes: Option<Prepared>,
    retention: Option<Retention>,
    state: ApiState,
    stop: &CancellationToken,
) -> Vec<JoinHandle<()>> {
    let (store, clock) = (state.store.clone(), Arc::clone(&state.clock));
    let supervisor = state.supervisor.clone();
    let database = store.clone();
    supervisor.spawn("database writer", async move { database.closed().await });
    let routers = gpuaas_api::routers(state);
    let operators = answer_operators(listener, routers.operators, stop.clone());
    let mut loops = vec![supervisor.spawn_fallible("operator listener", operators)];
    if let (Some(nodes), Some(router)) = (nodes, routers.nodes) {
        loops.extend(spawn_for_nodes(nodes, router, &supervisor, stop));
    }
    if let Some(retention) = retention {
        let stop = stop.clone();
        loops.push(supervisor.spawn("retention", async move {
            retention.run(store, clock.as_ref(), stop).await;
        }));
    }
    loops
}

fn spawn_for_nodes(
    nodes: Prepared,
    router: Router,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> Vec<JoinHandle<()>> {
    let Prepared { mut listener, upkeep, .. } = nodes;
    let mut loops = Vec::new();
    if let Some(accepting) = listener.take_accept_task() {
        loops.push(supervisor.spawn_fallible("node connections", accepting));
    }
    loops.push(
        supervisor.spawn_fallible("node listener", answer_nodes(listener, router, stop.clone())),
    );
    let stopped = stop.clone();
    loops.push(supervisor.spawn("node listener certificate", async move {
        tokio::select! {
            () = stopped.cancelled() => {}
            () = upkeep.run() => {}
        }
    }));
    loops
}

async fn answer_operators(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    let service = router.into_make_service_with_connect_info::<Peer>();
    axum::serve(PlainListener(listener), service)
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}

async fn answer_nodes(
    listener: NodeListener,
    router: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    axum::serve(listener, router.into_make_service_with_connect_info::<Peer>())
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}
