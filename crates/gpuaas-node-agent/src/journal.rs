//! What became of the task at hand, kept over restarts.
//!
//! Before a task begins it is noted, and its result before it is handed in. An agent that finds a
//! note without a result was ended amid the task: where the task may be done twice it is done again
//! when the control plane gives it again, and where it may not, it is reported as interrupted. A
//! result that was not handed in yet is handed in by whoever starts next.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gpuaas_types::TaskId;
use gpuaas_types::agent::{TaskResult, TaskSpec};
use serde::{Deserialize, Serialize};

use crate::files;

/// The task that was begun last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Which.
    pub(crate) id: TaskId,
    /// What it is.
    pub(crate) spec: TaskSpec,
    /// What came of it; none: it has not ended.
    #[serde(default)]
    pub(crate) result: Option<TaskResult>,
}

/// Where the note is. A stand-in keeps none.
#[derive(Debug, Clone)]
pub(crate) struct Journal(Option<PathBuf>);

impl Journal {
    /// In a folder of the agent's.
    pub(crate) fn new(state_dir: Option<&Path>) -> Self {
        Self(state_dir.map(|folder| folder.join("task.json")))
    }

    /// The note, if there is one that can be read.
    pub(crate) fn read(&self) -> Option<Note> {
        serde_json::from_slice(&fs::read(self.0.as_ref()?).ok()?).ok()
    }

    /// Replaces the note.
    pub(crate) fn write(&self, note: &Note) -> io::Result<()> {
        match &self.0 {
            Some(path) => files::replace(path, &serde_json::to_vec(note)?),
            None => Ok(()),
        }
    }

    /// Nothing is at hand any more.
    pub(crate) fn clear(&self) {
        let Some(path) = &self.0 else { return };
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "the note of a task stays");
            }
            _ => {}
        }
    }
}
