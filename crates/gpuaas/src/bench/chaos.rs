//! `gpuaas bench chaos`: fleets in worlds where everything goes wrong.
//!
//! A seed draws the faults, the people, the crashes and the wrong clocks of one fleet's life. What
//! must hold whatever happens is in [`super::invariants`] and is looked at after every one of these
//! events, after every few turns, and at the end. A life ends as intended, or parked with a reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_types::Timestamp;
use gpuaas_types::spec::ProfileSpec;
use maas_sim::{Chance, Fault, FaultKind, H200, HumanAction};
use serde::Serialize;

use super::invariants::{self, Lives};
use super::usage;
use crate::args::BenchChaosArgs;
use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::world::{Plan, Turn, World};

/// Virtual seconds after which a fleet that still moves counts as stuck.
const LIMIT_SECONDS: f64 = 10.0 * 86_400.0;
/// Virtual seconds in which people and crashes come.
const TROUBLE_SECONDS: f64 = 4.0 * 3600.0;
/// Turns between two looks at the invariants without an event.
const LOOK_EVERY: u64 = 256;
/// Wrong by at most so many seconds, either way: what a working NTP leaves, and much more.
const SKEW_SECONDS: f64 = 30.0;

/// Faults of hardware and of MAAS' own work: one machine each.
const OF_MACHINES: [FaultKind; 14] = [
    FaultKind::BmcError,
    FaultKind::CommissioningFailed,
    FaultKind::TestingFailed,
    FaultKind::DeployFailed,
    FaultKind::StuckDeploying,
    FaultKind::StuckCommissioning,
    FaultKind::DatasourceFailure,
    FaultKind::StuckReleasing,
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
        super::alone(async move || {
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
    terminal.data(&if args.json { super::report::json(&report)? } else { report.table() })?;
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

/// What comes at a moment that was drawn before the life began.
#[derive(Debug, Clone, PartialEq)]
enum Trouble {
    Human(HumanAction),
    /// The control plane dies now.
    Crash,
    /// It dies at the boundary of a call, so many from now.
    Fuse(u32),
    /// It starts again.
    Restart,
}

/// Lives one fleet's life.
///
/// # Errors
/// What keeps its world from being made, and the store's.
pub async fn live(seed: u64, nodes: usize) -> Result<Life, Failure> {
    let mut chance = Chance::of(seed, "chaos");
    let mut world = World::new(Plan {
        seed,
        nodes,
        class: &H200,
        apart_seconds: 120.0 * chance.unit(),
        poll_seconds: 1.0 + 29.0 * chance.unit(),
        lost_callbacks: if chance.unit() < 0.5 { 0.1 * chance.unit() } else { 0.0 },
        profile: ProfileSpec::default(),
    })
    .await?;
    let mut life = Chaos { life: Life::default(), begin: world.clock.now(), chance, people: 0 };
    let names: Vec<String> =
        world.region.with(|region| region.hosts()).into_iter().map(|host| host.name).collect();
    life.draw_faults(&world, &names);
    let mut troubles = life.draw_troubles(&names);
    let skew_seconds = life.skew();
    world.start(skew_seconds).await?;
    world.name_all();
    let limit = life.begin.plus_seconds(LIMIT_SECONDS);
    let mut turns = 0;
    loop {
        let until = troubles.first().map_or(limit, |(at, _)| (*at).min(limit));
        match world.turn(until).await? {
            Turn::Burnt => {
                life.tell(&world, "the control plane dies at the boundary of a call");
                life.crash(&mut world, &mut troubles).await?;
            }
            Turn::Still if troubles.is_empty() => break,
            Turn::Still => world.clock.advance_to(until),
            Turn::Ran | Turn::Waited => {}
        }
        if world.clock.now() >= limit {
            let text = "the fleet still moves after ten days".to_owned();
            life.life.violations.push(text);
            break;
        }
        while troubles.first().is_some_and(|(at, _)| *at <= world.clock.now()) {
            let (_, trouble) = troubles.remove(0);
            life.meet(&mut world, &mut troubles, trouble).await?;
            life.check(&world).await?;
        }
        turns += 1;
        if turns % LOOK_EVERY == 0 {
            life.check(&world).await?;
        }
    }
    life.check(&world).await?;
    let (lives, broken, ends) = invariants::at_the_end(&world, life.people).await?;
    life.life.lives = lives;
    for line in ends {
        life.tell(&world, &line);
    }
    life.note(&world, broken);
    Ok(life.life)
}

struct Chaos {
    life: Life,
    begin: Timestamp,
    chance: Chance,
    people: u32,
}

impl Chaos {
    fn tell(&mut self, world: &World, text: &str) {
        let seconds = world.clock.now().seconds_since(self.begin);
        self.life.story.push(format!("{seconds:>12.3}  {text}"));
    }

    fn note(&mut self, world: &World, broken: Vec<String>) {
        for text in broken {
            if !self.life.violations.contains(&text) {
                self.tell(world, &format!("BROKEN: {text}"));
                self.life.violations.push(text);
            }
        }
    }

    async fn check(&mut self, world: &World) -> Result<(), Failure> {
        let broken = invariants::always(world).await?;
        self.note(world, broken);
        Ok(())
    }

    fn skew(&mut self) -> f64 {
        SKEW_SECONDS * (2.0 * self.chance.unit() - 1.0)
    }

    fn draw_faults(&mut self, world: &World, names: &[String]) {
        let mut faults = Vec::new();
        for name in names {
            if self.chance.unit() < 0.5 {
                let kind = OF_MACHINES[self.chance.below(OF_MACHINES.len())];
                let times = 1 + u32::from(self.chance.unit() < 0.3);
                faults.push(Fault::new(kind).on(name).times(times));
            }
            if self.chance.unit() < 0.1 {
                let when = ["Ready", "Deploying", "Deployed"][self.chance.below(3)].to_owned();
                let fault = Fault::new(FaultKind::Vanished).on(name).times(1);
                faults.push(Fault { when: Some(when), ..fault });
            }
        }
        for kind in OF_CALLS {
            if self.chance.unit() < 0.5 {
                let probability = Some(0.15 * self.chance.unit());
                faults.push(Fault { probability, ..Fault::new(kind) });
            }
        }
        for fault in &faults {
            let whose = fault.machine.as_deref().unwrap_or("every call");
            self.tell(world, &format!("drawn: {:?} on {whose}", fault.kind));
        }
        world.region.with(|region| {
            for fault in faults {
                region.inject(fault);
            }
        });
    }

    fn draw_troubles(&mut self, names: &[String]) -> Vec<(Timestamp, Trouble)> {
        let mut troubles = Vec::new();
        for _ in 0..self.chance.below(6) {
            let at = self.begin.plus_seconds(TROUBLE_SECONDS * self.chance.unit());
            let machine = names[self.chance.below(names.len())].clone();
            let action = match self.chance.below(8) {
                0 => HumanAction::Release { machine },
                1 => HumanAction::Deploy { machine },
                2 => HumanAction::Commission { machine },
                3 => HumanAction::Abort { machine },
                4 => HumanAction::Rename { to: format!("{machine}-x"), machine },
                5 => HumanAction::Delete { machine },
                6 => HumanAction::Lock { machine },
                _ => HumanAction::PowerOff { machine },
            };
            troubles.push((at, Trouble::Human(action)));
        }
        for _ in 0..self.chance.below(6) {
            let at = self.begin.plus_seconds(TROUBLE_SECONDS * self.chance.unit());
            let trouble = if self.chance.unit() < 0.3 {
                Trouble::Crash
            } else {
                Trouble::Fuse(1 + u32::try_from(self.chance.below(40)).unwrap_or_default())
            };
            troubles.push((at, trouble));
        }
        troubles.sort_by_key(|(at, _)| *at);
        troubles
    }

    async fn meet(
        &mut self,
        world: &mut World,
        troubles: &mut Vec<(Timestamp, Trouble)>,
        trouble: Trouble,
    ) -> Result<(), Failure> {
        match trouble {
            Trouble::Human(action) => {
                let now = world.clock.now().as_micros();
                let done = world.region.with(|region| region.human(now, &action));
                self.people += u32::from(done.is_ok());
                let came = done.map_or_else(|error| error.to_string(), |()| "done".to_owned());
                self.tell(world, &format!("a person: {action:?}: {came}"));
            }
            Trouble::Crash if world.is_up() => {
                self.tell(world, "the control plane dies");
                self.crash(world, troubles).await?;
            }
            Trouble::Fuse(boundaries) if world.is_up() => world.fuse.light(boundaries),
            Trouble::Crash | Trouble::Fuse(_) => {}
            Trouble::Restart => {
                let skew_seconds = self.skew();
                world.start(skew_seconds).await?;
                let text = format!("the control plane starts, {skew_seconds:+.1} s ahead of MAAS");
                self.tell(world, &text);
            }
        }
        Ok(())
    }

    async fn crash(
        &mut self,
        world: &mut World,
        troubles: &mut Vec<(Timestamp, Trouble)>,
    ) -> Result<(), Failure> {
        world.crash();
        self.check(world).await?;
        let away_seconds = 0.5 + 300.0 * self.chance.unit().powi(3);
        let at = world.clock.now().plus_seconds(away_seconds);
        let place = troubles.partition_point(|(other, _)| *other <= at);
        troubles.insert(place, (at, Trouble::Restart));
        Ok(())
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

    /// Fleets of the test; the whole figure is `gpuaas bench chaos`.
    const SEEDS: u64 = 8;

    #[tokio::test]
    async fn whatever_goes_wrong_every_life_ends_and_nothing_is_broken() {
        let mut lived = Vec::new();
        for seed in 1..=SEEDS {
            lived.push((seed, live(seed, 6).await.unwrap()));
        }
        let report = sum(&lived, 6);
        let broken: Vec<_> =
            lived.iter().flat_map(|(s, l)| l.violations.iter().map(move |v| (s, v))).collect();
        assert!(broken.is_empty(), "{broken:#?}");
        assert_eq!(report.lives, report.intended + report.parked);
        assert!(report.intended > 0 && report.parked > 0, "{report:?}");
    }

    #[tokio::test]
    async fn a_seed_tells_the_same_story_again() {
        let (first, second) = (live(5, 4).await.unwrap(), live(5, 4).await.unwrap());
        assert_eq!(first, second);
    }
}
