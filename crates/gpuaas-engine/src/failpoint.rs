//! The moments at which a process can die, or stand still, with a run in hand.
//!
//! Between two commits a worker holds nothing that is not lost with it, so these few are all there
//! are: what happens in between is reads. A simulation is told of each ([`Failpoints`]) and can let
//! the process die there by dropping the worker's future, or stand still by not polling it, as a
//! machine that is suspended does. In service nobody listens and nothing is called.

use async_trait::async_trait;
use gpuaas_core::record::RunRecord;

/// A moment in a worker's hold of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failpoint {
    /// The run was claimed; nothing was decided yet.
    Claimed,
    /// All that was found out and decided is about to be committed.
    Commit,
    /// It was committed, or refused because the lease is lost.
    Committed,
    /// The intent is durable; its call was not made.
    Call,
    /// The call has ended; nothing durable says how.
    Called,
}

/// Who is told.
#[async_trait]
pub trait Failpoints: Send + Sync {
    /// The worker has come to `moment`; `run` is as the worker sees it. The worker goes on once
    /// this returns.
    async fn reach(&self, run: &RunRecord, failpoint: Failpoint);
}
