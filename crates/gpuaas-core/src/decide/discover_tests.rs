//! Tests of finding the machine.

use gpuaas_types::Step;
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::spec::TakeOver;

use super::fixture::{Case, at, machine, parked, unknown, waiting};
use crate::effect::{Effect, LATE_EXECUTION_SECONDS, Outcome};
use crate::record::ReportKind;
use crate::run_state::{
    Candidate, MachineFacts, MachineOrigin, MachineSearch, PowerFacts, PowerReading,
};
use crate::snapshot::{Decision, Read};

fn candidate(system_id: &str) -> Candidate {
    Candidate {
        system_id: system_id.to_owned(),
        hostname: "j22u11".to_owned(),
        matched_by: vec!["hostname".to_owned()],
        held_by: None,
        facts: Some(MachineFacts {
            hostname: "j22u11".to_owned(),
            status: status::READY,
            owner: None,
            mac_addresses: vec!["00:16:3e:00:00:01".to_owned()],
            serial: String::new(),
            pool: None,
            power: None,
        }),
    }
}

fn discovering(candidates: Vec<Candidate>, unclaimed_new: Vec<Candidate>) -> Case {
    let mut case = Case::new(Step::Discover);
    case.node.system_id = None;
    case.run.state.found = Some(MachineSearch { asked_at: at(5.0), candidates, unclaimed_new });
    case
}

#[test]
fn discovery_is_deterministic() {
    let mut case = Case::new(Step::Discover);
    case.node.system_id = None;
    assert_eq!(case.decide(), Decision::Read(Read::FindMachine));
    let adopt = Decision::Adopt { system_id: "a".to_owned(), origin: MachineOrigin::Adopted };
    assert_eq!(discovering(vec![candidate("a")], vec![]).decide(), adopt);
    let two = discovering(vec![candidate("a"), candidate("b")], vec![]).decide();
    assert_eq!(parked(&two), "two_candidates");
    let Decision::Park { park, .. } = two else { unreachable!() };
    assert!(park.text.contains("(a,") && park.text.contains("(b,"), "{}", park.text);
}

#[test]
fn a_new_machine_is_claimed_only_where_the_profile_allows() {
    let mut case = discovering(vec![], vec![candidate("n")]);
    assert_eq!(parked(&case.decide()), "machine_not_found");
    case.profile.auto_claim_single_new_machine = true;
    assert_eq!(
        case.decide(),
        Decision::Adopt { system_id: "n".to_owned(), origin: MachineOrigin::Claimed }
    );
    case.run.state.found.as_mut().unwrap().unclaimed_new.push(candidate("o"));
    assert_eq!(parked(&case.decide()), "several_new_machines");
}

#[test]
fn a_machine_held_by_another_node_is_not_taken() {
    let mut held = candidate("a");
    held.held_by = Some("j22u15".to_owned());
    assert_eq!(parked(&discovering(vec![held], vec![]).decide()), "machine_held");
}

#[test]
fn create_with_a_lost_answer_is_looked_for_before_it_is_repeated() {
    let mut case = discovering(vec![], vec![]);
    case.node.hardware.mac_addresses.push("00:16:3e:00:00:01".to_owned());
    assert_eq!(case.decide(), Decision::Do(Effect::CreateMachine));
    let mut case = case.intent(Effect::CreateMachine, 6.0, unknown());
    assert_eq!(case.decide(), Decision::Read(Read::FindMachine));
    case.run.state.found.as_mut().unwrap().asked_at = at(9.0);
    assert_eq!(waiting(&case.decide()), "unknown_outcome");
    case.run.state.found.as_mut().unwrap().asked_at = at(60.0);
    case.now = at(60.5);
    assert_eq!(waiting(&case.decide()), "unknown_outcome");
    case.run.state.found.as_mut().unwrap().asked_at = at(8.0 + LATE_EXECUTION_SECONDS);
    case.now = at(8.5 + LATE_EXECUTION_SECONDS);
    assert_eq!(case.decide(), Decision::Settle { happened: false });
    case.run.state.found.as_mut().unwrap().candidates.push(candidate("a"));
    assert_eq!(case.decide(), Decision::Settle { happened: true });
    assert_eq!(
        case.accepted().decide(),
        Decision::Adopt { system_id: "a".to_owned(), origin: MachineOrigin::Created }
    );
}

/// A second create is refused because the first, of which nobody heard, made the machine: it is looked for.
#[test]
fn create_that_is_refused_after_an_unknown_one_finds_its_machine() {
    let mut case = discovering(vec![], vec![]);
    case.node.hardware.mac_addresses.push("00:16:3e:00:00:01".to_owned());
    let mut case = case.intent(Effect::CreateMachine, 6.0, None);
    case.run.state.record_outcome(unknown().unwrap(), at(7.0));
    case.run.state.record_outcome(Outcome::did_not_happen("not listed".to_owned()), at(400.0));
    let exists = Outcome::Rejected {
        code: "maas_validation".to_owned(),
        text: "hostname: exists; mac_addresses: exists".to_owned(),
        conflict: false,
    };
    let mut case = case.intent_after(Effect::CreateMachine, 410.0, exists);
    case.now = at(420.0);
    assert_eq!(case.decide(), Decision::Read(Read::FindMachine));
    let found = case.run.state.found.as_mut().unwrap();
    (found.asked_at, found.candidates) = (at(415.0), vec![candidate("a")]);
    assert_eq!(
        case.decide(),
        Decision::Adopt { system_id: "a".to_owned(), origin: MachineOrigin::Created }
    );
}

#[test]
fn an_adopted_machine_goes_where_its_status_says() {
    for (number, to) in [
        (status::NEW, Step::RegisterScripts),
        (status::READY, Step::RegisterScripts),
        (status::DEPLOYED, Step::ReleaseAdopted),
        (status::FAILED_DEPLOYMENT, Step::ReleaseAdopted),
    ] {
        assert_eq!(Case::new(Step::Discover).read(machine(number), 1.0).next().0, to);
    }
    let busy = Case::new(Step::Discover).read(machine(status::DEPLOYING), 1.0);
    assert_eq!(parked(&busy.decide()), "machine_busy");
    let mut locked = machine(status::DEPLOYED);
    locked.locked = true;
    assert_eq!(parked(&Case::new(Step::Discover).read(locked, 1.0).decide()), "machine_locked");
}

fn facts_of(one: &mut Candidate) -> &mut MachineFacts {
    one.facts.as_mut().unwrap()
}

fn text_of(decision: &Decision) -> &str {
    match decision {
        Decision::Park { park, .. } => &park.text,
        other => panic!("expected a park, got {other:?}"),
    }
}

#[test]
fn a_name_does_not_outweigh_an_address_that_is_another_machines() {
    let mut case = discovering(vec![candidate("a")], vec![]);
    case.node.hardware.mac_addresses.push("00:16:3e:00:00:09".to_owned());
    let decision = case.decide();
    assert_eq!(parked(&decision), "machine_mismatch");
    let text = text_of(&decision);
    assert!(text.contains("00:16:3e:00:00:09") && text.contains("00:16:3e:00:00:01"), "{text}");
    // Of two that match, the one that every identifier agrees with.
    let mut other = candidate("b");
    facts_of(&mut other).mac_addresses = vec!["00:16:3e:00:00:09".to_owned()];
    case.run.state.found.as_mut().unwrap().candidates.push(other);
    let adopt = Decision::Adopt { system_id: "b".to_owned(), origin: MachineOrigin::Adopted };
    assert_eq!(case.decide(), adopt);
}

#[test]
fn a_new_machine_is_not_claimed_for_a_host_whose_address_is_known() {
    let mut case = discovering(vec![], vec![candidate("n")]);
    case.profile.auto_claim_single_new_machine = true;
    case.node.hardware.mac_addresses.push("00:16:3e:00:00:09".to_owned());
    assert_eq!(case.decide(), Decision::Do(Effect::CreateMachine));
}

fn taken(system_id: &str, owner: Option<&str>) -> ReportKind {
    ReportKind::TakeOverApproved(TakeOver {
        system_id: system_id.to_owned(),
        owner: owner.map(str::to_owned),
        actor: "ann".to_owned(),
        reason: "ours by now".to_owned(),
    })
}

/// A machine in use is taken at a word that names this machine and this owner, and at no other.
#[test]
fn a_machine_in_use_is_taken_at_a_word_only() {
    for (number, owner) in [
        (status::DEPLOYED, Some("bob")),
        (status::DEPLOYED, Some("gpuaas")),
        (status::DEPLOYED, None),
        (status::ALLOCATED, Some("bob")),
        (status::COMMISSIONING, Some("bob")),
    ] {
        let mut one = candidate("a");
        facts_of(&mut one).status = number;
        facts_of(&mut one).owner = owner.map(str::to_owned);
        let case = discovering(vec![one], vec![]);
        let decision = case.decide();
        assert_eq!(parked(&decision), "machine_in_use", "{number} {owner:?}");
        if let Some(owner) = owner {
            assert!(text_of(&decision).contains(owner), "{}", text_of(&decision));
        }
        for (word, goes_on) in [
            (taken("a", owner), true),
            (taken("b", owner), false),
            (taken("a", Some("eve")), false),
        ] {
            let decision = case.clone().report(word.clone(), 1.0).decide();
            let adopted = matches!(decision, Decision::Adopt { .. });
            assert_eq!(adopted, goes_on, "{number} {owner:?} {word:?}");
        }
    }
}

/// What a word let the run have is released; what changed hands since is not.
#[test]
fn an_adopted_machine_in_use_is_released_at_a_word_only() {
    let deployed = |owner: &str| {
        let mut machine = machine(status::DEPLOYED);
        machine.owner = Some(owner.to_owned());
        Case::new(Step::ReleaseAdopted).read(machine, 1.0)
    };
    let release = Decision::Do(Effect::Release { erase: false });
    assert_eq!(parked(&deployed("bob").decide()), "machine_in_use");
    assert_eq!(parked(&deployed("gpuaas").decide()), "machine_in_use");
    assert_eq!(deployed("bob").report(taken("abc123", Some("bob")), 0.5).decide(), release);
    let changed_hands = deployed("eve").report(taken("abc123", Some("bob")), 0.5).decide();
    assert_eq!(parked(&changed_hands), "machine_in_use");
}

/// How old a look may be when a machine is changed, in seconds before that: one of an earlier step
/// counts for a moment, and not where MAAS' feed told of a change since; one of this step counts
/// longer, for a step may be slow, and not for ever, for it may stand in a queue.
#[test]
fn a_look_of_a_moment_ago_counts_for_the_next_step() {
    let changes = |step_age: f64, read_age: f64, bmc_age: f64, heard_age: Option<f64>| {
        let now = 1000.0;
        let mut case = Case::new(Step::Commission).read(machine(status::NEW), now - read_age);
        case.now = at(now);
        case.run.step_since = at(now - step_age);
        case.node.hardware.bmc_address = Some("10.0.0.7".to_owned());
        case.node.hardware.power_type = "ipmi".to_owned();
        let bmc_address = case.node.hardware.bmc_address.clone();
        let facts = PowerFacts { power_type: "ipmi".to_owned(), bmc_address };
        case.run.state.power = Some(PowerReading { asked_at: at(now - bmc_age), facts });
        if let Some(age) = heard_age {
            case.observation.as_mut().unwrap().status_at = at(now - age);
        }
        match case.decide() {
            Decision::Do(_) => true,
            Decision::Read(Read::Machine) => false,
            other => panic!("{other:?}"),
        }
    };
    assert!(changes(1.0, 9.0, 29.0, None), "looked at before the step, a moment ago");
    assert!(!changes(1.0, 11.0, 1.0, None), "the machine is too long ago");
    assert!(!changes(1.0, 1.0, 31.0, None), "its BMC is too long ago");
    assert!(!changes(1.0, 9.0, 1.0, Some(5.0)), "the feed told of a change since");
    assert!(changes(200.0, 199.0, 199.0, None), "in this step");
    assert!(!changes(400.0, 301.0, 1.0, None), "the step stood in a queue");
    assert!(!changes(400.0, 1.0, 301.0, None), "and so did the look at the BMC");
}

/// What is asked before each change: a look in this step, and at the BMC where one was given.
#[test]
fn a_machine_is_looked_at_in_the_step_that_changes_it() {
    let stale = Case::new(Step::Commission).read(machine(status::NEW), -1.0);
    assert_eq!(stale.decide(), Decision::Read(Read::Machine));
    let mut fresh = Case::new(Step::Commission).read(machine(status::NEW), 1.0);
    assert!(matches!(fresh.decide(), Decision::Do(Effect::Commission { .. })));
    fresh.node.hardware.bmc_address = Some("10.0.0.7".to_owned());
    fresh.node.hardware.power_type = "ipmi".to_owned();
    assert_eq!(fresh.decide(), Decision::Read(Read::Machine));
    for (power_type, address, stops) in [
        ("ipmi", Some("10.0.0.7"), None),
        ("ipmi", Some("10.0.0.8"), Some("machine_mismatch")),
        ("manual", None, Some("power_type_differs")),
    ] {
        let bmc_address = address.map(str::to_owned);
        let facts = PowerFacts { power_type: power_type.to_owned(), bmc_address };
        fresh.run.state.power = Some(PowerReading { asked_at: at(1.0), facts });
        let decision = fresh.decide();
        match stops {
            Some(code) => assert_eq!(parked(&decision), code),
            None => assert!(matches!(decision, Decision::Do(_)), "{decision:?}"),
        }
    }
    let mut renamed = machine(status::NEW);
    renamed.hostname = "j22u12".to_owned();
    let renamed = Case::new(Step::Commission).read(renamed, 1.0);
    assert_eq!(parked(&renamed.decide()), "machine_mismatch");
}

#[test]
fn a_machine_that_is_named_by_its_identifier_is_no_other() {
    let named = |system_id: &str| ReportKind::MachineNamed {
        system_id: Some(system_id.to_owned()),
        serial: None,
    };
    let case = discovering(vec![candidate("a")], vec![]);
    assert!(matches!(case.clone().report(named("a"), 1.0).decide(), Decision::Adopt { .. }));
    assert_eq!(parked(&case.report(named("b"), 1.0).decide()), "machine_mismatch");
    let mut nothing = discovering(vec![], vec![]).report(named("b"), 1.0);
    nothing.node.hardware.mac_addresses.push("00:16:3e:00:00:01".to_owned());
    assert_eq!(parked(&nothing.decide()), "machine_not_found");
}
