//! How often one caller may ask: a token bucket for each token of operators and each node.
//!
//! Only callers whose credential is good have one, so nobody fills the table by making names up.

use std::collections::HashMap;

use gpuaas_types::codes::ProblemCode;
use gpuaas_types::limits::{Limit, ListenerKind, ListenerLimits};
use gpuaas_types::{Problem, Timestamp};
use parking_lot::Mutex;

use crate::http::problem::problem;

/// Callers from which on full buckets are forgotten: they are as new.
const MANY_CALLERS: usize = 4_096;

/// What is left to a caller, and when that was counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    pub(crate) requests: f64,
    pub(crate) at: Timestamp,
}

/// How many requests callers of one sort may send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    pub(crate) burst: f64,
}

impl Rate {
    #[expect(clippy::cast_precision_loss, reason = "requests per second")]
    pub(crate) const fn new(limits: &ListenerLimits, per_second: Limit, burst: Limit) -> Self {
        Self { per_second: limits.get(per_second) as f64, burst: limits.get(burst) as f64 }
    }

    /// What a bucket holds by `now`.
    pub(crate) fn refill(self, bucket: Bucket, now: Timestamp) -> f64 {
        let gained = now.seconds_since(bucket.at).max(0.0) * self.per_second;
        (bucket.requests + gained).min(self.burst)
    }
}

/// Who is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CallerKey(ListenerKind, String);

/// The buckets of all callers.
#[derive(Debug)]
pub(crate) struct RateLimits {
    operators: Rate,
    nodes: Rate,
    buckets: Mutex<HashMap<CallerKey, Bucket>>,
}

impl RateLimits {
    pub(crate) fn new(operators: &ListenerLimits, nodes: &ListenerLimits) -> Self {
        let rate = |limits| Rate::new(limits, Limit::RequestsPerSecond, Limit::RequestBurst);
        Self { operators: rate(operators), nodes: rate(nodes), buckets: Mutex::default() }
    }

    /// Counts a request of a caller.
    ///
    /// # Errors
    /// `too_many_requests`, with how long to wait.
    pub(crate) fn count(
        &self,
        kind: ListenerKind,
        caller: &str,
        now: Timestamp,
    ) -> Result<(), Problem> {
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MANY_CALLERS {
            buckets.retain(|key, bucket| {
                let rate = self.rate(key.0);
                rate.refill(*bucket, now) < rate.burst
            });
        }
        let rate = self.rate(kind);
        let key = CallerKey(kind, caller.to_owned());
        let bucket = buckets.entry(key).or_insert(Bucket { requests: rate.burst, at: now });
        let left = rate.refill(*bucket, now);
        if left < 1.0 {
            let wait = (1.0 - left) / rate.per_second;
            let detail = format!(
                "too many requests with this credential: expected at most {} per second and {} at \
                 once; retry in {wait:.3} s",
                rate.per_second, rate.burst
            );
            return Err(problem(ProblemCode::TooManyRequests).with_detail(detail));
        }
        *bucket = Bucket { requests: left - 1.0, at: now };
        Ok(())
    }

    const fn rate(&self, kind: ListenerKind) -> Rate {
        match kind {
            ListenerKind::Operators => self.operators,
            ListenerKind::Nodes => self.nodes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(per_second: u64, burst: u64) -> ListenerLimits {
        let mut limits = ListenerLimits::defaults(ListenerKind::Operators);
        limits.set(Limit::RequestsPerSecond, per_second);
        limits.set(Limit::RequestBurst, burst);
        limits
    }

    #[test]
    fn each_caller_has_requests_of_its_own_which_come_back() {
        let rates = RateLimits::new(&limits(2, 3), &limits(1, 1));
        let begin = Timestamp::from_micros(0);
        let count = |kind, caller: &str, seconds| {
            rates.count(kind, caller, begin.plus_seconds(seconds)).map_err(|refused| refused.detail)
        };
        let ci = |seconds| count(ListenerKind::Operators, "ci", seconds);
        assert!((0..3).all(|_| ci(0.0).is_ok()));
        let refused = ci(0.25).unwrap_err();
        assert!(refused.ends_with("in 0.250 s"), "{refused}");
        assert!(ci(0.5).is_ok() && ci(0.5).is_err(), "a refused request costs nothing");
        count(ListenerKind::Operators, "ann", 0.5).unwrap();
        count(ListenerKind::Nodes, "ci", 0.5).unwrap();
        assert!((0..3).all(|_| ci(60.0).is_ok()) && ci(60.0).is_err(), "no more than at once");
        assert!(ci(0.0).is_err(), "a clock that was set back gives nothing");
    }

    #[test]
    fn those_who_ask_for_nothing_are_forgotten() {
        let rates = RateLimits::new(&limits(1, 2), &limits(1, 2));
        let begin = Timestamp::from_micros(0);
        for caller in 0..MANY_CALLERS {
            rates.count(ListenerKind::Nodes, &caller.to_string(), begin).unwrap();
        }
        rates.count(ListenerKind::Nodes, "late", begin.plus_seconds(1.0)).unwrap();
        assert_eq!(rates.buckets.lock().len(), 1);
    }

    #[test]
    fn no_limit_is_a_limit_that_nobody_reaches() {
        let none = limits(1, 1).for_one_address();
        let rates = RateLimits::new(&none, &none);
        let now = Timestamp::from_micros(0);
        assert!((0..10_000).all(|_| rates.count(ListenerKind::Operators, "ci", now).is_ok()));
    }
}
