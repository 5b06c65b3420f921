//! Work on a thread and a runtime of its own.

use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;

/// Runs `work` on a thread and a current-thread runtime of its own, with its log switched off.
///
/// # Errors
/// `runtime_unavailable`, `simulation_ended`, and what the work answers.
pub async fn run_isolated<T: Send + 'static>(
    work: impl AsyncFnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let no_thread = |error: &dyn std::fmt::Display| {
        Failure::local(CommandCode::RuntimeUnavailable, error.to_string())
    };
    let ended = tokio::task::spawn_blocking(move || {
        // A simulation provokes failures by the thousand; logged, they would bury everything else.
        let _silent = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| no_thread(&error))?.block_on(work())
    });
    ended.await.map_err(|error| Failure::local(CommandCode::SimulationEnded, error.to_string()))?
}
