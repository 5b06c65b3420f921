//! Times of runs that metrics show, and the classes by length that they are counted in.

use std::collections::BTreeMap;

use gpuaas_types::api::StepSpan;
use gpuaas_types::{Bucket, RunKind, Timestamp};

/// Upper bounds of the classes, in seconds; what is longer is in a class of its own.
pub const RUN_TIME_BOUNDS: [u32; 14] =
    [1, 10, 30, 60, 120, 300, 600, 900, 1_200, 1_800, 3_600, 7_200, 14_400, 86_400];

/// What is measured of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunTime {
    /// From the request to the node's being active.
    Active,
    /// From the request to the first word of the agent that the gate `slice_ready` is open.
    SliceReady,
    /// What it spent in a bucket.
    Bucket(Bucket),
}

impl RunTime {
    /// The word of the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::SliceReady => "slice_ready",
            Self::Bucket(bucket) => bucket.as_str(),
        }
    }

    /// The value of such a word; none: it is of a later version.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "active" => Some(Self::Active),
            "slice_ready" => Some(Self::SliceReady),
            bucket => bucket.parse().ok().map(Self::Bucket),
        }
    }
}

/// The times, in seconds, of a run that succeeded: each bucket that it passed through and, where it
/// deploys a system, the whole of it.
#[must_use]
pub fn times_of_run(kind: RunKind, spans: &[StepSpan], ended_at: Timestamp) -> Vec<(RunTime, f64)> {
    let mut buckets: BTreeMap<Bucket, f64> = BTreeMap::new();
    for span in spans {
        let until = span.until.unwrap_or(ended_at);
        *buckets.entry(span.step.row().bucket).or_default() += until.seconds_since(span.from);
    }
    let deploys = matches!(kind, RunKind::Onboard | RunKind::Reimage);
    let whole = spans.first().filter(|_| deploys);
    let whole = whole.map(|first| (RunTime::Active, ended_at.seconds_since(first.from)));
    let buckets = buckets.into_iter().map(|(bucket, seconds)| (RunTime::Bucket(bucket), seconds));
    whole.into_iter().chain(buckets).collect()
}

/// The class of a length: the least bound that it does not exceed; none: it is longer than all.
#[must_use]
pub fn class_of(seconds: f64) -> Option<u32> {
    RUN_TIME_BOUNDS.into_iter().find(|bound| seconds <= f64::from(*bound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_types::Step;

    fn span(step: Step, from: i64, until: Option<i64>) -> StepSpan {
        let at = |seconds| Timestamp::from_micros(seconds * 1_000_000);
        StepSpan { step, from: at(from), until: until.map(at) }
    }

    #[test]
    fn a_run_has_the_buckets_that_it_passed_through_and_its_whole() {
        let spans = [
            span(Step::Accept, 0, Some(1)),
            span(Step::PxePreflight, 1, Some(4)),
            span(Step::PrepareStorage, 4, Some(9)),
            span(Step::Deploy, 9, Some(100)),
            span(Step::Confirmation, 100, None),
        ];
        let times = times_of_run(RunKind::Onboard, &spans, Timestamp::from_micros(120_000_000));
        let expected = [
            (RunTime::Active, 120.0),
            (RunTime::Bucket(Bucket::Accept), 1.0),
            (RunTime::Bucket(Bucket::ReadyWait), 8.0),
            (RunTime::Bucket(Bucket::ImageDeploy), 91.0),
            (RunTime::Bucket(Bucket::Confirmation), 20.0),
        ];
        assert_eq!(times, expected);
        let sum: f64 = times.iter().skip(1).map(|(_, seconds)| seconds).sum();
        assert!((sum - 120.0).abs() < 1e-9, "the buckets of a run sum to its whole");
    }

    #[test]
    fn a_run_that_deploys_nothing_makes_nothing_active() {
        let spans = [span(Step::Drain, 0, Some(2)), span(Step::AgentCleanup, 2, None)];
        let times = times_of_run(RunKind::SoftReset, &spans, Timestamp::from_micros(5_000_000));
        assert_eq!(times, [(RunTime::Bucket(Bucket::Leaving), 5.0)]);
    }

    #[test]
    fn a_bound_belongs_to_its_class() {
        assert_eq!(class_of(0.0), Some(1));
        assert_eq!(class_of(1.0), Some(1));
        assert_eq!(class_of(1.000_001), Some(10));
        assert_eq!(class_of(86_400.0), Some(86_400));
        assert_eq!(class_of(86_400.5), None);
    }

    #[test]
    fn words_are_read_back() {
        let buckets = Bucket::ALL.iter().copied().map(RunTime::Bucket);
        for time in [RunTime::Active, RunTime::SliceReady].into_iter().chain(buckets) {
            assert_eq!(RunTime::parse(time.as_str()), Some(time));
        }
        assert_eq!(RunTime::parse("someday"), None);
    }
}
