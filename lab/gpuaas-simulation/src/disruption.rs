//! What a seed draws for a fleet: the kinds of its nodes, the faults of hardware, MAAS and network,
//! and the actions of people, operators, clocks and control planes, each with its time.

use gpuaas_types::spec::{FabricMode, ProfileSpec, ReleaseMode};
use gpuaas_types::{RunKind, Timestamp};
use maas_sim::{Fault, FaultKind, H200, HumanAction, SimRng};

use crate::failpoint::{CountedEvent, TriggerAction};
use crate::interference::Meddling;
use crate::plan::SimulationPlan;

/// Virtual seconds in which people and crashes come.
pub const DISRUPTED_SECONDS: f64 = 4.0 * 3600.0;
/// Virtual seconds in which operators do something.
const OPERATED_SECONDS: f64 = 8.0 * 3600.0;
/// Wrong by at most so many seconds, either way: what a working NTP leaves, and much more.
const SKEW_SECONDS: f64 = 30.0;
/// The same for control planes that share a database.
const SHARED_SKEW_SECONDS: f64 = 2.0;
/// A clock is set forward or back by at most so much.
const STEP_SECONDS: f64 = 120.0;
/// A control plane is away at most so long; mostly much shorter.
const AWAY_SECONDS: f64 = 300.0;
/// A control plane is stopped at least so long: longer than its lease.
const STOPPED_SECONDS: f64 = 60.0;

/// Faults of hardware and of MAAS' own work: one machine each.
const OF_MACHINES: [FaultKind; 16] = [
    FaultKind::BmcError,
    FaultKind::CommissioningFailed,
    FaultKind::TestingFailed,
    FaultKind::DeployFailed,
    FaultKind::StuckDeploying,
    FaultKind::StuckCommissioning,
    FaultKind::DatasourceFailure,
    FaultKind::StuckReleasing,
    FaultKind::StuckErasing,
    FaultKind::HungPower,
    FaultKind::WrongPxeNic,
    FaultKind::NoBootInterface,
    FaultKind::DuplicateMac,
    FaultKind::EventsGap,
    FaultKind::FlappingPower,
    FaultKind::Slow,
];

/// Faults of calls, each with a chance of its own.
const OF_CALLS: [FaultKind; 6] = [
    FaultKind::Accepted504,
    FaultKind::Refused504,
    FaultKind::Unavailable503,
    FaultKind::ResetAfterAccept,
    FaultKind::ResetBefore,
    FaultKind::Slow,
];

/// What comes at a moment that was drawn before the life began.
#[derive(Debug, Clone, PartialEq)]
pub enum Disruption {
    /// Somebody does something in MAAS.
    Human(HumanAction),
    /// Somebody interferes with a run.
    Interference {
        /// What is done.
        meddling: Meddling,
        /// To which host's machine; none: that of a run that is open then.
        host: Option<String>,
        /// How often it is tried.
        tries: u32,
    },
    /// An operator does something about one host.
    Operator(String),
    /// A control plane dies now.
    Crash,
    /// One dies or stops after so many calls or writes.
    ArmFailpoint(CountedEvent, u32, TriggerAction),
    /// One dies or stops after so many calls or writes of the next sweep.
    ArmSweepFailpoint(CountedEvent, u32),
    /// One starts again.
    Restart,
    /// A second one starts beside it.
    StartSecond,
    /// One is not scheduled any more.
    Pause,
    /// One that was stopped goes on.
    Resume(u32),
    /// All clocks of control planes are set.
    StepClocks(f64),
    /// Somebody does something about slices.
    Tenant,
    /// All slices are given back.
    TenantsLeave,
}

/// Draws what a life is made of.
#[derive(Debug)]
pub struct ChaosRng {
    /// The seed's stream.
    pub stream: SimRng,
    /// Whether several control planes share the work at times.
    pub shared: bool,
}

impl ChaosRng {
    /// What a seed draws.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut stream = SimRng::for_name(seed, "chaos");
        let shared = stream.uniform() < 0.4;
        Self { stream, shared }
    }

    /// True with this chance.
    pub fn random_bool(&mut self, part: f64) -> bool {
        self.stream.uniform() < part
    }

    /// One of them.
    pub fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.stream.below(all.len())]
    }

    fn count(&mut self, below: usize) -> u32 {
        u32::try_from(self.stream.below(below)).unwrap_or_default()
    }

    /// The fleet.
    pub fn plan(&mut self, seed: u64, nodes: usize) -> SimulationPlan {
        let batch = if self.random_bool(0.2) { 1 + self.count(8) } else { 0 };
        SimulationPlan {
            apart_seconds: 120.0 * self.stream.uniform(),
            poll_seconds: 1.0 + 29.0 * self.stream.uniform(),
            lost_callbacks: if self.random_bool(0.5) { 0.1 * self.stream.uniform() } else { 0.0 },
            profile: self.profile(),
            site_batch_max_parallel: batch,
            failing_tasks: if self.random_bool(0.3) { 0.3 * self.stream.uniform() } else { 0.0 },
            sweep_seconds: 300.0,
            heartbeat_seconds: 0.0,
            ..SimulationPlan::calm(seed, nodes, &H200)
        }
    }

    fn profile(&mut self) -> ProfileSpec {
        let roce = self.random_bool(0.15);
        let hardware_sync = self.random_bool(0.2);
        let plain = ProfileSpec::default();
        ProfileSpec {
            strict_pxe_preflight: !self.random_bool(0.2),
            enable_phase2_roce: roce,
            fabric_mode: if roce { FabricMode::Roce } else { plain.fabric_mode },
            require_hw_sync: hardware_sync,
            hardware_sync_interval: match self.count(8) {
                0 => "10m".to_owned(),
                1..=4 => "15m".to_owned(),
                _ => String::new(),
            },
            release_erase: self.random_bool(0.4),
            release_fallback_no_erase: self.random_bool(0.5),
            enable_deploy_retry_on_datasource_failure: self.random_bool(0.7),
            max_deploy_retry_attempts: self.count(3),
            auto_claim_single_new_machine: self.random_bool(0.2),
            batch_max_parallel: if self.random_bool(0.2) { 1 + self.count(6) } else { 0 },
            storage_layout_profile: self.choose(&["flat", "flat", "lvm", "bcache"]).to_owned(),
            release_mode: if self.random_bool(0.12) {
                ReleaseMode::Handoff
            } else {
                ReleaseMode::Managed
            },
            ..plain
        }
    }

    /// Seconds by which the clock of a control plane is wrong when it starts.
    pub fn skew_seconds(&mut self) -> f64 {
        let most = if self.shared { SHARED_SKEW_SECONDS } else { SKEW_SECONDS };
        most * (2.0 * self.stream.uniform() - 1.0)
    }

    /// How long a control plane that died is away.
    pub fn away_seconds(&mut self) -> f64 {
        0.5 + AWAY_SECONDS * self.stream.uniform().powi(3)
    }

    /// How long one that was stopped is not scheduled.
    pub fn stopped_seconds(&mut self) -> f64 {
        STOPPED_SECONDS + AWAY_SECONDS * self.stream.uniform().powi(2)
    }

    /// What goes wrong with hardware and with calls.
    pub fn faults(&mut self, names: &[String]) -> Vec<Fault> {
        let mut faults = Vec::new();
        for name in names {
            if self.random_bool(0.5) {
                let kind = self.choose(&OF_MACHINES);
                let times = 1 + u32::from(self.random_bool(0.3));
                faults.push(Fault::new(kind).on(name).times(times));
            }
            if self.random_bool(0.1) {
                let when = self.choose(&["Ready", "Deploying", "Deployed"]).to_owned();
                let fault = Fault::new(FaultKind::Vanished).on(name).times(1);
                faults.push(Fault { when: Some(when), ..fault });
            }
        }
        for kind in OF_CALLS {
            if self.random_bool(0.5) {
                let probability = Some(0.15 * self.stream.uniform());
                faults.push(Fault { probability, ..Fault::new(kind) });
            }
        }
        if self.random_bool(0.2) {
            // A list that takes longer than anybody waits, now and then.
            let slow = Fault::new(FaultKind::Slow).at("machines.list").lasting_seconds(90.0);
            faults.push(Fault { probability: Some(0.2), ..slow });
        }
        faults
    }

    /// What comes when, the earliest first.
    pub fn disruptions(
        &mut self,
        begin: Timestamp,
        names: &[String],
    ) -> Vec<(Timestamp, Disruption)> {
        let mut disruptions = Vec::new();
        for _ in 0..self.stream.below(6) {
            let action = self.human_action(names);
            disruptions.push((DISRUPTED_SECONDS, Disruption::Human(action)));
        }
        for _ in 0..self.stream.below(6) {
            let disruption = self.control_plane_disruption();
            disruptions.push((DISRUPTED_SECONDS, disruption));
        }
        if self.shared {
            disruptions.push((DISRUPTED_SECONDS, Disruption::StartSecond));
            for _ in 0..=self.stream.below(3) {
                disruptions.push((DISRUPTED_SECONDS, Disruption::Pause));
            }
        } else if self.random_bool(0.3) {
            let seconds = STEP_SECONDS * (2.0 * self.stream.uniform() - 1.0);
            disruptions.push((DISRUPTED_SECONDS, Disruption::StepClocks(seconds)));
        }
        for _ in 0..self.stream.below(names.len() * 2) {
            let name = names[self.stream.below(names.len())].clone();
            disruptions.push((OPERATED_SECONDS, Disruption::Operator(name)));
        }
        let mut disruptions: Vec<_> = disruptions
            .into_iter()
            .map(|(within, disruption)| {
                (begin.plus_seconds(within * self.stream.uniform()), disruption)
            })
            .collect();
        disruptions.sort_by_key(|(at, _)| *at);
        disruptions
    }

    fn control_plane_disruption(&mut self) -> Disruption {
        let end = if self.shared && self.random_bool(0.5) {
            TriggerAction::Pause
        } else {
            TriggerAction::Crash
        };
        match self.stream.below(10) {
            0..=2 => Disruption::Crash,
            3..=5 => Disruption::ArmFailpoint(CountedEvent::CallBoundary, 1 + self.count(40), end),
            // Who stops after a write may as well stop at the next call.
            6..=8 => Disruption::ArmFailpoint(
                CountedEvent::CommittedWrite,
                1 + self.count(40),
                TriggerAction::Crash,
            ),
            _ => Disruption::ArmSweepFailpoint(
                self.choose(&[CountedEvent::CallBoundary, CountedEvent::CommittedWrite]),
                1 + self.count(4),
            ),
        }
    }

    fn human_action(&mut self, names: &[String]) -> HumanAction {
        let machine = names[self.stream.below(names.len())].clone();
        match self.stream.below(9) {
            0 => HumanAction::Release { machine },
            1 => HumanAction::Deploy { machine },
            2 => HumanAction::Commission { machine },
            3 => HumanAction::Abort { machine },
            4 => HumanAction::Rename { to: format!("{machine}-x"), machine },
            5 => HumanAction::Delete { machine },
            6 => HumanAction::Lock { machine },
            7 => HumanAction::Tag { machine, tag: "spare".to_owned() },
            _ => HumanAction::PowerOff { machine },
        }
    }

    /// What an operator asks of a node without an open run.
    pub fn run_kind(&mut self) -> RunKind {
        self.choose(&[
            RunKind::Reimage,
            RunKind::Reimage,
            RunKind::Decommission,
            RunKind::Decommission,
            RunKind::SoftReset,
            RunKind::StorageCleanup,
            RunKind::Detach,
            RunKind::Remove,
        ])
    }
}
