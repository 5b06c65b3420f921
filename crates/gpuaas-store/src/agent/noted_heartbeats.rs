//! What a process keeps in memory of heartbeats; see `heartbeats`.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpuaas_types::api::TimelineEvent;
use gpuaas_types::{NodeId, RunId, Timestamp};

/// A sign of life.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedHeartbeat {
    /// Node that the agent runs on.
    pub node_id: NodeId,
    /// The run that its credential was made for.
    pub run_id: RunId,
    /// Version of the agent.
    pub agent_version: String,
    /// What keeps the agent from its work; empty: nothing.
    pub troubles: String,
    /// Written to the history if this is the first heartbeat of the run.
    pub first: Option<TimelineEvent>,
    /// Written to the history if the troubles are others than before.
    pub changed: Option<TimelineEvent>,
}

/// What this process last wrote of a node.
#[derive(Debug, PartialEq, Eq)]
struct Written {
    run_id: RunId,
    agent_version: String,
    troubles: String,
}

impl Written {
    fn says(&self, heartbeat: &ReceivedHeartbeat) -> bool {
        self.run_id == heartbeat.run_id
            && self.agent_version == heartbeat.agent_version
            && self.troubles == heartbeat.troubles
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct NotedHeartbeats {
    written: Mutex<HashMap<NodeId, Written>>,
    /// What is to be written, in the order in which rows are locked.
    noted: Mutex<BTreeMap<NodeId, (Timestamp, ReceivedHeartbeat)>>,
    /// The last write failed.
    failing: AtomicBool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NotedHeartbeats {
    /// Notes a heartbeat that says what is written already; answers whether it does.
    pub(crate) fn note(&self, now: Timestamp, heartbeat: &ReceivedHeartbeat) -> bool {
        if self.failing.load(Ordering::Relaxed) {
            return false;
        }
        let is_known =
            lock(&self.written).get(&heartbeat.node_id).is_some_and(|it| it.says(heartbeat));
        if is_known {
            lock(&self.noted).insert(heartbeat.node_id, (now, heartbeat.clone()));
        }
        is_known
    }

    /// Notes what this process last wrote of a node once more, at a later time, where that is of this run
    /// and `is_said`, of the agent's version and its troubles, says so; answers whether it was noted.
    pub(crate) fn note_again(
        &self,
        now: Timestamp,
        node_id: NodeId,
        run_id: RunId,
        is_said: impl FnOnce(&str, &str) -> bool,
    ) -> bool {
        if self.failing.load(Ordering::Relaxed) {
            return false;
        }
        let written = lock(&self.written);
        let Some(Written { agent_version, troubles, .. }) =
            written.get(&node_id).filter(|it| it.run_id == run_id)
        else {
            return false;
        };
        if !is_said(agent_version, troubles) {
            return false;
        }
        let (agent_version, troubles) = (agent_version.clone(), troubles.clone());
        drop(written);
        let heartbeat = ReceivedHeartbeat {
            node_id,
            run_id,
            agent_version,
            troubles,
            first: None,
            changed: None,
        };
        lock(&self.noted).insert(node_id, (now, heartbeat));
        true
    }

    pub(crate) fn remember(&self, heartbeat: ReceivedHeartbeat) {
        let ReceivedHeartbeat { node_id, run_id, agent_version, troubles, .. } = heartbeat;
        lock(&self.written).insert(node_id, Written { run_id, agent_version, troubles });
    }

    /// Puts back what could not be written, unless a later one was noted meanwhile.
    pub(crate) fn put_back(
        &self,
        heartbeats: impl IntoIterator<Item = (Timestamp, ReceivedHeartbeat)>,
    ) {
        let mut noted = lock(&self.noted);
        for (at, heartbeat) in heartbeats {
            noted.entry(heartbeat.node_id).or_insert((at, heartbeat));
        }
    }

    /// Takes out what was noted.
    pub(crate) fn take(&self) -> BTreeMap<NodeId, (Timestamp, ReceivedHeartbeat)> {
        std::mem::take(&mut *lock(&self.noted))
    }

    /// Whether the last write failed.
    pub(crate) fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::Relaxed);
    }

    /// Has the node's next heartbeat be written at once.
    pub(crate) fn forget(&self, node_id: NodeId) {
        lock(&self.written).remove(&node_id);
    }
}
