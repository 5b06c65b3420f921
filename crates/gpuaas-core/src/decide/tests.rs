//! Tests of what all steps share.

use gpuaas_types::machine::maas_status as status;
use gpuaas_types::steps::ROWS;
use gpuaas_types::{Step, Timestamp};

use super::fixture::{Case, at, machine, parked, waiting};
use crate::effect::{Effect, Outcome};
use crate::snapshot::{Decision, Read};
use crate::step_duration::{StepDurationEstimate, StepTimes};

#[test]
fn nothing_begins_before_the_event_feed_is_followed() {
    let mut case = Case::new(Step::Accept);
    case.watched = false;
    assert_eq!(waiting(&case.decide()), "watcher_starting");
    case.watched = true;
    assert_eq!(case.next().0, Step::Discover);
}

#[test]
fn what_is_expected_is_learned_and_the_deadline_is_the_tables() {
    let mut case = Case::new(Step::Accept);
    case.watched = false;
    let limits = |case: &Case| match case.decide() {
        Decision::Wait { wait, .. } => {
            let since = |moment: Option<Timestamp>| moment.map(|m| m.seconds_since(at(0.0)));
            let from = wait.expected_from.map(crate::step_duration::basis_as_text);
            (since(wait.expected_by), since(wait.deadline), from.unwrap_or_default())
        }
        other => panic!("expected a wait, got {other:?}"),
    };
    assert_eq!(limits(&case), (Some(10.0), Some(3600.0), "table".to_owned()));
    let times = StepTimes::from([(Step::Accept, vec![40.0; 9])]);
    case.pace = StepDurationEstimate::learn(&times, &times);
    let learned = "1.5 x p95 of 9 runs of this profile and image".to_owned();
    assert_eq!(limits(&case), (Some(60.0), Some(3600.0), learned));
}

/// The process died between the call and its record, and what was asked for is there.
#[test]
fn nothing_goes_on_past_an_effect_of_which_nobody_knows() {
    let wanted = Effect::SetBootDisk { block_device_id: 2 };
    let case = Case::new(Step::PrepareStorage).read(machine(status::READY), 1.0);
    assert_eq!(case.next().0, Step::RoceLinks);
    let case = case.intent(wanted, 2.0, None);
    assert_eq!(case.decide(), Decision::Read(Read::Machine), "what is known is from before");
    let mut case = case.read(machine(status::READY), 3.0);
    assert_eq!(case.decide(), Decision::Settle { happened: true });
    let mut other = machine(status::READY);
    other.boot_disk_id = Some(1);
    let gone = Effect::SetBootDisk { block_device_id: 7 };
    case.run.state.intent.as_mut().unwrap().effect = gone;
    case.now = at(4.0);
    assert_eq!(waiting(&case.decide()), "unknown_outcome");
    case.now = at(400.0);
    let case = case.read(other, 399.0);
    assert_eq!(case.decide(), Decision::Settle { happened: false });
}

#[test]
fn failed_reads_back_off_and_say_so() {
    let mut case = Case::new(Step::Commission).read(machine(status::NEW), 1.0);
    case.observation = None;
    case.run.state.read_failure = Some(crate::run_state::ReadFailure {
        code: "maas_unavailable".to_owned(),
        text: "connection refused".to_owned(),
        at: at(9.0),
        count: 3,
    });
    assert_eq!(waiting(&case.decide()), "maas_unavailable");
    case.now = at(18.0);
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
}

fn failed_read(case: &mut Case, code: &str, second: f64, count: u32) {
    let (code, text) = (code.to_owned(), "as it was".to_owned());
    let failure = crate::run_state::ReadFailure { code, text, at: at(second), count };
    case.run.state.read_failure = Some(failure);
}

/// The region is away for two hours in a step whose deadline is one, and comes back.
#[test]
fn an_outage_outlasts_every_deadline_and_ends_when_it_ends() {
    let mut case = Case::new(Step::Discover);
    let hours = 2.0 * 3600.0;
    for (code, waits_for) in [
        ("site_circuit_open", "site_circuit_open"),
        ("maas_unavailable", "maas_unavailable"),
        ("maas_unknown_outcome", "maas_unavailable"),
        ("maas_auth_invalid_token", "site_key_refused"),
        ("maas_auth_clock_skew", "site_clock_wrong"),
    ] {
        failed_read(&mut case, code, hours, 9);
        case.now = at(hours + 1.0);
        let decision = case.decide();
        let Decision::Wait { wait, .. } = &decision else { panic!("{code}: {decision:?}") };
        assert_eq!((wait.code.as_str(), wait.deadline), (waits_for, None));
        case.answering_since = Some(at(hours + 0.5));
        assert_eq!(case.decide(), Decision::Read(Read::Machine), "{code}");
        // Back and away again at the moment of the failure: reading at once would never end.
        case.away = true;
        assert_eq!(waiting(&case.decide()), waits_for, "{code}");
        (case.away, case.answering_since) = (false, None);
    }
    // What the region kept from happening is not held against the run once it is back.
    failed_read(&mut case, "maas_server_error", hours + 2.0, 1);
    case.now = at(hours + 3.0);
    assert_eq!(parked(&case.decide()), "deadline_exceeded");
    case.answering_since = Some(at(hours + 1.0));
    assert_eq!(waiting(&case.decide()), "maas_unavailable");
}

/// A region that goes and comes puts off no deadline of a step in which the host is waited for.
#[test]
fn a_silent_host_is_given_up_however_often_its_region_was_away() {
    for step in [Step::BootstrapFetch, Step::SiteBootstrap] {
        let late = f64::from(step.row().deadline_seconds) + 1.0;
        let mut case = Case::new(step).read(machine(status::DEPLOYED), 1.0);
        (case.answering_since, case.now) = (Some(at(late - 60.0)), at(late));
        assert_eq!(parked(&case.decide()), "deadline_exceeded", "{step}");
    }
}

#[test]
fn what_never_left_is_sent_once_the_region_is_back_however_often_it_was_not() {
    let mut case = Case::new(Step::PrepareStorage).read(machine(status::READY), 1.0);
    case.observation.as_mut().unwrap().machine.as_mut().unwrap().boot_disk_id = Some(77);
    let Decision::Do(effect) = case.decide() else { panic!("{:?}", case.decide()) };
    for code in ["maas_unavailable", "site_circuit_open", "maas_auth_invalid_key"] {
        let (code, text) = (code.to_owned(), String::new());
        let unsent = Outcome::NotSent { code, text };
        let mut case = case.clone().intent(effect.clone(), 1.0, Some(unsent));
        case.run.state.intent.as_mut().unwrap().number = 40;
        case.now = at(2.5);
        let decision = case.decide();
        assert!(matches!(decision, Decision::Wait { .. }), "{decision:?}");
        case.answering_since = Some(at(2.4));
        assert_eq!(case.decide(), Decision::Do(effect.clone()));
    }
}

#[test]
fn a_vanished_machine_parks_in_any_step() {
    let mut case = Case::new(Step::SiteBootstrap).read(machine(status::DEPLOYED), 1.0);
    case.observation.as_mut().unwrap().vanished = true;
    assert_eq!(parked(&case.decide()), "machine_vanished");
}

/// What the run knew when it stopped is what the operator has answered.
#[test]
fn a_word_to_go_on_is_answered_by_another_look_in_every_step() {
    for row in ROWS.iter().filter(|row| row.kinds.iter().any(|kind| kind.row().needs_maas)) {
        for retry in [false, true] {
            let mut case = Case::new(row.step).read(machine(status::READY), 5.0);
            let kinds = row.kinds.iter().filter(|kind| kind.row().needs_maas);
            case.run.kind = kinds.copied().next().unwrap();
            case.observation.as_mut().unwrap().vanished = true;
            if retry {
                case.run.state.retry(at(9.0))
            } else {
                case.run.state.resume(at(9.0))
            }
            assert_eq!(case.decide(), Decision::Read(Read::Machine), "{}", row.step);
            let looked = case.read(machine(status::READY), 9.0);
            assert_ne!(looked.decide(), Decision::Read(Read::Machine), "{}", row.step);
        }
    }
}

#[test]
fn disks_and_interfaces_are_looked_at_after_the_commissioning_that_a_person_began() {
    for step in [Step::PxePreflight, Step::PrepareStorage, Step::RoceLinks] {
        let mut case = Case::new(step).read(machine(status::COMMISSIONING), 9.5);
        case.profile.enable_phase2_roce = true;
        let to = |case: &Case| case.decide().next_step(&case.run);
        assert_ne!(to(&case), Some(Step::RegisterScripts), "{step}: nobody said a word");
        case.run.state.resume(at(9.0));
        assert_eq!(to(&case), Some(Step::RegisterScripts), "{step}");
    }
}
