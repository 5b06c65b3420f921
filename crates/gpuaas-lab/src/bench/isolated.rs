//! Work on a thread and a runtime of its own.

use gpuaas_client::failure::Failure;

/// Runs a world on a thread of its own: it takes turns by itself and waits for nobody else.
///
/// # Errors
/// `runtime_unavailable`, `world_ended`, and what the work answers.
pub async fn alone<T: Send + 'static>(
    work: impl AsyncFnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let no_thread = |error: &dyn std::fmt::Display| {
        Failure::local("runtime_unavailable", "Threads cannot be started", error.to_string())
    };
    let ended = tokio::task::spawn_blocking(move || {
        // What a world suffers is its story; as a log it would bury everything else.
        let _silent = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| no_thread(&error))?.block_on(work())
    });
    ended.await.map_err(|error| {
        Failure::local("world_ended", "A simulated world did not end well", error.to_string())
    })?
}
