//! What has to be true of a machine at the moment before a run changes it.
//!
//! MAAS is open to people. Between the search and a change, and between one change and the next,
//! somebody may allocate, deploy, lock or rename a machine, or give it another BMC. A run may wait for
//! hours, for example for its deploy slot. So every change of a machine, by every kind of run and in
//! every step, passes [`admit`]: the machine was read a moment ago or in this very step, each identifier
//! of the node is still its own, nobody has locked it, nobody else owns it, and it carries no system
//! but the one that belongs to this point of the run ([`expected_use`]).
//!
//! Nothing goes round it: the engine's journal takes only a [`GuardedEffect`], and only [`admit`] makes
//! one. A decision passes it as well (`guard_change`), so that what a run decides is what it may do.
//!
//! What the run did itself is no interference: MAAS shows its deployment as owned by our user, and a
//! call whose outcome is unknown may still take effect.

use gpuaas_types::codes::{ParkCode, TimelineCode};
use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::{EffectKind, RunKind, Step, Timestamp};

use super::decisions::{advance_to, park, park_with_evidence, read};
use crate::effect::Effect;
use crate::machine_identity::{
    Contradiction, RequestedMachine, approved_take_over, contradictions, power_question,
    take_over_approved_since, use_of_machine,
};
use crate::run_state::MachineFacts;
use crate::snapshot::{Decision, Note, Read, Snapshot};

/// For so many seconds of wall time a read of the machine counts for a change in a later step.
pub const MACHINE_SECONDS: f64 = 10.0;
/// The same for the address of its BMC, which MAAS tells only apart from the machine, best of all
/// machines at once.
pub const BMC_SECONDS: f64 = 30.0;

/// An effect that passed the guard. Only [`admit`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardedEffect(Effect);

impl GuardedEffect {
    /// The effect.
    #[must_use]
    pub const fn effect(&self) -> &Effect {
        &self.0
    }

    /// The effect that may be journalled and carried out now.
    #[must_use]
    pub fn into_effect(self) -> Effect {
        self.0
    }
}

/// Lets an effect pass that changes no machine, or whose machine may be changed by this run now.
///
/// # Errors
/// The decision in its place: a read of what is not known well enough, or a park.
pub fn admit(s: &Snapshot<'_>, effect: Effect) -> Result<GuardedEffect, Decision> {
    if !changes_machine(effect.kind()) {
        return Ok(GuardedEffect(effect));
    }
    // A call about a machine that the node does not have cannot be prepared.
    let Some(system_id) = s.node.system_id.as_deref() else { return Ok(GuardedEffect(effect)) };
    let (machine, facts) = current_facts(s, effect.kind())?;
    let request = RequestedMachine::of_run(s);
    match stop_before_change(s, &request, system_id, &facts).or_else(|| stop_if_locked(s, machine))
    {
        Some(decision) => Err(decision),
        None => Ok(GuardedEffect(effect)),
    }
}

/// The decision, if it changes no machine or may; otherwise what has to be read first, or the park.
#[must_use]
pub(super) fn guard_change(s: &Snapshot<'_>, decision: Decision) -> Decision {
    match decision {
        Decision::Do(effect) => match admit(s, effect) {
            Ok(guarded) => Decision::Do(guarded.into_effect()),
            Err(decision) => decision,
        },
        other => other,
    }
}

/// Whether an effect changes the machine of the node. Creating one changes none that exists, and
/// scripts and tags are the region's.
#[must_use]
pub const fn changes_machine(kind: EffectKind) -> bool {
    match kind {
        EffectKind::CreateMachine | EffectKind::RegisterScript | EffectKind::WriteTag => false,
        EffectKind::Release
        | EffectKind::Commission
        | EffectKind::OverrideFailedTesting
        | EffectKind::SetBootDisk
        | EffectKind::SetStorageLayout
        | EffectKind::FormatBlockDevice
        | EffectKind::MountBlockDevice
        | EffectKind::UnlinkSubnet
        | EffectKind::LinkSubnet
        | EffectKind::TagMachine
        | EffectKind::UntagMachine
        | EffectKind::Deploy
        | EffectKind::PowerOff
        | EffectKind::PowerOn
        | EffectKind::Abort
        | EffectKind::MarkBroken
        | EffectKind::MarkFixed => true,
    }
}

/// What a machine may carry at a point of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedUse {
    /// Whatever was on it when it was found: a system only if an operator agreed to lose it.
    Found,
    /// The system of the node in service, which the run is about to give back.
    InService,
    /// No system: it was given back, or never had one.
    Free,
    /// The system that this run deploys.
    Deployed,
}

/// What the machine of the run of `s` may carry now.
#[must_use]
pub fn expected_use(s: &Snapshot<'_>) -> ExpectedUse {
    let state = &s.run.state;
    match s.run.step {
        Step::Discover | Step::ReleaseAdopted => ExpectedUse::Found,
        Step::Accept
        | Step::Drain
        | Step::Release
        | Step::AgentCleanup
        | Step::DetachRecord
        | Step::RemoveRecord => ExpectedUse::InService,
        Step::PowerOff
        | Step::RegisterScripts
        | Step::Commission
        | Step::PxePreflight
        | Step::PrepareStorage
        | Step::RoceLinks
        | Step::HardwareSync
        | Step::MachineTag
        | Step::PredeployChecks => ExpectedUse::Free,
        // An attempt that was lost, or judged not to have happened, may still be carried out.
        Step::Deploy => {
            let intended = state.intended_at.get(&EffectKind::Deploy);
            let in_this_step = state.tries.contains_key(&EffectKind::Deploy)
                || intended.is_some_and(|at| *at >= s.run.step_since);
            if in_this_step { ExpectedUse::Deployed } else { ExpectedUse::Free }
        }
        Step::ReleaseForRetry | Step::ReleaseForCancel => {
            let deployed = state.intended_at.contains_key(&EffectKind::Deploy);
            if deployed { ExpectedUse::Deployed } else { ExpectedUse::Free }
        }
        Step::FirstBoot
        | Step::BootstrapFetch
        | Step::SiteBootstrap
        | Step::NodeBootstrap
        | Step::Enrollment
        | Step::HostReboot
        | Step::PrereqChecks
        | Step::Confirmation => ExpectedUse::Deployed,
    }
}

/// Whether a machine in this status carries nobody's system, for a run of `kind`: one that commissions
/// its machine may find it in that.
#[must_use]
pub fn is_free_status(kind: RunKind, number: i64) -> bool {
    match number {
        status::NEW
        | status::FAILED_COMMISSIONING
        | status::MISSING
        | status::READY
        | status::BROKEN
        | status::FAILED_TESTING => true,
        status::COMMISSIONING | status::TESTING => kind.row().steps.contains(&Step::Commission),
        _ => false,
    }
}

/// How long what was read in the step of a change counts: a step may stand in a queue for hours.
/// Longer than any read takes, or the answer would never count.
const IN_STEP_SECONDS: f64 = 300.0;

/// What MAAS says of the node's machine, as far as that counts for a change now.
fn current_facts<'a>(
    s: &Snapshot<'a>,
    effect: EffectKind,
) -> Result<(&'a MachineView, MachineFacts), Decision> {
    let heard_at = s.observation.map_or(Timestamp::EPOCH, |seen| seen.status_at);
    // A deployment writes to disks, and a run may have waited for its slot just before: it goes by a
    // read of its own.
    let since = match effect {
        EffectKind::Deploy => in_step_since(s),
        _ => counts_since(s, MACHINE_SECONDS).min(in_step_since(s)),
    };
    let machine = s.machine_since(since.max(heard_at)).ok_or_else(|| read(s, Read::Machine))?;
    if s.node.hardware.bmc_address.is_none() {
        return Ok((machine, MachineFacts::new(machine, None)));
    }
    let since = counts_since(s, BMC_SECONDS).min(in_step_since(s));
    let power = s.run.state.power.as_ref().filter(|power| power.asked_at >= since);
    let power = power.ok_or_else(|| read(s, Read::Machine))?;
    Ok((machine, MachineFacts::new(machine, Some(power.facts.clone()))))
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
    let user = asking_user(s, facts);
    let in_use = foreign_use(s, facts, user)?;
    if s.run.kind == RunKind::Onboard {
        return stop_onboarding(s, system_id, facts, &in_use);
    }
    let id_and_name = format!("machine {system_id} ({})", facts.hostname);
    let evidence = format!("MAAS reports {in_use}; GPUaaS authenticates as {user}");
    Some(match facts.owner.as_deref().filter(|owner| *owner != user) {
        Some(owner) => park_with_evidence(
            s,
            ParkCode::MachineRepurposed,
            format!("{id_and_name} now belongs to MAAS user {owner}: GPUaaS will not change it"),
            vec![evidence],
        ),
        None => park_with_evidence(
            s,
            ParkCode::MachineTaken,
            format!("{id_and_name} is {in_use}: someone changed it during the run"),
            vec![evidence],
        ),
    })
}

/// What somebody else does with the machine of the run of `s`, so that the run may not change it;
/// none: nothing.
#[must_use]
pub(super) fn used_by_others(s: &Snapshot<'_>, machine: &MachineView) -> Option<String> {
    let facts = MachineFacts::new(machine, None);
    foreign_use(s, &facts, asking_user(s, &facts))
}

/// The MAAS user that GPUaaS asks as. Without a connection nobody knows, and nothing can be changed
/// either.
fn asking_user<'a>(s: &Snapshot<'a>, facts: &'a MachineFacts) -> &'a str {
    match s.maas_user {
        "" => facts.owner.as_deref().unwrap_or_default(),
        user => user,
    }
}

fn foreign_use(s: &Snapshot<'_>, facts: &MachineFacts, user: &str) -> Option<String> {
    let expected = expected_use(s);
    if let Some(in_use) = use_of_machine(facts, user, expected != ExpectedUse::Found) {
        return Some(in_use);
    }
    let taken = expected == ExpectedUse::Free && !is_free_status(s.run.kind, facts.status);
    taken.then(|| {
        let owner = facts.owner.as_deref().unwrap_or("nobody");
        let label = status::label(facts.status);
        format!("{label}, owned by {owner}, and this run did not cause that")
    })
}

/// An onboarding may have a machine in use at an operator's word. Such a word lets it release the
/// machine that it found; a machine that changed hands later is found anew by a word of its own.
fn stop_onboarding(
    s: &Snapshot<'_>,
    system_id: &str,
    facts: &MachineFacts,
    in_use: &str,
) -> Option<Decision> {
    let owner = facts.owner.as_deref();
    if expected_use(s) == ExpectedUse::Found {
        if approved_take_over(s, system_id, owner).is_some() {
            return None;
        }
    } else if take_over_approved_since(s, s.run.step_since, system_id, owner) {
        let text = format!("machine {system_id} is {in_use}: an operator approved the takeover");
        let note = Note::new(TimelineCode::TakeOverApproved, text);
        return Some(advance_to(Step::ReleaseAdopted, s.now, vec![note]));
    }
    let text = format!(
        "machine {system_id} ({}) is {in_use}: taking it over requires an operator's approval",
        facts.hostname
    );
    Some(park(s, ParkCode::MachineInUse, text))
}

/// MAAS does not allow changes to a locked machine, and whoever locked it wants it left alone.
fn stop_if_locked(s: &Snapshot<'_>, machine: &MachineView) -> Option<Decision> {
    let id = &machine.system_id;
    machine
        .locked
        .then(|| park(s, ParkCode::MachineLocked, format!("machine {id} is locked in MAAS")))
}

/// Parks because the machine is not the one that the request names.
pub(super) fn park_mismatch(
    s: &Snapshot<'_>,
    system_id: &str,
    excluded: &[Contradiction],
) -> Decision {
    let sides = excluded.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let text = format!("machine {system_id} does not match the request: {sides}");
    park(s, ParkCode::MachineMismatch, text)
}
