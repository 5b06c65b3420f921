//! A deterministic executor: one task runs at a time, in the order in which tasks were woken.
//!
//! A task is a future. It runs until it is done, sleeps on the virtual clock, or waits for another
//! task. Waiting for the database is neither: the store counts its pending callers, and while there
//! is one, the executor waits for the task in real time. So the virtual clock stands still and no
//! other task runs in between.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;
use gpuaas_store::Store;
use tokio::task::unconstrained;

use crate::failpoint::FailpointTrigger;

/// To what a task belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskOwner {
    /// The control plane of this number: dropped when it crashes, not scheduled while paused.
    ControlPlane(u32),
    /// A node, an operator or the region: outlives every control plane.
    Environment,
}

#[derive(Default)]
struct Queue {
    ready: Mutex<VecDeque<u64>>,
    driver: AtomicWaker,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TaskWaker {
    id: u64,
    woken: AtomicBool,
    queue: Arc<Queue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.queue.lock().push_back(self.id);
        }
        self.queue.driver.wake();
    }
}

struct Task {
    owner: TaskOwner,
    task_waker: Arc<TaskWaker>,
    waker: Waker,
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Tasks of a simulation and the queue of those that were woken.
#[derive(Default)]
pub(crate) struct Executor {
    tasks: BTreeMap<u64, Task>,
    last: u64,
    queue: Arc<Queue>,
    paused: BTreeSet<u32>,
    /// Tasks of paused control planes that were woken meanwhile, in that order.
    postponed: Vec<u64>,
}

impl Executor {
    /// Adds a task and wakes it; it runs at the next [`Executor::run_until_stalled`].
    pub(crate) fn spawn(
        &mut self,
        owner: TaskOwner,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> u64 {
        self.last += 1;
        let id = self.last;
        let task_waker = Arc::new(TaskWaker {
            id,
            woken: AtomicBool::new(false),
            queue: Arc::clone(&self.queue),
        });
        let waker = Waker::from(Arc::clone(&task_waker));
        // Tokio's budget counts what a real scheduler gives back between polls; this one does not.
        let future = Box::pin(unconstrained(future));
        self.tasks.insert(id, Task { owner, task_waker, waker: waker.clone(), future });
        waker.wake();
        id
    }

    /// Whether the task is neither done nor cancelled.
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.tasks.contains_key(&id)
    }

    /// Drops a task where it is.
    pub(crate) fn cancel(&mut self, id: u64) {
        self.tasks.remove(&id);
    }

    /// Drops every task of a control plane where it is.
    pub(crate) fn cancel_replica(&mut self, replica: u32) {
        self.paused.remove(&replica);
        self.tasks.retain(|_, task| task.owner != TaskOwner::ControlPlane(replica));
    }

    /// Schedules no task of a control plane any more.
    pub(crate) fn pause_replica(&mut self, replica: u32) {
        self.paused.insert(replica);
    }

    /// Schedules them again, first those that were woken meanwhile.
    pub(crate) fn resume_replica(&mut self, replica: u32) {
        self.paused.remove(&replica);
        self.queue.lock().extend(self.postponed.drain(..));
    }

    fn is_paused(&self, task: &Task) -> bool {
        matches!(task.owner, TaskOwner::ControlPlane(replica) if self.paused.contains(&replica))
    }

    /// Whether a task can run now.
    pub(crate) fn is_ready(&self) -> bool {
        !self.queue.lock().is_empty()
    }

    /// Runs tasks until none is woken or the failpoint has triggered. Returns whether one ran.
    pub(crate) async fn run_until_stalled(
        &mut self,
        store: &Store,
        failpoint: &FailpointTrigger,
    ) -> bool {
        let mut ran = false;
        while failpoint.triggered().is_none() {
            let Some(id) = self.queue.lock().pop_front() else { break };
            let Some(mut task) = self.tasks.remove(&id) else { continue };
            if self.is_paused(&task) {
                self.postponed.push(id);
                self.tasks.insert(id, task);
                continue;
            }
            ran = true;
            if !self.run_task(&mut task, store, failpoint).await {
                self.tasks.insert(id, task);
            }
        }
        ran
    }

    /// Runs one task until it is done or must wait. Returns whether it is done.
    async fn run_task(&self, task: &mut Task, store: &Store, failpoint: &FailpointTrigger) -> bool {
        let written = || store.counters().write_transactions;
        loop {
            let before = written();
            task.task_waker.woken.store(false, Ordering::SeqCst);
            let mut context = Context::from_waker(&task.waker);
            if task.future.as_mut().poll(&mut context).is_ready() {
                return true;
            }
            if !task.task_waker.woken.load(Ordering::SeqCst) {
                if store.in_flight() == 0 {
                    return false;
                }
                poll_fn(|context| {
                    self.queue.driver.register(context.waker());
                    if task.task_waker.woken.load(Ordering::SeqCst) {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
                .await;
            }
            if let TaskOwner::ControlPlane(replica) = task.owner {
                failpoint.after_writes(replica, written() - before);
            }
            if failpoint.triggered().is_some() {
                return false;
            }
            self.queue.lock().retain(|id| *id != task.task_waker.id);
        }
    }
}
