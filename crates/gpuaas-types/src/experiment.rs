//! What an experiment between two host images says: measures, tests and verdicts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::string_enum::string_enum;

string_enum! {
    /// What an experiment says of a time of image B against image A.
    MeasureVerdict {
        /// B takes less time.
        Faster = "faster",
        /// B takes more time.
        Slower = "slower",
        /// Whatever the difference is, it is within the margin.
        SameWithinMargin = "same_within_margin",
        /// The sample shows neither a difference nor that there is none.
        Inconclusive = "inconclusive",
        /// No outcome of a sample of this size could show a difference.
        InsufficientSample = "insufficient_sample",
        /// The nodes of the two arms differ in more than their image.
        NotComparable = "not_comparable",
    }
}

string_enum! {
    /// What an experiment says of the failures of image B against those of image A.
    FailureVerdict {
        /// B fails more often.
        Worse = "worse",
        /// The sample does not show that B fails more often.
        NoEvidenceOfWorse = "no_evidence_of_worse",
    }
}

string_enum! {
    /// An exact test.
    ExactTest {
        /// Of two independent samples (Mann and Whitney, Wilcoxon's rank sum).
        RankSum = "rank_sum",
        /// Of pairs (Wilcoxon's signed rank).
        SignedRank = "signed_rank",
        /// Of counts of failures (Fisher).
        Fisher = "fisher",
    }
}

/// A measure of an experiment. Differences are B less A, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentMeasure {
    /// Such as `time_to_active` or a timing bucket.
    pub name: String,
    /// The test that was made.
    pub test: ExactTest,
    /// Samples of image A.
    pub n_a: usize,
    /// Samples of image B.
    pub n_b: usize,
    /// Median of A's samples in seconds; none: most of A's runs failed, or there is no sample.
    pub p50_a: Option<f64>,
    /// Median of B's samples in seconds.
    pub p50_b: Option<f64>,
    /// Seconds that 95 of 100 samples of A do not exceed.
    pub p95_a: Option<f64>,
    /// Seconds that 95 of 100 samples of B do not exceed.
    pub p95_b: Option<f64>,
    /// Estimate of the difference (Hodges and Lehmann).
    pub shift_seconds: Option<f64>,
    /// Interval of the difference, of 95 %; none: the sample is too small for one.
    pub interval_seconds: Option<[f64; 2]>,
    /// Probability of a sample at least as unequal if there were no difference.
    pub p: Option<f64>,
    /// The same, adjusted for the number of measures and of looks; at most 0.05 makes a verdict.
    pub p_adjusted: Option<f64>,
    /// What is said.
    pub verdict: MeasureVerdict,
}
