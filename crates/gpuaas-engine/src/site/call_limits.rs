//! How many calls of one region are in flight at once.

use tokio::sync::Semaphore;

/// Reads of one region at once, beside a look at its event feed.
const PARALLEL_READS: usize = 11;
/// Changes of one region at once. Apart from the reads: MAAS answers some changes only after the
/// BMC acted (docs/maas.md#unknown-outcomes), and these must not keep the event feed waiting.
const PARALLEL_CHANGES: usize = 24;

/// What is in flight in one region at most, for as long as this process runs: a site that is
/// connected again has the limits that it had.
#[derive(Debug)]
pub(crate) struct CallLimits {
    /// Reads.
    pub(crate) reads: Semaphore,
    /// Changes.
    pub(crate) changes: Semaphore,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { reads: Semaphore::new(PARALLEL_READS), changes: Semaphore::new(PARALLEL_CHANGES) }
    }
}
