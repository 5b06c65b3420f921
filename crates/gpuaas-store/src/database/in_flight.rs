//! How many callers wait for the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A caller that waits for the database.
pub(crate) struct InFlightGuard(Arc<AtomicU64>);

impl InFlightGuard {
    /// Counts one more caller in `count`, until the guard is dropped.
    pub(crate) fn new(count: &Arc<AtomicU64>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
