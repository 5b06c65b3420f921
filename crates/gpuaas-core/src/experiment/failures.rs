//! Whether one image fails more often than another (Fisher's exact test, one-sided).

use gpuaas_types::experiment::FailureVerdict;

use super::judge::Criteria;

/// Runs of an arm that ended, and those of them that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureCounts {
    /// Runs that ended.
    pub runs: usize,
    /// Those that failed; at most `runs`.
    pub failed: usize,
}

/// Probability of at least as many failures in B, if chance alone said which runs failed, and the verdict
/// of it at the failures' part of alpha.
#[must_use]
pub fn judge_failures(
    a: FailureCounts,
    b: FailureCounts,
    criteria: &Criteria,
) -> (f64, FailureVerdict) {
    let failed = a.failed + b.failed;
    let all = log_choices(a.runs + b.runs, failed);
    let most = failed.min(b.runs);
    let p: f64 = (b.failed..=most)
        .filter(|in_b| failed - in_b <= a.runs)
        .map(|in_b| (log_choices(b.runs, in_b) + log_choices(a.runs, failed - in_b) - all).exp())
        .sum();
    let p = p.min(1.0);
    let most = criteria.alpha * criteria.failure_share / f64::from(criteria.looks.max(1));
    let verdict = if p <= most { FailureVerdict::Worse } else { FailureVerdict::NoEvidenceOfWorse };
    (p, verdict)
}

#[expect(clippy::cast_precision_loss, reason = "numbers of runs")]
fn log_choices(of: usize, chosen: usize) -> f64 {
    (1..=chosen).map(|k| ((of - chosen + k) as f64 / k as f64).ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(failed: usize, runs: usize) -> FailureCounts {
        FailureCounts { runs, failed }
    }

    #[test]
    fn it_is_the_hypergeometric_tail() {
        let criteria = Criteria::default();
        // Of 8 runs 4 fail, all of them B's: 1 of 70 choices.
        let (p, verdict) = judge_failures(counts(0, 4), counts(4, 4), &criteria);
        assert!((p - 1.0 / 70.0).abs() < 1e-12);
        assert_eq!(
            verdict,
            FailureVerdict::NoEvidenceOfWorse,
            "1 of 70 is more than a fifth of 5 %"
        );
        let (_, verdict) = judge_failures(counts(0, 5), counts(5, 5), &criteria);
        assert_eq!(verdict, FailureVerdict::Worse);
        // Three of four: 17 of 70.
        let (p, verdict) = judge_failures(counts(1, 4), counts(3, 4), &criteria);
        assert!((p - 17.0 / 70.0).abs() < 1e-12);
        assert_eq!(verdict, FailureVerdict::NoEvidenceOfWorse);
        let (p, _) = judge_failures(counts(3, 4), counts(0, 4), &criteria);
        assert!((p - 1.0).abs() < 1e-12, "fewer failures are no evidence: {p}");
        let (p, _) = judge_failures(counts(0, 4), counts(0, 4), &criteria);
        assert!((p - 1.0).abs() < 1e-12);
    }
}
