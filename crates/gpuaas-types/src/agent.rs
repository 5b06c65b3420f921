//! The protocol between a node and the control plane: bootstrap progress, enrollment, heartbeat,
//! typed tasks.
//!
//! | request | credential |
//! |---|---|
//! | `GET  /bootstrap/v1/health` | none |
//! | `GET  /bootstrap/v1/artifacts/sha256/DIGEST` | node certificate, bootstrap token or enrollment token |
//! | `POST /bootstrap/v1/runs/RUN/progress` | bootstrap token |
//! | `POST /bootstrap/v1/runs/RUN/phases` | bootstrap token |
//! | `POST /agent/v1/enroll` | enrollment token, once |
//! | `POST /agent/v1/heartbeat` | node certificate |
//! | `GET  /agent/v1/tasks?wait_seconds=N&heartbeat_digest=D` | node certificate; long poll, which may stand for a heartbeat |
//! | `POST /agent/v1/tasks/TASK/result` | node certificate |
//! | `POST /agent/v1/gates` | node certificate |
//! | `POST /agent/v1/certificate` | node certificate; another one before its end |
//!
//! Tokens travel as `Authorization: Bearer`, certificates in the TLS handshake. Each works on its
//! own endpoints only. Stand-ins of simulated fleets have a bearer credential instead of a
//! certificate, where a control plane was started for them.

/// Version of the agent that a control plane of this build gives to nodes: both are of one release.
pub const AGENT_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Seconds between two heartbeats of an agent, by its own clock.
pub const HEARTBEAT_INTERVAL_SECONDS: u32 = 30;

mod agent_version;
mod bootstrap;
mod enrollment;
mod gate;
mod host_check;
mod operation;
mod operation_bounds;
mod task;
mod task_key;

pub use agent_version::AgentVersion;
pub use bootstrap::{BootstrapPhase, BootstrapProgress, BundlePhase, PhaseOutcome, ProgressStatus};
pub use enrollment::{
    EnrollRequest, EnrollResponse, HeartbeatRequest, HeartbeatResponse, NodeCertificate,
    RenewRequest, TpmQuote, TrustBundle,
};
pub use gate::{Gate, GateCheck, GateClass, GateReport, Gates};
pub use host_check::{ANY_INFINIBAND, HostCheck};
pub use operation::{
    Operation, OperationFault, PackageTarget, Registry, SERVICE_UNITS, ServiceAction,
};
pub use operation_bounds::is_unit;
pub use task::{
    AssignedTask, Change, Finding, KEPT_PREFIX, MAX_REBOOTS, REBOOT_NEEDED, SignedTask, Task,
    TaskArchive, TaskBatch, TaskResult, TaskSpec,
};
pub use task_key::{TaskKey, TaskKeyState, TaskKeys};
