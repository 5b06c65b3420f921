//! Bringing a machine back to Ready, and what may be tried where MAAS does not get there.
//!
//! A release hangs on things that fail: a BMC that does not switch off, disks that cannot be wiped.
//! MAAS gives a release up after five minutes and an erasing never (docs/maas.md#status-timeouts).
//! What a person then does in its pages is the same few actions in the same order: [`ESCALATION`]. The first step that applies is requested, once its patience is over. A step counts when
//! MAAS took or refused it, and each has its number of times. So the escalation ends: with a machine
//! in Ready, or with a park that says what was tried.
//!
//! What had no effect goes before any other step. A call that was sent counts only when it had no
//! effect again ([`WITHOUT_EFFECT`]). A call that was never sent does not count, and is tried with
//! growing pauses as long as the run's step may last.
//!
//! Two things are never done. A machine that this run did not ask to be released is only waited
//! for: whoever works on it may be at the next step himself. And `mark_fixed`, which makes a machine
//! Ready without erasing it, is left out where the profile wants the disks erased come what may.

use gpuaas_types::codes::{ParkCode, TimelineCode, WaitCode};
use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::{EffectKind, Timestamp};

use super::decisions::{
    confirmed_machine, is_failed_status, park_with_evidence, read, region_wait, wait,
    wait_for_maas, wait_for_region,
};
use super::drive::{drive_effect, probe_intent};
use crate::effect::{Effect, Intent, Outcome};
use crate::snapshot::{Decision, Note, Read, Snapshot};

/// How long MAAS is waited for before a step of the escalation, after what was last requested or,
/// at first, from the beginning of the work at the run's step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Patience {
    /// The machine has failed: nothing more comes by itself.
    None,
    /// So many seconds. A release that MAAS itself has not given up after twice its own five
    /// minutes is not being watched by it any more.
    Seconds(f64),
    /// So many times what the run's step is expected to take: how long disks take nobody knows
    /// better.
    TimesExpected(f64),
}

/// What may be requested of MAAS while a machine is released. A subset of [`EffectKind`] of its
/// own, so that every match below names every action: nothing unknown can become a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseAction {
    /// Release the machine, or release it again.
    Release,
    /// Abort an erasing.
    Abort,
    /// Mark the machine broken.
    MarkBroken,
    /// Take that mark away, which makes the machine Ready without an erasing.
    MarkFixed,
    /// Switch the machine off.
    PowerOff,
    /// Switch the machine on.
    PowerOn,
}

impl ReleaseAction {
    /// Every action, in the order in which a park names what was tried.
    pub const ALL: [Self; 6] = [
        Self::Release,
        Self::Abort,
        Self::MarkBroken,
        Self::MarkFixed,
        Self::PowerOff,
        Self::PowerOn,
    ];

    /// The kind of its effect.
    #[must_use]
    pub const fn kind(self) -> EffectKind {
        match self {
            Self::Release => EffectKind::Release,
            Self::Abort => EffectKind::Abort,
            Self::MarkBroken => EffectKind::MarkBroken,
            Self::MarkFixed => EffectKind::MarkFixed,
            Self::PowerOff => EffectKind::PowerOff,
            Self::PowerOn => EffectKind::PowerOn,
        }
    }

    /// Its effect; `erase` is of use to a release only.
    #[must_use]
    pub const fn effect(self, erase: bool) -> Effect {
        match self {
            Self::Release => Effect::Release { erase },
            Self::Abort => Effect::Abort,
            Self::MarkBroken => Effect::MarkBroken,
            Self::MarkFixed => Effect::MarkFixed,
            Self::PowerOff => Effect::PowerOff,
            Self::PowerOn => Effect::PowerOn,
        }
    }
}

/// A step of the escalation.
#[derive(Debug, Clone, Copy)]
pub struct EscalationStep {
    /// What is requested of MAAS.
    pub action: ReleaseAction,
    /// Status of the machine in which it is of use.
    pub status: i64,
    /// How long MAAS is waited for before.
    pub patience: Patience,
    /// How often in one visit of the run's step. Every answer to `mark_broken` and `power_on` lets
    /// the machine be released once more.
    pub times: u32,
}

const fn step(
    action: ReleaseAction,
    status: i64,
    patience: Patience,
    times: u32,
) -> EscalationStep {
    EscalationStep { action, status, patience, times }
}

/// So many requests without any effect count as one with an answer.
const WITHOUT_EFFECT: u32 = 2;
/// Seconds before what had no effect is tried again; doubles in a row, up to the longest.
const PAUSE_SECONDS: f64 = 5.0;
const LONGEST_PAUSE_SECONDS: f64 = 300.0;
const HANGING: Patience = Patience::Seconds(600.0);

use ReleaseAction::{Abort, MarkBroken, MarkFixed, PowerOff, PowerOn, Release};

/// The escalation, mildest step first. What MAAS lets be done in a status is in
/// docs/maas.md#aborting, docs/maas.md#releasing and docs/maas.md#broken-machines: it aborts an erasing but not a release (recordings `l08`, `l17d`), releases again from
/// both failures and from Broken, and marks broken what is owned by the asker.
#[rustfmt::skip]
pub const ESCALATION: &[EscalationStep] = &[
//       action      status                       patience                       times
    step(Abort,      status::DISK_ERASING,        Patience::TimesExpected(4.0),  1),
    step(Release,    status::RELEASING_FAILED,    Patience::None,                2),
    step(Release,    status::FAILED_DISK_ERASING, Patience::None,                2),
    step(MarkBroken, status::RELEASING,           HANGING,                       1),
    step(MarkBroken, status::DISK_ERASING,        HANGING,                       1),
    step(MarkBroken, status::RELEASING_FAILED,    Patience::None,                1),
    step(MarkBroken, status::FAILED_DISK_ERASING, Patience::None,                1),
    step(MarkFixed,  status::BROKEN,              Patience::None,                1),
    step(Release,    status::BROKEN,              Patience::None,                2),
    step(PowerOff,   status::RELEASING,           HANGING,                       1),
    step(PowerOff,   status::DISK_ERASING,        HANGING,                       1),
    step(PowerOff,   status::RELEASING_FAILED,    Patience::None,                1),
    step(PowerOff,   status::FAILED_DISK_ERASING, Patience::None,                1),
    step(PowerOff,   status::BROKEN,              Patience::None,                1),
    step(PowerOn,    status::RELEASING,           HANGING,                       1),
    step(PowerOn,    status::DISK_ERASING,        HANGING,                       1),
    step(PowerOn,    status::RELEASING_FAILED,    Patience::None,                1),
    step(PowerOn,    status::FAILED_DISK_ERASING, Patience::None,                1),
];

/// How a machine is to be released.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReleaseOptions {
    /// Its disks are erased on the way.
    pub erase: bool,
    /// Whoever owns it in MAAS: an onboarding takes over what the operator named.
    pub any_owner: bool,
}

/// The machine once MAAS says Ready or New; until then what brings it there.
pub(super) fn released_machine<'a>(
    s: &Snapshot<'a>,
    options: ReleaseOptions,
) -> Result<&'a MachineView, Decision> {
    let Some(number) = s.status() else {
        return Err(read(s, Read::Machine));
    };
    Err(match number {
        status::READY | status::NEW => match confirmed_machine(s) {
            Ok(machine) if matches!(machine.status, status::READY | status::NEW) => {
                return Ok(machine);
            }
            Ok(_) => wait_for_release(s),
            Err(decision) => decision,
        },
        status::RELEASING
        | status::DISK_ERASING
        | status::RELEASING_FAILED
        | status::FAILED_DISK_ERASING => escalate(s, number, options),
        // Also while it is not known whether MAAS took it: the intent is to be probed first.
        status::BROKEN if s.run.state.tries.contains_key(&EffectKind::MarkBroken) => {
            escalate(s, number, options)
        }
        _ => match park_repurposed(s, options) {
            Some(decision) => decision,
            None => match drive_effect(s, Effect::Release { erase: options.erase }) {
                Ok(_) => wait_for_maas(s, WaitCode::MaasReleasing, "MAAS to release the machine"),
                Err(decision) => decision,
            },
        },
    })
}

/// What a release that came to an end leaves on the timeline.
pub(super) fn released_note(s: &Snapshot<'_>, machine: &MachineView, text: &str) -> Note {
    let text = match s.run.state.intent {
        Some(_) => text.to_owned(),
        None => format!("MAAS already reports {}", status::label(machine.status)),
    };
    Note::new(TimelineCode::Released, text)
}

fn wait_for_release(s: &Snapshot<'_>) -> Decision {
    wait_for_maas(s, WaitCode::MaasReleasing, "MAAS to finish releasing the machine")
}

/// Somebody else uses the machine by now: it is not ours to release, and no longer ours to wait for
/// where we had asked for that before.
fn park_repurposed(s: &Snapshot<'_>, options: ReleaseOptions) -> Option<Decision> {
    let open = s.run.state.intent.as_ref().is_some_and(Intent::is_open);
    if options.any_owner || open || s.maas_user.is_empty() {
        return None;
    }
    let machine = match confirmed_machine(s) {
        Ok(machine) => machine,
        Err(decision) => return Some(decision),
    };
    let owner = machine.owner.as_deref().filter(|owner| *owner != s.maas_user)?;
    let (id, label) = (&machine.system_id, status::label(machine.status));
    Some(park_with_evidence(
        s,
        ParkCode::MachineRepurposed,
        format!("machine {id} now belongs to MAAS user {owner}: GPUaaS will not release it"),
        vec![format!(
            "MAAS reports {label}, owner {owner}; GPUaaS authenticates as {}",
            s.maas_user
        )],
    ))
}

/// How often MAAS took or refused an effect in this visit of the step.
fn answers(s: &Snapshot<'_>, kind: EffectKind) -> u32 {
    s.run.state.answers.get(&kind).copied().unwrap_or(0)
}

/// How many of its times an effect has used in this visit of the step.
fn used_times(s: &Snapshot<'_>, kind: EffectKind) -> u32 {
    answers(s, kind) + s.run.state.without_effect.get(&kind).copied().unwrap_or(0) / WITHOUT_EFFECT
}

/// Since when nothing was requested.
fn quiet_since(s: &Snapshot<'_>) -> Timestamp {
    let asked = s.run.state.intent.as_ref().map(|intent| intent.ended_at.unwrap_or(intent.at));
    asked.map_or(s.effort_since(), |at| at.max(s.effort_since()))
}

/// Whether what was last requested is this, and MAAS did not take it: it was waited for already.
fn had_no_effect(s: &Snapshot<'_>, kind: EffectKind) -> bool {
    s.run.state.intent.as_ref().is_some_and(|intent| {
        intent.effect.kind() == kind && matches!(intent.outcome, Some(Outcome::NotSent { .. }))
    })
}

/// Whether the machine was read after what was last requested. A read may bear the very moment of
/// the step's begin: where MAAS' clock is ahead of ours, that lies in our future.
fn was_read_since(s: &Snapshot<'_>, intent: &Intent) -> bool {
    let asked = intent.ended_at.unwrap_or(intent.at).plus_seconds(0.000_001);
    s.machine_since(asked.max(s.effort_since())).is_some()
}

/// The next thing to do about a machine that is being released, or whose release failed.
fn escalate(s: &Snapshot<'_>, number: i64, options: ReleaseOptions) -> Decision {
    if let Some(intent) = &s.run.state.intent {
        match &intent.outcome {
            None | Some(Outcome::Unknown { .. }) => {
                return match probe_intent(s, intent) {
                    // The escalation has its own bounds, and steps after this one.
                    Decision::Park { .. } => Decision::Settle { happened: false },
                    other => other,
                };
            }
            Some(_) if !was_read_since(s, intent) => return read(s, Read::Machine),
            Some(_) => {}
        }
    }
    let machine = match confirmed_machine(s) {
        Ok(machine) if machine.status == number => machine,
        Ok(_) => return read(s, Read::Machine),
        Err(decision) => return decision,
    };
    let found = next_step(s, machine, options);
    let patience = found
        .map_or(if is_failed_status(number) { Patience::None } else { HANGING }, |r| r.patience);
    let patience = match patience {
        _ if found.is_some_and(|step| had_no_effect(s, step.action.kind())) => 0.0,
        Patience::None => 0.0,
        Patience::Seconds(seconds) => seconds,
        Patience::TimesExpected(times) => times * f64::from(s.run.step.row().expected_seconds),
    };
    let theirs = !is_failed_status(number) && !requested_by_run(s);
    if theirs || s.now.seconds_since(quiet_since(s)) < patience {
        return wait_until_patience_ends(s, patience);
    }
    match found {
        Some(step) => request(s, step, options),
        None => exhausted(s, number),
    }
}

/// Waits for MAAS, but looks again when the patience is over.
fn wait_until_patience_ends(s: &Snapshot<'_>, patience: f64) -> Decision {
    let over = quiet_since(s).plus_seconds(patience);
    match wait_for_release(s) {
        Decision::Wait { wait, recheck_at } if over > s.now => {
            Decision::Wait { wait, recheck_at: recheck_at.min(over) }
        }
        other => other,
    }
}

/// Whether this run asked for the release.
fn requested_by_run(s: &Snapshot<'_>) -> bool {
    s.run.state.intended_at.contains_key(&EffectKind::Release)
}

/// The mildest step that applies; what had no effect goes before all others.
fn next_step(
    s: &Snapshot<'_>,
    machine: &MachineView,
    options: ReleaseOptions,
) -> Option<&'static EscalationStep> {
    let applicable = || ESCALATION.iter().filter(|step| applies(s, step, machine, options));
    applicable().find(|step| had_no_effect(s, step.action.kind())).or_else(|| applicable().next())
}

fn applies(
    s: &Snapshot<'_>,
    step: &EscalationStep,
    machine: &MachineView,
    options: ReleaseOptions,
) -> bool {
    let again = answers(s, EffectKind::MarkBroken) + answers(s, EffectKind::PowerOn);
    let times = match step.action {
        Release => step.times + again,
        Abort | MarkBroken | MarkFixed | PowerOff | PowerOn => step.times,
    };
    let may = match step.action {
        Release => true,
        MarkFixed => requested_by_run(s) && (!options.erase || s.profile.release_fallback_no_erase),
        PowerOff | PowerOn => requested_by_run(s) && machine.power_type != "manual",
        Abort | MarkBroken => requested_by_run(s),
    };
    may && step.status == machine.status && used_times(s, step.action.kind()) < times
}

fn request(s: &Snapshot<'_>, step: &EscalationStep, options: ReleaseOptions) -> Decision {
    let erase = options.erase
        && !(step.status == status::FAILED_DISK_ERASING && s.profile.release_fallback_no_erase);
    let effect = step.action.effect(erase);
    match &s.run.state.intent {
        Some(intent) if intent.effect == effect => match &intent.outcome {
            Some(Outcome::NotSent { code, text }) => {
                let ended = intent.ended_at.unwrap_or(intent.at);
                if intent.never_left() && s.answers_since(ended) {
                    return Decision::Do(effect);
                }
                let doubled = 2u32.saturating_pow(intent.number.saturating_sub(1));
                let pause = (PAUSE_SECONDS * f64::from(doubled)).min(LONGEST_PAUSE_SECONDS);
                let left = pause - s.now.seconds_since(quiet_since(s));
                if left <= 0.0 {
                    return Decision::Do(effect);
                }
                match region_wait(code).filter(|_| intent.never_left()) {
                    Some(code) => wait_for_region(s, code, text.clone(), left),
                    None => wait(s, WaitCode::MaasUnavailable, text.clone(), left),
                }
            }
            _ => Decision::Do(effect),
        },
        _ => Decision::Do(effect),
    }
}

/// What was tried in this visit of the step, in the order of [`ReleaseAction::ALL`].
pub(super) fn attempts_as_text(s: &Snapshot<'_>) -> String {
    let count = |action: ReleaseAction| {
        let kind = action.kind();
        match (answers(s, kind), s.run.state.tries.get(&kind)) {
            (0, None) => None,
            (0, Some(_)) => Some(format!("{kind} without effect")),
            (1, _) => Some(kind.to_string()),
            (times, _) => Some(format!("{kind} {times} times")),
        }
    };
    ReleaseAction::ALL.into_iter().filter_map(count).collect::<Vec<_>>().join(", ")
}

/// Every step of the escalation was taken as often as it may be.
fn exhausted(s: &Snapshot<'_>, number: i64) -> Decision {
    park_with_evidence(
        s,
        ParkCode::ReleaseFailed,
        format!("MAAS reports {}, and every release action is exhausted", status::label(number)),
        vec![format!("requests to MAAS since the release started: {}", attempts_as_text(s))],
    )
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
