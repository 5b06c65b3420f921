//! Stops a control plane at the N-th failpoint that one run passes.
//!
//! It records every failpoint of its run ([`Breakpoint::passed`]). When the run reaches the chosen
//! one, the tick returns [`crate::tick::Tick::Triggered`], and the caller drops the control plane
//! there or leaves it paused. A seed gives one history, so the N-th failpoint of a run is the same
//! every time, up to the disturbance.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use gpuaas_core::effect::Outcome;
use gpuaas_core::record::RunRecord;
use gpuaas_engine::{Failpoint, Failpoints};
use gpuaas_types::{AttemptId, EffectKind, RunId, RunStatus, Step};
use tokio::sync::Notify;

use crate::failpoint::FailpointTrigger;

/// A failpoint that the run passed, and the run as its worker held it there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedFailpoint {
    /// The moment.
    pub moment: Failpoint,
    /// Step of the run.
    pub step: Step,
    /// Status of the run.
    pub status: RunStatus,
    /// Code of its wait; none: it does not wait.
    pub wait: Option<String>,
    /// Its latest intent in this step.
    pub intent: Option<ObservedIntent>,
}

/// An intent as a worker sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedIntent {
    /// Identifier of the attempt.
    pub id: AttemptId,
    /// Kind of its effect.
    pub effect: EffectKind,
    /// Whether the worker knows the outcome.
    pub ended: bool,
}

/// Records the failpoints of one run, and breaks at one of them.
pub struct Breakpoint {
    failpoint: Arc<FailpointTrigger>,
    replica: AtomicU32,
    watched: Mutex<WatchedRun>,
    resumed: AtomicBool,
    resume_signal: Notify,
}

#[derive(Default)]
struct WatchedRun {
    run_id: Option<RunId>,
    break_at: Option<usize>,
    passed: Vec<PassedFailpoint>,
}

impl Breakpoint {
    /// A breakpoint that watches no run yet. It triggers `failpoint` when it breaks.
    #[must_use]
    pub fn new(failpoint: &Arc<FailpointTrigger>) -> Arc<Self> {
        Arc::new(Self {
            failpoint: Arc::clone(failpoint),
            replica: AtomicU32::new(0),
            watched: Mutex::default(),
            resumed: AtomicBool::new(false),
            resume_signal: Notify::new(),
        })
    }

    /// Names the control plane whose worker it is attached to.
    pub(crate) fn attach_to(&self, replica: u32) {
        self.replica.store(replica, Ordering::SeqCst);
    }

    /// Watches a run from here on, and breaks at its failpoint number `break_at`, counted from 0;
    /// none: never.
    pub fn watch_run(&self, run_id: RunId, break_at: Option<usize>) {
        *self.lock() = WatchedRun { run_id: Some(run_id), break_at, passed: Vec::new() };
    }

    /// Every failpoint that the run has passed, in order.
    #[must_use]
    pub fn passed(&self) -> Vec<PassedFailpoint> {
        self.lock().passed.clone()
    }

    /// How many failpoints the run has passed.
    #[must_use]
    pub fn passed_count(&self) -> usize {
        self.lock().passed.len()
    }

    /// Lets the worker that waits at the breakpoint continue.
    pub fn resume(&self) {
        self.resumed.store(true, Ordering::SeqCst);
        self.resume_signal.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, WatchedRun> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Failpoints for Breakpoint {
    async fn reach(&self, run: &RunRecord, moment: Failpoint) {
        let resume_signal = self.resume_signal.notified();
        let breaks = {
            let mut watched = self.lock();
            if watched.run_id != Some(run.id) {
                return;
            }
            watched.passed.push(passed_failpoint(run, moment));
            watched.break_at == Some(watched.passed.len() - 1)
        };
        if breaks && !self.resumed.load(Ordering::SeqCst) {
            self.failpoint.trigger(self.replica.load(Ordering::SeqCst));
            resume_signal.await;
        }
    }
}

fn passed_failpoint(run: &RunRecord, moment: Failpoint) -> PassedFailpoint {
    let intent = run.state.intent.as_ref().map(|intent| ObservedIntent {
        id: intent.id,
        effect: intent.effect.kind(),
        ended: intent.outcome.as_ref().is_some_and(|o| !matches!(o, Outcome::Unknown { .. })),
    });
    let wait = run.wait.as_ref().map(|wait| wait.code.clone());
    PassedFailpoint { moment, step: run.step, status: run.status, wait, intent }
}
