//! The tasks at hand, recorded on disk so that they survive a restart of the agent.
//!
//! The agent records a task before it begins, and the task's result before it submits that. An
//! agent that finds an entry without a result was ended amid the task. Where the task may be done
//! twice, the agent does it again when the control plane sends it again; where it may not, the
//! agent reports it as interrupted. A result that was not submitted yet is submitted by the next
//! process.
//!
//! Tasks of slices are carried out beside each other, and have a file each. There is one file for all
//! others, which are carried out one after the other: versions of the agent before this one know no
//! other file, and one of them may be the next process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gpuaas_types::agent::{TaskResult, TaskSpec};
use gpuaas_types::{TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::atomic_file;
use crate::reboot_reasons::PendingReboot;

/// A task that was begun.
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

/// File of a task that is of no slice.
const FILE: &str = "task.json";
/// Folder of those that are, with a file each: `TASK-ID.json`.
const SLICE_FOLDER: &str = "slice-tasks";

/// The agent's folder; `None` for a simulated host, which has no files.
#[derive(Debug, Clone)]
pub(crate) struct TaskJournal(Option<PathBuf>);

impl TaskJournal {
    /// The journal in `state_dir`.
    pub(crate) fn new(state_dir: Option<&Path>) -> Self {
        Self(state_dir.map(Path::to_owned))
    }

    /// All entries that can be read.
    pub(crate) fn entries(&self) -> Vec<TaskEntry> {
        let Some(folder) = &self.0 else { return Vec::new() };
        let slices = fs::read_dir(folder.join(SLICE_FOLDER)).into_iter().flatten().flatten();
        let paths = slices.map(|file| file.path());
        // What a killed process was amid writing has another extension.
        let written = paths.filter(|path| path.extension().is_some_and(|it| it == "json"));
        let mut paths: Vec<PathBuf> = written.collect();
        paths.sort();
        paths.insert(0, folder.join(FILE));
        paths.iter().filter_map(|path| read(path)).collect()
    }

    /// Replaces the entry of a task; of one that is of no slice, that of the task before it.
    ///
    /// # Errors
    /// The file cannot be written; the entry before is still there then.
    pub(crate) fn write(&self, entry: &TaskEntry) -> io::Result<()> {
        let Some(folder) = &self.0 else { return Ok(()) };
        let path = match &entry.spec {
            TaskSpec::Slice { .. } => slice_file(folder, entry.id),
            _ => folder.join(FILE),
        };
        atomic_file::replace(&path, &serde_json::to_vec(entry)?)
    }

    /// Removes the entry of a task.
    pub(crate) fn clear(&self, id: TaskId) {
        let Some(folder) = &self.0 else { return };
        let file = folder.join(FILE);
        let path = match read(&file) {
            Some(entry) if entry.id == id => file,
            _ => slice_file(folder, id),
        };
        if let Err(error) = atomic_file::remove_if_there(&path) {
            tracing::warn!(%error, task = %id, "cannot remove the entry of a finished task");
        }
    }
}

fn read(path: &Path) -> Option<TaskEntry> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn slice_file(folder: &Path, id: TaskId) -> PathBuf {
    folder.join(SLICE_FOLDER).join(format!("{id}.json"))
}
