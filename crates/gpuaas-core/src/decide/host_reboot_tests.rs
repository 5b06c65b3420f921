//! The reboot that a host asks for.

use gpuaas_types::agent::{Finding, TaskResult, TaskSpec};
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::{Step, TaskId};

use super::fixture::{Case, id, machine, parked, waiting};
use super::host_reboot::{REASONS_FINDING, reboot_reasons};
use crate::record::ReportKind;
use crate::snapshot::Decision;

const ASKS: &str = "disk_full, reboot_needed: no intel_iommu=on, reboot_needed: a new driver";

fn case(troubles: &str) -> Case {
    let mut case = Case::new(Step::HostReboot).read(machine(status::DEPLOYED), 1.0);
    troubles.clone_into(&mut case.node.agent.troubles);
    case
}

fn finished(mut case: Case, succeeded: bool, left: Option<&str>) -> Case {
    case.run.state.task_id = Some(id::<TaskId>(5));
    let passed = Some(left.is_none());
    let seen = left.unwrap_or("none").to_owned();
    let result = TaskResult {
        succeeded,
        message: "it booted".to_owned(),
        findings: vec![Finding { name: REASONS_FINDING.to_owned(), passed, seen }],
        ..TaskResult::default()
    };
    case.report(ReportKind::TaskFinished { task_id: id::<TaskId>(5), result }, 8.0)
}

#[test]
fn reasons_are_taken_out_of_troubles() {
    assert_eq!(reboot_reasons(ASKS), ["no intel_iommu=on", "a new driver"]);
    assert!(reboot_reasons("disk_full").is_empty() && reboot_reasons("").is_empty());
}

#[test]
fn a_host_that_asks_for_nothing_goes_on_at_once() {
    for troubles in ["", "disk_full"] {
        assert_eq!(case(troubles).next(), (Step::PrereqChecks, 0.0));
    }
}

#[test]
fn a_host_that_asks_is_started_again_and_looked_at() {
    let asks = case(ASKS);
    let Decision::IssueTask(TaskSpec::Reboot { reasons }) = asks.decide() else {
        panic!("no reboot: {:?}", asks.decide())
    };
    assert_eq!(reasons.len(), 2);
    let heard = asks.clone().report(ReportKind::FirstHeartbeat, 9.0);
    assert_eq!(waiting(&heard.decide()), "node_bootstrap_callback");
    let mut boots = asks.clone();
    boots.run.state.task_id = Some(id::<TaskId>(5));
    assert_eq!(waiting(&boots.decide()), "host_reboot");
    assert_eq!(finished(asks.clone(), true, None).next(), (Step::PrereqChecks, 8.0));
}

/// One boot for each word of an operator, whatever the host goes on asking for.
#[test]
fn what_asks_still_parks_and_is_not_tried_again_by_itself() {
    for (succeeded, left) in [(true, Some("no intel_iommu=on")), (false, None)] {
        let still = finished(case(ASKS), succeeded, left);
        assert_eq!(parked(&still.decide()), "reboot_did_not_help");
    }
}
