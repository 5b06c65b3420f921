//! How many rejections of credentials are written down.
//!
//! Whoever is rejected is not known, so what he causes to be written is bounded: the same cause
//! from the same address once in [`REPEAT_SECONDS`], and [`MAX_REJECTIONS`] altogether in that time.

use std::collections::HashMap;

use gpuaas_types::Timestamp;
use parking_lot::Mutex;

/// Seconds for which the same rejection is not written down again.
const REPEAT_SECONDS: f64 = 600.0;
/// Rejections that are written down in that time.
const MAX_REJECTIONS: usize = 500;

/// When each rejection was written down last, by its key.
#[derive(Default)]
pub(crate) struct RejectionAudit(Mutex<HashMap<String, Timestamp>>);

impl RejectionAudit {
    /// Whether the rejection of this key is to be written down now; remembers that it was.
    pub(crate) fn should_record(&self, key: String, now: Timestamp) -> bool {
        let mut recorded = self.0.lock();
        recorded.retain(|_, at| now.seconds_since(*at) < REPEAT_SECONDS);
        if recorded.contains_key(&key) || recorded.len() >= MAX_REJECTIONS {
            return false;
        }
        recorded.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_rejection_is_recorded_once_in_a_while_and_there_is_a_limit() {
        let (audit, begin) = (RejectionAudit::default(), Timestamp::from_micros(0));
        let record =
            |key: &str, seconds| audit.should_record(key.to_owned(), begin.plus_seconds(seconds));
        assert!(record("a", 0.0) && !record("a", 599.0) && record("b", 1.0) && record("a", 600.0));
        let recorded = (0..2 * MAX_REJECTIONS).filter(|n| record(&n.to_string(), 601.0)).count();
        assert_eq!(recorded, MAX_REJECTIONS - 1);
        assert!(record("c", 1300.0));
    }
}
