//! What it takes to bring each effect about: the stages on which runs are disturbed.
//!
//! A new effect that no stage reaches makes the matrix fail and name it. What it then takes is a
//! row here, or a line in a row.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuaas_client::failure::Failure;
use gpuaas_engine::Clock as _;
use gpuaas_simulation::breakpoint::Trap;
use gpuaas_simulation::plan::Plan;
use gpuaas_simulation::simulation::World;
use gpuaas_simulation::tick::Turn;
use gpuaas_store::OperatorCommand;
use gpuaas_types::spec::{ProfileSpec, RoceAssignmentSpec};
use gpuaas_types::{NodeId, RandomIds, RoceAssignmentId, RunId, RunKind, RunStatus, Timestamp};
use maas_sim::{Fault, FaultKind, HumanAction, MachineSpec, Region, Status, ZERO};

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
const TOLD_SECONDS: f64 = 200.0;
/// Name of the site of every world.
const SITE: &str = "world";

/// What an operator says, given when.
type Told = fn(Timestamp) -> OperatorCommand;

/// How a run comes to be, and what happens around it.
pub(crate) struct Stage {
    /// What the matrix calls it.
    pub(crate) name: &'static str,
    /// Kind of the disturbed run.
    pub(crate) kind: RunKind,
    /// Runs of the node before it, each undisturbed and to its end.
    pub(crate) before: &'static [RunKind],
    /// What is so in the region from the beginning.
    pub(crate) given: fn(&mut Region, &str),
    /// What somebody does to the machine between the runs before and the disturbed one.
    pub(crate) then: fn(&mut Region, &str, Timestamp),
    /// What an operator tells the disturbed run, [`TOLD_SECONDS`] after its beginning.
    pub(crate) told: Option<Told>,
    /// What the profile says besides.
    pub(crate) policy: fn(&mut ProfileSpec),
    /// Virtual seconds between two looks at the event feed.
    pub(crate) poll_seconds: f64,
}

const PLAIN: Stage = Stage {
    name: "plain",
    kind: RunKind::Onboard,
    before: &[],
    given: |_, _| {},
    then: |_, _, _| {},
    told: None,
    policy: |_| {},
    poll_seconds: POLL_SECONDS,
};

const ONBOARDED: &[RunKind] = &[RunKind::Onboard];

/// Every stage.
pub(crate) const STAGES: &[Stage] = &[
    Stage { name: "a racked machine", ..PLAIN },
    Stage { name: "deployed by somebody", given: deployed, ..PLAIN },
    Stage { name: "no data source", given: no_data_source_once, ..PLAIN },
    Stage { name: "cancelled", given: stuck, told: Some(cancel), ..PLAIN },
    Stage { name: "a test fails", given: failing_test, told: Some(answer_for_test), ..PLAIN },
    Stage { name: "somebody's power hangs", given: hung_power_of_somebody, ..PLAIN },
    Stage {
        name: "its erasing hangs",
        given: |region, name| {
            deployed(region, name);
            erase_always(region);
            hanging_erasing(region, name);
        },
        poll_seconds: RARE_POLL_SECONDS,
        ..PLAIN
    },
    Stage {
        name: "cancelled, and the release hangs",
        given: |region, name| {
            stuck(region, name);
            hanging_release(region, name);
        },
        told: Some(cancel),
        ..PLAIN
    },
    Stage { name: "in service", kind: RunKind::Decommission, before: ONBOARDED, ..PLAIN },
    Stage {
        name: "released and on",
        kind: RunKind::Decommission,
        before: ONBOARDED,
        then: release_and_switch_on,
        ..PLAIN
    },
    Stage {
        name: "the power hangs",
        kind: RunKind::Decommission,
        before: ONBOARDED,
        then: |region, name, _| hung_power(region, name),
        policy: erase_come_what_may,
        ..PLAIN
    },
    Stage {
        name: "the release hangs",
        kind: RunKind::Decommission,
        before: ONBOARDED,
        then: |region, name, _| hanging_release(region, name),
        ..PLAIN
    },
    Stage {
        name: "an erasing hangs",
        kind: RunKind::Decommission,
        before: ONBOARDED,
        then: |region, name, _| hanging_erasing(region, name),
        policy: erase_come_what_may,
        poll_seconds: RARE_POLL_SECONDS,
        ..PLAIN
    },
    Stage { name: "in service", kind: RunKind::Reimage, before: ONBOARDED, ..PLAIN },
    Stage {
        name: "made over by somebody",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        then: make_over,
        ..PLAIN
    },
    Stage {
        name: "a test fails",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        then: |region, name, now| {
            make_over(region, name, now);
            failing_test(region, name);
        },
        told: Some(answer_for_test),
        ..PLAIN
    },
    Stage {
        name: "no data source",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        then: |region, name, _| no_data_source_once(region, name),
        ..PLAIN
    },
    Stage {
        name: "cancelled",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        then: |region, name, _| stuck(region, name),
        told: Some(cancel),
        ..PLAIN
    },
    Stage {
        name: "the power hangs",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        then: |region, name, _| hung_power(region, name),
        policy: erase_come_what_may,
        ..PLAIN
    },
    Stage {
        name: "an erasing hangs",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        then: |region, name, _| hanging_erasing(region, name),
        policy: erase_come_what_may,
        poll_seconds: RARE_POLL_SECONDS,
        ..PLAIN
    },
    Stage {
        name: "the release hangs",
        kind: RunKind::Reimage,
        before: ONBOARDED,
        then: |region, name, _| hanging_release(region, name),
        ..PLAIN
    },
    Stage { name: "in service", kind: RunKind::SoftReset, before: ONBOARDED, ..PLAIN },
    Stage { name: "in service", kind: RunKind::StorageCleanup, before: ONBOARDED, ..PLAIN },
    Stage { name: "in service", kind: RunKind::Detach, before: ONBOARDED, ..PLAIN },
    Stage {
        name: "detached",
        kind: RunKind::Remove,
        before: &[RunKind::Onboard, RunKind::Detach],
        ..PLAIN
    },
];

/// MAAS knows the machine and says Deployed.
fn deployed(region: &mut Region, name: &str) {
    region.add_machine(MachineSpec::new(name, Status::Deployed));
}

fn no_data_source_once(region: &mut Region, name: &str) {
    region.inject(Fault::new(FaultKind::DatasourceFailure).on(name).times(1));
}

fn stuck(region: &mut Region, name: &str) {
    region.inject(Fault::new(FaultKind::StuckDeploying).on(name));
}

fn erase_come_what_may(profile: &mut ProfileSpec) {
    profile.release_erase = true;
}

/// No release gets the machine switched off until somebody has switched it on.
fn hung_power(region: &mut Region, name: &str) {
    region.inject(Fault::new(FaultKind::HungPower).on(name));
}

/// The machine is not heard of after its next boot into an erasing.
fn hanging_erasing(region: &mut Region, name: &str) {
    region.inject(Fault::new(FaultKind::StuckErasing).on(name).times(1));
}

/// The region erases whatever is released.
fn erase_always(region: &mut Region) {
    region.set_setting("enable_disk_erasing_on_release", true.into());
}

/// The power-off of two releases is never seen, so the escalation goes on to its repair.
fn hanging_release(region: &mut Region, name: &str) {
    region.inject(Fault::new(FaultKind::StuckReleasing).on(name).times(2));
}

/// MAAS says Deployed, and lets only the owner mark a machine broken, who is somebody else.
fn hung_power_of_somebody(region: &mut Region, name: &str) {
    let owner = Some("ann".to_owned());
    region.add_machine(MachineSpec { owner, ..MachineSpec::new(name, Status::Deployed) });
    erase_always(region);
    hung_power(region, name);
}

fn release_and_switch_on(region: &mut Region, name: &str, now: Timestamp) {
    let machine = name.to_owned();
    region
        .apply_human_action(now.as_micros(), &HumanAction::Release { machine })
        .expect("released");
    region.advance(now.as_micros());
    region.press_power(name).expect("switched on");
}

/// Somebody released the machine, commissioned it without our scripts, gave one of them another
/// text, and laid the machine's disks out.
fn make_over(region: &mut Region, name: &str, now: Timestamp) {
    let machine = || name.to_owned();
    let disk = "nvme0n1".to_owned();
    for action in [
        HumanAction::Release { machine: machine() },
        HumanAction::Commission { machine: machine() },
        HumanAction::SetBootDisk { machine: machine(), disk },
        HumanAction::SetStorageLayout { machine: machine(), layout: "lvm".to_owned() },
    ] {
        region.apply_human_action(now.as_micros(), &action).expect("done");
        region.advance(now.as_micros());
    }
    let scripts = region.added_scripts();
    let ours = scripts.keys().find(|script| script.contains(TEST)).expect("a script of ours");
    region.put_script(ours, "#!/bin/sh\nexit 0\n");
}

fn cancel(_: Timestamp) -> OperatorCommand {
    OperatorCommand::Cancel { leave_machine: false }
}

/// A test of the commissioning bundle that every commissioning of the machine fails.
const TEST: &str = "nvme-health";

fn failing_test(region: &mut Region, name: &str) {
    region.inject(Fault::new(FaultKind::ScriptFailed).on(name).with_message(TEST));
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

/// Fixed addresses for the port that boots, whose automatic one is in the way, and for another.
const ADDRESSES: [(&str, &str, &str); 2] =
    [("eno8303", "10.10.0.0/16", "10.10.7.1"), ("ens108np0", "10.101.0.0/16", "10.101.7.1")];

/// A stage with its run begun.
pub(crate) struct Scene {
    pub(crate) world: World,
    /// The first control plane.
    pub(crate) first: u32,
    /// What it tells of its run.
    pub(crate) trap: Arc<Trap>,
    /// What the one that takes over tells of it.
    pub(crate) second: Arc<Trap>,
    pub(crate) host: String,
    pub(crate) node_id: NodeId,
    pub(crate) run_id: RunId,
    /// Lines in the machine's log in the region when the run began.
    pub(crate) logged: usize,
    /// Newest event of MAAS' feed that had been heard then.
    heard: i64,
    /// Last line of the node's history then.
    pub(crate) told_before: i64,
    /// Calls that belong to no machine, as of then.
    pub(crate) asked: BTreeMap<&'static str, (u64, u64)>,
    /// Virtual seconds between two looks at the event feed.
    pub(crate) poll_seconds: f64,
    told: Option<(Timestamp, Told)>,
    limit: Timestamp,
}

/// What a drive came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// The trap sprang.
    Sprung,
    /// What was waited for is so.
    There,
    /// Nothing moves any more.
    Still,
}

impl Stage {
    /// Sets the stage and begins the run, with a trap at its moment `springs_at`.
    pub(crate) async fn set(&self, springs_at: Option<usize>) -> Result<Scene, Failure> {
        let mut profile = profile();
        (self.policy)(&mut profile);
        let plan = Plan { poll_seconds: self.poll_seconds, profile, ..Plan::calm(1, 1, &ZERO) };
        let mut world = World::new(plan).await?;
        let host = world.region.with(|region| region.hosts()[0].clone());
        world.region.with(|region| {
            region.set_setting("node_timeout", NODE_TIMEOUT_MINUTES.into());
            (self.given)(region, &host.name);
        });
        for (interface, subnet_cidr, ip_address) in ADDRESSES {
            let spec = RoceAssignmentSpec {
                site: SITE.to_owned(),
                hostname: host.name.clone(),
                interface: interface.to_owned(),
                subnet_cidr: subnet_cidr.to_owned(),
                ip_address: ip_address.to_owned(),
            };
            let now = world.clock.now();
            let id = RoceAssignmentId::new(&RandomIds, now);
            world.store.add_roce(now, id, world.site_id, spec).await.expect("an address");
        }
        let (trap, second) = (Trap::new(&world.fuse), Trap::new(&world.fuse));
        let first = world.start_beside(0.0, Some(Arc::clone(&trap)));
        let limit = world.clock.now().plus_seconds(LIMIT_SECONDS);
        let run_id = world.name(&host).await?.expect("onboarding begins");
        let node_id = world.store.run(run_id).await.expect("a run").node_id;
        let mut scene = Scene {
            world,
            first,
            trap,
            second,
            host: host.name,
            node_id,
            run_id,
            logged: 0,
            heard: 0,
            told_before: 0,
            asked: BTreeMap::new(),
            poll_seconds: self.poll_seconds,
            told: None,
            limit,
        };
        let onboards = self.before.first() == Some(&RunKind::Onboard);
        assert_eq!(onboards, self.kind != RunKind::Onboard, "{}: what made the node?", self.name);
        scene.trap.set(scene.run_id, None);
        if onboards {
            scene.live_through(&self.before[1..], self.kind, self.then).await?;
        }
        let now = scene.world.clock.now();
        scene.told = self.told.map(|order| (now.plus_seconds(TOLD_SECONDS), order));
        scene.trap.set(scene.run_id, springs_at);
        scene.second.set(scene.run_id, None);
        Ok(scene)
    }
}

impl Scene {
    /// Calls so far that change something of the region and of no machine: how many were taken,
    /// and how many refused.
    pub(crate) fn of_region(&self) -> BTreeMap<&'static str, (u64, u64)> {
        let changes = ["scripts.create", "script.update"];
        self.world.region.with(|region| {
            let rows = region.stats().endpoints.iter();
            rows.filter(|(label, _)| changes.contains(label))
                .map(|(label, row)| (*label, (row.calls - row.errors, row.errors)))
                .collect()
        })
    }

    /// What MAAS' feed says of the machine since the run began, or had not been heard then: when,
    /// and as a history tells it.
    pub(crate) fn feed(&self) -> Vec<(Timestamp, String)> {
        let lines = self.world.region.with(|region| region.event_feed(&self.host));
        let news = lines.into_iter().filter(|line| line.id > self.heard);
        news.map(|line| {
            let text =
                if line.text.is_empty() { String::new() } else { format!(": {}", line.text) };
            (Timestamp::from_micros(line.at_us), format!("MAAS says: {}{text}", line.kind))
        })
        .collect()
    }

    /// Lives the runs before the last one, and begins that.
    async fn live_through(
        &mut self,
        before: &[RunKind],
        last: RunKind,
        then: fn(&mut Region, &str, Timestamp),
    ) -> Result<(), Failure> {
        for kind in before.iter().chain([&last]) {
            assert_eq!(self.until_end().await?, Came::There);
            let run = self.world.store.run(self.run_id).await.expect("a run");
            assert_eq!(run.status, RunStatus::Succeeded, "{} {:?}", run.kind, run.park);
            if *kind == last {
                let now = self.world.clock.now();
                let host = self.host.clone();
                self.world.region.with(|region| then(region, &host, now));
                let stats = self.world.region.with(|region| region.stats().machines[&host].clone());
                self.logged = stats.log.len();
                self.asked = self.of_region();
                let (store, site_id) = (&self.world.store, self.world.site_id);
                self.heard = store.event_cursor(site_id).await.expect("a site").unwrap_or(0);
                let told = store.timeline_of_node(self.node_id, 0, 10_000).await;
                self.told_before = told.expect("a history").last().map_or(0, |row| row.id);
            }
            let begun = self.world.begin(self.node_id, *kind).await?;
            self.run_id = begun.expect("the table of kinds allows it");
            self.trap.set(self.run_id, None);
        }
        if !last.row().needs_maas {
            self.world.serve_tasks(self.node_id, self.run_id);
        }
        Ok(())
    }

    /// Starts a control plane beside the one that stands still, or, where that one is dead, in
    /// its place.
    pub(crate) async fn take_over(&mut self, from_dead: bool) {
        if from_dead {
            let now = self.world.clock.now();
            self.world.store.end_leases_of_dead_owner(now).await.expect("the leases ended");
        }
        self.world.start_beside(0.0, Some(Arc::clone(&self.second)));
    }

    /// Lets the worker that stands still do what it has in hand.
    pub(crate) async fn go_on(&mut self) -> Result<(), Failure> {
        self.trap.open();
        self.world.go_on(self.first);
        let until = self.world.clock.now().plus_seconds(REST_SECONDS);
        self.drive(|scene| scene.world.clock.now() >= until).await?;
        Ok(())
    }

    /// Lets the world go on until the run is over: by what is stored, looked at when a worker has
    /// left a moment behind.
    pub(crate) async fn until_end(&mut self) -> Result<Came, Failure> {
        loop {
            let run = self.world.store.run(self.run_id).await.expect("a run");
            if !matches!(run.status, RunStatus::Running | RunStatus::Waiting) && self.told.is_none()
            {
                return Ok(Came::There);
            }
            let passed = self.trap.count() + self.second.count();
            let open = self.told.is_some();
            let news =
                |s: &Self| s.trap.count() + s.second.count() > passed || open && s.told.is_none();
            match self.drive(news).await? {
                Came::There => {}
                other => return Ok(other),
            }
        }
    }

    /// Lets the world go on until `there`, or the trap springs, or nothing moves any more.
    pub(crate) async fn drive(&mut self, there: impl Fn(&Self) -> bool) -> Result<Came, Failure> {
        while !there(self) {
            let tick = self.world.clock.now().plus_seconds(self.poll_seconds);
            let until = self.told.map_or(tick, |(at, _)| at.min(tick));
            let turn = self.world.turn(until).await?;
            if matches!(turn, Turn::Burnt(..)) {
                return Ok(Came::Sprung);
            }
            let now = self.world.clock.now();
            match self.told {
                Some((at, order)) if now >= at => {
                    self.told = None;
                    let told = self.world.tell(self.run_id, order(now)).await?;
                    told.expect("the run is open");
                }
                Some((at, _)) if turn == Turn::Still => self.world.clock.advance_to(at),
                None if turn == Turn::Still => return Ok(Came::Still),
                _ => {}
            }
            assert!(now < self.limit, "the run still moves after {LIMIT_SECONDS} s");
        }
        Ok(Came::There)
    }
}
