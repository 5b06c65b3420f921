//! The agent: enrolls once, then sends heartbeats and carries out tasks until it is told to stop.
//!
//! An outage of the control plane never ends the agent: every loop goes on with pauses that grow
//! to a cap. Only a refused enrollment does, because no pause makes a spent token good; the
//! message says what an operator does next. A refused heartbeat does not end it: the node may have
//! been detached, or the control plane restored from a backup. The agent cannot tell which, so it
//! goes on at the longest pause.
//!
//! One file for each loop, all of which share the `state` of the agent: `enrollment`, `heartbeats`,
//! `task_loop`, `slice_loop`, `gate_reports`, `renewals`, `slice_survey`.

mod answered_heartbeat;
mod enrollment;
mod gate_reports;
mod heartbeats;
mod renewals;
mod slice_loop;
mod slice_survey;
mod slice_tasks;
mod state;
mod task_loop;
mod trust;
mod turns;

use std::sync::Arc;

use gpuaas_types::agent::HeartbeatRequest;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use state::{AgentConfig, AgentError};

use crate::clock::{AgentClock, Backoff};
use crate::env::AgentEnv;
use crate::operate::update;
use crate::protocol::ControlPlane;
use state::Agent;

/// Longest pause between the heartbeats of a trial, in seconds.
const TRIAL_BACKOFF_SECONDS: f64 = 2.0;

/// Runs an agent until `shutdown`.
///
/// # Errors
/// [`AgentError`]: the agent could not enroll.
pub async fn run(
    mut config: AgentConfig,
    control_plane: ControlPlane,
    clock: Arc<dyn AgentClock>,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    let ready = config.ready.take();
    config.env.control_plane = Some(control_plane.clone());
    let restart = config.env.restart.clone();
    let agent = Agent::new(config, control_plane, clock);
    // Each loop is on the heap: together they are too large for the stack of a worker that drives a
    // fleet of agents.
    let loops = Box::pin(async {
        let identity = Box::pin(enrollment::enroll(&agent)).await?;
        agent.set_task_keys(identity.task_keys.clone());
        Box::pin(slice_survey::run_once(&agent)).await;
        tokio::join!(
            Box::pin(heartbeats::run(&agent, &identity, ready)),
            Box::pin(task_loop::run(&agent, &identity)),
            Box::pin(slice_loop::run(&agent)),
            Box::pin(gate_reports::run(&agent)),
            Box::pin(renewals::run(&agent, &identity)),
            Box::pin(slice_survey::run(&agent)),
            Box::pin(roll_back_unless_confirmed(&agent))
        );
        Ok(())
    });
    let loops = restart.run_until_cancelled(loops);
    shutdown.run_until_cancelled(loops).await.flatten().unwrap_or(Ok(()))
}

/// Gets one heartbeat accepted with the identity that another process of this agent has, and ends:
/// so a new version proves that it works on this host. Retries until the caller ends it.
///
/// # Errors
/// [`AgentError::NotEnrolled`].
pub async fn trial(
    config: AgentConfig,
    control_plane: ControlPlane,
    clock: Arc<dyn AgentClock>,
) -> Result<(), AgentError> {
    let identity = config.identity.load(config.run_id).ok_or(AgentError::NotEnrolled)?;
    let control_plane = control_plane.with_credential(&identity.credential)?;
    let mut backoff = Backoff::new(&format!("{}/trial", config.hostname), TRIAL_BACKOFF_SECONDS);
    let heartbeat = HeartbeatRequest {
        run_id: config.run_id,
        agent_version: crate::VERSION.to_owned(),
        uptime_seconds: config.host.uptime_seconds().unwrap_or_default(),
        task_keys_revision: identity.task_keys.revision,
        troubles: Vec::new(),
        trust_digest: identity.trust_digest,
    };
    loop {
        match control_plane.heartbeat(&heartbeat).await {
            Ok(_) => return Ok(()),
            Err(error) => warn!(%error, "trial heartbeat failed, retrying"),
        }
        clock.sleep(backoff.next_seconds()).await;
    }
}

/// Restores the previous executable where an update is pending and no heartbeat is accepted in time.
async fn roll_back_unless_confirmed(agent: &Agent) {
    let AgentEnv { state_dir, launch, restart, .. } = &agent.config.env;
    let accepted = agent.first_heartbeat.cancelled();
    let (Err(cause), Some(state), Some(launch)) =
        (update::await_confirmation(state_dir.as_deref(), accepted).await, state_dir, launch)
    else {
        return;
    };
    match update::roll_back(state, &launch.executable, &cause) {
        Ok(()) => restart.cancel(),
        Err(error) => warn!(%error, cause, "cannot restore the previous version"),
    }
}
