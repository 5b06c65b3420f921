//! `gpuaas serve`: starts a control plane as the arguments say, and stops it on a signal.

use std::sync::Arc;
use std::time::Duration;

use gpuaas_api::{ApiSettings, TraceCounters};
use gpuaas_client::failure::Failure;
use gpuaas_client::signals;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{ClockChoice, Failpoints};
use gpuaas_types::codes::CommandCode;

use crate::args::ServeArgs;
use crate::serve::{ActivatedSockets, ServeOptions, admin_token, start};
use crate::service_manager::{ServiceManager, watchdog_period};
use crate::traces::TraceExporter;

/// How long health checks are still answered after a loop has ended: they learn which one.
const LOOP_ENDED_RED: Duration = Duration::from_secs(1);
/// How long work in hand may take to come to rest after a loop has ended.
const LOOP_ENDED_DRAIN: Duration = Duration::from_secs(5);

/// Runs the command until it is told to stop.
///
/// # Errors
/// See [`start`] and [`ServeHandle::until_stopped`](crate::serve::ServeHandle::until_stopped).
pub(crate) async fn run(
    args: ServeArgs,
    traces: Option<TraceExporter>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let counters = traces.as_ref().map(TraceExporter::counters);
    let exporter = traces.map(TraceExporter::start);
    let ended = serve(args, counters, terminal).await;
    if let Some(exporter) = exporter {
        exporter.stop().await;
    }
    ended
}

async fn serve(
    mut args: ServeArgs,
    traces: Option<Arc<TraceCounters>>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let stop = signals::stop()?;
    let manager = ServiceManager::connect(args.notify_socket.as_deref()).map_err(|error| {
        let detail = format!("NOTIFY_SOCKET is not a usable socket: {error}");
        Failure::usage(CommandCode::CommandLineInvalid, detail)
            .hint("let the service manager set NOTIFY_SOCKET")
    })?;
    let watchdog_period = watchdog_period(args.watchdog_usec, args.watchdog_pid);
    let activated = ActivatedSockets::from_environment(args.listen_fdnames.as_deref())?;
    args.listen = activated.operators_address()?.unwrap_or(args.listen);
    args.node_listen = activated.nodes_address()?.unwrap_or(args.node_listen);
    let data = args.data.clone();
    let (operators, nodes) = (args.operator_listener(), args.node_listener());
    let (retention, nats) = (args.retention(), args.nats()?);
    let sign_in = args.oidc.sign_in()?.map(Arc::new);
    // A clock that is not the wall's is a simulator's, whose hosts have made-up addresses.
    let simulated_hosts = !matches!(args.clock, ClockChoice::Real);
    #[cfg(feature = "lab")]
    let failpoints = args.panic_in_loop.map(|planted| Arc::new(planted) as Arc<dyn Failpoints>);
    #[cfg(not(feature = "lab"))]
    let failpoints: Option<Arc<dyn Failpoints>> = None;
    let handle = start(ServeOptions {
        activated,
        operators,
        nodes,
        database: args.database,
        master_key: args.master_key.sources(),
        advertise: args.advertise,
        agent_binary: args.agent_binary,
        limits: args.limits,
        new_admin_token: args.new_admin_token,
        failpoints,
        retention,
        nats,
        clock: args.clock.clock(),
        settings: ApiSettings {
            simulated_hosts,
            heartbeats_together: true,
            insecure_regions: args.insecure_regions,
            loopback_targets: args.loopback_targets,
            sign_in,
            traces,
            ..ApiSettings::default()
        },
        insecure_database: args.insecure_database,
        ..ServeOptions::new(args.listen, args.data)
    })
    .await?;
    let file = data.join("admin-token");
    let mut lines = format!("listening: {}", handle.url());
    match &handle.admin_token {
        // The token itself is in the file alone: what is printed ends up in logs.
        Some(_) if handle.token_is_new => {
            terminal.message(&format!("wrote a new admin token to {}", file.display()));
        }
        Some(_) => terminal.message(&format!("the admin token is in {}", file.display())),
        None => terminal.message(&admin_token::unknown(&file)),
    }
    terminal.message(&format!("state is stored in {}", handle.store.engine()));
    lines.push_str(&format!("\nnodes: {}", handle.node_url));
    terminal.data(&lines)?;
    let watchdog = manager.spawn_watchdog(watchdog_period, handle.engine.supervisor().clone());
    manager.ready(&format!("listening at {}", handle.url()));
    let ended = handle.until_stopped(stop).await;
    manager.stopping();
    match &ended {
        Ok(()) => terminal.message("stopping"),
        Err(failure) => {
            terminal.message(&failure.problem.detail);
            // Nothing comes of this wait but that it ends.
            let nothing = std::future::pending::<()>();
            tokio::time::timeout(LOOP_ENDED_RED, nothing).await.unwrap_or_default();
        }
    }
    // A loop that is gone may keep the others from coming to rest.
    let limit = if ended.is_ok() { Duration::MAX } else { LOOP_ENDED_DRAIN };
    if tokio::time::timeout(limit, handle.shutdown()).await.is_err() {
        tracing::error!("work in progress did not finish in time");
    }
    // Until here somebody has to hear that the process lives.
    if let Some(watchdog) = watchdog {
        watchdog.abort();
    }
    ended
}
