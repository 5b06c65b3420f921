//! How long a step may take, learned from runs that ended, and when a run is slow or stuck.
//!
//! A step's row in [`crate::steps`] says how long it takes at most on hardware that nobody has
//! seen yet. Hardware differs: a GPU server with terabytes of memory trains it for ten minutes at
//! each boot, a small one boots in one. So what runs of the same kind took before is the better
//! measure once there is enough of it, and the row's word stands until then.

use gpuaas_types::Timestamp;
use gpuaas_types::api::Mark;

/// Runs below which their times say nothing of the next one.
pub const MIN_SAMPLES: usize = 8;
/// What is expected is this much above what 95 of 100 runs took.
const MARGIN: f64 = 1.5;
/// Steps that took no time at all still get this many seconds.
const SHORTEST_SECONDS: f64 = 10.0;
/// Past this multiple of the expected time, a run is stuck and no longer only slow.
const STUCK_FACTOR: f64 = 2.0;
/// Within this part of the time to its deadline, a late run is stuck.
const LAST_PART: f64 = 0.1;

/// Seconds within which a step is expected to end: one and a half times what 95 of 100 earlier
/// runs took, or `fallback` where fewer than [`MIN_SAMPLES`] are known.
#[must_use]
pub fn expected_seconds(samples: &[f64], fallback: f64) -> f64 {
    if samples.len() < MIN_SAMPLES {
        return fallback;
    }
    (percentile(samples, 95) * MARGIN).max(SHORTEST_SECONDS)
}

/// The smallest sample that `percent` of 100 samples do not exceed (nearest rank); 0 for none.
#[must_use]
pub fn percentile(samples: &[f64], percent: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

/// Whether something that began at `since` is late: slow past `expected_by`, stuck past twice the
/// expected time or shortly before its deadline.
#[must_use]
pub fn mark(
    since: Timestamp,
    expected_by: Timestamp,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Option<Mark> {
    if now <= expected_by {
        return None;
    }
    let expected = expected_by.seconds_since(since);
    let near_deadline = deadline.is_some_and(|deadline| {
        deadline.seconds_since(now) <= deadline.seconds_since(since) * LAST_PART
    });
    if near_deadline || now.seconds_since(since) > expected * STUCK_FACTOR {
        Some(Mark::Stuck)
    } else {
        Some(Mark::Slow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::EPOCH.plus_seconds(seconds)
    }

    #[test]
    fn few_runs_teach_nothing() {
        assert_eq!(expected_seconds(&[], 1800.0), 1800.0);
        assert_eq!(expected_seconds(&[5.0; MIN_SAMPLES - 1], 1800.0), 1800.0);
        assert_eq!(expected_seconds(&[60.0; MIN_SAMPLES], 1800.0), 90.0);
        assert_eq!(expected_seconds(&[0.0; MIN_SAMPLES], 1800.0), SHORTEST_SECONDS);
    }

    #[test]
    fn one_outlier_in_a_hundred_does_not_move_what_is_expected() {
        let mut samples: Vec<f64> = (1..=100).map(f64::from).collect();
        samples[0] = 9000.0;
        assert_eq!(percentile(&samples, 95), 96.0);
        assert_eq!(percentile(&samples, 50), 51.0);
        assert_eq!(percentile(&[], 95), 0.0);
        assert_eq!(expected_seconds(&samples, 1.0), 144.0);
    }

    #[test]
    fn slow_then_stuck() {
        let marked = |now| mark(at(100.0), at(200.0), Some(at(1100.0)), at(now));
        assert_eq!(marked(200.0), None);
        assert_eq!(marked(201.0), Some(Mark::Slow));
        assert_eq!(marked(301.0), Some(Mark::Stuck));
        let long = |now| mark(at(0.0), at(900.0), Some(at(1000.0)), at(now));
        assert_eq!((long(899.0), long(901.0)), (None, Some(Mark::Stuck)));
        assert_eq!(mark(at(0.0), at(10.0), None, at(15.0)), Some(Mark::Slow));
    }
}
