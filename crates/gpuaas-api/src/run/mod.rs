//! Runs and batches of runs: how they begin, what they would cost, and what an operator tells them.

pub(crate) mod batches;
pub(crate) mod begin;
pub(crate) mod onboard_plan;
pub(crate) mod runs;
