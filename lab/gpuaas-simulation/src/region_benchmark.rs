//! `gpuaas bench region`: a whole fleet on the virtual clock, everything in this process.
//!
//! Machines are named one after the other, as racks arrive: a region with its sixteen calls at
//! once and two power actions per machine cannot take all of them in one second. Hardware takes
//! what it takes, by the virtual clock.
//!
//! The engine and the store are those of a control plane. The store is SQLite in memory
//! ([`gpuaas_store::Store::in_memory`]), so what a commit costs here is its work and not a disk's
//! time.

use std::fmt::Write as _;

use gpuaas_client::failure::{Exit, Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, POLL_SECONDS, RealClock};
use gpuaas_lab::bench::usage;
use gpuaas_store::NodeFilter;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{NodeState, Timestamp};
use maas_sim::H200;
use serde::Serialize;

use crate::arguments::BenchRegionArgs;
use crate::plan::SimulationPlan;
use crate::simulation::Simulation;
use crate::tick::Tick;

/// Simulated seconds after which the fleet counts as stuck, on top of its arrival.
const LIMIT_SECONDS: f64 = 7.0 * 86_400.0;

/// The result of `gpuaas bench region`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RegionReport {
    /// Nodes asked for.
    pub nodes: usize,
    /// Nodes that became active.
    pub active: usize,
    /// Seconds of the virtual clock from the first request to the last node's end.
    pub simulated_seconds: f64,
    /// Seconds of the wall clock.
    pub wall_seconds: f64,
    /// Processor seconds, user and system, of all threads of this process: on a machine that does
    /// other work, too, the wall clock says little.
    pub cpu_seconds: f64,
    /// Largest resident memory of this process, which holds region, control plane and nodes.
    pub peak_rss_bytes: u64,
    /// Requests that MAAS received, per node.
    pub maas_calls_per_node: f64,
}

/// Runs the benchmark.
///
/// # Errors
/// `nodes_not_active` when a node did not become active; what keeps a simulation from being made.
pub async fn run(args: BenchRegionArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let asked = args.clone();
    let report =
        gpuaas_lab::bench::isolated_thread::run_isolated(async move || measure(&asked).await)
            .await?;
    terminal.data(&if args.json {
        gpuaas_lab::bench::report::json(&report)?
    } else {
        report.table()
    })?;
    if report.active == report.nodes {
        return Ok(());
    }
    let detail = format!("{} of {} nodes are active", report.active, report.nodes);
    Err(Failure::new(Exit::Parked, CommandCode::NodesNotActive, detail))
}

async fn measure(args: &BenchRegionArgs) -> Result<RegionReport, Failure> {
    let began = RealClock.now();
    let cpu = usage::own_cpu_seconds()?;
    let calm = SimulationPlan::calm(args.seed, args.nodes, &H200);
    let plan = SimulationPlan { apart_seconds: args.apart, poll_seconds: POLL_SECONDS, ..calm };
    let mut simulation = Simulation::new(plan).await?;
    let begin = simulation.clock.now();
    #[expect(clippy::cast_precision_loss, reason = "a number of machines")]
    let nodes = args.nodes.max(1) as f64;
    let limit = begin.plus_seconds(args.apart * nodes + LIMIT_SECONDS);
    simulation.start(0.0).await?;
    simulation.onboard_all();
    while simulation.tick(limit).await? != Tick::Idle && simulation.clock.now() < limit {}
    let listed = simulation.store.list_nodes(NodeFilter::default()).await.map_err(store_failure)?;
    let ends = listed.iter().filter_map(|n| n.run.as_ref()?.ended_at);
    let last: Timestamp = ends.max().unwrap_or(begin);
    let calls = simulation.region.with(|region| region.stats().calls());
    #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
    let maas_calls_per_node = calls as f64 / nodes;
    Ok(RegionReport {
        nodes: args.nodes,
        active: listed.iter().filter(|n| n.node.state == NodeState::Active).count(),
        simulated_seconds: last.seconds_since(begin),
        wall_seconds: RealClock.now().seconds_since(began),
        cpu_seconds: usage::own_cpu_seconds()? - cpu,
        peak_rss_bytes: usage::peak_rss_bytes(std::process::id())?,
        maas_calls_per_node,
    })
}

impl RegionReport {
    #[expect(clippy::cast_precision_loss, reason = "memory of one process")]
    fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a String cannot fail.
            writeln!(text, "{name:<22}{value}").ok();
        };
        row("nodes active", format!("{} of {}", self.active, self.nodes));
        row("simulated time", format!("{:.0} s", self.simulated_seconds));
        row("wall time", format!("{:.1} s", self.wall_seconds));
        row("processor time", format!("{:.1} s", self.cpu_seconds));
        row("peak memory", format!("{:.1} MiB", self.peak_rss_bytes as f64 / 1_048_576.0));
        row("MAAS calls per node", format!("{:.2}", self.maas_calls_per_node));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maas_sim::{Fault, FaultKind, ZERO};

    #[tokio::test]
    async fn a_fleet_becomes_active_and_a_seed_repeats_itself() {
        let args = BenchRegionArgs { nodes: 6, apart: 20.0, seed: 3, json: true };
        let first = measure(&args).await.unwrap();
        assert_eq!((first.nodes, first.active), (6, 6));
        assert!(first.simulated_seconds > 1000.0, "{first:?}");
        let second = measure(&args).await.unwrap();
        let same = |r: &RegionReport| (r.simulated_seconds, r.maas_calls_per_node);
        assert_eq!(same(&first), same(&second));
    }

    /// Every machine does at once what it does: the feed has many pages to say, and each of them may
    /// be lost.
    #[tokio::test]
    async fn a_long_feed_is_read_from_a_region_that_loses_most_answers() {
        let calm = SimulationPlan::calm(5, 100, &ZERO);
        let mut simulation =
            Simulation::new(SimulationPlan { apart_seconds: 0.0, ..calm }).await.unwrap();
        simulation.start(0.0).await.unwrap();
        simulation.onboard_all();
        let begin = simulation.clock.now();
        let watched = begin.plus_seconds(1.0);
        while simulation.clock.now() < watched {
            assert_ne!(simulation.tick(watched).await.unwrap(), Tick::Idle);
        }
        let lost = Fault::new(FaultKind::Refused504).at("events.query");
        simulation.region.with(|region| region.inject(Fault { probability: Some(0.75), ..lost }));
        let limit = begin.plus_seconds(5.0 * 3600.0);
        while simulation.tick(limit).await.unwrap() != Tick::Idle && simulation.clock.now() < limit
        {
        }
        let nodes = simulation.store.list_nodes(NodeFilter::default()).await.unwrap();
        let active = nodes.iter().filter(|n| n.node.state == NodeState::Active).count();
        assert_eq!(active, 100);
        // 2,705 s when a look that lost one page began again with the first.
        let took = simulation.clock.now().seconds_since(begin);
        assert!(took < 1500.0, "{took} s");
    }
}
