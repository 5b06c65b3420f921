//! Arguments of `gpuaas bench`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};

use super::positive;

/// `gpuaas bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Onboard machines and measure: throughput, MAAS calls, added time, memory.
    Onboard(BenchOnboardArgs),
    /// Onboard machines through a MAAS that refuses calls and loses answers.
    Clients(BenchClientsArgs),
    /// Onboard a whole fleet on a virtual clock: what a region costs the control plane.
    Region(BenchRegionArgs),
    /// Let faults, crashes and people loose on fleets, and check that nothing is lost.
    Chaos(BenchChaosArgs),
    /// Break a ready slice host in every way that its gates have to see.
    Gate(BenchGateArgs),
    /// Start the node agent, and measure what it costs a host that has nothing to do.
    Agent(BenchAgentArgs),
}

/// How long the hardware of a benchmark takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Hardware {
    /// No time: measures the control plane alone.
    Zero,
    /// As 8-GPU servers do: measures the time that the control plane adds.
    H200,
}

/// `gpuaas bench onboard`.
#[derive(Debug, Clone, Args)]
pub struct BenchOnboardArgs {
    /// How many machines.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: usize,
    /// How long their hardware takes.
    #[arg(long, value_enum, default_value = "zero")]
    pub hardware: Hardware,
    /// `postgres://...` instead of the embedded store.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Simulated seconds per second of the wall, with hardware that takes time.
    #[arg(long, value_name = "X", value_parser = positive)]
    pub factor: Option<f64>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}

/// `gpuaas bench clients`.
#[derive(Debug, Clone, Args)]
pub struct BenchClientsArgs {
    /// How many machines.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub nodes: usize,
    /// Part of all calls that MAAS refuses with 503, undone.
    #[arg(long, value_name = "P", default_value = "0.02", value_parser = part)]
    pub refuse: f64,
    /// Part of all calls that MAAS does and answers with 504.
    #[arg(long = "accept-then-504", value_name = "P", default_value = "0.2", value_parser = part)]
    pub accept_then_504: f64,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench region`.
#[derive(Debug, Clone, Args)]
pub struct BenchRegionArgs {
    /// How many machines.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: usize,
    /// Seconds of the virtual clock from one machine to the next.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = positive)]
    pub apart: f64,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench chaos`.
#[derive(Debug, Clone, Args)]
pub struct BenchChaosArgs {
    /// Seeds of the fleets, the last one included.
    #[arg(long, value_name = "A..B", default_value = "1..50", conflicts_with = "seed")]
    pub seeds: Seeds,
    /// One seed, with its story.
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Machines of each fleet.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub nodes: usize,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench gate`.
#[derive(Debug, Clone, Args)]
pub struct BenchGateArgs {
    /// Folder with the bundles and their fixture, as in the repository.
    #[arg(long, value_name = "DIR", default_value = "bundles")]
    pub bundles: PathBuf,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench agent`.
#[derive(Debug, Clone, Args)]
pub struct BenchAgentArgs {
    /// The agent's executable [default: beside this one].
    #[arg(long, value_name = "FILE")]
    pub agent_binary: Option<PathBuf>,
    /// Seconds over which an idle agent is watched.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = positive)]
    pub seconds: f64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `A..B`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not A..B with A not above B");
        let (first, last) = text.split_once("..").ok_or_else(bad)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
        let seeds = Self { first: number(first)?, last: number(last)? };
        if seeds.first <= seeds.last { Ok(seeds) } else { Err(bad()) }
    }
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err(format!("{text:?} is not a number from 0 to 1")),
    }
}
