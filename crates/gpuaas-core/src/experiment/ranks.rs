//! Ranks, and how their sums are distributed when nothing but chance gives them out.

/// Twice the mid-ranks of the values, so that they are whole: equal values share the mean of the ranks
/// that they take together.
#[must_use]
pub(super) fn doubled_mid_ranks(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&one, &other| values[one].total_cmp(&values[other]));
    let mut ranks = vec![0; values.len()];
    let mut begin = 0;
    while begin < order.len() {
        let equal = |&&index: &&usize| values[index].total_cmp(&values[order[begin]]).is_eq();
        let end = begin + order[begin..].iter().take_while(equal).count();
        for &index in &order[begin..end] {
            // Ranks begin + 1 to end: twice their mean is the sum of the first and the last.
            ranks[index] = begin + 1 + end;
        }
        begin = end;
    }
    ranks
}

/// Both tails at once: twice the smaller one, at most 1. `weights` are of the values 0, 1, 2 ... of a
/// statistic, in any unit.
#[must_use]
pub(super) fn two_sided(weights: &[f64], observed: usize) -> f64 {
    let all: f64 = weights.iter().sum();
    let lower: f64 = weights.iter().take(observed + 1).sum();
    let upper: f64 = weights.iter().skip(observed).sum();
    (2.0 * lower.min(upper) / all).min(1.0)
}

/// How many of the smallest and of the largest values an interval of `confidence` leaves out on each
/// side, of the differences whose number the statistic counts; none: not even all of them reach it.
#[must_use]
pub(super) fn left_out(weights: &[f64], confidence: f64) -> Option<usize> {
    let all: f64 = weights.iter().sum();
    let most = (1.0 - confidence) / 2.0;
    let mut tail = 0.0;
    let mut count = 0;
    for weight in weights {
        tail += weight / all;
        if tail > most {
            break;
        }
        count += 1;
    }
    (count > 0).then(|| count - 1)
}

/// The median of sorted values; none for none.
#[must_use]
pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*sorted.get(middle - 1)?, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(doubled_mid_ranks(&[5.0, 1.0, 3.0]), [6, 2, 4]);
        assert_eq!(doubled_mid_ranks(&[2.0, 1.0, 2.0, 2.0]), [6, 2, 6, 6]);
        let worst = f64::INFINITY;
        assert_eq!(doubled_mid_ranks(&[worst, 1.0, worst]), [5, 2, 5], "failures are equal");
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), Some(3.0));
    }
}
