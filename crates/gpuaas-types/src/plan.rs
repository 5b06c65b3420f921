//! What an onboarding would do, asked before it is begun; and a take-over of a machine in use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::PlannedStep;
use crate::park::Park;
use crate::text;

/// A machine that a plan is about, as MAAS showed it when it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedMachine {
    /// MAAS' identifier.
    pub system_id: String,
    /// Short hostname in MAAS.
    pub hostname: String,
    /// MAAS' label of the status.
    pub status_name: String,
    /// MAAS user that owns it; none: nobody does.
    pub owner: Option<String>,
}

/// Answer of `POST /api/v1/onboarding-plans`: what an onboarding would do with what MAAS shows now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OnboardPlan {
    /// Short hostname.
    pub hostname: String,
    /// Name of the site.
    pub site: String,
    /// Name of the profile.
    pub profile: String,
    /// How the machine would come to the node: `adopted`, `claimed` or `created`; none: the run
    /// would park.
    pub origin: Option<String>,
    /// The machine; none: it would be created, or none fits.
    pub machine: Option<PlannedMachine>,
    /// What would be lost, a sentence each; empty: nothing.
    pub destroys: Vec<String>,
    /// Why the run would park at once; none: it would go on.
    pub park: Option<Park>,
    /// The steps, in order; those that only lead back are left out.
    pub steps: Vec<PlannedStep>,
}

/// Body of `POST /api/v1/runs/RUN/take-over`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeOverRequest {
    /// Name of the operator, as the audit keeps it.
    pub actor: String,
    /// The operator's reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
    /// Only say what would be taken.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to a [`TakeOverRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TakeOverPlan {
    /// Hostname of the node.
    pub hostname: String,
    /// The machine that the run parked for.
    pub machine: PlannedMachine,
    /// What will be lost, a sentence each.
    pub destroys: Vec<String>,
    /// False after a dry run.
    pub approved: bool,
}
