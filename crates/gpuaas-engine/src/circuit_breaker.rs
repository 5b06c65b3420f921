//! A circuit breaker per site: a region that does not answer is left alone for a while, so that a
//! broken site degrades by itself and its runs say why they wait.

use gpuaas_types::Timestamp;
use parking_lot::{Mutex, MutexGuard};

/// Failures in a row that open the circuit.
const THRESHOLD: u32 = 5;
/// Seconds for which it stays open the first time; doubles up to [`LONGEST_SECONDS`].
const FIRST_SECONDS: f64 = 2.0;
const LONGEST_SECONDS: f64 = 60.0;

#[derive(Debug, Default, Clone, Copy)]
struct State {
    failures: u32,
    open_until: Option<Timestamp>,
    opened: u32,
}

/// See the module text.
#[derive(Debug, Default)]
pub struct CircuitBreaker {
    state: Mutex<State>,
}

impl CircuitBreaker {
    /// Whether a call may be made at `now`; else the moment from which one may.
    ///
    /// # Errors
    /// The moment at which the circuit lets one call try.
    pub fn allow_call(&self, now: Timestamp) -> Result<(), Timestamp> {
        let mut state = self.lock();
        match state.open_until {
            Some(until) if now < until => Err(until),
            Some(_) => {
                state.open_until = Some(now.plus_seconds(FIRST_SECONDS));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// MAAS answered, whatever it said.
    pub fn record_answer(&self) {
        *self.lock() = State::default();
    }

    /// MAAS did not answer.
    pub fn record_silence(&self, now: Timestamp) {
        let mut state = self.lock();
        state.failures += 1;
        if state.failures >= THRESHOLD {
            let exponent = i32::try_from(state.opened.min(10)).unwrap_or(10);
            let pause = (FIRST_SECONDS * 2f64.powi(exponent)).min(LONGEST_SECONDS);
            state.open_until = Some(now.plus_seconds(pause));
            state.opened += 1;
            state.failures = THRESHOLD - 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_lets_one_call_try_and_closes() {
        let at = |s| Timestamp::EPOCH.plus_seconds(s);
        let breaker = CircuitBreaker::default();
        for _ in 0..THRESHOLD {
            assert!(breaker.allow_call(at(0.0)).is_ok());
            breaker.record_silence(at(0.0));
        }
        assert_eq!(breaker.allow_call(at(1.0)), Err(at(2.0)));
        assert!(breaker.allow_call(at(2.0)).is_ok());
        assert!(breaker.allow_call(at(2.1)).is_err(), "only one call tries");
        breaker.record_silence(at(2.5));
        assert_eq!(breaker.allow_call(at(3.0)), Err(at(6.5)), "the pause doubles");
        breaker.record_answer();
        assert!(breaker.allow_call(at(3.0)).is_ok());
    }
}
