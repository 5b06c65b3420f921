//! The timing buckets as a partition of a run's wall time.
//!
//! A run is in exactly one step at each instant and a step belongs to exactly one bucket, so the
//! buckets sum to the wall clock by construction: they are sums over the step spans, and the
//! spans touch.

use std::collections::BTreeMap;

use gpuaas_types::api::StepSpan;
use gpuaas_types::{Bucket, Timestamp};

/// Seconds per bucket, from the spans of a run: the twelve of the way to active always, the one of
/// leaving where the run spent time in it. An open span ends at `now`.
#[must_use]
pub fn seconds_per_bucket(spans: &[StepSpan], now: Timestamp) -> BTreeMap<Bucket, f64> {
    let mut seconds: BTreeMap<Bucket, f64> = Bucket::ONBOARDING.iter().map(|b| (*b, 0.0)).collect();
    for span in spans {
        let until = span.until.unwrap_or(now);
        let sum = seconds.entry(span.step.row().bucket).or_insert(0.0);
        *sum += until.seconds_since(span.from);
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_types::Step;

    #[test]
    fn buckets_sum_to_the_wall_clock() {
        let at = Timestamp::from_micros;
        let spans = [
            StepSpan { step: Step::Accept, from: at(0), until: Some(at(1_500_000)) },
            StepSpan { step: Step::Discover, from: at(1_500_000), until: Some(at(4_000_000)) },
            StepSpan { step: Step::PxePreflight, from: at(4_000_000), until: Some(at(4_000_001)) },
            StepSpan { step: Step::PrepareStorage, from: at(4_000_001), until: None },
        ];
        let buckets = seconds_per_bucket(&spans, at(10_000_000));
        assert_eq!(buckets.len(), 12);
        assert!((buckets.values().sum::<f64>() - 10.0).abs() < 1e-9);
        assert!((buckets[&Bucket::ReadyWait] - 6.0).abs() < 1e-9);
    }
}
