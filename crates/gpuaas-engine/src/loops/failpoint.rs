//! Places at which a test or a simulation can interfere with a run or a loop.
//!
//! Between two commits a worker holds nothing that is not lost with it, so the few places of
//! [`Failpoint`] are all at which a process can die with an effect on what follows: what happens in
//! between is reads. A simulation has the process die there by dropping the worker's future, or
//! stand still by not polling it, as a machine that is suspended does. A test plants a panic there,
//! in a decision or in a loop. In service there are no hooks.

use async_trait::async_trait;
use gpuaas_core::record::RunRecord;

/// A place on a worker's way through a claimed run.
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

/// Hooks that the engine calls.
#[async_trait]
pub trait Failpoints: Send + Sync {
    /// The worker has come to a failpoint with a run, as it has the run in memory. It goes on once
    /// this returns.
    async fn reach(&self, _run: &RunRecord, _failpoint: Failpoint) {}

    /// The worker is about to decide about `run`.
    fn reach_decision(&self, _run: &RunRecord) {}

    /// Whether the decision about `run` is dropped and made again, as by a defect that never moves.
    fn repeats_decision(&self, _run: &RunRecord) -> bool {
        false
    }

    /// The loop `name` begins, or begins another turn.
    fn reach_loop(&self, _name: &str) {}
}
