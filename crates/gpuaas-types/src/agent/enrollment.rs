//! Enrollment and heartbeats.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::task_key::TaskKeys;
use crate::ids::{NodeId, RunId};
use crate::time::Timestamp;

/// Body of an enrollment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrollRequest {
    /// The run whose deployment started this agent.
    pub run_id: RunId,
    /// Short hostname that the host believes it has.
    pub hostname: String,
    /// Version of the agent.
    pub agent_version: String,
    /// When the agent process started, by the host's clock.
    pub started_at: Timestamp,
    /// First look at the host.
    pub facts: serde_json::Value,
    /// Signing request of the agent's own key, PEM; the key never leaves the host. None: a
    /// stand-in, which gets a bearer credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csr_pem: Option<String>,
    /// What the TPM of the machine signs of this enrollment. None: the host shows no TPM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm_quote: Option<TpmQuote>,
}

/// A quote of a TPM 2.0 with the nonce of an enrollment (`gpuaas_bundle::tpm_quote`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TpmQuote {
    /// The TPM's key, on P-256: a SubjectPublicKeyInfo in PEM.
    pub key_pem: String,
    /// What it signed, a `TPMS_ATTEST` in base64.
    pub message: String,
    /// Its ECDSA signature with SHA-256, in ASN.1 and base64.
    pub signature: String,
}

/// A certificate of a node, as it is handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeCertificate {
    /// The certificate and what leads up to the anchor, PEM, the leaf first.
    pub chain_pem: String,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// First moment.
    pub not_before: Timestamp,
    /// Last moment.
    pub not_after: Timestamp,
}

/// Body of `POST /agent/v1/certificate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// The run that deployed this system.
    pub run_id: RunId,
    /// Signing request of a new key, PEM.
    pub csr_pem: String,
}

/// Answer to an enrollment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnrollResponse {
    /// Who the agent is from now on.
    pub node_id: NodeId,
    /// The agent's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<NodeCertificate>,
    /// Bearer credential of a stand-in, shown once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// How often to send a heartbeat, in seconds.
    pub heartbeat_interval_seconds: u32,
    /// Longest task poll, in seconds; 0: the agent asks once after each heartbeat instead.
    pub poll_seconds: u32,
    /// Whose tasks to carry out.
    pub task_keys: TaskKeys,
}

/// Body of a heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// The run that deployed this system.
    pub run_id: RunId,
    /// Version of the agent.
    pub agent_version: String,
    /// Seconds since the host booted.
    pub uptime_seconds: f64,
    /// Revision of the [`TaskKeys`] that it has.
    #[serde(default)]
    pub task_keys_revision: i64,
    /// What keeps the agent from working as it should, as stable words such as `disk_full`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
    /// Digest of the [`TrustBundle`] that it was given last; none: it was given none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_digest: Option<String>,
}

/// What an agent trusts for its control plane, in the place of what it trusted before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustBundle {
    /// What the control plane knows it by.
    pub digest: String,
    /// Certificates, PEM.
    pub pem: String,
}

/// Answer to a heartbeat. `E` as in [`TaskBatch`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatResponse<E> {
    /// False where it was not the first.
    pub new: bool,
    /// What the control plane believes the time is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The envelope around newer [`TaskKeys`].
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub task_keys: Option<E>,
    /// Another bundle than the one that the agent has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_bundle: Option<TrustBundle>,
    /// Whether the agent is to renew its certificate now: its authority signs no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renew_certificate: bool,
    /// What a poll says in the place of the heartbeats that follow, for as long as the agent would say
    /// the same in them; none: the control plane wants heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_digest: Option<String>,
}

const fn none<E>() -> Option<E> {
    None
}
