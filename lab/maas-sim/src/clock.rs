//! Clocks of a running simulator. A region takes the time as an argument and has no clock.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

/// The future that [`SimClock::wait_until`] returns.
pub type ClockWait<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Where a running simulator gets its time from.
pub trait SimClock: Send + Sync + 'static {
    /// Simulated microseconds since the Unix epoch.
    fn now_us(&self) -> i64;
    /// The clock that callers sign their requests with, in seconds.
    fn wall_seconds(&self) -> i64;
    /// Returns once `now_us` has reached `at_us`.
    fn wait_until(&self, at_us: i64) -> ClockWait<'_>;
}

/// The simulated clock runs `factor` times as fast as the machine's own, from the moment that it
/// is made. Factor 1 is real time.
#[derive(Debug)]
pub struct PacedSimClock {
    epoch_us: i64,
    factor: f64,
    origin: Instant,
    wall_origin: i64,
}

impl PacedSimClock {
    /// A clock that begins now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the simulator's own clock")]
    pub fn new(factor: f64) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_us = i64::try_from(wall.as_micros()).unwrap_or(i64::MAX);
        Self { epoch_us, factor, origin: Instant::now(), wall_origin: epoch_us }
    }

    /// A clock that begins at a given simulated time.
    #[must_use]
    pub fn starting_at(epoch_us: i64, factor: f64) -> Self {
        Self { epoch_us, ..Self::new(factor) }
    }
}

impl SimClock for PacedSimClock {
    fn now_us(&self) -> i64 {
        self.epoch_us + (self.origin.elapsed().as_secs_f64() * self.factor * 1e6) as i64
    }

    fn wall_seconds(&self) -> i64 {
        self.wall_origin / 1_000_000 + i64::try_from(self.origin.elapsed().as_secs()).unwrap_or(0)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the simulator's own clock")]
    fn wait_until(&self, at_us: i64) -> ClockWait<'_> {
        let left = (at_us - self.now_us()).max(0) as f64 / 1e6 / self.factor.max(1e-9);
        Box::pin(tokio::time::sleep(Duration::from_secs_f64(left.min(1e9))))
    }
}

/// A clock that stands still until it is told to move; for tests.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<Manual>);

#[derive(Debug, Default)]
struct Manual {
    now: AtomicI64,
    moved: Notify,
}

impl ManualClock {
    /// A clock that stands at `now_us`.
    #[must_use]
    pub fn at(now_us: i64) -> Self {
        let clock = Self::default();
        clock.0.now.store(now_us, Ordering::SeqCst);
        clock
    }

    /// Moves the clock on by simulated microseconds, and wakes all waiting tasks.
    pub fn advance(&self, us: i64) {
        self.0.now.fetch_add(us, Ordering::SeqCst);
        self.0.moved.notify_waiters();
    }
}

impl SimClock for ManualClock {
    fn now_us(&self) -> i64 {
        self.0.now.load(Ordering::SeqCst)
    }

    fn wall_seconds(&self) -> i64 {
        self.now_us() / 1_000_000
    }

    fn wait_until(&self, at_us: i64) -> ClockWait<'_> {
        Box::pin(async move {
            loop {
                let moved = self.0.moved.notified();
                if self.now_us() >= at_us {
                    return;
                }
                moved.await;
            }
        })
    }
}
