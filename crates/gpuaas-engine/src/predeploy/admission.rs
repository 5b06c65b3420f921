//! The gate before a deployment: `batch_max_parallel` of the profile and of the site, and what the
//! site's image bandwidth carries of the profile's image. The narrowest limit counts.
//!
//! How many deploy is counted from the runs themselves, so nothing has to be given back when a
//! process dies. Counting and going through happen under one lock, so two runs of this process
//! never take the same place. Two processes that count in the same few milliseconds may exceed
//! the limit by one; the limit is about bandwidth, which bears that.
//!
//! The oldest run at the gate goes first. A run that leaves the deploying part wakes the oldest;
//! a wake that is lost costs half a minute, because every waiting run looks again by itself.

use gpuaas_core::policy;
use gpuaas_core::record::RunRecord;
use gpuaas_core::snapshot::{Decision, DeployQueue};
use gpuaas_store::{DeployLimitScope, StoreError};
use gpuaas_types::api::Source;
use gpuaas_types::codes::{TimelineCode, WaitCode};
use gpuaas_types::steps::DEPLOYING;
use gpuaas_types::{RunStatus, Step, Timestamp};

use crate::run::session::RunSession;
use crate::shared::Shared;

/// The step at whose end the gate is.
const ADMISSION_STEP: Step = Step::PredeployChecks;

/// The limits that hold for a run, the narrowest of each scope.
fn limits(session: &RunSession) -> Vec<(&'static str, u32, DeployLimitScope)> {
    let (run, site, profile) = (&session.run, session.site(), session.profile());
    let bandwidth = site.image_bandwidth_mbit_per_second;
    let images =
        policy::max_concurrent_images(bandwidth, profile.image_size_megabytes).unwrap_or(0);
    let of_site = [("site", site.batch_max_parallel), ("image_bandwidth", images)];
    let of_site =
        of_site.into_iter().filter(|(_, limit)| *limit > 0).min_by_key(|(_, limit)| *limit);
    let of_profile = Some(("profile", profile.batch_max_parallel)).filter(|(_, limit)| *limit > 0);
    let named = |of: DeployLimitScope| move |(name, limit)| (name, limit, of);
    let of_profile = of_profile.map(named(DeployLimitScope::Profile(run.profile_id)));
    of_profile.into_iter().chain(of_site.map(named(DeployLimitScope::Site(run.site_id)))).collect()
}

/// Whether `decision` would take a run with a limit into the deploying part.
pub(crate) fn at_deploy_admission(session: &RunSession, decision: &Decision) -> bool {
    session.run.step == ADMISSION_STEP
        && decision.next_step(&session.run) == Some(Step::Deploy)
        && !limits(session).is_empty()
}

/// Who is before the run, by the limit that leaves the least room.
///
/// # Errors
/// The database's.
pub(crate) async fn deploy_queue(
    shared: &Shared,
    session: &RunSession,
) -> Result<Option<DeployQueue>, StoreError> {
    let mut narrowest: Option<DeployQueue> = None;
    for (scope, limit, of) in limits(session) {
        let ahead = shared
            .store
            .runs_ahead_of_deployment(of, &session.run, ADMISSION_STEP, &DEPLOYING)
            .await?;
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let room = |queue: &DeployQueue| i64::from(queue.limit) - i64::from(queue.ahead);
        let queue = DeployQueue { ahead, limit, scope };
        if narrowest.as_ref().is_none_or(|other| room(&queue) < room(other)) {
            narrowest = Some(queue);
        }
    }
    Ok(narrowest)
}

/// Writes down that a run which waited in the batch has its place now: the time of the step is then
/// the batch's and no measure of the step.
pub(crate) fn note_admission(session: &mut RunSession, now: Timestamp) {
    let waited = session.run.wait.as_ref().filter(|wait| wait.code == WaitCode::BatchLimit);
    if let Some(since) = waited.map(|wait| wait.since) {
        let text = format!("deploy slot assigned after {:.0} s", now.seconds_since(since));
        session.note(now, Source::ControlPlane, TimelineCode::BatchPlace, text);
    }
}

/// Whether a run takes one of the places.
pub(crate) fn holds_deploy_slot(run: &RunRecord) -> bool {
    matches!(run.status, RunStatus::Running | RunStatus::Waiting) && DEPLOYING.contains(&run.step)
}

/// Wakes whoever is next, after a run gave its place back.
///
/// # Errors
/// The database's.
pub(crate) async fn wake_next(shared: &Shared, session: &RunSession) -> Result<(), StoreError> {
    let mut next = Vec::new();
    for (_, _, of) in limits(session) {
        next.extend(shared.store.next_run_to_deploy(of, ADMISSION_STEP).await?);
    }
    next.sort_unstable();
    next.dedup();
    if next.is_empty() {
        return Ok(());
    }
    shared.store.wake(shared.clock.now(), next).await
}
