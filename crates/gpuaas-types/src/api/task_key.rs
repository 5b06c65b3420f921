//! Requests of the admin API about the keys that sign tasks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Body of `POST /api/v1/task-keys/activate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActivateTaskKey {
    /// How long tasks count that the key before it signed, in seconds.
    pub grace_seconds: u32,
}

/// Body of `POST /api/v1/task-keys/retire`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetireTaskKey {
    /// The key, as the list shows it.
    pub public_key: String,
}
