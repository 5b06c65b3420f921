//! One follower of the events for all listeners of this process, and none while nobody listens.
//!
//! A listener first reads from the database what it has missed, a page at a time as its connection
//! takes it, then gets what the follower finds. What the follower found and a listener has not taken
//! yet is bounded and shared by all listeners; one that falls further behind is told so and ends: the
//! database has what it lacks.

use std::sync::Arc;
use std::time::Duration;

use gpuaas_engine::Supervisor;
use gpuaas_store::{Store, StoreError};
use gpuaas_types::event::{EventCursor, NodeEvent};
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::time::MissedTickBehavior;

/// Events of one read of the database.
pub(crate) const PAGE: i64 = 256;

/// Time and size limits of streams of events.
#[derive(Debug, Clone, Copy)]
pub struct EventLimits {
    /// Time between two looks for new events.
    pub look: Duration,
    /// Time after which a stream on which nothing happens shows that it lives, and the credential is
    /// looked at again; shorter than the stall of the listener.
    pub heartbeat: Duration,
    /// Events that are kept for listeners that have not taken them yet.
    pub kept: usize,
}

impl Default for EventLimits {
    fn default() -> Self {
        Self { look: Duration::from_millis(500), heartbeat: Duration::from_secs(15), kept: 4_096 }
    }
}

/// The follower, while somebody listens.
pub(crate) struct EventFeed {
    store: Store,
    supervisor: Supervisor,
    limits: EventLimits,
    published: Mutex<Option<broadcast::Sender<Arc<NodeEvent>>>>,
}

impl EventFeed {
    /// Nobody listens yet.
    pub(crate) fn new(store: &Store, supervisor: &Supervisor, limits: EventLimits) -> Arc<Self> {
        let (store, supervisor) = (store.clone(), supervisor.clone());
        Arc::new(Self { store, supervisor, limits, published: Mutex::default() })
    }

    /// Listens from now on: everything that the database does not show yet will come.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn join(self: &Arc<Self>) -> Result<Listening, StoreError> {
        // Read before anything else is: a follower that begins here skips nothing that a listener
        // does not find in the database.
        let end = self.store.event_end().await?;
        let mut published = self.published.lock();
        let live = match &*published {
            Some(sender) => sender.subscribe(),
            None => {
                let (sender, live) = broadcast::channel(self.limits.kept);
                *published = Some(sender.clone());
                let follower = follow(Arc::clone(self), sender, end);
                self.supervisor.spawn_finite("event feed", follower);
                live
            }
        };
        Ok(Listening { live, end })
    }

    /// Whether a follower is at work.
    #[cfg(test)]
    pub(crate) fn is_followed(&self) -> bool {
        self.published.lock().is_some()
    }

    /// Ends the follower where nobody listens; whoever joins later starts another one.
    fn ends_unheard(&self, sender: &broadcast::Sender<Arc<NodeEvent>>) -> bool {
        let mut published = self.published.lock();
        if sender.receiver_count() > 0 {
            return false;
        }
        *published = None;
        true
    }
}

/// One listener.
pub(crate) struct Listening {
    /// What is found from now on.
    pub(crate) live: broadcast::Receiver<Arc<NodeEvent>>,
    /// After every event that was there before.
    pub(crate) end: EventCursor,
}

async fn follow(
    feed: Arc<EventFeed>,
    sender: broadcast::Sender<Arc<NodeEvent>>,
    mut after: EventCursor,
) {
    let mut looks = tokio::time::interval(feed.limits.look);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopping = feed.supervisor.stopping();
    let mut is_failing = false;
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = stopping.wait_for(|stopping| *stopping) => {
                *feed.published.lock() = None;
                return;
            }
        }
        if feed.ends_unheard(&sender) {
            return;
        }
        match publish(&feed.store, &sender, after).await {
            Ok(last) => (after, is_failing) = (last, false),
            Err(error) if is_failing => tracing::debug!(%error, "cannot read events"),
            Err(error) => {
                is_failing = true;
                tracing::warn!(%error, "cannot read events; retrying");
            }
        }
    }
}

/// Sends what is there after `after`. Answers the last one.
async fn publish(
    store: &Store,
    sender: &broadcast::Sender<Arc<NodeEvent>>,
    mut after: EventCursor,
) -> Result<EventCursor, StoreError> {
    loop {
        let page = store.events_after(after, PAGE).await?;
        let is_full = i64::try_from(page.len()).is_ok_and(|events| events == PAGE);
        for event in page {
            after = event.id;
            // Fails where nobody listens any more, which the next look finds.
            sender.send(Arc::new(event)).ok();
        }
        if !is_full {
            return Ok(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_store::MasterKey;

    use super::*;

    #[tokio::test]
    async fn nobody_follows_while_nobody_listens() {
        let store = Store::in_memory(MasterKey::from_bytes([1; 32])).await.unwrap();
        let limits = EventLimits { look: Duration::from_millis(1), ..EventLimits::default() };
        let feed = EventFeed::new(&store, &Supervisor::default(), limits);
        assert!(!feed.is_followed());
        for _ in 0..2 {
            let (one, other) = (feed.join().await.unwrap(), feed.join().await.unwrap());
            assert_eq!(one.end, EventCursor::BEGIN);
            drop(one);
            assert!(feed.is_followed());
            drop(other);
            let mut looks = tokio::time::interval(Duration::from_millis(1));
            let ended = async {
                while feed.is_followed() {
                    looks.tick().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
        }
    }
}
