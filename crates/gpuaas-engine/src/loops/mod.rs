//! What all loops of the engine need around their work: who notices that one has ended or panicked, how
//! its failures are logged, and where a test may interfere.

pub(crate) mod failpoint;
pub(crate) mod panics;
pub(crate) mod repeated_failure;
pub(crate) mod supervisor;
