//! Probabilities adjusted for how many of them are looked at (Holm).

/// The adjusted probabilities, in the order given: the chance that any of them is at most x by accident is
/// at most x.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a number of measures")]
pub(super) fn adjusted(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|&one, &other| probabilities[one].total_cmp(&probabilities[other]));
    let mut adjusted = vec![0.0; probabilities.len()];
    let mut least = 0.0_f64;
    for (smaller, index) in order.into_iter().enumerate() {
        let left = (probabilities.len() - smaller) as f64;
        least = least.max((probabilities[index] * left).min(1.0));
        adjusted[index] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_counts_most() {
        let close = |one: Vec<f64>, other: [f64; 4]| {
            one.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-12)
        };
        assert!(close(adjusted(&[0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]));
        assert!(close(adjusted(&[0.9, 0.8, 0.7, 0.6]), [1.0; 4]));
        assert!(adjusted(&[]).is_empty());
    }
}
