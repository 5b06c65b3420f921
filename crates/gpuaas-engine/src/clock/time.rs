//! Time, injected. Nothing else in the workspace asks the operating system what time it is.
//!
//! A paced clock runs `factor` times as fast as the wall, from an epoch that two processes can
//! share: a control plane and a simulator on the same epoch and factor agree on every moment.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use gpuaas_types::Timestamp;

/// A source of time that can be waited on.
#[async_trait]
pub trait Clock: Send + Sync {
    /// The present moment.
    fn now(&self) -> Timestamp;

    /// Returns when `now()` has reached `at`.
    async fn sleep_until(&self, at: Timestamp);

    /// How many seconds of this clock pass per second of wall time.
    fn factor(&self) -> f64 {
        1.0
    }
}

/// Microseconds since the Unix epoch by the operating system.
#[must_use]
pub fn wall_micros() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "this is the one room where time is read")]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}

pub(crate) async fn sleep_wall(duration: Duration) {
    #[expect(clippy::disallowed_methods, reason = "this is the one room where time is waited for")]
    tokio::time::sleep(duration).await;
}

/// The wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealClock;

#[async_trait]
impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(wall_micros())
    }

    async fn sleep_until(&self, at: Timestamp) {
        let micros = at.as_micros().saturating_sub(wall_micros());
        if let Ok(micros @ 1..) = u64::try_from(micros) {
            sleep_wall(Duration::from_micros(micros)).await;
        }
    }
}

/// A clock that runs `factor` times as fast as the wall from `epoch` on.
#[derive(Debug, Clone, Copy)]
pub struct PacedClock {
    epoch: Timestamp,
    factor: f64,
}

impl PacedClock {
    /// A clock that agreed with the wall at `epoch` and runs `factor` times as fast since.
    #[must_use]
    pub fn new(epoch: Timestamp, factor: f64) -> Self {
        Self { epoch, factor: factor.max(1e-3) }
    }
}

#[async_trait]
impl Clock for PacedClock {
    fn now(&self) -> Timestamp {
        let elapsed = Timestamp::from_micros(wall_micros()).seconds_since(self.epoch);
        self.epoch.plus_seconds(elapsed * self.factor)
    }

    async fn sleep_until(&self, at: Timestamp) {
        let seconds = at.seconds_since(self.now()) / self.factor;
        if seconds > 0.0 {
            sleep_wall(Duration::from_secs_f64(seconds.min(1e9))).await;
        }
    }

    fn factor(&self) -> f64 {
        self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_paced_clock_runs_ahead_of_the_wall() {
        let clock = PacedClock::new(RealClock.now(), 1000.0);
        let begin = clock.now();
        clock.sleep_until(begin.plus_seconds(20.0)).await;
        assert!(clock.now() >= begin.plus_seconds(20.0));
    }
}
