//! The random tree: one stream per machine, seeded from the region's seed and the machine's name.
//!
//! A single stream for the whole region would be simpler. But then one more machine, or one more
//! request, would shift every later draw, and two runs could not be compared. With a stream per
//! name a machine behaves the same in a fleet of 3 and in a fleet of 3,000.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest as _, Sha256};

/// A stream of random numbers that seed and name determine.
#[derive(Debug, Clone)]
pub struct SimRng(ChaCha8Rng);

impl SimRng {
    /// The stream of `name` under `seed`.
    #[must_use]
    pub fn for_name(seed: u64, name: &str) -> Self {
        let digest =
            Sha256::new().chain_update(seed.to_be_bytes()).chain_update(name.as_bytes()).finalize();
        let mut key = [0_u8; 32];
        key.copy_from_slice(&digest);
        Self(ChaCha8Rng::from_seed(key))
    }

    /// Uniform in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        self.0.random::<f64>()
    }

    /// Uniform in `0..bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { self.0.random_range(0..bound) }
    }

    /// Six letters as MAAS draws a `system_id`.
    pub fn system_id(&mut self) -> String {
        // MAAS leaves out letters that are easily confused.
        const LETTERS: &[u8] = b"abcdefghkmnpqrstwxy34678";
        (0..6).map(|_| LETTERS[self.below(LETTERS.len())] as char).collect()
    }

    /// A version 4 UUID as text.
    pub fn uuid(&mut self) -> String {
        let mut b: [u8; 16] = self.0.random();
        b[6] = (b[6] & 0x0f) | 0x40;
        b[8] = (b[8] & 0x3f) | 0x80;
        let hex = hex::encode(b);
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// One draw of a duration, in microseconds, before scaling.
    pub(crate) fn draw_duration_us(&mut self, span: LogNormal) -> i64 {
        // A log-normal: hardware is seldom faster than usual and sometimes much slower.
        let (u1, u2) = (self.uniform().max(f64::MIN_POSITIVE), self.uniform());
        let normal = (-2.0 * u1.ln()).sqrt() * (std::f64::consts::TAU * u2).cos();
        let seconds = span.median_seconds * (span.spread * normal.clamp(-3.0, 3.0)).exp();
        (seconds * 1e6) as i64
    }
}

/// A log-normal duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogNormal {
    /// Half of the draws are shorter.
    pub median_seconds: f64,
    /// Standard deviation of the logarithm; 0 for a constant.
    pub spread: f64,
}

impl LogNormal {
    /// A duration with this median and spread.
    #[must_use]
    pub const fn new(median_seconds: f64, spread: f64) -> Self {
        Self { median_seconds, spread }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_independent_and_repeatable() {
        let draw = |name: &str| SimRng::for_name(7, name).system_id();
        assert_eq!(draw("a"), draw("a"));
        assert_ne!(draw("a"), draw("b"));
        let mut c = SimRng::for_name(7, "x");
        let median = LogNormal::new(100.0, 0.1);
        let mut draws: Vec<i64> = (0..501).map(|_| c.draw_duration_us(median)).collect();
        draws.sort_unstable();
        assert!((95_000_000..105_000_000).contains(&draws[250]), "{}", draws[250]);
    }
}
