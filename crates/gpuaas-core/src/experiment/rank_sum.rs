//! The exact test of two independent samples by the sum of their ranks (Mann and Whitney).

use std::collections::BTreeMap;

use super::ranks::{doubled_mid_ranks, left_out, median, two_sided};

/// Distributions of samples without ties, which are the same for all samples of two sizes.
#[derive(Debug, Default)]
pub(super) struct UntiedDistributions(BTreeMap<(usize, usize), Vec<f64>>);

impl UntiedDistributions {
    /// How many pairs of samples of these sizes have the second one ahead: the weight of each number
    /// (the distribution of Mann and Whitney's U).
    pub(super) fn pairs_ahead(&mut self, n_a: usize, n_b: usize) -> &[f64] {
        self.0.entry((n_a, n_b)).or_insert_with(|| pairs_ahead(n_a, n_b))
    }

    /// Probability, two-sided, of a rank sum at least as extreme as that of `b` among both, if chance
    /// alone said which values are `b`'s. Ties count as they are: the distribution is that of the very
    /// ranks.
    pub(super) fn p_value(&mut self, a: &[f64], b: &[f64]) -> f64 {
        let ranks = doubled_mid_ranks(&[a, b].concat());
        let observed: usize = ranks[a.len()..].iter().sum();
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return two_sided(&sums_of_choices(&ranks, b.len()), observed);
        }
        let lowest = b.len() * (b.len() + 1) / 2;
        two_sided(self.pairs_ahead(a.len(), b.len()), observed / 2 - lowest)
    }
}

/// In how many ways `chosen` of the ranks have each sum; in floating point, whose 53 bits are enough for
/// what is compared with 0.05.
fn sums_of_choices(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    let width = most + 1;
    // ways[k * width + s]: of the ranks so far, k have the sum s.
    let mut ways = vec![0.0; (chosen + 1) * width];
    ways[0] = 1.0;
    for (seen, &rank) in ranks.iter().enumerate() {
        for k in (1..=chosen.min(seen + 1)).rev() {
            let (fewer, more) = ways.split_at_mut(k * width);
            let fewer = &fewer[(k - 1) * width..];
            for sum in rank..width {
                more[sum] += fewer[sum - rank];
            }
        }
    }
    ways.split_off(chosen * width)
}

/// The smallest probability that samples of these sizes can show.
#[must_use]
pub(super) fn smallest_p(n_a: usize, n_b: usize) -> f64 {
    (2.0 / choices(n_a + n_b, n_b)).min(1.0)
}

#[expect(clippy::cast_precision_loss, reason = "sizes of samples")]
fn choices(of: usize, chosen: usize) -> f64 {
    (1..=chosen).map(|k| (of - chosen + k) as f64 / k as f64).product()
}

fn pairs_ahead(n_a: usize, n_b: usize) -> Vec<f64> {
    let ranks: Vec<usize> = (1..=n_a + n_b).collect();
    let lowest = n_b * (n_b + 1) / 2;
    let mut weights = sums_of_choices(&ranks, n_b).split_off(lowest);
    weights.truncate(n_a * n_b + 1);
    weights
}

/// The estimate of how much longer `b` takes (Hodges and Lehmann: the median of all differences) and its
/// interval of `confidence`, from `weights` of
/// [`UntiedDistributions::pairs_ahead`]. All values are finite.
#[must_use]
pub(super) fn shift(
    a: &[f64],
    b: &[f64],
    weights: &[f64],
    confidence: f64,
) -> (Option<f64>, Option<[f64; 2]>) {
    let mut differences: Vec<f64> =
        b.iter().flat_map(|later| a.iter().map(move |earlier| later - earlier)).collect();
    differences.sort_by(f64::total_cmp);
    let interval = left_out(weights, confidence).and_then(|left| {
        let last = differences.len().checked_sub(left + 1)?;
        Some([*differences.get(left)?, *differences.get(last)?])
    });
    (median(&differences), interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
    }

    fn p_value(a: &[f64], b: &[f64]) -> f64 {
        UntiedDistributions::default().p_value(a, b)
    }

    /// Every way to choose, counted one by one.
    fn brute_force(a: &[f64], b: &[f64]) -> f64 {
        let ranks = doubled_mid_ranks(&[a, b].concat());
        let observed: usize = ranks[a.len()..].iter().sum();
        let chosen = u32::try_from(b.len()).unwrap();
        let (mut all, mut lower, mut upper) = (0.0, 0.0, 0.0);
        for choice in 0_u32..1 << ranks.len() {
            if choice.count_ones() != chosen {
                continue;
            }
            let sum: usize = ranks
                .iter()
                .enumerate()
                .filter(|(i, _)| choice >> i & 1 == 1)
                .map(|(_, r)| r)
                .sum();
            all += 1.0;
            lower += f64::from(u8::from(sum <= observed));
            upper += f64::from(u8::from(sum >= observed));
        }
        (2.0 * f64::min(lower, upper) / all).min(1.0)
    }

    #[test]
    fn it_is_what_counting_every_choice_gives() {
        let cases: [(&[f64], &[f64]); 4] = [
            (&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]),
            (&[3.0, 9.0, 4.0], &[5.0, 1.0, 7.0, 2.0, 8.0]),
            (&[1.0, 2.0, 2.0, 3.0, 5.0], &[2.0, 2.0, 4.0, f64::INFINITY, f64::INFINITY]),
            (&[1.0, 1.0], &[1.0, 1.0, 1.0]),
        ];
        for (a, b) in cases {
            near(p_value(a, b), brute_force(a, b));
            near(p_value(a, b), p_value(b, a));
        }
        near(p_value(cases[0].0, cases[0].1), 2.0 / 70.0);
    }

    /// Table of Mann and Whitney's U, n = 5 and 4: U <= 2 has 4 of 126 choices.
    #[test]
    fn pairs_ahead_are_counted() {
        let weights = pairs_ahead(5, 4);
        assert_eq!(weights[..3], [1.0, 1.0, 2.0]);
        near(weights.iter().sum(), 126.0);
        assert_eq!(weights.len(), 21);
        near(smallest_p(5, 4), 2.0 / 126.0);
        near(smallest_p(4, 4), 2.0 / 70.0);
    }

    #[test]
    fn the_shift_is_what_was_added() {
        let a: Vec<f64> = [10.0, 12.0, 15.0, 11.0, 19.0, 13.0, 17.0, 14.0].to_vec();
        let b: Vec<f64> = a.iter().map(|value| value + 7.0).collect();
        let (estimate, interval) = shift(&a, &b, &pairs_ahead(8, 8), 0.95);
        near(estimate.unwrap(), 7.0);
        let [low, high] = interval.unwrap();
        assert!(low < 7.0 && high > 7.0 && low > 0.0, "{low} to {high}");
        let (estimate, interval) = shift(&a[..3], &b[..3], &pairs_ahead(3, 3), 0.95);
        assert!(estimate.is_some() && interval.is_none(), "three cannot carry 95 %");
    }
}
