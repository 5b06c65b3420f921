//! From Ready to a deployed system that asks for its user-data.

use gpuaas_types::codes::{ParkCode, TimelineCode, WaitCode};
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::{EffectKind, Step, Timestamp};

use super::change_guard::{ExpectedUse, expected_use};
use super::decisions::{
    advance_to, advised, classified, confirmed_machine, maas_warning, next, park,
    park_with_evidence, read, wait, wait_for_maas,
};
use super::drive::drive_effect;
use super::machine_tag::tag_again;
use super::release::{ReleaseOptions, released_machine, released_note};
use crate::effect::{Effect, Intent, Outcome};
use crate::failure::{self, FailureStage, Retry};
use crate::policy;
use crate::run_state::DeployEvents;
use crate::snapshot::{Decision, Note, Read, Snapshot};

fn deploy_effect(s: &Snapshot<'_>) -> Effect {
    Effect::Deploy {
        distro_series: policy::normalise_distro_series(&s.profile.distro_series),
        enable_hw_sync: s.profile.require_hw_sync,
    }
}

/// When the current deployment was intended.
fn deploy_intended_at(s: &Snapshot<'_>) -> Timestamp {
    s.run.state.intended_at.get(&EffectKind::Deploy).copied().unwrap_or(s.run.step_since)
}

/// When curtin's reboot of the current deployment was seen.
fn rebooted_at(s: &Snapshot<'_>) -> Option<Timestamp> {
    s.observation.and_then(|o| o.rebooted_at).filter(|at| *at > deploy_intended_at(s))
}

/// The deployment that is under way, as it was asked for; else as the profile asks for it. A run
/// that got another revision of its profile meanwhile follows what it asked for to its end.
fn asked_deployment(s: &Snapshot<'_>) -> Effect {
    begun_deployment(s).map_or_else(|| deploy_effect(s), |intent| intent.effect.clone())
}

/// The deployment that is under way: MAAS took it, or it is not known whether it did.
fn begun_deployment<'a>(s: &Snapshot<'a>) -> Option<&'a Intent> {
    s.run.state.intent.as_ref().filter(|intent| {
        let without_effect =
            matches!(intent.outcome, Some(Outcome::Rejected { .. } | Outcome::NotSent { .. }));
        matches!(intent.effect, Effect::Deploy { .. }) && !without_effect
    })
}

/// Submits the deployment and follows it to curtin's reboot.
#[must_use]
pub fn deploy(s: &Snapshot<'_>) -> Decision {
    if begun_deployment(s).is_none()
        && let Some(decision) = tag_again(s)
    {
        return decision;
    }
    let intent = match drive_effect(s, asked_deployment(s)) {
        Ok(intent) => intent,
        Err(decision) => return decision,
    };
    match s.status() {
        Some(status::FAILED_DEPLOYMENT) => handle_failed_deployment(s),
        Some(status::DEPLOYED) => go_on_when_deployed(s, rebooted_at(s)),
        _ if rebooted_at(s).is_some() => go_on_when_written(rebooted_at(s).unwrap_or(s.now)),
        Some(status::DEPLOYING) => {
            wait_for_maas(s, WaitCode::MaasDeploying, "MAAS to write the image")
        }
        Some(status::ALLOCATED | status::READY | status::NEW) | None => {
            handle_reverted_deployment(s, intent.ended_at.unwrap_or(intent.at))
        }
        Some(other) => park_machine_taken(s, other),
    }
}

/// Somebody else had the machine before it was deployed, and gave it back: its disks and links may be
/// theirs, so they are set up again. None: nobody had it, or has it no longer.
pub(super) fn prepare_again(s: &Snapshot<'_>) -> Option<Decision> {
    let had_it = [ParkCode::MachineTaken, ParkCode::MachineRepurposed, ParkCode::MachineInUse];
    let prepared = matches!(s.run.step, Step::RoceLinks | Step::MachineTag | Step::Deploy);
    let free = prepared && expected_use(s) == ExpectedUse::Free;
    if !free || !s.run.state.looked_after_park(&had_it) {
        return None;
    }
    let machine = match confirmed_machine(s) {
        Ok(machine) => machine,
        Err(decision) => return Some(decision),
    };
    let step = match machine.status {
        status::READY => Step::PrepareStorage,
        status::NEW => Step::RegisterScripts,
        _ => return None,
    };
    let label = status::label(machine.status);
    let text = format!(
        "MAAS reports {label} again: others may have changed the machine, preparing it anew"
    );
    Some(advance_to(step, s.now, vec![Note::new(TimelineCode::DeployAgain, text)]))
}

/// Follows the deployed system to the moment it asks for its user-data.
#[must_use]
pub fn first_boot(s: &Snapshot<'_>) -> Decision {
    match s.status() {
        Some(status::DEPLOYED) => go_on_when_deployed(s, None),
        Some(status::FAILED_DEPLOYMENT) => handle_failed_deployment(s),
        Some(status::DEPLOYING) => wait_for_maas(
            s,
            WaitCode::FirstBoot,
            "the deployed system to fetch its user-data from MAAS",
        ),
        Some(status::ALLOCATED | status::READY | status::NEW) | None => {
            handle_reverted_deployment(s, s.run.step_since)
        }
        Some(other) => park_machine_taken(s, other),
    }
}

/// Ends the step as of curtin's reboot.
fn go_on_when_written(rebooted_at: Timestamp) -> Decision {
    let text = "MAAS reports that the machine is rebooting into the image";
    next(rebooted_at, vec![Note::new(TimelineCode::ImageWritten, text)])
}

/// Ends the step once MAAS says Deployed, as of the moment of that status.
fn go_on_when_deployed(s: &Snapshot<'_>, rebooted: Option<Timestamp>) -> Decision {
    let at = s.observation.map_or(s.now, |o| o.status_at);
    if s.run.step == Step::Deploy {
        return next(rebooted.unwrap_or(at), Vec::new());
    }
    next(
        at,
        vec![
            Note::new(TimelineCode::DeployFinished, "MAAS reports Deployed"),
            Note::new(
                TimelineCode::FirstBootObserved,
                "the deployed system fetched its user-data from MAAS",
            ),
        ],
    )
}

/// The feed may be behind, MAAS may have undone the deployment, or a person may have released the
/// machine. A read tells: MAAS itself goes back to Allocated (docs/maas.md#unknown-outcomes), a
/// release goes on to Ready or New.
fn handle_reverted_deployment(s: &Snapshot<'_>, since: Timestamp) -> Decision {
    let Some(machine) = s.machine_since(since.plus_seconds(0.000_001)) else {
        return read(s, Read::Machine);
    };
    if matches!(machine.status, status::READY | status::NEW) {
        return park_machine_taken(s, machine.status);
    }
    if let Some(decision) = deploy_after_resume(s) {
        return decision;
    }
    if s.now.seconds_since(since) < 30.0 {
        return wait(s, WaitCode::MaasDeploying, "MAAS to start the deployment", 5.0);
    }
    park(s, ParkCode::DeployReverted, "MAAS accepted the deployment, then reverted it")
}

/// Somebody else has the machine. The feed's word alone does not say so: it may tell what was before
/// the last read.
fn park_machine_taken(s: &Snapshot<'_>, number: i64) -> Decision {
    if let Err(decision) = confirmed_machine(s) {
        return decision;
    }
    if let Some(decision) = deploy_after_resume(s) {
        return decision;
    }
    let did = match number {
        status::RELEASING | status::DISK_ERASING | status::READY | status::NEW => "released",
        _ => "changed",
    };
    let label = status::label(number);
    park(
        s,
        ParkCode::MachineTaken,
        format!("MAAS reports {label}: someone {did} the machine during its deployment"),
    )
}

/// An operator let the run go on after the deployment had come to nothing: it is deployed again,
/// from Ready.
pub(super) fn deploy_after_resume(s: &Snapshot<'_>) -> Option<Decision> {
    let note =
        || Note::new(TimelineCode::DeployAgain, "an operator resumed the run: deploying again");
    s.run
        .state
        .resumed_after_park(&[
            ParkCode::MachineTaken,
            ParkCode::DeployReverted,
            ParkCode::DeployFailed,
        ])
        .then(|| advance_to(Step::ReleaseForRetry, s.now, vec![note()]))
}

/// A failed deployment: classified, and tried again where the profile's policy says so.
///
/// The class rests on the machine's events, which are asked for here: a read may show the failure
/// before the watcher has come to curtin's reboot in the feed, and a failure without that is
/// another one. Where they tell of the reboot and the feed does not yet, the image was written all
/// the same and it is the first boot that failed; the seconds up to the failure stay the
/// deployment's.
fn handle_failed_deployment(s: &Snapshot<'_>) -> Decision {
    let known_at = s.observation.map_or(s.now, |o| o.status_at);
    let Some(machine) = s.machine_since(known_at) else {
        return read(s, Read::Machine);
    };
    let events = s.run.state.deploy_events.as_ref().filter(|events| events.asked_at >= known_at);
    let Some(events) = events else {
        return read(s, Read::DeployEvents);
    };
    if events.rebooted && s.run.step == Step::Deploy {
        return go_on_when_written(rebooted_at(s).unwrap_or(known_at));
    }
    let description = &machine.error_description;
    let alarm = events.alarm.as_deref().unwrap_or_default();
    let row = failure::classify(stage_of(events), &[description, alarm]);
    let text = if alarm.is_empty() {
        description.clone()
    } else {
        format!("{description}; before: {alarm}")
    };
    let used = s.run.state.visits(Step::ReleaseForRetry);
    let allowed = s.profile.max_deploy_retry_attempts;
    let retry =
        row.retry == Retry::ByProfile && s.profile.enable_deploy_retry_on_datasource_failure;
    if s.run.state.retried_at.is_some_and(|at| at > deploy_intended_at(s)) {
        let text = format!("{}: {text}; an operator requested a retry", row.name());
        return advance_to(
            Step::ReleaseForRetry,
            s.now,
            vec![Note::new(TimelineCode::DeployFailed, text)],
        );
    }
    if retry && used < allowed {
        let text = format!("{}: {text}; retry {} of {allowed}", row.name(), used + 1);
        return advance_to(
            Step::ReleaseForRetry,
            s.now,
            vec![Note::new(TimelineCode::DeployFailed, text)],
        );
    }
    let why = if retry { format!(", after {used} retries") } else { String::new() };
    let parked = advised(
        park_with_evidence(
            s,
            ParkCode::DeployFailed,
            format!("deployment failed ({}){why}: {text}", row.name()),
            events.alarm.iter().map(|alarm| maas_warning(alarm)).collect(),
        ),
        row.owner,
        row.advice(),
    );
    classified(parked, row.class)
}

/// How far the deployment came, by the events of the machine.
const fn stage_of(events: &DeployEvents) -> FailureStage {
    match (events.rebooted, events.installing) {
        (true, _) => FailureStage::FirstBoot,
        (false, true) => FailureStage::Installation,
        (false, false) => FailureStage::BeforeInstallation,
    }
}

/// Releases a failed deployment: MAAS takes no second deploy otherwise (docs/maas.md#deploying).
#[must_use]
pub fn release_for_retry(s: &Snapshot<'_>) -> Decision {
    match released_machine(s, ReleaseOptions { erase: false, any_owner: false }) {
        Ok(machine) => {
            let note = released_note(s, machine, "failed deployment released");
            // A machine in New has lost its commissioning data.
            let step = match machine.status {
                status::NEW => Step::RegisterScripts,
                _ => Step::PrepareStorage,
            };
            advance_to(step, s.now, vec![note])
        }
        Err(decision) => decision,
    }
}
