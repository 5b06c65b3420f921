//! Time that nobody waits for: it stands still while anything is at work and then jumps.
//!
//! The clock itself decides nothing. Whoever drives a simulation lets everything run that can run,
//! asks for the earliest sleeper ([`VirtualClock::next`]), and moves the clock there
//! ([`VirtualClock::advance_to`]), which wakes sleepers in the order of their moments and, within
//! a moment, in the order in which they lay down. So one seed gives one history.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use gpuaas_types::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use crate::clock::Clock;

#[derive(Debug)]
struct State {
    now: Timestamp,
    sequence: u64,
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
}

/// See the module text. Cheap to clone; clones are one clock.
#[derive(Debug, Clone)]
pub struct VirtualClock {
    state: Arc<Mutex<State>>,
}

/// Entry of a sleeper; dropping it removes the sleeper, however its sleep ends.
struct SleeperEntry<'a> {
    clock: &'a VirtualClock,
    key: Option<(Timestamp, u64)>,
}

impl Drop for SleeperEntry<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.clock.lock().sleepers.remove(&key);
        }
    }
}

impl VirtualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        let state = State { now, sequence: 0, sleepers: BTreeMap::new() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// When the earliest sleeper wants to wake.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.lock().sleepers.keys().next().map(|(at, _)| *at)
    }

    /// Moves to `at`, never back, and wakes whoever wanted to wake by then.
    pub fn advance_to(&self, at: Timestamp) {
        let woken = {
            let mut state = self.lock();
            state.now = state.now.max(at);
            let now = state.now;
            let later = state.sleepers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut state.sleepers, later)
        };
        woken.into_values().for_each(Waker::wake);
    }

    /// The same time, seen by a clock that is `seconds` ahead (behind where negative).
    #[must_use]
    pub fn ahead(&self, seconds: f64) -> AheadClock {
        AheadClock { clock: self.clone(), micros: Arc::new(AtomicI64::new(micros(seconds))) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn poll(&self, entry: &mut SleeperEntry<'_>, at: Timestamp, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.now >= at {
            return Poll::Ready(());
        }
        let key = *entry.key.get_or_insert_with(|| {
            state.sequence += 1;
            (at, state.sequence)
        });
        state.sleepers.insert(key, context.waker().clone());
        Poll::Pending
    }
}

#[async_trait]
impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    async fn sleep_until(&self, at: Timestamp) {
        let mut entry = SleeperEntry { clock: self, key: None };
        poll_fn(|context| self.poll(&mut entry, at, context)).await;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a clock that is wrong by days at most")]
fn micros(seconds: f64) -> i64 {
    (seconds * 1e6) as i64
}

/// A [`VirtualClock`] that is wrong by some seconds, until somebody sets it. Clones are one clock.
#[derive(Debug, Clone)]
pub struct AheadClock {
    clock: VirtualClock,
    micros: Arc<AtomicI64>,
}

impl AheadClock {
    /// How many seconds it is ahead.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a clock that is wrong by days at most")]
        let seconds = self.micros.load(Ordering::SeqCst) as f64 / 1e6;
        seconds
    }

    /// Sets it forward by so many seconds; back where negative. Whoever sleeps already wakes after
    /// as long a sleep as was meant.
    pub fn step(&self, seconds: f64) {
        self.micros.fetch_add(micros(seconds), Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for AheadClock {
    fn now(&self) -> Timestamp {
        let micros = self.micros.load(Ordering::SeqCst);
        Timestamp::from_micros(self.clock.now().as_micros().saturating_add(micros))
    }

    async fn sleep_until(&self, at: Timestamp) {
        let micros = self.micros.load(Ordering::SeqCst);
        self.clock.sleep_until(Timestamp::from_micros(at.as_micros().saturating_sub(micros))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleepers_wake_in_order_and_leave_no_trace() {
        let begin = Timestamp::EPOCH.plus_seconds(100.0);
        let clock = VirtualClock::new(begin);
        let order = Arc::new(Mutex::new(Vec::new()));
        let sleep = |seconds: f64| {
            let (clock, order) = (clock.clone(), Arc::clone(&order));
            async move {
                clock.sleep_until(begin.plus_seconds(seconds)).await;
                order.lock().push(seconds);
            }
        };
        let drive = async {
            while let Some(at) = clock.next() {
                clock.advance_to(at);
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(sleep(5.0), sleep(1.0), sleep(5.0), sleep(0.0), drive);
        assert_eq!(*order.lock(), [0.0, 1.0, 5.0, 5.0]);
        assert_eq!(clock.now(), begin.plus_seconds(5.0));
        {
            let dropped = clock.sleep_until(begin.plus_seconds(9.0));
            assert!(futures_now(dropped).is_none());
        }
        assert_eq!(clock.next(), None);
        let behind = clock.ahead(-2.0);
        assert_eq!(behind.now(), begin.plus_seconds(3.0));
        behind.step(3.5);
        assert_eq!((behind.now(), behind.seconds()), (begin.plus_seconds(6.5), 1.5));
    }

    fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }
}
