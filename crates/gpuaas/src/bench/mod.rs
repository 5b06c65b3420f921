//! `gpuaas bench`: measures, and never decides whether a figure is good enough.

pub mod added;
pub mod clients;
pub mod onboard;
pub mod report;
pub mod usage;

use crate::args::BenchCommand;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// `gpuaas bench`.
///
/// # Errors
/// `nodes_not_active` when a node did not become active; what keeps a benchmark from starting.
pub async fn run(command: BenchCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        BenchCommand::Onboard(args) => onboard::run(args, terminal).await,
        BenchCommand::Clients(args) => clients::run(args, terminal).await,
    }
}
