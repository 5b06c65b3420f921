//! What a connection is doing, and since when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The head of a request is on its way.
    Header { since: Instant },
    /// A request is being answered.
    Request,
    /// An answer is out, and nothing of another request is there.
    Idle { since: Instant },
}

/// What a connection is doing, and since when.
#[derive(Debug)]
pub(super) struct Activity {
    phase: Mutex<Phase>,
    /// What was to be written waits for the client.
    writing: AtomicBool,
}

impl Activity {
    /// Of a connection whose first byte has come.
    pub(super) fn new(now: Instant) -> Self {
        let phase = Mutex::new(Phase::Header { since: now });
        Self { phase, writing: AtomicBool::new(false) }
    }

    /// Bytes came in.
    pub(super) fn record_bytes(&self, now: Instant) {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Idle { .. }) {
            *phase = Phase::Header { since: now };
        }
    }

    /// The head of a request is complete.
    pub(super) fn begin_request(&self) {
        *self.phase.lock() = Phase::Request;
    }

    /// An answer is complete.
    pub(super) fn end_request(&self, now: Instant) {
        *self.phase.lock() = Phase::Idle { since: now };
    }

    /// When the connection has to be doing something else; none while a request is answered.
    pub(super) fn deadline(&self, header: Duration, idle: Duration) -> Option<Instant> {
        match *self.phase.lock() {
            Phase::Header { since } => Some(since + header),
            Phase::Idle { since } => Some(since + idle),
            Phase::Request => None,
        }
    }

    /// Whether the connection can be closed without taking an answer away from anybody.
    pub(super) fn is_between_requests(&self) -> bool {
        !matches!(*self.phase.lock(), Phase::Request)
    }
    /// Notes whether what was to be written waits for the client.
    pub(super) fn set_writing(&self, writing: bool) {
        self.writing.store(writing, Ordering::Relaxed);
    }

    /// Whether what was to be written waits for the client.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.load(Ordering::Relaxed)
    }
}
