//! Verdicts: which differences the samples of an experiment carry.

use gpuaas_types::experiment::{ExactTest, ExperimentMeasure, MeasureVerdict};

use super::rank_sum::{self, UntiedDistributions};
use super::{holm, signed_rank};
use crate::step_duration::percentile;

/// Samples of an arm below which nothing is ever said.
pub const MIN_SAMPLES: usize = 4;
/// Samples of an arm that an exact test still takes.
pub const MAX_SAMPLES: usize = 100;
/// Confidence of intervals.
const CONFIDENCE: f64 = 0.95;

/// By what is judged. What is tested, and how often, is fixed before the experiment begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Criteria {
    /// Chance that an experiment without any difference says there is one, at most.
    pub alpha: f64,
    /// The part of it that the primary measure has.
    pub primary_share: f64,
    /// The part of it that failures have; the other measures share the rest.
    pub failure_share: f64,
    /// Differences in seconds that do not matter.
    pub margin_seconds: f64,
    /// How often the experiment is judged, this time included: each look has its part of `alpha`.
    pub looks: u32,
}

impl Default for Criteria {
    /// 5 %, three fifths of it for the primary measure (what four of an arm can reach), one for failures,
    /// one for the other measures; 30 seconds; one look.
    fn default() -> Self {
        let (alpha, primary_share, failure_share) = (0.05, 0.6, 0.2);
        Self { alpha, primary_share, failure_share, margin_seconds: 30.0, looks: 1 }
    }
}

/// Samples of one measure, in seconds; infinite where the run failed.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasureSamples {
    /// Such as `time_to_active` or a timing bucket.
    pub name: String,
    /// Those of image A, at most [`MAX_SAMPLES`].
    pub a: Vec<f64>,
    /// Those of image B, at most [`MAX_SAMPLES`].
    pub b: Vec<f64>,
    /// Whether the samples at one index are of one host.
    pub paired: bool,
}

/// Judges samples. It keeps what many samples of the same sizes share.
#[derive(Debug, Default)]
pub struct Judge(UntiedDistributions);

impl Judge {
    /// Judges the measures, the primary one first. `comparable` says whether the arms have the same class
    /// of machine, profile and version of MAAS.
    #[must_use]
    pub fn judge(
        &mut self,
        measures: &[MeasureSamples],
        criteria: &Criteria,
        comparable: bool,
    ) -> Vec<ExperimentMeasure> {
        let judged = measures.iter().map(|samples| Judged::new(samples, &mut self.0)).collect();
        verdicts(judged, criteria, comparable)
    }
}

fn verdicts(
    mut judged: Vec<Judged>,
    criteria: &Criteria,
    comparable: bool,
) -> Vec<ExperimentMeasure> {
    let Some((primary, others)) = judged.split_first_mut() else { return Vec::new() };
    // What may be said of each is its probability times this, against the whole of alpha.
    let looks = f64::from(criteria.looks.max(1));
    let part = |share: f64| if share > 0.0 { looks / share } else { f64::INFINITY };
    primary.adjust(primary.p, 1, part(criteria.primary_share));
    let raw: Vec<f64> = others.iter().filter_map(|one| one.p).collect();
    let mut adjusted = holm::adjusted(&raw).into_iter();
    for other in others {
        let p = other.p.and_then(|_| adjusted.next());
        other.adjust(p, raw.len(), part(1.0 - criteria.primary_share - criteria.failure_share));
    }
    judged.into_iter().map(|one| one.measure(criteria, comparable)).collect()
}

/// A measure on its way to a verdict.
struct Judged {
    name: String,
    test: ExactTest,
    a: Vec<f64>,
    b: Vec<f64>,
    /// None: the sample is too small or too large.
    p: Option<f64>,
    smallest_p: f64,
    p_adjusted: Option<f64>,
    /// The least that the adjusted probability can be.
    smallest_adjusted: f64,
    shift: Option<f64>,
    interval: Option<[f64; 2]>,
}

impl Judged {
    fn new(samples: &MeasureSamples, untied: &mut UntiedDistributions) -> Self {
        let MeasureSamples { name, a, b, paired } = samples.clone();
        let fits = |arm: &[f64]| (MIN_SAMPLES..=MAX_SAMPLES).contains(&arm.len());
        let mut judged = Self {
            name,
            test: if paired { ExactTest::SignedRank } else { ExactTest::RankSum },
            a,
            b,
            p: None,
            smallest_p: 1.0,
            p_adjusted: None,
            smallest_adjusted: 1.0,
            shift: None,
            interval: None,
        };
        let alike = !paired || judged.a.len() == judged.b.len();
        if fits(&judged.a) && fits(&judged.b) && alike {
            if paired { judged.test_pairs() } else { judged.test_samples(untied) }
        }
        judged
    }

    fn test_samples(&mut self, untied: &mut UntiedDistributions) {
        self.p = Some(untied.p_value(&self.a, &self.b));
        self.smallest_p = rank_sum::smallest_p(self.a.len(), self.b.len());
        if self.a.iter().chain(&self.b).all(|value| value.is_finite()) {
            let weights = untied.pairs_ahead(self.a.len(), self.b.len());
            (self.shift, self.interval) = rank_sum::shift(&self.a, &self.b, weights, CONFIDENCE);
        }
    }

    fn test_pairs(&mut self) {
        let pairs = self.a.iter().zip(&self.b);
        // Both of a pair failed: no difference.
        let differences: Vec<f64> = pairs.map(|(a, b)| if a == b { 0.0 } else { b - a }).collect();
        let (p, unequal) = signed_rank::p_value(&differences);
        self.p = Some(p);
        self.smallest_p = signed_rank::smallest_p(unequal);
        if differences.iter().all(|value| value.is_finite()) {
            (self.shift, self.interval) = signed_rank::shift(&differences, CONFIDENCE);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of measures")]
    fn adjust(&mut self, p: Option<f64>, tests: usize, factor: f64) {
        self.p_adjusted = p.map(|p| (p * factor).min(1.0));
        self.smallest_adjusted = (self.smallest_p * tests as f64 * factor).min(1.0);
    }

    fn measure(self, criteria: &Criteria, comparable: bool) -> ExperimentMeasure {
        let verdict =
            if comparable { self.verdict(criteria) } else { MeasureVerdict::NotComparable };
        let finite = |arm: &[f64], percent| {
            (!arm.is_empty()).then(|| percentile(arm, percent)).filter(|value| value.is_finite())
        };
        ExperimentMeasure {
            n_a: self.a.len(),
            n_b: self.b.len(),
            p50_a: finite(&self.a, 50),
            p50_b: finite(&self.b, 50),
            p95_a: finite(&self.a, 95),
            p95_b: finite(&self.b, 95),
            name: self.name,
            test: self.test,
            shift_seconds: self.shift,
            interval_seconds: self.interval,
            p: self.p,
            p_adjusted: self.p_adjusted,
            verdict,
        }
    }

    /// A sample that could not show a difference, whatever came of it, shows nothing.
    fn verdict(&self, criteria: &Criteria) -> MeasureVerdict {
        let Some(p) = self.p_adjusted else { return MeasureVerdict::InsufficientSample };
        let margin = criteria.margin_seconds;
        let is_within = |[low, high]: [f64; 2]| low >= -margin && high <= margin;
        if self.interval.is_some_and(is_within) {
            return MeasureVerdict::SameWithinMargin;
        }
        if self.smallest_adjusted > criteria.alpha {
            return MeasureVerdict::InsufficientSample;
        }
        if p > criteria.alpha {
            return MeasureVerdict::Inconclusive;
        }
        if self.is_b_ahead() { MeasureVerdict::Faster } else { MeasureVerdict::Slower }
    }

    /// Whether more pairs of samples have B shorter than A.
    fn is_b_ahead(&self) -> bool {
        let sign = |a: &f64, b: &f64| match a.total_cmp(b) {
            std::cmp::Ordering::Greater => 1_i64,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Less => -1,
        };
        let balance: i64 = if self.test == ExactTest::SignedRank {
            return self.shift.map_or_else(
                || self.a.iter().zip(&self.b).map(|(a, b)| sign(a, b)).sum::<i64>() > 0,
                |shift| shift < 0.0,
            );
        } else {
            self.b.iter().flat_map(|b| self.a.iter().map(move |a| sign(a, b))).sum()
        };
        balance > 0
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
