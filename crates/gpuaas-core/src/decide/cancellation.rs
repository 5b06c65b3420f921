//! Ending a run early, and a machine that is gone from MAAS.

use gpuaas_types::codes::{ParkCode, TimelineCode};
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::steps::CancelPolicy;
use gpuaas_types::{EffectKind, RunStatus, Step};

use super::decisions::{advance_to, park};
use super::drive::probe_intent;
use super::machine_tag;
use super::release::{ReleaseOptions, released_machine};
use crate::snapshot::{Decision, Note, Snapshot};

/// Ends a run early, as its step allows. `None`: nobody asked, or the way out is being walked.
///
/// An effect whose outcome nobody knows comes first whatever the step: a deployment that did
/// happen must not be left behind.
pub(super) fn cancel(s: &Snapshot<'_>) -> Option<Decision> {
    let leave_machine = s.cancel_requested()?;
    let row = s.run.step.row();
    let vanished = s.observation.is_some_and(|o| o.vanished);
    if leave_machine {
        return Some(cancelled("the machine stays in MAAS unchanged"));
    }
    if vanished {
        return Some(cancelled("the machine no longer exists in MAAS"));
    }
    if let Some(intent) = &s.run.state.intent
        && intent.is_open()
    {
        return Some(probe_intent(s, intent));
    }
    match row.cancel {
        _ if row.step == Step::ReleaseForCancel => None,
        CancelPolicy::NeedsRelease => {
            let note = Note::new(
                TimelineCode::Cancelling,
                "GPUaaS holds the machine in MAAS: releasing it first",
            );
            Some(advance_to(Step::ReleaseForCancel, s.now, vec![note]))
        }
        CancelPolicy::Now | CancelPolicy::AfterEffect if machine_tag::was_given(s) => {
            let text = "removing the kernel arguments tag from the machine first";
            let note = Note::new(TimelineCode::Cancelling, text);
            Some(advance_to(Step::ReleaseForCancel, s.now, vec![note]))
        }
        CancelPolicy::Now | CancelPolicy::AfterEffect => {
            Some(cancelled("the run left nothing in progress"))
        }
    }
}

fn cancelled(text: &str) -> Decision {
    Decision::Finish {
        status: RunStatus::Cancelled,
        notes: vec![Note::new(TimelineCode::Cancelled, text)],
        checks: Vec::new(),
    }
}

/// Gives the machine of a cancelled run back.
#[must_use]
pub(super) fn release_for_cancel(s: &Snapshot<'_>) -> Decision {
    if s.node.system_id.is_none() {
        return cancelled("no machine is bound to the node");
    }
    if s.is_handed_off() {
        return cancelled(
            "the profile hands the machine over (release_mode=handoff): it stays in MAAS unchanged",
        );
    }
    let foreign = s.status() == Some(status::DEPLOYED)
        && !s.run.state.intended_at.contains_key(&EffectKind::Deploy);
    if foreign {
        return cancelled("this run did not deploy the machine: it stays in MAAS unchanged");
    }
    match released_machine(s, ReleaseOptions { erase: false, any_owner: false }) {
        Ok(machine) => machine_tag::untag_leaving(s, machine)
            .unwrap_or_else(|| cancelled("the machine has been released")),
        Err(Decision::Park { park, .. }) if park.code == ParkCode::MachineRepurposed => {
            cancelled("the machine belongs to another MAAS user: it stays in MAAS unchanged")
        }
        Err(decision) => decision,
    }
}

/// What to say of a machine that is gone from MAAS.
pub(super) fn park_vanished(s: &Snapshot<'_>) -> Decision {
    let id = s.node.system_id.as_deref().unwrap_or("?");
    let text = format!("machine {id} does not exist in MAAS");
    park(s, ParkCode::MachineVanished, text)
}
