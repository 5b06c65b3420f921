//! The decision: a snapshot and the moment in, one thing to do out.
//!
//! What all steps share is here: deadlines, failed reads, and [`drive`], which carries one effect
//! from intent to known outcome. The steps themselves are in the modules below, one function each,
//! found through the table in [`crate::steps`].

pub mod boot;
#[cfg(test)]
mod boot_tests;
pub mod commission;
#[cfg(test)]
mod commission_tests;
pub mod deploy;
#[cfg(test)]
mod deploy_tests;
pub mod discover;
#[cfg(test)]
mod discover_tests;
#[cfg(test)]
pub(crate) mod fixture;
pub mod leave;
#[cfg(test)]
mod leave_tests;
pub mod ready;
#[cfg(test)]
mod ready_tests;
pub mod release;
#[cfg(test)]
mod tests;

use gpuaas_types::api::{CheckResult, Owner, Park, Wait};
use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::{Step, Timestamp};

use crate::effect::{Effect, Intent, Outcome, Probe, Trace};
use crate::record::ReportKind;
use crate::snapshot::{Decision, Note, Read, Snapshot};
use crate::steps;

/// Tries of one effect in one visit of a step before the run parks.
const MAX_TRIES: u32 = 4;
/// Seconds between two looks at a machine whose events say nothing. Events carry the changes; this
/// is for the case that the feed lost one.
const RECHECK_SECONDS: f64 = 900.0;
/// Shortest time after which a waiting run is looked at again.
const SHORTEST_WAIT_SECONDS: f64 = 0.001;
/// Seconds between two looks while an unknown outcome is open.
const PROBE_SECONDS: f64 = 5.0;

/// What to do next with the run.
#[must_use]
pub fn decide(s: &Snapshot<'_>) -> Decision {
    let row = steps::row(s.run.step);
    let gone = s.observation.is_some_and(|o| o.vanished);
    let decision = match leave::cancel(s) {
        Some(decision) => decision,
        None if gone && steps::kind(s.run.kind).needs_maas => return leave::vanished(s),
        None => settle_first(s, (row.decide)(s)),
    };
    let over = s.seconds_in_step() >= f64::from(row.deadline_seconds);
    match decision {
        Decision::Wait { wait, .. } if over && wait.deadline.is_some() => {
            let text = format!("gave up after {} s: {}", row.deadline_seconds, wait.text);
            park(
                s,
                "deadline_exceeded",
                text,
                Owner::InfraOperator,
                "look at the machine's console and at MAAS' event log, then resume the run",
            )
        }
        other => other,
    }
}

/// A run does not go on past an effect whose outcome nobody knows: what it goes on from shows what
/// became of it. So a journal has an outcome for every intent, also where the process died between
/// the call and its record and the goal was found reached.
fn settle_first(s: &Snapshot<'_>, decision: Decision) -> Decision {
    let goes_on = matches!(
        decision,
        Decision::Do(_)
            | Decision::Adopt { .. }
            | Decision::Advance { .. }
            | Decision::Finish { .. }
    );
    match s.run.memory.intent.as_ref().filter(|intent| goes_on && is_open(intent)) {
        None => decision,
        // The goal is reached, whether or not by this effect: nothing to stop for.
        Some(intent) => match probe(s, intent) {
            Decision::Park { .. } => Decision::Settle { happened: false },
            other => other,
        },
    }
}

/// Nobody knows what became of it.
fn is_open(intent: &Intent) -> bool {
    matches!(intent.outcome, None | Some(Outcome::Unknown { .. }))
}

/// Parks the run.
pub(crate) fn park(
    s: &Snapshot<'_>,
    code: &str,
    text: impl Into<String>,
    owner: Owner,
    next_action: &str,
) -> Decision {
    park_with(s, code, text, owner, next_action, Vec::new())
}

/// Parks the run with more to show, each thing once.
pub(crate) fn park_with_evidence(
    s: &Snapshot<'_>,
    code: &str,
    text: impl Into<String>,
    owner: Owner,
    next_action: &str,
    more: Vec<String>,
) -> Decision {
    let mut decision = park_with(s, code, text, owner, next_action, Vec::new());
    if let Decision::Park { park, .. } = &mut decision {
        for line in more {
            if !park.evidence.contains(&line) {
                park.evidence.push(line);
            }
        }
    }
    decision
}

/// A warning or an error of MAAS' events as evidence.
pub(crate) fn warned(alarm: &str) -> String {
    format!("MAAS warned: {alarm}")
}

/// Parks the run with results of checks.
pub(crate) fn park_with(
    s: &Snapshot<'_>,
    code: &str,
    text: impl Into<String>,
    owner: Owner,
    next_action: &str,
    checks: Vec<CheckResult>,
) -> Decision {
    let mut evidence = Vec::new();
    if let Some(observation) = s.observation {
        evidence.push(format!(
            "MAAS said {} {:.0} s ago",
            status::label(observation.status),
            s.now.seconds_since(observation.status_at)
        ));
        if let Some(machine) = &observation.machine
            && !machine.error_description.is_empty()
            && is_failure(observation.status)
        {
            evidence.push(format!("MAAS says: {}", machine.error_description));
        }
    }
    let alarm = s.observation.and_then(|o| o.alarm.as_ref());
    if let Some(alarm) = alarm.filter(|alarm| alarm.at >= s.run.step_since) {
        evidence.push(warned(&alarm.text));
    }
    if let Some(intent) = &s.run.memory.intent {
        let outcome = intent.outcome.as_ref().map_or("no outcome", Outcome::name);
        evidence.push(format!(
            "tried {} {} times, last: {outcome}",
            intent.effect.name(),
            intent.number
        ));
    }
    evidence.extend(
        checks.iter().filter(|c| !c.passed).map(|c| format!("check {}: {}", c.name, c.evidence)),
    );
    Decision::Park {
        park: Park {
            code: code.to_owned(),
            text: text.into(),
            since: s.now,
            owner,
            evidence,
            next_action: next_action.to_owned(),
        },
        checks,
    }
}

/// Waits for something named by `code` and `text`, looking again after `seconds`.
pub(crate) fn wait(
    s: &Snapshot<'_>,
    code: &str,
    text: impl Into<String>,
    seconds: f64,
) -> Decision {
    let row = steps::row(s.run.step);
    let deadline = s.effort_since().plus_seconds(f64::from(row.deadline_seconds));
    // A wait that rounds to nothing would make the run due at this very moment, for ever.
    let seconds = seconds.max(SHORTEST_WAIT_SECONDS);
    let recheck_at = s.now.plus_seconds(seconds).min(deadline.max(s.now.plus_seconds(1.0)));
    Decision::Wait {
        wait: Wait {
            code: code.to_owned(),
            text: text.into(),
            since: s.run.step_since,
            expected_by: Some(s.effort_since().plus_seconds(s.expected.seconds)),
            expected_from: Some(s.expected.from),
            deadline: Some(deadline),
        },
        recheck_at,
    }
}

/// Waits for MAAS to report a change; reads the machine when the feed has been silent for long.
pub(crate) fn wait_for_maas(s: &Snapshot<'_>, code: &str, text: impl Into<String>) -> Decision {
    let heard = s.observation.map_or(s.run.step_since, |o| o.read_at.max(o.status_at));
    let quiet = s.now.seconds_since(heard.max(s.run.step_since));
    if quiet >= RECHECK_SECONDS {
        return read(s, Read::Machine);
    }
    wait(s, code, text, RECHECK_SECONDS - quiet)
}

/// Reads, unless the same read failed a moment ago: then backs off and says what is wrong.
pub(crate) fn read(s: &Snapshot<'_>, read: Read) -> Decision {
    if let Some(failure) = &s.run.memory.read_failure {
        let pause = f64::from(2u32.saturating_pow(failure.count.min(6))).min(60.0);
        let since = s.now.seconds_since(failure.at);
        if since < pause {
            let text = format!("MAAS does not answer ({}): {}", failure.code, failure.text);
            return wait(s, "maas_unavailable", text, pause - since);
        }
    }
    Decision::Read(read)
}

/// The step is done as of `at`.
pub(crate) fn advance(to: Step, at: Timestamp, notes: Vec<Note>) -> Decision {
    Decision::Advance { to, at, notes, checks: Vec::new() }
}

/// Whether a MAAS status is a failure state, in which `error_description` means something.
pub(crate) fn is_failure(number: i64) -> bool {
    matches!(
        number,
        status::FAILED_COMMISSIONING
            | status::FAILED_DEPLOYMENT
            | status::FAILED_DISK_ERASING
            | status::FAILED_TESTING
            | status::RELEASING_FAILED
            | status::BROKEN
    )
}

/// Results in which an operator's word stands in for a check that does not pass. The word is part
/// of the evidence, and it expires.
pub(crate) fn answered_for(s: &Snapshot<'_>, mut checks: Vec<CheckResult>) -> Vec<CheckResult> {
    for result in checks.iter_mut().filter(|result| !result.passed) {
        if let Some(word) = word_for(s, &result.name) {
            result.passed = true;
            result.evidence.insert_str(0, &format!("{word}; it says: "));
        }
    }
    checks
}

/// An operator's word that stands in for a check, while it lasts.
pub(crate) fn word_for(s: &Snapshot<'_>, name: &str) -> Option<String> {
    s.reports.iter().rev().find_map(|report| match &report.kind {
        ReportKind::CheckSkipped { check, actor, reason, until }
            if *check == name && s.now < *until =>
        {
            Some(format!("skipped by {actor} until {until} ({reason})"))
        }
        _ => None,
    })
}

/// A named check's result.
pub(crate) fn check(
    s: &Snapshot<'_>,
    name: &str,
    passed: bool,
    evidence: impl Into<String>,
) -> CheckResult {
    CheckResult { name: name.to_owned(), passed, evidence: evidence.into(), at: s.now }
}

/// The machine as read in this step or later; else says to read it.
pub(crate) fn fresh_machine<'a>(s: &Snapshot<'a>) -> Result<&'a MachineView, Decision> {
    s.machine_since(s.run.step_since).ok_or_else(|| read(s, Read::Machine))
}

/// The machine as read in this step and no earlier than the latest word on its status: an event
/// says that something changed, a read says what is there now.
pub(crate) fn confirmed_machine<'a>(s: &Snapshot<'a>) -> Result<&'a MachineView, Decision> {
    let heard = s.observation.map_or(s.run.step_since, |o| o.status_at);
    s.machine_since(heard.max(s.run.step_since)).ok_or_else(|| read(s, Read::Machine))
}

/// Carries `effect` from intent to a known outcome.
///
/// `Ok(intent)` once MAAS took it; otherwise the decision that brings it closer. Callers check
/// their goal first, so an effect whose result is already there is never asked for.
pub(crate) fn drive<'a>(s: &Snapshot<'a>, effect: Effect) -> Result<&'a Intent, Decision> {
    let Some(intent) = s.run.memory.intent.as_ref().filter(|i| i.effect == effect) else {
        return Err(Decision::Do(effect));
    };
    match &intent.outcome {
        Some(Outcome::Accepted) => Ok(intent),
        Some(Outcome::NotSent { text, .. }) => Err(again(s, intent, effect, text)),
        Some(Outcome::Rejected { text, conflict, code }) => {
            Err(rejected(s, intent, effect, code, text, *conflict))
        }
        None | Some(Outcome::Unknown { .. }) => Err(probe(s, intent)),
    }
}

fn again(s: &Snapshot<'_>, intent: &Intent, effect: Effect, text: &str) -> Decision {
    if intent.number >= MAX_TRIES {
        return park(
            s,
            "maas_unavailable",
            format!("{} could not be sent {MAX_TRIES} times: {text}", effect.name()),
            Owner::InfraOperator,
            "bring MAAS back, then resume the run",
        );
    }
    let pause = f64::from(2u32.saturating_pow(intent.number)) * 2.0;
    let since = s.now.seconds_since(intent.ended_at.unwrap_or(intent.at));
    if since < pause {
        return wait(
            s,
            "maas_unavailable",
            format!("{} not sent: {text}", effect.name()),
            pause - since,
        );
    }
    Decision::Do(effect)
}

fn rejected(
    s: &Snapshot<'_>,
    intent: &Intent,
    effect: Effect,
    code: &str,
    text: &str,
    conflict: bool,
) -> Decision {
    let ended = intent.ended_at.unwrap_or(intent.at);
    let reread = looked_at(s, &effect).is_some_and(|at| at > ended);
    if !reread && effect.trace() != Trace::Candidates {
        return read(s, look(&effect));
    }
    if conflict && intent.number < MAX_TRIES {
        return again(s, intent, effect, text);
    }
    park(
        s,
        code,
        format!("MAAS refused {}: {text}", effect.name()),
        Owner::InfraOperator,
        "correct what MAAS names, then resume the run",
    )
}

/// What to read to find out what became of an effect.
const fn look(effect: &Effect) -> Read {
    match effect.trace() {
        Trace::Candidates => Read::FindMachine,
        Trace::Scripts => Read::RegionScripts,
        Trace::Machine => Read::Machine,
    }
}

/// When that was last asked of MAAS.
fn looked_at(s: &Snapshot<'_>, effect: &Effect) -> Option<Timestamp> {
    let memory = &s.run.memory;
    match effect.trace() {
        Trace::Candidates => memory.found.as_ref().map(|found| found.asked_at),
        Trace::Scripts => memory.region_scripts.as_ref().map(|region| region.asked_at),
        Trace::Machine => s.observation.map(|o| o.read_at),
    }
}

/// Whether the latest look shows the effect.
fn happened(s: &Snapshot<'_>, intent: &Intent) -> bool {
    match &intent.effect {
        Effect::CreateMachine => {
            s.run.memory.found.as_ref().is_some_and(|found| !found.candidates.is_empty())
        }
        Effect::RegisterScript { name, digest, .. } => {
            let region = s.run.memory.region_scripts.as_ref();
            region.is_some_and(|region| region.digests.get(name) == Some(digest))
        }
        effect => s.observation.is_some_and(|o| effect.probe(intent.before, o) == Probe::Happened),
    }
}

fn probe(s: &Snapshot<'_>, intent: &Intent) -> Decision {
    let known_at = intent.ended_at.unwrap_or(intent.at);
    let Some(asked_at) = looked_at(s, &intent.effect).filter(|at| *at > known_at) else {
        return read(s, look(&intent.effect));
    };
    if happened(s, intent) {
        return Decision::Settle { happened: true };
    }
    if asked_at.seconds_since(intent.at) >= intent.effect.settle_seconds() {
        if intent.number >= MAX_TRIES {
            return park(
                s,
                "unknown_outcome_unresolved",
                format!(
                    "{} was tried {MAX_TRIES} times and never took effect",
                    intent.effect.name()
                ),
                Owner::InfraOperator,
                "look at MAAS' log for the request, then resume the run",
            );
        }
        return Decision::Settle { happened: false };
    }
    let since = s.now.seconds_since(asked_at);
    if since < PROBE_SECONDS {
        let text =
            format!("whether MAAS took {}: no answer came, so we look", intent.effect.name());
        return wait(s, "unknown_outcome", text, PROBE_SECONDS - since);
    }
    read(s, look(&intent.effect))
}
