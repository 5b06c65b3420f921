//! One test per promise of leaving and of ending early. What brings a machine to Ready is tested
//! where it is decided.

use gpuaas_types::agent::{Finding, TaskResult, TaskSpec};
use gpuaas_types::api::Owner;
use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::spec::ReleaseMode;
use gpuaas_types::steps::{CancelPolicy, ROWS};
use gpuaas_types::{EffectKind, RunKind, RunStatus, Step, TaskId};

use super::fixture::{Case, at, id, machine};
use crate::effect::{Effect, Outcome};
use crate::record::ReportKind;
use crate::run_state::DISKS_ERASED;
use crate::snapshot::{Decision, Read};

const TASK: u32 = 77;

fn case_of(kind: RunKind, step: Step) -> Case {
    let mut case = Case::new(step);
    case.run.kind = kind;
    case
}

fn parked(decision: &Decision) -> (&str, Owner) {
    match decision {
        Decision::Park { park, .. } => (&park.code, park.owner),
        other => panic!("expected a park, got {other:?}"),
    }
}

fn waiting(decision: &Decision) -> &str {
    match decision {
        Decision::Wait { wait, .. } => &wait.code,
        other => panic!("expected a wait, got {other:?}"),
    }
}

/// A region that goes and comes has no part in the cleaning, and does not put its deadline off.
#[test]
fn a_cleaning_ends_at_its_deadline_however_often_the_region_was_away() {
    let mut case = case_of(RunKind::SoftReset, Step::AgentCleanup);
    case.run.state.task_id = Some(id::<TaskId>(TASK));
    for visit in 0..3 {
        let back = f64::from(visit) * 1200.0;
        (case.answering_since, case.now) = (Some(at(back)), at(back + 60.0));
        assert_eq!(waiting(&case.decide()), "agent_cleanup");
    }
    (case.answering_since, case.now) = (Some(at(3590.0)), at(3601.0));
    assert_eq!(parked(&case.decide()).0, "deadline_exceeded");
}

/// The next step and the codes of the notes.
fn next_codes(case: &Case) -> (Step, Vec<&'static str>) {
    let decision = case.decide();
    let notes = match &decision {
        Decision::Next { notes, .. } | Decision::AdvanceTo { notes, .. } => notes,
        other => panic!("expected to go on, got {other:?}"),
    };
    (case.next_of(&decision).0, notes.iter().map(|n| n.code.as_str()).collect())
}

/// How the run ends, and the codes of the notes.
fn ends(decision: &Decision) -> (RunStatus, Vec<&'static str>) {
    match decision {
        Decision::Finish { status, notes, .. } => {
            (*status, notes.iter().map(|n| n.code.as_str()).collect())
        }
        other => panic!("expected an end, got {other:?}"),
    }
}

fn powered(state: &str) -> MachineView {
    MachineView { power_state: state.to_owned(), ..machine(status::READY) }
}

fn task_result(succeeded: bool, findings: Vec<Finding>) -> ReportKind {
    let message = "as asked".to_owned();
    let result = TaskResult { succeeded, message, findings, ..TaskResult::default() };
    ReportKind::TaskFinished { task_id: id::<TaskId>(TASK), result }
}

fn finding(name: &str, passed: bool) -> Finding {
    Finding { name: name.to_owned(), passed: Some(passed), seen: "2 left".to_owned() }
}

fn cleaning(kind: RunKind) -> Case {
    let mut case = case_of(kind, Step::AgentCleanup);
    case.run.state.task_id = Some(id(TASK));
    case
}

fn cancelled(step: Step, leave_machine: bool) -> Case {
    let (actor, reason) = ("eve".to_owned(), "the wrong host".to_owned());
    Case::new(step).report(ReportKind::CancelRequested { actor, reason, leave_machine }, 5.0)
}

#[test]
fn draining_leads_to_whatever_the_kind_does_next() {
    for (kind, to) in [
        (RunKind::Decommission, Step::Release),
        (RunKind::Reimage, Step::Release),
        (RunKind::SoftReset, Step::AgentCleanup),
        (RunKind::StorageCleanup, Step::AgentCleanup),
    ] {
        assert_eq!(next_codes(&case_of(kind, Step::Drain)), (to, vec!["drained"]), "{kind}");
    }
}

#[test]
fn a_node_without_a_machine_leaves_without_maas() {
    let mut case = case_of(RunKind::Decommission, Step::Release);
    case.node.system_id = None;
    assert_eq!(next_codes(&case), (Step::PowerOff, vec!["nothing_to_release"]));
    case.run.step = Step::PowerOff;
    assert_eq!(ends(&case.decide()), (RunStatus::Succeeded, vec!["node_retired"]));
    case.run.step = Step::ReleaseForCancel;
    assert_eq!(ends(&case.decide()), (RunStatus::Cancelled, vec!["cancelled"]));
}

/// Nothing but a release with erase=true that ended in Ready says that the disks are erased.
#[test]
fn only_an_erasing_release_records_erased_disks() {
    let recorded = |effect: Effect| {
        let case = case_of(RunKind::Reimage, Step::Release)
            .read(machine(status::DEPLOYED), 1.0)
            .intent(effect, 2.0, Some(Outcome::Accepted))
            .read(machine(status::READY), 4.0);
        let Decision::Next { checks, .. } = case.decide() else { panic!("{:?}", case.decide()) };
        checks.iter().any(|check| check.name == DISKS_ERASED && check.passed)
    };
    assert!(recorded(Effect::Release { erase: true }));
    assert!(!recorded(Effect::Release { erase: false }));
    assert!(!recorded(Effect::MarkFixed));
}

#[test]
fn a_release_asks_for_what_the_profile_says_and_ends_with_a_read() {
    for erase in [false, true] {
        let mut case = case_of(RunKind::Decommission, Step::Release);
        case.profile.release_erase = erase;
        let case = case.read(machine(status::DEPLOYED), 1.0);
        assert_eq!(case.decide(), Decision::Do(Effect::Release { erase }));
        let case = case.intent(Effect::Release { erase }, 2.0, Some(Outcome::Accepted));
        assert_eq!(waiting(&case.read(machine(status::RELEASING), 4.0).decide()), "maas_releasing");
    }
    let mut case = case_of(RunKind::Reimage, Step::Release).read(machine(status::READY), 1.0);
    let then = RunKind::Reimage.row().next_after(Step::Release).unwrap();
    assert_eq!(next_codes(&case), (then, vec!["released"]));
    case.observation.as_mut().unwrap().status_at = at(7.0);
    assert_eq!(case.decide(), Decision::Read(Read::Machine), "an event is not yet a look");
}

/// What a tenant had is erased unless the profile chose otherwise, and never by the way back of an
/// onboarding, which no tenant had.
#[test]
fn a_profile_that_says_nothing_has_the_disks_erased() {
    for kind in [RunKind::Decommission, RunKind::Reimage] {
        let case = case_of(kind, Step::Release).read(machine(status::DEPLOYED), 1.0);
        assert_eq!(case.decide(), Decision::Do(Effect::Release { erase: true }), "{kind}");
    }
}

#[test]
fn a_machine_that_is_handed_over_is_left_alone_by_its_decommission() {
    let mut case =
        case_of(RunKind::Decommission, Step::Release).read(machine(status::DEPLOYED), 1.0);
    case.profile.release_mode = ReleaseMode::Handoff;
    assert_eq!(next_codes(&case), (Step::PowerOff, vec!["handed_off"]));
    case.run.step = Step::PowerOff;
    assert_eq!(ends(&case.decide()), (RunStatus::Succeeded, vec!["node_retired"]));
    assert!(case.snapshot().is_handed_off());
    case.run.kind = RunKind::Onboard;
    assert!(!case.snapshot().is_handed_off(), "an onboarding deploys before that");
}

#[test]
fn a_machine_that_is_off_or_has_no_switch_is_retired_at_once() {
    let case = case_of(RunKind::Decommission, Step::PowerOff);
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let case = case.read(powered("off"), 1.0);
    assert_eq!(ends(&case.decide()), (RunStatus::Succeeded, vec!["node_retired"]));
    let by_hand = MachineView { power_type: "manual".to_owned(), ..powered("on") };
    let case = case_of(RunKind::Decommission, Step::PowerOff).read(by_hand, 1.0);
    assert_eq!(ends(&case.decide()), (RunStatus::Succeeded, vec!["node_retired"]));
}

#[test]
fn a_machine_that_is_on_is_switched_off_once_and_looked_at_until_it_is() {
    let case = case_of(RunKind::Decommission, Step::PowerOff).read(powered("on"), 1.0);
    assert_eq!(case.decide(), Decision::Do(Effect::PowerOff));
    let case = case.intent(Effect::PowerOff, 2.0, Some(Outcome::Accepted));
    assert_eq!(case.decide(), Decision::Read(Read::Machine), "the look is from before");
    let mut case = case.read(powered("on"), 5.0);
    assert_eq!(waiting(&case.decide()), "power_off");
    case.now = at(30.0);
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let case = case.read(powered("off"), 30.0);
    assert_eq!(ends(&case.decide()).0, RunStatus::Succeeded);
}

#[test]
fn an_agent_is_told_once_and_waited_for() {
    for (kind, spec) in [
        (RunKind::SoftReset, TaskSpec::SoftReset {}),
        (RunKind::StorageCleanup, TaskSpec::StorageCleanup {}),
    ] {
        let case = case_of(kind, Step::AgentCleanup);
        assert_eq!(case.decide(), Decision::IssueTask(spec));
        let case = cleaning(kind);
        assert_eq!(waiting(&case.decide()), "agent_cleanup");
        let case = case.report(task_result(true, vec![finding("mounts", true)]), 5.0);
        assert_eq!(ends(&case.decide()), (RunStatus::Succeeded, vec!["folders_emptied"]));
    }
    let mut stranger = cleaning(RunKind::SoftReset).report(task_result(true, Vec::new()), 5.0);
    stranger.run.state.task_id = Some(id(TASK + 1));
    assert_eq!(waiting(&stranger.decide()), "agent_cleanup", "another task's result");
}

#[test]
fn an_agent_that_could_not_clean_parks_the_run_unless_somebody_answers_for_it() {
    let failed = cleaning(RunKind::SoftReset).report(task_result(false, Vec::new()), 5.0).decide();
    assert_eq!(parked(&failed), ("cleanup_failed", Owner::PlatformOperator));
    let case = cleaning(RunKind::StorageCleanup);
    let case = case.report(task_result(true, vec![finding("leftover_mounts", false)]), 5.0);
    let found = case.decide();
    assert_eq!(parked(&found).0, "cleanup_failed");
    let Decision::Park { park, checks } = found else { unreachable!() };
    assert!(park.text.contains("leftover_mounts: 2 left"), "{}", park.text);
    assert!(checks.iter().any(|check| check.name == "leftover_mounts" && !check.passed));
    let word = ReportKind::CheckSkipped {
        check: "leftover_mounts".to_owned(),
        actor: "eve".to_owned(),
        reason: "they are mine".to_owned(),
        until: at(100.0),
    };
    let mut case = case.report(word, 6.0);
    assert_eq!(ends(&case.decide()).0, RunStatus::Succeeded);
    case.now = at(101.0);
    assert_eq!(parked(&case.decide()).0, "cleanup_failed", "the word has expired");
}

#[test]
fn a_detach_asks_nobody_and_says_what_maas_said_last() {
    let mut case =
        case_of(RunKind::Detach, Step::DetachRecord).read(machine(status::DEPLOYED), 1.0);
    let said = |case: &Case| match case.decide() {
        Decision::Finish { status: RunStatus::Succeeded, notes, .. } => notes[0].text.clone(),
        other => panic!("{other:?}"),
    };
    assert!(said(&case).contains("which reported Deployed 9 s ago"), "{}", said(&case));
    case.observation.as_mut().unwrap().vanished = true;
    assert!(said(&case).contains("detached machine abc123"), "a deleted machine is detached");
    case.observation = None;
    assert!(said(&case).contains("without contacting MAAS"));
    case.node.system_id = None;
    assert!(said(&case).contains("no machine was bound"));
    let case = case_of(RunKind::Remove, Step::RemoveRecord);
    assert_eq!(ends(&case.decide()), (RunStatus::Succeeded, vec!["node_removed"]));
}

/// Every row of the table of steps does with a cancel what its posture says.
#[test]
fn a_cancel_follows_the_posture_of_every_step() {
    for row in ROWS.iter().filter(|row| row.step != Step::ReleaseForCancel) {
        let case = cancelled(row.step, false);
        let decision = case.decide();
        if row.cancel == CancelPolicy::NeedsRelease {
            let (to, notes) = next_codes(&case);
            assert_eq!((to, notes), (Step::ReleaseForCancel, vec!["cancelling"]), "{}", row.step);
        } else {
            assert_eq!(ends(&decision), (RunStatus::Cancelled, vec!["cancelled"]), "{}", row.step);
        }
        let left = cancelled(row.step, true).decide();
        assert_eq!(ends(&left).0, RunStatus::Cancelled, "{}", row.step);
    }
}

#[test]
fn a_cancel_waits_for_an_effect_of_which_nobody_knows() {
    let deploy = Effect::Deploy { distro_series: "ubuntu/noble".to_owned(), enable_hw_sync: false };
    let case = cancelled(Step::Deploy, false).read(machine(status::READY), 1.0);
    let case = case.intent(deploy.clone(), 2.0, None);
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let case = case.read(machine(status::DEPLOYING), 6.0);
    assert_eq!(case.decide(), Decision::Settle { happened: true });
    let case = case.accepted();
    assert_eq!(case.next().0, Step::ReleaseForCancel);
    let left = cancelled(Step::Deploy, true).intent(deploy, 2.0, None).decide();
    assert_eq!(ends(&left).0, RunStatus::Cancelled, "leaving the machine waits for nothing");
}

#[test]
fn a_cancel_of_a_machine_that_is_gone_ends_at_once() {
    let mut case = cancelled(Step::Deploy, false).read(machine(status::DEPLOYING), 1.0);
    case.observation.as_mut().unwrap().vanished = true;
    assert_eq!(ends(&case.decide()).0, RunStatus::Cancelled);
}

#[test]
fn a_cancelled_runs_machine_is_released_without_erasing() {
    let mut case = cancelled(Step::ReleaseForCancel, false).read(machine(status::DEPLOYED), 1.0);
    case.profile.release_erase = true;
    assert_eq!(ends(&case.decide()), (RunStatus::Cancelled, vec!["cancelled"]), "not its own");
    case.run.state.intended_at.insert(EffectKind::Deploy, at(-9.0));
    assert_eq!(case.decide(), Decision::Do(Effect::Release { erase: false }));
    let case = case.intent(Effect::Release { erase: false }, 2.0, Some(Outcome::Accepted));
    let case = case.read(machine(status::READY), 6.0);
    assert_eq!(ends(&case.decide()), (RunStatus::Cancelled, vec!["cancelled"]));
}

#[test]
fn a_machine_that_is_gone_parks_whoever_needs_it() {
    for (kind, step) in [
        (RunKind::Onboard, Step::Deploy),
        (RunKind::Decommission, Step::Release),
        (RunKind::Reimage, Step::Commission),
    ] {
        let mut case = case_of(kind, step).read(machine(status::READY), 1.0);
        case.observation.as_mut().unwrap().vanished = true;
        let decision = case.decide();
        assert_eq!(parked(&decision), ("machine_vanished", Owner::InfraOperator), "{kind}");
        let Decision::Park { park, .. } = decision else { unreachable!() };
        assert!(park.next_action.contains("gpuaas node detach"), "{}", park.next_action);
    }
    let mut case = cleaning(RunKind::SoftReset).read(machine(status::DEPLOYED), 1.0);
    case.observation.as_mut().unwrap().vanished = true;
    assert_eq!(waiting(&case.decide()), "agent_cleanup", "a soft reset does not need MAAS");
}

/// A run that waits for the agent of a host that is no more would wait from deadline to deadline.
#[test]
fn nobody_cleans_a_host_whose_machine_was_released() {
    for kind in [RunKind::SoftReset, RunKind::StorageCleanup] {
        for seen in [status::READY, status::RELEASING, status::DISK_ERASING, status::NEW] {
            let before = case_of(kind, Step::AgentCleanup).read(machine(seen), 1.0);
            assert_eq!(parked(&before.decide()).0, "host_released", "{kind} in {seen}");
            let amid = cleaning(kind).read(machine(seen), 1.0);
            assert_eq!(parked(&amid.decide()).0, "host_released", "{kind} in {seen}");
        }
        for seen in [status::DEPLOYED, status::BROKEN, status::RESCUE_MODE] {
            let case = cleaning(kind).read(machine(seen), 1.0);
            assert_eq!(waiting(&case.decide()), "agent_cleanup", "{kind} in {seen}");
        }
    }
}

/// Nothing is to be released that is not ours, so a cancel has nothing to wait for.
#[test]
fn a_cancel_leaves_a_machine_that_is_not_ours_any_more() {
    let mut theirs = machine(status::DEPLOYED);
    theirs.owner = Some("bob".to_owned());
    let case = cancelled(Step::ReleaseForCancel, false).read(theirs.clone(), 1.0);
    assert_eq!(ends(&case.decide()), (RunStatus::Cancelled, vec!["cancelled"]));
    theirs.owner = None;
    let mut case = cancelled(Step::ReleaseForCancel, false).read(theirs, 1.0);
    case.run.kind = RunKind::Reimage;
    case.profile.release_mode = ReleaseMode::Handoff;
    assert_eq!(ends(&case.decide()), (RunStatus::Cancelled, vec!["cancelled"]));
}
