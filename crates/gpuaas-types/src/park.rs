//! Why a run stopped, as answers show it: who has to act, and which commands let it go on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::FailureClass;
use crate::time::Timestamp;

/// Who has to act on a parked run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// Whoever runs MAAS and the racks.
    InfraOperator,
    /// Whoever runs GPUaaS.
    PlatformOperator,
    /// Whoever owns the site bootstrap bundle.
    BundleOwner,
}

/// Why a run stopped, and what may be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Park {
    /// Stable code, such as `two_candidates`.
    pub code: String,
    /// One sentence.
    pub text: String,
    /// Since when.
    pub since: Timestamp,
    /// Who has to act.
    pub owner: Owner,
    /// What was seen and tried.
    pub evidence: Vec<String>,
    /// What to do next.
    pub next_action: String,
    /// The commands of `next_action`, in its order; the first is the one to try first.
    #[serde(default)]
    pub actions: Vec<ParkAction>,
    /// What kind of cause made it stop; none: an earlier version wrote it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_class: Option<FailureClass>,
    /// When the run looks again by itself whether the cause is gone; none: an operator has to say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks_again_at: Option<Timestamp>,
}

/// A command that lets a parked run go on, or ends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParkAction {
    /// The whole command; only the operator's reason is left to fill in, as `WHY`.
    pub command: String,
    /// What has to be done before it, or along with it; empty: nothing.
    pub needs: String,
}
