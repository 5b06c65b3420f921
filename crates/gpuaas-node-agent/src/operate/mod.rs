//! Operations: what an operator asks the agent of a host to do.
//!
//! Every kind first observes the host and says what it would change. Unless it is a dry run, it
//! then makes the change and observes again, because a program that succeeded proves nothing. The
//! bounds of an operation are checked here too, whatever the control plane signed.

mod diagnostics;
mod drift;
mod operation;
mod packages;
mod service;
mod slice_topology;
#[cfg(test)]
pub(crate) mod test_host;
mod trust;
pub(crate) mod update;

use std::time::Duration;

use gpuaas_types::agent::{Operation, TaskResult};
use tokio::time::timeout;

pub(crate) use operation::{CompletedTask, OperationContext};
pub use slice_topology::{DiscoveryError, SliceDiscovery, discover};
pub use update::{guard, hand_over};

use operation::{OperationError, OperationOutcome};

use crate::env::AgentEnv;
use crate::host::Host;

/// Carries out `operation` on `host` as a task of the control plane would be. Never an error: what failed
/// is in the result.
pub async fn carry_out(host: &Host, operation: &Operation) -> TaskResult {
    let context = OperationContext { host, env: &AgentEnv::default(), dry_run: false };
    run(&context, operation).await.result
}

/// Carries out `operation`. Never an error: what failed is in the result.
pub(crate) async fn run(context: &OperationContext<'_>, operation: &Operation) -> CompletedTask {
    if let Err(fault) = operation.check() {
        let message = format!("{}: {}", fault.field, fault.reason);
        let code = update::fault_code(operation, &fault.field);
        return CompletedTask::from(Err(OperationError::new(code, message)));
    }
    let limit = Duration::from_secs(operation.limit_seconds().into());
    let result = timeout(limit, dispatch(context, operation)).await;
    CompletedTask::from(result.unwrap_or_else(|_| {
        let message = format!("the task timed out after {} s", limit.as_secs());
        Err(OperationError::new("task_timeout", message))
    }))
}

async fn dispatch(
    context: &OperationContext<'_>,
    operation: &Operation,
) -> Result<OperationOutcome, OperationError> {
    match operation {
        Operation::Service { action, unit } => service::run(context, *action, unit).await,
        Operation::RepairDrift { gates } => drift::run(context, gates).await,
        Operation::RefreshTrust { registries } => trust::run(context, registries),
        Operation::UpdatePackages { packages, along, hold, refresh_lists, lock_seconds } => {
            let (refresh_lists, lock_seconds) = (*refresh_lists, *lock_seconds);
            let policy =
                packages::PackagePolicy { packages, along, hold, refresh_lists, lock_seconds };
            packages::run(context, &policy).await
        }
        Operation::CollectDiagnostics { units, journal_lines, most_bytes } => {
            let (journal_lines, max_bytes) = (*journal_lines, *most_bytes);
            let request = diagnostics::DiagnosticsRequest { units, journal_lines, max_bytes };
            diagnostics::run(context, &request).await
        }
        Operation::DiscoverSlices {} => slice_topology::run(context).await,
        Operation::AgentUpdate { version, digest, size_bytes, url, confirm_seconds, .. } => {
            let (size_bytes, confirm_seconds) = (*size_bytes, *confirm_seconds);
            let target = update::UpdateTarget { version, digest, size_bytes, url, confirm_seconds };
            update::run(context, &target).await
        }
    }
}
