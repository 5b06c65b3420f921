//! Tests of what a recheck may lead to.

use gpuaas_types::codes::PARKS;
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::{EffectKind, Step, Timestamp};

use super::*;
use crate::decide::fixture::{Case, at, machine};
use crate::effect::ScriptSelection;
use crate::run_state::MachineOrigin;

/// The case as a recheck at second 100 finds it, the machine read a second later.
fn rechecked(mut case: Case, machine: gpuaas_types::machine::MachineView) -> Case {
    case.run.state.begin_recheck(at(100.0));
    case.now = at(102.0);
    case.read(machine, 101.0)
}

fn judged(case: &Case) -> RecheckVerdict {
    judge_recheck(&case.snapshot(), &case.decide())
}

fn goes_on(verdict: &RecheckVerdict) -> bool {
    matches!(verdict, RecheckVerdict::GoesOn(_))
}

#[test]
fn nothing_is_decided_on_what_was_read_before() {
    let mut case = Case::new(Step::Discover).read(machine(status::READY), 5.0);
    case.run.state.begin_recheck(at(100.0));
    case.now = at(102.0);
    assert_eq!(judged(&case), RecheckVerdict::Read(Read::Machine));
}

#[test]
fn an_unlocked_machine_lets_the_run_go_on_and_a_locked_one_does_not() {
    let mut locked = machine(status::READY);
    locked.locked = true;
    let case = rechecked(Case::new(Step::Discover), locked);
    assert_eq!(judged(&case), RecheckVerdict::StaysParked);
    let case = rechecked(Case::new(Step::Discover), machine(status::READY));
    assert_eq!(judged(&case), RecheckVerdict::GoesOn("adopted, MAAS reports Ready".to_owned()));
}

/// Going on would release the machine, so an operator has to want it.
#[test]
fn no_recheck_leads_to_a_release() {
    let case = rechecked(Case::new(Step::Discover), machine(status::DEPLOYED));
    assert_eq!(judged(&case), RecheckVerdict::StaysParked);
    let case = rechecked(Case::new(Step::ReleaseAdopted), machine(status::DEPLOYED));
    assert_eq!(judged(&case), RecheckVerdict::StaysParked);
    let system_id = "abc123".to_owned();
    let adopt = Decision::Adopt { system_id, origin: MachineOrigin::Adopted };
    let deployed = rechecked(Case::new(Step::Discover), machine(status::DEPLOYED));
    assert_eq!(judge_recheck(&deployed.snapshot(), &adopt), RecheckVerdict::StaysParked);
    let ready = rechecked(Case::new(Step::Discover), machine(status::READY));
    assert!(goes_on(&judge_recheck(&ready.snapshot(), &adopt)));
}

/// A call that was made in this visit of the step is not made again; a first one is.
#[test]
fn no_recheck_repeats_a_call() {
    let scripts = ScriptSelection::default();
    let commission = Effect::Commission { scripts };
    let new = || Case::new(Step::Commission).read(machine(status::NEW), 5.0);
    assert!(goes_on(&judged(&rechecked(new(), machine(status::NEW)))));
    for outcome in [
        Outcome::Accepted,
        Outcome::Rejected { code: "c".to_owned(), text: "t".to_owned(), conflict: false },
        Outcome::did_not_happen("t".to_owned()),
    ] {
        let tried = new().intent(commission.clone(), 6.0, Some(outcome.clone()));
        let verdict = judged(&rechecked(tried, machine(status::NEW)));
        assert_eq!(verdict, RecheckVerdict::StaysParked, "{outcome:?}");
    }
    let tried = new().intent(commission, 6.0, Some(Outcome::Accepted));
    let by_hand = judged(&rechecked(tried, machine(status::READY)));
    assert!(goes_on(&by_hand), "somebody commissioned it in MAAS: {by_hand:?}");
}

/// No effect but those on the way to active is ever begun by a recheck.
#[test]
fn a_recheck_neither_creates_nor_breaks_a_machine() {
    let case = rechecked(Case::new(Step::Release), machine(status::RELEASING_FAILED));
    for effect in [
        Effect::CreateMachine,
        Effect::Release { erase: true },
        Effect::Release { erase: false },
        Effect::OverrideFailedTesting,
        Effect::Abort,
        Effect::MarkBroken,
        Effect::MarkFixed,
        Effect::PowerOff,
        Effect::PowerOn,
    ] {
        let kind: EffectKind = effect.kind();
        let verdict = judge_recheck(&case.snapshot(), &Decision::Do(effect));
        assert_eq!(verdict, RecheckVerdict::StaysParked, "{kind}");
    }
}

#[test]
fn rechecks_become_rarer_and_stop_for_nobody() {
    for row in PARKS {
        let first = next_recheck_at(row.code.as_str(), at(0.0), at(0.0));
        assert_eq!(first.is_some(), row.looked_at_again, "{}", row.code);
        let (mut now, mut pauses) = (at(0.0), Vec::new());
        while let Some(next) = next_recheck_at(row.code.as_str(), at(0.0), now)
            && pauses.len() < 8
        {
            pauses.push(next.seconds_since(now));
            now = next;
        }
        let expected = [60.0, 60.0, 120.0, 240.0, 480.0, 900.0, 900.0, 900.0];
        assert!(pauses.is_empty() || pauses == expected, "{}: {pauses:?}", row.code);
    }
    assert_eq!(next_recheck_at("a_code_of_yesterday", Timestamp::EPOCH, at(0.0)), None);
}
