//! Which function decides in which step. A step without an arm does not compile.

use gpuaas_types::Step;

use super::{
    boot, cancellation, commission, deploy, discover, host_reboot, machine_tag, offboarding,
    preparation, roce,
};
use crate::snapshot::{Decision, Snapshot};

/// A function that decides in one step.
pub type DecisionFunction = fn(&Snapshot<'_>) -> Decision;

/// The function that decides in a step.
#[must_use]
pub const fn decision_function(step: Step) -> DecisionFunction {
    match step {
        Step::Accept => discover::accept,
        Step::Discover => discover::discover,
        Step::ReleaseAdopted => discover::release_adopted,
        Step::RegisterScripts => commission::register_scripts,
        Step::Commission => commission::commission,
        Step::PxePreflight => preparation::pxe_preflight,
        Step::PrepareStorage => preparation::prepare_storage,
        Step::RoceLinks => roce::roce_links,
        Step::HardwareSync => preparation::hardware_sync,
        Step::MachineTag => machine_tag::machine_tag,
        Step::PredeployChecks => preparation::predeploy_checks,
        Step::Deploy => deploy::deploy,
        Step::ReleaseForRetry => deploy::release_for_retry,
        Step::FirstBoot => deploy::first_boot,
        Step::BootstrapFetch => boot::bootstrap_fetch,
        Step::SiteBootstrap => boot::site_bootstrap,
        Step::NodeBootstrap => boot::node_bootstrap,
        Step::Enrollment => boot::enrollment,
        Step::HostReboot => host_reboot::host_reboot,
        Step::PrereqChecks => boot::prereq_checks,
        Step::Confirmation => boot::confirmation,
        Step::Drain => offboarding::drain,
        Step::Release => offboarding::release,
        Step::PowerOff => offboarding::power_off,
        Step::AgentCleanup => offboarding::agent_cleanup,
        Step::DetachRecord => offboarding::detach_record,
        Step::RemoveRecord => offboarding::remove_record,
        Step::ReleaseForCancel => cancellation::release_for_cancel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Function pointers may be merged by the linker; their names in the source cannot.
    #[test]
    fn every_step_is_decided_by_a_function_of_its_own_name() {
        let source = include_str!("table.rs");
        for step in Step::ALL {
            let arm = format!("Step::{step:?} => ");
            let line = source.lines().find(|line| line.trim_start().starts_with(&arm));
            let name = line.and_then(|line| line.rsplit("::").next());
            assert_eq!(name, Some(format!("{step},").as_str()), "{step}");
        }
    }
}
