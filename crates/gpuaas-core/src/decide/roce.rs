//! Static addresses on the fabric interfaces of a host, as the site's assignments name them.
//!
//! Everything that can be known to be wrong is known before anything is changed: an assignment on
//! the interface that the machine boots from, on an interface or in a subnet that MAAS does not
//! have. Links of MAAS add up (docs/maas.md#links), so the new ones come first and the old ones go
//! once the new ones show: whatever MAAS refuses on the way, such as an address that is in use,
//! leaves the machine with the links that it had. At the end the boot interface is looked at once
//! more, because a machine that does not boot from the network is not deployed.

use gpuaas_types::EffectKind;
use gpuaas_types::api::CheckResult;
use gpuaas_types::codes::{ParkCode, TimelineCode};
use gpuaas_types::machine::{MachineView, Nic, NicLink};
use gpuaas_types::spec::RoceAssignmentSpec;

use super::decisions::{next, park, park_with_checks, read};
use super::drive::drive_effect;
use super::preparation::{check_boot_interface, check_linked, check_vlan, known_machine};
use crate::effect::Effect;
use crate::run_state::RegionSubnets;
use crate::snapshot::{Decision, Note, Read, Snapshot};

/// A static address on every fabric interface that the site's assignments name, read back.
#[must_use]
pub fn roce_links(s: &Snapshot<'_>) -> Decision {
    if !s.profile.enable_phase2_roce {
        return next(s.now, Vec::new());
    }
    let machine = match known_machine(s) {
        Ok(machine) => machine,
        Err(decision) => return decision,
    };
    if s.roce.is_empty() {
        return park(
            s,
            ParkCode::RoceAssignmentsMissing,
            format!("the profile requires RoCE links, but {} has no assignment", s.node.hostname),
        );
    }
    let wanted = match matched_interfaces(s, machine) {
        Ok(wanted) => wanted,
        Err(decision) => return decision,
    };
    let change = link_missing(s, machine, &wanted).or_else(|| unlink_others(s, &wanted));
    if let Some(decision) = change {
        return decision;
    }
    let changed = [EffectKind::LinkSubnet, EffectKind::UnlinkSubnet]
        .iter()
        .filter_map(|kind| s.run.state.intended_at.get(kind))
        .max();
    if changed.is_some_and(|at| s.observation.is_none_or(|o| o.read_at <= *at)) {
        return read(s, Read::Machine);
    }
    confirm_links(s, machine)
}

/// An assignment and the interface that it names.
type AssignedInterface<'a> = (&'a RoceAssignmentSpec, &'a Nic);

/// The interface of each assignment, where every assignment can be carried out as far as is known.
fn matched_interfaces<'a>(
    s: &Snapshot<'a>,
    machine: &'a MachineView,
) -> Result<Vec<AssignedInterface<'a>>, Decision> {
    let host = &s.node.hostname;
    let mut wanted = Vec::new();
    for assignment in s.roce {
        let Some(nic) = find_nic(machine, &assignment.interface) else {
            return Err(park(
                s,
                ParkCode::RoceInterfaceMissing,
                format!("{host} has no interface {}", assignment.interface),
            ));
        };
        if machine.boot_interface_id == Some(nic.id) {
            let text = format!(
                "{} is assigned to {}, the boot interface of {host}",
                assignment.ip_address, nic.name
            );
            return Err(park(s, ParkCode::RoceBootInterface, text));
        }
        wanted.push((assignment, nic));
    }
    if wanted.iter().all(|(assignment, nic)| has_address(nic, assignment)) {
        return Ok(wanted);
    }
    let subnets = s.run.state.subnets.as_ref().filter(|known| known.asked_at >= s.effort_since());
    let Some(subnets) = subnets else { return Err(read(s, Read::Subnets)) };
    for (assignment, nic) in &wanted {
        if let Some(text) = subnet_fault(subnets, assignment, nic) {
            return Err(park(s, ParkCode::RoceSubnetUnknown, text));
        }
    }
    Ok(wanted)
}

/// Why MAAS would refuse the subnet of an assignment on this interface; none: it is there, on the
/// interface's VLAN.
fn subnet_fault(
    region: &RegionSubnets,
    assignment: &RoceAssignmentSpec,
    nic: &Nic,
) -> Option<String> {
    let cidr = &assignment.subnet_cidr;
    let there: Vec<_> = region.subnets.iter().filter(|subnet| subnet.cidr == *cidr).collect();
    if there.is_empty() {
        return Some(format!(
            "MAAS has no subnet {cidr}, which the assignment of {} needs",
            nic.name
        ));
    }
    let vlan = nic.vlan_id?;
    let fits = there.iter().any(|subnet| subnet.vlan_id == vlan);
    (!fits).then(|| format!("subnet {cidr} is not on the VLAN of {}", nic.name))
}

fn find_nic<'a>(machine: &'a MachineView, name: &str) -> Option<&'a Nic> {
    machine.nics.iter().find(|nic| nic.name == name || nic.mac_address.eq_ignore_ascii_case(name))
}

fn is_link_of(link: &NicLink, assignment: &RoceAssignmentSpec) -> bool {
    link.mode == "static" && link.ip_address.as_deref() == Some(assignment.ip_address.as_str())
}

fn has_address(nic: &Nic, assignment: &RoceAssignmentSpec) -> bool {
    nic.links.iter().any(|link| is_link_of(link, assignment))
}

/// Links the first assignment that MAAS does not show. None: it shows all of them.
fn link_missing(
    s: &Snapshot<'_>,
    machine: &MachineView,
    wanted: &[AssignedInterface<'_>],
) -> Option<Decision> {
    let missing = |(assignment, nic): &&AssignedInterface<'_>| !has_address(nic, assignment);
    let (assignment, nic) = wanted.iter().find(missing)?;
    // The address of an assignment that was moved is still on the machine's other interface.
    let moved = machine.nics.iter().filter(|other| other.id != nic.id).find_map(|other| {
        let link = other.links.iter().find(|link| is_link_of(link, assignment))?;
        Some((other, link))
    });
    if let Some((other, link)) = moved
        && machine.boot_interface_id != Some(other.id)
    {
        return Some(unlink(s, other, link));
    }
    let effect = Effect::LinkSubnet {
        interface_id: nic.id,
        subnet_cidr: assignment.subnet_cidr.clone(),
        ip_address: assignment.ip_address.clone(),
    };
    Some(match drive_effect(s, effect) {
        Err(decision) => decision,
        Ok(intent) if s.observation.is_none_or(|o| o.read_at < intent.at) => read(s, Read::Machine),
        Ok(_) => park(
            s,
            ParkCode::RoceLinkMissing,
            format!("MAAS accepted {} on {} but does not show it", assignment.ip_address, nic.name),
        ),
    })
}

/// Takes away the first link of a fabric interface that no assignment wants. None: there is none.
fn unlink_others(s: &Snapshot<'_>, wanted: &[AssignedInterface<'_>]) -> Option<Decision> {
    let (nic, link) = wanted.iter().find_map(|(_, nic)| {
        let of_nic = |(_, other): &&AssignedInterface<'_>| other.id == nic.id;
        let unwanted = |link: &&NicLink| {
            link.mode != "link_up"
                && !wanted.iter().filter(of_nic).any(|(one, _)| is_link_of(link, one))
        };
        Some((*nic, nic.links.iter().find(unwanted)?))
    })?;
    Some(unlink(s, nic, link))
}

fn unlink(s: &Snapshot<'_>, nic: &Nic, link: &NicLink) -> Decision {
    match drive_effect(s, Effect::UnlinkSubnet { interface_id: nic.id, link_id: link.id }) {
        Err(decision) => decision,
        Ok(intent) if s.observation.is_none_or(|o| o.read_at < intent.at) => read(s, Read::Machine),
        Ok(_) => {
            let address = link.ip_address.as_deref().unwrap_or(&link.mode);
            let text = format!(
                "MAAS accepted the removal of {address} from {} but still shows it",
                nic.name
            );
            park(s, ParkCode::RoceLinkStays, text)
        }
    }
}

/// Every link is there and no other: the boot interface is looked at once more.
fn confirm_links(s: &Snapshot<'_>, machine: &MachineView) -> Decision {
    let each = s.roce.iter().map(|r| format!("{}={}", r.interface, r.ip_address));
    let evidence = each.collect::<Vec<_>>().join(" ");
    let mut boots = vec![check_boot_interface(s, machine)];
    if let Some(nic) = machine.boot_nic() {
        boots.extend([check_linked(s, nic), check_vlan(s, nic)]);
    }
    let boots = s.apply_check_skips(boots);
    let doubts: Vec<&CheckResult> = boots.iter().filter(|check| !check.passed).collect();
    if !doubts.is_empty() && s.profile.strict_pxe_preflight {
        let text = doubts.iter().map(|check| check.evidence.clone()).collect::<Vec<_>>();
        let text = format!("after the RoCE links: {}", text.join("; "));
        return park_with_checks(s, ParkCode::PxePreflightFailed, text, boots);
    }
    let mut notes = vec![Note::new(TimelineCode::RoceLinked, evidence.clone())];
    let warning =
        |check: &&CheckResult| Note::new(TimelineCode::PxePreflightWarning, check.evidence.clone());
    notes.extend(doubts.iter().map(warning));
    let mut checks = boots.clone();
    checks.push(s.check("roce_links", true, evidence));
    Decision::Next { at: s.now, notes, checks }
}

#[cfg(test)]
#[path = "roce_tests.rs"]
mod tests;
