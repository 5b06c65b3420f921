//! Wakes the long polls of agents.
//!
//! A poll without work sleeps on a notifier of its node. One listener forwards the store's task
//! signals to these notifiers, so a thousand waiting agents cost a thousand map entries and no
//! query. A task that another replica issued sends no signal here: polls look again by themselves
//! on a shared database, rarely (`TaskHub::patience`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use gpuaas_store::Store;
use gpuaas_types::NodeId;
use tokio::sync::{Notify, broadcast};

#[derive(Default)]
pub(crate) struct TaskHub {
    waiting: Mutex<HashMap<NodeId, Entry>>,
}

struct Entry {
    polls: usize,
    notify: Arc<Notify>,
}

impl TaskHub {
    /// A hub that hears of every task issued through `store` for as long as both exist.
    pub(crate) fn start(store: &Store) -> Arc<Self> {
        let hub = Arc::new(Self::default());
        tokio::spawn(forward(store.task_signal(), Arc::downgrade(&hub)));
        hub
    }

    /// How long a poll may trust that a signal will come.
    pub(crate) fn patience(store: &Store) -> Duration {
        match store.engine() {
            "sqlite" => Duration::from_secs(15),
            _ => Duration::from_secs(2),
        }
    }

    /// Registers a poll of `node`.
    pub(crate) fn join(self: &Arc<Self>, node: NodeId) -> Seat {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = waiting
            .entry(node)
            .or_insert_with(|| Entry { polls: 0, notify: Arc::new(Notify::new()) });
        entry.polls += 1;
        Seat { hub: Arc::clone(self), node, notify: Arc::clone(&entry.notify) }
    }

    fn wake(&self, node: NodeId) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = waiting.get(&node) {
            entry.notify.notify_waiters();
        }
    }

    fn wake_all(&self) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.values().for_each(|entry| entry.notify.notify_waiters());
    }
}

async fn forward(mut signals: broadcast::Receiver<NodeId>, hub: Weak<TaskHub>) {
    loop {
        let signal = signals.recv().await;
        let Some(hub) = hub.upgrade() else { return };
        match signal {
            Ok(node) => hub.wake(node),
            Err(broadcast::error::RecvError::Lagged(_)) => hub.wake_all(),
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// The place of one poll; left when dropped, also when the agent hangs up.
pub(crate) struct Seat {
    hub: Arc<TaskHub>,
    node: NodeId,
    /// Take `notified()` before looking for tasks, so that none slips in between.
    pub(crate) notify: Arc<Notify>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut waiting = self.hub.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = waiting.get_mut(&self.node) {
            entry.polls -= 1;
            if entry.polls == 0 {
                waiting.remove(&self.node);
            }
        }
    }
}
