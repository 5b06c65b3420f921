//! From a machine that MAAS knows to Ready, with the scripts of the profile's commissioning bundle.
//!
//! A script is registered in MAAS under a name that holds a piece of its digest, so what the region
//! has under a name is either ours or was changed by hand, and then it is put right. What a
//! selection must not do is lose what MAAS runs by itself (docs/maas.md#commissioning): its own
//! commissioning scripts run always, but scripts that somebody added run by default only where none
//! is selected, and so do the default tests. Therefore both are named in the selection, beside
//! ours.
//!
//! Afterwards the result of each script is a check of the run. The results in MAAS are all that
//! counts: a machine that somebody commissioned with these scripts before needs it no second time,
//! and one without results is commissioned also where MAAS says Ready.

use gpuaas_types::EffectKind;
use gpuaas_types::api::CheckResult;
use gpuaas_types::codes::{ParkCode, TimelineCode, WaitCode};
use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::scripts::{MaasScript, ScriptKind, script_status};

use super::decisions::{
    confirmed_machine, next, park, park_with_checks, read, wait, wait_for_maas,
};
use super::drive::drive_effect;
use crate::effect::{Effect, Intent, Outcome, ScriptSelection};
use crate::run_state::{ScriptOutcome, ScriptResults};
use crate::snapshot::{Decision, Note, Read, Snapshot};

/// Sees to it that MAAS has every script of the bundle, with the text that it should have.
#[must_use]
pub fn register_scripts(s: &Snapshot<'_>) -> Decision {
    let Some(scripts) = s.commissioning else {
        return bundle_missing(s);
    };
    if scripts.is_empty() {
        return next(s.now, Vec::new());
    }
    let known = s.run.state.region_scripts.as_ref();
    let Some(region) = known.filter(|region| region.asked_at >= s.effort_since()) else {
        return read(s, Read::RegionScripts);
    };
    for script in scripts {
        let there = region.digests.get(&script.name);
        if there == Some(&script.digest) {
            continue;
        }
        let effect = Effect::RegisterScript {
            name: script.name.clone(),
            digest: script.digest.clone(),
            replace: there.is_some(),
        };
        return match drive_effect(s, effect) {
            Err(decision) => decision,
            Ok(intent) if region.asked_at <= intent.ended_at.unwrap_or(intent.at) => {
                read(s, Read::RegionScripts)
            }
            Ok(_) => park(
                s,
                ParkCode::ScriptNotAsAsked,
                format!("MAAS accepted script {} but shows different content", script.name),
            ),
        };
    }
    let names = scripts.iter().map(|script| script.name.as_str()).collect::<Vec<_>>().join(", ");
    next(s.now, vec![Note::new(TimelineCode::ScriptsRegistered, names)])
}

fn bundle_missing(s: &Snapshot<'_>) -> Decision {
    park(
        s,
        ParkCode::CommissioningBundleMissing,
        format!("commissioning bundle {} does not exist", s.profile.commissioning_bundle_ref),
    )
}

/// Commissions until MAAS says Ready and every script of the bundle passed.
#[must_use]
pub fn commission(s: &Snapshot<'_>) -> Decision {
    let Some(number) = s.status() else {
        return read(s, Read::Machine);
    };
    let Some(scripts) = s.commissioning else {
        return bundle_missing(s);
    };
    match number {
        status::READY => match confirmed_machine(s) {
            Ok(machine) if machine.status == status::READY => {
                judge_ready_machine(s, machine, scripts)
            }
            Ok(_) => wait_for_maas(s, WaitCode::MaasCommissioning, "MAAS to finish commissioning"),
            Err(decision) => decision,
        },
        status::COMMISSIONING | status::TESTING => wait_for_maas(
            s,
            WaitCode::MaasCommissioning,
            format!("MAAS reports {}", status::label(number)),
        ),
        status::FAILED_COMMISSIONING | status::FAILED_TESTING => {
            judge_failed_machine(s, number, scripts)
        }
        status::NEW | status::BROKEN => commission_once(s, scripts),
        other => {
            confirmed_machine(s).map_or_else(|decision| decision, |_| park_machine_taken(s, other))
        }
    }
}

fn park_machine_taken(s: &Snapshot<'_>, number: i64) -> Decision {
    park(
        s,
        ParkCode::MachineTaken,
        format!(
            "MAAS reports {}: someone changed the machine before it was commissioned",
            status::label(number)
        ),
    )
}

/// The intent of this step, where its fate is not that MAAS took it.
fn unsettled_intent<'a>(s: &Snapshot<'a>) -> Option<&'a Intent> {
    let intent = s.run.state.intent.as_ref()?;
    (intent.outcome != Some(Outcome::Accepted)).then_some(intent)
}

/// What an open intent needs before results are judged, which may be older than it.
fn settle_intent_first(s: &Snapshot<'_>) -> Option<Decision> {
    unsettled_intent(s).and_then(|intent| drive_effect(s, intent.effect.clone()).err())
}

fn judge_ready_machine(
    s: &Snapshot<'_>,
    machine: &MachineView,
    scripts: &[MaasScript],
) -> Decision {
    let checks = match script_checks(s, scripts) {
        Ok(checks) => checks,
        Err(decision) => return decision,
    };
    if checks.iter().any(|check| !check.passed) {
        if let Some(decision) = settle_intent_first(s) {
            return decision;
        }
        return if commissioned_since_resume(s) {
            park_script_failed(s, checks)
        } else {
            commission_again(s, scripts)
        };
    }
    let text = format!(
        "{}, {} disks, {} interfaces",
        machine.hardware,
        machine.disks.len(),
        machine.nics.len()
    );
    let mut notes = vec![Note::new(TimelineCode::Commissioned, text)];
    if !checks.is_empty() {
        let text = format!("all {} bundle scripts passed", checks.len());
        notes.push(Note::new(TimelineCode::CommissioningScriptsPassed, text));
    }
    Decision::Next { at: s.now, notes, checks }
}

/// MAAS says that the commissioning or a test failed: our scripts are distinguished from everything else.
fn judge_failed_machine(s: &Snapshot<'_>, number: i64, scripts: &[MaasScript]) -> Decision {
    if scripts.is_empty() {
        return handle_other_failure(s, number, scripts);
    }
    if let Some(decision) = settle_intent_first(s) {
        return decision;
    }
    let (results, checks) = match (fresh_results(s), script_checks(s, scripts)) {
        (Ok(results), Ok(checks)) => (results, checks),
        (Err(decision), _) | (_, Err(decision)) => return decision,
    };
    let ours = |script: &&MaasScript| results.find(&script.name).is_some_and(has_failed);
    let ours: Vec<&MaasScript> = scripts.iter().filter(ours).collect();
    let open = ours.iter().any(|script| {
        checks.iter().any(|check| check.name == script.check_name() && !check.passed)
    });
    let others = results.outcomes.iter().filter(|o| has_failed(o)).count() > ours.len();
    if open && commissioned_since_resume(s) {
        return park_script_failed(s, checks);
    }
    match number {
        // MAAS commissions no machine in Failed testing (docs/maas.md#commissioning). Ours were
        // answered for, or are to run again now that an operator had the run go on.
        status::FAILED_TESTING if !ours.is_empty() && !others => {
            match drive_effect(s, Effect::OverrideFailedTesting) {
                Ok(_) => {
                    wait_for_maas(s, WaitCode::MaasOverriding, "MAAS to mark the machine Ready")
                }
                Err(decision) => decision,
            }
        }
        status::FAILED_COMMISSIONING if open => commission_again(s, scripts),
        _ => handle_other_failure(s, number, scripts),
    }
}

fn handle_other_failure(s: &Snapshot<'_>, number: i64, scripts: &[MaasScript]) -> Decision {
    if number == status::FAILED_TESTING {
        let stopped = |_| park(s, ParkCode::HardwareTestFailed, "a MAAS hardware test failed");
        return confirmed_machine(s).map_or_else(|decision| decision, stopped);
    }
    if let Err(decision) = require_region_scripts(s, scripts) {
        return decision;
    }
    let tried = s.run.state.tries.get(&EffectKind::Commission).copied().unwrap_or(0);
    let same =
        s.run.state.intent.as_ref().is_none_or(|i| i.effect == commission_effect(s, scripts));
    if tried >= COMMISSION_TRIES && same {
        return park(s, ParkCode::CommissioningFailed, "MAAS reports that commissioning failed");
    }
    if is_failure_settled(s) { commission_again(s, scripts) } else { commission_once(s, scripts) }
}

/// Commissionings in one visit of the step before the run parks.
const COMMISSION_TRIES: u32 = 2;

/// Commissions, or waits for a commissioning that MAAS took to begin.
fn commission_once(s: &Snapshot<'_>, scripts: &[MaasScript]) -> Decision {
    if let Err(decision) = require_region_scripts(s, scripts) {
        return decision;
    }
    // A word that came meanwhile may have changed what is wanted; what is under way comes first.
    let open = unsettled_intent(s).map(|intent| intent.effect.clone());
    match drive_effect(s, open.unwrap_or_else(|| commission_effect(s, scripts))) {
        Ok(intent) => handle_reverted_commissioning(s, scripts, intent),
        Err(decision) => decision,
    }
}

/// Commissions once more.
fn commission_again(s: &Snapshot<'_>, scripts: &[MaasScript]) -> Decision {
    match require_region_scripts(s, scripts) {
        Ok(()) => Decision::Do(commission_effect(s, scripts)),
        Err(decision) => decision,
    }
}

/// What a selection has to name beside ours is known; it was read when ours were registered.
fn require_region_scripts(s: &Snapshot<'_>, scripts: &[MaasScript]) -> Result<(), Decision> {
    if scripts.is_empty() || s.run.state.region_scripts.is_some() {
        return Ok(());
    }
    Err(read(s, Read::RegionScripts))
}

/// A commissioning with the scripts of the bundle, but those that an operator answers for.
fn commission_effect(s: &Snapshot<'_>, scripts: &[MaasScript]) -> Effect {
    let of = |kind| -> Vec<String> {
        let chosen = scripts
            .iter()
            .filter(|script| script.kind == kind && s.check_skip(&script.check_name()).is_none());
        chosen.map(|script| script.name.clone()).collect()
    };
    let mut choice = ScriptSelection {
        commissioning: of(ScriptKind::Commissioning),
        testing: of(ScriptKind::Testing),
    };
    let region = s.run.state.region_scripts.as_ref();
    if !choice.commissioning.is_empty() {
        let automatic = region.map(|region| region.automatic.as_slice()).unwrap_or_default();
        let other = automatic.iter().filter(|name| !scripts.iter().any(|s| s.name == **name));
        choice.commissioning.extend(other.cloned());
    }
    if !choice.testing.is_empty() && region.is_some_and(|region| region.default_tests) {
        choice.testing.insert(0, DEFAULT_TESTS.to_owned());
    }
    Effect::Commission { scripts: choice }
}

/// Tag of the tests that MAAS runs where none is selected.
pub const DEFAULT_TESTS: &str = "commissioning";

/// Whether a commissioning was asked for since the step began, or since an operator last had the
/// run go on. Results from before that were answered by the word to go on.
fn commissioned_since_resume(s: &Snapshot<'_>) -> bool {
    s.run.state.intended_at.get(&EffectKind::Commission).is_some_and(|at| *at >= s.effort_since())
}

/// Results read no earlier than the latest word on the machine's status.
fn fresh_results<'a>(s: &Snapshot<'a>) -> Result<&'a ScriptResults, Decision> {
    let heard = s.observation.map_or(s.run.step_since, |o| o.status_at).max(s.run.step_since);
    let known = s.run.state.script_results.as_ref().filter(|results| results.asked_at >= heard);
    known.ok_or_else(|| read(s, Read::ScriptResults))
}

/// A check for each script of the bundle.
fn script_checks(s: &Snapshot<'_>, scripts: &[MaasScript]) -> Result<Vec<CheckResult>, Decision> {
    if scripts.is_empty() {
        return Ok(Vec::new());
    }
    let results = fresh_results(s)?;
    let of = |script: &MaasScript| {
        let outcome = results.find(&script.name);
        let passed = outcome.is_some_and(|o| o.status == script_status::PASSED);
        let evidence = outcome.map_or_else(
            || format!("MAAS has no result for script {}", script.name),
            ScriptOutcome::evidence,
        );
        s.check(&script.check_name(), passed, evidence)
    };
    Ok(s.apply_check_skips(scripts.iter().map(of).collect()))
}

fn has_failed(outcome: &ScriptOutcome) -> bool {
    script_status::FAILURES.contains(&outcome.status)
}

fn park_script_failed(s: &Snapshot<'_>, checks: Vec<CheckResult>) -> Decision {
    let failed: Vec<&str> =
        checks.iter().filter(|c| !c.passed).map(|c| c.evidence.as_str()).collect();
    let text = failed.join("; ");
    park_with_checks(s, ParkCode::CommissioningScriptFailed, text, checks)
}

/// Whether the last commissioning was taken by MAAS, so that its failure is a new fact.
fn is_failure_settled(s: &Snapshot<'_>) -> bool {
    s.run.state.intent.as_ref().is_some_and(|i| {
        i.outcome == Some(Outcome::Accepted)
            && i.effect.kind() == EffectKind::Commission
            && s.observation.is_some_and(|o| {
                o.read_at > i.at
                    && o.machine.as_ref().is_some_and(|m| m.status == status::FAILED_COMMISSIONING)
            })
    })
}

/// MAAS took the commissioning but still shows the status from before: either the feed is behind,
/// or a power failure made MAAS revert it (docs/maas.md#unknown-outcomes). A read tells.
fn handle_reverted_commissioning(
    s: &Snapshot<'_>,
    scripts: &[MaasScript],
    intent: &Intent,
) -> Decision {
    let accepted_at = intent.ended_at.unwrap_or(intent.at);
    let known_since = accepted_at.plus_seconds(0.000_001).max(s.effort_since());
    if s.machine_since(known_since).is_none() {
        return read(s, Read::Machine);
    }
    // An operator let the run go on after this one had come to nothing.
    if accepted_at < s.effort_since() {
        return commission_again(s, scripts);
    }
    if s.now.seconds_since(accepted_at) < 30.0 {
        return wait(s, WaitCode::MaasCommissioning, "MAAS to start commissioning", 10.0);
    }
    park(
        s,
        ParkCode::CommissioningReverted,
        "MAAS accepted the commissioning, then reverted it, as it does when the BMC does not \
         answer",
    )
}
