//! What a run on a node that exists would do, and the request that begins it.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::maas_view::MaasView;
use crate::ids::{NodeId, RunId};
use crate::lifecycle::{NodeState, RunKind};
use crate::steps::{EffectKind, Step};
use crate::text;

/// Body of `POST /api/v1/nodes/NODE/runs`: what is to be done with a node that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// What the run is for; anything but `onboard`.
    #[schemars(with = "KindOfExistingNode")]
    pub kind: RunKind,
    /// Reason, recorded in the history.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
    /// Who says so; kept in the history.
    pub actor: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Profile that a reimage deploys the node with, and that is the node's from then on; none: the
    /// node's own, at its newest revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

/// The kinds of runs that a node which exists may have, for the schema.
enum KindOfExistingNode {}

impl JsonSchema for KindOfExistingNode {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "KindOfExistingNode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let kinds = RunKind::ALL.iter().filter(|kind| **kind != RunKind::Onboard);
        let kinds: Vec<&str> = kinds.map(|kind| kind.as_str()).collect();
        json_schema!({ "type": "string", "enum": kinds })
    }
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedStep {
    /// The step.
    pub step: Step,
    /// Mutations of MAAS that it may make.
    pub maas_calls: Vec<EffectKind>,
}

/// A revision of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileInUse {
    /// Name of the profile.
    pub name: String,
    /// Its revision.
    pub revision: i64,
}

impl std::fmt::Display for ProfileInUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} revision {}", self.name, self.revision)
    }
}

/// With what a node was deployed, and with what a run would deploy it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedProfile {
    /// Of the latest deployment that made the node active; none: there was none.
    pub deployed: Option<ProfileInUse>,
    /// Of the run.
    pub then: ProfileInUse,
}

/// Answer to a [`RunRequest`]: what the run does, and its identifier unless it was a dry run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPlan {
    /// The node.
    pub node_id: NodeId,
    /// Its hostname.
    pub hostname: String,
    /// Its site.
    pub site: String,
    /// What the run is for.
    pub kind: RunKind,
    /// State of the node now.
    pub state: NodeState,
    /// State of the node when the run has succeeded.
    pub ends: NodeState,
    /// What MAAS says of the machine, and how old that is.
    pub maas: MaasView,
    /// What will be lost, a sentence each; empty: nothing.
    pub destroys: Vec<String>,
    /// The profile, where the run deploys; none: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<PlannedProfile>,
    /// The steps, in order; those that only lead back are left out.
    pub steps: Vec<PlannedStep>,
    /// The run; none: a dry run, nothing was changed.
    pub run_id: Option<RunId>,
}
