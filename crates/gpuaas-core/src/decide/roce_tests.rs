//! Tests of fabric links.

use gpuaas_types::Step;
use gpuaas_types::machine::{MachineView, NicLink, maas_status as status};
use gpuaas_types::spec::RoceAssignmentSpec;

use crate::decide::fixture::{Case, at, machine, parked};
use crate::effect::{Effect, Outcome};
use crate::run_state::{RegionSubnet, RegionSubnets};
use crate::snapshot::{Decision, Read};

const ADDRESS: &str = "10.9.0.11";

fn assignment(interface: &str, cidr: &str) -> RoceAssignmentSpec {
    RoceAssignmentSpec {
        site: "lab".to_owned(),
        hostname: "j22u11".to_owned(),
        interface: interface.to_owned(),
        subnet_cidr: cidr.to_owned(),
        ip_address: ADDRESS.to_owned(),
    }
}

fn fabric_link(id: i64) -> NicLink {
    NicLink {
        id,
        mode: "static".to_owned(),
        subnet_id: Some(9),
        subnet_cidr: Some("10.9.0.0/24".to_owned()),
        ip_address: Some(ADDRESS.to_owned()),
    }
}

/// A Ready machine, its region's subnets read, and one assignment.
fn assigned(interface: &str, cidr: &str) -> Case {
    let mut case = Case::new(Step::RoceLinks).read(machine(status::READY), 1.0);
    case.profile.enable_phase2_roce = true;
    case.roce.push(assignment(interface, cidr));
    let subnet = |cidr: &str, vlan_id| RegionSubnet { cidr: cidr.to_owned(), vlan_id };
    case.run.state.subnets = Some(RegionSubnets {
        asked_at: at(1.0),
        subnets: vec![subnet("10.9.0.0/24", 5001), subnet("10.8.0.0/24", 5009)],
    });
    case
}

fn machine_of(case: &mut Case) -> &mut MachineView {
    case.observation.as_mut().unwrap().machine.as_mut().unwrap()
}

/// The new link comes first, the old one goes once the new one shows, and the end is read back.
#[test]
fn links_are_replaced_with_the_old_one_last() {
    let mut case = Case::new(Step::RoceLinks).read(machine(status::READY), 1.0);
    assert_eq!(case.next().0, Step::HardwareSync, "the profile wants none");
    case.profile.enable_phase2_roce = true;
    assert_eq!(parked(&case.decide()), "roce_assignments_missing");
    let mut case = assigned("ens1", "10.9.0.0/24");
    let link = Effect::LinkSubnet {
        interface_id: 2,
        subnet_cidr: "10.9.0.0/24".to_owned(),
        ip_address: ADDRESS.to_owned(),
    };
    assert_eq!(case.decide(), Decision::Do(link.clone()));
    case = case.intent(link, 2.0, Some(Outcome::Accepted));
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    machine_of(&mut case).nics[1].links.push(fabric_link(40));
    let unlink = Effect::UnlinkSubnet { interface_id: 2, link_id: 12 };
    assert_eq!(case.decide(), Decision::Do(unlink.clone()));
    case = case.intent(unlink, 4.0, Some(Outcome::Accepted));
    let mut linked = machine(status::READY);
    linked.nics[1].links = vec![fabric_link(40)];
    machine_of(&mut case).nics[1].links = vec![fabric_link(40)];
    assert_eq!(case.decide(), Decision::Read(Read::Machine), "read back");
    assert_eq!(case.read(linked, 6.0).next().0, Step::HardwareSync);
}

/// What is wrong is said before anything is changed, and a corrected assignment goes on.
#[test]
fn a_wrong_assignment_changes_nothing() {
    for (interface, cidr, code) in [
        ("eno1", "10.9.0.0/24", "roce_boot_interface"),
        ("00:16:3E:00:00:01", "10.9.0.0/24", "roce_boot_interface"),
        ("ens1", "10.7.0.0/24", "roce_subnet_unknown"),
        ("ens1", "10.8.0.0/24", "roce_subnet_unknown"),
        ("ens7", "10.9.0.0/24", "roce_interface_missing"),
    ] {
        let mut case = assigned(interface, cidr);
        assert_eq!(parked(&case.decide()), code, "{interface} {cidr}");
        // Also where another assignment could be carried out.
        case.roce.insert(0, assignment("ens1", "10.9.0.0/24"));
        assert_eq!(parked(&case.decide()), code, "{interface} {cidr}");
        case.roce.pop();
        assert!(matches!(case.decide(), Decision::Do(Effect::LinkSubnet { .. })));
    }
    let mut unread = assigned("ens1", "10.9.0.0/24");
    unread.run.state.subnets = None;
    assert_eq!(unread.decide(), Decision::Read(Read::Subnets));
}

/// MAAS refuses the new address: the old link was not touched.
#[test]
fn an_address_in_use_leaves_the_old_link() {
    let link = Effect::LinkSubnet {
        interface_id: 2,
        subnet_cidr: "10.9.0.0/24".to_owned(),
        ip_address: ADDRESS.to_owned(),
    };
    let refused = Outcome::Rejected {
        code: "maas_address_in_use".to_owned(),
        text: "IP address is already in use.".to_owned(),
        conflict: false,
    };
    let case = assigned("ens1", "10.9.0.0/24").intent(link, 2.0, Some(refused));
    let case = case.read(machine(status::READY), 4.0);
    assert_eq!(parked(&case.decide()), "maas_address_in_use");
    assert!(!case.run.state.intended_at.contains_key(&gpuaas_types::EffectKind::UnlinkSubnet));
}

/// An assignment that was moved to another interface frees its address first.
#[test]
fn a_moved_address_leaves_its_old_interface_first() {
    let mut case = assigned("ens1", "10.9.0.0/24");
    let mut other = case.observation.as_ref().unwrap().machine.as_ref().unwrap().nics[1].clone();
    (other.id, other.name, other.links) = (3, "ens2".to_owned(), vec![fabric_link(41)]);
    machine_of(&mut case).nics.push(other);
    let unlink = Effect::UnlinkSubnet { interface_id: 3, link_id: 41 };
    assert_eq!(case.decide(), Decision::Do(unlink));
}

/// MAAS takes the unlink and does not do it: one look, then a person is asked.
#[test]
fn a_link_that_stays_stops_the_run() {
    let unlink = Effect::UnlinkSubnet { interface_id: 2, link_id: 12 };
    let mut stays = machine(status::READY);
    stays.nics[1].links.push(fabric_link(40));
    let case = assigned("ens1", "10.9.0.0/24").read(stays.clone(), 1.0);
    assert_eq!(case.decide(), Decision::Do(unlink.clone()));
    let case = case.intent(unlink.clone(), 2.0, Some(Outcome::Accepted));
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let mut case = case.read(stays.clone(), 4.0);
    assert_eq!(parked(&case.decide()), "roce_link_stays");
    case.run.state.resume(at(5.0));
    let again = case.read(stays, 6.0);
    assert_eq!(again.decide(), Decision::Do(unlink));
}

/// Whatever the links did to it, a machine that cannot boot from the network is not deployed.
#[test]
fn the_boot_interface_is_looked_at_once_more() {
    let mut linked = machine(status::READY);
    linked.nics[1].links = vec![fabric_link(40)];
    let good = assigned("ens1", "10.9.0.0/24").read(linked.clone(), 1.0);
    assert_eq!(good.next().0, Step::HardwareSync);
    linked.nics[0].links.clear();
    let mut bad = assigned("ens1", "10.9.0.0/24").read(linked, 1.0);
    assert_eq!(parked(&bad.decide()), "pxe_preflight_failed");
    bad.profile.strict_pxe_preflight = false;
    assert_eq!(bad.next().0, Step::HardwareSync);
}
