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

/// Keeps the memory of this process out of core dumps and away from other processes of its user: it holds
/// keys and passwords.
pub fn disable_core_dumps() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let disabled = setrlimit(Resource::Core, none)
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable));
    if let Err(error) = disabled {
        tracing::warn!(%error, "cannot disable core dumps");
    }
}

/// Allows as many open files as the system grants: a thousand agents are a thousand connections.
pub fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}
