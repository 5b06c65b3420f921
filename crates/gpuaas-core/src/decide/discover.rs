//! From "an operator named a host" to a machine in Ready.

use gpuaas_types::Step;
use gpuaas_types::codes::{ParkCode, TimelineCode, WaitCode};
use gpuaas_types::machine::maas_status as status;

use super::decisions::{advance_to, advised, fresh_machine, next, park, read, wait};
use super::drive::drive_effect;
use super::release::{ReleaseOptions, released_machine, released_note};
use crate::effect::Effect;
use crate::run_state::{Candidate, MachineOrigin, MachineSearch};
use crate::snapshot::{Decision, Note, Read, Snapshot};

/// The request was validated before the run was written. What remains is that somebody follows
/// the site's event feed: a change made before that could go unnoticed.
#[must_use]
pub fn accept(s: &Snapshot<'_>) -> Decision {
    if !s.watched {
        return wait(s, WaitCode::WatcherStarting, "the site's event feed to be followed", 1.0);
    }
    let text = format!("profile revision {} pinned", s.run.profile_revision);
    next(s.now, vec![Note::new(TimelineCode::WorkflowStarted, text)])
}

/// Finds the machine by hostname, BMC address and MAC; adopts, claims or creates it.
#[must_use]
pub fn discover(s: &Snapshot<'_>) -> Decision {
    if s.node.system_id.is_some() {
        return match fresh_machine(s) {
            Ok(machine) if machine.locked => park(
                s,
                ParkCode::MachineLocked,
                format!("MAAS says that {} is locked", machine.system_id),
            ),
            Ok(machine) => route_by_status(s, machine.status),
            Err(decision) => decision,
        };
    }
    let Some(found) = &s.run.state.found else {
        return read(s, Read::FindMachine);
    };
    match found.candidates.as_slice() {
        [one] => adopt_candidate(s, one, MachineOrigin::Adopted),
        [] => claim_or_create(s, found),
        several => park(
            s,
            ParkCode::TwoCandidates,
            format!(
                "{} machines in MAAS match {}: {}",
                several.len(),
                s.node.hostname,
                candidate_names(several)
            ),
        ),
    }
}

fn candidate_names(candidates: &[Candidate]) -> String {
    let one = |c: &Candidate| {
        format!("{} ({}, by {})", c.hostname, c.system_id, c.matched_by.join(" and "))
    };
    candidates.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn adopt_candidate(s: &Snapshot<'_>, candidate: &Candidate, origin: MachineOrigin) -> Decision {
    if let Some(holder) = &candidate.held_by {
        let text = format!("machine {} already belongs to node {holder}", candidate.system_id);
        let row = ParkCode::MachineHeld.row();
        let advice = row.next_action.replace("NODE", holder);
        return advised(park(s, row.code, text), row.owner, advice);
    }
    let ours = s.run.state.intent.as_ref().is_some_and(|i| i.effect == Effect::CreateMachine);
    let origin = if ours { MachineOrigin::Created } else { origin };
    Decision::Adopt { system_id: candidate.system_id.clone(), origin }
}

fn claim_or_create(s: &Snapshot<'_>, found: &MachineSearch) -> Decision {
    if s.profile.auto_claim_single_new_machine {
        match found.unclaimed_new.as_slice() {
            [one] => return adopt_candidate(s, one, MachineOrigin::Claimed),
            [] => {}
            several => {
                return park(
                    s,
                    ParkCode::SeveralNewMachines,
                    format!(
                        "{} new machines could be claimed: {}",
                        several.len(),
                        candidate_names(several)
                    ),
                );
            }
        }
    }
    let hardware = &s.node.hardware;
    if hardware.mac_addresses.is_empty() && hardware.bmc_address.is_none() {
        return park(
            s,
            ParkCode::MachineNotFound,
            format!(
                "MAAS knows no machine called {}, and neither MAC nor BMC address was given",
                s.node.hostname
            ),
        );
    }
    match drive_effect(s, Effect::CreateMachine) {
        Ok(intent) if found.asked_at <= intent.ended_at.unwrap_or(intent.at) => {
            read(s, Read::FindMachine)
        }
        Ok(_) => park(
            s,
            ParkCode::CreatedMachineMissing,
            "MAAS accepted the machine but does not list it",
        ),
        Err(decision) => decision,
    }
}

/// Where a machine of this status goes next.
fn route_by_status(s: &Snapshot<'_>, number: i64) -> Decision {
    let label = status::label(number);
    let origin = match s.run.state.origin {
        Some(MachineOrigin::Created) => "created",
        Some(MachineOrigin::Claimed) => "claimed",
        _ => "adopted",
    };
    let note = Note::new(TimelineCode::MachineBound, format!("{origin}, MAAS says {label}"));
    match number {
        status::NEW
        | status::COMMISSIONING
        | status::FAILED_COMMISSIONING
        | status::TESTING
        | status::READY => next(s.now, vec![note]),
        status::DEPLOYED
        | status::ALLOCATED
        | status::RESERVED
        | status::FAILED_DEPLOYMENT
        | status::BROKEN
        | status::RELEASING
        | status::DISK_ERASING
        | status::RELEASING_FAILED
        | status::FAILED_DISK_ERASING => advance_to(Step::ReleaseAdopted, s.now, vec![note]),
        _ => park(
            s,
            ParkCode::MachineBusy,
            format!("MAAS says {label}: someone else is using the machine"),
        ),
    }
}

/// Releases a machine that was adopted with an owner.
#[must_use]
pub fn release_adopted(s: &Snapshot<'_>) -> Decision {
    match released_machine(s, ReleaseOptions { erase: false, any_owner: true }) {
        Ok(machine) => next(s.now, vec![released_note(s, machine, "adopted machine released")]),
        Err(decision) => decision,
    }
}
