//! `gpuaas bench chaos`: fleets in worlds where everything goes wrong.
//!
//! A seed draws the faults, the people, the crashes and the wrong clocks of one fleet's life. What
//! must hold whatever happens is in [`crate::invariants`] and is looked at after every one of these
//! events, after every few turns, and at the end. A life ends as intended, or parked with a reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_lab::arguments::MachineClass;
use gpuaas_lab::bench::usage;
use gpuaas_lab::scenario::fabric_of;
use gpuaas_types::Timestamp;
use maas_sim::{Fault, HostView};
use serde::Serialize;

use crate::arguments::BenchChaosArgs;
use crate::failpoint::{Counts, End};
use crate::invariants::{Checker, Lives};
use crate::simulation::World;
use crate::tick::Turn;
use crate::trouble::{Draw, Trouble};

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
    /// Fleets.
    pub seeds: u64,
    /// Machines of each.
    pub nodes: usize,
    /// Runs that were begun.
    pub lives: usize,
    /// Runs that ended as intended.
    pub intended: usize,
    /// Runs that ended parked, with a reason and a next action.
    pub parked: usize,
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
pub struct Life {
    /// What happened, one line each.
    pub story: Vec<String>,
    /// How its runs ended.
    pub lives: Lives,
    /// Invariants broken, one line each.
    pub violations: Vec<String>,
}

/// Runs the benchmark.
///
/// # Errors
/// `invariant_broken`, naming the seeds; what keeps a world from being made.
pub async fn run(args: BenchChaosArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let began = RealClock.now();
    let (first, last) = match args.seed {
        Some(seed) => (seed, seed),
        None => (args.seeds.first, args.seeds.last),
    };
    let next = Arc::new(AtomicU64::new(first));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = (0..workers).map(|_| {
        let (next, nodes) = (Arc::clone(&next), args.nodes);
        gpuaas_lab::bench::isolated::alone(async move || {
            let mut lived = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::SeqCst);
                if seed > last {
                    return Ok(lived);
                }
                lived.push((seed, live(seed, nodes).await?));
            }
        })
    });
    let mut lived = Vec::new();
    for of_worker in futures::future::join_all(workers).await {
        lived.extend(of_worker?);
    }
    lived.sort_by_key(|(seed, _)| *seed);
    let mut report = sum(&lived, args.nodes);
    report.wall_seconds = RealClock.now().seconds_since(began);
    report.peak_rss_bytes = usage::peak_rss_bytes(std::process::id())?;
    for (seed, life) in &lived {
        if args.seed.is_some() && !args.json {
            terminal.data(&life.story.join("\n"))?;
        }
        for violation in &life.violations {
            terminal.say(&format!("seed {seed}: {violation}"));
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
    let detail = format!("seeds {:?}; replay one with --seed", report.failing_seeds);
    Err(Failure::local("invariant_broken", "What must always hold did not", detail))
}

fn sum(lived: &[(u64, Life)], nodes: usize) -> ChaosReport {
    let mut report = ChaosReport { nodes, ..ChaosReport::default() };
    for (seed, life) in lived {
        report.seeds += 1;
        report.lives += life.lives.begun;
        report.intended += life.lives.intended;
        report.parked += life.lives.parked;
        report.violations += life.violations.len();
        if !life.violations.is_empty() {
            report.failing_seeds.push(*seed);
        }
    }
    report
}

/// Lives one fleet's life.
///
/// # Errors
/// What keeps its world from being made, and the store's.
pub async fn live(seed: u64, nodes: usize) -> Result<Life, Failure> {
    let mut draw = Draw::of(seed);
    let mut world = World::new(draw.plan(seed, nodes)).await?;
    let hosts = world.region.with(|region| region.hosts());
    let names: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
    let begin = world.clock.now();
    let faults = draw.faults(&names);
    let troubles = draw.troubles(begin, &names);
    let mut life = Chaos {
        life: Life::default(),
        begin,
        draw,
        troubles,
        checker: Checker::default(),
        hosts,
        next_sweep_burns: None,
    };
    life.prepare(&mut world, faults).await?;
    life.go(&mut world).await?;
    let (lives, broken, ends) = life.checker.at_the_end(&world).await?;
    life.life.lives = lives;
    for line in ends {
        life.tell(&world, &line);
    }
    life.note(&world, broken);
    Ok(life.life)
}

pub(crate) struct Chaos {
    life: Life,
    begin: Timestamp,
    pub(crate) draw: Draw,
    /// What is still to come, the earliest first.
    troubles: Vec<(Timestamp, Trouble)>,
    checker: Checker,
    pub(crate) hosts: Vec<HostView>,
    next_sweep_burns: Option<(Counts, u32)>,
}

impl Chaos {
    pub(crate) fn tell(&mut self, world: &World, text: &str) {
        let seconds = world.clock.now().seconds_since(self.begin);
        self.life.story.push(format!("{seconds:>12.3}  {text}"));
    }

    pub(crate) fn note(&mut self, world: &World, broken: Vec<String>) {
        for text in broken {
            if !self.life.violations.contains(&text) {
                self.tell(world, &format!("BROKEN: {text}"));
                self.life.violations.push(text);
            }
        }
    }

    async fn check(&mut self, world: &World) -> Result<(), Failure> {
        let broken = self.checker.everything(world).await?;
        self.note(world, broken);
        Ok(())
    }

    async fn prepare(&mut self, world: &mut World, faults: Vec<Fault>) -> Result<(), Failure> {
        let profile = world.profile().clone();
        self.tell(world, &format!("drawn: {profile:?}"));
        for fault in &faults {
            let whose = fault.machine.as_deref().unwrap_or("every call");
            self.tell(world, &format!("drawn: {:?} on {whose}", fault.kind));
        }
        world.region.with(|region| {
            for fault in faults {
                region.inject(fault);
            }
        });
        if profile.enable_phase2_roce {
            for (index, host) in self.hosts.iter().enumerate() {
                world.assign(&host.name, fabric_of(MachineClass::H200, index)).await?;
            }
        }
        self.start(world).await?;
        world.name_all();
        Ok(())
    }

    async fn go(&mut self, world: &mut World) -> Result<(), Failure> {
        let limit = self.begin.plus_seconds(LIMIT_SECONDS);
        let (mut turns, mut moved_at) = (0, self.begin);
        loop {
            let until = self.troubles.first().map_or(limit, |(at, _)| (*at).min(limit));
            let turn = world.turn(until).await?;
            let broken = self.checker.after_turn(world).await?;
            self.note(world, broken);
            match turn {
                Turn::Burnt(replica, end) => self.burnt(world, replica, end).await?,
                Turn::Still if self.troubles.is_empty() => break,
                Turn::Still => world.clock.advance_to(until),
                Turn::Swept(replica) => self.swept(world, replica),
                Turn::Ran | Turn::Waited => {}
            }
            if world.has_work() || !self.troubles.is_empty() {
                moved_at = world.clock.now();
            }
            if world.clock.now().seconds_since(moved_at) > REST_SECONDS {
                break;
            }
            if world.clock.now() >= limit {
                let text = "the fleet still moves after ten days".to_owned();
                self.note(world, vec![text]);
                break;
            }
            while self.troubles.first().is_some_and(|(at, _)| *at <= world.clock.now()) {
                let (_, trouble) = self.troubles.remove(0);
                self.meet(world, trouble).await?;
                self.check(world).await?;
            }
            turns += 1;
            if turns % LOOK_EVERY == 0 {
                self.check(world).await?;
            }
        }
        self.check(world).await
    }

    async fn meet(&mut self, world: &mut World, trouble: Trouble) -> Result<(), Failure> {
        match trouble {
            Trouble::Human(action) => {
                let now = world.clock.now();
                let done =
                    world.region.with(|region| region.apply_human_action(now.as_micros(), &action));
                self.checker.person(action.machine(), now);
                let came = done.map_or_else(|error| error.to_string(), |()| "done".to_owned());
                self.tell(world, &format!("a person: {action:?}: {came}"));
            }
            Trouble::Operator(name) if world.is_up() => self.operate(world, &name).await?,
            Trouble::Operator(_) => {}
            Trouble::Crash => {
                if let Some(replica) = self.some(world) {
                    self.tell(world, &format!("control plane {replica} dies"));
                    self.crash(world, replica).await?;
                }
            }
            Trouble::Fuse(counts, left, end) => {
                if let Some(replica) = self.some(world) {
                    world.fuse.light(replica, counts, left, end);
                }
            }
            Trouble::SweepFuse(counts, left) => self.next_sweep_burns = Some((counts, left)),
            Trouble::Restart => {
                if !world.is_up() {
                    let replica = self.start(world).await?;
                    if self.draw.luck(0.2) {
                        let left =
                            1 + u32::from(self.draw.luck(0.5)) + u32::from(self.draw.luck(0.5));
                        world.fuse.light(replica, Counts::Writes, left, End::Dies);
                    }
                }
            }
            Trouble::Second => {
                self.start(world).await?;
            }
            Trouble::Stop => {
                if let Some(replica) = self.some(world) {
                    self.stop(world, replica).await?;
                }
            }
            Trouble::GoOn(replica) => {
                self.tell(world, &format!("control plane {replica} goes on"));
                world.go_on(replica);
            }
            Trouble::Step(seconds) => {
                self.tell(world, &format!("clocks are set by {seconds:+.1} s"));
                world.step_clocks(seconds);
            }
        }
        Ok(())
    }

    /// One of the control planes that run.
    fn some(&mut self, world: &World) -> Option<u32> {
        let running: Vec<u32> = world.running().collect();
        if running.is_empty() { None } else { Some(self.draw.one_of(&running)) }
    }

    async fn start(&mut self, world: &mut World) -> Result<u32, Failure> {
        let skew_seconds = self.draw.skew_seconds();
        let replica = world.start(skew_seconds).await?;
        let text = format!("control plane {replica} starts, {skew_seconds:+.1} s ahead of MAAS");
        self.tell(world, &text);
        Ok(replica)
    }

    fn later(&mut self, world: &World, seconds: f64, trouble: Trouble) {
        let at = world.clock.now().plus_seconds(seconds);
        let place = self.troubles.partition_point(|(other, _)| *other <= at);
        self.troubles.insert(place, (at, trouble));
    }

    async fn burnt(&mut self, world: &mut World, replica: u32, end: End) -> Result<(), Failure> {
        match end {
            End::Dies => {
                self.tell(world, &format!("control plane {replica} dies with something in hand"));
                self.crash(world, replica).await
            }
            End::Stops => self.stop(world, replica).await,
        }
    }

    async fn crash(&mut self, world: &mut World, replica: u32) -> Result<(), Failure> {
        world.crash(replica);
        self.check(world).await?;
        let seconds = self.draw.away_seconds();
        self.later(world, seconds, Trouble::Restart);
        Ok(())
    }

    /// Stops one for longer than its leases last, and lets another take over.
    async fn stop(&mut self, world: &mut World, replica: u32) -> Result<(), Failure> {
        self.tell(world, &format!("control plane {replica} stops with what it has in hand"));
        world.stop(replica);
        self.check(world).await?;
        let seconds = self.draw.stopped_seconds();
        self.later(world, seconds, Trouble::GoOn(replica));
        if !world.is_up() {
            self.start(world).await?;
        }
        Ok(())
    }

    fn swept(&mut self, world: &World, replica: u32) {
        if let Some((counts, left)) = self.next_sweep_burns.take() {
            self.tell(world, "a control plane is about to die in its sweep");
            world.fuse.light(replica, counts, left, End::Dies);
        }
    }
}

impl ChaosReport {
    fn table(&self) -> String {
        format!(
            "seeds       {}\nnodes       {}\nlives       {}\nintended    {}\nparked      {}\n\
             violations  {}\nwall time   {:.1} s\n",
            self.seeds,
            self.nodes,
            self.lives,
            self.intended,
            self.parked,
            self.violations,
            self.wall_seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machines of a fleet here; the whole figure is `gpuaas bench chaos`.
    const NODES: usize = 3;

    /// Fifty fleets in five parts, so that they run side by side.
    async fn whatever_goes_wrong(seeds: std::ops::RangeInclusive<u64>) {
        let mut lived = Vec::new();
        for seed in seeds {
            lived.push((seed, live(seed, NODES).await.unwrap()));
        }
        let report = sum(&lived, NODES);
        let broken: Vec<_> =
            lived.iter().flat_map(|(s, l)| l.violations.iter().map(move |v| (s, v))).collect();
        assert!(broken.is_empty(), "{broken:#?}");
        assert_eq!(report.lives, report.intended + report.parked);
        assert!(report.intended > 0 && report.parked > 0, "{report:?}");
    }

    #[tokio::test]
    async fn seeds_1_to_10_end_well() {
        whatever_goes_wrong(1..=10).await;
    }

    #[tokio::test]
    async fn seeds_11_to_20_end_well() {
        whatever_goes_wrong(11..=20).await;
    }

    #[tokio::test]
    async fn seeds_21_to_30_end_well() {
        whatever_goes_wrong(21..=30).await;
    }

    #[tokio::test]
    async fn seeds_31_to_40_end_well() {
        whatever_goes_wrong(31..=40).await;
    }

    #[tokio::test]
    async fn seeds_41_to_50_end_well() {
        whatever_goes_wrong(41..=50).await;
    }

    #[tokio::test]
    async fn a_seed_tells_the_same_story_again() {
        let (first, second) = (live(5, 4).await.unwrap(), live(5, 4).await.unwrap());
        assert_eq!(first, second);
    }
}
