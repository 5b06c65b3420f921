//! What an experiment between two host images says: measures, tests and verdicts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::RunId;
use crate::image::ImagePin;
use crate::lifecycle::RunStatus;
use crate::string_enum::string_enum;
use crate::text;
use crate::time::Timestamp;

string_enum! {
    /// What an experiment says of a time of image B against image A.
    MeasureVerdict {
        /// B takes less time.
        Faster = "faster",
        /// B takes more time.
        Slower = "slower",
        /// Whatever the difference is, it is within the margin.
        SameWithinMargin = "same_within_margin",
        /// The sample shows neither a difference nor that there is none.
        Inconclusive = "inconclusive",
        /// No outcome of a sample of this size could show a difference.
        InsufficientSample = "insufficient_sample",
        /// The nodes of the two arms differ in more than their image.
        NotComparable = "not_comparable",
    }
}

string_enum! {
    /// What an experiment says of the failures of image B against those of image A.
    FailureVerdict {
        /// B fails more often.
        Worse = "worse",
        /// The sample does not show that B fails more often.
        NoEvidenceOfWorse = "no_evidence_of_worse",
        /// The nodes of the two arms differ in more than their image.
        NotComparable = "not_comparable",
    }
}

string_enum! {
    /// An exact test.
    ExactTest {
        /// Of two independent samples (Mann and Whitney, Wilcoxon's rank sum).
        RankSum = "rank_sum",
        /// Of pairs (Wilcoxon's signed rank).
        SignedRank = "signed_rank",
        /// Of counts of failures (Fisher).
        Fisher = "fisher",
    }
}

/// A measure of an experiment. Differences are B less A, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentMeasure {
    /// Such as `time_to_active` or a timing bucket.
    pub name: String,
    /// The test that was made.
    pub test: ExactTest,
    /// Samples of image A.
    pub n_a: usize,
    /// Samples of image B.
    pub n_b: usize,
    /// Median of A's samples in seconds; none: most of A's runs failed, or there is no sample.
    pub p50_a: Option<f64>,
    /// Median of B's samples in seconds.
    pub p50_b: Option<f64>,
    /// Seconds that 95 of 100 samples of A do not exceed.
    pub p95_a: Option<f64>,
    /// Seconds that 95 of 100 samples of B do not exceed.
    pub p95_b: Option<f64>,
    /// Estimate of the difference (Hodges and Lehmann).
    pub shift_seconds: Option<f64>,
    /// Interval of the difference, of 95 %; none: the sample is too small for one.
    pub interval_seconds: Option<[f64; 2]>,
    /// Probability of a sample at least as unequal if there were no difference.
    pub p: Option<f64>,
    /// The same, adjusted for the number of measures and of looks; at most 0.05 makes a verdict.
    pub p_adjusted: Option<f64>,
    /// What is said.
    pub verdict: MeasureVerdict,
}

string_enum! {
    /// An arm of an experiment.
    ExperimentArm {
        /// That of image A, against which B is compared.
        A = "a",
        /// That of image B.
        B = "b",
    }
}

impl ExperimentArm {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

string_enum! {
    /// How an experiment stands.
    ExperimentState {
        /// Runs of it are to begin or under way.
        Running = "running",
        /// All of its runs have ended.
        Ended = "ended",
        /// An operator ended it before.
        Stopped = "stopped",
        /// Its times are those of earlier runs, as somebody wrote them down.
        Imported = "imported",
    }
}

string_enum! {
    /// The measure that an experiment is about.
    PrimaryMeasure {
        /// From the request until the node is active.
        TimeToActive = "time_to_active",
        /// From the request until slices of it may be handed out.
        TimeToSliceReady = "time_to_slice_ready",
    }
}

/// An image of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentArmView {
    /// The image, `custom/NAME` or one that MAAS synced.
    pub image: String,
    /// SHA-256 of its file, hex; empty: it is none of the uploaded ones.
    pub digest: String,
    /// Nodes that are deployed with it.
    pub nodes: usize,
    /// Runs of them that ended without success.
    pub failures: usize,
}

/// A node of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentNode {
    /// Hostname of the node.
    pub node: String,
    /// Its arm.
    pub arm: ExperimentArm,
    /// Run of it; none: it has not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// How that run stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RunStatus>,
    /// What that run counts as; none before all of the experiment is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<ExperimentSample>,
}

/// What is said of the failures of both arms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentFailures {
    /// Probability of at least as many failures of B, if chance alone said which runs failed.
    pub p: f64,
    /// What is said.
    pub verdict: FailureVerdict,
    /// Failures by class: of A, of B.
    pub classes: BTreeMap<String, [usize; 2]>,
    /// How often a person had to say something to a run: of A, of B.
    pub interventions: [usize; 2],
}

/// An experiment between two images.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentView {
    /// Name of the experiment.
    pub id: String,
    /// Site of its nodes.
    pub site: String,
    /// Profile of its nodes, but for the image.
    pub profile: String,
    /// How it stands.
    pub state: ExperimentState,
    /// Seed of the assignment.
    pub seed: u64,
    /// Whether each host is deployed with both images.
    pub paired: bool,
    /// Whether the arms have the same class of machine, profile and version of MAAS.
    pub comparable: bool,
    /// Both arms, A first.
    pub arms: Vec<ExperimentArmView>,
    /// The measure that was named before it began.
    pub primary: PrimaryMeasure,
    /// Nodes of each arm that were named before it began.
    pub planned_n: usize,
    /// How often its results were looked at: nothing is judged before all of it is there.
    pub looks: u32,
    /// Measures, the primary one first; empty until all of it is there.
    pub measures: Vec<ExperimentMeasure>,
    /// Failures; none until all of it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<ExperimentFailures>,
    /// Its nodes.
    pub assignments: Vec<ExperimentNode>,
    /// Who began it.
    pub created_by: String,
    /// Moment of that.
    pub created_at: Timestamp,
    /// Reason that was given.
    pub reason: String,
}

/// Body of `POST /api/v1/experiments`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExperimentStart {
    /// Name of the experiment.
    #[schemars(with = "text::NameText")]
    pub name: String,
    /// Site of its nodes.
    pub site: String,
    /// Profile of its nodes; those of it that are active are deployed again.
    pub profile: String,
    /// The images: A, against which B is compared.
    #[schemars(with = "Vec<text::HostImageText>", length(min = 2, max = 2))]
    pub images: Vec<String>,
    /// Nodes in all, drawn of those that are active; in pairs each is deployed with both images.
    #[schemars(range(min = 2, max = 200))]
    pub nodes: u32,
    /// The measure that it is about.
    #[serde(default)]
    pub primary: Option<PrimaryMeasure>,
    /// Seconds that do not matter; none: 30.
    #[serde(default)]
    pub margin_seconds: Option<f64>,
    /// Seed of the assignment; none: one is drawn.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Whether each node is deployed with both images, in an order that is drawn.
    #[serde(default)]
    pub paired: bool,
    /// Only say which nodes would be deployed with what.
    #[serde(default)]
    pub dry_run: bool,
    /// Name of the operator, as the audit keeps it.
    #[serde(default)]
    pub actor: String,
    /// Reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// Body of `POST /api/v1/experiments/EXPERIMENT/stop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExperimentStop {
    /// Name of the operator, as the audit keeps it.
    #[serde(default)]
    pub actor: String,
    /// Reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// A run as an experiment counts it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExperimentSample {
    /// Hostname of the node.
    pub host: String,
    /// Whether it ended without success.
    pub failed: bool,
    /// Class of the failure; empty: it did not fail, or nobody knows.
    pub failure_class: String,
    /// How often a person had to say something to it.
    pub interventions: usize,
    /// Seconds by timing bucket.
    pub buckets: BTreeMap<String, f64>,
    /// Seconds from the request until the node was active.
    pub time_to_active: Option<f64>,
    /// Seconds from the request until slices of it might be handed out.
    pub time_to_slice_ready: Option<f64>,
    /// Seconds from the request for a discovery of its slots until the agent reported them.
    pub slice_discovery: Option<f64>,
}

/// Under what an arm was deployed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExperimentConditions {
    /// Class of the machines, such as `h200`; empty: unknown, which compares with nothing.
    pub class: String,
    /// Profile but for its image.
    pub profile: String,
    /// Version of MAAS.
    pub maas_version: String,
}

/// An arm of times that were taken earlier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportedArm {
    /// The image.
    #[schemars(with = "text::HostImageText")]
    pub image: String,
    /// SHA-256 of its file; empty: unknown.
    #[serde(default)]
    pub digest: String,
    /// Under what it was deployed.
    pub conditions: ExperimentConditions,
    /// Its runs.
    #[schemars(length(max = 100))]
    pub runs: Vec<ExperimentSample>,
}

/// Body of `POST /api/v1/experiments/import`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExperimentImport {
    /// Name of the experiment.
    #[schemars(with = "text::NameText")]
    pub name: String,
    /// Site that it is of.
    pub site: String,
    /// Both arms, A first.
    #[schemars(length(min = 2, max = 2))]
    pub arms: Vec<ImportedArm>,
    /// The measure that it is about.
    #[serde(default)]
    pub primary: Option<PrimaryMeasure>,
    /// Seconds that do not matter; none: 30.
    #[serde(default)]
    pub margin_seconds: Option<f64>,
    /// Name of the operator, as the audit keeps it.
    #[serde(default)]
    pub actor: String,
    /// Reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// What an experiment was asked to be; stored with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentSpec {
    /// Profile of its nodes, but for the image.
    pub profile: String,
    /// The images, A first, with what they are pinned to.
    pub images: [ImagePin; 2],
    /// Profiles that were made of that one for the arms.
    pub arm_profiles: [String; 2],
    /// The measure that it is about.
    pub primary: PrimaryMeasure,
    /// Seconds that do not matter.
    pub margin_seconds: f64,
    /// Seed of the assignment.
    pub seed: u64,
    /// Whether each node is deployed with both images.
    pub paired: bool,
    /// Nodes of each arm.
    pub planned_n: usize,
    /// Times of earlier runs, in the place of runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<[ImportedArm; 2]>,
}
