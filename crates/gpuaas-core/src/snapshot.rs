//! What a decision reads, and what it may decide.

use gpuaas_types::agent::{HostCheck, TaskSpec};
use gpuaas_types::api::{CheckResult, Park, Wait};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::machine::{MachineView, Observation};
use gpuaas_types::scripts::MaasScript;
use gpuaas_types::spec::{ProfileSpec, ReleaseMode, RoceAssignmentSpec, SiteSpec};
use gpuaas_types::steps::WITHOUT_REGION;
use gpuaas_types::{EffectKind, RunKind, RunStatus, Step, Timestamp};

use crate::effect::Effect;
use crate::record::{NodeRecord, Report, ReportKind, RunRecord};
use crate::run_state::MachineOrigin;
use crate::step_duration::ExpectedDuration;

/// The narrowest limit on deployments at once, and who is before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeployQueue {
    /// Runs in the deploying part, and older ones at the gate.
    pub ahead: u32,
    /// How many may deploy at once.
    pub limit: u32,
    /// Whose limit it is: `profile`, `site` or `image_bandwidth`.
    pub scope: &'static str,
}

/// Everything known about a run at `now`.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot<'a> {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The run that is decided on.
    pub run: &'a RunRecord,
    /// The node of the run.
    pub node: &'a NodeRecord,
    /// The site of the node.
    pub site: &'a SiteSpec,
    /// The pinned profile revision.
    pub profile: &'a ProfileSpec,
    /// Fabric addresses of the host.
    pub roce: &'a [RoceAssignmentSpec],
    /// What is known of the machine in MAAS.
    pub observation: Option<&'a Observation>,
    /// Reports of the node and of operators during this run, oldest first.
    pub reports: &'a [Report],
    /// What the profile's validation bundle asks of the host, and its site bundle of an active
    /// one; or why that is not known.
    pub host_checks: Result<&'a [HostCheck], &'a str>,
    /// Scripts of the profile's commissioning bundle; none: it does not resolve.
    pub commissioning: Option<&'a [MaasScript]>,
    /// Arguments that the kernel is to be started with: what the site bundle's gates ask for, then
    /// the profile's own; or why that is not known.
    pub kernel_arguments: Result<&'a [String], &'a str>,
    /// The profile's site bundle makes slice hosts: it has checks of the gate `slice_ready`.
    pub for_slices: bool,
    /// Who goes before this run into the deploying part; none: no limit, or not yet at the gate.
    pub deploy_queue: Option<DeployQueue>,
    /// The MAAS user that GPUaaS asks as; empty: not known.
    pub maas_user: &'a str,
    /// Somebody follows the site's event feed, so no change from now on is missed.
    pub watched: bool,
    /// Since when the region answers again, after it had not; none: it was never away as far as
    /// this process knows.
    pub answering_since: Option<Timestamp>,
    /// Nothing is sent to the region at the moment: the circuit is open.
    pub away: bool,
    /// How long the current step is expected to take, learned from earlier runs or from the table.
    pub expected: ExpectedDuration,
    /// Seconds of `now`'s clock in one second of wall time: people act in wall time, also in a
    /// laboratory whose clock is faster.
    pub clock_factor: f64,
}

impl<'a> Snapshot<'a> {
    /// A snapshot of a run that nothing is known of yet but what was asked: no machine was read,
    /// nothing was reported, no bundle asks for anything, and the site is not watched.
    #[must_use]
    pub fn new(
        now: Timestamp,
        run: &'a RunRecord,
        node: &'a NodeRecord,
        site: &'a SiteSpec,
        profile: &'a ProfileSpec,
    ) -> Self {
        Self {
            now,
            run,
            node,
            site,
            profile,
            roce: &[],
            observation: None,
            reports: &[],
            host_checks: Ok(&[]),
            commissioning: Some(&[]),
            kernel_arguments: Ok(&[]),
            for_slices: false,
            deploy_queue: None,
            maas_user: "",
            watched: false,
            answering_since: None,
            away: false,
            expected: ExpectedDuration::from_table(run.step),
            clock_factor: 1.0,
        }
    }

    /// The moment so many seconds of wall time ago.
    #[must_use]
    pub fn wall_seconds_ago(&self, seconds: f64) -> Timestamp {
        self.now.plus_seconds(-seconds * self.clock_factor)
    }

    /// Status number of the machine, as last seen or heard.
    #[must_use]
    pub fn status(&self) -> Option<i64> {
        self.observation.map(|o| o.status)
    }

    /// Machine details read at or after `since`.
    #[must_use]
    pub fn machine_since(&self, since: Timestamp) -> Option<&'a MachineView> {
        let observation = self.observation?;
        if observation.read_at >= since { observation.machine.as_ref() } else { None }
    }

    /// Reports of the current deployment, oldest first. Reports of a system that has been deployed
    /// over since do not count.
    pub fn deployment_reports(&self) -> impl Iterator<Item = &'a Report> + use<'a> {
        let deployed = self.run.state.intended_at.get(&EffectKind::Deploy);
        let since = deployed.copied().unwrap_or(self.run.created_at);
        self.reports.iter().filter(move |report| report.at >= since)
    }

    /// The first report of the current deployment that `wanted` accepts.
    #[must_use]
    pub fn report(&self, wanted: impl Fn(&ReportKind) -> bool) -> Option<&'a Report> {
        self.deployment_reports().find(|report| wanted(&report.kind))
    }

    /// The first report later than `moment` that `wanted` accepts.
    #[must_use]
    pub fn report_after(
        &self,
        moment: Timestamp,
        wanted: impl Fn(&ReportKind) -> bool,
    ) -> Option<&'a Report> {
        self.reports.iter().find(|report| report.at > moment && wanted(&report.kind))
    }

    /// Since when the run works at its step: from its beginning, from an operator's word to go on, or
    /// from its own look while it was parked.
    #[must_use]
    pub fn effort_since(&self) -> Timestamp {
        let anew = self.run.state.reads_count_since().unwrap_or(self.run.step_since);
        anew.max(self.run.step_since)
    }

    /// From when the deadline of the step counts: what a region that was away kept from happening
    /// is not held against the run. Where the region has no part in the step it counts from the
    /// beginning, or a region that goes and comes would put the deadline off for ever.
    #[must_use]
    pub fn patient_since(&self) -> Timestamp {
        let back = self.answering_since.filter(|_| !WITHOUT_REGION.contains(&self.run.step));
        back.map_or(self.effort_since(), |back| back.max(self.effort_since()))
    }

    /// Whether the region came back after `failed_at`, so that what failed then is tried at once. One that
    /// went away again at that very moment would refuse every try, without end.
    #[must_use]
    pub fn answers_since(&self, failed_at: Timestamp) -> bool {
        !self.away && self.answering_since.is_some_and(|back| back >= failed_at)
    }

    /// Seconds of work at the current step.
    #[must_use]
    pub fn seconds_in_step(&self) -> f64 {
        self.now.seconds_since(self.effort_since())
    }

    /// Whether an operator wants the run to end; `Some(true)`: leaving the machine as it is.
    #[must_use]
    pub fn cancel_requested(&self) -> Option<bool> {
        self.reports.iter().rev().find_map(|report| match report.kind {
            ReportKind::CancelRequested { leave_machine, .. } => Some(leave_machine),
            _ => None,
        })
    }

    /// The agent's enrollment.
    #[must_use]
    pub fn enrollment(&self) -> Option<&'a Report> {
        self.report(|kind| matches!(kind, ReportKind::Enrolled { .. }))
    }

    /// The agent's first heartbeat of the current deployment.
    #[must_use]
    pub fn first_heartbeat(&self) -> Option<&'a Report> {
        self.report(|kind| matches!(kind, ReportKind::FirstHeartbeat))
    }

    /// The result of a named check, as of now.
    #[must_use]
    pub fn check(&self, name: &str, passed: bool, evidence: impl Into<String>) -> CheckResult {
        let (name, evidence) = (name.to_owned(), evidence.into());
        CheckResult { name, passed, verified: true, evidence, at: self.now }
    }

    /// Who skipped the check of this name and why, as evidence; none: nobody, or the skip expired.
    #[must_use]
    pub fn check_skip(&self, name: &str) -> Option<String> {
        self.reports.iter().rev().find_map(|report| match &report.kind {
            ReportKind::CheckSkipped { check, actor, reason, until }
                if *check == name && self.now < *until =>
            {
                Some(format!("skipped by {actor} until {until} ({reason})"))
            }
            _ => None,
        })
    }

    /// Results in which an operator's skip makes a failed check pass. Who skipped it is part of the
    /// evidence.
    #[must_use]
    pub fn apply_check_skips(&self, mut checks: Vec<CheckResult>) -> Vec<CheckResult> {
        for result in checks.iter_mut().filter(|result| !result.passed) {
            if let Some(skip) = self.check_skip(&result.name) {
                result.passed = true;
                result.evidence.insert_str(0, &format!("{skip}; it says: "));
            }
        }
        checks
    }

    /// Whether the machine is its new owner's by now: see [`ReleaseMode::Handoff`].
    #[must_use]
    pub fn is_handed_off(&self) -> bool {
        self.profile.release_mode == ReleaseMode::Handoff && self.run.kind != RunKind::Onboard
    }
}

/// Something to read from the outside world. Reads change nothing and may be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// Look for the machine by hostname, BMC address and MAC.
    FindMachine,
    /// Read the machine in full.
    Machine,
    /// Who has this MAC address.
    MacOwners {
        /// The MAC address in lower case.
        mac_address: String,
    },
    /// The subnets of the region.
    Subnets,
    /// The scripts of the profile's commissioning bundle, and those that MAAS runs by itself.
    RegionScripts,
    /// What the scripts of the machine's last commissioning said.
    ScriptResults,
    /// The tag of this name.
    Tag {
        /// Name of the tag.
        name: String,
    },
    /// What MAAS' events say of the machine's latest deployment.
    DeployEvents,
    /// The region's hardware-sync interval against the profile's.
    HardwareSyncConfig,
    /// The six checks before a deployment.
    PredeployChecks,
    /// Whether what the deployed host derives from its management address is its own alone.
    HostAddresses,
}

impl Read {
    /// Stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::FindMachine => "find_machine",
            Self::Machine => "read_machine",
            Self::MacOwners { .. } => "mac_owners",
            Self::Subnets => "subnets",
            Self::RegionScripts => "region_scripts",
            Self::ScriptResults => "script_results",
            Self::Tag { .. } => "tag",
            Self::DeployEvents => "deploy_events",
            Self::HardwareSyncConfig => "hardware_sync_config",
            Self::PredeployChecks => "predeploy_checks",
            Self::HostAddresses => "host_addresses",
        }
    }
}

/// A fact for the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What happened.
    pub code: TimelineCode,
    /// One sentence.
    pub text: String,
}

impl Note {
    /// A note of one sentence under a stable code.
    #[must_use]
    pub fn new(code: TimelineCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Find something out.
    Read(Read),
    /// Change something in MAAS: write the intent, call, record the outcome.
    Do(Effect),
    /// The open intent's fate is known without asking again.
    Settle {
        /// It took place (`true`) or it did not.
        happened: bool,
    },
    /// Bind the machine to the node.
    Adopt {
        /// MAAS' identifier.
        system_id: String,
        /// How it came.
        origin: MachineOrigin,
    },
    /// Give the agent a task.
    IssueTask(TaskSpec),
    /// Nothing to do until an event or `recheck_at`.
    Wait {
        /// What the run waits for, with its deadline.
        wait: Wait,
        /// Look again then, even without an event.
        recheck_at: Timestamp,
    },
    /// The step is done; the run goes on with the next step of its kind.
    Next {
        /// When the boundary was crossed; clamped to the step's beginning and to now.
        at: Timestamp,
        /// For the timeline.
        notes: Vec<Note>,
        /// Results of checks made on the way.
        checks: Vec<CheckResult>,
    },
    /// The step is done; the run goes on with a side step, or back to an earlier one.
    AdvanceTo {
        /// The step to go on with.
        step: Step,
        /// When the boundary was crossed; clamped to the step's beginning and to now.
        at: Timestamp,
        /// For the timeline.
        notes: Vec<Note>,
        /// Results of checks made on the way.
        checks: Vec<CheckResult>,
    },
    /// Stop; a named owner has to act.
    Park {
        /// Why, and what next.
        park: Park,
        /// Results of checks made on the way.
        checks: Vec<CheckResult>,
    },
    /// The run is over.
    Finish {
        /// The status that the run ends in.
        status: RunStatus,
        /// For the timeline.
        notes: Vec<Note>,
        /// Results of the gates.
        checks: Vec<CheckResult>,
    },
}

impl Decision {
    /// What it is, and what it is about, in few words.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Read(read) => format!("read {}", read.name()),
            Self::Do(effect) => format!("do {}", effect.kind()),
            Self::Settle { happened: true } => "settle: it happened".to_owned(),
            Self::Settle { happened: false } => "settle: it did not happen".to_owned(),
            Self::Adopt { system_id, .. } => format!("adopt {system_id}"),
            Self::IssueTask(_) => "issue a task".to_owned(),
            Self::Wait { wait, .. } => format!("wait for {}", wait.code),
            Self::Next { .. } => "continue with the next step".to_owned(),
            Self::AdvanceTo { step, .. } => format!("continue with {step}"),
            Self::Park { park, .. } => format!("park with {}", park.code),
            Self::Finish { status, .. } => format!("end as {status}"),
        }
    }

    /// The step that `run` goes on with by this decision; none: it stays in its step or ends.
    ///
    /// At the end of its kind's list a run has no next step: the step has to end it instead
    /// ([`Decision::Finish`]).
    #[must_use]
    pub fn next_step(&self, run: &RunRecord) -> Option<Step> {
        match self {
            Self::Next { .. } => run.kind.row().next_after(run.step),
            Self::AdvanceTo { step, .. } => Some(*step),
            _ => None,
        }
    }
}
