//! The escalation, played against a MAAS that does what a test says.

use gpuaas_types::{RunKind, RunStatus, Step};

use super::super::fixture::{Case, at, machine};
use super::*;

/// What MAAS makes of an effect, as far as a release is concerned.
type Maas = fn(i64, &Effect) -> (Outcome, i64);

fn owned(status: i64) -> MachineView {
    let owner = Some("gpuaas".to_owned());
    MachineView { owner, power_state: "on".to_owned(), ..machine(status) }
}

/// A machine that is released without erasing, so that every step of the escalation may be taken;
/// those that erase say so.
fn leaving(number: i64) -> Case {
    let mut case = Case::new(Step::Release).read(owned(number), 0.0);
    case.run.kind = RunKind::Decommission;
    case.profile.release_erase = false;
    case.now = at(1.0);
    case
}

fn refused() -> Outcome {
    let (code, text) = ("forbidden".to_owned(), "no".to_owned());
    Outcome::Rejected { code, text, conflict: false }
}

fn without_effect() -> Outcome {
    Outcome::did_not_happen(String::new())
}

fn ask_for(case: &mut Case, effect: Effect, before: i64, outcome: Outcome) {
    let intent = Intent {
        id: super::super::fixture::id(9),
        step: case.run.step,
        number: case.run.state.next_number(&effect),
        effect,
        at: case.now,
        before: Some(before),
        outcome: None,
        ended_at: None,
        given_up: None,
        after_unknown: false,
    };
    case.run.state.record_intent(intent);
    case.run.state.record_outcome(outcome, case.now);
}

/// Escalates against `maas` until it ends, and returns what was asked for and when, and
/// how it ended. Time stands still but for waits.
fn escalated(case: &mut Case, maas: Maas) -> (Vec<String>, Decision) {
    let mut asked = Vec::new();
    let mut number = case.observation.as_ref().unwrap().status;
    for _ in 0..200 {
        match case.decide() {
            Decision::Do(effect) => {
                let seconds = case.now.seconds_since(at(1.0));
                asked.push(format!("{}@{seconds:.0}", effect.kind()));
                let (outcome, to) = maas(number, &effect);
                ask_for(case, effect, number, outcome);
                number = to;
                let seen = case.observation.as_mut().unwrap();
                (seen.status, seen.status_at) = (number, case.now);
            }
            Decision::Read(_) => {
                case.now = case.now.plus_seconds(0.001);
                let seen = gpuaas_types::machine::Observation::from_read(owned(number), case.now);
                case.observation = Some(seen);
            }
            Decision::Wait { recheck_at, .. } => {
                assert!(recheck_at > case.now);
                case.now = recheck_at;
            }
            end => return (asked, end),
        }
    }
    panic!("it does not end: {asked:?}");
}

fn parked(end: &Decision) -> (&str, String) {
    let Decision::Park { park, .. } = end else { panic!("{end:?}") };
    (&park.code, park.evidence.join("; "))
}

#[test]
fn the_escalation_as_text() {
    let row = |r: &EscalationStep| {
        let label = status::label(r.status);
        format!(
            "{:<12} {label:<20} {:>20} {}",
            r.action.kind(),
            format!("{:?}", r.patience),
            r.times
        )
    };
    insta::assert_snapshot!(ESCALATION.iter().map(row).collect::<Vec<_>>().join("\n"));
    for step in ESCALATION {
        let stuck = matches!(step.status, status::RELEASING | status::DISK_ERASING);
        assert_eq!(stuck, step.patience != Patience::None, "{step:?}");
    }
}

/// A step of the escalation that is not meant to release the machine cannot: every action has the
/// effect of its own kind, and exactly one of them is the release.
#[test]
fn only_the_release_action_releases() {
    for action in ReleaseAction::ALL {
        for erase in [false, true] {
            let effect = action.effect(erase);
            assert_eq!(effect.kind(), action.kind());
            assert_eq!(matches!(effect, Effect::Release { .. }), action == Release, "{effect:?}");
        }
    }
    let kinds = ReleaseAction::ALL.map(ReleaseAction::kind);
    assert_eq!(kinds, gpuaas_types::steps::RELEASE_EFFECTS, "the table of steps says the same");
    for action in ReleaseAction::ALL {
        let used = action == Release || ESCALATION.iter().any(|step| step.action == action);
        assert!(used, "{action:?}");
    }
}

#[test]
fn a_read_that_bears_the_moment_of_the_step_counts_where_that_is_to_come() {
    let mut case = leaving(status::DEPLOYED);
    // MAAS' clock is ahead: the step began at its moment, and no read can look later than that.
    case.now = case.run.step_since.plus_seconds(-20.0);
    ask_for(&mut case, Effect::Release { erase: true }, status::DEPLOYED, Outcome::Accepted);
    let seen = owned(status::DISK_ERASING);
    let at = case.run.step_since;
    case.observation = Some(gpuaas_types::machine::Observation::from_read(seen, at));
    case.now = case.now.plus_seconds(1.0);
    let decision = case.decide();
    assert!(matches!(decision, Decision::Wait { .. }), "{decision:?}");
}

#[test]
fn a_release_that_always_fails_escalates_to_the_end_and_parks() {
    let (asked, end) = escalated(&mut leaving(status::DEPLOYED), |number, effect| match effect {
        Effect::Release { .. } => (Outcome::Accepted, status::RELEASING_FAILED),
        Effect::MarkBroken => (refused(), number),
        _ => (Outcome::Accepted, number),
    });
    let names: Vec<&str> = asked.iter().filter_map(|one| one.split('@').next()).collect();
    let all = ["release", "release", "mark_broken", "release", "power_off", "power_on", "release"];
    assert_eq!(names, all, "{asked:?}");
    let (code, evidence) = parked(&end);
    assert_eq!(code, "release_failed");
    for name in ["release", "mark_broken", "power_off", "power_on"] {
        assert!(evidence.contains(name), "{evidence}");
    }
}

#[test]
fn a_machine_stuck_releasing_is_marked_broken_and_fixed() {
    let (asked, end) = escalated(&mut leaving(status::DEPLOYED), |number, effect| {
        let to = match effect {
            Effect::Release { .. } => status::RELEASING,
            Effect::MarkBroken => status::BROKEN,
            Effect::MarkFixed => status::READY,
            _ => number,
        };
        (Outcome::Accepted, to)
    });
    assert_eq!(asked, ["release@0", "mark_broken@600", "mark_fixed@600"]);
    let Decision::Next { notes, .. } = end else { panic!("{end:?}") };
    assert!(notes[0].text.contains("mark_broken, mark_fixed"), "{}", notes[0].text);
}

#[test]
fn an_erasing_that_hangs_is_aborted_and_begun_again() {
    let mut case = leaving(status::DEPLOYED);
    case.profile.release_erase = true;
    let (asked, end) = escalated(&mut case, |_, effect| match effect {
        Effect::Abort => (Outcome::Accepted, status::FAILED_DISK_ERASING),
        _ => (Outcome::Accepted, status::DISK_ERASING),
    });
    assert_eq!(asked[..3], ["release@0", "abort@7200", "release@7200"]);
    assert_eq!(parked(&end).0, "release_failed");
    assert!(!asked.iter().any(|one| one.starts_with("mark_fixed")), "{asked:?}");
}

#[test]
fn what_had_no_effect_is_tried_once_more_and_not_waited_for_again() {
    let (asked, end) = escalated(&mut leaving(status::DEPLOYED), |number, effect| match effect {
        Effect::Release { .. } => (Outcome::Accepted, status::RELEASING),
        Effect::PowerOff => (Outcome::Accepted, status::READY),
        _ => (without_effect(), number),
    });
    let expected = ["release@0", "mark_broken@600", "mark_broken@605", "power_off@1205"];
    assert_eq!(asked, expected);
    assert!(matches!(end, Decision::Next { .. }), "{end:?}");
}

#[test]
fn what_had_no_effect_goes_before_all_else_and_counts_once_it_had_none_again() {
    let (asked, end) = escalated(&mut leaving(status::DEPLOYED), |number, effect| match effect {
        Effect::Release { .. } if number == status::DEPLOYED => {
            (Outcome::Accepted, status::RELEASING)
        }
        Effect::Release { .. } => (Outcome::Accepted, status::READY),
        Effect::MarkBroken => (refused(), number),
        // MAAS gives the release up meanwhile: now it could be released again.
        Effect::PowerOff if number == status::RELEASING => {
            (without_effect(), status::RELEASING_FAILED)
        }
        _ => (Outcome::Accepted, number),
    });
    let expected =
        ["release@0", "mark_broken@600", "power_off@1200", "power_off@1205", "release@1205"];
    assert_eq!(asked, expected);
    assert!(matches!(end, Decision::Next { .. }), "{end:?}");
    let mut case = leaving(status::RELEASING_FAILED);
    let (asked, end) = escalated(&mut case, |number, _| (without_effect(), number));
    let times = |name: &str| asked.iter().filter(|one| one.starts_with(name)).count();
    let counts = ["release", "mark_broken", "power_off", "power_on"].map(times);
    assert_eq!(counts, [4, 2, 2, 2], "{asked:?}");
    assert!(parked(&end).1.contains("power_off without effect"), "{end:?}");
}

#[test]
fn what_never_left_is_no_try_and_parks_nothing() {
    let mut case = leaving(status::RELEASING);
    let effect = Effect::MarkBroken;
    let away = || Outcome::NotSent { code: "site_circuit_open".to_owned(), text: String::new() };
    case.now = case.now.plus_seconds(700.0);
    for _ in 0..20 {
        ask_for(&mut case, effect.clone(), status::RELEASING, away());
        let number = case.run.state.intent.as_ref().unwrap().number;
        assert_eq!((number, case.run.state.tries[&EffectKind::MarkBroken]), (1, 0));
        case.now = case.now.plus_seconds(1000.0);
        if case.now.seconds_since(case.run.step_since) < 14_000.0 {
            let decision = case.decide();
            let goes_on = matches!(
                decision,
                Decision::Do(Effect::MarkBroken) | Decision::Read(_) | Decision::Wait { .. }
            );
            assert!(goes_on, "{decision:?}");
        }
    }
}

#[test]
fn disks_that_must_be_erased_are_never_let_off() {
    let mut case = leaving(status::DEPLOYED);
    case.profile.release_erase = true;
    let maas: Maas = |number, effect| {
        let to = match effect {
            Effect::Release { erase: true } => status::FAILED_DISK_ERASING,
            Effect::Release { erase: false } => status::READY,
            Effect::MarkBroken => status::BROKEN,
            Effect::MarkFixed => status::READY,
            _ => number,
        };
        (Outcome::Accepted, to)
    };
    let (asked, end) = escalated(&mut case, maas);
    assert_eq!(parked(&end).0, "release_failed");
    assert!(asked.iter().any(|one| one.starts_with("power_on")), "{asked:?}");
    assert!(!asked.iter().any(|one| one.starts_with("mark_fixed")), "{asked:?}");
    let mut case = leaving(status::DEPLOYED);
    case.profile.release_erase = true;
    case.profile.release_fallback_no_erase = true;
    let (asked, end) = escalated(&mut case, maas);
    assert_eq!(asked, ["release@0", "release@0"]);
    assert!(matches!(end, Decision::Next { .. }), "{end:?}");
}

#[test]
fn a_release_that_someone_else_asked_for_is_only_waited_for() {
    let mut case = leaving(status::RELEASING);
    let (asked, end) = escalated(&mut case, |number, _| (Outcome::Accepted, number));
    assert_eq!((asked.len(), parked(&end).0), (0, "deadline_exceeded"));
    let mut case = leaving(status::RELEASING_FAILED);
    let (asked, _) = escalated(&mut case, |_, _| (Outcome::Accepted, status::READY));
    assert_eq!(asked, ["release@0"], "a failure is released again whoever began");
}

#[test]
fn a_machine_without_a_bmc_is_not_power_cycled() {
    let mut case = leaving(status::RELEASING_FAILED);
    let mut seen = owned(status::RELEASING_FAILED);
    seen.power_type = "manual".to_owned();
    case.run.state.intended_at.insert(EffectKind::Release, at(0.0));
    let options = ReleaseOptions { erase: false, any_owner: false };
    let power = |seen: &MachineView| {
        let steps = ESCALATION.iter().filter(|step| matches!(step.action, PowerOff | PowerOn));
        steps.filter(|step| applies(&case.snapshot(), step, seen, options)).count()
    };
    assert_eq!(power(&seen), 0);
    seen.power_type = "ipmi".to_owned();
    assert_eq!(power(&seen), 2);
}

#[test]
fn a_machine_that_is_somebody_elses_by_now_is_left_alone() {
    let mut case = leaving(status::DEPLOYED);
    case.observation.as_mut().unwrap().machine.as_mut().unwrap().owner = Some("ann".to_owned());
    let end = case.decide();
    let (code, evidence) = parked(&end);
    assert_eq!(code, "machine_repurposed");
    assert!(evidence.contains("owner ann"), "{evidence}");
    let Decision::Park { park, .. } = &end else { unreachable!() };
    assert!(park.next_action.contains("detach"));
    case.maas_user.clear();
    assert_eq!(case.decide(), Decision::Do(Effect::Release { erase: false }), "not known");
    assert_eq!(case.run.status, RunStatus::Running);
}

/// A release that MAAS took is over once somebody else has the machine: it is not waited for, and not
/// asked for again.
#[test]
fn a_machine_that_changed_hands_after_its_release_is_left_alone() {
    let release = Effect::Release { erase: false };
    for outcome in [Outcome::Accepted, without_effect(), refused()] {
        for number in [status::ALLOCATED, status::DEPLOYED, status::RELEASING_FAILED] {
            let mut case = leaving(status::DEPLOYED);
            ask_for(&mut case, release.clone(), status::DEPLOYED, outcome.clone());
            let theirs = MachineView { owner: Some("ann".to_owned()), ..owned(number) };
            case.now = at(40.0);
            let mut case = case.read(theirs, 39.0);
            case.run.state.intent.as_mut().unwrap().ended_at = Some(at(2.0));
            assert_eq!(parked(&case.decide()).0, "machine_repurposed", "{outcome:?} {number}");
        }
    }
}
