//! Notes which agents have become silent, and which are heard again.
//!
//! A look every few seconds over all nodes of the database, by one control plane at a time. What it
//! reads is in the database: heartbeats, what was noted of silences, what profiles allow, and since
//! when control planes have looked without a gap. So a restart, or another replica, goes on where
//! the last look ended. A long gap means that nobody took heartbeats, and silences are counted from
//! its end on.

use std::collections::HashMap;
use std::sync::Arc;

use gpuaas_core::connectivity::{
    allowed_silence_seconds, decide_connectivity, shortest_silence_seconds,
};
use gpuaas_store::{ConnectivityNote, StoreError};
use gpuaas_types::ProfileId;
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::spec::ProfileSpec;

use crate::loops::repeated_failure::RepeatedFailure;
use crate::shared::Shared;

/// Name of the loop, for its supervisor.
pub(crate) const LOOP: &str = "agent watch";
/// Notes that are written at once.
const BATCH: usize = 50;
/// Looks that may be missed before nobody listened: a restart takes less.
const GAP_LOOKS: f64 = 4.0;

/// Looks for silent agents now and then, until the engine stops.
pub(crate) async fn run_loop(shared: Arc<Shared>) {
    let mut stop = shared.stopping();
    let mut failing = RepeatedFailure::new("cannot check for silent agents");
    while !*stop.borrow() {
        shared.supervisor.reach_loop(LOOP);
        match look_if_due(&shared).await {
            Ok(_) => failing.succeeded(),
            Err(error) => failing.failed(&error),
        }
        let next = shared.clock.now().plus_seconds(shared.config.agent_watch_seconds);
        tokio::select! {
            _ = stop.changed() => {}
            () = shared.clock.sleep_until(next) => {}
        }
    }
}

/// Looks for silent agents, and for those that are heard again, unless that was done just now.
/// Answers how many changes were noted.
///
/// # Errors
/// The store's.
pub(crate) async fn look_if_due(shared: &Shared) -> Result<usize, StoreError> {
    let (now, interval) = (shared.clock.now(), shared.config.agent_watch_seconds);
    let claimed = shared.store.claim_agent_watch(now, interval, interval * GAP_LOOKS).await?;
    let Some(listening_since) = claimed else { return Ok(0) };
    // What this process heard a moment ago is not to be missing.
    shared.store.write_noted_heartbeats().await?;
    let factor = shared.clock.factor();
    let quiet_before = now.plus_seconds(-shortest_silence_seconds(factor));
    let subjects = shared.store.connectivity_subjects(quiet_before).await?;
    if subjects.is_empty() {
        return Ok(0);
    }
    let allowed_of =
        |spec: &ProfileSpec| allowed_silence_seconds(spec.offline_after_seconds, factor);
    let profiles = shared.store.profiles().await?.into_iter();
    let allowed: HashMap<ProfileId, f64> =
        profiles.map(|profile| (profile.id, allowed_of(&profile.spec))).collect();
    let mut notes = Vec::new();
    for subject in subjects {
        // A profile that was removed allows what profiles allow by themselves.
        let allowed_seconds = allowed.get(&subject.profile_id).copied();
        let allowed_seconds =
            allowed_seconds.unwrap_or_else(|| allowed_of(&ProfileSpec::default()));
        let presence = subject.presence;
        let change = decide_connectivity(&presence, allowed_seconds, listening_since, now);
        let Some(change) = change else { continue };
        let (code, text) = change.event(&presence, allowed_seconds, now);
        let event = TimelineEvent {
            at: now,
            run_id: None,
            step: None,
            source: Source::ControlPlane,
            code: code.into(),
            text,
        };
        notes.push(ConnectivityNote { node_id: subject.node_id, presence, change, event });
    }
    let mut noted = 0;
    for batch in notes.chunks(BATCH) {
        noted += shared.store.note_connectivity(now, batch.to_vec()).await?;
    }
    Ok(noted)
}
