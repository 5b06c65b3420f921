//! Turns on one connection.
//!
//! A poll waits at the control plane, and HTTP/1.1 carries one request at a time; a heartbeat that is
//! sent meanwhile opens a connection of its own, which would stay open until the next one. So a poll
//! asks to be held no longer than until the next heartbeat is due, the heartbeat waits until it is
//! back, and a control plane has one connection for each agent, not two. A poll that does not come
//! back keeps no heartbeat: that goes out on another connection then.
//!
//! A poll that stands for a heartbeat puts the next one off, so that an agent with nothing to do and
//! nothing to say sends nothing else.

use parking_lot::Mutex;
use tokio::sync::{MutexGuard, Notify};

use crate::clock::AgentClock;

/// Longest time for which a heartbeat waits for a poll to come back, in seconds.
const PATIENCE_SECONDS: f64 = 5.0;
/// How much later than a poll that stands for a heartbeat is due back the next one goes out, in seconds.
const LATE_SECONDS: f64 = 5.0;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    turn: tokio::sync::Mutex<()>,
    /// When the next heartbeat is due, in seconds of the monotonic clock; none: now.
    next_heartbeat: Mutex<Option<f64>>,
    /// It is due now, and was not before.
    hurried: Notify,
}

impl Turns {
    /// The turn of a poll.
    pub(super) async fn of_poll(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The turn of a heartbeat; none where a poll does not come back.
    pub(super) async fn of_heartbeat(&self, clock: &dyn AgentClock) -> Option<MutexGuard<'_, ()>> {
        tokio::select! {
            biased;
            turn = self.turn.lock() => Some(turn),
            () = clock.sleep(PATIENCE_SECONDS) => None,
        }
    }

    /// Notes when the next heartbeat is due.
    pub(super) fn set_next_heartbeat(&self, monotonic_seconds: f64) {
        *self.next_heartbeat.lock() = Some(monotonic_seconds);
    }

    /// The next heartbeat is due now.
    pub(super) fn hurry_heartbeat(&self) {
        *self.next_heartbeat.lock() = None;
        self.hurried.notify_one();
    }

    /// A poll that stands for a heartbeat goes out, to be held for `seconds`.
    pub(super) fn put_heartbeat_off(&self, now: f64, seconds: u32) {
        self.set_next_heartbeat(now + f64::from(seconds) + LATE_SECONDS);
    }

    /// Waits until a heartbeat is due.
    pub(super) async fn heartbeat_due(&self, clock: &dyn AgentClock) {
        loop {
            let left = self.seconds_to_heartbeat(clock.monotonic_seconds());
            if left <= 0.0 {
                return;
            }
            tokio::select! {
                () = clock.sleep(left) => {}
                () = self.hurried.notified() => {}
            }
        }
    }

    /// Seconds until the next heartbeat is due; none are left where it is due.
    pub(super) fn seconds_to_heartbeat(&self, now: f64) -> f64 {
        self.next_heartbeat.lock().map_or(0.0, |next| next - now)
    }

    /// How long a poll asks to be held that may be held for `longest_seconds`: until the next heartbeat
    /// is due, or a second where one is due already.
    pub(super) fn poll_seconds(&self, longest_seconds: u32, now: f64) -> u32 {
        let Some(next) = *self.next_heartbeat.lock() else { return longest_seconds };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let left = (next - now).ceil().clamp(1.0, f64::from(u32::MAX)) as u32;
        left.min(longest_seconds)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;

    use async_trait::async_trait;
    use gpuaas_types::Timestamp;
    use tokio::sync::Notify;

    use super::*;

    /// Its sleeps end when they are told to.
    #[derive(Default)]
    struct HeldClock(Notify);

    #[async_trait]
    impl AgentClock for HeldClock {
        fn now(&self) -> Timestamp {
            Timestamp::EPOCH
        }

        fn monotonic_seconds(&self) -> f64 {
            0.0
        }

        async fn sleep(&self, _: f64) {
            self.0.notified().await;
        }
    }

    async fn is_pending<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> bool {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }

    #[test]
    fn a_poll_is_held_until_the_next_heartbeat_is_due() {
        let turns = Turns::default();
        assert_eq!(turns.poll_seconds(30, 0.0), 30, "none is planned");
        turns.set_next_heartbeat(40.0);
        assert_eq!(turns.poll_seconds(30, 0.0), 30);
        assert_eq!(turns.poll_seconds(30, 10.01), 30);
        assert_eq!(turns.poll_seconds(30, 20.5), 20);
        assert_eq!(
            turns.poll_seconds(30, 45.0),
            1,
            "it is due, and the next poll gives it its turn"
        );
        assert_eq!(turns.poll_seconds(0, 20.0), 0, "a control plane that holds none");
    }

    /// Amid a task no further poll goes out, and heartbeats do.
    #[test]
    fn a_poll_puts_a_heartbeat_off_for_as_long_as_it_is_held_and_no_longer() {
        let turns = Turns::default();
        assert!(turns.seconds_to_heartbeat(0.0) <= 0.0, "the first one is due at once");
        turns.put_heartbeat_off(100.0, 30);
        assert!((turns.seconds_to_heartbeat(100.0) - 35.0).abs() < 1e-9);
        assert!(
            turns.seconds_to_heartbeat(134.0) > 0.0 && turns.seconds_to_heartbeat(135.0) <= 0.0
        );
        turns.put_heartbeat_off(130.0, 30);
        assert!((turns.seconds_to_heartbeat(130.0) - 35.0).abs() < 1e-9);
        turns.hurry_heartbeat();
        assert!(turns.seconds_to_heartbeat(130.0) <= 0.0);
    }

    #[tokio::test]
    async fn a_heartbeat_waits_for_the_poll_but_not_for_ever() {
        let (turns, clock) = (Turns::default(), HeldClock::default());
        assert!(turns.of_heartbeat(&clock).await.is_some());
        let poll = turns.of_poll().await;
        let mut waiting = Box::pin(turns.of_heartbeat(&clock));
        assert!(is_pending(&mut waiting).await);
        // The next poll is behind the heartbeat that waits.
        let mut next = Box::pin(turns.of_poll());
        assert!(is_pending(&mut next).await);
        drop(poll);
        assert!(is_pending(&mut next).await);
        let turn = waiting.await;
        assert!(turn.is_some());
        drop(turn);
        let _held = next.await;
        let mut waiting = Box::pin(turns.of_heartbeat(&clock));
        assert!(is_pending(&mut waiting).await);
        clock.0.notify_one();
        assert!(waiting.await.is_none(), "a poll that does not come back holds up no heartbeat");
    }
}
