//! Wakes the long polls of agents.
//!
//! A poll without work sleeps on a notifier of its node. One listener forwards the store's task
//! signals to these notifiers, so a thousand waiting agents cost a thousand map entries and no
//! query.
//!
//! A task that another replica issued sends no signal here. On a database that replicas share, one
//! loop per process therefore asks once a second which nodes have tasks that nobody fetched, over
//! an index that holds only those: the cost is a query per process and second, however many agents
//! wait. (LISTEN/NOTIFY would spare that query, at the price of a connection and of a second way
//! to signal; the store uses only what both databases have.)

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use gpuaas_engine::{Clock, Supervisor};
use gpuaas_store::Store;
use gpuaas_types::NodeId;
use parking_lot::Mutex;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, broadcast};
use tokio::time::{Instant, MissedTickBehavior};

/// Time between two queries for tasks that other replicas issued.
const QUERY_INTERVAL: Duration = Duration::from_secs(1);

/// Polls end at multiples of this. A fleet's polls end all the time, and their agents poll anew; ends
/// that lie together find the processor's caches warm, and cost a tenth less of it.
const END_INTERVAL: Duration = Duration::from_millis(500);

/// The waiting polls of this process, by node.
pub(crate) struct TaskSignals {
    waiting: Mutex<HashMap<NodeId, Entry>>,
    since: Instant,
}

impl Default for TaskSignals {
    fn default() -> Self {
        Self { waiting: Mutex::default(), since: Instant::now() }
    }
}

/// The polls of one node.
struct Entry {
    polls: usize,
    notify: Arc<Notify>,
}

impl TaskSignals {
    /// Signals every task issued through `store`, and on a shared database also those that other
    /// replicas issue. Its loops end when the value is dropped or the store is closed.
    pub(crate) fn start(
        store: &Store,
        clock: &Arc<dyn Clock>,
        supervisor: &Supervisor,
    ) -> Arc<Self> {
        let signals = Arc::new(Self::default());
        supervisor
            .spawn_finite("task signals", forward(store.task_signal(), Arc::downgrade(&signals)));
        if store.engine() != "sqlite" {
            let polling =
                poll_waiting_tasks(store.clone(), Arc::clone(clock), Arc::downgrade(&signals));
            supervisor.spawn_finite("tasks of other control planes", polling);
        }
        signals
    }

    /// Registers a poll of `node`.
    pub(crate) fn join(self: &Arc<Self>, node: NodeId) -> PollPermit {
        let mut waiting = self.waiting.lock();
        let entry = waiting
            .entry(node)
            .or_insert_with(|| Entry { polls: 0, notify: Arc::new(Notify::new()) });
        entry.polls += 1;
        PollPermit { signals: Arc::clone(self), node, notify: Arc::clone(&entry.notify) }
    }

    /// When a poll ends that waits from now on for `wait`: then, or at most [`END_INTERVAL`] later.
    pub(crate) fn end(&self, wait: Duration) -> Instant {
        let passed = self.since.elapsed() + wait;
        let whole = passed.as_millis() / END_INTERVAL.as_millis();
        // A process lives less than the 68 years that 2^32 of them are.
        self.since + END_INTERVAL * u32::try_from(whole + 1).unwrap_or(u32::MAX)
    }

    fn wake(&self, node: NodeId) {
        let waiting = self.waiting.lock();
        if let Some(entry) = waiting.get(&node) {
            entry.notify.notify_waiters();
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    fn wake_all(&self) {
        let waiting = self.waiting.lock();
        waiting.values().for_each(|entry| entry.notify.notify_waiters());
    }
}

async fn forward(mut issued: broadcast::Receiver<NodeId>, signals: Weak<TaskSignals>) {
    loop {
        let node = issued.recv().await;
        let Some(signals) = signals.upgrade() else { return };
        match node {
            Ok(node) => signals.wake(node),
            Err(broadcast::error::RecvError::Lagged(_)) => signals.wake_all(),
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// Wakes the polls of nodes whose tasks were issued elsewhere.
async fn poll_waiting_tasks(store: Store, clock: Arc<dyn Clock>, signals: Weak<TaskSignals>) {
    let mut queries = tokio::time::interval(QUERY_INTERVAL);
    queries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        queries.tick().await;
        let Some(signals) = signals.upgrade() else { return };
        if signals.is_empty() {
            continue;
        }
        match store.nodes_with_waiting_tasks(clock.now()).await {
            Ok(nodes) => nodes.into_iter().for_each(|node| signals.wake(node)),
            Err(error) => tracing::warn!(%error, "cannot read tasks of other replicas"),
        }
    }
}

/// Registration of one poll; dropping it ends the registration, also when the agent hangs up.
pub(crate) struct PollPermit {
    signals: Arc<TaskSignals>,
    node: NodeId,
    notify: Arc<Notify>,
}

/// Ends when a node got a task.
pub(crate) type TaskSignal = Pin<Box<OwnedNotified>>;

impl PollPermit {
    /// Of the tasks that the node gets from now on. Take it before reading what there is, so that none
    /// slips in between.
    pub(crate) fn next_signal(&self) -> TaskSignal {
        let mut signal = Box::pin(Arc::clone(&self.notify).notified_owned());
        signal.as_mut().enable();
        signal
    }
}

impl Drop for PollPermit {
    fn drop(&mut self) {
        let mut waiting = self.signals.waiting.lock();
        if let Some(entry) = waiting.get_mut(&self.node) {
            entry.polls -= 1;
            if entry.polls == 0 {
                waiting.remove(&self.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_engine::VirtualClock;
    use gpuaas_store::{
        MasterKey, NewNode, NewOnboarding, NewRun, NewTask, RunWrite, SecretString,
    };
    use gpuaas_types::agent::TaskSpec;
    use gpuaas_types::spec::{ProfileSpec, SiteSpec};
    use gpuaas_types::{ProfileId, RandomIds, RunId, SiteId, TaskId, Timestamp};

    const NOW: Timestamp = Timestamp::from_micros(1_795_176_000_000_000);

    fn onboarding() -> (NewOnboarding, SiteSpec) {
        let node = NewNode {
            id: NodeId::new(&RandomIds, NOW),
            site_id: SiteId::new(&RandomIds, NOW),
            profile_id: ProfileId::new(&RandomIds, NOW),
            hostname: "j22u11".to_owned(),
            hardware: Default::default(),
            bmc_password: None,
        };
        let run = NewRun::onboard(RunId::new(&RandomIds, NOW), 1, String::new());
        (NewOnboarding::new(node, run), SiteSpec::new("lab", "http://127.0.0.1:1/MAAS"))
    }

    #[tokio::test(start_paused = true)]
    async fn polls_that_began_apart_end_together_and_none_too_soon() {
        let signals = TaskSignals::default();
        let wait = Duration::from_secs(30);
        let mut ends = Vec::new();
        for _ in 0..10 {
            let asked = Instant::now() + wait;
            let end = signals.end(wait);
            assert!(end >= asked && end <= asked + END_INTERVAL, "{:?}", end - asked);
            ends.push(end);
            tokio::time::advance(Duration::from_millis(40)).await;
        }
        ends.dedup();
        assert_eq!(ends.len(), 1, "{ends:?}");
    }

    /// Two control planes on one database: one issues, the agent waits at the other.
    #[tokio::test]
    async fn a_task_of_another_replica_wakes_the_poll() {
        let dir = tempfile::tempdir().unwrap();
        let url = dir.path().join("gpuaas.db").display().to_string();
        let open = || Store::open(&url, MasterKey::from_bytes([7; 32]));
        let (here, there) = (open().await.unwrap(), open().await.unwrap());
        let (asked, site) = onboarding();
        let key = SecretString::from("a:b:c".to_owned());
        let (node, site_id, profile_id) =
            (asked.node.id, asked.node.site_id, asked.node.profile_id);
        there
            .create_site(
                NOW,
                site_id,
                site,
                Default::default(),
                &key,
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await
            .unwrap();
        there
            .create_profile(
                NOW,
                profile_id,
                "p",
                &ProfileSpec::default(),
                &[],
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await
            .unwrap();
        there.onboard(NOW, asked).await.unwrap();

        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(NOW));
        let signals = Arc::new(TaskSignals::default());
        let polling =
            tokio::spawn(poll_waiting_tasks(here.clone(), clock, Arc::downgrade(&signals)));
        let permit = signals.join(node);
        let notify = Arc::clone(&permit.notify);
        let signal = notify.notified();
        tokio::pin!(signal);
        signal.as_mut().enable();
        let until = NOW.plus_seconds(9.0);
        let run = there.claim(NOW, until, 1).await.unwrap().remove(0).run;
        let mut write = RunWrite::new(run).releasing();
        let id = TaskId::new(&RandomIds, NOW);
        write.tasks.push(NewTask { id, spec: TaskSpec::SoftReset {}, expires_at: until });
        there.commit(NOW, write).await.unwrap();
        tokio::time::timeout(Duration::from_secs(20), signal).await.unwrap();
        assert_eq!(here.pending_tasks(NOW, node).await.unwrap().len(), 1);
        assert!(here.nodes_with_waiting_tasks(NOW).await.unwrap().is_empty(), "it was fetched");
        drop(permit);
        drop(signals);
        polling.await.unwrap();
    }
}
