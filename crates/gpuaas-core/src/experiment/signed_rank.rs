//! The exact test of pairs by the ranks of their differences (Wilcoxon).

use super::ranks::{doubled_mid_ranks, left_out, median, two_sided};

/// Probability, two-sided, of ranks of positive differences at least as extreme, if chance alone gave
/// each difference its sign; and how many differences are not 0, which alone count.
#[must_use]
pub(super) fn p_value(differences: &[f64]) -> (f64, usize) {
    let unequal: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    let sizes: Vec<f64> = unequal.iter().map(|d| d.abs()).collect();
    let ranks = doubled_mid_ranks(&sizes);
    let positive =
        unequal.iter().zip(&ranks).filter(|(d, _)| **d > 0.0).map(|(_, rank)| rank).sum();
    (two_sided(&sums_of_signs(&ranks), positive), unequal.len())
}

/// In how many ways signs give each sum of the ranks.
fn sums_of_signs(ranks: &[usize]) -> Vec<f64> {
    let width = ranks.iter().sum::<usize>() + 1;
    let mut ways = vec![0.0; width];
    ways[0] = 1.0;
    for &rank in ranks {
        for sum in (rank..width).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    ways
}

/// The smallest probability that `n` pairs can show.
#[must_use]
pub(super) fn smallest_p(n: usize) -> f64 {
    let n = i32::try_from(n).unwrap_or(i32::MAX);
    (2.0 * 0.5_f64.powi(n)).min(1.0)
}

/// The estimate of the difference (Hodges and Lehmann: the median of all means of two differences) and
/// its interval of `confidence`. All values are finite.
#[must_use]
pub(super) fn shift(differences: &[f64], confidence: f64) -> (Option<f64>, Option<[f64; 2]>) {
    let mut means = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (index, one) in differences.iter().enumerate() {
        means.extend(differences[index..].iter().map(|other| f64::midpoint(*one, *other)));
    }
    means.sort_by(f64::total_cmp);
    let ranks: Vec<usize> = (1..=differences.len()).collect();
    let interval = left_out(&sums_of_signs(&ranks), confidence).and_then(|left| {
        let last = means.len().checked_sub(left + 1)?;
        Some([*means.get(left)?, *means.get(last)?])
    });
    (median(&means), interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
    }

    /// Wilcoxon's table, n = 8: a rank sum of at most 3 has 5 of 256 choices of signs.
    #[test]
    fn it_is_what_the_table_says() {
        let differences = [-1.0, -2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let (p, n) = p_value(&differences);
        near(p, 2.0 * 5.0 / 256.0);
        assert_eq!(n, 8);
        let negated = differences.map(|d| -d);
        near(p_value(&negated).0, p);
    }

    #[test]
    fn equal_pairs_say_nothing() {
        let (p, n) = p_value(&[0.0, 0.0, 1.0, 2.0]);
        assert_eq!(n, 2);
        near(p, 0.5);
        assert_eq!(p_value(&[0.0, 0.0]), (1.0, 0));
        near(smallest_p(6), 2.0 / 64.0);
    }

    #[test]
    fn the_shift_is_the_median_of_means() {
        let (estimate, interval) = shift(&[5.0, 7.0, 9.0, 6.0, 8.0, 7.0, 6.5, 7.5], 0.95);
        near(estimate.unwrap(), 7.0);
        let [low, high] = interval.unwrap();
        assert!(low > 5.0 && high < 9.0 && low < high, "{low} to {high}");
        assert_eq!(shift(&[1.0, 2.0, 3.0], 0.95).1, None);
    }
}
