//! Identifiers, resources and wire types of GPUaaS. Serde only: no I/O, no clock.
//!
//! Everything that crosses a process boundary is here once, so the control plane, the command
//! line and the node agent cannot disagree about a name.

pub mod access;
pub mod agent;
pub mod api;
pub mod approval;
pub mod audit;
pub mod audit_action;
pub mod batch;
pub mod built_in_bundle;
pub mod bundle;
pub mod change;
pub mod claim;
pub mod coded_error;
pub mod codes;
pub mod event;
pub mod experiment;
pub mod explain;
pub mod failure;
pub mod filter;
pub mod health;
pub mod ids;
pub mod image;
pub mod issuer;
pub mod key_reference;
pub mod lifecycle;
pub mod limits;
pub mod machine;
pub mod metrics;
pub mod park;
pub mod plan;
pub mod problem;
pub mod scripts;
pub mod secret_kinds;
pub mod secret_text;
pub mod slice;
pub mod slot;
pub mod source;
pub mod spec;
pub mod steps;
pub mod string_enum;
pub mod task;
pub mod telemetry;
#[cfg(test)]
mod tests;
pub mod text;
pub mod time;
pub mod topology;
pub mod trace_context;

pub use audit_action::AuditAction;
pub use coded_error::CodedError;
pub use ids::{
    ApprovalId, AttemptId, BatchId, ClaimId, EventSinkId, IdSource, NodeId, ProfileId, RandomIds,
    RoceAssignmentId, RunId, SiteId, TaskId, TokenId,
};
pub use lifecycle::{
    BatchPhase, Bucket, DriftAction, DriftKind, MemberState, NodeState, RunKind, RunStatus,
};
pub use problem::{FieldError, Problem};
pub use secret_text::SecretText;
pub use steps::{EffectKind, Step};
pub use string_enum::UnknownValue;
pub use time::Timestamp;
