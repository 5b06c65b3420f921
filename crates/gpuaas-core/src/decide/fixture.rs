//! Machines and snapshots for tests.

use gpuaas_types::agent::HostCheck;
use gpuaas_types::codes::{Cure, ParkCode};
use gpuaas_types::machine::{Disk, MachineView, Nic, NicLink, Observation};
use gpuaas_types::scripts::MaasScript;
use gpuaas_types::spec::{ProfileSpec, RoceAssignmentSpec, SiteSpec};
use gpuaas_types::{
    AttemptId, EffectKind, NodeId, NodeState, ProfileId, RunId, RunKind, RunStatus, SiteId, Step,
    Timestamp,
};

use crate::effect::{Effect, Intent, Outcome, ScriptSelection};
use crate::recheck::{RecheckVerdict, judge_recheck, next_recheck_at};
use crate::record::{AgentRecord, NodeHardware, NodeRecord, Report, ReportKind, RunRecord};
use crate::run_state::{
    DeployEvents, MachineSearch, PowerReading, RegionScripts, RegionSubnets, RegionTag, RunState,
    ScriptResults,
};
use crate::snapshot::{Decision, DeployQueue, Read, Snapshot};
use crate::step_duration::StepDurationEstimate;

pub(crate) fn id<T: std::str::FromStr>(n: u32) -> T
where
    T::Err: std::fmt::Debug,
{
    format!("00000000-0000-7000-8000-{n:012}").parse().unwrap()
}

pub(crate) fn at(seconds: f64) -> Timestamp {
    Timestamp::from_micros(1_795_000_000_000_000).plus_seconds(seconds)
}

pub(crate) fn disk(id: i64, name: &str, model: &str, size_bytes: u64) -> Disk {
    Disk {
        id,
        name: name.to_owned(),
        model: model.to_owned(),
        serial: format!("S{id}"),
        size_bytes,
        tags: Vec::new(),
        mounts: Vec::new(),
        partitions: 0,
        filesystem: None,
    }
}

pub(crate) fn nic(id: i64, name: &str) -> Nic {
    Nic {
        id,
        name: name.to_owned(),
        mac_address: format!("00:16:3e:00:00:{id:02x}"),
        kind: "physical".to_owned(),
        vid: Some(0),
        vlan_id: Some(5001),
        fabric: Some("fabric-0".to_owned()),
        dhcp_on: true,
        link_connected: true,
        links: vec![NicLink {
            id: 10 + id,
            mode: "auto".to_owned(),
            subnet_id: Some(1),
            subnet_cidr: Some("10.0.0.0/24".to_owned()),
            ip_address: None,
        }],
    }
}

pub(crate) fn machine(status: i64) -> MachineView {
    let mut boot = disk(2, "sda", "DELLBOSS VD", 480_000_000_000);
    boot.mounts = vec!["/".to_owned()];
    boot.partitions = 2;
    MachineView {
        system_id: "abc123".to_owned(),
        hostname: "j22u11".to_owned(),
        status,
        owner: None,
        power_state: "off".to_owned(),
        power_type: "ipmi".to_owned(),
        architecture: "amd64/generic".to_owned(),
        osystem: String::new(),
        distro_series: String::new(),
        locked: false,
        netboot: true,
        error_description: String::new(),
        status_message: None,
        enable_hw_sync: false,
        sync_interval_seconds: None,
        boot_interface_id: Some(1),
        boot_disk_id: Some(2),
        disks: vec![disk(1, "nvme0n1", "NVMe", 3_840_000_000_000), boot],
        complex_storage: 0,
        volume_groups: 0,
        bcaches: 0,
        nics: vec![nic(1, "eno1"), nic(2, "ens1")],
        tags: Vec::new(),
        hardware: "Dell XE9680".to_owned(),
        serial: String::new(),
        hardware_uuid: String::new(),
        pool: String::new(),
        zone: String::new(),
        has_installation_result: false,
        installation_id: None,
        last_sync: None,
    }
}

/// A run under test: change its parts, then ask.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) now: Timestamp,
    pub(crate) run: RunRecord,
    pub(crate) node: NodeRecord,
    pub(crate) site: SiteSpec,
    pub(crate) profile: ProfileSpec,
    pub(crate) roce: Vec<RoceAssignmentSpec>,
    pub(crate) observation: Option<Observation>,
    pub(crate) reports: Vec<Report>,
    pub(crate) host_checks: Result<Vec<HostCheck>, String>,
    pub(crate) commissioning: Option<Vec<MaasScript>>,
    pub(crate) kernel_arguments: Result<Vec<String>, String>,
    pub(crate) for_slices: bool,
    pub(crate) deploy_queue: Option<DeployQueue>,
    pub(crate) watched: bool,
    pub(crate) answering_since: Option<Timestamp>,
    pub(crate) away: bool,
    pub(crate) pace: StepDurationEstimate,
    pub(crate) maas_user: String,
}

impl Case {
    pub(crate) fn new(step: Step) -> Self {
        let run = RunRecord {
            id: id::<RunId>(1),
            node_id: id::<NodeId>(2),
            site_id: id::<SiteId>(3),
            kind: RunKind::Onboard,
            step,
            status: RunStatus::Running,
            profile_id: id::<ProfileId>(4),
            profile_revision: 1,
            state: RunState::default(),
            wait: None,
            park: None,
            created_at: at(0.0),
            step_since: at(0.0),
            ended_at: None,
            due_at: at(0.0),
            wake_seq: 0,
            handled_seq: 0,
            lease_token: 1,
            lease_until: at(60.0),
            traceparent: None,
        };
        let node = NodeRecord {
            id: run.node_id,
            site_id: run.site_id,
            profile_id: run.profile_id,
            hostname: "j22u11".to_owned(),
            state: NodeState::Registered,
            system_id: Some("abc123".to_owned()),
            hardware: NodeHardware {
                architecture: "amd64/generic".to_owned(),
                ..NodeHardware::default()
            },
            run_id: Some(run.id),
            heartbeat_at: None,
            agent: AgentRecord::default(),
            revision: 1,
            created_at: at(0.0),
            updated_at: at(0.0),
        };
        let site = SiteSpec::new("lab", "http://127.0.0.1:5240/MAAS");
        Self {
            now: at(10.0),
            run,
            node,
            site,
            profile: ProfileSpec::default(),
            roce: Vec::new(),
            observation: None,
            reports: Vec::new(),
            host_checks: Ok(Vec::new()),
            commissioning: Some(Vec::new()),
            kernel_arguments: Ok(Vec::new()),
            for_slices: false,
            deploy_queue: None,
            watched: true,
            answering_since: None,
            away: false,
            pace: StepDurationEstimate::default(),
            maas_user: "gpuaas".to_owned(),
        }
    }

    /// The machine as read at second `seconds`.
    pub(crate) fn read(mut self, machine: MachineView, seconds: f64) -> Self {
        self.observation = Some(Observation::from_read(machine, at(seconds)));
        self
    }

    /// An intent written at second `seconds`, ended a second later.
    pub(crate) fn intent(mut self, effect: Effect, seconds: f64, outcome: Option<Outcome>) -> Self {
        let number = self.run.state.next_number(&effect);
        let ended_at = outcome.as_ref().map(|_| at(seconds + 1.0));
        self.run.state.record_intent(Intent {
            id: id::<AttemptId>(9),
            step: self.run.step,
            effect,
            number,
            at: at(seconds),
            before: self.observation.as_ref().map(|o| o.status),
            outcome,
            ended_at,
            given_up: None,
            after_unknown: false,
        });
        self
    }

    /// Another try of the current intent's effect, written at second `seconds`, as the engine writes it.
    pub(crate) fn intent_after(mut self, effect: Effect, seconds: f64, outcome: Outcome) -> Self {
        let (step, before) = (self.run.step, self.observation.as_ref().map(|o| o.status));
        let state = &mut self.run.state;
        let next = state.next_intent(step, effect, id::<AttemptId>(10), before, at(seconds));
        state.record_intent(next);
        state.record_outcome(outcome, at(seconds + 1.0));
        self
    }

    /// It turned out that MAAS took the current intent.
    pub(crate) fn accepted(mut self) -> Self {
        self.run.state.intent.as_mut().unwrap().outcome = Some(Outcome::Accepted);
        self
    }

    pub(crate) fn report(mut self, kind: ReportKind, seconds: f64) -> Self {
        self.reports.push(Report { run_id: self.run.id, at: at(seconds), kind });
        self
    }

    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            roce: &self.roce,
            observation: self.observation.as_ref(),
            reports: &self.reports,
            host_checks: self.host_checks.as_deref().map_err(String::as_str),
            commissioning: self.commissioning.as_deref(),
            kernel_arguments: self.kernel_arguments.as_deref().map_err(String::as_str),
            for_slices: self.for_slices,
            deploy_queue: self.deploy_queue,
            watched: self.watched,
            answering_since: self.answering_since,
            away: self.away,
            expected: self.pace.expected(self.run.step),
            maas_user: &self.maas_user,
            ..Snapshot::new(self.now, &self.run, &self.node, &self.site, &self.profile)
        }
    }

    pub(crate) fn decide(&self) -> Decision {
        let first = crate::decide(&self.snapshot());
        assert_eq!(first, crate::decide(&self.snapshot()), "level-triggered");
        self.check_cures(&first);
        self.check_recheck(&first);
        first
    }

    /// Whatever parks in any test stays parked when it looks again by itself and finds everything as
    /// it was.
    fn check_recheck(&self, decision: &Decision) {
        let Decision::Park { park, .. } = decision else { return };
        if next_recheck_at(&park.code, self.now, self.now).is_none() {
            return;
        }
        let mut after = self.clone();
        after.run.state.parked_at = Some(self.now);
        after.run.state.parked_code = Some(park.code.clone());
        let read_at = after.observation.as_ref().map(|seen| seen.read_at);
        let began = after.run.state.later_than_reads(self.now.plus_seconds(60.0), read_at);
        after.run.state.begin_recheck(began);
        after.now = began.plus_seconds(1.0);
        for _ in 0..8 {
            let next = crate::decide(&after.snapshot());
            match judge_recheck(&after.snapshot(), &next) {
                // The test never said what MAAS would answer.
                RecheckVerdict::Read(Read::Machine) if self.observation.is_none() => return,
                RecheckVerdict::Read(read) => after.read_as_before(&read, &self.run.state),
                RecheckVerdict::StaysParked => return,
                RecheckVerdict::GoesOn(why) => panic!("{} resumed: {why}: {next:?}", park.code),
            }
        }
        panic!("{} keeps reading forever", park.code);
    }

    /// Answers a read with what `before` knew, as of now.
    fn read_as_before(&mut self, read: &Read, before: &RunState) {
        let (now, state) = (self.now, &mut self.run.state);
        match read {
            Read::FindMachine => {
                let found = before.found.clone();
                state.found = found.map(|found| MachineSearch { asked_at: now, ..found });
            }
            Read::Machine => {
                self.observation.iter_mut().for_each(|seen| seen.read_at = now);
                let known = before.power.clone();
                state.power = known.map(|known| PowerReading { asked_at: now, ..known });
            }
            Read::Subnets => {
                let known = before.subnets.clone();
                state.subnets = known.map(|known| RegionSubnets { asked_at: now, ..known });
            }
            Read::MacOwners { .. } => state.mac_owners.clone_from(&before.mac_owners),
            Read::RegionScripts => {
                let known = before.region_scripts.clone();
                state.region_scripts = known.map(|known| RegionScripts { asked_at: now, ..known });
            }
            Read::Tag { name } => {
                let known = before.tag_of_name(name).cloned();
                known.into_iter().for_each(|tag| {
                    state.keep_tag(RegionTag { asked_at: now, ..tag });
                });
            }
            Read::ScriptResults => {
                let known = before.script_results.clone();
                state.script_results = known.map(|known| ScriptResults { asked_at: now, ..known });
            }
            Read::DeployEvents => {
                let known = before.deploy_events.clone();
                state.deploy_events = known.map(|known| DeployEvents { asked_at: now, ..known });
            }
            Read::HardwareSyncConfig | Read::PredeployChecks | Read::HostAddresses => {
                state.checks.values_mut().for_each(|check| check.at = now);
            }
        }
    }

    /// Whatever parks in any test goes on with what its row says would cure it: the run looks at
    /// the world again, or acts, before it parks once more.
    fn check_cures(&self, decision: &Decision) {
        let Decision::Park { park, .. } = decision else { return };
        let Some(code) = ParkCode::from_code(&park.code) else {
            panic!("park code {} has no row in the table", park.code)
        };
        for cure in code.row().cures {
            let mut after = self.clone();
            after.run.state.parked_at = Some(self.now);
            after.run.state.parked_code = Some(park.code.clone());
            after.now = self.now.plus_seconds(2.0);
            let word_at = self.now.plus_seconds(1.0);
            match cure {
                Cure::Resume if !STANDS_IN_THE_SNAPSHOT.contains(&code) => {
                    after.run.state.resume(word_at);
                }
                Cure::Retry => after.run.state.retry(word_at),
                _ => continue,
            }
            let next = crate::decide(&after.snapshot());
            assert!(!matches!(next, Decision::Park { .. }), "{code} after {cure:?}: {next:?}");
        }
    }

    /// The step that the decision leads to, and the second of the boundary.
    pub(crate) fn next(&self) -> (Step, f64) {
        self.next_of(&self.decide())
    }

    /// The step that `decision` leads to, and the second of the boundary.
    pub(crate) fn next_of(&self, decision: &Decision) -> (Step, f64) {
        let step = decision.next_step(&self.run);
        match (step, decision) {
            (
                Some(step),
                Decision::Next { at: when, .. } | Decision::AdvanceTo { at: when, .. },
            ) => (step, when.seconds_since(at(0.0))),
            (_, other) => panic!("expected the next step, got {other:?}"),
        }
    }
}

/// What a decision is given and does not ask for: an operator changes it, and the snapshot of the
/// next decision has it.
const STANDS_IN_THE_SNAPSHOT: [ParkCode; 4] = [
    ParkCode::CommissioningBundleMissing,
    ParkCode::RoceAssignmentsMissing,
    ParkCode::HostChecksUnknown,
    ParkCode::CompletionGateFailed,
];

/// An effect of this kind.
pub(crate) fn effect_of(kind: EffectKind) -> Effect {
    let text = String::new;
    match kind {
        EffectKind::CreateMachine => Effect::CreateMachine,
        EffectKind::Release => Effect::Release { erase: true },
        EffectKind::RegisterScript => {
            Effect::RegisterScript { name: text(), digest: text(), replace: false }
        }
        EffectKind::Commission => Effect::Commission { scripts: ScriptSelection::default() },
        EffectKind::OverrideFailedTesting => Effect::OverrideFailedTesting,
        EffectKind::SetBootDisk => Effect::SetBootDisk { block_device_id: 1 },
        EffectKind::SetStorageLayout => Effect::SetStorageLayout { layout: text(), root_device: 1 },
        EffectKind::FormatBlockDevice => {
            Effect::FormatBlockDevice { block_device_id: 1, fstype: text() }
        }
        EffectKind::MountBlockDevice => {
            Effect::MountBlockDevice { block_device_id: 1, mount_point: text() }
        }
        EffectKind::UnlinkSubnet => Effect::UnlinkSubnet { interface_id: 1, link_id: 1 },
        EffectKind::LinkSubnet => {
            Effect::LinkSubnet { interface_id: 1, subnet_cidr: text(), ip_address: text() }
        }
        EffectKind::WriteTag => {
            Effect::WriteTag { name: text(), kernel_opts: text(), replaces: None }
        }
        EffectKind::TagMachine => Effect::TagMachine { name: text() },
        EffectKind::UntagMachine => Effect::UntagMachine { name: text() },
        EffectKind::Deploy => Effect::Deploy { distro_series: text(), enable_hw_sync: false },
        EffectKind::PowerOff => Effect::PowerOff,
        EffectKind::PowerOn => Effect::PowerOn,
        EffectKind::Abort => Effect::Abort,
        EffectKind::MarkBroken => Effect::MarkBroken,
        EffectKind::MarkFixed => Effect::MarkFixed,
    }
}

pub(crate) fn parked(decision: &Decision) -> &str {
    match decision {
        Decision::Park { park, .. } => &park.code,
        other => panic!("expected a park, got {other:?}"),
    }
}

pub(crate) fn waiting(decision: &Decision) -> &str {
    match decision {
        Decision::Wait { wait, .. } => &wait.code,
        other => panic!("expected a wait, got {other:?}"),
    }
}

pub(crate) fn unknown() -> Option<Outcome> {
    Some(Outcome::Unknown { code: "gateway_timeout".to_owned(), text: "504".to_owned() })
}
