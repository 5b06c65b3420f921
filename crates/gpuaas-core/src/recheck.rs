//! Parked runs that look again by themselves.
//!
//! Where MAAS shows why a run parked, it shows as well when the cause is gone, and whoever mended it
//! there need not tell us. The table of parks says which codes these are
//! ([`ParkRow::looked_at_again`](gpuaas_types::codes::ParkRow::looked_at_again)). Such a run is
//! rechecked at a slow and slowing pace: what it read is forgotten, everything is read anew, and the
//! same function decides as ever. This module judges what that decision means for a run that nobody
//! has told to go on:
//!
//! - It goes on where its step is done, or where the next call is one that it has not made yet.
//! - It stays parked where going on would repeat a call that failed, was refused or was lost, or would
//!   release a machine, which may erase it: an operator has to want that. A run that was asked to give
//!   its machine back, and that only a lock or a wrong name kept from it, has that operator already.
//!
//! Nothing is changed in MAAS before that is judged, and a run that stays parked leaves no trace in the
//! history.

use gpuaas_types::codes::ParkCode;
use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::{Step, Timestamp};

use crate::effect::{Effect, Outcome};
use crate::snapshot::{Decision, Read, Snapshot};

/// Seconds from the park to the first recheck; later ones are as far apart as the park is old.
const FIRST_SECONDS: f64 = 60.0;
/// Longest time between two rechecks, in seconds.
const LONGEST_SECONDS: f64 = 900.0;

/// What a decision means for a parked run that is rechecked.
#[derive(Debug, Clone, PartialEq)]
pub enum RecheckVerdict {
    /// Something has to be read first.
    Read(Read),
    /// The cause is there, cannot be seen at the moment, or is gone in a way that only an operator
    /// may answer.
    StaysParked,
    /// The cause is gone; the run goes on. The text says what shows it.
    GoesOn(String),
}

/// When a run that parked at `since` with `code` is rechecked after `now`; none: only an operator
/// lets it go on.
///
/// ```
/// use gpuaas_core::recheck::next_recheck_at;
/// use gpuaas_types::Timestamp;
/// use gpuaas_types::codes::ParkCode;
///
/// let at = |seconds| Timestamp::EPOCH.plus_seconds(seconds);
/// assert_eq!(next_recheck_at("machine_locked", at(0.0), at(0.0)), Some(at(60.0)));
/// assert_eq!(next_recheck_at("machine_locked", at(0.0), at(60.0)), Some(at(120.0)));
/// assert_eq!(next_recheck_at("machine_locked", at(0.0), at(7200.0)), Some(at(8100.0)));
/// assert_eq!(next_recheck_at("deploy_failed", at(0.0), at(0.0)), None);
/// ```
#[must_use]
pub fn next_recheck_at(code: &str, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let row = ParkCode::from_code(code)?.row();
    let pause = now.seconds_since(since).clamp(FIRST_SECONDS, LONGEST_SECONDS);
    row.looked_at_again.then(|| now.plus_seconds(pause))
}

/// Judges what a recheck decided.
#[must_use]
pub fn judge_recheck(s: &Snapshot<'_>, decision: &Decision) -> RecheckVerdict {
    let seen = || {
        s.status().map_or_else(
            || "confirmed by MAAS".to_owned(),
            |number| format!("MAAS reports {}", status::label(number)),
        )
    };
    match decision {
        Decision::Read(read) => RecheckVerdict::Read(read.clone()),
        Decision::Next { notes, .. } | Decision::Finish { notes, .. } => {
            let texts: Vec<&str> = notes.iter().map(|note| note.text.as_str()).collect();
            let what = if texts.is_empty() { seen() } else { texts.join("; ") };
            RecheckVerdict::GoesOn(what)
        }
        Decision::Adopt { system_id, .. } if is_unused(s, system_id) => RecheckVerdict::GoesOn(
            format!("{system_id} is the only machine that matches; {}", seen()),
        ),
        Decision::AdvanceTo { notes, .. } if is_free(s) => {
            RecheckVerdict::GoesOn(notes.first().map_or_else(seen, |note| note.text.clone()))
        }
        Decision::Do(effect) if is_new(s, effect) => RecheckVerdict::GoesOn(seen()),
        // It exists again, and whatever the step waits for can come.
        Decision::Wait { .. } if has_parked_with(s, &[ParkCode::MachineVanished]) => {
            RecheckVerdict::GoesOn(seen())
        }
        Decision::Settle { happened: true } => RecheckVerdict::GoesOn(seen()),
        _ => RecheckVerdict::StaysParked,
    }
}

/// Whether the machine was just read in a status from which nothing has to be released.
fn is_unused(s: &Snapshot<'_>, system_id: &str) -> bool {
    just_read(s).is_some_and(|machine| {
        machine.system_id == system_id
            && matches!(
                machine.status,
                status::NEW
                    | status::COMMISSIONING
                    | status::FAILED_COMMISSIONING
                    | status::TESTING
                    | status::READY
            )
    })
}

/// Whether the machine was just read as nobody's and at rest: no step makes a call before it is looked
/// at again.
fn is_free(s: &Snapshot<'_>) -> bool {
    just_read(s).is_some_and(|machine| {
        machine.owner.is_none() && matches!(machine.status, status::NEW | status::READY)
    })
}

fn just_read<'a>(s: &Snapshot<'a>) -> Option<&'a MachineView> {
    s.machine_since(s.run.state.rechecked_at.unwrap_or(s.now))
}

fn has_parked_with(s: &Snapshot<'_>, codes: &[ParkCode]) -> bool {
    let park = s.run.park.as_ref().and_then(|park| ParkCode::from_code(&park.code));
    park.is_some_and(|code| codes.contains(&code))
}

/// Parks of a machine that only a person kept from what the operator had asked for: once that is over,
/// a run that gives its machine back does so.
const KEPT_BY_PEOPLE: &[ParkCode] =
    &[ParkCode::MachineLocked, ParkCode::MachineMismatch, ParkCode::PowerTypeDiffers];

/// Whether a call is part of the way to active, and none that this visit of the step has made.
fn is_new(s: &Snapshot<'_>, effect: &Effect) -> bool {
    let state = &s.run.state;
    let last = state.intent.as_ref();
    let unmade = state.next_number(effect) == 1
        && last.is_none_or(|last| last.outcome == Some(Outcome::Accepted));
    match effect {
        Effect::Commission { .. } | Effect::Deploy { .. } => {
            unmade && !state.tries.contains_key(&effect.kind())
        }
        // What a decommission or a reimage is for, and has not asked for yet.
        Effect::Release { .. } | Effect::PowerOff
            if matches!(s.run.step, Step::Release | Step::PowerOff) =>
        {
            unmade && state.tries.is_empty() && has_parked_with(s, KEPT_BY_PEOPLE)
        }
        effect => effect.is_setting() && unmade,
    }
}

#[cfg(test)]
#[path = "recheck_tests.rs"]
mod tests;
