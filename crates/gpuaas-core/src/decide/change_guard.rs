//! What has to be true of a machine at the moment before an onboarding changes it.
//!
//! MAAS is open to people. Between the search and a change, and between one change and the next,
//! somebody may rename a machine, give it another BMC, allocate or deploy it. So every change of a
//! machine passes here, whatever step asks for it: the machine was read in this very step, each
//! identifier of the request is still its own, and nobody else has it.

use gpuaas_types::EffectKind;
use gpuaas_types::RunKind;
use gpuaas_types::codes::ParkCode;

use super::decisions::{park, read};
use crate::effect::Effect;
use crate::machine_identity::{
    Contradiction, RequestedMachine, approved_take_over, contradictions, power_question,
    use_of_machine,
};
use crate::run_state::MachineFacts;
use crate::snapshot::{Decision, Read, Snapshot};

/// The decision, where it changes no machine or may; else what is to be read before, or the park.
#[must_use]
pub(super) fn guard_change(s: &Snapshot<'_>, decision: Decision) -> Decision {
    let Decision::Do(effect) = &decision else { return decision };
    if s.run.kind != RunKind::Onboard || !changes_machine(effect) {
        return decision;
    }
    let Some(system_id) = s.node.system_id.as_deref() else { return decision };
    let facts = match current_facts(s) {
        Ok(facts) => facts,
        Err(decision) => return decision,
    };
    stop_before_change(s, &RequestedMachine::of_run(s), system_id, &facts).unwrap_or(decision)
}

const fn changes_machine(effect: &Effect) -> bool {
    !matches!(effect, Effect::CreateMachine | Effect::RegisterScript { .. })
}

/// What MAAS says of the node's machine, read since the run works at this step.
fn current_facts(s: &Snapshot<'_>) -> Result<MachineFacts, Decision> {
    let since = s.effort_since();
    let machine = s.machine_since(since).ok_or_else(|| read(s, Read::Machine))?;
    if s.node.hardware.bmc_address.is_none() {
        return Ok(MachineFacts::new(machine, None));
    }
    let power = s.run.state.power.as_ref().filter(|power| power.asked_at >= since);
    let power = power.ok_or_else(|| read(s, Read::Machine))?;
    Ok(MachineFacts::new(machine, Some(power.facts.clone())))
}

/// Why the machine may not be changed; none: it may.
pub(super) fn stop_before_change(
    s: &Snapshot<'_>,
    request: &RequestedMachine<'_>,
    system_id: &str,
    facts: &MachineFacts,
) -> Option<Decision> {
    let excluded = contradictions(request, system_id, facts);
    if !excluded.is_empty() {
        return Some(park_mismatch(s, system_id, &excluded));
    }
    if let Some(question) = power_question(request, facts) {
        let text = format!("machine {system_id}: {question}");
        return Some(park(s, ParkCode::PowerTypeDiffers, text));
    }
    let deployed_by_run = s.run.state.intended_at.contains_key(&EffectKind::Deploy);
    // Without a connection nobody knows whom GPUaaS asks as, and nothing can be changed either.
    let user = match s.maas_user {
        "" => facts.owner.as_deref().unwrap_or_default(),
        user => user,
    };
    let in_use = use_of_machine(facts, user, deployed_by_run)?;
    if approved_take_over(s, system_id, facts.owner.as_deref()).is_some() {
        return None;
    }
    let text = format!(
        "machine {system_id} ({}) is {in_use}: it is taken only at an operator's word",
        facts.hostname
    );
    Some(park(s, ParkCode::MachineInUse, text))
}

/// Parks because the machine is not the one that the request names.
pub(super) fn park_mismatch(
    s: &Snapshot<'_>,
    system_id: &str,
    excluded: &[Contradiction],
) -> Decision {
    let sides = excluded.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let text = format!("machine {system_id} is not the one that was named: {sides}");
    park(s, ParkCode::MachineMismatch, text)
}
