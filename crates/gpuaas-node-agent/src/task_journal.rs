//! The task at hand, recorded on disk so that it survives a restart of the agent.
//!
//! The agent records a task before it begins, and the task's result before it submits that. An
//! agent that finds an entry without a result was ended amid the task. Where the task may be done
//! twice, the agent does it again when the control plane sends it again; where it may not, the
//! agent reports it as interrupted. A result that was not submitted yet is submitted by the next
//! process.

use std::io;
use std::path::{Path, PathBuf};

use gpuaas_types::agent::{TaskResult, TaskSpec};
use gpuaas_types::{TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::atomic_file;
use crate::reboot_reasons::PendingReboot;

/// The task that was begun last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskEntry {
    /// The task's id.
    pub(crate) id: TaskId,
    /// What the task asks for.
    pub(crate) spec: TaskSpec,
    /// The task was not to begin later than this; `None`: an earlier version of the agent wrote this.
    #[serde(default)]
    pub(crate) expires_at: Option<Timestamp>,
    /// How the task ended; `None`: it has not ended.
    #[serde(default)]
    pub(crate) result: Option<TaskResult>,
    /// Of a reboot: the boot that it began in, and what asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reboot: Option<PendingReboot>,
}

/// The file `task.json` of the agent's folder; `None` for a simulated host, which has no files.
#[derive(Debug, Clone)]
pub(crate) struct TaskJournal(Option<PathBuf>);

impl TaskJournal {
    /// The journal in `state_dir`.
    pub(crate) fn new(state_dir: Option<&Path>) -> Self {
        Self(state_dir.map(|folder| folder.join("task.json")))
    }

    /// The entry; `None` where there is none, or none that can be read.
    pub(crate) fn read(&self) -> Option<TaskEntry> {
        serde_json::from_slice(&std::fs::read(self.0.as_ref()?).ok()?).ok()
    }

    /// Replaces the entry.
    ///
    /// # Errors
    /// The file cannot be written; the entry before is still there then.
    pub(crate) fn write(&self, entry: &TaskEntry) -> io::Result<()> {
        match &self.0 {
            Some(path) => atomic_file::replace(path, &serde_json::to_vec(entry)?),
            None => Ok(()),
        }
    }

    /// Removes the entry.
    pub(crate) fn clear(&self) {
        if let Some(Err(error)) = self.0.as_deref().map(atomic_file::remove_if_there) {
            tracing::warn!(%error, "the entry of a finished task cannot be removed");
        }
    }
}
