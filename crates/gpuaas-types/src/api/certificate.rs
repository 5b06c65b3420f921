//! Requests and answers of the admin API about the certificates of nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, RunId};
use crate::text;
use crate::time::Timestamp;

/// Body of `POST /api/v1/nodes/NODE/revoke-certificate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeCertificate {
    /// Reason, recorded in the history.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
    /// Who says so; kept in the history.
    pub actor: String,
    /// Only say which certificates there are.
    #[serde(default)]
    pub dry_run: bool,
}

/// How a certificate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateState {
    /// Its agent may use it.
    Valid,
    /// Its time is over.
    Expired,
    /// It was withdrawn.
    Revoked,
    /// Another enrollment of the node took its place.
    Superseded,
}

/// A certificate that a node was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateView {
    /// Serial number, hexadecimal.
    pub serial: String,
    /// How it stands.
    pub state: CertificateState,
    /// The run that its system enrolled in.
    pub run_id: RunId,
    /// When it was handed out.
    pub issued_at: Timestamp,
    /// First moment.
    pub not_before: Timestamp,
    /// Last moment.
    pub not_after: Timestamp,
    /// When it ended before its time.
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// Why it ended before its time.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Answer to a [`RevokeCertificate`], and of `GET /api/v1/nodes/NODE/certificates`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeCertificates {
    /// The node.
    pub node_id: NodeId,
    /// Its hostname.
    pub hostname: String,
    /// Its certificates, oldest first.
    pub certificates: Vec<CertificateView>,
}
