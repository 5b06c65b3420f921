//! Leaving: out of service, out of a tenant's hands, out of GPUaaS; and ending a run early.
//!
//! What does not need MAAS must not wait for it: a detach works while the region is down, and when
//! somebody else uses the machine by now.

use gpuaas_types::agent::TaskSpec;
use gpuaas_types::api::Owner;
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::spec::ReleaseMode;
use gpuaas_types::{RunKind, RunStatus};

use super::release::{How, released, tried};
use super::{advance, check, drive, fresh_machine, park, park_with, probe, read, wait};
use crate::effect::Effect;
use crate::record::{Report, ReportKind};
use crate::snapshot::{Decision, Note, Read, Snapshot};
use crate::steps::{self, Cancel};

/// Seconds between looks while waiting for the agent; its answer wakes the run at once.
const LOOK_SECONDS: f64 = 600.0;
/// Seconds between two looks at a machine that is being switched off.
const POWER_LOOK_SECONDS: f64 = 15.0;

/// No new work for the node: that is what `draining` says to whoever hands it out.
#[must_use]
pub fn drain(s: &Snapshot<'_>) -> Decision {
    let to = steps::kind(s.run.kind).after(s.run.step);
    advance(to, s.now, vec![Note::new("drained", "the node takes no new work")])
}

/// Releases the machine; by the profile's policy its disks are erased on the way.
#[must_use]
pub fn release(s: &Snapshot<'_>) -> Decision {
    let kind = steps::kind(s.run.kind);
    if s.node.system_id.is_none() {
        let note = Note::new("nothing_to_release", "no machine is bound to the node");
        return advance(kind.after(s.run.step), s.now, vec![note]);
    }
    if handed_off(s) && s.run.kind == RunKind::Decommission {
        let text = "the machine goes on as it is: the profile hands it over (release_mode=handoff)";
        return advance(kind.after(s.run.step), s.now, vec![Note::new("handed_off", text)]);
    }
    match released(s, How { erase: s.profile.release_erase, whoever: false }) {
        Err(decision) => decision,
        Ok(machine) => {
            let text = match s.run.memory.intent.as_ref().map(|i| &i.effect) {
                Some(Effect::Release { erase: true }) => "released, disks erased",
                Some(Effect::Release { erase: false }) if s.profile.release_erase => {
                    "released without erasing: MAAS could not wipe the disks, and the profile \
                     allows that (release_fallback_no_erase)"
                }
                Some(Effect::Release { .. }) => "released, disks not erased",
                Some(Effect::MarkFixed) => {
                    "MAAS did not come to an end with the release: marked broken, then fixed, and \
                     what was not erased by then is not"
                }
                Some(_) => "released with help",
                None => "the machine has no owner in MAAS",
            };
            let asked = match s.run.memory.answers.values().sum() {
                0 | 1 => String::new(),
                2.. => format!(" (asked for: {})", tried(s)),
            };
            let text = format!("{text}{asked}; MAAS says {}", status::label(machine.status));
            advance(kind.after(s.run.step), s.now, vec![Note::new("released", text)])
        }
    }
}

/// Sees that the machine is off. A release switches it off, but a person may have switched it on.
#[must_use]
pub fn power_off(s: &Snapshot<'_>) -> Decision {
    if s.node.system_id.is_none() {
        return succeeded("node_retired", "no machine is bound to the node");
    }
    if handed_off(s) {
        return succeeded("node_retired", "the machine is its owner's; MAAS was not asked");
    }
    let machine = match fresh_machine(s) {
        Ok(machine) => machine,
        Err(decision) => return decision,
    };
    if machine.power_state == "off" {
        return succeeded("node_retired", "the machine is released and MAAS says that it is off");
    }
    if machine.power_type == "manual" {
        let text = "the machine is released; nobody but a person can switch it off";
        return succeeded("node_retired", text);
    }
    match drive(s, Effect::PowerOff) {
        Err(decision) => decision,
        Ok(intent) => {
            let known_at = intent.ended_at.unwrap_or(intent.at);
            let read_at = s.observation.map_or(intent.at, |o| o.read_at);
            let age = s.now.seconds_since(read_at);
            if read_at > known_at && age < POWER_LOOK_SECONDS {
                let text = format!("the machine to be off; MAAS says {}", machine.power_state);
                return wait(s, "power_off", text, POWER_LOOK_SECONDS - age);
            }
            read(s, Read::Machine)
        }
    }
}

/// Whether the machine is somebody else's by now: see [`ReleaseMode::Handoff`].
#[must_use]
pub fn handed_off(s: &Snapshot<'_>) -> bool {
    s.profile.release_mode == ReleaseMode::Handoff && s.run.kind != RunKind::Onboard
}

fn succeeded(code: &'static str, text: impl Into<String>) -> Decision {
    let notes = vec![Note::new(code, text)];
    Decision::Finish { status: RunStatus::Succeeded, notes, checks: Vec::new() }
}

/// Has the agent clean its host.
#[must_use]
pub fn agent_cleanup(s: &Snapshot<'_>) -> Decision {
    let Some(task) = s.run.memory.task_id else {
        return Decision::IssueTask(match s.run.kind {
            RunKind::StorageCleanup => TaskSpec::StorageCleanup {},
            _ => TaskSpec::SoftReset {},
        });
    };
    let done = s.report(
        |kind| matches!(kind, ReportKind::TaskFinished { task_id, .. } if *task_id == task),
    );
    let Some(Report { kind: ReportKind::TaskFinished { result, .. }, .. }) = done else {
        return wait(s, "agent_cleanup", "the agent to clean its host", LOOK_SECONDS);
    };
    let checks = result
        .findings
        .iter()
        .filter_map(|f| f.passed.map(|passed| check(s, &f.name, passed, f.seen.clone())))
        .collect::<Vec<_>>();
    let checks = super::answered_for(s, checks);
    let bad = checks.iter().find(|c| !c.passed);
    if !result.succeeded || bad.is_some() {
        let text = bad.map_or(result.message.clone(), |c| format!("{}: {}", c.name, c.evidence));
        return park_with(
            s,
            "cleanup_failed",
            format!("the agent says that it could not clean its host: {text}"),
            Owner::PlatformOperator,
            "mend what the agent names, then retry the run; or reimage the node",
            checks,
        );
    }
    let text = format!("the agent says that its host is clean, {} findings", result.findings.len());
    Decision::Finish {
        status: RunStatus::Succeeded,
        notes: vec![Note::new("host_cleaned", text)],
        checks,
    }
}

/// Gives the machine up.
#[must_use]
pub fn detach_record(s: &Snapshot<'_>) -> Decision {
    let text = match (&s.node.system_id, s.observation) {
        (Some(id), Some(seen)) => format!(
            "GPUaaS gave machine {id} up without asking MAAS, which said {} {:.0} s ago",
            status::label(seen.status),
            s.now.seconds_since(seen.status_at)
        ),
        (Some(id), None) => format!("GPUaaS gave machine {id} up without asking MAAS"),
        (None, _) => "no machine was bound to the node".to_owned(),
    };
    succeeded("node_detached", text)
}

/// Puts the record away. Its history stays.
#[must_use]
pub fn remove_record(_: &Snapshot<'_>) -> Decision {
    succeeded("node_removed", "the record is kept for its history only")
}

/// Ends a run early, as its step allows. `None`: nobody asked, or the way out is being walked.
///
/// An effect whose outcome nobody knows comes first whatever the step: a deployment that did
/// happen must not be left behind.
pub(super) fn cancel(s: &Snapshot<'_>) -> Option<Decision> {
    let leave_machine = s.cancel_asked()?;
    let row = steps::row(s.run.step);
    let vanished = s.observation.is_some_and(|o| o.vanished);
    if leave_machine {
        return Some(cancelled("the machine stays in MAAS as it is"));
    }
    if vanished {
        return Some(cancelled("MAAS does not know the machine any more"));
    }
    if let Some(intent) = &s.run.memory.intent
        && super::is_open(intent)
    {
        return Some(probe(s, intent));
    }
    match row.cancel {
        _ if row.step == gpuaas_types::Step::ReleaseForCancel => None,
        Cancel::NeedsRelease => {
            let note = Note::new("cancelling", "the machine is ours in MAAS: releasing it first");
            Some(advance(gpuaas_types::Step::ReleaseForCancel, s.now, vec![note]))
        }
        Cancel::Now | Cancel::AfterEffect => Some(cancelled("nothing is left under way by it")),
    }
}

fn cancelled(text: &str) -> Decision {
    Decision::Finish {
        status: RunStatus::Cancelled,
        notes: vec![Note::new("cancelled", text)],
        checks: Vec::new(),
    }
}

/// Gives the machine of a cancelled run back.
#[must_use]
pub fn release_for_cancel(s: &Snapshot<'_>) -> Decision {
    if s.node.system_id.is_none() {
        return cancelled("no machine is bound to the node");
    }
    match released(s, How { erase: false, whoever: false }) {
        Ok(_) => cancelled("the machine is released"),
        Err(decision) => decision,
    }
}

/// What to say of a machine that is gone from MAAS.
pub(super) fn vanished(s: &Snapshot<'_>) -> Decision {
    let next_action = match s.run.kind {
        RunKind::Onboard => "find out who deleted it in MAAS; then onboard the host again",
        _ => "find out who deleted it in MAAS; cancel the run, then detach the node",
    };
    let id = s.node.system_id.as_deref().unwrap_or("?");
    let text = format!("MAAS says that machine {id} does not exist");
    park(s, "machine_vanished", text, Owner::InfraOperator, next_action)
}
