//! What a seed draws for the life of a fleet: what nodes are to be, what goes wrong with hardware,
//! MAAS and the network, and what people, operators, clocks and control planes do and when.

use gpuaas_types::spec::{FabricMode, ProfileSpec, ReleaseMode};
use gpuaas_types::{RunKind, Timestamp};
use maas_sim::{Fault, FaultKind, H200, HumanAction, SimRng};

use crate::failpoint::{Counts, End};
use crate::plan::Plan;

/// Virtual seconds in which people and crashes come.
pub const TROUBLE_SECONDS: f64 = 4.0 * 3600.0;
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
pub enum Trouble {
    /// Somebody does something in MAAS.
    Human(HumanAction),
    /// An operator does something about one host.
    Operator(String),
    /// A control plane dies now.
    Crash,
    /// One dies or stops after so many calls or writes.
    Fuse(Counts, u32, End),
    /// One dies or stops after so many calls or writes of the next sweep.
    SweepFuse(Counts, u32),
    /// One starts again.
    Restart,
    /// A second one starts beside it.
    Second,
    /// One is not scheduled any more.
    Stop,
    /// One that was stopped goes on.
    GoOn(u32),
    /// All clocks of control planes are set.
    Step(f64),
}

/// Draws what a life is made of.
#[derive(Debug)]
pub struct Draw {
    /// The seed's stream.
    pub chance: SimRng,
    /// Whether several control planes share the work at times.
    pub shared: bool,
}

impl Draw {
    /// What a seed draws.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut chance = SimRng::for_name(seed, "chaos");
        let shared = chance.uniform() < 0.4;
        Self { chance, shared }
    }

    /// True with this chance.
    pub fn luck(&mut self, part: f64) -> bool {
        self.chance.uniform() < part
    }

    /// One of them.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.chance.below(all.len())]
    }

    fn count(&mut self, below: usize) -> u32 {
        u32::try_from(self.chance.below(below)).unwrap_or_default()
    }

    /// The fleet.
    pub fn plan(&mut self, seed: u64, nodes: usize) -> Plan {
        let batch = if self.luck(0.2) { 1 + self.count(8) } else { 0 };
        Plan {
            apart_seconds: 120.0 * self.chance.uniform(),
            poll_seconds: 1.0 + 29.0 * self.chance.uniform(),
            lost_callbacks: if self.luck(0.5) { 0.1 * self.chance.uniform() } else { 0.0 },
            profile: self.profile(),
            site_batch_max_parallel: batch,
            failing_tasks: if self.luck(0.3) { 0.3 * self.chance.uniform() } else { 0.0 },
            sweep_seconds: 300.0,
            ..Plan::calm(seed, nodes, &H200)
        }
    }

    fn profile(&mut self) -> ProfileSpec {
        let roce = self.luck(0.15);
        let hardware_sync = self.luck(0.2);
        let plain = ProfileSpec::default();
        ProfileSpec {
            strict_pxe_preflight: !self.luck(0.2),
            enable_phase2_roce: roce,
            fabric_mode: if roce { FabricMode::Roce } else { plain.fabric_mode },
            require_hw_sync: hardware_sync,
            hardware_sync_interval: match self.count(8) {
                0 => "10m".to_owned(),
                1..=4 => "15m".to_owned(),
                _ => String::new(),
            },
            release_erase: self.luck(0.4),
            release_fallback_no_erase: self.luck(0.5),
            enable_deploy_retry_on_datasource_failure: self.luck(0.7),
            max_deploy_retry_attempts: self.count(3),
            auto_claim_single_new_machine: self.luck(0.2),
            batch_max_parallel: if self.luck(0.2) { 1 + self.count(6) } else { 0 },
            storage_layout_profile: self.one_of(&["flat", "flat", "lvm", "bcache"]).to_owned(),
            release_mode: if self.luck(0.12) { ReleaseMode::Handoff } else { ReleaseMode::Managed },
            ..plain
        }
    }

    /// Seconds by which the clock of a control plane is wrong when it starts.
    pub fn skew_seconds(&mut self) -> f64 {
        let most = if self.shared { SHARED_SKEW_SECONDS } else { SKEW_SECONDS };
        most * (2.0 * self.chance.uniform() - 1.0)
    }

    /// How long a control plane that died is away.
    pub fn away_seconds(&mut self) -> f64 {
        0.5 + AWAY_SECONDS * self.chance.uniform().powi(3)
    }

    /// How long one that was stopped is not scheduled.
    pub fn stopped_seconds(&mut self) -> f64 {
        STOPPED_SECONDS + AWAY_SECONDS * self.chance.uniform().powi(2)
    }

    /// What goes wrong with hardware and with calls.
    pub fn faults(&mut self, names: &[String]) -> Vec<Fault> {
        let mut faults = Vec::new();
        for name in names {
            if self.luck(0.5) {
                let kind = self.one_of(&OF_MACHINES);
                let times = 1 + u32::from(self.luck(0.3));
                faults.push(Fault::new(kind).on(name).times(times));
            }
            if self.luck(0.1) {
                let when = self.one_of(&["Ready", "Deploying", "Deployed"]).to_owned();
                let fault = Fault::new(FaultKind::Vanished).on(name).times(1);
                faults.push(Fault { when: Some(when), ..fault });
            }
        }
        for kind in OF_CALLS {
            if self.luck(0.5) {
                let probability = Some(0.15 * self.chance.uniform());
                faults.push(Fault { probability, ..Fault::new(kind) });
            }
        }
        if self.luck(0.2) {
            // A list that takes longer than anybody waits, now and then.
            let slow = Fault::new(FaultKind::Slow).at("machines.list").lasting_seconds(90.0);
            faults.push(Fault { probability: Some(0.2), ..slow });
        }
        faults
    }

    /// What comes when, the earliest first.
    pub fn troubles(&mut self, begin: Timestamp, names: &[String]) -> Vec<(Timestamp, Trouble)> {
        let mut troubles = Vec::new();
        for _ in 0..self.chance.below(6) {
            let action = self.human(names);
            troubles.push((TROUBLE_SECONDS, Trouble::Human(action)));
        }
        for _ in 0..self.chance.below(6) {
            let trouble = self.accident();
            troubles.push((TROUBLE_SECONDS, trouble));
        }
        if self.shared {
            troubles.push((TROUBLE_SECONDS, Trouble::Second));
            for _ in 0..=self.chance.below(3) {
                troubles.push((TROUBLE_SECONDS, Trouble::Stop));
            }
        } else if self.luck(0.3) {
            let seconds = STEP_SECONDS * (2.0 * self.chance.uniform() - 1.0);
            troubles.push((TROUBLE_SECONDS, Trouble::Step(seconds)));
        }
        for _ in 0..self.chance.below(names.len() * 2) {
            let name = names[self.chance.below(names.len())].clone();
            troubles.push((OPERATED_SECONDS, Trouble::Operator(name)));
        }
        let mut troubles: Vec<_> = troubles
            .into_iter()
            .map(|(within, trouble)| (begin.plus_seconds(within * self.chance.uniform()), trouble))
            .collect();
        troubles.sort_by_key(|(at, _)| *at);
        troubles
    }

    fn accident(&mut self) -> Trouble {
        let end = if self.shared && self.luck(0.5) { End::Stops } else { End::Dies };
        match self.chance.below(10) {
            0..=2 => Trouble::Crash,
            3..=5 => Trouble::Fuse(Counts::Calls, 1 + self.count(40), end),
            // Who stops after a write may as well stop at the next call.
            6..=8 => Trouble::Fuse(Counts::Writes, 1 + self.count(40), End::Dies),
            _ => {
                Trouble::SweepFuse(self.one_of(&[Counts::Calls, Counts::Writes]), 1 + self.count(4))
            }
        }
    }

    fn human(&mut self, names: &[String]) -> HumanAction {
        let machine = names[self.chance.below(names.len())].clone();
        match self.chance.below(9) {
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
    pub fn kind(&mut self) -> RunKind {
        self.one_of(&[
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
