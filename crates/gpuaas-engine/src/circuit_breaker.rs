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
    opened_at: Option<Timestamp>,
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

    /// Somebody says at `word_at` that the region is there again: a circuit that opened before lets
    /// the next call try.
    pub fn let_one_try(&self, word_at: Timestamp) {
        let mut state = self.lock();
        if let Some(opened_at) = state.opened_at.take_if(|at| *at <= word_at) {
            state.open_until = Some(opened_at);
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
            state.opened_at = Some(now);
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

    #[test]
    fn a_word_from_after_the_opening_lets_one_call_try() {
        let at = |s| Timestamp::EPOCH.plus_seconds(s);
        let breaker = CircuitBreaker::default();
        (0..THRESHOLD).for_each(|_| breaker.record_silence(at(1.0)));
        breaker.let_one_try(at(0.5));
        assert!(breaker.allow_call(at(1.5)).is_err(), "the silence came after the word");
        breaker.let_one_try(at(1.6));
        assert!(breaker.allow_call(at(1.7)).is_ok());
        breaker.let_one_try(at(1.6));
        assert!(breaker.allow_call(at(1.7)).is_err(), "once for each opening");
    }
}
