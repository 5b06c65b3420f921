//! The state of a run between decisions. Kept with the run row; written under its lease.

use std::collections::BTreeMap;

use gpuaas_types::api::CheckResult;
use gpuaas_types::codes::ParkCode;
use gpuaas_types::failure::FailureClass;
use gpuaas_types::machine::MachineView;
use gpuaas_types::spec::KERNEL_TAG_PREFIX;
use gpuaas_types::{AttemptId, EffectKind, NodeState, Step, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::effect::{Effect, GivenUp, Intent, Outcome};

/// Name of the check that a release erased the disks. A run whose release erased nothing has none.
pub const DISKS_ERASED: &str = "disks_erased";

/// How the machine came to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineOrigin {
    /// It was in MAAS and matched.
    Adopted,
    /// GPUaaS created it.
    Created,
    /// It was the only new machine and the profile lets us take it.
    Claimed,
}

/// A machine in MAAS that matches what the operator named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// MAAS' identifier.
    pub system_id: String,
    /// Its hostname in MAAS.
    pub hostname: String,
    /// `hostname`, `bmc_address`, `mac_address`, `system_id`.
    pub matched_by: Vec<String>,
    /// Another GPUaaS node that holds it: its hostname, or its identifier where it is a node of
    /// another site of the region.
    pub held_by: Option<String>,
    /// What MAAS said of it; none: a control plane that did not ask wrote this down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<MachineFacts>,
}

/// What MAAS says of a machine that tells whether it is the one of a request, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Its short hostname.
    pub hostname: String,
    /// Status number, see [`gpuaas_types::machine::maas_status`].
    pub status: i64,
    /// User name of its owner; none: nobody owns it.
    pub owner: Option<String>,
    /// MAC addresses of its interfaces.
    pub mac_addresses: Vec<String>,
    /// Serial number of its chassis; empty while MAAS does not know it.
    pub serial: String,
    /// Resource pool that it is in; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// How it is switched on and off; none: not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerFacts>,
}

impl MachineFacts {
    /// What `machine` shows, with what was read of its power beside it.
    #[must_use]
    pub fn new(machine: &MachineView, power: Option<PowerFacts>) -> Self {
        Self {
            hostname: machine.hostname.clone(),
            status: machine.status,
            owner: machine.owner.clone(),
            mac_addresses: machine.nics.iter().map(|nic| nic.mac_address.clone()).collect(),
            serial: machine.serial.clone(),
            pool: Some(machine.pool.clone()).filter(|pool| !pool.is_empty()),
            power,
        }
    }
}

/// How MAAS switches a machine on and off.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PowerFacts {
    /// Power driver, such as `ipmi` or `manual`; empty: none.
    pub power_type: String,
    /// Address of the BMC as MAAS has it; none: the driver has none, or it is not set.
    pub bmc_address: Option<String>,
}

/// A read of [`PowerFacts`] of the machine of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerReading {
    /// When MAAS was asked.
    pub asked_at: Timestamp,
    /// What it said.
    pub facts: PowerFacts,
}

/// Result of a search for the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSearch {
    /// When MAAS was asked.
    pub asked_at: Timestamp,
    /// Machines that match, by `system_id`.
    pub candidates: Vec<Candidate>,
    /// New, unowned machines held by no node; looked up only where the profile allows claiming.
    pub unclaimed_new: Vec<Candidate>,
}

/// The subnets of a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionSubnets {
    /// When MAAS was asked.
    pub asked_at: Timestamp,
    /// All of them.
    pub subnets: Vec<RegionSubnet>,
}

/// A subnet as MAAS lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionSubnet {
    /// Such as `10.20.0.0/24`.
    pub cidr: String,
    /// Id of its VLAN in MAAS.
    pub vlan_id: i64,
}

/// Owners of the boot interface's MAC address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacOwners {
    /// The address, lower case.
    pub mac_address: String,
    /// Machines that have it.
    pub system_ids: Vec<String>,
}

/// The scripts of a region, as far as a commissioning bundle is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionScripts {
    /// When MAAS was asked.
    pub asked_at: Timestamp,
    /// SHA-256 of the text of each script of the bundle that is there, by its name in MAAS.
    pub digests: BTreeMap<String, String>,
    /// Commissioning scripts that somebody added and MAAS runs where none is selected, sorted.
    pub automatic: Vec<String>,
    /// Whether there are tests that MAAS runs where none is selected.
    pub default_tests: bool,
}

/// A tag of a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionTag {
    /// When MAAS was asked.
    pub asked_at: Timestamp,
    /// Its name.
    pub name: String,
    /// Its kernel options, which may be empty; none: MAAS has no such tag.
    pub kernel_opts: Option<String>,
}

/// What MAAS says of the scripts that the machine's last commissioning ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptResults {
    /// When MAAS was asked.
    pub asked_at: Timestamp,
    /// Scripts of the bundle, and whatever else failed.
    pub outcomes: Vec<ScriptOutcome>,
}

/// The result of one script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptOutcome {
    /// Name in MAAS.
    pub name: String,
    /// MAAS' number of its status.
    pub status: i64,
    /// MAAS' word for it.
    pub status_name: String,
    /// Exit status, once it ended.
    pub exit_status: Option<i64>,
    /// How long it ran, as MAAS writes it; empty while unknown.
    pub runtime: String,
    /// The last line that it printed, where it failed.
    pub last_line: String,
}

impl ScriptOutcome {
    /// One sentence for the evidence of a check.
    #[must_use]
    pub fn evidence(&self) -> String {
        let Self { name, status_name, runtime, last_line, .. } = self;
        let exit = self.exit_status.map_or_else(String::new, |code| format!(", exit code {code}"));
        let ran = if runtime.is_empty() { String::new() } else { format!(", ran {runtime}") };
        let printed = if last_line.is_empty() { String::new() } else { format!(": {last_line}") };
        format!("{name}: {status_name}{exit}{ran}{printed}")
    }
}

impl ScriptResults {
    /// The result of the script of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&ScriptOutcome> {
        self.outcomes.iter().find(|outcome| outcome.name == name)
    }
}

/// What earlier versions took for granted.
const fn is_installing() -> bool {
    true
}

/// What MAAS' events say of the machine's latest deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployEvents {
    /// When MAAS was asked.
    pub asked_at: Timestamp,
    /// curtin's reboot is among them: the image was written.
    pub rebooted: bool,
    /// curtin began to install; an earlier version did not ask.
    #[serde(default = "is_installing")]
    pub installing: bool,
    /// The latest warning or error; none: there is none.
    pub alarm: Option<String>,
}

/// The latest failed read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFailure {
    /// Stable code of the failure, such as `maas_unavailable`.
    pub code: String,
    /// The failure in one sentence.
    pub text: String,
    /// When the read failed.
    pub at: Timestamp,
    /// How many in a row.
    pub count: u32,
}

/// Values of inputs of which each host has its own, such as its address on the fabric, as the host of a
/// deployment gets them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostValues {
    /// By input; an address has no prefix.
    pub values: BTreeMap<String, Vec<String>>,
    /// Inputs that the host derives from the management address which MAAS gives it: the subnet whose
    /// network part they have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub derived: BTreeMap<String, String>,
}

/// What a run knows beyond its step and status: what it tried, what it read, and when. Stored as
/// JSON, so a field keeps its stored name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunState {
    /// The latest intent of the current step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// Tries per kind of effect in the current visit of the step.
    pub tries: BTreeMap<EffectKind, u32>,
    /// How often MAAS took or refused each effect in the current visit of the step.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub answers: BTreeMap<EffectKind, u32>,
    /// How often each effect was requested in the current visit of the step and nothing came of it.
    #[serde(rename = "in_vain", skip_serializing_if = "BTreeMap::is_empty")]
    pub without_effect: BTreeMap<EffectKind, u32>,
    /// When each effect was last intended in this run.
    pub intended_at: BTreeMap<EffectKind, Timestamp>,
    /// How often each step was entered.
    pub visits: BTreeMap<Step, u32>,
    /// Latest failed read; cleared by a good one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_failure: Option<ReadFailure>,
    /// Latest search for the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<MachineSearch>,
    /// How the machine came to the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<MachineOrigin>,
    /// Latest read of the machine's power parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerReading>,
    /// Latest search for machines with the boot MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_owners: Option<MacOwners>,
    /// Latest read of the region's subnets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnets: Option<RegionSubnets>,
    /// Latest read of the region's scripts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region_scripts: Option<RegionScripts>,
    /// Latest read of the tag of the kernel's arguments. It outlives the step, because a slice host is
    /// ready only while MAAS lists the tag at its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<RegionTag>,
    /// Latest read of the tag that the profile names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile_tag: Option<RegionTag>,
    /// Latest read of the results of a commissioning's scripts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script_results: Option<ScriptResults>,
    /// Latest read of the events of a deployment that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deploy_events: Option<DeployEvents>,
    /// What the host was told, or derives, that no other host of the site may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_values: Option<HostValues>,
    /// Latest result of every check and gate.
    pub checks: BTreeMap<String, CheckResult>,
    /// What kind of cause made the run stop last; none: it never did, or it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_class: Option<FailureClass>,
    /// When the run last parked. A failure reported before that, or while it was parked, was answered by
    /// the resume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_at: Option<Timestamp>,
    /// Code of the park that happened in this step; what an operator's word to go on answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_code: Option<String>,
    /// When an operator last let the run go on. Patience counts from then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<Timestamp>,
    /// When the parked run last looked again by itself. What it read before is nothing to go by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rechecked_at: Option<Timestamp>,
    /// When an operator last had the run try again from the beginning of its step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried_at: Option<Timestamp>,
    /// State of the node before the run first changed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_before: Option<NodeState>,
    /// The agent's task of this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
}

impl RunState {
    /// Notes an intent: it becomes the current one and is counted.
    pub fn record_intent(&mut self, intent: Intent) {
        let kind = intent.effect.kind();
        *self.tries.entry(kind).or_insert(0) += 1;
        self.intended_at.insert(kind, intent.at);
        self.intent = Some(intent);
    }

    /// Completes the current intent and returns it.
    pub fn record_outcome(&mut self, outcome: Outcome, now: Timestamp) -> Option<&Intent> {
        let intent = self.intent.as_mut()?;
        let count = match outcome {
            Outcome::Accepted | Outcome::Rejected { .. } => Some(&mut self.answers),
            _ if outcome.was_without_effect() => Some(&mut self.without_effect),
            Outcome::NotSent { .. } => {
                // What never left is no try.
                if let Some(tries) = self.tries.get_mut(&intent.effect.kind()) {
                    *tries = tries.saturating_sub(1);
                }
                None
            }
            Outcome::Unknown { ref text, .. } => {
                intent.given_up = Some(GivenUp { at: now, text: text.clone() });
                None
            }
        };
        if let Some(count) = count {
            *count.entry(intent.effect.kind()).or_insert(0) += 1;
        }
        intent.outcome = Some(outcome);
        intent.ended_at = Some(now);
        Some(intent)
    }

    /// The journal entry of the next try of `effect`, before its call. `before` is the machine's status.
    ///
    /// After a try of unknown outcome the status of before that one stands: what the earlier try may
    /// have done is a change, too.
    #[must_use]
    pub fn next_intent(
        &self,
        step: Step,
        effect: Effect,
        id: AttemptId,
        before: Option<i64>,
        now: Timestamp,
    ) -> Intent {
        let last = self.intent.as_ref().filter(|last| last.effect == effect && last.is_doubtful());
        Intent {
            id,
            step,
            number: self.next_number(&effect),
            effect,
            at: now,
            before: last.map_or(before, |last| last.before),
            outcome: None,
            ended_at: None,
            given_up: None,
            after_unknown: last.is_some(),
        }
    }

    /// Number of the next try of `effect`: one more where it is what was tried last, so that the
    /// same call for another disk, interface or script begins anew. What never left is no try: the
    /// next one has its number.
    #[must_use]
    pub fn next_number(&self, effect: &Effect) -> u32 {
        let last = self.intent.as_ref().filter(|last| last.effect == *effect);
        last.map_or(1, |last| if last.never_left() { last.number } else { last.number + 1 })
    }

    /// Forgets what belongs to the step that ends and counts the one that begins.
    pub fn enter_step(&mut self, step: Step) {
        self.intent = None;
        self.task_id = None;
        self.tries.clear();
        self.answers.clear();
        self.without_effect.clear();
        self.read_failure = None;
        self.parked_code = None;
        *self.visits.entry(step).or_insert(0) += 1;
    }

    /// Whether an operator let the run go on after it had parked in this step with one of `codes`.
    #[must_use]
    pub fn resumed_after_park(&self, codes: &[ParkCode]) -> bool {
        let parked_code = self.parked_code.as_deref().and_then(ParkCode::from_code);
        let asked = parked_code.is_some_and(|code| codes.contains(&code));
        asked && self.resumed_at >= self.parked_at
    }

    /// Whether an operator let the run go on, or it looked again by itself, after it had parked in this
    /// step with one of `codes`.
    #[must_use]
    pub fn looked_after_park(&self, codes: &[ParkCode]) -> bool {
        let parked_code = self.parked_code.as_deref().and_then(ParkCode::from_code);
        let stopped = parked_code.is_some_and(|code| codes.contains(&code));
        stopped && self.reads_count_since() >= self.parked_at
    }

    /// An operator lets the run go on where it stopped: as after [`Self::look_again`], and the agent
    /// looks at its host again, too.
    pub fn resume(&mut self, now: Timestamp) {
        self.look_again(now);
        self.task_id = None;
    }

    /// The run looks again at what it stopped for. What it read before is nothing to go by any more,
    /// and what MAAS refused before is asked again; an intent that MAAS took, or whose outcome
    /// nobody knows, stands: forgetting it could do the same thing twice.
    ///
    /// `now` has to be later than everything that the run has read: see
    /// [`Self::later_than_reads`].
    pub fn look_again(&mut self, now: Timestamp) {
        self.resumed_at = Some(now);
        self.forget_reads();
        match &mut self.intent {
            // What was refused after a try of unknown outcome may have been done by that: the refusal
            // stands until the machine was read again.
            Some(intent) if intent.was_not_done() && intent.may_have_been_done_before() => {
                intent.number = 1;
            }
            Some(intent) if intent.was_not_done() => self.intent = None,
            Some(intent) if intent.is_open() => intent.number = 1,
            _ => {}
        }
    }

    /// The parked run looks again by itself: what it read before is nothing to go by any more. Unlike
    /// an operator's word this lets no call be made again: what was tried, refused or lost stands.
    ///
    /// `now` has to be later than everything that the run has read: see
    /// [`Self::later_than_reads`].
    pub fn begin_recheck(&mut self, now: Timestamp) {
        self.rechecked_at = Some(now);
        self.forget_reads();
    }

    /// Since when what was read counts: an operator's word to go on, or the run's own look while it
    /// was parked, whichever came last. None: neither came.
    #[must_use]
    pub fn reads_count_since(&self) -> Option<Timestamp> {
        self.resumed_at.max(self.rechecked_at)
    }

    /// Latest read of the tag `name`, if it is one of the run's.
    #[must_use]
    pub fn tag_of_name(&self, name: &str) -> Option<&RegionTag> {
        [&self.tag, &self.profile_tag].into_iter().flatten().find(|tag| tag.name == name)
    }

    /// Keeps the read of a tag in place of the earlier one.
    pub fn keep_tag(&mut self, tag: RegionTag) {
        let kept = if tag.name.starts_with(KERNEL_TAG_PREFIX) {
            &mut self.tag
        } else {
            &mut self.profile_tag
        };
        *kept = Some(tag);
    }

    /// Forgets what was read of MAAS, except tags, whose reads count by their age; checks stay, each
    /// with the moment at which it was made.
    pub fn forget_reads(&mut self) {
        self.read_failure = None;
        self.found = None;
        self.power = None;
        self.mac_owners = None;
        self.subnets = None;
        self.region_scripts = None;
        self.script_results = None;
        self.deploy_events = None;
    }

    /// The moment of an operator's word: `now`, or just after what the run has read, where the clock
    /// that it read by is ahead of the operator's.
    #[must_use]
    pub fn later_than_reads(
        &self,
        now: Timestamp,
        machine_read_at: Option<Timestamp>,
    ) -> Timestamp {
        let after = |at: Timestamp| at.plus_seconds(0.000_001);
        [self.parked_at, machine_read_at].into_iter().flatten().map(after).fold(now, Timestamp::max)
    }

    /// An operator has the run try again: as after [`Self::resume`], and what was tried in this step
    /// does not count any more.
    pub fn retry(&mut self, now: Timestamp) {
        self.resume(now);
        self.retried_at = Some(now);
        self.tries.clear();
        self.answers.clear();
        self.without_effect.clear();
        self.visits.remove(&Step::ReleaseForRetry);
        if let Some(intent) = &mut self.intent {
            intent.number = 1;
            self.tries.insert(intent.effect.kind(), 1);
        }
    }

    /// How often `step` was entered.
    #[must_use]
    pub fn visits(&self, step: Step) -> u32 {
        self.visits.get(&step).copied().unwrap_or(0)
    }
}

#[cfg(test)]
#[path = "run_state_tests.rs"]
mod tests;
