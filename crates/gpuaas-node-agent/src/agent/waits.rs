//! Tasks that only wait for something, looked at beside all others.
//!
//! A guest takes minutes to boot, and an erase takes hours: neither is to hold the other up, nor a
//! release the guest that it is the end of. A look changes nothing, so nothing of it is recorded: the
//! next process of this agent waits anew, and a look that came twice is a result that came twice, of which
//! the control plane takes the first.

use std::collections::BTreeMap;

use gpuaas_types::TaskId;
use gpuaas_types::agent::{SignedTask, Task, TaskSpec};
use gpuaas_types::slice::{SliceAction, SliceTask};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::AgentClock;

/// A task that is waited for.
#[derive(Debug, Clone)]
pub(super) struct Wait {
    /// What to do.
    pub(super) slice: SliceTask,
    /// When it came first, in seconds of the monotonic clock.
    pub(super) since: f64,
}

/// The tasks that are waited for.
#[derive(Debug, Default)]
pub(super) struct Waits {
    waits: Mutex<BTreeMap<TaskId, Wait>>,
    /// One was added.
    added: Notify,
    /// One has a result.
    ended: Notify,
}

impl Waits {
    /// Waits for `task` from now on, where it is one that waits; answers whether it is.
    pub(super) fn begin(&self, task: &Task, now: f64) -> bool {
        let TaskSpec::Slice { slice } = &task.spec else { return false };
        if slice.action != SliceAction::AwaitGuest {
            return false;
        }
        let wait = || Wait { slice: SliceTask::clone(slice), since: now };
        self.waits.lock().entry(task.id).or_insert_with(wait);
        self.added.notify_one();
        true
    }

    /// Waits no longer for what the control plane does not send any more: it expired.
    pub(super) fn retain<E>(&self, sent: &[SignedTask<E>]) {
        self.waits.lock().retain(|id, _| sent.iter().any(|task| task.id == *id));
    }

    /// All of them, once there are any.
    pub(super) async fn any(&self) -> BTreeMap<TaskId, Wait> {
        loop {
            let waits = self.waits.lock().clone();
            if !waits.is_empty() {
                return waits;
            }
            self.added.notified().await;
        }
    }

    /// Waits no longer for what has a result.
    pub(super) fn end(&self, id: TaskId) {
        self.waits.lock().remove(&id);
        self.ended.notify_one();
    }

    /// Returns when one has a result, or after so many seconds.
    pub(super) async fn ended(&self, clock: &dyn AgentClock, seconds: f64) {
        tokio::select! {
            () = self.ended.notified() => {}
            () = clock.sleep(seconds) => {}
        }
    }
}
