//! Where a control plane dies or stands still: a trap on the moments of one run.
//!
//! It writes down every moment of its run ([`Trap::passed`]) and, if it is set, stops the process
//! at one of them: the world's turn then answers [`crate::tick::Turn::Burnt`], and whoever drives the
//! world drops the control plane there or lets it stand still. A seed gives one history, so the
//! N-th moment of a run is the same one every time, up to the disturbance.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use gpuaas_core::effect::Outcome;
use gpuaas_core::record::RunRecord;
use gpuaas_engine::{Failpoint, Failpoints};
use gpuaas_types::{AttemptId, EffectKind, RunId, RunStatus, Step};
use tokio::sync::Notify;

use crate::failpoint::Fuse;

/// A moment that the run came to, and the run as its worker saw it then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// The moment.
    pub moment: Failpoint,
    /// Step of the run.
    pub step: Step,
    /// Its status.
    pub status: RunStatus,
    /// What it waits for.
    pub wait: Option<String>,
    /// Its latest intent in this step.
    pub intent: Option<Intended>,
}

/// An intent as a worker sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intended {
    /// Which one.
    pub id: AttemptId,
    /// Kind of its effect.
    pub effect: EffectKind,
    /// Its outcome is known to the worker.
    pub ended: bool,
}

/// See the module text.
pub struct Trap {
    fuse: Arc<Fuse>,
    replica: AtomicU32,
    watched: Mutex<Watched>,
    open: AtomicBool,
    opened: Notify,
}

#[derive(Default)]
struct Watched {
    run_id: Option<RunId>,
    springs_at: Option<usize>,
    passed: Vec<Passed>,
}

impl Trap {
    /// A trap that is not set. It stops the world whose `fuse` it is given.
    #[must_use]
    pub fn new(fuse: &Arc<Fuse>) -> Arc<Self> {
        Arc::new(Self {
            fuse: Arc::clone(fuse),
            replica: AtomicU32::new(0),
            watched: Mutex::default(),
            open: AtomicBool::new(false),
            opened: Notify::new(),
        })
    }

    /// Tells it whose moments it is told of.
    pub(crate) fn belong_to(&self, replica: u32) {
        self.replica.store(replica, Ordering::SeqCst);
    }

    /// Watches a run from here on, and springs when it comes to moment `springs_at`, counted from
    /// 0; none: never.
    pub fn set(&self, run_id: RunId, springs_at: Option<usize>) {
        *self.lock() = Watched { run_id: Some(run_id), springs_at, passed: Vec::new() };
    }

    /// Every moment so far, in order.
    #[must_use]
    pub fn passed(&self) -> Vec<Passed> {
        self.lock().passed.clone()
    }

    /// How many moments the run came to.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().passed.len()
    }

    /// Lets whoever stands in the trap go on.
    pub fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
        self.opened.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Failpoints for Trap {
    async fn reach(&self, run: &RunRecord, moment: Failpoint) {
        let opened = self.opened.notified();
        let springs = {
            let mut watched = self.lock();
            if watched.run_id != Some(run.id) {
                return;
            }
            watched.passed.push(seen(run, moment));
            watched.springs_at == Some(watched.passed.len() - 1)
        };
        if springs && !self.open.load(Ordering::SeqCst) {
            self.fuse.burn(self.replica.load(Ordering::SeqCst));
            opened.await;
        }
    }
}

fn seen(run: &RunRecord, moment: Failpoint) -> Passed {
    let intent = run.state.intent.as_ref().map(|intent| Intended {
        id: intent.id,
        effect: intent.effect.kind(),
        ended: intent.outcome.as_ref().is_some_and(|o| !matches!(o, Outcome::Unknown { .. })),
    });
    let wait = run.wait.as_ref().map(|wait| wait.code.clone());
    Passed { moment, step: run.step, status: run.status, wait, intent }
}
