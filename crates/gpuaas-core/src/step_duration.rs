//! How long a step may take, learned from runs that ended, and when a run is slow or stuck.
//!
//! A step's row in [`gpuaas_types::steps`] says how long it takes at most on hardware that nobody has
//! seen yet. Hardware differs: a GPU server with terabytes of memory trains it for ten minutes at
//! each boot, a small one boots in one. So what runs of the same kind took before is the better
//! measure once there is enough of it, and the row's word stands until then.
//!
//! # Which runs are alike
//! Runs of the same kind, at the same site, of the same profile: a profile stands for a class of
//! hardware, and it is known from the request on, while what the machine is made of is not before
//! it was commissioned. The site belongs to it because images and packages come over its network.
//! Among those, runs with the same image are the closest. The order is: the profile's runs with
//! the image; the profile's runs with any image, such as after a change of image; the row.
//!
//! # What counts as a sample
//! A visit of the step that came to its regular end, one per run. A visit in which the run was
//! parked measures a person, one that waited for its place in a batch measures the batch, and one
//! that was followed by a step of [`STEPS_BACK`] measures a failure: none of them counts.

use std::collections::BTreeMap;

use gpuaas_types::api::{EstimateBasis, EstimateSource, Lateness};
use gpuaas_types::{Step, Timestamp};

/// Runs below which their times say nothing of the next one.
pub const MIN_SAMPLES: usize = 8;
/// Runs looked at, the latest ones: hardware and networks change.
pub const MAX_RUNS: usize = 200;
/// Steps that undo another; what came before them did not come to its regular end.
pub const STEPS_BACK: [Step; 2] = [Step::ReleaseForRetry, Step::ReleaseForCancel];
/// What is expected is this much above what 95 of 100 runs took.
const MARGIN: f64 = 1.5;
/// Steps that took no time at all still get this many seconds.
const SHORTEST_SECONDS: f64 = 10.0;
/// Past this multiple of the expected time, a run is stuck and no longer only slow.
const STUCK_FACTOR: f64 = 2.0;
/// Within this part of the time to its deadline, a late run is stuck.
const LAST_PART: f64 = 0.1;

/// Seconds that earlier runs spent in each step.
pub type StepTimes = BTreeMap<Step, Vec<f64>>;

/// How long a step is expected to take, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpectedDuration {
    /// Seconds from the beginning of the step.
    pub seconds: f64,
    /// How that is known.
    pub from: EstimateSource,
}

impl ExpectedDuration {
    /// What the table says of a step.
    #[must_use]
    pub fn from_table(step: Step) -> Self {
        Self {
            seconds: f64::from(step.row().expected_seconds),
            from: EstimateSource { basis: EstimateBasis::Table, runs: 0 },
        }
    }

    fn learned(step: Step, samples: &[f64], basis: EstimateBasis) -> Self {
        let row = step.row();
        let seconds = expected_seconds(samples, f64::from(row.expected_seconds));
        // Past its deadline a run is parked, whatever others took before the deadline was set.
        let seconds = seconds.min(f64::from(row.deadline_seconds));
        let runs = u32::try_from(samples.len()).unwrap_or(u32::MAX);
        Self { seconds, from: EstimateSource { basis, runs } }
    }
}

/// What runs of one class have taught of every step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepDurationEstimate(BTreeMap<Step, ExpectedDuration>);

impl StepDurationEstimate {
    /// Learns from runs with the same image, and where these are too few, from those with any.
    #[must_use]
    pub fn learn(with_image: &StepTimes, with_any: &StepTimes) -> Self {
        let learned = Step::ALL.iter().filter_map(|step| {
            [(with_image, EstimateBasis::ProfileAndImage), (with_any, EstimateBasis::Profile)]
                .into_iter()
                .filter_map(|(times, basis)| Some((times.get(step)?, basis)))
                .find(|(samples, _)| samples.len() >= MIN_SAMPLES)
                .map(|(samples, basis)| (*step, ExpectedDuration::learned(*step, samples, basis)))
        });
        Self(learned.collect())
    }

    /// What is expected of a step.
    #[must_use]
    pub fn expected(&self, step: Step) -> ExpectedDuration {
        self.0.get(&step).copied().unwrap_or_else(|| ExpectedDuration::from_table(step))
    }
}

/// What an expected time rests on, in words.
#[must_use]
pub fn basis_as_text(from: EstimateSource) -> String {
    let of = match from.basis {
        EstimateBasis::Table => return "table".to_owned(),
        EstimateBasis::Profile => "this profile",
        EstimateBasis::ProfileAndImage => "this profile and image",
    };
    format!("{MARGIN} x p95 of {} runs of {of}", from.runs)
}

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
pub fn lateness(
    since: Timestamp,
    expected_by: Timestamp,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Option<Lateness> {
    if now <= expected_by {
        return None;
    }
    let expected = expected_by.seconds_since(since);
    let near_deadline = deadline.is_some_and(|deadline| {
        deadline.seconds_since(now) <= deadline.seconds_since(since) * LAST_PART
    });
    if near_deadline || now.seconds_since(since) > expected * STUCK_FACTOR {
        Some(Lateness::Stuck)
    } else {
        Some(Lateness::Slow)
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
    fn the_closest_runs_that_are_enough_are_taken() {
        let times = |step, runs: usize| StepTimes::from([(step, vec![100.0; runs])]);
        let of = |image: usize, any: usize| {
            let any = times(Step::Commission, any);
            StepDurationEstimate::learn(&times(Step::Commission, image), &any)
                .expected(Step::Commission)
        };
        let table = ExpectedDuration::from_table(Step::Commission);
        assert_eq!(table.seconds, 1800.0);
        assert_eq!(of(7, 7), table);
        assert_eq!(
            (of(8, 20).seconds, basis_as_text(of(8, 20).from)),
            (150.0, "1.5 x p95 of 8 runs of this profile and image".to_owned())
        );
        assert_eq!(basis_as_text(of(7, 20).from), "1.5 x p95 of 20 runs of this profile");
        assert_eq!(basis_as_text(of(0, 0).from), "table");
        assert_eq!(
            StepDurationEstimate::default().expected(Step::Deploy),
            ExpectedDuration::from_table(Step::Deploy)
        );
    }

    #[test]
    fn nothing_is_expected_later_than_its_deadline() {
        let times = StepTimes::from([(Step::Deploy, vec![9000.0; MIN_SAMPLES])]);
        let expected =
            StepDurationEstimate::learn(&times, &StepTimes::new()).expected(Step::Deploy);
        assert_eq!(expected.seconds, f64::from(Step::Deploy.row().deadline_seconds));
    }

    #[test]
    fn slow_then_stuck() {
        let marked = |now| lateness(at(100.0), at(200.0), Some(at(1100.0)), at(now));
        assert_eq!(marked(200.0), None);
        assert_eq!(marked(201.0), Some(Lateness::Slow));
        assert_eq!(marked(301.0), Some(Lateness::Stuck));
        let long = |now| lateness(at(0.0), at(900.0), Some(at(1000.0)), at(now));
        assert_eq!((long(899.0), long(901.0)), (None, Some(Lateness::Stuck)));
        assert_eq!(lateness(at(0.0), at(10.0), None, at(15.0)), Some(Lateness::Slow));
    }
}
