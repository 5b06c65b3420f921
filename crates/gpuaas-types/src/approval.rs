//! Requests that wait for another person: what was asked, by whom, and what became of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::ApprovalId;
use crate::string_enum::string_enum;
use crate::text;
use crate::time::Timestamp;

string_enum! {
/// What a request that waits for another person is about.
ApprovalKind {
    /// A run that erases what is on a node.
    Run = "run",
    /// An onboarding of one machine, whose disks are written over.
    Onboarding = "onboarding",
    /// A batch: the disks of its machines are written over.
    Batch = "batch",
    /// An approval of a bundle for a site.
    Bundle = "bundle",
    /// An approval of a host image for a site.
    Image = "image",
    /// An experiment: its nodes are deployed again.
    Experiment = "experiment",
    /// An update of a node's agent.
    AgentUpdate = "agent_update",
    /// A change of a site that asks for a second person less often.
    Policy = "policy",
    /// A run or a batch that continues otherwise than it was asked for.
    Continuation = "continuation",
    /// A node that is another machine from then on.
    NodeChange = "node_change",
    /// A release of a slice, whose drives are erased.
    ClaimRelease = "claim_release",
}
}

string_enum! {
/// How a request that waits for another person stands.
ApprovalState {
    /// Nobody has decided.
    Pending = "pending",
    /// Another person agreed, and it had no effect yet; also after a kill it is executed, and once.
    Approved = "approved",
    /// It was carried out.
    Done = "done",
    /// Another person agreed, and it was refused when it was carried out.
    Failed = "failed",
    /// Somebody said no.
    Denied = "denied",
    /// Nobody decided in time.
    Expired = "expired",
}
}

/// A request that waits, or waited, for another person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalView {
    /// Identifier of the request.
    pub id: ApprovalId,
    /// What it is about.
    pub kind: ApprovalKind,
    /// How it stands.
    pub state: ApprovalState,
    /// Name of the site that it concerns.
    pub site: String,
    /// Hostname of the node that it concerns; none: it concerns no single node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What was asked, a clause.
    pub summary: String,
    /// Who asked.
    pub requested_by: String,
    /// The reason that was given; empty: none.
    pub reason: String,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// When nobody may agree any more.
    pub expires_at: Timestamp,
    /// SHA-256 of the body of the request, hex.
    pub digest: String,
    /// SHA-256 of what it is about as it was then, hex; another one is refused.
    pub target_digest: String,
    /// The request itself, passwords hidden; only where one approval is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<ApprovalRequest>,
    /// Who decided; none: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// When that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    /// The reason of whoever decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_reason: Option<String>,
    /// What was answered when it was carried out: an answer, or a problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
}

/// A request as it was sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalRequest {
    /// HTTP method.
    pub method: String,
    /// Path, with parameters in braces.
    pub path: String,
    /// Value of its parameter; empty: it has none.
    pub key: String,
    /// JSON body.
    pub body: Value,
}

impl ApprovalRequest {
    /// A `POST` with these bytes as its body, which were read as JSON before.
    #[must_use]
    pub fn post(path: &str, key: &str, body: &[u8]) -> Self {
        let body = serde_json::from_slice(body).unwrap_or_default();
        Self { method: "POST".to_owned(), path: path.to_owned(), key: key.to_owned(), body }
    }
}

/// Body of `POST /api/v1/approvals/APPROVAL/approve` and `.../deny`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalDecision {
    /// Name of the operator, as the audit keeps it.
    #[serde(default)]
    pub actor: String,
    /// Reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}
