//! The loop that sends heartbeats, and what their responses bring: task keys and the time.

use gpuaas_bundle::{Envelope, order};
use gpuaas_types::NodeId;
use gpuaas_types::agent::{HeartbeatRequest, REBOOT_NEEDED};
use serde_json::json;
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use super::answered_heartbeat::AnsweredHeartbeat;
use super::state::{Agent, DISK_FULL, pause_seconds};
use super::trust;
use crate::atomic_file;
use crate::identity::Identity;
use crate::operate::update;
use crate::protocol::ControlPlaneError;
use crate::reboot_reasons;

/// Sends heartbeats for ever. The first accepted one makes the agent ready.
pub(super) async fn run(
    agent: &Agent,
    identity: &Identity,
    mut ready: Option<oneshot::Sender<NodeId>>,
) {
    let mut backoff = agent.backoff("heartbeat");
    let mut is_ready = false;
    loop {
        agent.turns.heartbeat_due(&*agent.clock).await;
        let turn = agent.turns.of_heartbeat(&*agent.clock).await;
        let sent = send(agent).await;
        let pause_seconds = match sent {
            Ok(()) => {
                backoff.reset();
                if !is_ready {
                    is_ready = true;
                    announce_ready(agent, identity, ready.take());
                    if let Some(state) = &agent.config.env.state_dir {
                        update::confirm(state);
                    }
                    agent.first_heartbeat.cancel();
                }
                agent.heartbeat_accepted.notify_one();
                f64::from(identity.heartbeat_interval_seconds)
            }
            Err(error) => {
                let pause_seconds = pause_seconds(&mut backoff, &error);
                warn!(%error, pause_seconds, "heartbeat");
                pause_seconds
            }
        };
        agent.turns.set_next_heartbeat(agent.clock.monotonic_seconds() + pause_seconds);
        drop(turn);
    }
}

async fn send(agent: &Agent) -> Result<(), ControlPlaneError> {
    if agent.is_disk_full() {
        retry_writes(agent);
    }
    let heartbeat = heartbeat(agent);
    agent.set_answered_heartbeat(None);
    let response = agent.authenticated().heartbeat(&heartbeat).await?;
    if let Some(at) = response.at {
        agent.set_clock_offset_seconds(agent.clock.now().seconds_since(at));
    }
    if let Some(digest) = response.heartbeat_digest {
        agent.set_answered_heartbeat(Some(AnsweredHeartbeat {
            heartbeat: heartbeat.clone(),
            digest,
        }));
    }
    if let Some(keys) = response.task_keys {
        accept_task_keys(agent, &keys);
    }
    if let Some(bundle) = response.trust_bundle {
        trust::accept_bundle(agent, &heartbeat, bundle).await;
    }
    if response.renew_certificate {
        agent.renewal_asked.notify_one();
    }
    Ok(())
}

/// What the agent has to say now.
fn heartbeat(agent: &Agent) -> HeartbeatRequest {
    let since_start = || agent.clock.monotonic_seconds() - agent.started_monotonic_seconds;
    HeartbeatRequest {
        run_id: agent.config.run_id,
        agent_version: crate::VERSION.to_owned(),
        uptime_seconds: agent.config.host.uptime_seconds().unwrap_or_else(since_start),
        task_keys_revision: agent.task_keys().revision,
        troubles: troubles(agent),
        trust_digest: agent.identity().and_then(|identity| identity.trust_digest),
    }
}

/// What a poll says in the place of a heartbeat; none where the agent has something else to say than it
/// said last, or may not say it so. An agent in trouble sends heartbeats: it tries to mend itself then.
pub(super) fn repeated(agent: &Agent) -> Option<String> {
    let last = agent.answered_heartbeat()?;
    let now = heartbeat(agent);
    let is_same = now.troubles.is_empty()
        && HeartbeatRequest { uptime_seconds: last.heartbeat.uptime_seconds, ..now }
            == last.heartbeat;
    is_same.then_some(last.digest)
}

/// What keeps the agent from its work, what of slices does not fit together, and why its host has to be started again.
fn troubles(agent: &Agent) -> Vec<String> {
    let full = agent.is_disk_full().then(|| DISK_FULL.to_owned());
    let reasons = agent.config.host.root().map(reboot_reasons::reasons).unwrap_or_default();
    let reasons = reasons.into_iter().map(|one| format!("{REBOOT_NEEDED}{}", one.why));
    full.into_iter().chain(agent.slice_discrepancies()).chain(reasons).collect()
}

/// Replaces the task keys by newer ones that one of the current keys has signed, and stores them.
fn accept_task_keys(agent: &Agent, keys: &Envelope) {
    let keys = match order::admit_keys(keys, &agent.task_keys(), agent.clock.now()) {
        Ok(keys) => keys,
        Err(fault) => return warn!(code = fault.code(), %fault, "rejected new task keys"),
    };
    let identity = agent.with_task_keys(&keys);
    let stored = identity.map(|identity| agent.config.identity.save(&identity));
    if let Some(Err(error)) = stored.map(|stored| agent.track_disk_full(stored)) {
        warn!(%error, "cannot store the new task keys");
    }
    info!(revision = keys.revision, "accepted new task keys");
    agent.set_task_keys(keys);
}

/// Stores the identity again after a full disk; when that succeeds, the disk is full no longer.
fn retry_writes(agent: &Agent) {
    let Some(identity) = agent.identity() else { return };
    match agent.track_disk_full(agent.config.identity.save(&identity)) {
        Ok(()) => write_ready_file(agent, &identity),
        Err(error) => warn!(%error, "the disk is still full"),
    }
}

fn announce_ready(agent: &Agent, identity: &Identity, ready: Option<oneshot::Sender<NodeId>>) {
    info!(node = %identity.node_id, "the control plane accepted a heartbeat");
    write_ready_file(agent, identity);
    if ready.is_some_and(|ready| ready.send(identity.node_id).is_err()) {
        debug!("nothing waits for the agent to become ready");
    }
}

fn write_ready_file(agent: &Agent, identity: &Identity) {
    let Some(path) = &agent.config.ready_file else { return };
    let line = json!({
        "run_id": agent.config.run_id,
        "node_id": identity.node_id,
        "agent_version": crate::VERSION,
        "at": agent.clock.now(),
    });
    let written = atomic_file::replace(path, format!("{line}\n").as_bytes());
    if let Err(error) = agent.track_disk_full(written) {
        warn!(%error, path = %path.display(), "cannot write the agent's ready file");
    }
}
