//! The agent's life: enroll once, then heartbeats and tasks side by side until told to stop.
//!
//! An outage of the control plane never ends the agent: every loop goes on with pauses that grow
//! to a cap. Only a refused enrollment does, because no pause makes a spent token good; the
//! message says what an operator does next. A refused heartbeat does not: the node may have been
//! detached, or the control plane restored from a backup, and the agent cannot tell which, so it
//! keeps asking at the longest pause.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuaas_bundle::{Envelope, order};
use gpuaas_types::agent::{
    EnrollRequest, GateReport, Gates, Heartbeat, SignedTask, TaskKeys, TaskResult,
};
use gpuaas_types::{NodeId, Problem, RunId, Timestamp};
use serde_json::json;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::bundle;
use crate::clock::{AgentClock, Backoff};
use crate::files;
use crate::identity::{Identity, IdentityStore};
use crate::operate::Workplace;
use crate::protocol::{CallError, ControlPlane};
use crate::tasks::{self, Host};

/// Seconds between two looks at the gates of the host.
const GATES_SECONDS: f64 = 120.0;
/// Seconds after which what has not changed is said again.
const GATES_AGAIN_SECONDS: f64 = 1800.0;

/// What an agent is told at its start.
#[derive(Debug)]
pub struct AgentConfig {
    /// The run that deployed this system.
    pub run_id: RunId,
    /// Short hostname of the node.
    pub hostname: String,
    /// Single-use token of the enrollment. Secret.
    pub enrollment_token: String,
    /// Where the identity is kept.
    pub identity: IdentityStore,
    /// Written on one line once the first heartbeat was accepted; the node bootstrap waits for it.
    pub ready_file: Option<PathBuf>,
    /// Told at the same moment.
    pub ready: Option<oneshot::Sender<NodeId>>,
    /// What the agent looks at.
    pub host: Host,
    /// Where it works.
    pub workplace: Workplace,
    /// Longest pause between attempts while the control plane is away, in seconds.
    pub longest_pause_seconds: f64,
}

/// Why an agent ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The enrollment token is not good.
    #[error(
        "the enrollment was refused: {0}\nthe token is spent, expired or of another run; start a \
         new run of the node (onboard or reimage) to get another"
    )]
    EnrollmentRefused(Box<Problem>),
}

struct Agent {
    config: AgentConfig,
    control_plane: ControlPlane,
    clock: Arc<dyn AgentClock>,
    started_at: Timestamp,
    /// A heartbeat was accepted; wakes the task loop where polls are not held.
    accepted: Notify,
    /// The first heartbeat was accepted.
    lives: Notify,
    /// Whose tasks are carried out.
    keys: Mutex<TaskKeys>,
}

/// Runs an agent until `shutdown`.
///
/// # Errors
/// The control plane refused the enrollment.
pub async fn run(
    mut config: AgentConfig,
    control_plane: ControlPlane,
    clock: Arc<dyn AgentClock>,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    let ready = config.ready.take();
    let started_at = clock.now();
    let agent = Agent {
        config,
        control_plane,
        clock,
        started_at,
        accepted: Notify::new(),
        lives: Notify::new(),
        keys: Mutex::default(),
    };
    let life = async {
        let identity = agent.identity().await?;
        *agent.keys() = identity.task_keys.clone();
        tokio::join!(
            agent.heartbeats(&identity, ready),
            agent.tasks(&identity),
            agent.gates(&identity)
        );
        Ok(())
    };
    shutdown.run_until_cancelled(life).await.unwrap_or(Ok(()))
}

impl Agent {
    async fn identity(&self) -> Result<Identity, AgentError> {
        if let Some(identity) = self.config.identity.load(self.config.run_id) {
            info!(node = %identity.node_id, "enrolled before");
            return Ok(identity);
        }
        let request = EnrollRequest {
            run_id: self.config.run_id,
            hostname: self.config.hostname.clone(),
            agent_version: crate::VERSION.to_owned(),
            started_at: self.started_at,
            facts: self.config.host.facts().await,
        };
        let mut backoff = self.backoff("enroll");
        let response = loop {
            match self.control_plane.enroll(&self.config.enrollment_token, &request).await {
                Ok(response) => break response,
                Err(CallError::Refused(problem)) => {
                    return Err(AgentError::EnrollmentRefused(Box::new(problem)));
                }
                Err(error) => {
                    let pause_seconds = backoff.next_seconds();
                    warn!(%error, pause_seconds, "enrollment will be tried again");
                    self.clock.sleep(pause_seconds).await;
                }
            }
        };
        let identity = Identity {
            run_id: self.config.run_id,
            node_id: response.node_id,
            credential: response.credential,
            heartbeat_interval_seconds: response.heartbeat_interval_seconds.max(1),
            poll_seconds: response.poll_seconds,
            task_keys: response.task_keys,
        };
        match self.config.identity.save(&identity) {
            Ok(()) => info!(node = %identity.node_id, "enrolled"),
            Err(error) => warn!(%error, "enrolled, but a restart will not remember it"),
        }
        Ok(identity)
    }

    async fn heartbeats(&self, identity: &Identity, mut ready: Option<oneshot::Sender<NodeId>>) {
        let mut backoff = self.backoff("heartbeat");
        let mut is_ready = false;
        loop {
            let pause_seconds = match self.heartbeat(identity).await {
                Ok(()) => {
                    backoff.reset();
                    if !is_ready {
                        is_ready = true;
                        self.say_ready(identity, ready.take());
                        self.lives.notify_one();
                    }
                    self.accepted.notify_one();
                    f64::from(identity.heartbeat_interval_seconds)
                }
                Err(error) => {
                    let pause_seconds = pause(&mut backoff, &error);
                    warn!(%error, pause_seconds, "heartbeat");
                    pause_seconds
                }
            };
            self.clock.sleep(pause_seconds).await;
        }
    }

    async fn heartbeat(&self, identity: &Identity) -> Result<(), CallError> {
        let since_start = || self.clock.now().seconds_since(self.started_at).max(0.0);
        let heartbeat = Heartbeat {
            run_id: self.config.run_id,
            agent_version: crate::VERSION.to_owned(),
            uptime_seconds: self.config.host.uptime_seconds().unwrap_or_else(since_start),
            task_keys_revision: self.keys().revision,
        };
        let answer = self.control_plane.heartbeat(&identity.credential, &heartbeat).await?;
        if let Some(keys) = answer.task_keys {
            self.take_keys(identity, &keys);
        }
        Ok(())
    }

    /// Newer keys count when one that counts has signed them, and are remembered.
    fn take_keys(&self, identity: &Identity, keys: &Envelope) {
        let known = self.keys().clone();
        let keys = match order::admit_keys(keys, &known, self.clock.now()) {
            Ok(keys) => keys,
            Err(fault) => return warn!(code = fault.code(), %fault, "task keys are refused"),
        };
        let identity = Identity { task_keys: keys.clone(), ..identity.clone() };
        if let Err(error) = self.config.identity.save(&identity) {
            warn!(%error, "new task keys, but a restart will not remember them");
        }
        info!(revision = keys.revision, "new task keys");
        *self.keys() = keys;
    }

    fn keys(&self) -> MutexGuard<'_, TaskKeys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say_ready(&self, identity: &Identity, ready: Option<oneshot::Sender<NodeId>>) {
        info!(node = %identity.node_id, "the control plane accepted a heartbeat");
        if let Some(path) = &self.config.ready_file {
            let line = json!({
                "run_id": self.config.run_id,
                "node_id": identity.node_id,
                "agent_version": crate::VERSION,
                "at": self.clock.now(),
            });
            if let Err(error) = files::replace(path, format!("{line}\n").as_bytes()) {
                warn!(%error, path = %path.display(), "cannot say that the agent is ready");
            }
        }
        if ready.is_some_and(|ready| ready.send(identity.node_id).is_err()) {
            debug!("nobody waits for the agent to be ready");
        }
    }

    async fn tasks(&self, identity: &Identity) {
        let mut backoff = self.backoff("tasks");
        loop {
            if identity.poll_seconds == 0 {
                self.accepted.notified().await;
            }
            let asked_at = self.clock.now();
            let poll = self.control_plane.poll_tasks(&identity.credential, identity.poll_seconds);
            match poll.await {
                Ok(batch) => {
                    backoff.reset();
                    let idle = batch.tasks.is_empty() && identity.poll_seconds > 0;
                    for task in &batch.tasks {
                        self.carry_out(identity, task).await;
                    }
                    if idle {
                        // A control plane that does not hold the question must not be hammered.
                        let held_seconds = self.clock.now().seconds_since(asked_at);
                        self.clock.sleep(1.0 - held_seconds).await;
                    }
                }
                Err(error) => {
                    let pause_seconds = pause(&mut backoff, &error);
                    warn!(%error, pause_seconds, "task poll");
                    self.clock.sleep(pause_seconds).await;
                }
            }
        }
    }

    /// Says what the gates of the host are: at once, whenever that changes, and now and then.
    async fn gates(&self, identity: &Identity) {
        self.lives.notified().await;
        let mut said: Option<(Vec<GateReport>, Timestamp)> = None;
        let mut backoff = self.backoff("gates");
        loop {
            let gates = bundle::gate::all(&self.config.host).await;
            let now = self.clock.now();
            let known = said.as_ref().is_some_and(|(before, at)| {
                *before == gates && now.seconds_since(*at) < GATES_AGAIN_SECONDS
            });
            let nothing = said.is_none() && gates.is_empty();
            if !known && !nothing {
                let body = Gates { run_id: self.config.run_id, gates: gates.clone() };
                if let Err(error) = self.control_plane.gates(&identity.credential, &body).await {
                    let pause_seconds = pause(&mut backoff, &error);
                    warn!(%error, pause_seconds, "gates");
                    self.clock.sleep(pause_seconds).await;
                    continue;
                }
                backoff.reset();
                said = Some((gates, now));
            }
            self.clock.sleep(GATES_SECONDS).await;
        }
    }

    /// What is not admitted touches nothing; the control plane is told why.
    async fn carry_out(&self, identity: &Identity, task: &SignedTask<Envelope>) {
        let keys = self.keys().clone();
        let admitted = order::admit(&task.order, &keys, identity.node_id, self.clock.now());
        let result = match admitted {
            Ok(admitted) if admitted.id == task.id => {
                tasks::execute(&self.config.host, &self.config.workplace, &admitted.spec).await
            }
            Ok(admitted) => refused("task_id_mismatch", &format!("it is task {}", admitted.id)),
            Err(fault) => refused(fault.code(), &fault.to_string()),
        };
        let mut backoff = self.backoff("result");
        loop {
            let sent = self.control_plane.task_result(&identity.credential, task.id, &result).await;
            match sent {
                Ok(()) => return info!(task = %task.id, "result handed in"),
                Err(error @ CallError::Refused(_)) => {
                    return warn!(%error, task = %task.id, "result refused; it is dropped");
                }
                Err(error) => {
                    let pause_seconds = backoff.next_seconds();
                    warn!(%error, pause_seconds, task = %task.id, "result");
                    self.clock.sleep(pause_seconds).await;
                }
            }
        }
    }

    fn backoff(&self, what: &str) -> Backoff {
        let name = format!("{}/{what}", self.config.hostname);
        Backoff::new(&name, self.config.longest_pause_seconds)
    }
}

fn refused(code: &str, why: &str) -> TaskResult {
    warn!(code, why, "a task is refused");
    TaskResult { code: code.to_owned(), message: format!("{code}: {why}"), ..TaskResult::default() }
}

fn pause(backoff: &mut Backoff, error: &CallError) -> f64 {
    match error {
        CallError::Refused(_) => backoff.longest_seconds(),
        CallError::Unavailable(_) | CallError::Malformed(_) => backoff.next_seconds(),
    }
}
