//! `gpuaas bench verdict`: how often an experiment between two images says what is not so, and how many
//! nodes it takes to say what is.
//!
//! Samples are drawn, and judged by [`gpuaas_core::experiment`], which experiments use: twelve buckets of
//! random length whose sum is the primary measure, and runs that fail now and then.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_core::experiment::{
    Criteria, FailureCounts, Judge, MIN_SAMPLES, MeasureSamples, judge_failures,
};
use gpuaas_types::experiment::{ExperimentMeasure, FailureVerdict, MeasureVerdict};
use maas_sim::SimRng;
use serde::Serialize;

use crate::arguments::BenchVerdictArgs;

/// Median lengths of the buckets, in seconds.
const BUCKETS: [f64; 12] =
    [20.0, 45.0, 300.0, 15.0, 60.0, 240.0, 180.0, 120.0, 90.0, 200.0, 30.0, 10.0];
/// The bucket that the better image shortens, and by how many seconds.
const SHORTENED: usize = 5;
const SHORTER_SECONDS: f64 = 120.0;
/// Spread of a bucket's logarithm.
const SPREAD: f64 = 0.2;
/// Share of runs that fail.
const FAILURES: f64 = 0.05;
/// Largest sample of an arm, where the sizes are drawn.
const LARGEST: usize = 20;
/// Samples of an arm that the power is told of.
const POWER_SIZES: [usize; 7] = [4, 6, 8, 10, 15, 20, 30];

/// The result of `gpuaas bench verdict`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerdictReport {
    /// Experiments without any difference, and experiments per size with one.
    pub trials: usize,
    /// Share of those without a difference that said there is one, of any measure or of failures.
    pub false_verdict_rate: f64,
    /// Share of those with a difference that said `faster` of the primary measure, by samples of an arm.
    pub power_by_n: BTreeMap<usize, f64>,
    /// Verdicts of experiments with an arm of fewer than four samples.
    pub verdicts_below_four: usize,
    /// What the better image saves of `median_seconds` in the experiments with a difference.
    pub difference_seconds: f64,
    /// Sum of the buckets' medians.
    pub median_seconds: f64,
}

/// Runs the benchmark.
///
/// # Errors
/// When stdout cannot be written.
pub fn run(args: &BenchVerdictArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let report = measure(args.trials, args.seed);
    terminal.data(&if args.json {
        gpuaas_lab::bench::report::json(&report)?
    } else {
        report.table()
    })
}

fn measure(trials: usize, seed: u64) -> VerdictReport {
    let (mut judge, criteria) = (Judge::default(), Criteria::default());
    let mut rng = SimRng::for_name(seed, "experiments without a difference");
    let (mut wrong, mut verdicts_below_four) = (0, 0);
    for _ in 0..trials {
        let [n_a, n_b] = [(); 2].map(|()| 2 + rng.below(LARGEST - 1));
        let (a, b) = (Arm::draw(&mut rng, n_a, 0.0), Arm::draw(&mut rng, n_b, 0.0));
        let said = verdicts(&mut judge, &a, &b, &criteria);
        if n_a.min(n_b) < MIN_SAMPLES {
            verdicts_below_four += said.iter().filter(|one| is_verdict(one)).count();
        }
        let (_, failures) = judge_failures(a.failures(), b.failures(), &criteria);
        let is_wrong = said.iter().any(is_difference) || failures == FailureVerdict::Worse;
        wrong += usize::from(is_wrong);
    }
    let power = |n: usize| {
        let mut rng = SimRng::for_name(seed, &format!("experiments with {n} of an arm"));
        let said = (0..trials).filter(|_| {
            let a = Arm::draw(&mut rng, n, 0.0);
            let b = Arm::draw(&mut rng, n, SHORTER_SECONDS);
            let said = verdicts(&mut judge, &a, &b, &criteria);
            said.first().is_some_and(|one| one.verdict == MeasureVerdict::Faster)
        });
        (n, share(said.count(), trials))
    };
    let power_by_n = POWER_SIZES.map(power).into_iter().collect();
    VerdictReport {
        trials,
        false_verdict_rate: share(wrong, trials),
        power_by_n,
        verdicts_below_four,
        difference_seconds: SHORTER_SECONDS,
        median_seconds: BUCKETS.iter().sum(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of trials")]
fn share(count: usize, of: usize) -> f64 {
    count as f64 / of.max(1) as f64
}

fn is_difference(measure: &ExperimentMeasure) -> bool {
    matches!(measure.verdict, MeasureVerdict::Faster | MeasureVerdict::Slower)
}

fn is_verdict(measure: &ExperimentMeasure) -> bool {
    measure.verdict != MeasureVerdict::InsufficientSample
}

/// The nodes of one image.
#[derive(Debug, Default)]
struct Arm {
    /// Time to active of each run; infinite where it failed.
    totals: Vec<f64>,
    /// The buckets of those that did not fail.
    buckets: [Vec<f64>; BUCKETS.len()],
}

impl Arm {
    /// An arm of `n` runs, in which a bucket is `shorter` seconds shorter.
    fn draw(rng: &mut SimRng, n: usize, shorter: f64) -> Self {
        let mut arm = Self::default();
        for _ in 0..n {
            let mut lengths = BUCKETS.map(|median| median * (SPREAD * normal(rng)).exp());
            lengths[SHORTENED] -= shorter;
            if rng.uniform() < FAILURES {
                arm.totals.push(f64::INFINITY);
                continue;
            }
            arm.totals.push(lengths.iter().sum());
            arm.buckets.iter_mut().zip(lengths).for_each(|(all, length)| all.push(length));
        }
        arm
    }

    fn failures(&self) -> FailureCounts {
        let failed = self.totals.iter().filter(|total| total.is_infinite()).count();
        FailureCounts { runs: self.totals.len(), failed }
    }
}

/// A number of the standard normal distribution (Box and Muller).
fn normal(rng: &mut SimRng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.uniform()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.uniform()).cos()
}

fn verdicts(judge: &mut Judge, a: &Arm, b: &Arm, criteria: &Criteria) -> Vec<ExperimentMeasure> {
    let samples = |name: String, a: &[f64], b: &[f64]| MeasureSamples {
        name,
        a: a.to_vec(),
        b: b.to_vec(),
        paired: false,
    };
    let mut measures = vec![samples("time_to_active".to_owned(), &a.totals, &b.totals)];
    for (number, (a, b)) in a.buckets.iter().zip(&b.buckets).enumerate() {
        measures.push(samples(format!("bucket_{number}"), a, b));
    }
    judge.judge(&measures, criteria, true)
}

impl VerdictReport {
    fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        writeln!(text, "{} experiments without a difference", self.trials).ok();
        writeln!(text, "  false positives       {:.2} %", self.false_verdict_rate * 100.0).ok();
        writeln!(text, "  verdicts below four   {}", self.verdicts_below_four).ok();
        let (saved, all) = (self.difference_seconds, self.median_seconds);
        writeln!(text, "detection rate of a {saved:.0} s improvement over {all:.0} s").ok();
        for (n, power) in &self.power_by_n {
            writeln!(text, "  {n:>3} nodes per arm      {:.1} %", power * 100.0).ok();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_difference_is_seldom_seen_and_a_difference_the_oftener_the_more_nodes() {
        let report = measure(40, 1);
        assert!(report.false_verdict_rate <= 0.05, "{report:?}");
        assert_eq!(report.verdicts_below_four, 0);
        let power: Vec<f64> = report.power_by_n.values().copied().collect();
        assert!(power[0] < 0.6 && power[POWER_SIZES.len() - 1] > 0.8, "{report:?}");
        assert_eq!(report, measure(40, 1), "a seed is a result");
        assert_ne!(report, measure(40, 2));
    }
}
