//! Answer of `gpuaas explain`: why a node is not further, or what is wrong with one in service, who
//! has to act, and what to do next.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{EstimateSource, Lateness, MaasView, NodeProblem, RunSummary};
use crate::park::{Owner, ParkAction};
use crate::{NodeId, NodeState, Step, Timestamp};

/// The node that is explained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedNode {
    /// Identifier of the node.
    pub id: NodeId,
    /// Short hostname.
    pub hostname: String,
    /// Site name.
    pub site: String,
    /// GPUaaS' own view.
    pub state: NodeState,
}

/// Answer of `GET /api/v1/nodes/NODE/explain`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The node.
    pub node: ExplainedNode,
    /// The open run, or the latest one.
    pub run: Option<RunSummary>,
    /// Where the open run is.
    pub step: Option<Step>,
    /// What it waits for, one sentence; none: for nothing.
    pub waiting_for: Option<String>,
    /// Stable code of the wait or of the reason that it stopped.
    pub code: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// When it should have happened.
    pub expected_by: Option<Timestamp>,
    /// What `expected_by` rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_from: Option<EstimateSource>,
    /// When the run gives up and parks.
    pub deadline: Option<Timestamp>,
    /// How late it is; none: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Lateness>,
    /// Who has to act; none: nobody, for now.
    pub owner: Option<Owner>,
    /// What may be done next.
    pub next_action: String,
    /// The commands of `next_action`, the one to try first first.
    #[serde(default)]
    pub actions: Vec<ParkAction>,
    /// What was seen and tried.
    pub evidence: Vec<String>,
    /// What is wrong with the node, the first to act on first; empty: nothing that is known.
    #[serde(default)]
    pub problems: Vec<NodeProblem>,
    /// What MAAS says.
    pub maas: MaasView,
    /// The same for a person, a sentence per line, each saying whose view it is.
    pub text: Vec<String>,
}
