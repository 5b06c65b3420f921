//! From "an operator named a host" to a machine in Ready.

use gpuaas_types::Step;
use gpuaas_types::codes::{ParkCode, TimelineCode, WaitCode};
use gpuaas_types::machine::maas_status as status;

use super::change_guard::{park_mismatch, stop_before_change};
use super::decisions::{advance_to, advised, fresh_machine, next, park, read, wait};
use super::drive::drive_effect;
use super::release::{ReleaseOptions, released_machine, released_note};
use crate::effect::Effect;
use crate::machine_identity::{Contradiction, RequestedMachine, contradictions};
use crate::run_state::{Candidate, MachineOrigin, MachineSearch};
use crate::snapshot::{Decision, Note, Read, Snapshot};

/// The request was validated before the run was written. What remains is that somebody follows
/// the site's event feed: a change made before that could go unnoticed.
#[must_use]
pub fn accept(s: &Snapshot<'_>) -> Decision {
    if !s.watched {
        return wait(
            s,
            WaitCode::WatcherStarting,
            "GPUaaS to start watching the site's event feed",
            1.0,
        );
    }
    let text = format!("profile revision {} pinned", s.run.profile_revision);
    next(s.now, vec![Note::new(TimelineCode::WorkflowStarted, text)])
}

/// Finds the machine by its identifiers; adopts, claims or creates it.
#[must_use]
pub fn discover(s: &Snapshot<'_>) -> Decision {
    if s.node.system_id.is_some() {
        return match fresh_machine(s) {
            Ok(machine) if machine.locked => park(
                s,
                ParkCode::MachineLocked,
                format!("machine {} is locked in MAAS", machine.system_id),
            ),
            Ok(machine) => route_by_status(s, machine.status),
            Err(decision) => decision,
        };
    }
    let asked = |found: &&MachineSearch| {
        found.candidates.iter().chain(&found.unclaimed_new).all(|one| one.facts.is_some())
    };
    let Some(found) = s.run.state.found.as_ref().filter(asked) else {
        return read(s, Read::FindMachine);
    };
    let request = RequestedMachine::of_run(s);
    let agreeing: Vec<&Candidate> =
        found.candidates.iter().filter(|one| excluded_by(&request, one).is_empty()).collect();
    match (agreeing.as_slice(), found.candidates.as_slice()) {
        ([one], _) => adopt_candidate(s, &request, one, MachineOrigin::Adopted),
        ([], []) => claim_or_create(s, found),
        ([], [one]) => park_mismatch(s, &one.system_id, &excluded_by(&request, one)),
        (_, several) => park(
            s,
            ParkCode::TwoCandidates,
            format!(
                "{} machines in MAAS match {}: {}",
                several.len(),
                s.node.hostname,
                describe_candidates(&request, several)
            ),
        ),
    }
}

/// The identifiers of the request that are not the candidate's.
fn excluded_by(request: &RequestedMachine<'_>, candidate: &Candidate) -> Vec<Contradiction> {
    let facts = candidate.facts.as_ref();
    facts.map_or_else(Vec::new, |facts| contradictions(request, &candidate.system_id, facts))
}

fn describe_candidates(request: &RequestedMachine<'_>, candidates: &[Candidate]) -> String {
    let one = |c: &Candidate| {
        let by = c.matched_by.join(" and ");
        let but: Vec<String> = excluded_by(request, c).iter().map(ToString::to_string).collect();
        let but = if but.is_empty() { String::new() } else { format!(", but {}", but.join(", ")) };
        format!("{} ({}, by {by}{but})", c.hostname, c.system_id)
    };
    candidates.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn adopt_candidate(
    s: &Snapshot<'_>,
    request: &RequestedMachine<'_>,
    candidate: &Candidate,
    origin: MachineOrigin,
) -> Decision {
    let system_id = &candidate.system_id;
    if let Some(holder) = &candidate.held_by {
        let text = format!("machine {system_id} already belongs to node {holder}");
        let row = ParkCode::MachineHeld.row();
        let advice = row.next_action.replace("NODE", holder);
        return advised(park(s, row.code, text), row.owner, advice);
    }
    if let Some(facts) = &candidate.facts
        && let Some(decision) = stop_before_change(s, request, system_id, facts)
    {
        return decision;
    }
    let ours = s.run.state.intent.as_ref().is_some_and(|i| i.effect == Effect::CreateMachine);
    let origin = if ours { MachineOrigin::Created } else { origin };
    Decision::Adopt { system_id: system_id.clone(), origin }
}

fn claim_or_create(s: &Snapshot<'_>, found: &MachineSearch) -> Decision {
    let request = RequestedMachine { claimed: true, ..RequestedMachine::of_run(s) };
    // A machine with a MAC, a BMC or an identifier that was given would have been found by it.
    let may_claim = s.profile.auto_claim_single_new_machine && !request.names_hardware();
    if may_claim {
        let free = found.unclaimed_new.iter().filter(|one| excluded_by(&request, one).is_empty());
        match free.collect::<Vec<_>>().as_slice() {
            [one] => return adopt_candidate(s, &request, one, MachineOrigin::Claimed),
            [] => {}
            several => {
                let several: Vec<Candidate> = several.iter().map(|one| (*one).clone()).collect();
                return park(
                    s,
                    ParkCode::SeveralNewMachines,
                    format!(
                        "{} new machines could be claimed: {}",
                        several.len(),
                        describe_candidates(&request, &several)
                    ),
                );
            }
        }
    }
    let hardware = &s.node.hardware;
    let nothing_to_make_it_from =
        hardware.mac_addresses.is_empty() && hardware.bmc_address.is_none();
    if nothing_to_make_it_from || request.system_id.is_some() {
        let text = match request.system_id {
            Some(id) => format!("MAAS has no machine with system ID {id}"),
            None => format!(
                "MAAS has no machine named {}, and the request gives no MAC or BMC address",
                s.node.hostname
            ),
        };
        return park(s, ParkCode::MachineNotFound, text);
    }
    match drive_effect(s, Effect::CreateMachine) {
        Ok(intent) if found.asked_at <= intent.ended_at.unwrap_or(intent.at) => {
            read(s, Read::FindMachine)
        }
        Ok(_) => park(
            s,
            ParkCode::CreatedMachineMissing,
            "MAAS accepted the new machine but does not list it",
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
    let note = Note::new(TimelineCode::MachineBound, format!("{origin}, MAAS reports {label}"));
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
            format!("MAAS reports {label}: someone else is using the machine"),
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

/// The machine that the run would have if nobody else did, and its owner: what a take-over of a run
/// that is parked with `machine_in_use` names. None: there is no one such machine.
#[must_use]
pub fn machine_to_take(s: &Snapshot<'_>) -> Option<(String, Option<String>)> {
    if let Some(system_id) = &s.node.system_id {
        let machine = s.observation?.machine.as_ref()?;
        return Some((system_id.clone(), machine.owner.clone()));
    }
    let found = s.run.state.found.as_ref()?;
    let request = RequestedMachine::of_run(s);
    let agrees = |one: &&Candidate| excluded_by(&request, one).is_empty();
    let agreeing: Vec<&Candidate> = found.candidates.iter().filter(agrees).collect();
    let [one] = agreeing.as_slice() else { return None };
    Some((one.system_id.clone(), one.facts.as_ref()?.owner.clone()))
}
