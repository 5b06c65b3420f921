//! What was done and what happened, as operators read it: the audit log, and histories in pages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Timestamp;
use crate::api::TimelineEvent;

/// An item of `GET /api/v1/audit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditItem {
    /// Position in the log.
    pub id: i64,
    /// Moment of the action.
    pub at: Timestamp,
    /// Actor: a person or a program.
    pub actor: String,
    /// Action, such as `run.resume`.
    pub action: String,
    /// Subject of the action: an identifier or a name.
    pub subject: String,
    /// Hostname of the node that it was done to, or to whose run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Name that the site had which it was done to, or to whose node or batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Further facts; never a secret.
    pub detail: Value,
}

/// An item of `GET /api/v1/nodes/NODE/timeline`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineLine {
    /// Position in the history: a later page begins after it.
    pub id: i64,
    /// The line itself.
    #[serde(flatten)]
    pub event: TimelineEvent,
}
