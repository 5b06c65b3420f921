//! Tasks of operators in the admin API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::{Operation, TaskResult};
use crate::ids::{NodeId, TaskId};
use crate::text;
use crate::time::Timestamp;

/// Body of `POST /api/v1/nodes/NODE/tasks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskRequest {
    /// What is to be done. An `agent_update` without a bundle is to the control plane's own agent.
    pub operation: Operation,
    /// Have the agent only say what it would do.
    #[serde(default)]
    pub dry_run: bool,
    /// Who asks; kept in the history.
    pub actor: String,
    /// Reason, recorded in the history.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
    /// Within how many seconds the agent has to begin.
    #[serde(default = "within_seconds")]
    #[schemars(range(min = 10, max = 86_400))]
    pub within_seconds: u32,
}

const fn within_seconds() -> u32 {
    900
}

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// The agent has not fetched it.
    Queued,
    /// The agent has it.
    Taken,
    /// Carried out.
    Done,
    /// Not carried out; the result says why.
    Failed,
    /// The agent did not answer in time.
    Expired,
}

impl TaskState {
    /// Its written form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Taken => "taken",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Expired => "expired",
        }
    }

    /// Whether more is to come.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Queued | Self::Taken)
    }
}

/// A task of an operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskView {
    /// Identifier of the task.
    pub id: TaskId,
    /// The node.
    pub node_id: NodeId,
    /// Its hostname.
    pub hostname: String,
    /// How it stands.
    pub state: TaskState,
    /// Whether the agent only says what it would do.
    pub dry_run: bool,
    /// What is to be done.
    pub operation: Operation,
    /// Who asked.
    pub actor: String,
    /// The operator's reason.
    pub reason: String,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// The agent does not begin later than this.
    pub expires_at: Timestamp,
    /// When the agent fetched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Timestamp>,
    /// When the result came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// What came of it. In a list without the bytes of an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<TaskResult>,
}
