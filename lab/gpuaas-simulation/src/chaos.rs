//! `gpuaas bench chaos`: simulations of fleets with faults of every kind.
//!
//! A seed draws the faults, operators, crashes and wrong clocks of one fleet. The
//! [`crate::invariants`] are checked after each of these events, after every few ticks, and at the
//! end. Each run ends as intended, or parked with a reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_lab::arguments::MachineClass;
use gpuaas_lab::bench::usage;
use gpuaas_lab::scenario::fabric_addresses;
use gpuaas_store::ScratchDatabase;
use gpuaas_types::Timestamp;
use gpuaas_types::codes::CommandCode;
use maas_sim::{Fault, HostView};
use serde::Serialize;

use crate::arguments::BenchChaosArgs;
use crate::disruption::{ChaosRng, Disruption};
use crate::failpoint::{CountedEvent, TriggerAction};
use crate::interference::Interference;
use crate::invariants::{InvariantChecker, RunOutcomes};
use crate::plan::{RETRY_SECONDS, SimulationPlan};
use crate::simulation::Simulation;
use crate::tenants::Tenants;
use crate::tick::Tick;

/// Virtual seconds after which a fleet that still moves counts as stuck.
const LIMIT_SECONDS: f64 = 10.0 * 86_400.0;
/// Virtual seconds without a moving run after which a fleet has come to rest: machines with
/// hardware sync never do.
const REST_SECONDS: f64 = 1800.0;
/// Turns between two looks at everything without an event.
const LOOK_EVERY: u64 = 1024;

/// The result of `gpuaas bench chaos`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ChaosReport {
    /// How many fleets were simulated, one per seed.
    pub seeds: u64,
    /// Machines of each.
    pub nodes: usize,
    /// What kept their state: `sqlite` or `postgresql`.
    pub database: String,
    /// Runs that were begun.
    pub lives: usize,
    /// Runs that ended as intended.
    pub intended: usize,
    /// Runs that ended parked, with a reason and a next action.
    pub parked: usize,
    /// Changes of machines that another user had, that were locked or had another name, or that
    /// carried somebody's system, where a look before the change would have shown that.
    pub machines_touched_not_ours: usize,
    /// Times that a person did something to a machine.
    pub interferences: usize,
    /// Invariants broken.
    pub violations: usize,
    /// Seeds in which one was.
    pub failing_seeds: Vec<u64>,
    /// Seconds of the wall clock.
    pub wall_seconds: f64,
    /// Largest resident memory of this process.
    pub peak_rss_bytes: u64,
}

/// One fleet's life.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FleetHistory {
    /// What happened, one line each.
    pub story: Vec<String>,
    /// How its runs ended.
    pub lives: RunOutcomes,
    /// Changes of machines that were not the control plane's to change.
    pub machines_touched_not_ours: usize,
    /// Times that a person did something to a machine.
    pub interferences: usize,
    /// Invariants broken, one line each.
    pub violations: Vec<String>,
    /// What kept its state: `sqlite` or `postgresql`.
    pub database: &'static str,
}

/// Runs the benchmark.
///
/// # Errors
/// `invariant_broken`, naming the seeds; what keeps a simulation from being made.
pub async fn run(args: BenchChaosArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let began = RealClock.now();
    let (first, last) = match args.seed {
        Some(seed) => (seed, seed),
        None => (args.seeds.first, args.seeds.last),
    };
    let next = Arc::new(AtomicU64::new(first));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = (0..workers).map(|_| {
        let (next, nodes, server) = (Arc::clone(&next), args.nodes, args.database.clone());
        gpuaas_lab::bench::isolated_thread::run_isolated(async move || {
            let mut lived = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::SeqCst);
                if seed > last {
                    return Ok(lived);
                }
                lived.push((seed, run_fleet(seed, nodes, server.as_deref()).await?));
            }
        })
    });
    let mut lived = Vec::new();
    for of_worker in futures::future::join_all(workers).await {
        lived.extend(of_worker?);
    }
    lived.sort_by_key(|(seed, _)| *seed);
    let mut report = summarize(&lived, args.nodes);
    report.wall_seconds = RealClock.now().seconds_since(began);
    report.peak_rss_bytes = usage::peak_rss_bytes(std::process::id())?;
    for (seed, life) in &lived {
        if args.seed.is_some() && !args.json {
            terminal.data(&life.story.join("\n"))?;
        }
        for violation in &life.violations {
            terminal.message(&format!("seed {seed}: {violation}"));
        }
    }
    terminal.data(&if args.json {
        gpuaas_lab::bench::report::json(&report)?
    } else {
        report.table()
    })?;
    if report.violations == 0 {
        return Ok(());
    }
    let detail = format!("failing seeds: {:?}; replay one with --seed", report.failing_seeds);
    Err(Failure::local(CommandCode::InvariantBroken, detail))
}

fn summarize(lived: &[(u64, FleetHistory)], nodes: usize) -> ChaosReport {
    let mut report = ChaosReport { nodes, ..ChaosReport::default() };
    for (seed, life) in lived {
        report.seeds += 1;
        report.database = life.database.to_owned();
        report.lives += life.lives.begun;
        report.intended += life.lives.intended;
        report.parked += life.lives.parked;
        report.machines_touched_not_ours += life.machines_touched_not_ours;
        report.interferences += life.interferences;
        report.violations += life.violations.len();
        if !life.violations.is_empty() {
            report.failing_seeds.push(*seed);
        }
    }
    report
}

/// Lives one fleet's life, with its state in memory or on the PostgreSQL server of `server`, where
/// it has a database of its own.
///
/// # Errors
/// What keeps its simulation from being made, and the store's.
pub async fn run_fleet(
    seed: u64,
    nodes: usize,
    server: Option<&str>,
) -> Result<FleetHistory, Failure> {
    let Some(server) = server else { return run_fleet_in(seed, nodes, None, true).await };
    // Its seed and the process make the name, and fleets of one seed may run side by side.
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let name = format!("gpuaas_chaos_{}_{seed}_{number}", std::process::id());
    let scratch = ScratchDatabase::create(server, &name).await.map_err(store_failure)?;
    let lived = run_fleet_in(seed, nodes, Some(scratch.url().to_owned()), true).await;
    scratch.drop_database().await.map_err(store_failure)?;
    lived
}

async fn run_fleet_in(
    seed: u64,
    nodes: usize,
    database: Option<String>,
    people_interfere: bool,
) -> Result<FleetHistory, Failure> {
    let mut rng = ChaosRng::from_seed(seed);
    let plan = SimulationPlan { database, ..rng.plan(seed, nodes) };
    let mut simulation = Simulation::new(plan).await?;
    let hosts = simulation.region.with(|region| region.hosts());
    let names: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
    let begin = simulation.clock.now();
    let faults = rng.faults(&names);
    let mut disruptions = rng.disruptions(begin, &names);
    let tenants = Tenants::of_seed(seed).map(|(tenants, visits, leaves)| {
        let visits = visits.into_iter().map(|seconds| (seconds, Disruption::Tenant));
        let leaves = leaves.into_iter().map(|seconds| (seconds, Disruption::TenantsLeave));
        disruptions.extend(
            visits.chain(leaves).map(|(seconds, what)| (begin.plus_seconds(seconds), what)),
        );
        disruptions.sort_by_key(|(at, _)| *at);
        tenants
    });
    let mut interference = people_interfere.then(|| Interference::of_seed(seed));
    if let Some(people) = &mut interference {
        let drawn = people.disruptions(nodes).into_iter();
        disruptions.extend(drawn.map(|(seconds, what)| (begin.plus_seconds(seconds), what)));
        disruptions.sort_by_key(|(at, _)| *at);
    }
    let mut life = ChaosRun {
        life: FleetHistory { database: simulation.store.engine(), ..FleetHistory::default() },
        begin,
        rng,
        disruptions,
        checker: InvariantChecker::default(),
        hosts,
        armed_for_next_sweep: None,
        tenants,
        interference,
    };
    life.prepare(&mut simulation, faults).await?;
    life.go(&mut simulation).await?;
    let (lives, broken, ends) = life.checker.check_end(&simulation).await?;
    life.life.lives = lives;
    life.life.machines_touched_not_ours = life.checker.machines_touched_not_ours();
    life.life.interferences = life.checker.human_actions();
    for line in ends {
        life.record_event(&simulation, &line);
    }
    life.record_violations(&simulation, broken);
    Ok(life.life)
}

pub(crate) struct ChaosRun {
    life: FleetHistory,
    begin: Timestamp,
    pub(crate) rng: ChaosRng,
    /// What is still to come, the earliest first.
    disruptions: Vec<(Timestamp, Disruption)>,
    pub(crate) checker: InvariantChecker,
    pub(crate) hosts: Vec<HostView>,
    armed_for_next_sweep: Option<(CountedEvent, u32)>,
    /// None: the fleet has none.
    pub(crate) tenants: Option<Tenants>,
    /// None: nobody interferes but as the seed's own draws say.
    pub(crate) interference: Option<Interference>,
}

impl ChaosRun {
    pub(crate) fn record_event(&mut self, simulation: &Simulation, text: &str) {
        let seconds = simulation.clock.now().seconds_since(self.begin);
        self.life.story.push(format!("{seconds:>12.3}  {text}"));
    }

    pub(crate) fn record_violations(&mut self, simulation: &Simulation, broken: Vec<String>) {
        for text in broken {
            if !self.life.violations.contains(&text) {
                self.record_event(simulation, &format!("BROKEN: {text}"));
                self.life.violations.push(text);
            }
        }
    }

    async fn check(&mut self, simulation: &Simulation) -> Result<(), Failure> {
        let mut broken = self.checker.check_all(simulation).await?;
        broken.extend(self.check_slices(simulation).await?);
        self.record_violations(simulation, broken);
        Ok(())
    }

    async fn prepare(
        &mut self,
        simulation: &mut Simulation,
        faults: Vec<Fault>,
    ) -> Result<(), Failure> {
        let profile = simulation.profile().clone();
        self.record_event(simulation, &format!("random profile: {profile:?}"));
        for fault in &faults {
            let whose = fault.machine.as_deref().unwrap_or("all calls");
            self.record_event(simulation, &format!("random fault: {:?} on {whose}", fault.kind));
        }
        simulation.region.with(|region| {
            for fault in faults {
                region.inject(fault);
            }
        });
        if profile.enable_phase2_roce {
            for (index, host) in self.hosts.iter().enumerate() {
                simulation
                    .assign_roce(&host.name, fabric_addresses(MachineClass::H200, index))
                    .await?;
            }
        }
        self.start(simulation).await?;
        simulation.onboard_all();
        Ok(())
    }

    async fn go(&mut self, simulation: &mut Simulation) -> Result<(), Failure> {
        let limit = self.begin.plus_seconds(LIMIT_SECONDS);
        let (mut turns, mut moved_at) = (0, self.begin);
        loop {
            let until = self.disruptions.first().map_or(limit, |(at, _)| (*at).min(limit));
            let turn = simulation.tick(until).await?;
            let broken = self.checker.after_tick(simulation).await?;
            self.record_violations(simulation, broken);
            match turn {
                Tick::Triggered(replica, end) => {
                    self.failpoint_triggered(simulation, replica, end).await?
                }
                Tick::Idle if self.disruptions.is_empty() => break,
                Tick::Idle => simulation.clock.advance_to(until),
                Tick::SweepStarted(replica) => self.sweep_started(simulation, replica),
                Tick::Ran | Tick::Waited => {}
            }
            let moves = simulation.has_due_run() || simulation.slices_move();
            if moves || !self.disruptions.is_empty() {
                moved_at = simulation.clock.now();
            }
            if simulation.clock.now().seconds_since(moved_at) > REST_SECONDS {
                break;
            }
            if simulation.clock.now() >= limit {
                let text = "the fleet has not settled after ten days".to_owned();
                self.record_violations(simulation, vec![text]);
                break;
            }
            while self.disruptions.first().is_some_and(|(at, _)| *at <= simulation.clock.now()) {
                let (_, disruption) = self.disruptions.remove(0);
                self.apply_disruption(simulation, disruption).await?;
                self.check(simulation).await?;
            }
            turns += 1;
            if turns % LOOK_EVERY == 0 {
                self.check(simulation).await?;
            }
        }
        self.check(simulation).await
    }

    async fn apply_disruption(
        &mut self,
        simulation: &mut Simulation,
        disruption: Disruption,
    ) -> Result<(), Failure> {
        match disruption {
            Disruption::Human(action) => {
                let now = simulation.clock.now();
                let done = simulation
                    .region
                    .with(|region| region.apply_human_action(now.as_micros(), &action));
                self.checker.record_human_action(action.machine(), now);
                let came = done.map_or_else(|error| error.to_string(), |()| "done".to_owned());
                self.record_event(simulation, &format!("a person: {action:?}: {came}"));
            }
            Disruption::Interference { meddling, host, tries } => {
                self.interfere(simulation, meddling, host, tries).await?
            }
            Disruption::Operator(name) if simulation.is_up() => {
                self.act_as_operator(simulation, &name).await?
            }
            Disruption::Operator(_) => {}
            // Who finds no control plane comes again.
            Disruption::Tenant | Disruption::TenantsLeave if !simulation.is_up() => {
                self.schedule(simulation, RETRY_SECONDS, disruption);
            }
            Disruption::Tenant => self.act_as_tenant(simulation).await?,
            Disruption::TenantsLeave => self.let_tenants_leave(simulation).await?,
            Disruption::Crash => {
                if let Some(replica) = self.random_running(simulation) {
                    self.record_event(simulation, &format!("control plane {replica} crashes"));
                    self.crash(simulation, replica).await?;
                }
            }
            Disruption::ArmFailpoint(counts, left, end) => {
                if let Some(replica) = self.random_running(simulation) {
                    simulation.failpoint.arm(replica, counts, left, end);
                }
            }
            Disruption::ArmSweepFailpoint(counts, left) => {
                self.armed_for_next_sweep = Some((counts, left))
            }
            Disruption::Restart => self.restart(simulation).await?,
            Disruption::StartSecond => {
                self.start(simulation).await?;
            }
            Disruption::Pause => {
                if let Some(replica) = self.random_running(simulation) {
                    self.pause(simulation, replica).await?;
                }
            }
            Disruption::Resume(replica) => {
                self.record_event(simulation, &format!("control plane {replica} resumes"));
                simulation.resume(replica);
            }
            Disruption::StepClocks(seconds) => {
                self.record_event(simulation, &format!("clocks step by {seconds:+.1} s"));
                simulation.step_clocks(seconds);
            }
        }
        Ok(())
    }

    /// Starts a control plane where none runs; now and then it dies at once again.
    async fn restart(&mut self, simulation: &mut Simulation) -> Result<(), Failure> {
        if simulation.is_up() {
            return Ok(());
        }
        let replica = self.start(simulation).await?;
        if self.rng.random_bool(0.2) {
            let left =
                1 + u32::from(self.rng.random_bool(0.5)) + u32::from(self.rng.random_bool(0.5));
            let (counts, end) = (CountedEvent::CommittedWrite, TriggerAction::Crash);
            simulation.failpoint.arm(replica, counts, left, end);
        }
        Ok(())
    }

    /// One of the control planes that run.
    fn random_running(&mut self, simulation: &Simulation) -> Option<u32> {
        let running: Vec<u32> = simulation.running().collect();
        if running.is_empty() { None } else { Some(self.rng.choose(&running)) }
    }

    async fn start(&mut self, simulation: &mut Simulation) -> Result<u32, Failure> {
        let skew_seconds = self.rng.skew_seconds();
        let replica = simulation.start(skew_seconds).await?;
        let text = format!(
            "control plane {replica} starts with its clock {skew_seconds:+.1} s ahead of MAAS"
        );
        self.record_event(simulation, &text);
        Ok(replica)
    }

    pub(crate) fn schedule(
        &mut self,
        simulation: &Simulation,
        seconds: f64,
        disruption: Disruption,
    ) {
        let at = simulation.clock.now().plus_seconds(seconds);
        let place = self.disruptions.partition_point(|(other, _)| *other <= at);
        self.disruptions.insert(place, (at, disruption));
    }

    async fn failpoint_triggered(
        &mut self,
        simulation: &mut Simulation,
        replica: u32,
        end: TriggerAction,
    ) -> Result<(), Failure> {
        match end {
            TriggerAction::Crash => {
                self.record_event(
                    simulation,
                    &format!("control plane {replica} crashes with work in progress"),
                );
                self.crash(simulation, replica).await
            }
            TriggerAction::Pause => self.pause(simulation, replica).await,
        }
    }

    async fn crash(&mut self, simulation: &mut Simulation, replica: u32) -> Result<(), Failure> {
        simulation.crash(replica);
        self.check(simulation).await?;
        let seconds = self.rng.away_seconds();
        self.schedule(simulation, seconds, Disruption::Restart);
        Ok(())
    }

    /// Stops one for longer than its leases last, and lets another take over.
    async fn pause(&mut self, simulation: &mut Simulation, replica: u32) -> Result<(), Failure> {
        self.record_event(
            simulation,
            &format!("control plane {replica} pauses with work in progress"),
        );
        simulation.pause(replica);
        self.check(simulation).await?;
        let seconds = self.rng.stopped_seconds();
        self.schedule(simulation, seconds, Disruption::Resume(replica));
        if !simulation.is_up() {
            self.start(simulation).await?;
        }
        Ok(())
    }

    fn sweep_started(&mut self, simulation: &Simulation, replica: u32) {
        if let Some((counts, left)) = self.armed_for_next_sweep.take() {
            self.record_event(simulation, "a control plane is about to crash during its sweep");
            simulation.failpoint.arm(replica, counts, left, TriggerAction::Crash);
        }
    }
}

impl ChaosReport {
    fn table(&self) -> String {
        let rows = [
            ("seeds", self.seeds.to_string()),
            ("nodes", self.nodes.to_string()),
            ("database", self.database.clone()),
            ("lives", self.lives.to_string()),
            ("intended", self.intended.to_string()),
            ("parked", self.parked.to_string()),
            ("interferences", self.interferences.to_string()),
            ("machines_touched_not_ours", self.machines_touched_not_ours.to_string()),
            ("violations", self.violations.to_string()),
            ("wall time", format!("{:.1} s", self.wall_seconds)),
        ];
        rows.iter().map(|(name, value)| format!("{name:<26}{value}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machines of a fleet here; the whole figure is `gpuaas bench chaos`.
    const NODES: usize = 3;

    /// Fifty fleets in five parts, so that they run side by side.
    async fn whatever_goes_wrong(seeds: std::ops::RangeInclusive<u64>, server: Option<&str>) {
        let mut lived = Vec::new();
        for seed in seeds {
            lived.push((seed, run_fleet(seed, NODES, server).await.unwrap()));
        }
        let report = summarize(&lived, NODES);
        let broken: Vec<_> =
            lived.iter().flat_map(|(s, l)| l.violations.iter().map(move |v| (s, v))).collect();
        assert!(broken.is_empty(), "{broken:#?}");
        assert_eq!(report.lives, report.intended + report.parked);
        assert_eq!(report.machines_touched_not_ours, 0);
        assert!(report.interferences > 10, "{report:?}");
        assert!(report.intended > 0 && report.parked > 0, "{report:?}");
    }

    #[tokio::test]
    async fn seeds_1_to_10_end_well() {
        whatever_goes_wrong(1..=10, None).await;
    }

    #[tokio::test]
    async fn seeds_11_to_20_end_well() {
        whatever_goes_wrong(11..=20, None).await;
    }

    #[tokio::test]
    async fn seeds_21_to_30_end_well() {
        whatever_goes_wrong(21..=30, None).await;
    }

    #[tokio::test]
    async fn seeds_31_to_40_end_well() {
        whatever_goes_wrong(31..=40, None).await;
    }

    #[tokio::test]
    async fn seeds_41_to_50_end_well() {
        whatever_goes_wrong(41..=50, None).await;
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "tests are configured by the environment")]
    async fn seeds_1_to_4_end_well_on_postgresql() {
        let Ok(server) = std::env::var("GPUAAS_TEST_POSTGRES") else {
            test_report::skip("postgres", "GPUAAS_TEST_POSTGRES names no server");
            return;
        };
        whatever_goes_wrong(1..=4, Some(&server)).await;
    }

    /// A run that an operator had resumed asked for its machine without an end: its control plane's
    /// clock was behind that of the one which had read it.
    #[tokio::test]
    async fn seed_138520_does_not_decide_without_an_end() {
        let life = run_fleet_in(138_520, 20, None, false).await.unwrap();
        assert_eq!(life.violations, Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_seed_tells_the_same_story_again() {
        let (first, second) =
            (run_fleet(5, 4, None).await.unwrap(), run_fleet(5, 4, None).await.unwrap());
        assert_eq!(first, second);
    }
}
