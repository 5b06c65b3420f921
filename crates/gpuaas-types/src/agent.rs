//! The protocol between a node and the control plane: bootstrap progress, enrollment, heartbeat,
//! typed tasks.
//!
//! | request | credential |
//! |---|---|
//! | `GET  /bootstrap/v1/health` | none |
//! | `GET  /bootstrap/v1/artifacts/sha256/DIGEST` | none: the digest is the secret-free name |
//! | `POST /bootstrap/v1/runs/RUN/progress` | bootstrap token |
//! | `POST /bootstrap/v1/runs/RUN/phases` | bootstrap token |
//! | `POST /agent/v1/enroll` | enrollment token, once |
//! | `POST /agent/v1/heartbeat` | agent credential |
//! | `GET  /agent/v1/tasks?wait_seconds=N` | agent credential; long poll |
//! | `POST /agent/v1/tasks/TASK/result` | agent credential |
//! | `POST /agent/v1/gates` | agent credential |
//!
//! Credentials travel as `Authorization: Bearer`. Each works on its own endpoints only.

mod bootstrap;
mod check;
mod gate;
mod key;
mod life;
mod operation;
mod task;

pub use bootstrap::{BundlePhase, Phase, PhaseOutcome, Progress, ProgressStatus};
pub use check::HostCheck;
pub use gate::{Gate, GateCheck, GateClass, GateReport, Gates};
pub use key::{TaskKey, TaskKeyState, TaskKeys};
pub use life::{EnrollRequest, EnrollResponse, Heartbeat, HeartbeatAnswer};
pub use operation::{
    Operation, OperationFault, PackageTarget, Registry, SERVICE_UNITS, ServiceAction, is_unit,
};
pub use task::{
    Change, Finding, KeptArchive, Order, SignedTask, Task, TaskBatch, TaskResult, TaskSpec,
};
