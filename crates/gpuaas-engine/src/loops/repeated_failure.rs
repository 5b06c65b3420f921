//! Failures of a loop that tries again: the first is logged, the others are counted.

use std::fmt::Display;

/// Failures in a row of one thing that is tried again and again.
#[derive(Debug)]
pub(crate) struct RepeatedFailure {
    what: &'static str,
    count: u64,
}

impl RepeatedFailure {
    /// None yet. `what` says in the log what failed.
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, count: 0 }
    }

    /// It failed. Logs the first failure in a row, and then the tenth, the hundredth and so on.
    pub(crate) fn failed(&mut self, error: &dyn Display) {
        self.count += 1;
        if is_power_of_ten(self.count) {
            tracing::warn!(%error, failures = self.count, "{}", self.what);
        }
    }

    /// It succeeded. Logs how many failures there were before.
    pub(crate) fn succeeded(&mut self) {
        let count = std::mem::take(&mut self.count);
        if count > 0 {
            tracing::info!(failures = count, "over: {}", self.what);
        }
    }

    /// Failures since it last succeeded.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }
}

fn is_power_of_ten(mut number: u64) -> bool {
    while number > 9 && number.is_multiple_of(10) {
        number /= 10;
    }
    number == 1
}

#[cfg(test)]
mod tests {
    use super::is_power_of_ten;

    #[test]
    fn few_of_many_failures_are_logged() {
        let logged: Vec<u64> = (0..2000).filter(|count| is_power_of_ten(*count)).collect();
        assert_eq!(logged, [1, 10, 100, 1000]);
    }
}
