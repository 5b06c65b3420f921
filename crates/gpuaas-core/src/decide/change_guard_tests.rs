//! Every effect of every kind of run in every step, and a machine that is not the run's to change.

use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::steps::KINDS;
use gpuaas_types::{EffectKind, RunKind, Step};

use super::change_guard::{ExpectedUse, admit, changes_machine, expected_use};
use super::fixture::{Case, at, effect_of, machine, parked};
use crate::effect::Outcome;
use crate::record::ReportKind;
use crate::run_state::{PowerFacts, PowerReading};
use crate::snapshot::{Decision, Read};

const OURS: &str = "gpuaas";

/// A run of `kind` in `step` whose machine is as the run left it, read a moment ago.
fn case_of(kind: RunKind, step: Step) -> Case {
    let mut case = Case::new(step);
    case.run.kind = kind;
    case.now = at(100.0);
    case.run.step_since = at(95.0);
    case.node.hardware.bmc_address = Some("10.0.0.7".to_owned());
    case.node.hardware.power_type = "ipmi".to_owned();
    case.run.state.power = Some(power("10.0.0.7"));
    let mut seen = machine(status::READY);
    match expected_use(&case.snapshot()) {
        ExpectedUse::InService => seen = owned(status::DEPLOYED, OURS),
        ExpectedUse::Deployed => seen = owned(status::DEPLOYING, OURS),
        ExpectedUse::Found | ExpectedUse::Free => {}
    }
    case.read(seen, 99.0)
}

fn power(address: &str) -> PowerReading {
    let (power_type, bmc_address) = ("ipmi".to_owned(), Some(address.to_owned()));
    PowerReading { asked_at: at(99.0), facts: PowerFacts { power_type, bmc_address } }
}

fn owned(number: i64, owner: &str) -> MachineView {
    MachineView { owner: Some(owner.to_owned()), ..machine(number) }
}

/// Each kind with each of its steps.
fn kinds_and_steps() -> Vec<(RunKind, Step)> {
    KINDS.iter().flat_map(|row| row.steps.iter().map(|step| (row.kind, *step))).collect()
}

type Interference = (&'static str, fn(Case) -> Case);

/// What people do to a machine that no run may change then, whatever it is at.
const INTERFERENCES: &[Interference] = &[
    ("allocated by another", |case| case.read(owned(status::ALLOCATED, "ann"), 99.0)),
    ("deployed by another", |case| case.read(owned(status::DEPLOYED, "ann"), 99.0)),
    ("being deployed by another", |case| case.read(owned(status::DEPLOYING, "ann"), 99.0)),
    ("being released by another", |case| case.read(owned(status::RELEASING, "ann"), 99.0)),
    ("being commissioned by another", |case| case.read(owned(status::COMMISSIONING, "ann"), 99.0)),
    ("locked", |mut case| {
        let seen = case.observation.as_mut().unwrap();
        seen.machine.as_mut().unwrap().locked = true;
        case
    }),
    ("renamed", |mut case| {
        let seen = case.observation.as_mut().unwrap();
        seen.machine.as_mut().unwrap().hostname = "j22u12".to_owned();
        case
    }),
    ("with another BMC", |mut case| {
        case.run.state.power = Some(power("10.0.0.8"));
        case
    }),
    ("with another network card", |mut case| {
        case.node.hardware.mac_addresses = vec!["00:16:3e:00:00:99".to_owned()];
        case
    }),
];

#[test]
fn every_effect_of_every_run_kind_is_guarded_in_every_step() {
    let mut tried = 0;
    for (kind, step) in kinds_and_steps() {
        for effect in EffectKind::ALL {
            let case = case_of(kind, step);
            let admitted = admit(&case.snapshot(), effect_of(*effect));
            assert!(admitted.is_ok(), "{effect} of a {kind} in {step}: {admitted:?}");
            for (what, interfere) in INTERFERENCES {
                let case = interfere(case_of(kind, step));
                let admitted = admit(&case.snapshot(), effect_of(*effect));
                let stopped = matches!(admitted, Err(Decision::Park { .. }));
                let told = format!("{effect} of a {kind} in {step}, {what}: {admitted:?}");
                assert_eq!(stopped, changes_machine(*effect), "{told}");
                tried += 1;
            }
        }
    }
    assert!(tried > 8_000, "{tried}");
}

/// The region's scripts and tags, and a machine that does not exist, are nobody's machine.
#[test]
fn only_three_effects_change_no_machine() {
    let free: Vec<&EffectKind> =
        EffectKind::ALL.iter().filter(|kind| !changes_machine(**kind)).collect();
    let expected = [&EffectKind::CreateMachine, &EffectKind::RegisterScript, &EffectKind::WriteTag];
    assert_eq!(free, expected);
}

#[test]
fn no_effect_goes_by_an_old_read() {
    for (kind, step) in kinds_and_steps() {
        for effect in EffectKind::ALL.iter().filter(|kind| changes_machine(**kind)) {
            let mut old = case_of(kind, step);
            old.observation.as_mut().unwrap().read_at = at(80.0);
            let mut heard = case_of(kind, step);
            heard.observation.as_mut().unwrap().status_at = at(99.5);
            for case in [old, heard] {
                let admitted = admit(&case.snapshot(), effect_of(*effect));
                assert_eq!(admitted, Err(Decision::Read(Read::Machine)), "{kind} {step} {effect}");
            }
        }
    }
}

/// Whatever a step decides, and whatever it tried before: no decision changes a machine that somebody
/// else has, has locked or has renamed.
#[test]
fn no_decision_changes_a_machine_that_people_took() {
    let outcomes = [
        None,
        Some(Outcome::Accepted),
        Some(Outcome::did_not_happen(String::new())),
        Some(Outcome::NotSent { code: String::new(), text: String::new() }),
        Some(Outcome::Rejected { code: String::new(), text: String::new(), conflict: true }),
    ];
    let (mut decided, mut effects) = (0, 0);
    for (kind, step) in kinds_and_steps() {
        for (number, _) in status::LABELS {
            for (what, owner, locked, name) in [
                ("free", None, false, "j22u11"),
                ("ours", Some(OURS), false, "j22u11"),
                ("another's", Some("ann"), false, "j22u11"),
                ("locked", Some(OURS), true, "j22u11"),
                ("renamed", None, false, "j22u12"),
            ] {
                let mut seen = machine(*number);
                seen.owner = owner.map(str::to_owned);
                (seen.locked, seen.hostname) = (locked, name.to_owned());
                seen.power_state = "on".to_owned();
                let tries = step.row().effects.iter().flat_map(|effect| {
                    outcomes.iter().map(move |outcome| Some((*effect, outcome.clone())))
                });
                for tried in std::iter::once(None).chain(tries) {
                    let mut case = case_of(kind, step).read(seen.clone(), 99.0);
                    if let Some((effect, outcome)) = tried {
                        case = case.intent(effect_of(effect), 96.0, outcome);
                    }
                    decided += 1;
                    let Decision::Do(effect) = crate::decide(&case.snapshot()) else { continue };
                    effects += 1;
                    let taken = !matches!(what, "free" | "ours");
                    let touches = taken && changes_machine(effect.kind());
                    assert!(!touches, "{effect:?} of a machine that is {what}: {kind} in {step}");
                }
            }
        }
    }
    assert!(decided > 5_000 && effects > 100, "{decided} {effects}");
}

/// Between its release and its deployment a machine carries nothing: what does is somebody's, also
/// where the somebody has our account.
#[test]
fn a_machine_with_a_system_of_nobody_knows_whom_is_not_changed() {
    for (kind, step) in kinds_and_steps() {
        if expected_use(&case_of(kind, step).snapshot()) != ExpectedUse::Free {
            continue;
        }
        for number in [status::ALLOCATED, status::DEPLOYING, status::DEPLOYED, status::RESCUE_MODE]
        {
            let case = case_of(kind, step).read(owned(number, OURS), 99.0);
            let stopped = admit(&case.snapshot(), effect_of(EffectKind::PowerOff)).unwrap_err();
            let code = if kind == RunKind::Onboard { "machine_in_use" } else { "machine_taken" };
            assert_eq!(parked(&stopped), code, "{kind} in {step}, {number}");
        }
    }
    let decommission = case_of(RunKind::Decommission, Step::PowerOff);
    let busy = decommission.read(owned(status::COMMISSIONING, OURS), 99.0);
    let stopped = admit(&busy.snapshot(), effect_of(EffectKind::PowerOff)).unwrap_err();
    assert_eq!(parked(&stopped), "machine_taken", "a decommission commissions nothing");
}

/// MAAS shows what the run did as owned by us, and a call of unknown outcome may come true late.
#[test]
fn what_the_run_did_itself_is_no_interference() {
    let deploy = effect_of(EffectKind::Deploy);
    for kind in [RunKind::Onboard, RunKind::Reimage] {
        for outcome in
            [None, super::fixture::unknown(), Some(Outcome::did_not_happen(String::new()))]
        {
            for number in [status::ALLOCATED, status::DEPLOYING, status::DEPLOYED] {
                let case = case_of(kind, Step::Deploy).read(owned(number, OURS), 99.0);
                let case = case.intent(deploy.clone(), 96.0, outcome.clone());
                let admitted = admit(&case.snapshot(), deploy.clone());
                assert!(admitted.is_ok(), "{kind} {outcome:?} {number}: {admitted:?}");
            }
        }
    }
    let adopted = case_of(RunKind::Onboard, Step::ReleaseAdopted);
    let adopted = adopted.read(owned(status::ALLOCATED, OURS), 99.0);
    assert!(admit(&adopted.snapshot(), effect_of(EffectKind::Release)).is_ok());
}

/// The reimage of the finding: it waited for its deploy slot, and somebody allocated the machine.
#[test]
fn a_reimage_does_not_deploy_over_a_machine_that_another_allocated() {
    let case = case_of(RunKind::Reimage, Step::Deploy);
    assert!(matches!(case.decide(), Decision::Do(_)), "{:?}", case.decide());
    let case = case.read(owned(status::ALLOCATED, "ann"), 99.0);
    let decision = case.decide();
    assert_eq!(parked(&decision), "machine_repurposed");
    let Decision::Park { park, .. } = &decision else { unreachable!() };
    assert!(park.text.contains("MAAS user ann"), "{}", park.text);
    let commands: Vec<&str> = park.actions.iter().map(|one| one.command.as_str()).collect();
    assert!(commands[0].starts_with("gpuaas run resume"), "{commands:?}");
}

/// Once the other user gave the machine back, its disks and links are set up again: they may be as
/// that user left them.
#[test]
fn a_machine_that_others_gave_back_is_prepared_again() {
    for code in ["machine_repurposed", "machine_taken", "machine_in_use"] {
        for (number, step) in
            [(status::READY, Step::PrepareStorage), (status::NEW, Step::RegisterScripts)]
        {
            for from in [Step::RoceLinks, Step::MachineTag, Step::Deploy] {
                let mut case = case_of(RunKind::Reimage, from);
                case.run.state.parked_code = Some(code.to_owned());
                case.run.state.parked_at = Some(at(96.0));
                case.run.state.resume(at(97.0));
                case.run.state.power = Some(power("10.0.0.7"));
                let case = case.read(machine(number), 99.0);
                assert_eq!(case.next().0, step, "{code} in {from}");
            }
        }
    }
}

fn word(owner: &str) -> ReportKind {
    ReportKind::TakeOverApproved(gpuaas_types::spec::TakeOver {
        system_id: "abc123".to_owned(),
        owner: Some(owner.to_owned()),
        actor: "eve".to_owned(),
        reason: "agreed".to_owned(),
    })
}

/// A word for the machine as it was found is used up with its release.
#[test]
fn a_take_over_of_before_does_not_cover_a_machine_that_changed_hands_again() {
    let taken =
        || case_of(RunKind::Onboard, Step::Deploy).read(owned(status::ALLOCATED, "ann"), 99.0);
    assert_eq!(parked(&taken().report(word("ann"), 10.0).decide()), "machine_in_use");
    let again = taken().report(word("ann"), 98.0);
    assert_eq!(again.next().0, Step::ReleaseAdopted, "said to this");
}

/// A decommission has given the machine back: whoever has it now keeps it on.
#[test]
fn a_released_machine_that_is_in_use_again_stays_on() {
    for seen in [owned(status::DEPLOYED, "ann"), owned(status::DEPLOYED, OURS)] {
        let on = MachineView { power_state: "on".to_owned(), ..seen };
        let case = case_of(RunKind::Decommission, Step::PowerOff).read(on, 99.0);
        let Decision::Finish { notes, .. } = case.decide() else { panic!("{:?}", case.decide()) };
        assert!(notes[0].text.contains("GPUaaS leaves it alone"), "{}", notes[0].text);
    }
}
