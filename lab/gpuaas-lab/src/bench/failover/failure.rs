//! How the benchmark ends where it cannot be carried out.

use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;

/// What the benchmark needs is not there.
pub(super) fn not_met(detail: &str) -> Failure {
    Failure::local(CommandCode::BenchmarkUnusable, detail)
}
