//! Whose word something is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a line of the timeline, or a problem of a node, comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The control plane.
    ControlPlane,
    /// MAAS, through its event feed or a read.
    Maas,
    /// A bootstrap callback.
    Bootstrap,
    /// The node agent.
    Agent,
    /// An operator.
    Operator,
}
