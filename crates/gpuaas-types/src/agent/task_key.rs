//! Keys that sign tasks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// What a key that signs tasks is for at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskKeyState {
    /// Known to agents before it is used.
    Staged,
    /// Signs new tasks.
    Active,
    /// Signs no more; what it signed counts for a while.
    Grace,
    /// Counts no more.
    Retired,
}

impl TaskKeyState {
    /// Stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Active => "active",
            Self::Grace => "grace",
            Self::Retired => "retired",
        }
    }
}

/// A key whose tasks an agent carries out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskKey {
    /// What it is for.
    pub state: TaskKeyState,
    /// Ed25519, 32 bytes in base64.
    pub public_key: String,
    /// From when on it does not count; none: not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// The keys that count. An agent has its first set from its enrollment; a later one it takes only
/// with a signature of a key that counts, and with a greater revision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskKeys {
    /// Grows with every change.
    pub revision: i64,
    /// Staged, active and grace.
    pub keys: Vec<TaskKey>,
}
