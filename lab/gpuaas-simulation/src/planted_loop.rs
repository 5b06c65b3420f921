//! A defect of the control plane: a step whose decisions never move the run.

use async_trait::async_trait;
use gpuaas_core::record::RunRecord;
use gpuaas_engine::Failpoints;
use gpuaas_types::Step;

/// Drops every decision of a step until the run has parked.
pub(crate) struct PlantedLoop {
    step: Step,
}

impl PlantedLoop {
    pub(crate) const fn new(step: Step) -> Self {
        Self { step }
    }
}

#[async_trait]
impl Failpoints for PlantedLoop {
    fn repeats_decision(&self, run: &RunRecord) -> bool {
        run.step == self.step && run.state.parked_at.is_none()
    }
}
