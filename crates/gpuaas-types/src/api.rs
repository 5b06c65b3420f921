//! Answers and requests of the admin API.
//!
//! Every stored resource reads alike: `id, spec, status, revision, created_at, updated_at`.

mod authority;
mod certificate;
mod maas_view;
mod node_problem;
mod run_plan;
mod task_key;

pub use authority::{
    AuthorityReport, AuthorityState, AuthorityView, ChangeAuthority, StageAuthority,
};
pub use certificate::{CertificateState, CertificateView, NodeCertificates, RevokeCertificate};
pub use maas_view::MaasView;
pub use node_problem::{Connectivity, ConnectivityState, NodeProblem};
pub use run_plan::{PlannedProfile, PlannedStep, ProfileInUse, RunPlan, RunRequest};
pub use task_key::{ActivateTaskKey, RetireTaskKey};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::SecretText;
use crate::agent::{Gate, GateCheck, GateClass};
use crate::failure::FailureClass;
use crate::ids::{NodeId, ProfileId, RoceAssignmentId, RunId, SiteId};
use crate::lifecycle::{DriftAction, DriftKind, NodeState, RunKind, RunStatus};
use crate::machine::HardwareView;
pub use crate::park::{Owner, Park, ParkAction};
pub use crate::source::Source;
use crate::spec::{ProfileSpec, RoceAssignmentSpec, SiteSpec};
use crate::steps::{EffectKind, Step};
use crate::text;
use crate::time::Timestamp;

/// The common shape of a stored resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{S}Resource")]
pub struct Resource<I, S, T> {
    /// Identifier of the resource.
    pub id: I,
    /// What the operator wrote.
    pub spec: S,
    /// What GPUaaS knows.
    pub status: T,
    /// Grows by one with every change of `spec`.
    pub revision: i64,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// Body of `POST /api/v1/sites`; it has either a key or a reference to one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {
        "required": ["api_key"],
        "properties": {
            "api_key": {"type": "string"},
            "spec": {"properties": {"api_key_ref": {"type": "null"}}},
        },
    },
    {
        "properties": {
            "api_key": {"type": "null"},
            "spec": {"required": ["api_key_ref"], "properties": {"api_key_ref": {"type": "string"}}},
        },
    },
]))]
pub struct SiteCreate {
    /// The site.
    pub spec: SiteSpec,
    /// `consumer:token:secret` of a MAAS administrator; sealed at once. Left out where
    /// `spec.api_key_ref` says where it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::MaasKeyText>")]
    pub api_key: Option<SecretText>,
}

/// What GPUaaS knows of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
pub struct SiteStatus {
    /// Version that MAAS last named.
    #[serde(default)]
    pub maas_version: String,
    /// User that the API key belongs to.
    #[serde(default)]
    pub maas_user: String,
    /// `ok`, or the code of the latest failure.
    #[serde(default)]
    pub health: String,
    /// Text of that failure.
    #[serde(default)]
    pub health_detail: String,
    /// When MAAS last answered.
    #[serde(default)]
    pub answered_at: Option<Timestamp>,
    /// How often a sweep found work that the event feed had missed.
    #[serde(default)]
    pub missed_work: i64,
    /// Identity of the region, as the mark says that is kept in it; empty: it has none yet, and is
    /// known by its address.
    #[serde(default)]
    pub region: String,
    /// The region turned out to have another past than was known of it: it was restored from a
    /// backup or rebuilt. None: it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<RegionPast>,
    /// Machines of the region are not changed by this control plane; none: they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<SiteControl>,
}

/// Why a control plane changes no machines of a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SiteControl {
    /// Stable code: that of the wait of its runs.
    pub code: String,
    /// What the region shows, one sentence.
    pub text: String,
    /// When that was first seen.
    pub since: Timestamp,
}

/// Behind the version of a region whose machines are made up.
const SIMULATED: &str = " (simulated)";

impl SiteStatus {
    /// The version of a simulated region, as `maas_version` holds it.
    #[must_use]
    pub fn simulated_version(version: &str) -> String {
        format!("{version}{SIMULATED}")
    }

    /// Whether the machines of the region are made up: nobody may dial their addresses, which
    /// belong to somebody else where they exist.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.maas_version.ends_with(SIMULATED)
    }
}

/// A region that was restored from a backup or rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegionPast {
    /// When that was noticed.
    pub at: Timestamp,
    /// How it was seen, and what was done about it.
    pub text: String,
}

impl std::fmt::Display for RegionPast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.text, self.at)
    }
}

/// A site.
pub type SiteResource = Resource<SiteId, SiteSpec, SiteStatus>;

/// Body of `POST /api/v1/profiles`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileCreate {
    /// Unique name, `[a-z0-9-]`.
    #[schemars(with = "text::NameText")]
    pub name: String,
    /// Fields that differ from the defaults.
    #[serde(default)]
    pub spec: ProfileSpec,
}

/// A profile to begin with, one per class of hardware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProfilePreset {
    /// Its name, such as `roce-ethernet`.
    pub name: String,
    /// What it is for, one sentence.
    pub description: String,
    /// The profile.
    pub spec: ProfileSpec,
}

/// What GPUaaS knows of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
pub struct ProfileStatus {
    /// Unique name.
    pub name: String,
    /// Digest that the bundle reference resolved to; empty without a bundle.
    #[serde(default)]
    pub site_bootstrap_bundle_digest: String,
    /// The site bundle with everything that it requires, in the order in which they run. A run
    /// pins the profile's revision, and with it these bytes.
    #[serde(default)]
    pub bundle_pins: Vec<BundlePin>,
}

/// A bundle, by its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BundlePin {
    /// The bundle, as `name@version`.
    pub bundle: String,
    /// SHA-256 of its archive, 64 hexadecimal digits.
    pub digest: String,
}

/// A profile at its latest revision.
pub type ProfileResource = Resource<ProfileId, ProfileSpec, ProfileStatus>;

/// A fabric address.
pub type RoceResource = Resource<RoceAssignmentId, RoceAssignmentSpec, RoceStatus>;

/// What GPUaaS knows of a fabric address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
pub struct RoceStatus {}

/// What a run waits for. Whose view it is stands in the text: MAAS says, the agent says, we
/// believe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wait {
    /// Stable code, such as `maas_commissioning`.
    pub code: String,
    /// One sentence.
    pub text: String,
    /// Since when.
    pub since: Timestamp,
    /// When it should have happened; none: that is not a matter of this run.
    pub expected_by: Option<Timestamp>,
    /// What `expected_by` rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_from: Option<EstimateSource>,
    /// When the run gives up and parks.
    pub deadline: Option<Timestamp>,
}

/// What an expected time rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EstimateSource {
    /// Which runs, or none.
    pub basis: EstimateBasis,
    /// How many runs; 0 for [`EstimateBasis::Table`].
    pub runs: u32,
}

/// Which runs an expected time was learned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EstimateBasis {
    /// Too few are known: what the table of steps says.
    Table,
    /// Runs of the profile at the site, with any image.
    Profile,
    /// Runs of the profile at the site with the same image.
    ProfileAndImage,
}

/// Outcome of one named check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    /// Stable name, such as `image_available`.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// Whether what was seen proves it. A check that passed and is not verified holds nothing up, and is
    /// shown as *not verified*.
    #[serde(default = "is_verified", skip_serializing_if = "is_true")]
    pub verified: bool,
    /// What was seen.
    pub evidence: String,
    /// When the check was made.
    pub at: Timestamp,
}

/// What results are that an earlier version wrote down.
const fn is_verified() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_true(verified: &bool) -> bool {
    *verified
}

impl CheckResult {
    /// How it stands, in a word or two.
    #[must_use]
    pub const fn verdict(&self) -> &'static str {
        match (self.passed, self.verified) {
            (false, _) => "failed",
            (true, false) => "not verified",
            (true, true) => "passed",
        }
    }
}

/// A gate of a node beside its state: a node may be active and not ready for slices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateView {
    /// The gate.
    pub gate: Gate,
    /// Whether it is open now.
    pub open: bool,
    /// Whose matter it is that it is shut; none: it is open, or nobody can know yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<GateClass>,
    /// What we believe, one sentence.
    pub text: String,
    /// Since when the agent has said the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When the agent last spoke of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said_at: Option<Timestamp>,
    /// The checks that do not pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<GateCheck>,
}

/// How late an open run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lateness {
    /// Longer than expected.
    Slow,
    /// Far longer than expected, or about to reach its deadline.
    Stuck,
    /// It stopped; a named owner has to act.
    Parked,
}

/// A difference between a node in service and its machine in MAAS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// Of which kind.
    pub kind: DriftKind,
    /// What is remembered.
    pub expected: String,
    /// What MAAS says.
    pub found: String,
    /// User of MAAS who made it, where MAAS tells one; none: MAAS does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maas_user: Option<String>,
    /// What the site's policy says of it.
    pub action: DriftAction,
    /// When it was first seen.
    pub since: Timestamp,
    /// When it was last seen.
    pub seen_at: Timestamp,
}

/// An item of `GET /api/v1/drift`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeDrift {
    /// Hostname of the node.
    pub node: String,
    /// Its site.
    pub site: String,
    /// The difference.
    #[serde(flatten)]
    pub drift: Drift,
    /// What may be done about it.
    pub next_action: String,
}

/// A node that does not go on as expected, or is in service and has problems: an item of
/// `GET /api/v1/nodes/stuck`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StuckNode {
    /// Its hostname.
    pub node: String,
    /// Its site.
    pub site: String,
    /// GPUaaS' own view.
    pub state: NodeState,
    /// Slow, stuck or parked; none: no run is late, and `problems` say what is wrong.
    pub mark: Option<Lateness>,
    /// The open run, or the latest one.
    pub run: Option<RunId>,
    /// What the run is for.
    pub kind: Option<RunKind>,
    /// Where it is.
    pub step: Option<Step>,
    /// What it waits for, or the first problem, one sentence.
    pub waiting_for: String,
    /// Stable code of the wait, of the reason that it stopped, or of the first problem.
    pub code: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// When it should have happened; none: the run is parked, or no run is late.
    pub expected_by: Option<Timestamp>,
    /// What `expected_by` rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_from: Option<EstimateSource>,
    /// Who has to act.
    pub owner: Owner,
    /// What to do next.
    pub next_action: String,
    /// What was seen and tried.
    pub evidence: Vec<String>,
    /// Everything that is wrong with the node, the first to act on first.
    #[serde(default)]
    pub problems: Vec<NodeProblem>,
}

/// A run as part of a node's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSummary {
    /// Identifier of the run.
    pub id: RunId,
    /// What it is for.
    pub kind: RunKind,
    /// Where it is.
    pub step: Step,
    /// How it stands.
    pub status: RunStatus,
}

/// One line of a node's history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineEvent {
    /// When it happened, by the control plane's clock.
    pub at: Timestamp,
    /// Run it belongs to.
    pub run_id: Option<RunId>,
    /// Step that was active.
    pub step: Option<Step>,
    /// Where it comes from.
    pub source: Source,
    /// Stable code, such as `deploy_started`.
    pub code: String,
    /// One sentence.
    pub text: String,
}

/// Answer of `GET /api/v1/nodes/ID`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeView {
    /// Identifier of the node.
    pub id: NodeId,
    /// Short hostname.
    pub hostname: String,
    /// Site name.
    pub site: String,
    /// Profile name.
    pub profile: String,
    /// GPUaaS' own view.
    pub state: NodeState,
    /// The machine.
    #[serde(default)]
    pub hardware: HardwareView,
    /// The open run, or the latest one.
    pub run: Option<RunSummary>,
    /// What the open run waits for, one sentence.
    pub waiting_for: Option<String>,
    /// What the open run waits for, with code and deadline.
    pub wait: Option<Wait>,
    /// Why it stopped.
    pub park: Option<Park>,
    /// How late the open run is; none: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Lateness>,
    /// How its machine differs from what is remembered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<Drift>,
    /// Gates beside the node's own state, such as whether slices may be handed out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateView>,
    /// What MAAS says.
    pub maas: MaasView,
    /// When the agent last sent a heartbeat.
    pub heartbeat_at: Option<Timestamp>,
    /// Whether the agent is heard, and since when.
    #[serde(default)]
    pub connectivity: Connectivity,
    /// What is wrong with the node, the first to act on first; empty: nothing that is known.
    #[serde(default)]
    pub problems: Vec<NodeProblem>,
    /// Grows with every change.
    pub revision: i64,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// History, oldest first; empty in lists.
    #[serde(default)]
    pub timeline: Vec<TimelineEvent>,
    /// The history is longer than what is shown of it: its last lines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timeline_is_cut: bool,
}

/// One attempt at an effect: the intent and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptView {
    /// Step that asked for it.
    pub step: Step,
    /// What was asked of MAAS.
    pub effect: EffectKind,
    /// Which try.
    pub number: u32,
    /// When the intent was written.
    pub intended_at: Timestamp,
    /// When the outcome was known.
    pub ended_at: Option<Timestamp>,
    /// `accepted`, `rejected`, `unknown`; none: in flight.
    pub outcome: Option<String>,
    /// The answer, in short.
    pub detail: String,
}

/// One stretch of a run in one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepSpan {
    /// The step.
    pub step: Step,
    /// From when.
    pub from: Timestamp,
    /// Until when; none: now.
    pub until: Option<Timestamp>,
}

/// Answer of `GET /api/v1/runs/ID`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunView {
    /// Identifier of the run.
    pub id: RunId,
    /// The node.
    pub node_id: NodeId,
    /// Its hostname.
    pub hostname: String,
    /// What it is for.
    pub kind: RunKind,
    /// Where it is.
    pub step: Step,
    /// How it stands.
    pub status: RunStatus,
    /// Profile revision that the run pinned.
    pub profile_revision: i64,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// Why it stopped.
    pub park: Option<Park>,
    /// What kind of cause made it stop last; none: it never did, or it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_class: Option<FailureClass>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Seconds from `created_at` to `ended_at`, or to now.
    pub wall_seconds: f64,
    /// Seconds per bucket, summing to `wall_seconds`: the twelve of the way to active, and
    /// `leaving` where time was spent there.
    pub buckets: BTreeMap<String, f64>,
    /// The steps it went through, in order.
    pub steps: Vec<StepSpan>,
    /// Checks and gates, latest result of each.
    pub checks: Vec<CheckResult>,
    /// Every effect tried.
    pub attempts: Vec<AttemptView>,
    /// History, oldest first.
    pub timeline: Vec<TimelineEvent>,
}

/// A list of anything, or a page of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub struct List<T> {
    /// The items.
    pub items: Vec<T>,
    /// Value of the parameter `after` that asks for the page after this one; none: the list ends
    /// here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> List<T> {
    /// A list that has no further page.
    #[must_use]
    pub const fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

/// Answer of `POST /api/v1/nodes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OnboardAccepted {
    /// The node.
    pub node_id: NodeId,
    /// The run that brings it to active.
    pub run_id: RunId,
}
