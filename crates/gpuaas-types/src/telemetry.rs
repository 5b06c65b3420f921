//! What the control plane sees of a host's telemetry edge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::GateCheck;
use crate::ids::NodeId;
use crate::time::Timestamp;

/// Where a fault of telemetry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TelemetryVerdict {
    /// Nowhere: the edge works.
    Ok,
    /// Nobody knows an address of the host.
    TelemetryNoAddress,
    /// The host is simulated, and has no address of its own.
    TelemetrySimulated,
    /// No bundle of the node asks for telemetry, and there is none.
    TelemetryNotExpected,
    /// Nothing leads to the host, or it does not take connections.
    NodeUnreachable,
    /// The host answers, and nothing listens where the edge belongs.
    TelemetryEdgeDown,
    /// Something takes connections there and says nothing, or nothing that is HTTP.
    TelemetryEdgeSilent,
    /// The edge does not let the control plane read.
    TelemetryEdgeRefuses,
    /// The edge answers, and Netdata behind it does not.
    TelemetryBackendDown,
    /// Something else listens where the edge belongs: Netdata itself, mostly.
    WrongListener,
    /// The edge is there and lacks a part.
    TelemetryEdgeIncomplete,
}

impl TelemetryVerdict {
    /// Every verdict.
    pub const ALL: [Self; 11] = [
        Self::Ok,
        Self::TelemetryNoAddress,
        Self::TelemetrySimulated,
        Self::TelemetryNotExpected,
        Self::NodeUnreachable,
        Self::TelemetryEdgeDown,
        Self::TelemetryEdgeSilent,
        Self::TelemetryEdgeRefuses,
        Self::TelemetryBackendDown,
        Self::WrongListener,
        Self::TelemetryEdgeIncomplete,
    ];

    /// Its written form; of a fault, the code of the problem.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::TelemetryNoAddress => "telemetry_no_address",
            Self::TelemetrySimulated => "telemetry_simulated",
            Self::TelemetryNotExpected => "telemetry_not_expected",
            Self::NodeUnreachable => "node_unreachable",
            Self::TelemetryEdgeDown => "telemetry_edge_down",
            Self::TelemetryEdgeSilent => "telemetry_edge_silent",
            Self::TelemetryEdgeRefuses => "telemetry_edge_refuses",
            Self::TelemetryBackendDown => "telemetry_backend_down",
            Self::WrongListener => "wrong_listener",
            Self::TelemetryEdgeIncomplete => "telemetry_edge_incomplete",
        }
    }
}

/// Something that was looked at on the way to the telemetry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TelemetryProbe {
    /// What: `maas`, `agent`, `connect`, `health`, `listener`, `dashboard`, `netdata`.
    pub name: String,
    /// Whether it is as it should be.
    pub passed: bool,
    /// What has to be seen.
    pub expected: String,
    /// What was seen.
    pub seen: String,
}

/// What the agent last said of its host's telemetry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TelemetryGate {
    /// Whether every check passed.
    pub open: bool,
    /// When it was said.
    pub said_at: Timestamp,
    /// How long ago that is.
    pub age_seconds: f64,
    /// Checks that did not pass.
    pub failing: Vec<GateCheck>,
}

/// Answer of `GET /api/v1/nodes/NODE/telemetry`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TelemetryReport {
    /// The node.
    pub node_id: NodeId,
    /// Its hostname.
    pub hostname: String,
    /// Whether a bundle of the node asks for telemetry.
    pub expected: bool,
    /// Address and port that were tried; none: nobody knows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Who says that this is the host's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_from: Option<String>,
    /// What was looked at, in this order; after a fault nothing more is.
    pub probes: Vec<TelemetryProbe>,
    /// The agent's view; none: it never said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<TelemetryGate>,
    /// Where the fault is.
    pub verdict: TelemetryVerdict,
    /// The same as a sentence.
    pub text: String,
    /// What to do next.
    pub next_action: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_written_as_it_reads() {
        for verdict in TelemetryVerdict::ALL {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.as_str());
        }
    }
}
