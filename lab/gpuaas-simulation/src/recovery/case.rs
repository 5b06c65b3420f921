//! A case: how a park is made, and what a person does about it.

use gpuaas_types::codes::ParkCode;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{RunKind, RunStatus};
use maas_sim::HostView;

use super::act::{Act, When};
use crate::plan::SimulationPlan;

/// What happens or is done, made anew for each run of a case.
pub(super) type Acts = fn() -> Vec<Act>;

/// A park, what makes it, and what a person does about it.
#[derive(Debug, Clone, Copy)]
pub struct RecoveryCase {
    /// Code of the park.
    pub code: ParkCode,
    /// What nodes are to be.
    pub profile: fn(&mut ProfileSpec),
    /// What the simulation is made of.
    pub plan: fn(&mut SimulationPlan),
    /// What happens before the onboarding is asked for.
    pub before: Acts,
    /// What the operator says of the host.
    pub named: fn(&HostView) -> HostView,
    /// A run of this kind, begun after the onboarding and these acts, is the one that parks; none:
    /// the onboarding.
    pub then: Option<(RunKind, Acts)>,
    /// What happens during the run, in this order.
    pub during: fn() -> Vec<(When, Act)>,
    /// What is done at another park, which leads to this one; empty: the run parks but once.
    pub at_first_park: Acts,
    /// What a person does before the first command of the advice.
    pub repair: Acts,
    /// What a person does after it.
    pub afterwards: Acts,
    /// What a person mends in MAAS instead, telling us nothing, so that the run continues automatically;
    /// none: the same as with the advice.
    pub in_maas: Option<Acts>,
    /// Status of the run at its proper end.
    pub ends: RunStatus,
}

/// A case in which nothing happens.
pub(super) const PLAIN: RecoveryCase = RecoveryCase {
    code: ParkCode::DeadlineExceeded,
    profile: |_| (),
    plan: |_| (),
    before: Vec::new,
    named: HostView::clone,
    then: None,
    during: Vec::new,
    at_first_park: Vec::new,
    repair: Vec::new,
    afterwards: Vec::new,
    in_maas: None,
    ends: RunStatus::Succeeded,
};
