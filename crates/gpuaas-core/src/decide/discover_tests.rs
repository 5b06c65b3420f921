//! Tests of finding the machine.

use gpuaas_types::Step;
use gpuaas_types::machine::maas_status as status;

use super::fixture::{Case, at, machine, parked, unknown, waiting};
use crate::effect::Effect;
use crate::run_state::{Candidate, MachineOrigin, MachineSearch};
use crate::snapshot::{Decision, Read};

fn candidate(system_id: &str) -> Candidate {
    Candidate {
        system_id: system_id.to_owned(),
        hostname: format!("host-{system_id}"),
        matched_by: vec!["hostname".to_owned()],
        held_by: None,
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
    assert!(park.text.contains("host-a") && park.text.contains("host-b"), "{}", park.text);
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
    assert_eq!(case.decide(), Decision::Settle { happened: false });
    case.run.state.found.as_mut().unwrap().candidates.push(candidate("a"));
    assert_eq!(case.decide(), Decision::Settle { happened: true });
    assert_eq!(
        case.accepted().decide(),
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
