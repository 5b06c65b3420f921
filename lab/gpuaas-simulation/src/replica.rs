//! One control plane of a simulation: its engine, its clock, and what it has under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gpuaas_engine::{AheadClock, Engine};
use gpuaas_types::Timestamp;

/// A control plane.
pub(crate) struct Replica {
    pub(crate) id: u32,
    pub(crate) clock: AheadClock,
    pub(crate) paused: bool,
    pub(crate) engine: Arc<Engine>,
    pub(crate) working: Arc<AtomicUsize>,
    pub(crate) watching: Arc<AtomicBool>,
    pub(crate) sweeping: Arc<AtomicBool>,
    /// By the simulation's clock: it found nothing due, so it does not look before.
    pub(crate) not_before: Timestamp,
    pub(crate) parallel_runs: usize,
}

impl Replica {
    pub(crate) fn free_workers(&self) -> usize {
        self.parallel_runs.saturating_sub(self.working.load(Ordering::SeqCst))
    }

    /// When it would take up work that is due at `due` by the clocks of control planes.
    pub(crate) fn claims_at(&self, due: Option<Timestamp>) -> Option<Timestamp> {
        if self.paused || self.free_workers() == 0 {
            return None;
        }
        due.map(|at| at.plus_seconds(-self.clock.seconds()).max(self.not_before))
    }
}
