//! Ends a control plane, or stops it for a while, at a moment that was chosen beforehand.
//!
//! Two kinds of events are counted. A *call boundary* lies before a request leaves, and after its
//! response has arrived: there the journal and MAAS hold different things. A *committed write* whose
//! caller has not resumed yet is the other: a process that crashes there has written one thing and
//! not the next. One control plane at a time is armed, and only its own events count.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// What happens to the control plane when the failpoint triggers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerAction {
    /// The control plane is dropped where it is.
    Crash,
    /// The executor no longer schedules it. Requests that left stay in flight.
    Pause,
}

/// Which events an armed failpoint counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedEvent {
    /// A request is about to leave, has left, or its response has arrived.
    CallBoundary,
    /// The database committed a write.
    CommittedWrite,
}

#[derive(Debug, Clone, Copy)]
struct Armed {
    replica: u32,
    counted: CountedEvent,
    remaining: u32,
    action: TriggerAction,
}

#[derive(Debug, Default)]
struct TriggerState {
    armed: Option<Armed>,
    triggered: Option<(u32, TriggerAction)>,
}

/// The failpoint of one simulation: triggers once, at the event it was armed for.
#[derive(Debug, Default)]
pub struct FailpointTrigger {
    state: Mutex<TriggerState>,
}

impl FailpointTrigger {
    fn lock(&self) -> MutexGuard<'_, TriggerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Triggers `action` for `replica` at the `remaining`-th counted event from here.
    pub fn arm(&self, replica: u32, counted: CountedEvent, remaining: u32, action: TriggerAction) {
        self.lock().armed = Some(Armed { replica, counted, remaining: remaining.max(1), action });
    }

    /// The control plane for which it has triggered, and what happens to it.
    #[must_use]
    pub fn triggered(&self) -> Option<(u32, TriggerAction)> {
        self.lock().triggered
    }

    /// Triggers for `replica` at once. It pauses where it is; the caller of the simulation decides
    /// whether it crashes there.
    pub(crate) fn trigger(&self, replica: u32) {
        self.lock().triggered = Some((replica, TriggerAction::Pause));
    }

    /// Disarms it and forgets that it triggered.
    pub fn reset(&self) {
        *self.lock() = TriggerState::default();
    }

    /// Counts one event where it is armed for such events. Returns the action if it triggers now.
    fn count(
        &self,
        replica: u32,
        counted: CountedEvent,
        actions: &[TriggerAction],
    ) -> Option<TriggerAction> {
        let mut state = self.lock();
        let armed = state.armed.as_mut()?;
        if armed.replica != replica || armed.counted != counted || !actions.contains(&armed.action)
        {
            return None;
        }
        armed.remaining -= 1;
        if armed.remaining > 0 {
            return None;
        }
        let action = armed.action;
        state.armed = None;
        state.triggered = Some((replica, action));
        Some(action)
    }

    async fn boundary(&self, replica: u32, actions: &[TriggerAction]) {
        match self.count(replica, CountedEvent::CallBoundary, actions) {
            None => {}
            Some(TriggerAction::Crash) => std::future::pending().await,
            Some(TriggerAction::Pause) => pause().await,
        }
    }

    /// A request is about to leave. Pausing here is left out: nothing but MAAS could refuse a
    /// request that leaves late.
    pub(crate) async fn before_request(&self, replica: u32) {
        self.boundary(replica, &[TriggerAction::Crash]).await;
    }

    /// The request has left. A pause here leaves a change in flight. A crash here cannot be told
    /// from one before the request left, so it is left out.
    pub(crate) async fn after_request(&self, replica: u32) {
        self.boundary(replica, &[TriggerAction::Pause]).await;
    }

    /// The response has arrived.
    pub(crate) async fn after_response(&self, replica: u32) {
        self.boundary(replica, &[TriggerAction::Crash, TriggerAction::Pause]).await;
    }

    /// Writes were committed. Pausing here would hold a connection that others wait for.
    pub(crate) fn after_writes(&self, replica: u32, writes: u64) {
        for _ in 0..writes {
            self.count(replica, CountedEvent::CommittedWrite, &[TriggerAction::Crash]);
        }
    }
}

/// Returns pending once and wakes itself, so that the executor decides when it resumes.
async fn pause() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
