//! Tests of what the node says, and of the gates.

use gpuaas_types::agent::{
    BootstrapPhase, Finding, HostCheck, ProgressStatus, TaskResult, TaskSpec,
};
use gpuaas_types::api::CheckResult;
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::spec::FabricMode;
use gpuaas_types::{EffectKind, NodeState, RunStatus, Step, TaskId};

use super::boot::HOST_ADDRESSES;
use super::fixture::{Case, at, id, machine, parked, waiting};
use crate::gates::COMPLETION_GATES;
use crate::record::ReportKind;
use crate::run_state::{HostValues, ReadFailure};
use crate::snapshot::{Decision, Read};

fn progress(phase: BootstrapPhase, status: ProgressStatus) -> ReportKind {
    ReportKind::Progress { phase, status, attempt: None, message: "m".to_owned() }
}

fn numbered(phase: BootstrapPhase, status: ProgressStatus, attempt: u64) -> ReportKind {
    ReportKind::Progress { phase, status, attempt: Some(attempt), message: "m".to_owned() }
}

fn enrolled() -> ReportKind {
    ReportKind::Enrolled { agent_version: "0.1.0".to_owned(), hostname: "j22u11".to_owned() }
}

#[test]
fn lost_callbacks_do_not_hold_the_run() {
    let case = Case::new(Step::BootstrapFetch).read(machine(status::DEPLOYED), 1.0);
    assert_eq!(waiting(&case.decide()), "bootstrap_fetch");
    let mut case = case.report(enrolled(), 6.0);
    for (step, to) in [
        (Step::BootstrapFetch, Step::SiteBootstrap),
        (Step::SiteBootstrap, Step::NodeBootstrap),
        (Step::NodeBootstrap, Step::Enrollment),
    ] {
        case.run.step = step;
        assert_eq!(case.next(), (to, 6.0));
    }
    case.run.step = Step::Enrollment;
    assert_eq!(waiting(&case.decide()), "first_heartbeat");
    let case = case.report(ReportKind::FirstHeartbeat, 7.0);
    assert_eq!(case.next(), (Step::HostReboot, 7.0));
}

#[test]
fn failed_bootstraps_park_with_their_owner() {
    let case = Case::new(Step::SiteBootstrap)
        .read(machine(status::DEPLOYED), 1.0)
        .report(progress(BootstrapPhase::SiteBootstrap, ProgressStatus::Failed), 5.0);
    assert_eq!(parked(&case.decide()), "site_bootstrap_failed");
    let case = Case::new(Step::NodeBootstrap)
        .read(machine(status::DEPLOYED), 1.0)
        .report(progress(BootstrapPhase::NodeBootstrap, ProgressStatus::Failed), 5.0);
    assert_eq!(parked(&case.decide()), "node_bootstrap_failed");
}

#[test]
fn a_failed_site_bootstrap_is_the_cause_also_when_the_node_part_gave_up_after_it() {
    let failed = || progress(BootstrapPhase::SiteBootstrap, ProgressStatus::Failed);
    let mut case = Case::new(Step::SiteBootstrap)
        .read(machine(status::DEPLOYED), 1.0)
        .report(failed(), 5.0)
        .report(progress(BootstrapPhase::NodeBootstrap, ProgressStatus::Failed), 5.5);
    assert_eq!(parked(&case.decide()), "site_bootstrap_failed");
    case.run.state.parked_at = Some(at(6.0));
    case.run.state.resume(at(7.0));
    let resumed = case.read(machine(status::DEPLOYED), 7.5);
    assert_eq!(
        waiting(&resumed.decide()),
        "bootstrap_rerun",
        "only a person runs the scripts again"
    );
    let again =
        resumed.report(progress(BootstrapPhase::SiteBootstrap, ProgressStatus::Succeeded), 8.0);
    assert_eq!(again.next(), (Step::NodeBootstrap, 8.0));
}

/// A person ran the scripts again, in vain, before the cause was found and the run was resumed.
#[test]
fn a_failure_from_before_the_resume_does_not_park_again() {
    for (step, phase) in [
        (Step::SiteBootstrap, BootstrapPhase::SiteBootstrap),
        (Step::NodeBootstrap, BootstrapPhase::NodeBootstrap),
    ] {
        let failed = || progress(phase, ProgressStatus::Failed);
        let mut case = Case::new(step).read(machine(status::DEPLOYED), 1.0).report(failed(), 5.0);
        case.run.state.parked_at = Some(at(6.0));
        let mut case = case.report(failed(), 7.0);
        case.run.state.resume(at(8.0));
        let mut case = case.read(machine(status::DEPLOYED), 8.5);
        assert_eq!(waiting(&case.decide()), "bootstrap_rerun");
        case = case.report(failed(), 9.0);
        assert!(parked(&case.decide()).ends_with("bootstrap_failed"), "it failed once more");
    }
}

#[test]
fn what_an_earlier_deployment_said_does_not_count() {
    let mut case = Case::new(Step::BootstrapFetch)
        .read(machine(status::DEPLOYED), 8.0)
        .report(progress(BootstrapPhase::SiteBootstrap, ProgressStatus::Succeeded), 5.0);
    assert_eq!(case.next().0, Step::SiteBootstrap);
    case.run.state.intended_at.insert(EffectKind::Deploy, at(7.0));
    assert_eq!(waiting(&case.decide()), "bootstrap_fetch");
}

/// What confirmation asks for is read while the node boots, once, and a read that fails keeps no
/// node from going on.
#[test]
fn a_deployed_machine_is_read_while_the_node_boots() {
    for step in [Step::BootstrapFetch, Step::SiteBootstrap, Step::NodeBootstrap] {
        let mut case = Case::new(step).read(machine(status::DEPLOYING), 3.0);
        case.run.state.intended_at.insert(EffectKind::Deploy, at(2.0));
        let seen = case.observation.as_mut().unwrap();
        (seen.status, seen.status_at) = (status::DEPLOYED, at(4.0));
        assert_eq!(case.decide(), Decision::Read(Read::Machine), "{step}");
        let mut failed = case.clone();
        let (code, text) = ("maas_unavailable".to_owned(), "no answer".to_owned());
        failed.run.state.read_failure = Some(ReadFailure { code, text, at: at(5.0), count: 1 });
        assert!(matches!(failed.decide(), Decision::Wait { .. }), "{step}");
        let read = case.read(machine(status::DEPLOYED), 5.0);
        assert!(matches!(read.decide(), Decision::Wait { .. }), "{step}");
    }
}

#[test]
fn a_second_key_parks_whatever_the_step_until_the_next_deployment_or_a_cancel() {
    let contested = || ReportKind::EnrollmentContested { address: "10.0.0.9".to_owned() };
    for step in [Step::Enrollment, Step::PrereqChecks, Step::Confirmation] {
        let mut case = Case::new(step)
            .read(machine(status::DEPLOYED), 1.0)
            .report(enrolled(), 4.0)
            .report(contested(), 5.0);
        assert_eq!(parked(&case.decide()), "enrollment_contested", "{step}");
        case.run.state.intended_at.insert(EffectKind::Deploy, at(7.0));
        let code = match case.decide() {
            Decision::Park { park, .. } => park.code,
            _ => String::new(),
        };
        assert_ne!(code, "enrollment_contested", "{step}: other tokens since");
    }
}

#[test]
fn a_machine_released_by_hand_is_noticed_while_waiting_for_the_node() {
    let case = Case::new(Step::SiteBootstrap).read(machine(status::READY), 5.0);
    assert_eq!(parked(&case.decide()), "machine_taken");
}

fn confirming() -> Case {
    let mut case = Case::new(Step::Confirmation)
        .read(machine(status::DEPLOYED), 1.0)
        .report(progress(BootstrapPhase::SiteBootstrap, ProgressStatus::Started), 2.0)
        .report(progress(BootstrapPhase::SiteBootstrap, ProgressStatus::Succeeded), 3.0)
        .report(progress(BootstrapPhase::NodeBootstrap, ProgressStatus::Started), 3.0)
        .report(enrolled(), 4.0)
        .report(ReportKind::FirstHeartbeat, 5.0);
    case.node.state = NodeState::Enrolling;
    case
}

#[test]
fn all_seven_gates_or_not_active() {
    let waiting_case = confirming();
    assert_eq!(waiting(&waiting_case.decide()), "node_bootstrap_callback");
    let case = confirming()
        .report(progress(BootstrapPhase::NodeBootstrap, ProgressStatus::Succeeded), 6.0);
    match case.decide() {
        Decision::Finish { status, checks, .. } => {
            assert_eq!(status, RunStatus::Succeeded);
            assert_eq!(checks.len(), 7);
        }
        other => panic!("{other:?}"),
    }
    let mut other_run = confirming()
        .report(progress(BootstrapPhase::NodeBootstrap, ProgressStatus::Succeeded), 6.0);
    other_run.node.run_id = Some(id(77));
    assert_eq!(parked(&other_run.decide()), "completion_gate_failed");
    let mut unsynced = confirming()
        .report(progress(BootstrapPhase::NodeBootstrap, ProgressStatus::Succeeded), 6.0);
    unsynced.profile.require_hw_sync = true;
    assert_eq!(parked(&unsynced.decide()), "completion_gate_failed");
    let mut late = confirming();
    late.now = at(70.0);
    assert!(matches!(late.decide(), Decision::Finish { .. }), "an absent callback is tolerated");
}

/// Every subset of the callbacks of a healthy host: no loss parks it, and none holds it for longer
/// than the grace of the last callback.
#[test]
fn lost_callbacks_never_park_a_healthy_host() {
    use BootstrapPhase::{NodeBootstrap, SiteBootstrap};
    use ProgressStatus::{Started, Succeeded};
    let all = [
        (numbered(SiteBootstrap, Started, 1), 2.0),
        (numbered(SiteBootstrap, Succeeded, 1), 3.0),
        (numbered(NodeBootstrap, Started, 2), 3.5),
        (numbered(NodeBootstrap, Succeeded, 2), 6.0),
    ];
    for heard in 0..16u32 {
        let mut case = Case::new(Step::BootstrapFetch).read(machine(status::DEPLOYED), 1.0);
        for (number, (kind, seconds)) in all.iter().enumerate() {
            if heard & (1 << number) != 0 {
                case = case.report(kind.clone(), *seconds);
            }
        }
        case = case.report(enrolled(), 4.0).report(ReportKind::FirstHeartbeat, 5.0);
        case.node.state = NodeState::Enrolling;
        for step in [Step::BootstrapFetch, Step::SiteBootstrap, Step::NodeBootstrap] {
            case.run.step = step;
            assert!(matches!(case.decide(), Decision::Next { .. }), "{heard:04b} {step}");
        }
        case.run.step = Step::Confirmation;
        match case.decide() {
            Decision::Finish { .. } => {}
            early => assert_eq!(waiting(&early), "node_bootstrap_callback", "{heard:04b}"),
        }
        case.now = at(70.0);
        assert!(matches!(case.decide(), Decision::Finish { .. }), "{heard:04b}");
    }
}

/// A failure is followed by a success, and that by another failure: the last attempt holds, however
/// late a report of an earlier one arrives, and whatever the agent of the earlier one does.
#[test]
fn stale_success_does_not_open_a_gate() {
    use BootstrapPhase::{NodeBootstrap, SiteBootstrap};
    use ProgressStatus::{Failed, Started, Succeeded};
    let mut case = Case::new(Step::Confirmation)
        .read(machine(status::DEPLOYED), 1.0)
        .report(numbered(SiteBootstrap, Failed, 1), 2.0)
        .report(numbered(SiteBootstrap, Succeeded, 2), 3.0)
        .report(numbered(NodeBootstrap, Started, 3), 3.0)
        .report(enrolled(), 4.0)
        .report(ReportKind::FirstHeartbeat, 5.0)
        .report(numbered(NodeBootstrap, Succeeded, 3), 6.0);
    case.node.state = NodeState::Enrolling;
    assert!(matches!(case.decide(), Decision::Finish { .. }));
    let running = case.clone().report(numbered(SiteBootstrap, Started, 4), 7.0);
    assert_eq!(waiting(&running.decide()), "site_bootstrap");
    for late in
        [(SiteBootstrap, Succeeded, 2), (NodeBootstrap, Succeeded, 3), (SiteBootstrap, Started, 4)]
    {
        let failed = case
            .clone()
            .report(numbered(SiteBootstrap, Failed, 4), 7.0)
            .report(numbered(late.0, late.1, late.2), 8.0);
        let Decision::Park { park, .. } = failed.decide() else { panic!("{:?}", failed.decide()) };
        assert_eq!(park.code, "completion_gate_failed");
        assert!(park.text.contains("gate_site_bootstrap"), "{}", park.text);
    }
    let mended = case
        .report(numbered(SiteBootstrap, Failed, 4), 7.0)
        .report(numbered(NodeBootstrap, Started, 6), 8.0)
        .report(numbered(NodeBootstrap, Succeeded, 6), 8.5);
    assert!(matches!(mended.decide(), Decision::Finish { .. }), "the success of 5 was lost");
}

/// The node bootstrap of an earlier attempt installed the agent, which enrolls while the site bootstrap
/// fails again: that is no evidence of the later attempt.
#[test]
fn agent_of_an_earlier_attempt_proves_nothing() {
    use BootstrapPhase::{NodeBootstrap, SiteBootstrap};
    use ProgressStatus::{Failed, Started, Succeeded};
    let mut case = Case::new(Step::Confirmation)
        .read(machine(status::DEPLOYED), 1.0)
        .report(numbered(SiteBootstrap, Succeeded, 1), 2.0)
        .report(numbered(NodeBootstrap, Started, 2), 2.5)
        .report(numbered(NodeBootstrap, Failed, 2), 3.0)
        .report(numbered(SiteBootstrap, Failed, 3), 4.0)
        .report(enrolled(), 5.0)
        .report(ReportKind::FirstHeartbeat, 5.5);
    case.node.state = NodeState::Enrolling;
    assert_eq!(parked(&case.decide()), "completion_gate_failed");
    case.run.state.parked_at = Some(at(6.0));
    case.run.state.resume(at(7.0));
    let resumed = case.read(machine(status::DEPLOYED), 7.5);
    assert_eq!(waiting(&resumed.decide()), "bootstrap_rerun");
}

#[test]
fn no_override_opens_a_completion_gate() {
    let mut case = confirming()
        .report(progress(BootstrapPhase::SiteBootstrap, ProgressStatus::Failed), 5.5)
        .report(progress(BootstrapPhase::NodeBootstrap, ProgressStatus::Succeeded), 5.0);
    for gate in COMPLETION_GATES {
        let skipped = ReportKind::CheckSkipped {
            check: gate.to_owned(),
            actor: "ann".to_owned(),
            reason: "it is fine".to_owned(),
            until: at(1000.0),
        };
        case = case.report(skipped, 6.0);
    }
    assert_eq!(parked(&case.decide()), "completion_gate_failed");
}

#[test]
fn diagnostics_are_issued_once_and_their_failure_parks() {
    let mut case = Case::new(Step::PrereqChecks).read(machine(status::DEPLOYED), 1.0);
    assert!(matches!(case.decide(), Decision::IssueTask(_)));
    let task: TaskId = id(50);
    case.run.state.task_id = Some(task);
    assert_eq!(waiting(&case.decide()), "diagnostics");
    let result = |succeeded| TaskResult {
        succeeded,
        message: "disk full".to_owned(),
        ..TaskResult::default()
    };
    let good = ReportKind::TaskFinished { task_id: task, result: result(true) };
    let bad = ReportKind::TaskFinished { task_id: task, result: result(false) };
    let mut failing =
        Case::new(Step::PrereqChecks).read(machine(status::DEPLOYED), 1.0).report(bad, 4.0);
    failing.run.state.task_id = Some(task);
    assert_eq!(parked(&failing.decide()), "diagnostics_failed");
    assert_eq!(case.report(good, 4.0).next(), (Step::Confirmation, 4.0));
}

#[test]
fn bundles_that_cannot_be_read_park_the_run() {
    let mut case = Case::new(Step::PrereqChecks);
    case.host_checks = Err("there is no bundle h200-ib@1.2.0".to_owned());
    let Decision::Park { park, .. } = case.decide() else { panic!("{:?}", case.decide()) };
    assert_eq!(park.code, "host_checks_unknown");
    assert!(park.text.contains("h200-ib@1.2.0"), "{}", park.text);
}

#[test]
fn what_a_host_derived_from_its_address_is_compared_once_the_machine_is_deployed() {
    let mut case = Case::new(Step::PrereqChecks);
    case.run.state.task_id = Some(id::<TaskId>(7));
    let result = TaskResult { succeeded: true, ..TaskResult::default() };
    let case = case.report(ReportKind::TaskFinished { task_id: id::<TaskId>(7), result }, 5.0);
    let mut case = case.read(machine(status::DEPLOYED), 5.0);
    let mut own = HostValues::default();
    own.values.insert("address".to_owned(), vec!["10.0.0.7".to_owned()]);
    case.run.state.host_values = Some(own.clone());
    assert!(matches!(case.decide(), Decision::Next { .. }), "known before: {:?}", case.decide());
    own.derived.insert("address".to_owned(), "192.168.0.0/16".to_owned());
    case.run.state.host_values = Some(own);
    assert_eq!(case.decide(), Decision::Read(Read::HostAddresses));
    let check = |passed| CheckResult {
        name: HOST_ADDRESSES.to_owned(),
        passed,
        verified: true,
        evidence: "a and b would both have 192.168.0.7".to_owned(),
        at: case.snapshot().now,
    };
    let (good, bad) = (check(true), check(false));
    case.run.state.checks.insert(HOST_ADDRESSES.to_owned(), good.clone());
    let Decision::Next { checks, .. } = case.decide() else { panic!("{:?}", case.decide()) };
    assert_eq!(checks, [good]);
    case.run.state.checks.insert(HOST_ADDRESSES.to_owned(), bad.clone());
    let Decision::Park { park, .. } = case.decide() else { panic!("{:?}", case.decide()) };
    assert_eq!((park.code.as_str(), park.text), ("prerequisite_missing", bad.evidence));
}

/// A slice host without its fabric is active and takes no slices (docs/hosts.md#incomplete-slice-host).
#[test]
fn the_fabric_of_a_slice_host_does_not_hold_its_run() {
    let mut case = Case::new(Step::PrereqChecks);
    case.for_slices = true;
    for fabric_mode in [FabricMode::Ib, FabricMode::Roce, FabricMode::Ethernet] {
        case.profile.fabric_mode = fabric_mode;
        let decision = case.decide();
        assert!(
            matches!(decision, Decision::IssueTask(TaskSpec::Diagnostics { .. })),
            "{decision:?}"
        );
    }
}

/// A profile that says RoCE is never satisfied by a host that shows none.
#[test]
fn roce_without_assignments_still_wants_an_active_port() {
    let mut case = Case::new(Step::PrereqChecks);
    case.profile.fabric_mode = FabricMode::Roce;
    let Decision::IssueTask(TaskSpec::Validate { checks, .. }) = case.decide() else {
        panic!("{:?}", case.decide());
    };
    let port = HostCheck::InfinibandPortsActive {
        count: 1,
        link_layer: "Ethernet".to_owned(),
        interface: None,
    };
    assert_eq!(checks, [port]);
}

#[test]
fn a_host_that_is_not_what_the_profile_says_parks_the_run() {
    let mut case = Case::new(Step::PrereqChecks);
    case.profile.fabric_mode = FabricMode::Ib;
    case.host_checks = Ok(vec![HostCheck::MountPresent { target: "/data".to_owned() }]);
    let Decision::IssueTask(TaskSpec::Validate { checks, .. }) = case.decide() else {
        panic!("{:?}", case.decide());
    };
    assert_eq!(checks.len(), 2);
    case.run.state.task_id = Some(id::<TaskId>(7));
    let finding = |name: &str, passed| Finding {
        name: name.to_owned(),
        passed: Some(passed),
        seen: "seen".to_owned(),
    };
    for (findings, bad) in [
        (vec![finding("mount /data", true)], Some("infiniband")),
        (vec![finding("mount /data", false), finding("infiniband", true)], Some("mount /data")),
        (vec![finding("mount /data", true), finding("infiniband", true)], None),
    ] {
        case.reports.clear();
        let result = TaskResult { succeeded: true, findings, ..TaskResult::default() };
        case = case.report(ReportKind::TaskFinished { task_id: id::<TaskId>(7), result }, 5.0);
        match (case.decide(), bad) {
            (Decision::Park { park, .. }, Some(name)) => {
                assert_eq!(park.code, "prerequisite_missing");
                assert!(park.text.contains(name), "{}", park.text);
            }
            (Decision::Next { checks, .. }, None) => {
                assert_eq!(checks.len(), 2);
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}
