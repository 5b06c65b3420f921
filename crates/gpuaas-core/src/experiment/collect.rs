//! From the runs of an experiment to the samples of its measures.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_types::Bucket;
use gpuaas_types::experiment::{
    ExperimentConditions, ExperimentFailures, ExperimentMeasure, ExperimentSample, FailureVerdict,
    PrimaryMeasure,
};

use super::failures::{FailureCounts, judge_failures};
use super::judge::{Criteria, Judge, MeasureSamples};

/// A timing that is a sum of buckets.
#[derive(Debug, Clone, Copy)]
pub struct TimingRow {
    /// Its name.
    pub name: &'static str,
    /// What it is the sum of.
    pub buckets: &'static [Bucket],
}

/// Timings of a comparison of images that are no bucket by themselves. Of the seven that count, five
/// are buckets: from the first boot to cloud-init (`first_boot`), site bootstrap (`site_bootstrap`), our
/// own (`node_bootstrap`), enrollment (`enrollment`) and the last confirmation (`confirmation`).
pub const TIMINGS: &[TimingRow] = &[
    TimingRow { name: "maas_deploy", buckets: &[Bucket::ImageDeploy, Bucket::FirstBoot] },
    TimingRow {
        name: "boot_to_enrolled",
        buckets: &[
            Bucket::FirstBoot,
            Bucket::BootstrapFetch,
            Bucket::SiteBootstrap,
            Bucket::NodeBootstrap,
            Bucket::Enrollment,
        ],
    },
];
/// The seventh: from the request for a discovery of slots to the agent's report of them.
pub const SLICE_DISCOVERY: &str = "slice_discovery";

/// Whether two arms may be compared at all: what is unknown is like nothing.
#[must_use]
pub fn are_comparable(a: &ExperimentConditions, b: &ExperimentConditions) -> bool {
    let known = [&a.class, &a.profile, &a.maas_version].iter().all(|text| !text.is_empty());
    known && a == b
}

/// What is said of an experiment whose runs have ended.
#[must_use]
pub fn judge_runs(
    (a, b): (&[ExperimentSample], &[ExperimentSample]),
    primary: PrimaryMeasure,
    paired: bool,
    criteria: &Criteria,
    comparable: bool,
) -> (Vec<ExperimentMeasure>, ExperimentFailures) {
    let measures: Vec<MeasureSamples> = names(primary)
        .into_iter()
        .map(|name| {
            let is_primary = name == primary.as_str();
            let of_a = samples(a, &name, is_primary);
            let of_b = samples(b, &name, is_primary);
            if paired { pairs(&name, &of_a, &of_b) } else { unpaired(&name, of_a, of_b) }
        })
        .collect();
    let judged = Judge::default().judge(&measures, criteria, comparable);
    (judged, failures(a, b, criteria, comparable))
}

/// Names of the measures, the primary one first.
fn names(primary: PrimaryMeasure) -> Vec<String> {
    let mut names = vec![primary.as_str().to_owned()];
    let all = PrimaryMeasure::ALL.iter().filter(|one| **one != primary);
    names.extend(all.map(|one| one.as_str().to_owned()));
    names.extend(Bucket::ONBOARDING.iter().map(|bucket| bucket.as_str().to_owned()));
    names.extend(TIMINGS.iter().map(|row| row.name.to_owned()));
    names.push(SLICE_DISCOVERY.to_owned());
    names
}

/// Seconds of a measure by host. In the primary one a run that failed is infinitely long; in the others
/// it does not count, since they never ended.
fn samples<'a>(
    arm: &'a [ExperimentSample],
    name: &str,
    is_primary: bool,
) -> BTreeMap<&'a str, f64> {
    let seconds = |run: &'a ExperimentSample| {
        if run.failed {
            return is_primary.then_some((run.host.as_str(), f64::INFINITY));
        }
        sample_value(run, name).map(|seconds| (run.host.as_str(), seconds))
    };
    arm.iter().filter_map(seconds).collect()
}

/// Seconds of a run by the name of a measure; none: it has none.
#[must_use]
pub fn sample_value(run: &ExperimentSample, name: &str) -> Option<f64> {
    if let Some(row) = TIMINGS.iter().find(|row| row.name == name) {
        return row.buckets.iter().map(|bucket| run.buckets.get(bucket.as_str())).sum();
    }
    match name {
        SLICE_DISCOVERY => run.slice_discovery,
        _ if name == PrimaryMeasure::TimeToActive.as_str() => run.time_to_active,
        _ if name == PrimaryMeasure::TimeToSliceReady.as_str() => run.time_to_slice_ready,
        _ => run.buckets.get(name).copied(),
    }
}

fn unpaired(name: &str, a: BTreeMap<&str, f64>, b: BTreeMap<&str, f64>) -> MeasureSamples {
    let (a, b) = (a.into_values().collect(), b.into_values().collect());
    MeasureSamples { name: name.to_owned(), a, b, paired: false }
}

/// Of hosts that have both: half a pair says nothing.
fn pairs(name: &str, a: &BTreeMap<&str, f64>, b: &BTreeMap<&str, f64>) -> MeasureSamples {
    let both: BTreeSet<&str> = a.keys().filter(|host| b.contains_key(*host)).copied().collect();
    let of =
        |arm: &BTreeMap<&str, f64>| both.iter().filter_map(|host| arm.get(host)).copied().collect();
    MeasureSamples { name: name.to_owned(), a: of(a), b: of(b), paired: true }
}

fn failures(
    a: &[ExperimentSample],
    b: &[ExperimentSample],
    criteria: &Criteria,
    comparable: bool,
) -> ExperimentFailures {
    let counts = |arm: &[ExperimentSample]| FailureCounts {
        runs: arm.len(),
        failed: arm.iter().filter(|run| run.failed).count(),
    };
    let (p, verdict) = judge_failures(counts(a), counts(b), criteria);
    let mut classes: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for (at, arm) in [a, b].into_iter().enumerate() {
        for run in arm.iter().filter(|run| run.failed) {
            let class = if run.failure_class.is_empty() { "unknown" } else { &run.failure_class };
            classes.entry(class.to_owned()).or_default()[at] += 1;
        }
    }
    let said = |arm: &[ExperimentSample]| arm.iter().map(|run| run.interventions).sum();
    let verdict = if comparable { verdict } else { FailureVerdict::NotComparable };
    ExperimentFailures { p, verdict, classes, interventions: [said(a), said(b)] }
}

#[cfg(test)]
mod tests {
    use gpuaas_types::experiment::MeasureVerdict;

    use super::*;

    fn run(host: u32, seconds: f64) -> ExperimentSample {
        let buckets = Bucket::ONBOARDING.iter().map(|bucket| (bucket.as_str().to_owned(), seconds));
        ExperimentSample {
            host: format!("h{host}"),
            buckets: buckets.collect(),
            time_to_active: Some(seconds * 12.0),
            time_to_slice_ready: Some(seconds * 12.0 + 90.0),
            slice_discovery: Some(5.0),
            ..ExperimentSample::default()
        }
    }

    fn arm(count: u32, seconds: f64) -> Vec<ExperimentSample> {
        (0..count).map(|n| run(n, seconds + f64::from(n) / 1000.0)).collect()
    }

    fn judged(
        a: &[ExperimentSample],
        b: &[ExperimentSample],
        paired: bool,
    ) -> Vec<ExperimentMeasure> {
        let primary = PrimaryMeasure::TimeToActive;
        judge_runs((a, b), primary, paired, &Criteria::default(), true).0
    }

    #[test]
    fn every_measure_is_there_once_the_primary_first() {
        let found = judged(&arm(8, 10.0), &arm(8, 20.0), false);
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(
            (names.len(), names[0], names[1]),
            (17, "time_to_active", "time_to_slice_ready")
        );
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 17);
        assert_eq!(found[0].verdict, MeasureVerdict::Slower);
        let of = |name: &str| found.iter().find(|one| one.name == name).unwrap();
        assert!((of("boot_to_enrolled").p50_a.unwrap() - 50.0).abs() < 0.1);
        assert!((of("maas_deploy").p50_b.unwrap() - 40.0).abs() < 0.1);
        assert!((of("slice_discovery").p50_a.unwrap() - 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_failed_run_counts_in_the_primary_measure_and_in_no_bucket() {
        let (a, mut b) = (arm(6, 10.0), arm(6, 10.0));
        b[0].failed = true;
        b[0].failure_class = "curtin_kernel".to_owned();
        b[1].interventions = 2;
        let (found, failures) =
            judge_runs((&a, &b), PrimaryMeasure::TimeToActive, false, &Criteria::default(), true);
        assert_eq!((found[0].n_b, found[0].shift_seconds), (6, None));
        assert_eq!(found[2].n_b, 5);
        assert_eq!(failures.verdict, FailureVerdict::NoEvidenceOfWorse);
        assert_eq!(failures.classes["curtin_kernel"], [0, 1]);
        assert_eq!(failures.interventions, [0, 2]);
    }

    #[test]
    fn pairs_are_of_hosts_that_have_both() {
        let (a, b) = (arm(7, 10.0), arm(6, 20.0));
        let found = judged(&a, &b, true);
        assert_eq!((found[0].n_a, found[0].n_b), (6, 6));
    }

    #[test]
    fn what_is_unknown_is_comparable_with_nothing() {
        let known = ExperimentConditions {
            class: "h200".to_owned(),
            profile: "p".to_owned(),
            maas_version: "3.7.3".to_owned(),
        };
        assert!(are_comparable(&known, &known.clone()));
        let unknown = ExperimentConditions::default();
        assert!(!are_comparable(&unknown, &unknown.clone()));
        let other = ExperimentConditions { maas_version: "3.6".to_owned(), ..known.clone() };
        assert!(!are_comparable(&known, &other));
        let (a, b) = (arm(9, 10.0), arm(9, 99.0));
        let primary = PrimaryMeasure::TimeToActive;
        let (found, failures) = judge_runs((&a, &b), primary, false, &Criteria::default(), false);
        assert_eq!(failures.verdict, FailureVerdict::NotComparable);
        assert!(found.iter().all(|one| one.verdict == MeasureVerdict::NotComparable));
    }
}
