//! Carries out what was decided about a run: one function for each decision.

use std::sync::Arc;

use gpuaas_core::decide::change_guard::{GuardedEffect, admit};
use gpuaas_core::effect::{Effect, Outcome};
use gpuaas_core::snapshot::Decision;
use gpuaas_store::{NewTask, StoreError};
use gpuaas_types::agent::TaskSpec;
use gpuaas_types::api::{Park, Source, Wait};
use gpuaas_types::codes::{ParkCode, TimelineCode, WaitCode};
use gpuaas_types::failure::FailureClass;
use gpuaas_types::{Step, TaskId, Timestamp};
use tracing::Instrument as _;

use crate::loops::failpoint::Failpoint;
use crate::run::effects::{perform_effect, prepare_effect};
use crate::run::lease::{Lease, renew_lease_while};
use crate::run::reads::perform_read;
use crate::run::session::RunSession;
use crate::shared::Shared;
use crate::site::circuit_breaker::Outage;
use crate::site::ownership;
use crate::site::{CallError, Site};

/// Seconds for which a task may wait for its agent.
const TASK_SECONDS: f64 = 3600.0;
/// Seconds after which a run whose site could not be used tries again.
const SITE_SECONDS: f64 = 60.0;

/// Seconds after which a run whose region is away looks again by itself; the end of the outage
/// wakes it before.
const AWAY_SECONDS: f64 = 30.0;

/// Seconds for which a change may wait for its region to say that it is back; after more the run is
/// decided on again.
const ADMITTED_SECONDS: f64 = 5.0;

/// Whether the run goes on in this worker's hands.
#[derive(PartialEq, Eq)]
pub(crate) enum Flow {
    /// It is decided on again.
    On,
    /// It rests and its lease is given back.
    Released,
}

/// Carries out one decision.
///
/// # Errors
/// The store's.
pub(crate) async fn apply_decision(
    shared: &Shared,
    session: &mut RunSession,
    decision: Decision,
    now: Timestamp,
) -> Result<Flow, StoreError> {
    let next_step = decision.next_step(&session.run);
    match decision {
        Decision::Read(read) => match connection(session) {
            Ok(site) => {
                let (run, lease) = (session.run.clone(), Lease::new(shared, &session.run));
                let reading = perform_read(shared, &site, session, read);
                renew_lease_while(shared, &run, &lease, reading).await;
            }
            Err(wait) => return rest(shared, session, wait, now.plus_seconds(SITE_SECONDS)).await,
        },
        Decision::Do(effect) => {
            let span = tracing::info_span!("effect", effect = effect.kind().as_str());
            let admitted = admit(&session.snapshot(now), effect);
            return match (admitted, connection(session)) {
                (Ok(effect), Ok(site)) => {
                    run_effect(shared, &site, session, effect).instrument(span).await
                }
                (Ok(_), Err(wait)) => {
                    rest(shared, session, wait, now.plus_seconds(SITE_SECONDS)).await
                }
                (Err(instead), _) => Box::pin(apply_decision(shared, session, instead, now)).await,
            };
        }
        Decision::Settle { happened } => settle_intent(session, happened, now),
        Decision::Adopt { system_id, origin } => {
            session.run.state.origin = Some(origin);
            session.keep_power_of_candidate(&system_id);
            session.bind_machine(&system_id);
            return commit_binding(shared, session, now).await;
        }
        Decision::IssueTask(spec) => issue_task(shared, session, spec, now),
        Decision::Next { at, notes, checks } | Decision::AdvanceTo { at, notes, checks, .. } => {
            let Some(step) = next_step else {
                let text = format!(
                    "a bug in GPUaaS stopped the run: {} has no step after {}",
                    session.run.kind, session.run.step
                );
                session.park(internal_park(ParkCode::InternalError, text, now));
                session.commit(&shared.store, now, true).await?;
                return Ok(Flow::Released);
            };
            session.add_checks(checks);
            session.add_notes(at, notes);
            let left = session.run.step;
            session.advance(step, at, now);
            if left == Step::ReleaseForRetry {
                // The checks before the next deployment look at the tokens that are stored.
                session.commit(&shared.store, now, false).await?;
            }
        }
        Decision::Wait { wait, recheck_at } => {
            return rest(shared, session, wait, recheck_at).await;
        }
        Decision::Park { park, checks } => {
            session.add_checks(checks);
            session.park(park);
            session.commit(&shared.store, now, true).await?;
            return Ok(Flow::Released);
        }
        Decision::Finish { status, notes, checks } => {
            session.add_checks(checks);
            session.add_notes(now, notes);
            session.finish(status, now);
            session.commit(&shared.store, now, true).await?;
            return Ok(Flow::Released);
        }
    }
    Ok(Flow::On)
}

/// Writes the intent, makes the call, notes the outcome. The outcome is committed with whatever
/// comes next; if the process dies before that, the intent is probed.
async fn run_effect(
    shared: &Shared,
    site: &Site,
    session: &mut RunSession,
    guarded: GuardedEffect,
) -> Result<Flow, StoreError> {
    let asked_at = shared.clock.now();
    let mut admitted = Ok(());
    let (run, lease) = (session.run.clone(), Lease::new(shared, &session.run));
    renew_lease_while(shared, &run, &lease, async { admitted = site.admit().await }).await;
    if admitted.is_ok() && shared.clock.now().seconds_since(asked_at) > ADMITTED_SECONDS {
        // The region was asked first, and took its time: what was read before may be old by now.
        return Ok(Flow::On);
    }
    if let Err(CallError::Away(outage)) = admitted {
        // No intent: nothing is tried.
        let wait = wait_for_return(session, outage);
        let at = shared.clock.now().plus_seconds(AWAY_SECONDS);
        return rest(shared, session, wait, at).await;
    }
    if let Some(control) = ownership::refuses_change(shared, site.record.id).await? {
        let wait = wait_without_deadline(session, control.code, control.text);
        let at = shared.clock.now().plus_seconds(AWAY_SECONDS);
        return rest(shared, session, wait, at).await;
    }
    let now = shared.clock.now();
    let prepared = match prepare_effect(shared, session, guarded.effect()).await {
        Ok(prepared) => prepared,
        Err(text) => {
            session.park(internal_park(ParkCode::EffectNotPrepared, text, now));
            session.commit(&shared.store, now, true).await?;
            return Ok(Flow::Released);
        }
    };
    if matches!(guarded.effect(), Effect::Deploy { .. }) {
        session.note(
            now,
            Source::ControlPlane,
            TimelineCode::DeployStarted,
            "deployment submitted",
        );
    }
    let intent = session.begin_intent(guarded, &*shared.ids, now);
    session.resume_work(now.plus_seconds(shared.config.lease_seconds));
    session.commit(&shared.store, now, false).await?;
    session.reach(Failpoint::Call).await;
    let (run, lease) = (session.run.clone(), Lease::new(shared, &session.run));
    let call = perform_effect(shared, site, session, &lease, &intent, prepared);
    renew_lease_while(shared, &run, &lease, call).await;
    session.reach(Failpoint::Called).await;
    if let Some(outcome) = session.run.state.intent.as_ref().and_then(|i| i.outcome.clone()) {
        log_outcome(&outcome);
        note_outcome(session, &outcome, shared.clock.now());
    }
    Ok(Flow::On)
}

fn log_outcome(outcome: &Outcome) {
    match outcome {
        Outcome::Accepted => tracing::info!("effect accepted"),
        Outcome::Rejected { code, .. } => tracing::info!(code, "effect rejected"),
        Outcome::NotSent { code, .. } => tracing::info!(code, "effect not sent"),
        Outcome::Unknown { code, .. } => tracing::info!(code, "effect outcome unknown"),
    }
}

fn note_outcome(session: &mut RunSession, outcome: &Outcome, now: Timestamp) {
    let Some(intent) = &session.run.state.intent else {
        return;
    };
    let name = intent.effect.kind();
    let (source, code, text) = match outcome {
        Outcome::Accepted => return,
        // Another run made the same script or tag between our read and our call: the next read shows it,
        // and where it does not the run parks with this text.
        Outcome::Rejected { text, .. } if was_made_by_another(&intent.effect, text) => return,
        Outcome::Rejected { text, .. } => {
            (Source::Maas, TimelineCode::EffectRejected, format!("MAAS refused {name}: {text}"))
        }
        Outcome::NotSent { text, .. } => (
            Source::ControlPlane,
            TimelineCode::EffectNotSent,
            format!("{name} was not sent: {text}"),
        ),
        Outcome::Unknown { text, .. } => (
            Source::ControlPlane,
            TimelineCode::UnknownOutcome,
            format!("no answer to {name}, so GPUaaS will check whether it happened: {text}"),
        ),
    };
    session.note(now, source, code, text);
}

/// Whether MAAS refused to create what the whole region shares because it is there by now.
fn was_made_by_another(effect: &Effect, text: &str) -> bool {
    let creates = matches!(
        effect,
        Effect::RegisterScript { replace: false, .. } | Effect::WriteTag { replaces: None, .. }
    );
    creates && text.to_ascii_lowercase().contains("already exists")
}

fn settle_intent(session: &mut RunSession, happened: bool, now: Timestamp) {
    let name = session.run.state.intent.as_ref().map_or("effect", |i| i.effect.kind().as_str());
    let text = if happened {
        format!("{name} took effect: the machine shows it")
    } else {
        format!("{name} did not take effect: the machine is unchanged")
    };
    session.note(now, Source::ControlPlane, TimelineCode::OutcomeSettled, text.clone());
    if happened {
        session.end_intent(Outcome::Accepted, now);
    } else {
        session.end_intent(Outcome::did_not_happen(text), now);
    }
}

/// Commits a binding at once: the store knows whether another node holds the machine.
async fn commit_binding(
    shared: &Shared,
    session: &mut RunSession,
    now: Timestamp,
) -> Result<Flow, StoreError> {
    session.run.lease_until = now.plus_seconds(shared.config.lease_seconds);
    match session.commit(&shared.store, now, false).await {
        Ok(()) => Ok(Flow::On),
        Err(StoreError::Conflict { detail, .. }) => {
            let found = session.run.state.found.iter().flat_map(|found| &found.candidates);
            let evidence = found.map(|candidate| {
                let by = candidate.matched_by.join(" and ");
                format!(
                    "MAAS lists {} as {} (matched by {by})",
                    candidate.hostname, candidate.system_id
                )
            });
            let evidence = evidence.collect();
            session.unbind_machine();
            session.park(Park { evidence, ..internal_park(ParkCode::MachineHeld, detail, now) });
            session.commit(&shared.store, now, true).await?;
            Ok(Flow::Released)
        }
        Err(error) => Err(error),
    }
}

fn issue_task(shared: &Shared, session: &mut RunSession, spec: TaskSpec, now: Timestamp) {
    let (code, text) = match &spec {
        TaskSpec::Diagnostics { .. } | TaskSpec::Validate { .. } => {
            (TimelineCode::DiagnosticsIssued, "diagnostics task")
        }
        TaskSpec::SoftReset {} => (TimelineCode::SoftResetIssued, "soft reset"),
        TaskSpec::StorageCleanup {} => (TimelineCode::StorageCleanupIssued, "storage cleanup"),
        TaskSpec::Reboot { .. } => (TimelineCode::RebootIssued, "reboot"),
        TaskSpec::Slice { slice } => (TimelineCode::OperationIssued, slice.action.as_str()),
        TaskSpec::Operate { operation, .. } => (TimelineCode::OperationIssued, operation.kind()),
    };
    session.add_task(NewTask {
        id: TaskId::new(&*shared.ids, now),
        spec,
        expires_at: now.plus_seconds(TASK_SECONDS),
    });
    session.note(now, Source::ControlPlane, code, format!("{text} sent to the agent"));
}

/// Has the run wait, and gives its lease back.
async fn rest(
    shared: &Shared,
    session: &mut RunSession,
    wait: Wait,
    recheck_at: Timestamp,
) -> Result<Flow, StoreError> {
    let now = shared.clock.now();
    session.wait(wait, recheck_at);
    session.commit(&shared.store, now, true).await?;
    Ok(Flow::Released)
}

/// The run's region, or what the run waits for where its site cannot be used.
fn connection(session: &RunSession) -> Result<Arc<Site>, Wait> {
    let error = match &session.context.connection {
        Ok(site) => return Ok(Arc::clone(site)),
        Err(error) => error,
    };
    if matches!(error, CallError::Key(_)) {
        return Err(wait_without_deadline(session, error.code().to_owned(), error.to_string()));
    }
    let (row, since) = (session.run.step.row(), session.run.step_since);
    let expected = session.context.durations.expected(session.run.step);
    Err(Wait {
        code: WaitCode::from_code(error.code()).unwrap_or(WaitCode::SiteUnusable).into(),
        text: format!("the site to become usable: {error}"),
        since,
        expected_by: Some(since.plus_seconds(expected.seconds)),
        expected_from: Some(expected.from),
        deadline: Some(since.plus_seconds(f64::from(row.deadline_seconds))),
    })
}

/// What a run waits for that is about to change something in a region that is away.
fn wait_for_return(session: &RunSession, outage: Outage) -> Wait {
    wait_without_deadline(session, outage.cause.wait_code().into(), outage.to_string())
}

/// What a run waits for that nothing of its own can end.
fn wait_without_deadline(session: &RunSession, code: String, text: String) -> Wait {
    let expected = session.context.durations.expected(session.run.step);
    let since = session.run.step_since;
    Wait {
        code,
        text,
        since,
        expected_by: Some(since.plus_seconds(expected.seconds)),
        expected_from: Some(expected.from),
        deadline: None,
    }
}

/// A park that no decision made: its owner and advice are those of its code.
pub(crate) fn internal_park(code: ParkCode, text: String, now: Timestamp) -> Park {
    Park {
        code: code.into(),
        text,
        since: now,
        owner: code.row().owner,
        evidence: Vec::new(),
        next_action: code.row().next_action.to_owned(),
        actions: Vec::new(),
        failure_class: Some(FailureClass::of_park(code)),
        looks_again_at: None,
    }
}
