//! What follows on a delivery of an event that failed.
//!
//! Events go out in their order, so the first one that a sink does not take holds the others up. One
//! that would never be taken is given up at once; where the sink itself is away, everything waits
//! for it for a day, and what is older than that goes to the dead letters, from where it can be sent
//! again.

use gpuaas_types::Timestamp;
use gpuaas_types::event::DeliveryFault;

/// Seconds for which a sink that is away is waited for before the oldest events are given up.
pub const PATIENCE_SECONDS: f64 = 86_400.0;
/// Seconds before the second try.
const FIRST_SECONDS: f64 = 2.0;
/// Longest time between two tries, in seconds.
const LONGEST_SECONDS: f64 = 600.0;

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AfterFailure {
    /// The event is a dead letter, and the next one has its turn.
    GiveUp,
    /// The same event is sent again at this moment.
    TryAgainAt(Timestamp),
}

/// A delivery that failed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FailedDelivery {
    /// What the sink did instead of taking it.
    pub fault: DeliveryFault,
    /// Moment of the event.
    pub event_at: Timestamp,
    /// Since when deliveries to the sink fail.
    pub failing_since: Timestamp,
    /// How many failed in a row, this one among them.
    pub attempts: u32,
}

impl FailedDelivery {
    /// What follows. `spread`, from 0 to 1, keeps sinks that failed together from coming back together.
    #[must_use]
    pub fn next(&self, now: Timestamp, spread: f64) -> AfterFailure {
        if self.fault.is_final() || self.is_too_old(self.event_at, now) {
            return AfterFailure::GiveUp;
        }
        let doublings = self.attempts.saturating_sub(1).min(16);
        let longest = (FIRST_SECONDS * f64::from(1u32 << doublings)).min(LONGEST_SECONDS);
        let seconds = longest * spread.clamp(0.0, 1.0).mul_add(0.5, 0.5);
        AfterFailure::TryAgainAt(now.plus_seconds(seconds))
    }

    /// Whether an event of this moment is given up without another try: it waited for as long as the
    /// sink is waited for.
    #[must_use]
    pub fn is_too_old(&self, event_at: Timestamp, now: Timestamp) -> bool {
        now.seconds_since(self.failing_since) >= PATIENCE_SECONDS
            && now.seconds_since(event_at) >= PATIENCE_SECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::from_micros(1_795_176_000_000_000);

    fn failed(fault: DeliveryFault, attempts: u32) -> FailedDelivery {
        FailedDelivery { fault, event_at: NOON, failing_since: NOON, attempts }
    }

    fn pause(failed: FailedDelivery, now: Timestamp, spread: f64) -> Option<f64> {
        match failed.next(now, spread) {
            AfterFailure::GiveUp => None,
            AfterFailure::TryAgainAt(at) => Some(at.seconds_since(now)),
        }
    }

    #[test]
    fn pauses_double_up_to_ten_minutes() {
        let at = |attempts| pause(failed(DeliveryFault::Unreachable, attempts), NOON, 1.0);
        assert_eq!([at(1), at(2), at(3)], [Some(2.0), Some(4.0), Some(8.0)]);
        assert_eq!([at(9), at(10), at(4_000)], [Some(512.0), Some(600.0), Some(600.0)]);
        let early = pause(failed(DeliveryFault::Timeout, 3), NOON, 0.0);
        assert_eq!(early, Some(4.0), "spread over half of it");
    }

    #[test]
    fn what_is_refused_for_itself_is_given_up_and_nothing_else_for_a_day() {
        for fault in DeliveryFault::ALL {
            let failed = failed(*fault, 1);
            assert_eq!(pause(failed, NOON, 0.5).is_none(), *fault == DeliveryFault::Refused);
            let hour = NOON.plus_seconds(PATIENCE_SECONDS - 1.0);
            assert_eq!(pause(failed, hour, 0.5).is_none(), *fault == DeliveryFault::Refused);
            assert_eq!(pause(failed, NOON.plus_seconds(PATIENCE_SECONDS), 0.5), None);
        }
    }

    #[test]
    fn a_young_event_waits_behind_old_ones() {
        let late = NOON.plus_seconds(PATIENCE_SECONDS * 3.0);
        let young = FailedDelivery {
            event_at: late.plus_seconds(-60.0),
            ..failed(DeliveryFault::Unavailable, 300)
        };
        assert!(pause(young, late, 0.5).is_some());
        assert!(young.is_too_old(NOON, late));
        let quick = FailedDelivery { failing_since: late, ..young };
        assert!(!quick.is_too_old(NOON, late), "an old one that was never tried is not given up");
    }
}
