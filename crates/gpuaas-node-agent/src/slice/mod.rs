//! Launch and release of slices on this host: the parts that a control plane gives the agent.
//!
//! What a host does is behind [`SliceHost`]: libvirt, sysfs, drives. What follows from it is in
//! `actions`: a program that succeeded proves nothing, so each action looks afterwards, and what it
//! saw of a release is handed in as a proof. An erase is proven by what is read, not by what the drive
//! answers: blocks that were written just before have to be gone.
//!
//! [`StandInHost`] is a host in memory that can be told to lie.

mod actions;
mod binding;
mod canary;
mod env;
mod error;
mod fabric_manager;
mod functions;
mod guest_call;
mod guest_listener;
mod host;
mod live;
mod looks;
mod partition;
mod preparation;
mod reconcile;
mod stand_in;
mod stand_in_fabric;

#[cfg(test)]
mod binding_tests;
#[cfg(test)]
mod guest_bridge_tests;
#[cfg(test)]
mod partition_tests;
#[cfg(test)]
mod tests;

use gpuaas_types::agent::TaskResult;
use gpuaas_types::slice::{DomainState, SliceReport, SliceTask};

pub use self::env::SliceEnv;
pub use self::fabric_manager::FabricManager;
pub use self::guest_listener::{EMULATED_PORT_FILE, GuestCallListener};
pub use self::host::{BLOCK_BYTES, DriveState, FunctionState, SliceHost, SliceHostError};
pub use self::preparation::{FoundDriver, Preparation};
pub use self::stand_in::{StandInFault, StandInHost};
pub use self::stand_in_fabric::StandInFabricManager;

use crate::command::CommandError;
use crate::host::Host;

/// Carries out `task` on `host`. Never an error: what failed is in the result.
pub async fn carry_out(host: &dyn SliceHost, task: &SliceTask) -> TaskResult {
    let mut report = empty_report();
    let ended = actions::run(host, task, &mut report).await;
    result(ended, report)
}

const fn empty_report() -> SliceReport {
    SliceReport { domain: DomainState::Absent, prepared: false, erasing: false, proofs: Vec::new() }
}

fn result(ended: Result<String, SliceHostError>, report: SliceReport) -> TaskResult {
    let (succeeded, code, message) = match ended {
        Ok(message) => (true, String::new(), message),
        Err(error) => (false, error.code.to_owned(), error.message),
    };
    TaskResult { succeeded, code, message, slice: Some(Box::new(report)), ..TaskResult::default() }
}

/// Hears what guests call that an earlier process of this agent expected.
///
/// # Errors
/// The address of the slice bridge cannot be listened on; a later task of the slice tries again.
pub(crate) async fn resume_guest_calls(host: &Host, env: &SliceEnv) -> Result<(), SliceHostError> {
    env.guest_calls.update(host).await
}

/// What of slices does not fit together on the host, a sentence each; none where slices were never
/// launched. What cannot be looked at is logged.
pub(crate) async fn discrepancies(host: &Host, env: &SliceEnv) -> Vec<String> {
    find_discrepancies(host, env, false).await
}

/// The same when the agent starts: domains of no claim are stopped where the host's settings want it.
pub(crate) async fn reconcile_at_start(host: &Host, env: &SliceEnv) -> Vec<String> {
    find_discrepancies(host, env, true).await
}

async fn find_discrepancies(host: &Host, env: &SliceEnv, starts: bool) -> Vec<String> {
    let Some(root) = host.root().filter(|root| reconcile::had_slices(root)) else {
        return Vec::new();
    };
    let Ok(live) = live::LiveSliceHost::new(host, env) else { return Vec::new() };
    let stops = starts && guest_call::stops_unclaimed_domains(root);
    match reconcile::find_discrepancies(&live, stops).await {
        Ok(found) => found.iter().map(ToString::to_string).collect(),
        Err(error) => {
            tracing::warn!(%error, "cannot compare the domains and claims of this host");
            Vec::new()
        }
    }
}

/// Carries out `task` on the host that this agent works on.
pub(crate) async fn run(host: &Host, env: &SliceEnv, task: &SliceTask) -> TaskResult {
    match live::LiveSliceHost::new(host, env) {
        Ok(live) => carry_out(&live, task).await,
        Err(error) => not_live(&error),
    }
}

/// One look of `task`, which waits for a guest, on the host that this
/// agent works on; none: it is still to be waited for.
pub(crate) async fn check_guest(
    host: &Host,
    env: &SliceEnv,
    task: &SliceTask,
    waited_seconds: f64,
) -> Option<TaskResult> {
    let live = match live::LiveSliceHost::new(host, env) {
        Ok(live) => live,
        Err(error) => return Some(not_live(&error)),
    };
    let mut report = empty_report();
    let ended = actions::check_guest(&live, task, waited_seconds, &mut report).await?;
    Some(result(ended, report))
}

fn not_live(error: &CommandError) -> TaskResult {
    TaskResult {
        code: error.code().to_owned(),
        message: error.to_string(),
        ..TaskResult::default()
    }
}
