//! Being told to stop.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use gpuaas_types::codes::CommandCode;

use crate::failure::Failure;

/// Resolves at the first SIGINT or SIGTERM from now on.
///
/// # Errors
/// `signals_unavailable` when the system does not let the process listen for them.
pub fn stop() -> Result<impl Future<Output = ()> + Send, Failure> {
    let refused =
        |error: std::io::Error| Failure::local(CommandCode::SignalsUnavailable, error.to_string());
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Allows as many open files as the system grants: a thousand agents are a thousand connections.
pub fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}
