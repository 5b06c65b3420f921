//! Tasks, how they travel, and what comes of them.

use serde::{Deserialize, Serialize};

use super::check::HostCheck;
use crate::ids::{NodeId, TaskId};
use crate::time::Timestamp;

/// What a task asks for. Each kind has its own parameters; there is no shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskSpec {
    /// Collect host facts and service states.
    Diagnostics {
        /// systemd units whose state is wanted.
        units: Vec<String>,
    },
    /// The same, and whether the host is what its profile says.
    Validate {
        /// systemd units whose state is wanted.
        units: Vec<String>,
        /// What has to be true. Each gives one finding of its own name.
        checks: Vec<HostCheck>,
    },
    /// Remove what a tenant left. What that is, the agent knows: a task names no paths.
    SoftReset {},
    /// Empty the scratch storage.
    StorageCleanup {},
}

/// A task for an agent. It travels in an [`Order`], signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Identifier, to answer with.
    pub id: TaskId,
    /// What to do.
    pub spec: TaskSpec,
    /// Do not start it later than this.
    pub expires_at: Timestamp,
}

/// What a control plane signs: a task, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The node that is to do it.
    pub node_id: NodeId,
    /// What it is to do.
    pub task: Task,
}

/// A signed task as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedTask<E> {
    /// Identifier, to answer with even where the envelope cannot be trusted.
    pub id: TaskId,
    /// The envelope around an [`Order`].
    pub order: E,
}

/// Answer to a task poll. `E` is the envelope of a signature; this crate knows no signatures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskBatch<E> {
    /// Zero or more tasks.
    pub tasks: Vec<SignedTask<E>>,
}

/// One finding of a diagnostics task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at.
    pub name: String,
    /// Whether it is as it should be; `None`: an observation without a verdict.
    pub passed: Option<bool>,
    /// What was seen.
    pub seen: String,
}

/// Body of a task result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskResult {
    /// Whether the task itself was carried out.
    pub succeeded: bool,
    /// Why not, when it was not.
    #[serde(default)]
    pub message: String,
    /// What was found.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Host facts, as the `host-facts` crate writes them.
    #[serde(default)]
    pub facts: serde_json::Value,
}
