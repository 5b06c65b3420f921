//! What was done and what happened, as operators read it: the audit log, and histories in pages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::TimelineEvent;
use crate::string_enum::string_enum;
use crate::{NodeId, Timestamp};

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
    /// Role that the operation asked for; none: it was no request of the admin API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Address that the request came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Identifier of the request, as its answer names it in `X-Request-Id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// `done`, or the code that it was refused with.
    #[serde(default)]
    pub result: String,
    /// SHA-256 of what was changed as it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// SHA-256 of what was changed as it was afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Hostname of the node that it was done to, or to whose run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Name that the site had which it was done to, or to whose node or batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Further facts; never a secret.
    pub detail: Value,
}

/// What the digest of a row of the audit log covers. A field without a value is `null`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    /// Position in the log.
    pub id: i64,
    /// Moment of the action.
    pub at: Timestamp,
    /// Actor: a person or a program.
    pub actor: String,
    /// Role that the operation asked for.
    pub role: Option<String>,
    /// Address that the request came from.
    pub address: Option<String>,
    /// Action, such as `run.resume`.
    pub action: String,
    /// Subject of the action: an identifier or a name.
    pub subject: String,
    /// Node that it was done to, or to whose run.
    pub node_id: Option<NodeId>,
    /// Name that the site had which it was done to, or to whose node or batch.
    pub site: Option<String>,
    /// SHA-256 of what was changed as it was before.
    pub before: Option<String>,
    /// SHA-256 of what was changed as it was afterwards.
    pub after: Option<String>,
    /// `done`, or the code that it was refused with.
    pub result: String,
    /// Identifier of the request.
    pub request_id: Option<String>,
    /// Further facts; never a secret.
    pub detail: Value,
}

/// A row of the audit's chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChainedAuditRecord {
    /// Position in the chain, from 1 on without a gap.
    pub seq: i64,
    /// SHA-256 of the record, hex.
    pub row_digest: String,
    /// SHA-256 of the digest of the row before and of the record's, hex.
    pub digest: String,
    /// Group of rows that were exported and deleted together, because they were old; none: the
    /// record is there.
    #[serde(default)]
    pub expired: Option<i64>,
    /// What was written down; none: it is not there any more.
    pub record: Option<AuditRecord>,
}

/// An end of the audit's chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditChainEnd {
    /// Position in the chain; 0: before the first row.
    pub seq: i64,
    /// Digest of that row, hex.
    pub digest: String,
}

/// Answer of `GET /api/v1/audit/chain`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditChainPage {
    /// Rows in the order of the chain.
    pub items: Vec<ChainedAuditRecord>,
    /// Value of the parameter `after` that asks for the next rows; none: these are the last ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The last row.
    pub head: AuditChainEnd,
    /// The last of those rows that are gone because they were old: the first row that there is
    /// continues it.
    pub anchor: AuditChainEnd,
    /// Entries, by position in the log, that no row of the chain has, and that are too old to wait
    /// for theirs. Only with the last rows, and ten at most.
    pub strays: Vec<i64>,
    /// Seconds for which entries are kept; none: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_seconds: Option<u64>,
    /// Moment of the oldest entry that is kept; none: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_at: Option<Timestamp>,
}

string_enum! {
    /// In which way a row of the audit does not fit.
    AuditFaultKind {
        /// It is not what was written down.
        Changed = "changed",
        /// It is not there.
        Removed = "removed",
        /// It was not written down by a control plane.
        Inserted = "inserted",
    }
}

/// The first row of the audit that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditFault {
    /// What became of it.
    pub kind: AuditFaultKind,
    /// Position in the chain; none: the chain does not have it.
    pub seq: Option<i64>,
    /// Position in the log, where that is known.
    pub id: Option<i64>,
    /// What was found, in a sentence.
    pub text: String,
}

/// What a verification of the audit's chain has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditVerdict {
    /// Whether every row fits.
    pub intact: bool,
    /// Rows that were looked at.
    pub rows: u64,
    /// Those of them whose record was exported and deleted because it was old.
    pub expired: u64,
    /// Where the chain begins: what was before is gone because it was old.
    pub anchor: AuditChainEnd,
    /// The last row that fits. Whoever keeps it elsewhere can later show that nothing before it
    /// was rewritten: `gpuaas audit verify --expect SEQ:DIGEST`.
    pub head: AuditChainEnd,
    /// The first row that does not fit.
    pub fault: Option<AuditFault>,
    /// Seconds for which entries are kept; none: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_seconds: Option<u64>,
    /// Moment of the oldest entry that is kept; none: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_at: Option<Timestamp>,
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
