//! The protocol between a node and the control plane: bootstrap progress, enrollment, heartbeat,
//! typed tasks.
//!
//! | request | credential |
//! |---|---|
//! | `GET  /bootstrap/v1/health` | none |
//! | `GET  /bootstrap/v1/artifacts/sha256/DIGEST` | none: the digest is the secret-free name |
//! | `POST /bootstrap/v1/runs/RUN/progress` | bootstrap token |
//! | `POST /agent/v1/enroll` | enrollment token, once |
//! | `POST /agent/v1/heartbeat` | agent credential |
//! | `GET  /agent/v1/tasks?wait_seconds=N` | agent credential; long poll |
//! | `POST /agent/v1/tasks/TASK/result` | agent credential |
//!
//! Credentials travel as `Authorization: Bearer`. Each works on its own endpoints only.

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, RunId, TaskId};
use crate::time::Timestamp;

/// Which part of the bootstrap reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The infra-owned site bootstrap.
    SiteBootstrap,
    /// The GPUaaS node bootstrap.
    NodeBootstrap,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressStatus {
    /// Begun.
    Started,
    /// Ended well.
    Succeeded,
    /// Ended badly; `message` says how.
    Failed,
}

/// Body of a progress callback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Which part.
    pub phase: Phase,
    /// How far.
    pub status: ProgressStatus,
    /// Free text, at most 2,000 characters are kept.
    #[serde(default)]
    pub message: String,
}

/// Body of an enrollment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrollRequest {
    /// The run whose deployment started this agent.
    pub run_id: RunId,
    /// Short hostname that the host believes it has.
    pub hostname: String,
    /// Version of the agent.
    pub agent_version: String,
    /// When the agent process started, by the host's clock.
    pub started_at: Timestamp,
    /// First look at the host.
    pub facts: serde_json::Value,
}

/// Answer to an enrollment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnrollResponse {
    /// Who the agent is from now on.
    pub node_id: NodeId,
    /// Bearer credential of the agent, shown once.
    pub credential: String,
    /// How often to send a heartbeat, in seconds.
    pub heartbeat_interval_seconds: u32,
    /// Longest task poll, in seconds; 0: the agent asks once after each heartbeat instead.
    pub poll_seconds: u32,
}

/// Body of a heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// The run that deployed this system.
    pub run_id: RunId,
    /// Version of the agent.
    pub agent_version: String,
    /// Seconds since the host booted.
    pub uptime_seconds: f64,
}

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

/// Something that has to be true of a host after its deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "check", rename_all = "snake_case", deny_unknown_fields)]
pub enum HostCheck {
    /// There is a file or folder.
    FileExists {
        /// Absolute path.
        path: String,
    },
    /// Something is mounted.
    MountPresent {
        /// Where.
        target: String,
    },
    /// At least so many PCI functions.
    PciPresent {
        /// Vendor, four hexadecimal digits.
        vendor: String,
        /// Device, four hexadecimal digits; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        /// How many.
        count: u32,
    },
    /// A network link is up.
    LinkUp {
        /// Its name, or its hardware address.
        interface: String,
    },
    /// At least so many InfiniBand links are up.
    InfinibandUp {
        /// How many.
        count: u32,
    },
    /// A Debian package is installed.
    PackageInstalled {
        /// Its name.
        package: String,
    },
    /// A systemd unit is active.
    UnitActive {
        /// Its name.
        unit: String,
    },
}

impl HostCheck {
    /// Name of its finding.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::FileExists { path } => format!("file {path}"),
            Self::MountPresent { target } => format!("mount {target}"),
            Self::PciPresent { vendor, device, .. } => {
                format!("pci {vendor}:{}", device.as_deref().unwrap_or("any"))
            }
            Self::LinkUp { interface } => format!("link {interface}"),
            Self::InfinibandUp { .. } => "infiniband".to_owned(),
            Self::PackageInstalled { package } => format!("package {package}"),
            Self::UnitActive { unit } => format!("unit {unit}"),
        }
    }
}

/// A task handed to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Identifier, to answer with.
    pub id: TaskId,
    /// What to do.
    pub spec: TaskSpec,
    /// Do not start it later than this.
    pub expires_at: Timestamp,
}

/// Answer to a task poll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskBatch {
    /// Zero or more tasks.
    pub tasks: Vec<Task>,
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
