//! The agent's life: enroll once, then heartbeats and tasks side by side until told to stop.
//!
//! An outage of the control plane never ends the agent: every loop goes on with pauses that grow
//! to a cap. Only a refused enrollment does, because no pause makes a spent token good; the
//! message says what an operator does next. A refused heartbeat does not: the node may have been
//! detached, or the control plane restored from a backup, and the agent cannot tell which, so it
//! keeps asking at the longest pause.
//!
//! Its certificate is renewed from two thirds of its life on, beside everything else, over the
//! connection that the old one opens; until the new one is there, the old one goes on.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuaas_bundle::order::OrderFault;
use gpuaas_bundle::{Envelope, order};
use gpuaas_types::agent::{GateReport, Gates, Heartbeat, SignedTask, Task, TaskKeys, TaskResult};
use gpuaas_types::{NodeId, Problem, RunId, TaskId, Timestamp};
use serde_json::json;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::bundle;
use crate::clock::{AgentClock, Backoff};
use crate::files;
use crate::identity::{Identity, IdentityStore};
use crate::journal::{Journal, Note};
use crate::operate::{Workplace, update};
use crate::protocol::{CallError, ControlPlane, SetupError};
use crate::tasks::{self, Host};

/// Code of a disk that has no room.
const DISK_FULL: &str = "disk_full";
/// Seconds between two looks at the gates of the host.
const GATES_SECONDS: f64 = 120.0;
/// Seconds after which what has not changed is said again.
const GATES_AGAIN_SECONDS: f64 = 1800.0;
/// Longest pause between the heartbeats of a trial, in seconds.
const TRIAL_PAUSE_SECONDS: f64 = 2.0;
/// What a task's end is judged by is this host's clock, corrected by what the control plane says
/// the time is, and by no more than so many seconds: a clock that is further off is no judge.
const MOST_AHEAD_SECONDS: f64 = 300.0;

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
        "the enrollment was refused: {0}\nwhere the run is parked, resume it and restart this agent; \
         else the token is spent or of another run: start a new run of the node (onboard or \
         reimage) to get another"
    )]
    EnrollmentRefused(Box<Problem>),
    /// A trial is another process's.
    #[error("this host has no identity of this run; an agent has to enroll first")]
    NotEnrolled,
    /// A key cannot be made.
    #[error("no key can be made: {0}")]
    NoKey(io::Error),
    /// What is kept of the enrollment cannot be used.
    #[error(transparent)]
    Proof(#[from] SetupError),
}

/// A running agent.
pub(crate) struct Agent {
    pub(crate) config: AgentConfig,
    /// Before the enrollment.
    pub(crate) control_plane: ControlPlane,
    /// As the agent that it is; the same as above until it is one.
    pub(crate) line: Mutex<ControlPlane>,
    /// Who it is, as it is kept.
    pub(crate) known: Mutex<Option<Identity>>,
    pub(crate) clock: Arc<dyn AgentClock>,
    pub(crate) started_at: Timestamp,
    started_monotonic: f64,
    /// A heartbeat was accepted; wakes the task loop where polls are not held.
    accepted: Notify,
    /// A task changed the host; wakes whoever looks at its gates.
    changed: Notify,
    /// The first heartbeat was accepted.
    lives: CancellationToken,
    /// Whose tasks are carried out.
    keys: Mutex<TaskKeys>,
    /// The task at hand.
    journal: Journal,
    /// Whether what is written finds room.
    disk_full: AtomicBool,
    /// Seconds that this host's clock is ahead of the control plane's, as far as it is known.
    ahead_seconds: Mutex<Option<f64>>,
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
    let (started_at, started_monotonic) = (clock.now(), clock.monotonic_seconds());
    let journal = Journal::new(config.workplace.state_dir.as_deref());
    config.workplace.control_plane = Some(control_plane.clone());
    let restart = config.workplace.restart.clone();
    let agent = Agent {
        config,
        line: Mutex::new(control_plane.clone()),
        known: Mutex::default(),
        control_plane,
        clock,
        started_at,
        started_monotonic,
        accepted: Notify::new(),
        changed: Notify::new(),
        lives: CancellationToken::new(),
        keys: Mutex::default(),
        journal,
        disk_full: AtomicBool::new(false),
        ahead_seconds: Mutex::default(),
    };
    let life = async {
        let identity = agent.identity().await?;
        *agent.keys() = identity.task_keys.clone();
        tokio::join!(
            agent.heartbeats(&identity, ready),
            agent.tasks(&identity),
            agent.gates(),
            agent.renewals(&identity),
            agent.keep_place()
        );
        Ok(())
    };
    let life = restart.run_until_cancelled(life);
    shutdown.run_until_cancelled(life).await.flatten().unwrap_or(Ok(()))
}

/// Gets one heartbeat through with the identity that another process of this agent has, and ends:
/// so a new version proves that it works on this host. Tries until it is ended.
///
/// # Errors
/// [`AgentError::NotEnrolled`].
pub async fn trial(
    config: AgentConfig,
    control_plane: ControlPlane,
    clock: Arc<dyn AgentClock>,
) -> Result<(), AgentError> {
    let identity = config.identity.load(config.run_id).ok_or(AgentError::NotEnrolled)?;
    let control_plane = control_plane.with_proof(&identity.proof)?;
    let mut backoff = Backoff::new(&format!("{}/trial", config.hostname), TRIAL_PAUSE_SECONDS);
    let heartbeat = Heartbeat {
        run_id: config.run_id,
        agent_version: crate::VERSION.to_owned(),
        uptime_seconds: config.host.uptime_seconds().unwrap_or_default(),
        task_keys_revision: identity.task_keys.revision,
        troubles: Vec::new(),
    };
    loop {
        match control_plane.heartbeat(&heartbeat).await {
            Ok(_) => return Ok(()),
            Err(error) => warn!(%error, "heartbeat of a trial"),
        }
        clock.sleep(backoff.next_seconds()).await;
    }
}

impl Agent {
    async fn heartbeats(&self, identity: &Identity, mut ready: Option<oneshot::Sender<NodeId>>) {
        let mut backoff = self.backoff("heartbeat");
        let mut is_ready = false;
        loop {
            let pause_seconds = match self.heartbeat().await {
                Ok(()) => {
                    backoff.reset();
                    if !is_ready {
                        is_ready = true;
                        self.say_ready(identity, ready.take());
                        if let Some(state) = &self.config.workplace.state_dir {
                            update::confirm(state);
                        }
                        self.lives.cancel();
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

    async fn heartbeat(&self) -> Result<(), CallError> {
        let since_start = || self.clock.monotonic_seconds() - self.started_monotonic;
        if self.disk_full.load(Ordering::Relaxed) {
            self.write_again();
        }
        let disk_full = self.disk_full.load(Ordering::Relaxed);
        let heartbeat = Heartbeat {
            run_id: self.config.run_id,
            agent_version: crate::VERSION.to_owned(),
            uptime_seconds: self.config.host.uptime_seconds().unwrap_or_else(since_start),
            task_keys_revision: self.keys().revision,
            troubles: disk_full.then(|| DISK_FULL.to_owned()).into_iter().collect(),
        };
        let answer = self.line().heartbeat(&heartbeat).await?;
        if let Some(at) = answer.at {
            let ahead_seconds = self.clock.now().seconds_since(at);
            *self.ahead_seconds.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(ahead_seconds);
        }
        if let Some(keys) = answer.task_keys {
            self.take_keys(&keys);
        }
        Ok(())
    }

    /// Newer keys count when one that counts has signed them, and are remembered.
    fn take_keys(&self, keys: &Envelope) {
        let known = self.keys().clone();
        let keys = match order::admit_keys(keys, &known, self.clock.now()) {
            Ok(keys) => keys,
            Err(fault) => return warn!(code = fault.code(), %fault, "task keys are refused"),
        };
        if let Some(known) = lock(&self.known).as_mut() {
            known.task_keys = keys.clone();
        }
        let known = lock(&self.known).clone();
        if let Some(Err(error)) = known.map(|known| self.kept(self.config.identity.save(&known))) {
            warn!(%error, "new task keys, but a restart will not remember them");
        }
        info!(revision = keys.revision, "new task keys");
        *self.keys() = keys;
    }

    fn keys(&self) -> MutexGuard<'_, TaskKeys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether there was room for what was written.
    pub(crate) fn kept<T>(&self, written: io::Result<T>) -> io::Result<T> {
        let full = written.as_ref().is_err_and(files::is_full);
        if full || written.is_ok() {
            self.disk_full.store(full, Ordering::Relaxed);
        }
        written
    }

    /// Writes what found no room before: when it does, the disk is full no longer.
    fn write_again(&self) {
        let Some(identity) = lock(&self.known).clone() else { return };
        match self.kept(self.config.identity.save(&identity)) {
            Ok(()) => self.write_ready(&identity),
            Err(error) => warn!(%error, "the disk is full still"),
        }
    }

    fn say_ready(&self, identity: &Identity, ready: Option<oneshot::Sender<NodeId>>) {
        info!(node = %identity.node_id, "the control plane accepted a heartbeat");
        self.write_ready(identity);
        if ready.is_some_and(|ready| ready.send(identity.node_id).is_err()) {
            debug!("nobody waits for the agent to be ready");
        }
    }

    fn write_ready(&self, identity: &Identity) {
        if let Some(path) = &self.config.ready_file {
            let line = json!({
                "run_id": self.config.run_id,
                "node_id": identity.node_id,
                "agent_version": crate::VERSION,
                "at": self.clock.now(),
            });
            let written = files::replace(path, format!("{line}\n").as_bytes());
            if let Err(error) = self.kept(written) {
                warn!(%error, path = %path.display(), "cannot say that the agent is ready");
            }
        }
    }

    /// An agent that is new in its place gives it back when it is not heard in time.
    async fn keep_place(&self) {
        let Workplace { state_dir, started, restart, .. } = &self.config.workplace;
        let heard = self.lives.cancelled();
        let (Err(cause), Some(state), Some(started)) =
            (update::watch(state_dir.as_deref(), heard).await, state_dir, started)
        else {
            return;
        };
        match update::roll_back(state, &started.executable, &cause) {
            Ok(()) => restart.cancel(),
            Err(error) => warn!(%error, cause, "the previous version cannot be put back"),
        }
    }

    async fn tasks(&self, identity: &Identity) {
        let mut backoff = self.backoff("tasks");
        self.lives.cancelled().await;
        self.take_up().await;
        loop {
            if identity.poll_seconds == 0 {
                self.accepted.notified().await;
            }
            let asked_at = self.clock.monotonic_seconds();
            match self.line().poll_tasks(identity.poll_seconds).await {
                Ok(batch) => {
                    backoff.reset();
                    let idle = batch.tasks.is_empty() && identity.poll_seconds > 0;
                    for task in &batch.tasks {
                        self.carry_out(identity, task).await;
                    }
                    if idle {
                        // A control plane that does not hold the question must not be hammered.
                        let held_seconds = self.clock.monotonic_seconds() - asked_at;
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

    /// Says what the gates of the host are: at once, whenever that changes, and now and then. A task
    /// that changed something has them looked at without delay.
    async fn gates(&self) {
        self.lives.cancelled().await;
        let mut said: Option<(Vec<GateReport>, f64)> = None;
        let mut backoff = self.backoff("gates");
        loop {
            let gates = bundle::gate::all(&self.config.host).await;
            let now = self.clock.monotonic_seconds();
            let known = said
                .as_ref()
                .is_some_and(|(before, at)| *before == gates && now - *at < GATES_AGAIN_SECONDS);
            let nothing = said.is_none() && gates.is_empty();
            if !known && !nothing {
                let body = Gates { run_id: self.config.run_id, gates: gates.clone() };
                if let Err(error) = self.line().gates(&body).await {
                    let pause_seconds = pause(&mut backoff, &error);
                    warn!(%error, pause_seconds, "gates");
                    self.clock.sleep(pause_seconds).await;
                    continue;
                }
                backoff.reset();
                said = Some((gates, now));
            }
            tokio::select! {
                () = self.clock.sleep(GATES_SECONDS) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// What is not admitted touches nothing; the control plane is told why.
    async fn carry_out(&self, identity: &Identity, task: &SignedTask<Envelope>) {
        let keys = self.keys().clone();
        let now = self.judging_time();
        let admitted = order::admit(&task.order, &keys, identity.node_id, now);
        let result = match admitted {
            // A clock that is far behind would take a task of long ago for one of now.
            Ok(admitted) if admitted.id == task.id => match self.clock_fault() {
                Some(fault) if self.ahead_seconds() < 0.0 => refused("task_clock", &fault),
                _ => self.begin(&admitted).await,
            },
            Ok(admitted) => refused("task_id_mismatch", &format!("it is task {}", admitted.id)),
            Err(fault @ OrderFault::Expired { .. }) => match self.clock_fault() {
                Some(clock) => refused("task_clock", &clock),
                None => refused(fault.code(), &fault.to_string()),
            },
            Err(fault) => refused(fault.code(), &fault.to_string()),
        };
        if !result.changes.is_empty() {
            self.changed.notify_one();
        }
        self.hand_in(task.id, &result).await;
    }

    fn ahead_seconds(&self) -> f64 {
        self.ahead_seconds.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_default()
    }

    /// What a task's end is judged by.
    fn judging_time(&self) -> Timestamp {
        let ahead = self.ahead_seconds().clamp(-MOST_AHEAD_SECONDS, MOST_AHEAD_SECONDS);
        self.clock.now().plus_seconds(-ahead)
    }

    /// Why this host's clock is no judge.
    fn clock_fault(&self) -> Option<String> {
        let ahead = self.ahead_seconds();
        let word = if ahead < 0.0 { "behind" } else { "ahead of" };
        (ahead.abs() > MOST_AHEAD_SECONDS).then(|| {
            format!("this host's clock is {:.0} s {word} the control plane's", ahead.abs())
        })
    }

    /// Notes the task, carries it out, and notes what came of it.
    async fn begin(&self, task: &Task) -> TaskResult {
        let mut note = Note { id: task.id, spec: task.spec.clone(), result: None };
        if let Err(error) = self.kept(self.journal.write(&note)) {
            warn!(%error, task = %task.id, "a task is not noted");
            if !task.spec.may_repeat() {
                let code = if files::is_full(&error) { DISK_FULL } else { "state_unwritable" };
                return refused(code, &format!("the task could not be noted: {error}"));
            }
        }
        let mut place = self.config.workplace.clone();
        let secrets = lock(&self.known).as_ref().map(|known| known.proof.secrets());
        place.secrets.extend(secrets.unwrap_or_default());
        let ended = tasks::ended(&self.config.host, &place, &task.spec).await;
        note.result = Some(ended.result);
        if let Err(error) = self.kept(self.journal.write(&note)) {
            warn!(%error, task = %task.id, "a result is kept in memory only");
        }
        if ended.restart {
            // Whoever has the place now hands it in.
            self.config.workplace.restart.cancel();
            std::future::pending::<()>().await;
        }
        note.result.unwrap_or_default()
    }

    /// What another process of this agent left behind: a result to hand in, or a task that it was
    /// ended amid.
    async fn take_up(&self) {
        let Some(Note { id, spec, result }) = self.journal.read() else { return };
        let result = match result {
            Some(result) => result,
            None if spec.may_repeat() => {
                info!(task = %id, "a task was cut short; it is done again when it is given again");
                return self.journal.clear();
            }
            None => refused(
                "task_interrupted",
                "the agent was ended amid it; how far it came is not known",
            ),
        };
        self.hand_in(id, &result).await;
    }

    async fn hand_in(&self, id: TaskId, result: &TaskResult) {
        let mut backoff = self.backoff("result");
        loop {
            match self.line().task_result(id, result).await {
                Ok(()) => {
                    info!(task = %id, "result handed in");
                    break;
                }
                Err(error @ CallError::Refused(_)) => {
                    warn!(%error, task = %id, "result refused; it is dropped");
                    break;
                }
                Err(error) => {
                    let pause_seconds = backoff.next_seconds();
                    warn!(%error, pause_seconds, task = %id, "result");
                    self.clock.sleep(pause_seconds).await;
                }
            }
        }
        self.journal.clear();
    }

    pub(crate) fn backoff(&self, what: &str) -> Backoff {
        let name = format!("{}/{what}", self.config.hostname);
        Backoff::new(&name, self.config.longest_pause_seconds)
    }
}

pub(crate) fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(code: &str, why: &str) -> TaskResult {
    warn!(code, why, "a task is refused");
    TaskResult { code: code.to_owned(), message: format!("{code}: {why}"), ..TaskResult::default() }
}

pub(crate) fn pause(backoff: &mut Backoff, error: &CallError) -> f64 {
    match error {
        CallError::Refused(_) => backoff.longest_seconds(),
        CallError::Unavailable(_) | CallError::Malformed(_) => backoff.next_seconds(),
    }
}
