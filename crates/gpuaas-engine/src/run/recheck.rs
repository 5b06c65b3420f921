//! A parked run looks again whether its cause is gone: see [`gpuaas_core::recheck`].
//!
//! The run keeps its status while a worker has it for that, so nobody sees it move before it does.
//! What an operator says meanwhile takes the lease away, and what was read here is then dropped with
//! everything else.

use std::sync::Arc;

use gpuaas_core::recheck::{RecheckVerdict, judge_recheck, next_recheck_at};
use gpuaas_core::snapshot::Decision;
use gpuaas_store::StoreError;
use gpuaas_types::api::{Park, Source};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::{RunStatus, Timestamp};

use crate::run::lease::{Lease, renew_lease_while};
use crate::run::reads::perform_read;
use crate::run::session::RunSession;
use crate::shared::Shared;

/// Reads in one recheck before it is put off: more than any step asks for.
const MAX_READS: u32 = 16;

/// Whether the cause of a park is gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Recheck {
    /// It is: the run is decided on as any other from here on.
    GoesOn,
    /// It is not: the run was given back, parked as before.
    StaysParked,
}

/// Rechecks a parked run. Changes nothing in MAAS.
///
/// # Errors
/// The store's; the run is then rechecked when its lease ends.
pub(crate) async fn recheck(
    shared: &Shared,
    session: &mut RunSession,
) -> Result<Recheck, StoreError> {
    let Some(park) = session.run.park.clone() else {
        stay_parked(shared, session, None).await?;
        return Ok(Recheck::StaysParked);
    };
    let read_at = session.observation.as_ref().map(|seen| seen.read_at);
    let began = session.run.state.later_than_reads(shared.clock.now(), read_at);
    session.run.state.begin_recheck(began);
    for _ in 0..MAX_READS {
        let now = shared.clock.now().max(began);
        let decision = gpuaas_core::decide(&session.snapshot(now));
        match judge_recheck(&session.snapshot(now), &decision) {
            RecheckVerdict::Read(read) => {
                let Ok(site) = session.context.connection.as_ref().map(Arc::clone) else { break };
                let (run, lease) = (session.run.clone(), Lease::new(shared, &session.run));
                let reading = perform_read(shared, &site, session, read);
                renew_lease_while(shared, &run, &lease, reading).await;
            }
            RecheckVerdict::GoesOn(seen) => {
                go_on(session, &park, &seen, now);
                return Ok(Recheck::GoesOn);
            }
            RecheckVerdict::StaysParked => {
                let found = match decision {
                    Decision::Park { park, .. } => Some(park),
                    _ => None,
                };
                if let Some(other) = found.as_ref().filter(|found| found.code != park.code) {
                    // Another cause by now: that is news.
                    session.forget_notes();
                    session.park(other.clone());
                    session.commit(&shared.store, now, true).await?;
                    return Ok(Recheck::StaysParked);
                }
                stay_parked(shared, session, found).await?;
                return Ok(Recheck::StaysParked);
            }
        }
    }
    stay_parked(shared, session, None).await?;
    Ok(Recheck::StaysParked)
}

/// The run goes on by itself, and says so.
fn go_on(session: &mut RunSession, park: &Park, seen: &str, now: Timestamp) {
    session.forget_notes();
    let text = format!("{} is resolved, so the run continues automatically: {seen}", park.code);
    session.note(now, Source::ControlPlane, TimelineCode::ParkCauseGone, text);
    session.run.status = RunStatus::Running;
    session.run.park = None;
    session.run.wait = None;
}

/// Gives the run back as it was: with the evidence of now, the moment of the next recheck, and no
/// line in the history.
async fn stay_parked(
    shared: &Shared,
    session: &mut RunSession,
    found: Option<Park>,
) -> Result<(), StoreError> {
    session.forget_notes();
    let now = shared.clock.now();
    if let Some(park) = &mut session.run.park {
        if let Some(found) = found {
            (park.text, park.evidence) = (found.text, found.evidence);
        }
        park.looks_again_at = next_recheck_at(&park.code, park.since, now);
    }
    let next = session.run.park.as_ref().and_then(|park| park.looks_again_at);
    session.run.due_at = next.unwrap_or(Timestamp::NEVER);
    session.commit_unchanged(&shared.store, now).await
}
