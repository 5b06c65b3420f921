//! Tasks of slices, which are carried out beside each other.
//!
//! A guest takes minutes to boot, and an erase takes hours: neither holds up what is done for another
//! claim. A claim has one task under way at a time, and beside it the wait for its guest, which a
//! release does not wait for. Whatever else may change the host goes on while nothing of this is under
//! way; what came after it comes after it here, too.

use std::collections::BTreeMap;

use gpuaas_types::agent::{Operation, SignedTask, Task, TaskSpec};
use gpuaas_types::slice::{SliceAction, SliceTask};
use gpuaas_types::{ClaimId, TaskId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::AgentClock;

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody has taken it yet.
    Begun,
    /// Somebody carries it out.
    UnderWay,
    /// It has a result. A poll that was sent before that may bring it once more.
    Ended,
}

/// A task that was begun.
#[derive(Debug, Clone)]
struct Entry {
    task: Task,
    stage: Stage,
}

/// What a task of the control plane can do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is no task of a slice, and may be carried out at once.
    Alone,
    /// It may begin beside the others.
    Beside,
    /// Its claim has another one under way.
    AfterItsClaim,
    /// It is no task of a slice, and waits until none of those is under way.
    AfterAll,
}

/// The tasks of slices.
#[derive(Debug, Default)]
pub(super) struct SliceTasks {
    entries: Mutex<BTreeMap<TaskId, Entry>>,
    /// One was begun.
    begun: Notify,
    /// One has a result.
    ended: Notify,
}

impl SliceTasks {
    /// What `spec` can do now.
    pub(super) fn admission(&self, spec: &TaskSpec) -> Admission {
        let is_busy = |claim: Option<ClaimId>| {
            let entries = self.entries.lock();
            let under_way = entries.values().filter(|one| one.stage != Stage::Ended);
            let mut busy = under_way.filter_map(|one| busy_claim(&one.task.spec));
            busy.any(|busy| claim.is_none_or(|claim| claim == busy))
        };
        match spec {
            TaskSpec::Slice { slice } => match busy_claim(spec) {
                Some(_) if is_busy(Some(slice.claim_id)) => Admission::AfterItsClaim,
                _ => Admission::Beside,
            },
            spec if !only_looks(spec) && is_busy(None) => Admission::AfterAll,
            _ => Admission::Alone,
        }
    }

    /// Has a task carried out.
    pub(super) fn begin(&self, task: Task) {
        self.entries.lock().insert(task.id, Entry { task, stage: Stage::Begun });
        self.begun.notify_one();
    }

    /// Whether a task was begun, as far as a poll that was sent before its end can tell.
    pub(super) fn contains(&self, id: TaskId) -> bool {
        self.entries.lock().contains_key(&id)
    }

    /// Forgets what has a result: a poll that is sent now does not bring it again.
    pub(super) fn forget_ended(&self) {
        self.entries.lock().retain(|_, one| one.stage != Stage::Ended);
    }

    /// Waits for no guest any longer whose wait the control plane does not send any more: it expired. What
    /// changes the host is carried out to its end.
    pub(super) fn retain_waits<E>(&self, sent: &[SignedTask<E>]) {
        self.entries.lock().retain(|id, one| {
            busy_claim(&one.task.spec).is_some() || sent.iter().any(|task| task.id == *id)
        });
    }

    /// The next task that was begun and that nobody has taken, once there is one.
    pub(super) async fn take(&self) -> Task {
        loop {
            let begun = |entries: &mut BTreeMap<TaskId, Entry>| {
                let entry = entries.values_mut().find(|one| one.stage == Stage::Begun)?;
                entry.stage = Stage::UnderWay;
                Some(entry.task.clone())
            };
            if let Some(task) = begun(&mut self.entries.lock()) {
                return task;
            }
            self.begun.notified().await;
        }
    }

    /// A task has a result, and the control plane has it.
    pub(super) fn end(&self, id: TaskId) {
        if let Some(entry) = self.entries.lock().get_mut(&id) {
            entry.stage = Stage::Ended;
        }
        self.ended.notify_one();
    }

    /// Returns when one has a result, or after so many seconds; answers whether one has.
    pub(super) async fn ended(&self, clock: &dyn AgentClock, seconds: f64) -> bool {
        tokio::select! {
            () = self.ended.notified() => true,
            () = clock.sleep(seconds) => false,
        }
    }
}

/// The wait for a guest, where `spec` is one.
pub(super) fn guest_wait(spec: &TaskSpec) -> Option<&SliceTask> {
    match spec {
        TaskSpec::Slice { slice } if slice.action == SliceAction::AwaitGuest => Some(slice),
        _ => None,
    }
}

/// The claim that is busy while a task is under way; none: no claim is, as with a wait for a guest.
fn busy_claim(spec: &TaskSpec) -> Option<ClaimId> {
    match spec {
        TaskSpec::Slice { slice } if guest_wait(spec).is_none() => Some(slice.claim_id),
        _ => None,
    }
}

/// Whether a task changes nothing, and is not misled by what a slice's task is amid.
fn only_looks(spec: &TaskSpec) -> bool {
    match spec {
        TaskSpec::Diagnostics { .. } | TaskSpec::Validate { .. } => true,
        TaskSpec::Operate { dry_run, operation } => {
            *dry_run || matches!(operation, Operation::CollectDiagnostics { .. })
        }
        TaskSpec::SoftReset {}
        | TaskSpec::StorageCleanup {}
        | TaskSpec::Reboot { .. }
        | TaskSpec::Slice { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::task::Poll;

    use gpuaas_types::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn task(number: u128, claim: u128, action: SliceAction) -> Task {
        let slice = SliceTask {
            claim_id: ClaimId(Uuid::from_u128(claim)),
            fence: 1,
            action,
            devices: Vec::new(),
            domain_xml: String::new(),
            image: String::new(),
            seed: None,
            mac: String::new(),
            partition: None,
            guest_timeout_seconds: None,
        };
        let spec = TaskSpec::Slice { slice: Box::new(slice) };
        Task { id: id(number), spec, expires_at: Timestamp::NEVER }
    }

    fn id(number: u128) -> TaskId {
        TaskId(Uuid::from_u128(number))
    }

    async fn is_any_left(tasks: &SliceTasks) -> bool {
        let mut taken = Box::pin(tasks.take());
        poll_fn(|cx| Poll::Ready(taken.as_mut().poll(cx).is_ready())).await
    }

    /// A poll that was sent before a result came in brings its task once more; carried out, it would be
    /// refused as a copy of it, which is what an intruder sends.
    #[tokio::test]
    async fn a_task_is_begun_once_whatever_poll_brings_it() {
        let tasks = SliceTasks::default();
        tasks.begin(task(1, 1, SliceAction::Erase));
        assert_eq!(tasks.take().await.id, id(1));
        assert!(!is_any_left(&tasks).await);
        tasks.end(id(1));
        assert!(tasks.contains(id(1)), "a poll may be on its way");
        tasks.forget_ended();
        assert!(!tasks.contains(id(1)));
    }

    #[tokio::test]
    async fn a_claim_has_one_task_under_way_and_the_wait_for_its_guest() {
        let tasks = SliceTasks::default();
        let admission = |claim, action| tasks.admission(&task(9, claim, action).spec);
        tasks.begin(task(1, 1, SliceAction::AwaitGuest));
        assert_eq!(admission(1, SliceAction::Stop), Admission::Beside);
        let reset = TaskSpec::SoftReset {};
        assert_eq!(tasks.admission(&reset), Admission::Alone, "a wait changes nothing");
        tasks.begin(task(2, 1, SliceAction::Stop));
        assert_eq!(admission(1, SliceAction::Probe), Admission::AfterItsClaim);
        assert_eq!(admission(1, SliceAction::AwaitGuest), Admission::Beside);
        assert_eq!(admission(2, SliceAction::Erase), Admission::Beside);
        assert_eq!(tasks.admission(&reset), Admission::AfterAll);
        let looks = TaskSpec::Diagnostics { units: Vec::new() };
        assert_eq!(tasks.admission(&looks), Admission::Alone);
        tasks.end(id(2));
        assert_eq!(admission(1, SliceAction::Probe), Admission::Beside);
        assert_eq!(tasks.admission(&reset), Admission::Alone);
    }

    /// A wait that the control plane gave up ends; an erase goes on, whatever the control plane thinks.
    #[test]
    fn only_waits_end_when_they_are_sent_no_more() {
        let tasks = SliceTasks::default();
        tasks.begin(task(1, 1, SliceAction::AwaitGuest));
        tasks.begin(task(2, 2, SliceAction::AwaitGuest));
        tasks.begin(task(3, 3, SliceAction::Erase));
        tasks.retain_waits(&[SignedTask { id: id(2), order: () }]);
        let left = [1, 2, 3].map(|number| tasks.contains(id(number)));
        assert_eq!(left, [false, true, true]);
    }
}
