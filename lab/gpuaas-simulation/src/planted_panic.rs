//! A defect of the control plane, planted into one decision.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use gpuaas_core::record::RunRecord;
use gpuaas_engine::Failpoints;
use gpuaas_types::Step;

/// Panics once, in the first decision that is made in a step.
pub(crate) struct PlantedPanic {
    step: Step,
    panicked: AtomicBool,
}

impl PlantedPanic {
    pub(crate) const fn new(step: Step) -> Self {
        Self { step, panicked: AtomicBool::new(false) }
    }
}

#[async_trait]
impl Failpoints for PlantedPanic {
    fn reach_decision(&self, run: &RunRecord) {
        if run.step == self.step && !self.panicked.swap(true, Ordering::SeqCst) {
            std::panic::resume_unwind(Box::new("planted".to_owned()));
        }
    }
}
