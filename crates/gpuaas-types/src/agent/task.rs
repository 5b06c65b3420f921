//! Tasks, how they travel, and what comes of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::host_check::HostCheck;
use super::operation::Operation;
use crate::ids::{NodeId, TaskId};
use crate::slice::{SliceReport, SliceTask};
use crate::time::Timestamp;
use crate::topology::TopologyReport;

/// What a task asks for. Each kind has its own parameters; there is no shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Stop the tenant's processes and empty its folders. Which those are, the agent knows: a task
    /// names no paths. Whatever else holds data is named and left.
    SoftReset {},
    /// Empty the scratch storage; whatever else holds data is named and left.
    StorageCleanup {},
    /// Start the host again, where it asks for that, and look at it after the boot: the bundles that
    /// asked run once more, and say whether they still do. At most [`MAX_REBOOTS`] of a system.
    Reboot {
        /// Why, as the host said; for its log.
        reasons: Vec<String>,
    },
    /// A part of the launch or of the release of a slice.
    Slice {
        /// The part.
        slice: Box<SliceTask>,
    },
    /// What an operator asked for.
    Operate {
        /// Only say what would be done.
        dry_run: bool,
        /// The operation.
        operation: Operation,
    },
}

/// How often an agent starts its host again for tasks of the run that deployed it.
pub const MAX_REBOOTS: u32 = 3;
/// What the name of a finding begins with that is about a place which a cleaning left as it is.
pub const KEPT_PREFIX: &str = "kept ";
/// What stands before a reason in a trouble of a heartbeat: the host is to be started again.
pub const REBOOT_NEEDED: &str = "reboot_needed: ";

impl TaskSpec {
    /// Whether it may be done twice without a difference.
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        match self {
            Self::Operate { dry_run, operation } => *dry_run || operation.may_repeat(),
            Self::Diagnostics { .. }
            | Self::Validate { .. }
            | Self::SoftReset {}
            | Self::StorageCleanup {} => true,
            // It is known which boot it began in.
            Self::Reboot { .. } => false,
            // What changes something is looked at before it is done again.
            Self::Slice { slice } => slice.action.may_repeat(),
        }
    }
}

/// A task for an agent. It travels in an [`AssignedTask`], signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// Identifier, to answer with.
    pub id: TaskId,
    /// What to do.
    pub spec: TaskSpec,
    /// Do not start it later than this.
    pub expires_at: Timestamp,
}

/// What a control plane signs: a task, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssignedTask {
    /// The node that is to do it.
    pub node_id: NodeId,
    /// What it is to do.
    pub task: Task,
}

/// A signed task as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignedTask<E> {
    /// Identifier, to answer with even where the envelope cannot be trusted.
    pub id: TaskId,
    /// The envelope around an [`AssignedTask`].
    pub order: E,
}

/// Answer to a task poll. `E` is the envelope of a signature; this crate knows no signatures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskBatch<E> {
    /// Zero or more tasks.
    pub tasks: Vec<SignedTask<E>>,
    /// Whether the agent is to send a heartbeat: what its poll said in the place of one does not hold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heartbeat_wanted: bool,
    /// What the control plane believes the time is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

impl<E> TaskBatch<E> {
    /// These tasks, and nothing beside them.
    #[must_use]
    pub const fn new(tasks: Vec<SignedTask<E>>) -> Self {
        Self { tasks, heartbeat_wanted: false, at: None }
    }
}

/// One finding of a diagnostics task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What was looked at.
    pub name: String,
    /// Whether it is as it should be; `None`: an observation without a verdict.
    pub passed: Option<bool>,
    /// What was seen.
    pub seen: String,
}

/// Something that a task changed, or in a dry run would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// What: a unit, a file, a package.
    pub what: String,
    /// How it was.
    pub before: String,
    /// How it is, or would be.
    pub after: String,
}

/// An archive that a task made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskArchive {
    /// Length in bytes.
    pub size_bytes: u64,
    /// SHA-256, 64 hexadecimal digits.
    pub digest: String,
    /// Where it is on the host; none: it is in `data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The bytes in base64, where they are few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

/// Body of a task result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskResult {
    /// Whether the task itself was carried out.
    pub succeeded: bool,
    /// Why not, as a stable word, when it was not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// The same as a sentence.
    #[serde(default)]
    pub message: String,
    /// What was changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// What was found.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// What was packed up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<TaskArchive>,
    /// Host facts, as the `host-facts` crate writes them.
    #[serde(default)]
    pub facts: serde_json::Value,
    /// Devices of the host that slices are made of, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Box<TopologyReport>>,
    /// What was seen of a slice, where the task was a part of its launch or release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<Box<SliceReport>>,
}
