//! Bringing a machine back to Ready, and what may be tried where MAAS does not get there.
//!
//! A release hangs on things that fail: a BMC that does not switch off, disks that cannot be wiped.
//! MAAS gives a release up after five minutes and an erasing never (contract section 6), and what a
//! person then does in its pages is the same few moves in the same order. [`LADDER`] is that order.
//! The first rung that applies is asked for, once its patience is over; each counts when MAAS took
//! or refused it, and each has its number of times, so the ladder ends: with a machine in Ready, or
//! with a park that says what was tried.
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
use crate::effect::{Effect, Outcome};
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

/// Seconds before what had no effect is tried again.
const PAUSE_SECONDS: f64 = 5.0;
const HELD: Patience = Patience::Seconds(600.0);

/// The ladder, lowest rung first. What MAAS lets be done in a status is in contract sections 6, 7
/// and 9: it aborts an erasing but not a release (recordings `l08`, `l17d`), releases again from both
/// failures and from Broken, and marks broken what is owned by the asker.
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

/// Whether the machine was read after what was last asked for.
fn seen_since(s: &Snapshot<'_>) -> bool {
    s.machine_since(quiet_since(s).plus_seconds(0.000_001)).is_some()
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
            Some(_) if !seen_since(s) => return read(s, Read::Machine),
            Some(_) => {}
        }
    }
    let machine = match confirmed_machine(s) {
        Ok(machine) if machine.status == number => machine,
        Ok(_) => return read(s, Read::Machine),
        Err(decision) => return decision,
    };
    let found = LADDER.iter().find(|rung| fits(s, rung, machine, how));
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

fn fits(s: &Snapshot<'_>, rung: &Rung, machine: &MachineView, how: How) -> bool {
    let again = answers(s, "mark_broken") + answers(s, "power_on");
    let times = if rung.effect == "release" { rung.times + again } else { rung.times };
    let may = match rung.effect {
        "release" => true,
        "mark_fixed" => ours(s) && (!how.erase || s.profile.release_fallback_no_erase),
        "power_off" | "power_on" => ours(s) && machine.power_type != "manual",
        _ => ours(s),
    };
    // What showed no effect was perhaps never heard of: it is tried once more, in a row.
    let tries = s.run.memory.tries.get(rung.effect).copied().unwrap_or(0);
    may && rung.status == machine.status && answers(s, rung.effect) < times && tries < times + 1
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
                let left = PAUSE_SECONDS - s.now.seconds_since(quiet_since(s));
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
mod tests {
    use gpuaas_types::{RunKind, RunStatus};

    use super::super::fixture::{Case, at, machine};
    use super::*;

    /// What MAAS makes of an effect, as far as the ladder is concerned.
    type Maas = fn(i64, &Effect) -> (Outcome, i64);

    fn owned(status: i64) -> MachineView {
        let owner = Some("gpuaas".to_owned());
        MachineView { owner, power_state: "on".to_owned(), ..machine(status) }
    }

    fn leaving(number: i64) -> Case {
        let mut case = Case::new(Step::Release).read(owned(number), 0.0);
        case.run.kind = RunKind::Decommission;
        case.now = at(1.0);
        case
    }

    fn refused() -> Outcome {
        let (code, text) = ("forbidden".to_owned(), "no".to_owned());
        Outcome::Rejected { code, text, conflict: false }
    }

    /// Plays the ladder against `maas` until it ends, and returns what was asked for and when, and
    /// how it ended. Time stands still but for waits.
    fn climbed(case: &mut Case, maas: Maas) -> (Vec<String>, Decision) {
        let mut asked = Vec::new();
        let mut number = case.observation.as_ref().unwrap().status;
        for _ in 0..200 {
            match case.decide() {
                Decision::Do(effect) => {
                    let seconds = case.now.seconds_since(at(1.0));
                    asked.push(format!("{}@{seconds:.0}", effect.name()));
                    let (outcome, to) = maas(number, &effect);
                    let intent = crate::effect::Intent {
                        id: super::super::fixture::id(9),
                        step: case.run.step,
                        number: case.run.memory.next_number(&effect),
                        effect,
                        at: case.now,
                        before: Some(number),
                        outcome: None,
                        ended_at: None,
                    };
                    case.run.memory.begin(intent);
                    case.run.memory.end(outcome, case.now);
                    number = to;
                    let seen = case.observation.as_mut().unwrap();
                    (seen.status, seen.status_at) = (number, case.now);
                }
                Decision::Read(_) => {
                    case.now = case.now.plus_seconds(0.001);
                    let seen =
                        gpuaas_types::machine::Observation::from_read(owned(number), case.now);
                    case.observation = Some(seen);
                }
                Decision::Wait { recheck_at, .. } => {
                    assert!(recheck_at > case.now);
                    case.now = recheck_at;
                }
                end => return (asked, end),
            }
        }
        panic!("it does not end: {asked:?}");
    }

    fn parked(end: &Decision) -> (&str, String) {
        let Decision::Park { park, .. } = end else { panic!("{end:?}") };
        (&park.code, park.evidence.join("; "))
    }

    #[test]
    fn the_ladder_as_text() {
        let row = |r: &Rung| {
            let label = status::label(r.status);
            format!("{:<12} {label:<20} {:>20} {}", r.effect, format!("{:?}", r.patience), r.times)
        };
        insta::assert_snapshot!(LADDER.iter().map(row).collect::<Vec<_>>().join("\n"));
        for rung in LADDER {
            assert!(EFFECTS.contains(&rung.effect), "{}", rung.effect);
            let stuck = matches!(rung.status, status::RELEASING | status::DISK_ERASING);
            assert_eq!(stuck, rung.patience != Patience::None, "{rung:?}");
        }
    }

    #[test]
    fn a_release_that_always_fails_climbs_to_the_top_and_parks() {
        let (asked, end) = climbed(&mut leaving(status::DEPLOYED), |number, effect| match effect {
            Effect::Release { .. } => (Outcome::Accepted, status::RELEASING_FAILED),
            Effect::MarkBroken => (refused(), number),
            _ => (Outcome::Accepted, number),
        });
        let names: Vec<&str> = asked.iter().filter_map(|one| one.split('@').next()).collect();
        let all =
            ["release", "release", "mark_broken", "release", "power_off", "power_on", "release"];
        assert_eq!(names, all, "{asked:?}");
        let (code, evidence) = parked(&end);
        assert_eq!(code, "release_failed");
        for name in ["release", "mark_broken", "power_off", "power_on"] {
            assert!(evidence.contains(name), "{evidence}");
        }
    }

    #[test]
    fn a_machine_stuck_releasing_is_marked_broken_and_fixed() {
        let (asked, end) = climbed(&mut leaving(status::DEPLOYED), |number, effect| {
            let to = match effect {
                Effect::Release { .. } => status::RELEASING,
                Effect::MarkBroken => status::BROKEN,
                Effect::MarkFixed => status::READY,
                _ => number,
            };
            (Outcome::Accepted, to)
        });
        assert_eq!(asked, ["release@0", "mark_broken@600", "mark_fixed@600"]);
        let Decision::Advance { to, notes, .. } = end else { panic!("{end:?}") };
        assert_eq!(to, Step::PowerOff);
        assert!(notes[0].text.contains("mark_broken, mark_fixed"), "{}", notes[0].text);
    }

    #[test]
    fn an_erasing_that_hangs_is_aborted_and_begun_again() {
        let mut case = leaving(status::DEPLOYED);
        case.profile.release_erase = true;
        let (asked, end) = climbed(&mut case, |_, effect| match effect {
            Effect::Abort => (Outcome::Accepted, status::FAILED_DISK_ERASING),
            _ => (Outcome::Accepted, status::DISK_ERASING),
        });
        assert_eq!(asked[..3], ["release@0", "abort@7200", "release@7200"]);
        assert_eq!(parked(&end).0, "release_failed");
        assert!(!asked.iter().any(|one| one.starts_with("mark_fixed")), "{asked:?}");
    }

    #[test]
    fn what_had_no_effect_is_tried_once_more_and_not_waited_for_again() {
        let (asked, end) = climbed(&mut leaving(status::DEPLOYED), |number, effect| match effect {
            Effect::Release { .. } => (Outcome::Accepted, status::RELEASING),
            Effect::PowerOff => (Outcome::Accepted, status::READY),
            _ => {
                let (code, text) = ("did_not_happen".to_owned(), String::new());
                (Outcome::NotSent { code, text }, number)
            }
        });
        let expected = ["release@0", "mark_broken@600", "mark_broken@605", "power_off@1205"];
        assert_eq!(asked, expected);
        assert!(matches!(end, Decision::Advance { .. }), "{end:?}");
    }

    #[test]
    fn disks_that_must_be_erased_are_never_let_off() {
        let mut case = leaving(status::DEPLOYED);
        case.profile.release_erase = true;
        let maas: Maas = |number, effect| {
            let to = match effect {
                Effect::Release { erase: true } => status::FAILED_DISK_ERASING,
                Effect::Release { erase: false } => status::READY,
                Effect::MarkBroken => status::BROKEN,
                Effect::MarkFixed => status::READY,
                _ => number,
            };
            (Outcome::Accepted, to)
        };
        let (asked, end) = climbed(&mut case, maas);
        assert_eq!(parked(&end).0, "release_failed");
        assert!(asked.iter().any(|one| one.starts_with("power_on")), "{asked:?}");
        assert!(!asked.iter().any(|one| one.starts_with("mark_fixed")), "{asked:?}");
        let mut case = leaving(status::DEPLOYED);
        case.profile.release_erase = true;
        case.profile.release_fallback_no_erase = true;
        let (asked, end) = climbed(&mut case, maas);
        assert_eq!(asked, ["release@0", "release@0"]);
        assert!(matches!(end, Decision::Advance { .. }), "{end:?}");
    }

    #[test]
    fn a_release_that_someone_else_asked_for_is_only_waited_for() {
        let mut case = leaving(status::RELEASING);
        let (asked, end) = climbed(&mut case, |number, _| (Outcome::Accepted, number));
        assert_eq!((asked.len(), parked(&end).0), (0, "deadline_exceeded"));
        let mut case = leaving(status::RELEASING_FAILED);
        let (asked, _) = climbed(&mut case, |_, _| (Outcome::Accepted, status::READY));
        assert_eq!(asked, ["release@0"], "a failure is released again whoever began");
    }

    #[test]
    fn a_machine_without_a_bmc_is_not_power_cycled() {
        let mut case = leaving(status::RELEASING_FAILED);
        let mut seen = owned(status::RELEASING_FAILED);
        seen.power_type = "manual".to_owned();
        case.run.memory.intended_at.insert("release".to_owned(), at(0.0));
        let how = How { erase: false, whoever: false };
        let power = |rung: &&Rung| rung.effect.starts_with("power");
        assert!(!LADDER.iter().filter(power).any(|rung| fits(&case.snapshot(), rung, &seen, how)));
        seen.power_type = "ipmi".to_owned();
        assert!(LADDER.iter().filter(power).any(|rung| fits(&case.snapshot(), rung, &seen, how)));
    }

    #[test]
    fn a_machine_that_is_somebody_elses_by_now_is_left_alone() {
        let mut case = leaving(status::DEPLOYED);
        case.observation.as_mut().unwrap().machine.as_mut().unwrap().owner = Some("ann".to_owned());
        let end = case.decide();
        let (code, evidence) = parked(&end);
        assert_eq!(code, "machine_repurposed");
        assert!(evidence.contains("owner ann"), "{evidence}");
        let Decision::Park { park, .. } = &end else { unreachable!() };
        assert!(park.next_action.contains("detach"));
        case.run.step = Step::ReleaseAdopted;
        assert_eq!(case.decide(), Decision::Do(Effect::Release { erase: false }));
        case.run.step = Step::Release;
        case.maas_user.clear();
        assert_eq!(case.decide(), Decision::Do(Effect::Release { erase: false }), "not known");
        assert_eq!(case.run.status, RunStatus::Running);
    }
}
