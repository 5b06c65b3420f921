//! Supervision of the engine's loops: noticing that a loop has ended or panicked, logging repeated failures,
//! and the failpoints of tests.

pub(crate) mod failpoint;
pub(crate) mod panics;
pub(crate) mod repeated_failure;
pub(crate) mod supervisor;
