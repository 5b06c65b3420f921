//! A circuit breaker per site: a region that does not answer, or does not accept our key, is sent
//! nothing but a question now and then, and its runs say what they wait for.
//!
//! The question is a cheap one ([`crate::site::Site`] asks for one event), because a call that may
//! take long would keep the outage going after its end. The first answer closes the circuit.

use gpuaas_types::Timestamp;
use gpuaas_types::codes::WaitCode;
use parking_lot::{Mutex, MutexGuard};

/// Failures in a row that open the circuit.
const THRESHOLD: u32 = 5;
/// Seconds from opening to the first question; doubles up to [`LONGEST_SECONDS`].
const FIRST_SECONDS: f64 = 1.0;
/// Longest time between the beginnings of two questions.
pub(crate) const LONGEST_SECONDS: f64 = 5.0;

/// What keeps calls from being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutageCause {
    /// Several calls in a row were not answered.
    Silence,
    /// MAAS answered 401 to the site's key.
    KeyRefused,
    /// MAAS answered 401 to the time that we signed with.
    ClockWrong,
}

impl OutageCause {
    /// What runs wait for.
    #[must_use]
    pub const fn wait_code(self) -> WaitCode {
        match self {
            Self::Silence => WaitCode::SiteCircuitOpen,
            Self::KeyRefused => WaitCode::SiteKeyRefused,
            Self::ClockWrong => WaitCode::SiteClockWrong,
        }
    }
}

/// A region that is sent nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// What keeps calls from being sent.
    pub cause: OutageCause,
    /// Since when.
    pub since: Timestamp,
}

impl std::fmt::Display for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let since = self.since;
        match self.cause {
            OutageCause::Silence => {
                write!(
                    f,
                    "the region has not answered since {since}; GPUaaS retries every few seconds"
                )
            }
            OutageCause::KeyRefused => {
                write!(f, "MAAS has been rejecting the site's API key since {since}")
            }
            OutageCause::ClockWrong => {
                write!(
                    f,
                    "MAAS has been rejecting requests since {since}: the control plane's clock is more \
                     than five minutes behind"
                )
            }
        }
    }
}

/// Whether a call may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Open,
    /// Only after a question that this caller asks and that is answered.
    AskFirst(Outage),
    /// It may not.
    Refused(Outage),
}

#[derive(Debug, Clone, Copy)]
struct Opened {
    outage: Outage,
    ask_at: Timestamp,
    asked: u32,
    /// Somebody said that the region is there again.
    told: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    failures: u32,
    opened: Option<Opened>,
    answering_since: Option<Timestamp>,
    /// Calls whose outcome was recorded.
    outcomes: u64,
    /// A question waits for its answer, which a busy region may give late.
    asking: bool,
}

/// See the module text.
#[derive(Debug, Default)]
pub struct CircuitBreaker {
    state: Mutex<State>,
}

/// The turn of one caller to ask whether the region is back.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    breaker: &'a CircuitBreaker,
    outcomes: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.breaker.lock();
        state.asking = false;
        if state.outcomes == self.outcomes
            && let Some(opened) = state.opened.as_mut()
        {
            opened.ask_at = opened.outage.since;
            opened.asked = opened.asked.saturating_sub(1);
        }
    }
}

impl CircuitBreaker {
    /// Whether a call may be sent at `now`. Of all who ask at a moment one gets to ask the region.
    #[must_use]
    pub fn admit(&self, now: Timestamp) -> Admission {
        let mut state = self.lock();
        let asking = state.asking;
        let Some(opened) = state.opened.as_mut() else {
            return Admission::Open;
        };
        if asking {
            return Admission::Refused(opened.outage);
        }
        // A clock that was set back must not keep the region from being asked.
        let far = opened.ask_at.seconds_since(now) > LONGEST_SECONDS;
        if now < opened.ask_at && !far {
            return Admission::Refused(opened.outage);
        }
        let exponent = i32::try_from(opened.asked.min(10)).unwrap_or(10);
        let pause = (FIRST_SECONDS * 2f64.powi(exponent)).min(LONGEST_SECONDS);
        opened.ask_at = now.plus_seconds(pause);
        opened.asked += 1;
        Admission::AskFirst(opened.outage)
    }

    /// Gives the turn to ask back when it is dropped before the question had its outcome: its caller
    /// may be cancelled, and the next one who comes asks then.
    pub(crate) fn hold_turn(&self) -> Turn<'_> {
        let mut state = self.lock();
        state.asking = true;
        Turn { breaker: self, outcomes: state.outcomes }
    }

    /// Somebody says at `word_at` that the region is there again: a circuit that opened before lets
    /// the next caller ask.
    pub fn let_one_try(&self, word_at: Timestamp) {
        let mut state = self.lock();
        if let Some(opened) = state.opened.as_mut().filter(|opened| !opened.told)
            && opened.outage.since <= word_at
        {
            opened.told = true;
            opened.ask_at = opened.outage.since;
        }
    }

    /// What keeps calls from being sent; none: nothing.
    #[must_use]
    pub fn outage(&self) -> Option<Outage> {
        self.lock().opened.map(|opened| opened.outage)
    }

    /// MAAS answered, whatever it said. Answers whether that ended an outage.
    pub fn record_answer(&self, now: Timestamp) -> bool {
        let mut state = self.lock();
        state.outcomes += 1;
        let ended = state.opened.take().is_some();
        state.failures = 0;
        if ended {
            state.answering_since = Some(now);
        }
        ended
    }

    /// MAAS did not answer.
    pub fn record_silence(&self, now: Timestamp) {
        let mut state = self.lock();
        state.outcomes += 1;
        state.failures += 1;
        if state.failures >= THRESHOLD {
            state.open(OutageCause::Silence, now);
        }
    }

    /// MAAS answered that it takes nothing from us.
    pub fn record_refusal(&self, cause: OutageCause, now: Timestamp) {
        let mut state = self.lock();
        state.outcomes += 1;
        state.open(cause, now);
    }

    /// The region was away and answers again, although the circuit was never open.
    pub fn record_return(&self, now: Timestamp) {
        self.lock().answering_since = Some(now);
    }

    /// Since when the region answers again; none: it was never away.
    #[must_use]
    pub fn answering_since(&self) -> Option<Timestamp> {
        self.lock().answering_since
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn open(&mut self, cause: OutageCause, now: Timestamp) {
        match &mut self.opened {
            Some(opened) if opened.outage.cause == cause => {}
            Some(opened) => opened.outage = Outage { cause, since: now },
            None => {
                let ask_at = now.plus_seconds(FIRST_SECONDS);
                let outage = Outage { cause, since: now };
                self.opened = Some(Opened { outage, ask_at, asked: 0, told: false });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::EPOCH.plus_seconds(seconds)
    }

    fn silent() -> CircuitBreaker {
        let breaker = CircuitBreaker::default();
        for _ in 0..THRESHOLD {
            assert_eq!(breaker.admit(at(0.0)), Admission::Open);
            breaker.record_silence(at(0.0));
        }
        breaker
    }

    #[test]
    fn opens_lets_one_ask_and_closes_with_the_first_answer() {
        let breaker = silent();
        let outage = Outage { cause: OutageCause::Silence, since: at(0.0) };
        assert_eq!(breaker.admit(at(0.5)), Admission::Refused(outage));
        assert_eq!(breaker.admit(at(1.0)), Admission::AskFirst(outage));
        assert_eq!(breaker.admit(at(1.1)), Admission::Refused(outage), "only one asks");
        assert!(breaker.record_answer(at(1.2)));
        assert_eq!(breaker.admit(at(1.3)), Admission::Open);
        assert_eq!(breaker.answering_since(), Some(at(1.2)));
        assert!(!breaker.record_answer(at(1.4)), "it was open no more");
    }

    #[test]
    fn a_question_without_an_outcome_leaves_its_turn_to_the_next() {
        let breaker = silent();
        assert!(matches!(breaker.admit(at(1.0)), Admission::AskFirst(_)));
        drop(breaker.hold_turn());
        assert!(matches!(breaker.admit(at(1.1)), Admission::AskFirst(_)), "nobody asked");
        let turn = breaker.hold_turn();
        breaker.record_silence(at(1.2));
        drop(turn);
        assert!(matches!(breaker.admit(at(1.3)), Admission::Refused(_)), "it was asked");
    }

    #[test]
    fn an_open_circuit_is_asked_at_least_every_five_seconds() {
        let breaker = silent();
        let mut asked = Vec::new();
        for tenth in 0..600 {
            let now = at(f64::from(tenth) / 10.0);
            if matches!(breaker.admit(now), Admission::AskFirst(_)) {
                asked.push(now);
                breaker.record_silence(now);
            }
        }
        let apart: Vec<f64> = asked.windows(2).map(|two| two[1].seconds_since(two[0])).collect();
        assert!(apart.iter().all(|seconds| *seconds <= 5.1), "{apart:?}");
        assert!(asked.len() < 16, "{}", asked.len());
    }

    #[test]
    fn a_refused_key_opens_at_once_and_says_so() {
        let breaker = CircuitBreaker::default();
        breaker.record_refusal(OutageCause::KeyRefused, at(3.0));
        let outage = breaker.outage().unwrap();
        assert_eq!((outage.cause.wait_code(), outage.since), (WaitCode::SiteKeyRefused, at(3.0)));
        assert!(outage.to_string().contains("API key"), "{outage}");
        breaker.record_silence(at(4.0));
        assert_eq!(breaker.outage(), Some(outage), "one lost answer says nothing else");
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_keep_it_open() {
        let breaker = silent();
        assert!(matches!(breaker.admit(at(-7200.0)), Admission::AskFirst(_)));
    }

    #[test]
    fn a_word_from_after_the_opening_lets_one_caller_ask() {
        let breaker = CircuitBreaker::default();
        (0..THRESHOLD).for_each(|_| breaker.record_silence(at(1.0)));
        let refused = |now| matches!(breaker.admit(now), Admission::Refused(_));
        breaker.let_one_try(at(0.5));
        assert!(refused(at(1.5)), "the silence came after the word");
        breaker.let_one_try(at(1.6));
        assert!(!refused(at(1.7)));
        breaker.let_one_try(at(1.6));
        assert!(refused(at(1.8)), "once for each opening");
    }
}
