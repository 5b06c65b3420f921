//! How decisions are built: parks with their evidence, waits with their deadline, reads that back
//! off, and the machine as fresh as a step needs it.

use gpuaas_types::api::{CheckResult, Owner, Park, Wait};
use gpuaas_types::codes::ParkCode;
use gpuaas_types::codes::WaitCode;
use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::{Step, Timestamp};

use crate::effect::Outcome;
use crate::failure::{self, FailureClass};
use crate::run_state::ReadFailure;
use crate::snapshot::{Decision, Note, Read, Snapshot};

/// Seconds between two reads of a machine whose events say nothing. Events carry the changes; this
/// is for the case that the feed lost one.
const RECHECK_SECONDS: f64 = 900.0;
/// Shortest time after which a waiting run is due again.
const SHORTEST_WAIT_SECONDS: f64 = 0.001;

/// Parks the run.
pub(crate) fn park(s: &Snapshot<'_>, code: ParkCode, text: impl Into<String>) -> Decision {
    park_with_checks(s, code, text, Vec::new())
}

/// A park whose cause is known better than its code tells: another owner, another advice.
pub(crate) fn advised(mut decision: Decision, owner: Owner, next_action: String) -> Decision {
    if let Decision::Park { park, .. } = &mut decision {
        park.owner = owner;
        park.next_action = next_action;
    }
    decision
}

/// A park whose cause was stated: its class says more than its code.
pub(crate) fn classified(mut decision: Decision, class: FailureClass) -> Decision {
    if let Decision::Park { park, .. } = &mut decision {
        park.failure_class = Some(class);
    }
    decision
}

/// Parks the run with more to show, each thing once.
pub(crate) fn park_with_evidence(
    s: &Snapshot<'_>,
    code: ParkCode,
    text: impl Into<String>,
    more: Vec<String>,
) -> Decision {
    let mut decision = park_with_checks(s, code, text, Vec::new());
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
pub(crate) fn maas_warning(alarm: &str) -> String {
    format!("MAAS warned: {alarm}")
}

/// Parks the run with results of checks.
pub(crate) fn park_with_checks(
    s: &Snapshot<'_>,
    code: ParkCode,
    text: impl Into<String>,
    checks: Vec<CheckResult>,
) -> Decision {
    let mut evidence = Vec::new();
    if let Some(observation) = s.observation {
        evidence.push(format!(
            "MAAS reported {} {:.0} s ago",
            status::label(observation.status),
            s.now.seconds_since(observation.status_at)
        ));
        if let Some(machine) = &observation.machine
            && !machine.error_description.is_empty()
            && is_failed_status(observation.status)
        {
            evidence.push(format!("MAAS says: {}", machine.error_description));
        }
    }
    let alarm = s.observation.and_then(|o| o.alarm.as_ref());
    if let Some(alarm) = alarm.filter(|alarm| alarm.at >= s.run.step_since) {
        evidence.push(maas_warning(&alarm.text));
    }
    if let Some(intent) = &s.run.state.intent {
        let outcome = intent.outcome.as_ref().map_or("no outcome", Outcome::name);
        evidence.push(format!(
            "tried {} {} times, last: {outcome}",
            intent.effect.kind(),
            intent.number
        ));
    }
    evidence.extend(
        checks.iter().filter(|c| !c.passed).map(|c| format!("check {}: {}", c.name, c.evidence)),
    );
    Decision::Park {
        park: Park {
            code: code.into(),
            text: text.into(),
            since: s.now,
            owner: code.row().owner,
            evidence,
            next_action: code.row().next_action.to_owned(),
            actions: Vec::new(),
            failure_class: Some(failure::class_of_park(code, s.run.step)),
            looks_again_at: None,
        },
        checks,
    }
}

/// Waits for something named by `code` and `text`, looking again after `seconds`.
pub(crate) fn wait(
    s: &Snapshot<'_>,
    code: WaitCode,
    text: impl Into<String>,
    seconds: f64,
) -> Decision {
    let row = s.run.step.row();
    let deadline = s.patient_since().plus_seconds(f64::from(row.deadline_seconds));
    // A wait that rounds to nothing would make the run due at this very moment, for ever.
    let seconds = seconds.max(SHORTEST_WAIT_SECONDS);
    let recheck_at = s.now.plus_seconds(seconds).min(deadline.max(s.now.plus_seconds(1.0)));
    Decision::Wait {
        wait: Wait {
            code: code.into(),
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
pub(crate) fn wait_for_maas(s: &Snapshot<'_>, code: WaitCode, text: impl Into<String>) -> Decision {
    let heard = s.observation.map_or(s.run.step_since, |o| o.read_at.max(o.status_at));
    let quiet = s.now.seconds_since(heard.max(s.run.step_since));
    if quiet >= RECHECK_SECONDS {
        return read(s, Read::Machine);
    }
    wait(s, code, text, RECHECK_SECONDS - quiet)
}

/// Seconds after which a run asks a region again of which it is known that it does not answer.
/// Whoever finds that it answers wakes the run before.
const AWAY_SECONDS: f64 = 30.0;
/// Longest pause between two tries of a read, in seconds.
const LONGEST_PAUSE_SECONDS: f64 = 60.0;

/// Code of a read that was not waited for any more because the region had been away.
const GIVEN_UP: &str = "maas_answer_given_up";

/// What a run waits for after a call that failed with `code`, where that is the region's answer to
/// anybody; none: it concerns this call.
pub(crate) fn region_wait(code: &str) -> Option<WaitCode> {
    match WaitCode::from_code(code) {
        Some(
            known @ (WaitCode::SiteCircuitOpen
            | WaitCode::SiteKeyRefused
            | WaitCode::SiteKeyUnreadable
            | WaitCode::SiteClockWrong
            | WaitCode::MaasUnavailable),
        ) => Some(known),
        _ => match code {
            "maas_unknown_outcome" | "maas_auth_nonce_replay" => Some(WaitCode::MaasUnavailable),
            "maas_auth_clock_skew" => Some(WaitCode::SiteClockWrong),
            _ => code.starts_with("maas_auth_").then_some(WaitCode::SiteKeyRefused),
        },
    }
}

/// Waits for the region to answer at all. That has no deadline: nothing is wrong with the machine,
/// and the run goes on once the region does.
pub(crate) fn wait_for_region(
    s: &Snapshot<'_>,
    code: WaitCode,
    text: impl Into<String>,
    seconds: f64,
) -> Decision {
    let Decision::Wait { wait, .. } = wait(s, code, text, seconds) else {
        return Decision::Read(Read::Machine);
    };
    let recheck_at = s.now.plus_seconds(seconds.max(SHORTEST_WAIT_SECONDS));
    Decision::Wait { wait: Wait { deadline: None, ..wait }, recheck_at }
}

/// Reads, unless the same read failed a moment ago: then backs off and says what is wrong. Once
/// the region is back, nobody waits for the end of a pause.
pub(crate) fn read(s: &Snapshot<'_>, read: Read) -> Decision {
    let failure = s.run.state.read_failure.as_ref();
    let again = |failure: &ReadFailure| {
        failure.code == GIVEN_UP && failure.count <= 2 || s.answers_since(failure.at)
    };
    let Some(failure) = failure.filter(|failure| !again(failure)) else {
        return Decision::Read(read);
    };
    let away = region_wait(&failure.code);
    let doubled = f64::from(2u32.saturating_pow(failure.count.min(6)));
    let pause = match away {
        None | Some(WaitCode::MaasUnavailable) => doubled.min(LONGEST_PAUSE_SECONDS),
        Some(_) => AWAY_SECONDS,
    };
    let since = s.now.seconds_since(failure.at);
    if since >= pause {
        return Decision::Read(read);
    }
    match away {
        Some(WaitCode::MaasUnavailable) => {
            let text = format!("MAAS does not answer ({}): {}", failure.code, failure.text);
            wait_for_region(s, WaitCode::MaasUnavailable, text, pause - since)
        }
        Some(code) => wait_for_region(s, code, failure.text.clone(), pause - since),
        None => {
            let text = format!("MAAS does not answer ({}): {}", failure.code, failure.text);
            wait(s, WaitCode::MaasUnavailable, text, pause - since)
        }
    }
}

/// The step is done as of `at`; the run goes on with the next step of its kind.
pub(crate) const fn next(at: Timestamp, notes: Vec<Note>) -> Decision {
    Decision::Next { at, notes, checks: Vec::new() }
}

/// The step is done as of `at`; the run goes on with a side step, or back to an earlier one.
pub(crate) const fn advance_to(step: Step, at: Timestamp, notes: Vec<Note>) -> Decision {
    Decision::AdvanceTo { step, at, notes, checks: Vec::new() }
}

/// Whether a MAAS status is a failure state, in which `error_description` means something.
pub(crate) fn is_failed_status(number: i64) -> bool {
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

/// A word to go on, or a look of the parked run, is answered by another read of the machine before
/// anything is decided, whatever the step would rest on. None: there was none in this step, or the
/// machine was read since.
pub(crate) fn look_again(s: &Snapshot<'_>) -> Option<Decision> {
    let resumed = s.run.state.reads_count_since().filter(|at| *at >= s.run.step_since)?;
    let has_machine = s.run.kind.row().needs_maas && s.node.system_id.is_some();
    let looked = s.observation.is_some_and(|o| o.read_at >= resumed);
    (has_machine && !looked).then(|| read(s, Read::Machine))
}

/// The machine as read since the run works at this step; else says to read it. An operator's resume
/// is answered by another look, not by what was read before it.
pub(crate) fn fresh_machine<'a>(s: &Snapshot<'a>) -> Result<&'a MachineView, Decision> {
    s.machine_since(s.effort_since()).ok_or_else(|| read(s, Read::Machine))
}

/// The machine as read in this step and no earlier than the latest word on its status: an event
/// says that something changed, a read says what is there now.
pub(crate) fn confirmed_machine<'a>(s: &Snapshot<'a>) -> Result<&'a MachineView, Decision> {
    let heard = s.observation.map_or(s.run.step_since, |o| o.status_at);
    s.machine_since(heard.max(s.effort_since())).ok_or_else(|| read(s, Read::Machine))
}
