//! A batch: many machines onboarded as one piece of work, the first of them as canaries.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SecretText;
use crate::api::Resource;
use crate::ids::{BatchId, NodeId, RunId};
use crate::lifecycle::{BatchPhase, MemberState};
use crate::spec::{OnboardRequest, TakeOver};
use crate::steps::Step;
use crate::text;
use crate::time::Timestamp;

/// What an operator asks of a batch: the manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchSpec {
    /// Unique name, `[a-z0-9-]`.
    #[schemars(with = "text::NameText")]
    pub name: String,
    /// Site name.
    pub site: String,
    /// Profile name. Its revision is pinned when the batch is made, and anew at each resume.
    pub profile: String,
    /// Machines that have to be active before the rest begins; 0: none.
    #[serde(default = "one")]
    pub canary: u32,
    /// Share of parked and failed machines among the ended ones, 0 to 1, above which no further
    /// machine begins.
    #[serde(default = "a_fifth")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub stop_at_failure_ratio: f64,
    /// Ended machines below which the share says nothing yet; 0: as many as there are canaries, at
    /// least one.
    #[serde(default)]
    pub stop_min_ended: u32,
    /// Onboardings of the batch under way at once; 0: no limit of its own.
    #[serde(default)]
    pub max_parallel: u32,
    /// The machines, in the order in which they begin.
    #[schemars(length(min = 1, max = 5000))]
    pub machines: Vec<BatchMachine>,
}

const fn one() -> u32 {
    1
}

const fn a_fifth() -> f64 {
    0.2
}

impl BatchSpec {
    /// Ended machines from which the share of failures counts.
    #[must_use]
    pub fn min_ended(&self) -> u32 {
        if self.stop_min_ended > 0 { self.stop_min_ended } else { self.canary.max(1) }
    }
}

/// One machine of a manifest. Fields mean what they mean in an onboarding.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchMachine {
    /// Short hostname.
    #[schemars(with = "text::HostnameText")]
    pub hostname: String,
    /// Address of the machine's BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_address: Option<String>,
    /// BMC user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::PrintableText>")]
    pub bmc_user: Option<String>,
    /// BMC password; sealed at once and never part of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::PrintableText>")]
    pub bmc_password: Option<SecretText>,
    /// Power driver; default `ipmi` when there is a BMC address, else `manual`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::PowerTypeText>")]
    pub power_type: Option<String>,
    /// MAC addresses of the machine's boot interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<text::MacAddressText>")]
    pub mac_addresses: Vec<String>,
    /// Architecture; default `amd64/generic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::ArchitectureText>")]
    pub architecture: Option<String>,
    /// System ID of the machine in MAAS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::SystemIdText>")]
    pub system_id: Option<String>,
    /// Serial number of the machine's chassis, as its firmware says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::SerialText>")]
    pub serial: Option<String>,
    /// A machine in use may be taken; none: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take_over: Option<TakeOver>,
}

impl BatchMachine {
    /// What the onboarding of the machine asks for, at a site and with a profile.
    #[must_use]
    pub fn onboard_request(&self, site: &str, profile: &str) -> OnboardRequest {
        let machine = self.clone();
        OnboardRequest {
            hostname: machine.hostname,
            site: site.to_owned(),
            profile: profile.to_owned(),
            bmc_address: machine.bmc_address,
            bmc_user: machine.bmc_user,
            bmc_password: machine.bmc_password,
            power_type: machine.power_type,
            mac_addresses: machine.mac_addresses,
            architecture: machine.architecture,
            system_id: machine.system_id,
            serial: machine.serial,
            take_over: machine.take_over,
        }
    }
}

/// Body of `POST /api/v1/batches`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchCreate {
    /// The manifest.
    pub spec: BatchSpec,
    /// Check everything and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to a [`BatchCreate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchAccepted {
    /// The batch; none: a dry run, nothing was changed.
    pub batch_id: Option<BatchId>,
    /// Its name.
    pub name: String,
    /// Revision of the profile that its machines get.
    pub profile_revision: i64,
    /// Hostnames that go first.
    pub canaries: Vec<String>,
    /// Hostnames that follow, in order.
    pub rest: Vec<String>,
}

/// Body of `POST /api/v1/batches/BATCH/stop` and `/resume`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchActionRequest {
    /// Who says so; kept in the audit.
    pub actor: String,
    /// Reason, recorded in the audit log.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// Why no further machine of a batch begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchStop {
    /// `canary_failed`, `failure_ratio` or `stopped_by_operator`.
    pub code: String,
    /// One sentence.
    pub text: String,
    /// Since when.
    pub at: Timestamp,
}

/// Machines of a batch by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BatchCounts {
    /// Not begun.
    pub waiting: u32,
    /// Under way.
    pub running: u32,
    /// In service.
    pub active: u32,
    /// Stopped; a named owner has to act.
    pub parked: u32,
    /// Ended without reaching active.
    pub failed: u32,
    /// Left before their turn.
    pub withdrawn: u32,
}

/// One machine of a batch as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchMember {
    /// Short hostname.
    #[schemars(with = "text::HostnameText")]
    pub hostname: String,
    /// Its node.
    pub node_id: NodeId,
    /// Its onboarding, once begun.
    pub run_id: Option<RunId>,
    /// How it stands.
    pub state: MemberState,
    /// It goes before the rest.
    pub canary: bool,
    /// It was parked or failed when the batch was resumed and no longer counts towards the share
    /// of failures.
    pub written_off: bool,
    /// Step of its onboarding.
    pub step: Option<Step>,
    /// What it waits for, or why it stopped; one sentence.
    pub waiting_for: String,
    /// When its onboarding began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// What GPUaaS knows of a batch: its whole progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchStatus {
    /// How far it is.
    pub phase: BatchPhase,
    /// What it waits for, one sentence.
    pub waiting_for: String,
    /// Why no further machine begins.
    pub stop: Option<BatchStop>,
    /// Machines by state.
    pub counts: BatchCounts,
    /// Share of parked and failed machines among the ended ones that count.
    pub failure_ratio: f64,
    /// Profile revision that machines get which begin now.
    pub profile_revision: i64,
    /// Median seconds from begin to active of those that are active.
    pub p50_seconds: Option<f64>,
    /// The same that 95 of 100 do not exceed.
    pub p95_seconds: Option<f64>,
    /// When the last machine is expected to end; none while nothing is known, or the batch waits
    /// for a person.
    pub estimated_end: Option<Timestamp>,
    /// When the last machine ended.
    pub ended_at: Option<Timestamp>,
    /// The machines, in the order of the manifest; empty in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<BatchMember>,
}

/// A batch.
pub type BatchResource = Resource<BatchId, BatchSpec, BatchStatus>;
