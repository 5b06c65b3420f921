//! What the loops of a running agent share.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gpuaas_types::agent::TaskKeys;
use gpuaas_types::{NodeId, Problem, RunId, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::answered_heartbeat::AnsweredHeartbeat;
use super::slice_tasks::SliceTasks;
use super::turns::Turns;
use crate::atomic_file;
use crate::carried_out::CarriedOutTasks;
use crate::clock::{AgentClock, Backoff};
use crate::env::AgentEnv;
use crate::host::Host;
use crate::identity::{Identity, IdentityStore};
use crate::protocol::{ControlPlane, ControlPlaneError, SetupError};
use crate::task_journal::TaskJournal;

/// Code of a write that failed for lack of space.
pub(super) const DISK_FULL: &str = "disk_full";

/// Configuration of an agent.
#[derive(Debug)]
pub struct AgentConfig {
    /// The run that deployed this system.
    pub run_id: RunId,
    /// Short hostname of the node.
    pub hostname: String,
    /// Single-use token of the enrollment. Secret.
    pub enrollment_token: String,
    /// Where the identity is stored.
    pub identity: IdentityStore,
    /// Written on one line once the first heartbeat was accepted; the node bootstrap waits for it.
    pub ready_file: Option<PathBuf>,
    /// Receives the node's id once the first heartbeat was accepted.
    pub ready: Option<oneshot::Sender<NodeId>>,
    /// The host that the agent works on.
    pub host: Host,
    /// File of what the agent trusts for its control plane, a path of this process; none: it is in no
    /// file.
    pub ca_file: Option<PathBuf>,
    /// What the agent works with beside the host.
    pub env: AgentEnv,
    /// Longest pause between attempts while the control plane does not answer, in seconds.
    pub max_backoff_seconds: f64,
}

/// Why an agent ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The control plane refused the enrollment token.
    #[error(
        "the enrollment was refused: {0}\nif the run is parked, resume it and restart this agent; \
         otherwise the token was already used or belongs to another run: start a new run of the \
         node (onboard or reimage) to get a new token"
    )]
    EnrollmentRefused(Box<Problem>),
    /// A trial on a host that no agent is enrolled on.
    #[error("this host has no identity for this run; enroll the agent first")]
    NotEnrolled,
    /// No key can be generated.
    #[error("cannot generate a key: {0}")]
    NoKey(io::Error),
    /// The stored credential cannot be used.
    #[error(transparent)]
    Credential(#[from] SetupError),
}

/// A running agent.
pub(super) struct Agent {
    pub(super) config: AgentConfig,
    /// The control plane without a credential, for the enrollment.
    control_plane: Mutex<ControlPlane>,
    pub(super) clock: Arc<dyn AgentClock>,
    pub(super) started_at: Timestamp,
    pub(super) started_monotonic_seconds: f64,
    /// A heartbeat was accepted; wakes the task loop where the control plane holds no polls.
    pub(super) heartbeat_accepted: Notify,
    /// A task changed the host; wakes the loop that reports gates.
    pub(super) host_changed: Notify,
    /// The control plane wants the certificate to be renewed now.
    pub(super) renewal_asked: Notify,
    /// Whose turn it is on the one connection that polls and heartbeats share.
    pub(super) turns: Turns,
    /// The last heartbeat, where a poll may stand for the next ones.
    answered_heartbeat: Mutex<Option<AnsweredHeartbeat>>,
    /// Cancelled when the first heartbeat was accepted.
    pub(super) first_heartbeat: CancellationToken,
    /// The tasks at hand.
    pub(super) journal: TaskJournal,
    /// Tasks of slices.
    pub(super) slice_tasks: SliceTasks,
    /// Tasks that are behind this host.
    pub(super) carried_out: CarriedOutTasks,
    /// What of slices does not fit together on the host, as last seen.
    slice_discrepancies: Mutex<Vec<String>>,
    /// Whether the last write failed for lack of space.
    disk_full: AtomicBool,
    /// The control plane with the agent's credential; without one before the enrollment.
    authenticated: Mutex<ControlPlane>,
    /// The identity as it is stored.
    identity: Mutex<Option<Identity>>,
    /// Keys whose tasks are carried out.
    task_keys: Mutex<TaskKeys>,
    /// Seconds that this host's clock is ahead of the control plane's, once known.
    clock_offset_seconds: Mutex<Option<f64>>,
}

impl Agent {
    pub(super) fn new(
        config: AgentConfig,
        control_plane: ControlPlane,
        clock: Arc<dyn AgentClock>,
    ) -> Self {
        Self {
            started_at: clock.now(),
            started_monotonic_seconds: clock.monotonic_seconds(),
            journal: TaskJournal::new(config.env.state_dir.as_deref()),
            carried_out: CarriedOutTasks::load(config.env.state_dir.as_deref()),
            config,
            authenticated: Mutex::new(control_plane.clone()),
            control_plane: Mutex::new(control_plane),
            renewal_asked: Notify::new(),
            clock,
            heartbeat_accepted: Notify::new(),
            host_changed: Notify::new(),
            turns: Turns::default(),
            answered_heartbeat: Mutex::default(),
            slice_tasks: SliceTasks::default(),
            first_heartbeat: CancellationToken::new(),
            slice_discrepancies: Mutex::default(),
            disk_full: AtomicBool::new(false),
            identity: Mutex::default(),
            task_keys: Mutex::default(),
            clock_offset_seconds: Mutex::default(),
        }
    }

    /// The last heartbeat, where a poll may stand for the next ones.
    pub(super) fn answered_heartbeat(&self) -> Option<AnsweredHeartbeat> {
        self.answered_heartbeat.lock().clone()
    }

    /// Replaces it.
    pub(super) fn set_answered_heartbeat(&self, heartbeat: Option<AnsweredHeartbeat>) {
        *self.answered_heartbeat.lock() = heartbeat;
    }

    /// The control plane without a credential.
    pub(super) fn control_plane(&self) -> ControlPlane {
        self.control_plane.lock().clone()
    }

    /// Uses another view of the control plane, and `identity`, for every call from now on.
    ///
    /// # Errors
    /// Its credential cannot be used.
    pub(super) fn trust(
        &self,
        control_plane: ControlPlane,
        identity: Identity,
    ) -> Result<(), SetupError> {
        *self.control_plane.lock() = control_plane;
        self.assume_identity(identity)
    }

    /// The control plane with the agent's credential.
    pub(super) fn authenticated(&self) -> ControlPlane {
        self.authenticated.lock().clone()
    }

    /// The identity as it is stored; `None` before the enrollment.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.identity.lock().clone()
    }

    /// What a task is carried out with: the agent's own secrets are redacted in its result.
    pub(super) fn task_env(&self) -> AgentEnv {
        let mut env = self.config.env.clone();
        env.control_plane = env.control_plane.map(|_| self.authenticated());
        env.secrets.extend(self.identity().map(|it| it.credential.secrets()).unwrap_or_default());
        env
    }

    /// Uses `identity` for every call from now on.
    ///
    /// # Errors
    /// Its credential cannot be used.
    pub(super) fn assume_identity(&self, identity: Identity) -> Result<(), SetupError> {
        *self.authenticated.lock() = self.control_plane().with_credential(&identity.credential)?;
        *self.identity.lock() = Some(identity);
        Ok(())
    }

    /// Keys whose tasks are carried out.
    pub(super) fn task_keys(&self) -> TaskKeys {
        self.task_keys.lock().clone()
    }

    /// Replaces the keys whose tasks are carried out.
    pub(super) fn set_task_keys(&self, keys: TaskKeys) {
        *self.task_keys.lock() = keys;
    }

    /// Replaces the keys in the identity; the identity to store then.
    pub(super) fn with_task_keys(&self, keys: &TaskKeys) -> Option<Identity> {
        let mut identity = self.identity.lock();
        identity.as_mut()?.task_keys = keys.clone();
        identity.clone()
    }

    /// What of slices does not fit together on the host, as last seen.
    pub(super) fn slice_discrepancies(&self) -> Vec<String> {
        self.slice_discrepancies.lock().clone()
    }

    pub(super) fn set_slice_discrepancies(&self, found: Vec<String>) {
        *self.slice_discrepancies.lock() = found;
    }

    /// Whether the last write failed for lack of space.
    pub(super) fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    /// Passes on the result of a write, and records whether the disk is full.
    pub(super) fn track_disk_full<T>(&self, written: io::Result<T>) -> io::Result<T> {
        let full = written.as_ref().is_err_and(atomic_file::is_disk_full);
        if full || written.is_ok() {
            self.disk_full.store(full, Ordering::Relaxed);
        }
        written
    }

    /// Seconds that this host's clock is ahead of the control plane's; 0 while not known.
    pub(super) fn clock_offset_seconds(&self) -> f64 {
        self.clock_offset_seconds.lock().unwrap_or_default()
    }

    pub(super) fn set_clock_offset_seconds(&self, seconds: f64) {
        *self.clock_offset_seconds.lock() = Some(seconds);
    }

    /// Pauses for the attempts of `activity`, spread by the host's name.
    pub(super) fn backoff(&self, activity: &str) -> Backoff {
        let name = format!("{}/{activity}", self.config.hostname);
        Backoff::new(&name, self.config.max_backoff_seconds)
    }
}

/// Seconds to wait after `error`: the longest pause where the same call would be refused again.
pub(super) fn pause_seconds(backoff: &mut Backoff, error: &ControlPlaneError) -> f64 {
    match error {
        ControlPlaneError::Refused(_) => backoff.longest_seconds(),
        ControlPlaneError::Unavailable(_) | ControlPlaneError::Malformed(_) => {
            backoff.next_seconds()
        }
    }
}
