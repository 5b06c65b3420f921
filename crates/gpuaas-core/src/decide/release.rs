//! Bringing a machine back to Ready, and what may be tried where MAAS does not get there.
//!
//! A release hangs on things that fail: a BMC that does not switch off, disks that cannot be wiped.
//! MAAS gives a release up after five minutes and an erasing never (docs/maas.md#status-timeouts),
//! and what a person then does in its pages is the same few moves in the same order. [`LADDER`] is
//! that order. The first rung that applies is asked for, once its patience is over; each counts
//! when MAAS took or refused it, and each has its number of times, so the ladder ends: with a
//! machine in Ready, or with a park that says what was tried. What had no effect goes before any
//! other rung. Was it asked for, it was perhaps never heard of, and counts only when it was in vain
//! again ([`IN_VAIN`]); did the call never leave, it does not count, and is tried with growing
//! pauses as long as the step may last.
//!
//! Two things are never done. A machine that this run did not ask to be released is only waited
//! for: whoever works on it may be at the next rung himself. And `mark_fixed`, which makes a machine
//! Ready without erasing it, is left out where the profile wants the disks erased come what may.

use gpuaas_types::api::Owner;
use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::{Step, Timestamp};

use super::{
    advance, confirmed_machine, drive, fresh_machine, is_failure, park_with_evidence, probe, read,
    wait_for_maas,
};
use crate::effect::{Effect, Intent, Outcome};
use crate::snapshot::{Decision, Note, Read, Snapshot};
use crate::steps;

/// How long a rung is waited for, after what was last asked for or, at first, from the beginning of
/// the work at the step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Patience {
    /// The machine has failed: nothing more comes by itself.
    None,
    /// So many seconds. A release that MAAS itself has not given up after twice its own five
    /// minutes is not being watched by it any more.
    Seconds(f64),
    /// So many times what the step is expected to take: how long disks take nobody knows better.
    TimesExpected(f64),
}

/// A rung of the ladder.
#[derive(Debug, Clone, Copy)]
pub struct Rung {
    /// Name of its effect.
    pub effect: &'static str,
    /// Status of the machine in which it is of use.
    pub status: i64,
    /// What is waited before.
    pub patience: Patience,
    /// How often in one visit of the step; every answer to `mark_broken` and `power_on` lets the
    /// machine be released once more.
    pub times: u32,
}

const fn rung(effect: &'static str, status: i64, patience: Patience, times: u32) -> Rung {
    Rung { effect, status, patience, times }
}

/// So many asks without any effect count as one with an answer.
const IN_VAIN: u32 = 2;
/// Seconds before what had no effect is tried again; doubles in a row, up to the longest.
const PAUSE_SECONDS: f64 = 5.0;
const LONGEST_PAUSE_SECONDS: f64 = 300.0;
const HELD: Patience = Patience::Seconds(600.0);

/// The ladder, lowest rung first. What MAAS lets be done in a status is in docs/maas.md#aborting,
/// docs/maas.md#releasing and docs/maas.md#broken-machines: it aborts an erasing but not a release
/// (recordings `l08`, `l17d`), releases again from both failures and from Broken, and marks broken
/// what is owned by the asker.
#[rustfmt::skip]
pub const LADDER: &[Rung] = &[
//       effect        status                       patience                       times
    rung("abort",       status::DISK_ERASING,        Patience::TimesExpected(4.0),  1),
    rung("release",     status::RELEASING_FAILED,    Patience::None,                2),
    rung("release",     status::FAILED_DISK_ERASING, Patience::None,                2),
    rung("mark_broken", status::RELEASING,           HELD,                          1),
    rung("mark_broken", status::DISK_ERASING,        HELD,                          1),
    rung("mark_broken", status::RELEASING_FAILED,    Patience::None,                1),
    rung("mark_broken", status::FAILED_DISK_ERASING, Patience::None,                1),
    rung("mark_fixed",  status::BROKEN,              Patience::None,                1),
    rung("release",     status::BROKEN,              Patience::None,                2),
    rung("power_off",   status::RELEASING,           HELD,                          1),
    rung("power_off",   status::DISK_ERASING,        HELD,                          1),
    rung("power_off",   status::RELEASING_FAILED,    Patience::None,                1),
    rung("power_off",   status::FAILED_DISK_ERASING, Patience::None,                1),
    rung("power_off",   status::BROKEN,              Patience::None,                1),
    rung("power_on",    status::RELEASING,           HELD,                          1),
    rung("power_on",    status::DISK_ERASING,        HELD,                          1),
    rung("power_on",    status::RELEASING_FAILED,    Patience::None,                1),
    rung("power_on",    status::FAILED_DISK_ERASING, Patience::None,                1),
];

/// Names of the effects that a step which releases may ask for.
pub const EFFECTS: &[&str] =
    &["release", "abort", "mark_broken", "mark_fixed", "power_off", "power_on"];

/// How a machine is to be released.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// Its disks are erased on the way.
    pub erase: bool,
    /// Whoever owns it in MAAS: an onboarding takes over what the operator named.
    pub whoever: bool,
}

/// The machine once MAAS says Ready or New; until then what brings it there.
pub(super) fn released<'a>(s: &Snapshot<'a>, how: How) -> Result<&'a MachineView, Decision> {
    let Some(number) = s.status() else {
        return Err(read(s, Read::Machine));
    };
    Err(match number {
        status::READY | status::NEW => match confirmed_machine(s) {
            Ok(machine) if matches!(machine.status, status::READY | status::NEW) => {
                return Ok(machine);
            }
            Ok(_) => waiting(s),
            Err(decision) => decision,
        },
        status::RELEASING
        | status::DISK_ERASING
        | status::RELEASING_FAILED
        | status::FAILED_DISK_ERASING => climb(s, number, how),
        // Also while it is not known whether MAAS took it: the intent is to be probed first.
        status::BROKEN if s.run.memory.tries.contains_key("mark_broken") => climb(s, number, how),
        _ => match repurposed(s, how) {
            Some(decision) => decision,
            None => match drive(s, Effect::Release { erase: how.erase }) {
                Ok(_) => wait_for_maas(s, "maas_releasing", "MAAS to release the machine"),
                Err(decision) => decision,
            },
        },
    })
}

/// Releases until MAAS says Ready, or New where the commissioning data are gone.
pub(super) fn release_to_ready(s: &Snapshot<'_>, whoever: bool, to: Step, text: &str) -> Decision {
    match released(s, How { erase: false, whoever }) {
        Ok(machine) => {
            let to = if machine.status == status::NEW { Step::RegisterScripts } else { to };
            let text = match s.run.memory.intent {
                Some(_) => text.to_owned(),
                None => format!("MAAS says {} already", status::label(machine.status)),
            };
            advance(to, s.now, vec![Note::new("released", text)])
        }
        Err(decision) => decision,
    }
}

fn waiting(s: &Snapshot<'_>) -> Decision {
    wait_for_maas(s, "maas_releasing", "MAAS to finish releasing the machine")
}

/// Somebody else uses the machine by now: it is not ours to release.
fn repurposed(s: &Snapshot<'_>, how: How) -> Option<Decision> {
    let asked = s.run.memory.intent.as_ref().is_some_and(|i| i.effect.name() == "release");
    if how.whoever || asked || s.maas_user.is_empty() {
        return None;
    }
    let machine = match fresh_machine(s) {
        Ok(machine) => machine,
        Err(decision) => return Some(decision),
    };
    let owner = machine.owner.as_deref().filter(|owner| *owner != s.maas_user)?;
    let (id, label) = (&machine.system_id, status::label(machine.status));
    Some(park_with_evidence(
        s,
        "machine_repurposed",
        format!("machine {id} belongs to MAAS user {owner} by now: GPUaaS does not release it"),
        Owner::PlatformOperator,
        "ask that user; cancel the run and detach the node if the machine is to stay theirs",
        vec![format!("MAAS says {label}, owner {owner}; GPUaaS asks as {}", s.maas_user)],
    ))
}

/// How often MAAS took or refused an effect in this visit of the step.
fn answers(s: &Snapshot<'_>, effect: &str) -> u32 {
    s.run.memory.answers.get(effect).copied().unwrap_or(0)
}

/// How many of its times a rung has used in this visit of the step.
fn used(s: &Snapshot<'_>, effect: &str) -> u32 {
    answers(s, effect) + s.run.memory.in_vain.get(effect).copied().unwrap_or(0) / IN_VAIN
}

/// Since when nothing was asked for.
fn quiet_since(s: &Snapshot<'_>) -> Timestamp {
    let asked = s.run.memory.intent.as_ref().map(|intent| intent.ended_at.unwrap_or(intent.at));
    asked.map_or(s.effort_since(), |at| at.max(s.effort_since()))
}

/// Whether what was last asked for is this, and MAAS did not take it: it was waited for already.
fn had_no_effect(s: &Snapshot<'_>, effect: &str) -> bool {
    s.run.memory.intent.as_ref().is_some_and(|intent| {
        intent.effect.name() == effect && matches!(intent.outcome, Some(Outcome::NotSent { .. }))
    })
}

/// Whether the machine was read after what was last asked for. A read may bear the very moment of
/// the step's begin: where MAAS' clock is ahead of ours, that lies in our future.
fn seen_since(s: &Snapshot<'_>, intent: &Intent) -> bool {
    let asked = intent.ended_at.unwrap_or(intent.at).plus_seconds(0.000_001);
    s.machine_since(asked.max(s.effort_since())).is_some()
}

/// The next thing to do about a machine that is being released, or whose release failed.
fn climb(s: &Snapshot<'_>, number: i64, how: How) -> Decision {
    if let Some(intent) = &s.run.memory.intent {
        match &intent.outcome {
            None | Some(Outcome::Unknown { .. }) => {
                return match probe(s, intent) {
                    // The ladder has its own bounds, and rungs above this one.
                    Decision::Park { .. } => Decision::Settle { happened: false },
                    other => other,
                };
            }
            Some(_) if !seen_since(s, intent) => return read(s, Read::Machine),
            Some(_) => {}
        }
    }
    let machine = match confirmed_machine(s) {
        Ok(machine) if machine.status == number => machine,
        Ok(_) => return read(s, Read::Machine),
        Err(decision) => return decision,
    };
    let found = next_rung(s, machine, how);
    let patience =
        found.map_or(if is_failure(number) { Patience::None } else { HELD }, |r| r.patience);
    let patience = match patience {
        _ if found.is_some_and(|rung| had_no_effect(s, rung.effect)) => 0.0,
        Patience::None => 0.0,
        Patience::Seconds(seconds) => seconds,
        Patience::TimesExpected(times) => {
            times * f64::from(steps::row(s.run.step).expected_seconds)
        }
    };
    let theirs = !is_failure(number) && !ours(s);
    if theirs || s.now.seconds_since(quiet_since(s)) < patience {
        return waiting_until(s, patience);
    }
    match found {
        Some(rung) => ask(s, rung, how),
        None => given_up(s, number),
    }
}

/// Waits for MAAS, but looks again when the patience is over.
fn waiting_until(s: &Snapshot<'_>, patience: f64) -> Decision {
    let over = quiet_since(s).plus_seconds(patience);
    match waiting(s) {
        Decision::Wait { wait, recheck_at } if over > s.now => {
            Decision::Wait { wait, recheck_at: recheck_at.min(over) }
        }
        other => other,
    }
}

/// Whether this run asked for the release.
fn ours(s: &Snapshot<'_>) -> bool {
    s.run.memory.intended_at.contains_key("release")
}

/// The lowest rung that applies; what had no effect goes before all others.
fn next_rung(s: &Snapshot<'_>, machine: &MachineView, how: How) -> Option<&'static Rung> {
    let fitting = || LADDER.iter().filter(|rung| fits(s, rung, machine, how));
    fitting().find(|rung| had_no_effect(s, rung.effect)).or_else(|| fitting().next())
}

fn fits(s: &Snapshot<'_>, rung: &Rung, machine: &MachineView, how: How) -> bool {
    let again = answers(s, "mark_broken") + answers(s, "power_on");
    let times = if rung.effect == "release" { rung.times + again } else { rung.times };
    let may = match rung.effect {
        "release" => true,
        "mark_fixed" => ours(s) && (!how.erase || s.profile.release_fallback_no_erase),
        "power_off" | "power_on" => ours(s) && machine.power_type != "manual",
        _ => ours(s),
    };
    may && rung.status == machine.status && used(s, rung.effect) < times
}

fn ask(s: &Snapshot<'_>, rung: &Rung, how: How) -> Decision {
    let erase = how.erase
        && !(rung.status == status::FAILED_DISK_ERASING && s.profile.release_fallback_no_erase);
    let effect = match rung.effect {
        "abort" => Effect::Abort,
        "mark_broken" => Effect::MarkBroken,
        "mark_fixed" => Effect::MarkFixed,
        "power_off" => Effect::PowerOff,
        "power_on" => Effect::PowerOn,
        _ => Effect::Release { erase },
    };
    match &s.run.memory.intent {
        Some(intent) if intent.effect == effect => match &intent.outcome {
            Some(Outcome::NotSent { text, .. }) => {
                let doubled = 2u32.saturating_pow(intent.number.saturating_sub(1));
                let pause = (PAUSE_SECONDS * f64::from(doubled)).min(LONGEST_PAUSE_SECONDS);
                let left = pause - s.now.seconds_since(quiet_since(s));
                if left <= 0.0 {
                    return Decision::Do(effect);
                }
                super::wait(s, "maas_unavailable", text.clone(), left)
            }
            _ => Decision::Do(effect),
        },
        _ => Decision::Do(effect),
    }
}

/// What was tried in this visit of the step, in the ladder's order.
pub(super) fn tried(s: &Snapshot<'_>) -> String {
    let count = |name: &&str| match (answers(s, name), s.run.memory.tries.get(*name)) {
        (0, None) => None,
        (0, Some(_)) => Some(format!("{name} without effect")),
        (1, _) => Some((*name).to_owned()),
        (times, _) => Some(format!("{name} {times} times")),
    };
    EFFECTS.iter().filter_map(count).collect::<Vec<_>>().join(", ")
}

fn given_up(s: &Snapshot<'_>, number: i64) -> Decision {
    park_with_evidence(
        s,
        "release_failed",
        format!("MAAS says {}, and what may be done about that was done", status::label(number)),
        Owner::InfraOperator,
        "clear the failure in MAAS (disks, BMC), then retry the run",
        vec![format!("asked of MAAS since the release began: {}", tried(s))],
    )
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
