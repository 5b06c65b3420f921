//! `gpuaas bench`: measures, and never decides whether a figure is good enough.

pub mod added;
pub mod agent;
pub mod chaos;
pub mod clients;
pub mod gate;
pub mod invariants;
pub mod onboard;
pub mod operate;
pub mod region;
pub mod report;
pub mod trouble;
pub mod usage;

use crate::args::BenchCommand;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Runs a world on a thread of its own: it takes turns by itself and waits for nobody else.
async fn alone<T: Send + 'static>(
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

/// `gpuaas bench`.
///
/// # Errors
/// `nodes_not_active` when a node did not become active; what keeps a benchmark from starting.
pub async fn run(command: BenchCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        BenchCommand::Onboard(args) => onboard::run(args, terminal).await,
        BenchCommand::Clients(args) => clients::run(args, terminal).await,
        BenchCommand::Region(args) => region::run(args, terminal).await,
        BenchCommand::Chaos(args) => chaos::run(args, terminal).await,
        BenchCommand::Gate(args) => gate::run(args, terminal).await,
        BenchCommand::Agent(args) => agent::run(args, terminal).await,
    }
}
