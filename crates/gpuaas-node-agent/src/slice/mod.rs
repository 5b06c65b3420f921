//! Launch and release of slices on this host: the parts that a control plane gives the agent.
//!
//! What a host does is behind [`SliceHost`]: libvirt, sysfs, drives. What follows from it is in
//! `actions`: a program that succeeded proves nothing, so each action looks afterwards, and what it
//! saw of a release is handed in as a proof. An erase is proven by what is read, not by what the drive
//! answers: blocks that were written just before have to be gone.
//!
//! [`StandInHost`] is a host in memory that can be told to lie.

mod actions;
mod canary;
mod host;
mod live;
mod stand_in;

#[cfg(test)]
mod tests;

use gpuaas_types::agent::TaskResult;
use gpuaas_types::slice::{DomainState, SliceReport, SliceTask};

pub use self::host::{BLOCK_BYTES, DriveState, FunctionState, SliceHost, SliceHostError};
pub use self::stand_in::{StandInFault, StandInHost};

use crate::host::Host;

/// Carries out `task` on `host`. Never an error: what failed is in the result.
pub async fn carry_out(host: &dyn SliceHost, task: &SliceTask) -> TaskResult {
    let mut report = SliceReport {
        domain: DomainState::Absent,
        prepared: false,
        erasing: false,
        proofs: Vec::new(),
    };
    let ended = actions::run(host, task, &mut report).await;
    let (succeeded, code, message) = match ended {
        Ok(message) => (true, String::new(), message),
        Err(error) => (false, error.code.to_owned(), error.message),
    };
    TaskResult { succeeded, code, message, slice: Some(Box::new(report)), ..TaskResult::default() }
}

/// Carries out `task` on the host that this agent works on.
pub(crate) async fn run(host: &Host, task: &SliceTask) -> TaskResult {
    match live::LiveSliceHost::new(host) {
        Ok(live) => carry_out(&live, task).await,
        Err(error) => TaskResult {
            code: error.code().to_owned(),
            message: error.to_string(),
            ..TaskResult::default()
        },
    }
}
