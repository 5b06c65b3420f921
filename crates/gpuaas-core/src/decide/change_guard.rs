//! What has to be true of a machine at the moment before an onboarding changes it.
//!
//! MAAS is open to people. Between the search and a change, and between one change and the next,
//! somebody may rename a machine, give it another BMC, allocate or deploy it. So every change of a
//! machine passes here, whatever step asks for it: the machine was read a moment ago or in this very
//! step, each identifier of the request is still its own, and nobody else has it.

use gpuaas_types::codes::ParkCode;
use gpuaas_types::{EffectKind, RunKind, Timestamp};

use super::decisions::{park, read};
use crate::effect::Effect;
use crate::machine_identity::{
    Contradiction, RequestedMachine, approved_take_over, contradictions, power_question,
    use_of_machine,
};
use crate::run_state::MachineFacts;
use crate::snapshot::{Decision, Read, Snapshot};

/// For so many seconds of wall time a read of the machine counts for a change in a later step.
pub const MACHINE_SECONDS: f64 = 10.0;
/// The same for the address of its BMC, which MAAS tells only apart from the machine, best of all
/// machines at once.
pub const BMC_SECONDS: f64 = 30.0;

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
    !matches!(
        effect,
        Effect::CreateMachine | Effect::RegisterScript { .. } | Effect::WriteTag { .. }
    )
}

/// How long what was read in the step of a change counts: a step may stand in a queue for hours.
/// Longer than any read takes, or the answer would never count.
const IN_STEP_SECONDS: f64 = 300.0;

/// What MAAS says of the node's machine, as far as that counts for a change now.
fn current_facts(s: &Snapshot<'_>) -> Result<MachineFacts, Decision> {
    let heard_at = s.observation.map_or(Timestamp::EPOCH, |seen| seen.status_at);
    let machine = s
        .machine_since(counts_since(s, MACHINE_SECONDS).max(heard_at))
        .or_else(|| s.machine_since(in_step_since(s)))
        .ok_or_else(|| read(s, Read::Machine))?;
    if s.node.hardware.bmc_address.is_none() {
        return Ok(MachineFacts::new(machine, None));
    }
    let since = counts_since(s, BMC_SECONDS).min(in_step_since(s));
    let power = s.run.state.power.as_ref().filter(|power| power.asked_at >= since);
    let power = power.ok_or_else(|| read(s, Read::Machine))?;
    Ok(MachineFacts::new(machine, Some(power.facts.clone())))
}

/// Whether the BMC's address was read so lately that it counts for a change in any step.
#[must_use]
pub fn bmc_is_known(s: &Snapshot<'_>) -> bool {
    let since = counts_since(s, BMC_SECONDS);
    s.run.state.power.as_ref().is_some_and(|power| power.asked_at >= since)
}

/// From when a read counts that is `seconds` old at most, and younger than the last word to look
/// again.
fn counts_since(s: &Snapshot<'_>, seconds: f64) -> Timestamp {
    let anew = s.run.state.reads_count_since().unwrap_or(Timestamp::EPOCH);
    s.wall_seconds_ago(seconds).max(anew)
}

/// From when a read counts that was made in this step.
fn in_step_since(s: &Snapshot<'_>) -> Timestamp {
    s.effort_since().max(s.wall_seconds_ago(IN_STEP_SECONDS))
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
