//! `gpuaas bench placement`: what a policy of placement costs, on a virtual clock.
//!
//! Nodes with boards of eight GPUs get requests at random times, of random sizes, for random
//! durations; a request that finds no slots is lost. Every policy gets the same requests of a seed.
//! What is placed is [`gpuaas_core::placement::choose_slots`], which claims use; there is no database here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_core::placement::{PlacementNode, PlacementPolicy, SlotSet, choose_slots};
use gpuaas_types::claim::NumaPreference;
use maas_sim::SimRng;
use serde::Serialize;

use crate::arguments::{BenchPlacementArgs, Seeds};

/// GPUs of a node.
const GPUS_PER_NODE: f64 = 8.0;
/// Sizes of requests, with how many of a hundred ask for them.
const SIZES: [(u32, u32); 4] = [(1, 50), (2, 20), (4, 15), (8, 15)];
/// Requests of a seed that are counted, and those before them that fill the nodes.
const REQUESTS: usize = 8_000;
const WARM_UP_REQUESTS: usize = 1_000;
/// Mean duration of a slice, in seconds of the virtual clock.
const MEAN_SECONDS: f64 = 8.0 * 3600.0;
const MICROS: f64 = 1e6;

/// What a policy made of the requests of all seeds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PolicyOutcome {
    /// Share of the GPU time that was asked for.
    pub gpu_time_served: f64,
    /// Share of the requests of a size that got nothing, by GPUs.
    pub refused_by_size: BTreeMap<u32, f64>,
    /// Requests that got slots.
    pub placed: u64,
    /// Those of them whose slots are no partition.
    pub illegal_sets: u64,
    /// Those of them whose slots are of more NUMA nodes than their number needs.
    pub numa_splits: u64,
}

/// The result of `gpuaas bench placement`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlacementReport {
    /// Nodes with eight GPUs each.
    pub nodes: usize,
    /// GPU time that is asked for, as a share of what there is.
    pub load: f64,
    /// Seeds, each with its own requests.
    pub seeds: u64,
    /// Requests of all seeds that are counted.
    pub requests: usize,
    /// Each policy by its name.
    #[serde(flatten)]
    pub policies: BTreeMap<&'static str, PolicyOutcome>,
}

/// Runs the benchmark.
///
/// # Errors
/// When stdout cannot be written.
pub fn run(args: &BenchPlacementArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let report = measure(args.nodes, args.load, args.seeds);
    terminal.data(&if args.json {
        gpuaas_lab::bench::report::json(&report)?
    } else {
        report.table()
    })
}

fn measure(nodes: usize, load: f64, seeds: Seeds) -> PlacementReport {
    let mut policies = BTreeMap::new();
    let count = seeds.last - seeds.first + 1;
    for policy in PlacementPolicy::ALL {
        let mut counts = Counts::default();
        for seed in seeds.first..=seeds.last {
            replay(&requests(nodes, load, seed), nodes, policy, &mut counts);
        }
        policies.insert(policy.as_str(), counts.outcome());
    }
    let requests = REQUESTS.saturating_mul(usize::try_from(count).unwrap_or(usize::MAX));
    PlacementReport { nodes, load, seeds: count, requests, policies }
}

/// A request for slots.
#[derive(Debug, Clone, Copy)]
struct Request {
    at_micros: u64,
    seconds: f64,
    gpus: u32,
}

/// The requests of a seed: exponential times between them, and exponential durations.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "microseconds of a few simulated weeks, and a number of nodes"
)]
fn requests(nodes: usize, load: f64, seed: u64) -> Vec<Request> {
    let mut rng = SimRng::for_name(seed, "placement requests");
    let weights: u32 = SIZES.iter().map(|(_, weight)| weight).sum();
    let mean_gpus: f64 = SIZES.iter().map(|(gpus, weight)| f64::from(gpus * weight)).sum::<f64>()
        / f64::from(weights);
    let apart_seconds = MEAN_SECONDS * mean_gpus / (load * GPUS_PER_NODE * nodes.max(1) as f64);
    let mut at = 0.0;
    let exponential = |mean: f64, rng: &mut SimRng| -mean * (1.0 - rng.uniform()).ln();
    (0..WARM_UP_REQUESTS + REQUESTS)
        .map(|_| {
            at += exponential(apart_seconds, &mut rng);
            let mut draw = u32::try_from(rng.below(weights as usize)).unwrap_or_default();
            let size = SIZES.iter().find(|(_, weight)| {
                let is_it = draw < *weight;
                draw = draw.saturating_sub(*weight);
                is_it
            });
            let seconds = exponential(MEAN_SECONDS, &mut rng);
            let gpus = size.map_or(1, |(gpus, _)| *gpus);
            Request { at_micros: (at * MICROS) as u64, seconds, gpus }
        })
        .collect()
}

/// Has every request placed by `policy`, one after the other.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "microseconds of a few simulated weeks"
)]
fn replay(requests: &[Request], nodes: usize, policy: PlacementPolicy, counts: &mut Counts) {
    let mut nodes: Vec<PlacementNode> = vec![hgx_node(); nodes];
    // When slots are free again.
    let mut ends: BinaryHeap<Reverse<(u64, usize, SlotSet)>> = BinaryHeap::new();
    for (number, request) in requests.iter().enumerate() {
        while let Some(Reverse((end, node, slots))) = ends.peek().copied()
            && end <= request.at_micros
        {
            nodes[node].free |= slots;
            ends.pop();
        }
        let placed = choose_slots(request.gpus, NumaPreference::Required, &nodes, policy).ok();
        if let Some(placed) = placed {
            nodes[placed.node].free &= !placed.slots;
            let end = request.at_micros + (request.seconds * MICROS) as u64;
            ends.push(Reverse((end, placed.node, placed.slots)));
        }
        if number >= WARM_UP_REQUESTS {
            counts.add(request, placed.map(|one| (&nodes[one.node], one.slots)));
        }
    }
}

/// A node with a board of eight GPUs: pairs of neighbours, halves that are its NUMA nodes.
fn hgx_node() -> PlacementNode {
    let mut partitions: Vec<SlotSet> = vec![0xff, 0x0f, 0xf0, 0x03, 0x0c, 0x30, 0xc0];
    partitions.extend((0..8).map(|slot| 1 << slot));
    PlacementNode { free: 0xff, partitions, numa: vec![0x0f, 0xf0], is_ready: true }
}

#[derive(Default)]
struct Counts {
    gpu_seconds_asked: f64,
    gpu_seconds_served: f64,
    asked: BTreeMap<u32, u32>,
    refused: BTreeMap<u32, u32>,
    placed: u64,
    illegal_sets: u64,
    numa_splits: u64,
}

impl Counts {
    fn add(&mut self, request: &Request, placed: Option<(&PlacementNode, SlotSet)>) {
        let gpu_seconds = f64::from(request.gpus) * request.seconds;
        self.gpu_seconds_asked += gpu_seconds;
        *self.asked.entry(request.gpus).or_default() += 1;
        let Some((node, slots)) = placed else {
            *self.refused.entry(request.gpus).or_default() += 1;
            return;
        };
        self.gpu_seconds_served += gpu_seconds;
        self.placed += 1;
        self.illegal_sets += u64::from(!node.is_partition(slots));
        self.numa_splits += u64::from(node.is_numa_split(slots));
    }

    fn outcome(&self) -> PolicyOutcome {
        let refused = |gpus: &u32| self.refused.get(gpus).copied().unwrap_or(0);
        let share = |(gpus, asked): (&u32, &u32)| {
            (*gpus, f64::from(refused(gpus)) / f64::from((*asked).max(1)))
        };
        PolicyOutcome {
            gpu_time_served: self.gpu_seconds_served / self.gpu_seconds_asked.max(1.0),
            refused_by_size: self.asked.iter().map(share).collect(),
            placed: self.placed,
            illegal_sets: self.illegal_sets,
            numa_splits: self.numa_splits,
        }
    }
}

impl PlacementReport {
    fn table(&self) -> String {
        let mut text = String::new();
        let (nodes, seeds) = (self.nodes, self.seeds);
        // Writing to a String cannot fail.
        writeln!(text, "{nodes} nodes with 8 GPUs, load {:.2}, {seeds} seeds\n", self.load).ok();
        writeln!(
            text,
            "{:<13}{:>11}  {:<36}{:>9}{:>9}",
            "policy", "GPU time", "refused", "illegal", "split"
        )
        .ok();
        for (name, outcome) in &self.policies {
            let refused: Vec<String> = outcome
                .refused_by_size
                .iter()
                .map(|(gpus, share)| format!("{gpus}: {:.1} %", share * 100.0))
                .collect();
            let served = format!("{:.2} %", outcome.gpu_time_served * 100.0);
            let refused = refused.join(", ");
            let (illegal, split) = (outcome.illegal_sets, outcome.numa_splits);
            writeln!(text, "{name:<13}{served:>11}  {refused:<36}{illegal:>9}{split:>9}").ok();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_fit_keeps_larger_blocks_whole() {
        let seeds = Seeds { first: 1, last: 1 };
        let report = measure(12, 0.8, seeds);
        assert_eq!(report, measure(12, 0.8, seeds));
        let outcome = |policy: PlacementPolicy| &report.policies[policy.as_str()];
        let best = outcome(PlacementPolicy::BestFit);
        assert_eq!((best.illegal_sets, best.numa_splits), (0, 0));
        let spread = outcome(PlacementPolicy::Spread);
        assert!(spread.refused_by_size[&8] > 2.0 * best.refused_by_size[&8], "{report:#?}");
        assert!(spread.gpu_time_served < best.gpu_time_served, "{report:#?}");
        let lowest = outcome(PlacementPolicy::LowestFree);
        assert!(lowest.illegal_sets > 0 && lowest.numa_splits > 0, "{report:#?}");
    }

    #[test]
    fn the_load_is_what_was_asked_for() {
        let asked = requests(50, 0.8, 7);
        let gpu_seconds: f64 = asked.iter().map(|one| f64::from(one.gpus) * one.seconds).sum();
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a few weeks")]
        let seconds = asked[asked.len() - 1].at_micros as f64 / MICROS;
        let load = gpu_seconds / (seconds * 400.0);
        assert!((0.75..0.85).contains(&load), "{load}");
    }
}
