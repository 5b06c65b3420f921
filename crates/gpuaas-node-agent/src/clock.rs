//! The agent's clock; injected, so that a simulated host runs on a paced clock.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use gpuaas_types::Timestamp;

/// A source of time that can be waited on.
#[async_trait]
pub trait AgentClock: Send + Sync {
    /// Wall-clock time.
    fn now(&self) -> Timestamp;

    /// Seconds since some fixed moment. They never go back, even where [`AgentClock::now`] does.
    fn monotonic_seconds(&self) -> f64;

    /// Returns after `seconds` of this clock; at once when they are not positive.
    async fn sleep(&self, seconds: f64);
}

#[expect(clippy::disallowed_methods, reason = "the agent's one reading of the monotonic clock")]
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The host's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostClock;

#[async_trait]
impl AgentClock for HostClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "the agent's one reading of the real clock")]
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let micros = now.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
        Timestamp::from_micros(micros)
    }

    fn monotonic_seconds(&self) -> f64 {
        BEGIN.elapsed().as_secs_f64()
    }

    async fn sleep(&self, seconds: f64) {
        let duration = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        #[expect(clippy::disallowed_methods, reason = "the agent's one wait on the real clock")]
        tokio::time::sleep(duration).await;
    }
}

/// Growing pauses between attempts that fail, spread so that the hosts of a fleet do not retry
/// together.
#[derive(Debug, Clone)]
pub struct Backoff {
    longest_seconds: f64,
    seed: u64,
    failures: u32,
}

impl Backoff {
    /// Pauses of about 1, 2, 4, ... up to `longest_seconds`, each cut by up to a half; the cuts
    /// follow from `name`.
    #[must_use]
    pub fn new(name: &str, longest_seconds: f64) -> Self {
        let fnv = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
        Self { longest_seconds, seed, failures: 0 }
    }

    /// Restarts with the shortest pause, after an attempt that succeeded.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// The pause after one more failure, in seconds.
    pub fn next_seconds(&mut self) -> f64 {
        let full = f64::from(self.failures.min(30)).exp2().min(self.longest_seconds);
        self.failures = self.failures.saturating_add(1);
        full * (1.0 - 0.5 * self.fraction())
    }

    /// The longest pause, spread like the others, in seconds.
    pub fn longest_seconds(&mut self) -> f64 {
        self.longest_seconds * (1.0 - 0.5 * self.fraction())
    }

    /// The next pseudo-random number of [0, 1) (splitmix64).
    fn fraction(&mut self) -> f64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u32::try_from((z ^ (z >> 31)) >> 32).unwrap_or(0);
        f64::from(high) / 4_294_967_296.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_spread() {
        let mut backoff = Backoff::new("j22u11", 60.0);
        let pauses: Vec<f64> = (0..40).map(|_| backoff.next_seconds()).collect();
        for (n, pause) in pauses.iter().enumerate() {
            let full = 2f64.powi(i32::try_from(n).unwrap()).min(60.0);
            assert!(*pause > full / 2.0 - 1e-9 && *pause <= full, "{n}: {pause}");
        }
        backoff.reset();
        assert!(backoff.next_seconds() <= 1.0);
        assert_ne!(Backoff::new("a", 60.0).next_seconds(), Backoff::new("b", 60.0).next_seconds());
    }
}
