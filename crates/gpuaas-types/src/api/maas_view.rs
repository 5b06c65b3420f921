//! A machine as MAAS sees it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What MAAS says of a node's machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MaasView {
    /// MAAS' identifier; none before discovery.
    pub system_id: Option<String>,
    /// MAAS' label of the status.
    pub status_name: Option<String>,
    /// Age of that knowledge, in seconds.
    pub observed_seconds_ago: Option<f64>,
}
