//! What it takes to bring each effect about: the setups on which runs are disturbed.
//!
//! A new effect that no setup reaches makes the matrix fail and name it. What it then takes is a
//! row here, or a line in a row.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuaas_client::failure::Failure;
use gpuaas_core::record::ReportKind;
use gpuaas_engine::Clock as _;
use gpuaas_simulation::breakpoint::Breakpoint;
use gpuaas_simulation::plan::SimulationPlan;
use gpuaas_simulation::simulation::Simulation;
use gpuaas_simulation::tick::Tick;
use gpuaas_store::OperatorCommand;
use gpuaas_types::spec::{ProfileSpec, RoceAssignmentSpec, TakeOver};
use gpuaas_types::{NodeId, RandomIds, RoceAssignmentId, RunId, RunKind, RunStatus, Timestamp};
use maas_sim::{HostView, Region, ZERO};

use super::region_setup::{
    ADDRESS, KERNEL_ARGUMENTS, change_tag, deployed, erase_always, failing_test, hanging_erasing,
    hanging_release, hung_power, hung_power_of_somebody, linked_by_somebody, make_over,
    no_data_source_once, release_and_switch_on, stuck,
};

/// Virtual seconds after which a run that still moves counts as stuck.
const LIMIT_SECONDS: f64 = 2.0 * 86_400.0;
/// Virtual seconds between two looks at the event feed. Most of a life's calls are these.
const POLL_SECONDS: f64 = 15.0;
/// The same where nothing happens for hours; less than the right to watch lasts, which two control
/// planes would otherwise take from each other.
const RARE_POLL_SECONDS: f64 = 25.0;
/// Virtual seconds after which MAAS gives a machine up that is not heard of.
const NODE_TIMEOUT_MINUTES: u32 = 5;
/// Virtual seconds that a worker that stood still gets for what it has in hand.
const REST_SECONDS: f64 = 120.0;
/// Virtual seconds from the beginning of a run to what an operator tells it: later than any
/// disturbance before that has been dealt with.
const COMMAND_SECONDS: f64 = 200.0;
/// Name of the site of every simulation.
const SITE: &str = "simulated";

/// What an operator says, given when.
type CommandAt = fn(Timestamp) -> OperatorCommand;

/// How a run comes to be, and what happens around it.
pub(crate) struct RunSetup {
    /// What the matrix calls it.
    pub(crate) name: &'static str,
    /// Kind of the disturbed run.
    pub(crate) kind: RunKind,
    /// Runs of the node before it, each undisturbed and to its end.
    pub(crate) before: &'static [RunKind],
    /// What is so in the region from the beginning.
    pub(crate) prepare_region: fn(&mut Region, &str),
    /// What somebody does to the machine between the runs before and the disturbed one.
    pub(crate) between_runs: fn(&mut Region, &str, Timestamp),
    /// What an operator tells the disturbed run, [`COMMAND_SECONDS`] after its beginning.
    pub(crate) command: Option<CommandAt>,
    /// What the profile says besides.
    pub(crate) policy: fn(&mut ProfileSpec),
    /// The host's fabric address is changed between the runs before and the disturbed one.
    pub(crate) readdressed: bool,
    /// Virtual seconds between two looks at the event feed.
    pub(crate) poll_seconds: f64,
}

const PLAIN: RunSetup = RunSetup {
    name: "plain",
    kind: RunKind::Onboard,
    before: &[],
    prepare_region: |_, _| {},
    between_runs: |_, _, _| {},
    command: None,
    policy: |_| {},
    readdressed: false,
    poll_seconds: POLL_SECONDS,
};

const ONBOARDED: &[RunKind] = &[RunKind::Onboard];

/// Every setup.
pub(crate) const SETUPS: &[RunSetup] = &[
    RunSetup { name: "a racked machine", policy: kernel_arguments, ..PLAIN },
    RunSetup { name: "deployed by somebody", prepare_region: deployed, ..PLAIN },
    RunSetup {
        name: "linked by somebody",
        prepare_region: linked_by_somebody,
        policy: |profile| profile.commissioning_bundle_ref.clear(),
        ..PLAIN
    },
    RunSetup { name: "no data source", prepare_region: no_data_source_once, ..PLAIN },
    RunSetup {
        name: "cancelled",
        prepare_region: stuck,
        command: Some(cancel),
        policy: kernel_arguments,
        ..PLAIN
    },
    RunSetup {
        name: "a test fails",
        prepare_region: failing_test,
        command: Some(answer_for_test),
        ..PLAIN
    },
    RunSetup { name: "somebody's power hangs", prepare_region: hung_power_of_somebody, ..PLAIN },
    RunSetup {
        name: "its erasing hangs",
        prepare_region: |region, name| {
            deployed(region, name);
            erase_always(region);
            hanging_erasing(region, name);
        },
        poll_seconds: RARE_POLL_SECONDS,
        ..PLAIN
    },
    RunSetup {
        name: "cancelled, and the release hangs",
        prepare_region: |region, name| {
            stuck(region, name);
            hanging_release(region, name);
        },
        command: Some(cancel),
        ..PLAIN
    },
    RunSetup {
        name: "in service",
        kind: RunKind::Decommission,
        before: ONBOARDED,
        policy: kernel_arguments,
        ..PLAIN
    },
    RunSetup {
        name: "released and on",
        kind: RunKind::Decommission,
        before: ONBOARDED,
        between_runs: release_and_switch_on,
        ..PLAIN
    },
    RunSetup {
        name: "the power hangs",
        kind: RunKind::Decommission,
        before: ONBOARDED,
        between_runs: |region, name, _| hung_power(region, name),
        policy: erase_come_what_may,
        ..PLAIN
    },
    RunSetup {
        name: "the release hangs",
        kind: RunKind::Decommission,
        before: ONBOARDED,
        between_runs: |region, name, _| hanging_release(region, name),
        policy: without_erasing,
        ..PLAIN
    },
    RunSetup {
        name: "an erasing hangs",
        kind: RunKind::Decommission,
        before: ONBOARDED,
        between_runs: |region, name, _| hanging_erasing(region, name),
        policy: erase_come_what_may,
        poll_seconds: RARE_POLL_SECONDS,
        ..PLAIN
    },
    RunSetup { name: "in service", kind: RunKind::Reimage, before: ONBOARDED, ..PLAIN },
    RunSetup {
        name: "readdressed",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        readdressed: true,
        ..PLAIN
    },
    RunSetup {
        name: "made over by somebody",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        between_runs: |region, name, now| {
            make_over(region, name, now);
            change_tag(region, now);
        },
        policy: kernel_arguments,
        ..PLAIN
    },
    RunSetup {
        name: "a test fails",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        between_runs: |region, name, now| {
            make_over(region, name, now);
            failing_test(region, name);
        },
        command: Some(answer_for_test),
        ..PLAIN
    },
    RunSetup {
        name: "no data source",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        between_runs: |region, name, _| no_data_source_once(region, name),
        ..PLAIN
    },
    RunSetup {
        name: "cancelled",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        between_runs: |region, name, _| stuck(region, name),
        command: Some(cancel),
        policy: kernel_arguments,
        ..PLAIN
    },
    RunSetup {
        name: "the power hangs",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        between_runs: |region, name, _| hung_power(region, name),
        policy: erase_come_what_may,
        ..PLAIN
    },
    RunSetup {
        name: "an erasing hangs",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        between_runs: |region, name, _| hanging_erasing(region, name),
        policy: erase_come_what_may,
        poll_seconds: RARE_POLL_SECONDS,
        ..PLAIN
    },
    RunSetup {
        name: "the release hangs",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        between_runs: |region, name, _| hanging_release(region, name),
        policy: without_erasing,
        ..PLAIN
    },
    RunSetup { name: "in service", kind: RunKind::SoftReset, before: ONBOARDED, ..PLAIN },
    RunSetup { name: "in service", kind: RunKind::StorageCleanup, before: ONBOARDED, ..PLAIN },
    RunSetup { name: "in service", kind: RunKind::Detach, before: ONBOARDED, ..PLAIN },
    RunSetup {
        name: "detached",
        kind: RunKind::Remove,
        before: &[RunKind::Onboard, RunKind::Detach],
        ..PLAIN
    },
];

fn erase_come_what_may(profile: &mut ProfileSpec) {
    profile.release_erase = true;
}

/// A release that may be ended by marking the machine fixed.
fn without_erasing(profile: &mut ProfileSpec) {
    profile.release_erase = false;
}

/// The machine is to have a tag that carries arguments of its kernel.
fn kernel_arguments(profile: &mut ProfileSpec) {
    profile.kernel_arguments = KERNEL_ARGUMENTS.to_owned();
}

fn cancel(_: Timestamp) -> OperatorCommand {
    OperatorCommand::Cancel { leave_machine: false }
}

fn answer_for_test(now: Timestamp) -> OperatorCommand {
    let until = now.plus_seconds(86_400.0);
    OperatorCommand::SkipCheck { check: "script_nvme_health".to_owned(), until }
}

/// Everything on: what a profile can have an engine do, it does.
fn profile() -> ProfileSpec {
    ProfileSpec {
        enable_phase2_roce: true,
        commissioning_bundle_ref: "commissioning-base@1.0.0".to_owned(),
        storage_layout_profile: "flat-data".to_owned(),
        ..ProfileSpec::default()
    }
}

fn fabric_address(hostname: &str, ip_address: &str) -> RoceAssignmentSpec {
    RoceAssignmentSpec {
        site: SITE.to_owned(),
        hostname: hostname.to_owned(),
        interface: ADDRESS.0.to_owned(),
        subnet_cidr: ADDRESS.1.to_owned(),
        ip_address: ip_address.to_owned(),
    }
}

/// The word of an operator for a machine that somebody has deployed.
fn word_for(region: &mut Region, host: &HostView) -> Vec<ReportKind> {
    let Some(id) = host.system_id.as_ref().filter(|_| host.status == Some("Deployed")) else {
        return Vec::new();
    };
    let shown = region.machine_json(id).expect("a machine");
    vec![ReportKind::TakeOverApproved(TakeOver {
        system_id: id.clone(),
        owner: shown["owner"].as_str().map(str::to_owned),
        actor: "ann".to_owned(),
        reason: "it is ours now".to_owned(),
    })]
}

/// A setup with its run begun.
pub(crate) struct StartedRun {
    pub(crate) simulation: Simulation,
    /// The first control plane.
    pub(crate) first: u32,
    /// What it tells of its run.
    pub(crate) breakpoint: Arc<Breakpoint>,
    /// What the one that takes over tells of it.
    pub(crate) second: Arc<Breakpoint>,
    pub(crate) host: String,
    pub(crate) node_id: NodeId,
    pub(crate) run_id: RunId,
    /// Lines in the machine's log in the region when the run began.
    pub(crate) logged: usize,
    /// Newest event of MAAS' feed that had been heard then.
    event_cursor: i64,
    /// Last line of the node's history then.
    pub(crate) history_before: i64,
    /// Calls that belong to no machine, as of then.
    pub(crate) asked: BTreeMap<&'static str, (u64, u64)>,
    /// Virtual seconds between two looks at the event feed.
    pub(crate) poll_seconds: f64,
    command: Option<(Timestamp, CommandAt)>,
    limit: Timestamp,
}

/// What a drive came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DriveOutcome {
    /// The breakpoint was hit.
    BreakpointHit,
    /// What was waited for is so.
    Reached,
    /// Nothing moves any more.
    Idle,
}

impl RunSetup {
    /// Sets the setup and begins the run, with a breakpoint at its moment `break_at`.
    pub(crate) async fn set(&self, break_at: Option<usize>) -> Result<StartedRun, Failure> {
        let mut profile = profile();
        (self.policy)(&mut profile);
        let plan = SimulationPlan {
            poll_seconds: self.poll_seconds,
            profile,
            ..SimulationPlan::calm(1, 1, &ZERO)
        };
        let mut simulation = Simulation::new(plan).await?;
        let name = simulation.region.with(|region| region.hosts()[0].name.clone());
        let (host, word) = simulation.region.with(|region| {
            region.set_setting("node_timeout", NODE_TIMEOUT_MINUTES.into());
            (self.prepare_region)(region, &name);
            let host = region.hosts()[0].clone();
            let word = word_for(region, &host);
            (host, word)
        });
        let now = simulation.clock.now();
        let (id, spec) = (RoceAssignmentId::new(&RandomIds, now), fabric_address(&name, ADDRESS.2));
        simulation
            .store
            .add_roce_assignment(
                now,
                id,
                simulation.site_id,
                spec,
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await
            .expect("an address");
        let (breakpoint, second) =
            (Breakpoint::new(&simulation.failpoint), Breakpoint::new(&simulation.failpoint));
        let first = simulation.start_beside(0.0, Some(Arc::clone(&breakpoint)));
        let limit = simulation.clock.now().plus_seconds(LIMIT_SECONDS);
        let begun = simulation.onboard_saying(&host, word).await?;
        let (run_id, node_id) = begun.expect("onboarding begins");
        let mut started = StartedRun {
            simulation,
            first,
            breakpoint,
            second,
            host: host.name,
            node_id,
            run_id,
            logged: 0,
            event_cursor: 0,
            history_before: 0,
            asked: BTreeMap::new(),
            poll_seconds: self.poll_seconds,
            command: None,
            limit,
        };
        let onboards = self.before.first() == Some(&RunKind::Onboard);
        assert_eq!(onboards, self.kind != RunKind::Onboard, "{}: what made the node?", self.name);
        started.breakpoint.watch_run(started.run_id, None);
        if onboards {
            started.run_earlier_runs(self).await?;
        }
        let now = started.simulation.clock.now();
        started.command = self.command.map(|order| (now.plus_seconds(COMMAND_SECONDS), order));
        started.breakpoint.watch_run(started.run_id, break_at);
        started.second.watch_run(started.run_id, None);
        Ok(started)
    }
}

impl StartedRun {
    /// Calls so far that change something of the region and of no machine: how many were taken,
    /// and how many refused.
    pub(crate) fn calls_of_region(&self) -> BTreeMap<&'static str, (u64, u64)> {
        let changes = ["scripts.create", "script.update"];
        self.simulation.region.with(|region| {
            let rows = region.stats().endpoints.iter();
            rows.filter(|(label, _)| changes.contains(label))
                .map(|(label, row)| (*label, (row.calls - row.errors, row.errors)))
                .collect()
        })
    }

    /// What MAAS' feed says of the machine since the run began, or had not been heard then: when,
    /// and as a history tells it.
    pub(crate) fn feed(&self) -> Vec<(Timestamp, String)> {
        let lines = self.simulation.region.with(|region| region.event_feed(&self.host));
        let news = lines.into_iter().filter(|line| line.id > self.event_cursor);
        news.map(|line| {
            let text =
                if line.text.is_empty() { String::new() } else { format!(": {}", line.text) };
            (Timestamp::from_micros(line.at_us), format!("MAAS says: {}{text}", line.kind))
        })
        .collect()
    }

    /// Lives the runs before the last one, and begins that.
    async fn run_earlier_runs(&mut self, setup: &RunSetup) -> Result<(), Failure> {
        let last = setup.kind;
        for kind in setup.before[1..].iter().chain([&last]) {
            assert_eq!(self.until_end().await?, DriveOutcome::Reached);
            let run = self.simulation.store.run(self.run_id).await.expect("a run");
            assert_eq!(run.status, RunStatus::Succeeded, "{} {:?}", run.kind, run.park);
            if *kind == last {
                let now = self.simulation.clock.now();
                let host = self.host.clone();
                self.simulation.region.with(|region| (setup.between_runs)(region, &host, now));
                if setup.readdressed {
                    let (store, spec) = (&self.simulation.store, fabric_address(&host, ADDRESS.3));
                    let changed = store.change_roce_assignment(
                        now,
                        self.simulation.site_id,
                        ADDRESS.0,
                        spec,
                        gpuaas_store::NewAuditEntry::in_test(),
                    );
                    changed.await.expect("another address");
                }
                let stats =
                    self.simulation.region.with(|region| region.stats().machines[&host].clone());
                self.logged = stats.log.len();
                self.asked = self.calls_of_region();
                let (store, site_id) = (&self.simulation.store, self.simulation.site_id);
                self.event_cursor = store.event_cursor(site_id).await.expect("a site").unwrap_or(0);
                let told = store.timeline_of_node(self.node_id, 0, 10_000).await;
                self.history_before = told.expect("a history").last().map_or(0, |row| row.id);
            }
            let begun = self.simulation.begin_run(self.node_id, *kind).await?;
            self.run_id = begun.expect("the table of kinds allows it");
            self.breakpoint.watch_run(self.run_id, None);
        }
        if !last.row().needs_maas {
            self.simulation.serve_tasks(self.node_id, self.run_id);
        }
        Ok(())
    }

    /// Starts a control plane beside the one that stands still, or, where that one is dead, in
    /// its place.
    pub(crate) async fn take_over(&mut self, from_dead: bool) {
        if from_dead {
            let now = self.simulation.clock.now();
            self.simulation.store.end_leases_of_dead_owner(now).await.expect("the leases ended");
        }
        self.simulation.start_beside(0.0, Some(Arc::clone(&self.second)));
    }

    /// Lets the worker that stands still do what it has in hand.
    pub(crate) async fn resume_paused(&mut self) -> Result<(), Failure> {
        self.breakpoint.resume();
        self.simulation.resume(self.first);
        let until = self.simulation.clock.now().plus_seconds(REST_SECONDS);
        self.drive(|started| started.simulation.clock.now() >= until).await?;
        Ok(())
    }

    /// Lets the simulation go on until the run is over: by what is stored, looked at when a worker has
    /// left a moment behind.
    pub(crate) async fn until_end(&mut self) -> Result<DriveOutcome, Failure> {
        loop {
            let run = self.simulation.store.run(self.run_id).await.expect("a run");
            if !matches!(run.status, RunStatus::Running | RunStatus::Waiting)
                && self.command.is_none()
            {
                return Ok(DriveOutcome::Reached);
            }
            let passed = self.breakpoint.passed_count() + self.second.passed_count();
            let open = self.command.is_some();
            let news = |s: &Self| {
                s.breakpoint.passed_count() + s.second.passed_count() > passed
                    || open && s.command.is_none()
            };
            match self.drive(news).await? {
                DriveOutcome::Reached => {}
                other => return Ok(other),
            }
        }
    }

    /// Lets the simulation go on until `reached`, or the breakpoint is hit, or nothing moves any more.
    pub(crate) async fn drive(
        &mut self,
        reached: impl Fn(&Self) -> bool,
    ) -> Result<DriveOutcome, Failure> {
        while !reached(self) {
            let tick = self.simulation.clock.now().plus_seconds(self.poll_seconds);
            let until = self.command.map_or(tick, |(at, _)| at.min(tick));
            let turn = self.simulation.tick(until).await?;
            if matches!(turn, Tick::Triggered(..)) {
                return Ok(DriveOutcome::BreakpointHit);
            }
            let now = self.simulation.clock.now();
            match self.command {
                Some((at, order)) if now >= at => {
                    self.command = None;
                    let told =
                        self.simulation.apply_operator_command(self.run_id, order(now)).await?;
                    told.expect("the run is open");
                }
                Some((at, _)) if turn == Tick::Idle => self.simulation.clock.advance_to(at),
                None if turn == Tick::Idle => return Ok(DriveOutcome::Idle),
                _ => {}
            }
            assert!(now < self.limit, "the run still moves after {LIMIT_SECONDS} s");
        }
        Ok(DriveOutcome::Reached)
    }
}
