//! How slow this machine is just now, so that time limits of tests fit it.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// Rounds of the measured loop.
const ROUNDS: u64 = 60_000_000;
/// What the loop takes on the reference machine: two idle cores of a server of 2023, with this
/// program built without optimisation.
const REFERENCE: Duration = Duration::from_millis(600);
/// Beyond this a machine is not slow but stuck.
const MOST: f64 = 20.0;

/// How many times slower than the reference this machine is, with everything else that runs on it;
/// at least 1. Takes about a second.
pub(crate) fn slowness() -> f64 {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let slowest = thread::scope(|scope| {
        let running: Vec<_> = (0..cores).map(|_| scope.spawn(measure)).collect();
        running.into_iter().filter_map(|one| one.join().ok()).max()
    });
    times(slowest.unwrap_or(REFERENCE))
}

fn times(measured: Duration) -> f64 {
    let times = measured.as_secs_f64() / REFERENCE.as_secs_f64();
    (times.clamp(1.0, MOST) * 10.0).round() / 10.0
}

#[expect(clippy::disallowed_methods, reason = "the clock is what is measured with")]
fn measure() -> Duration {
    let started = Instant::now();
    let mut state = 1_u64;
    for round in 0..ROUNDS {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round));
    }
    black_box(state);
    started.elapsed()
}

/// The runner's configuration with every time limit scaled.
pub(crate) fn scale_limits(config: &str, slowness: f64) -> String {
    let scale = |line: &str| -> Option<String> {
        let (before, rest) = line.split_once("period = \"")?;
        let (seconds, after) = rest.split_once("s\"")?;
        let seconds = (seconds.parse::<f64>().ok()? * slowness).round();
        Some(format!("{before}period = \"{seconds}s\"{after}"))
    };
    config.lines().map(|line| scale(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_machine_keeps_the_limits_and_a_slow_one_stretches_them() {
        assert_eq!((times(REFERENCE / 2), times(REFERENCE * 2)), (1.0, 2.0));
        assert_eq!(times(REFERENCE * 1000), MOST);
        let config = "a = 1\nslow-timeout = { period = \"60s\", terminate-after = 3 }\n";
        assert_eq!(scale_limits(config, 1.0), config);
        let scaled = "a = 1\nslow-timeout = { period = \"90s\", terminate-after = 3 }\n";
        assert_eq!(scale_limits(config, 1.5), scaled);
    }

    /// A filter for a module that was renamed would match nothing, and say nothing.
    #[test]
    fn every_module_of_the_configuration_exists() {
        let config = include_str!("../../.config/nextest.toml");
        let filters = config.lines().filter_map(|line| line.split_once("test(/^"));
        let modules: Vec<&str> = filters.filter_map(|(_, rest)| rest.split("::").next()).collect();
        assert!(!modules.is_empty());
        for module in modules {
            let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/gpuaas-systems/tests/it");
            let path = std::path::Path::new(tests).join(module);
            assert!(path.is_dir() || path.with_extension("rs").is_file(), "{module}");
        }
    }

    #[test]
    fn every_limit_of_the_configuration_is_scaled() {
        let config = include_str!("../../.config/nextest.toml");
        let limits = config.lines().filter(|line| line.starts_with("slow-timeout"));
        let doubled = scale_limits(config, 2.0);
        let changed = config.lines().zip(doubled.lines()).filter(|(one, two)| one != two);
        assert_eq!(changed.count(), limits.count());
    }
}
