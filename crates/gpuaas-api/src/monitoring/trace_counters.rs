//! What became of the spans of traces.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts spans by what became of them.
#[derive(Debug, Default)]
pub struct TraceCounters {
    exported: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    is_failing: AtomicBool,
}

impl TraceCounters {
    /// The collector took so many.
    pub fn note_exported(&self, spans: u64) {
        self.exported.fetch_add(spans, Ordering::Relaxed);
        self.is_failing.store(false, Ordering::Relaxed);
    }

    /// The collector did not take so many. Answers whether it took those before.
    pub fn note_failed(&self, spans: u64) -> bool {
        self.failed.fetch_add(spans, Ordering::Relaxed);
        !self.is_failing.swap(true, Ordering::Relaxed)
    }

    /// There was no room for so many.
    pub fn note_dropped(&self, spans: u64) {
        self.dropped.fetch_add(spans, Ordering::Relaxed);
    }

    /// How many there are, by the label of the metric.
    pub(crate) fn by_outcome(&self) -> [(&'static str, u64); 3] {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("exported", read(&self.exported)),
            ("failed", read(&self.failed)),
            ("dropped", read(&self.dropped)),
        ]
    }
}
