//! Arguments of the benchmarks that run on a virtual clock.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use gpuaas_client::arguments::positive;

/// `gpuaas bench region`.
#[derive(Debug, Clone, Args)]
pub struct BenchRegionArgs {
    /// Number of machines.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: usize,
    /// Simulated seconds between machines.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = positive)]
    pub apart: f64,
    /// Random seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench chaos`.
#[derive(Debug, Clone, Args)]
pub struct BenchChaosArgs {
    /// Range of fleet seeds, including the last.
    #[arg(long, value_name = "A..B", default_value = "1..50", conflicts_with = "seed")]
    pub seeds: Seeds,
    /// Run only this seed and print its events.
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Machines in each fleet.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub nodes: usize,
    /// Store each fleet's state on this PostgreSQL server, `postgres://...`, in a database that is
    /// created for it and dropped afterwards; the user needs the right to create databases.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench mend`.
#[derive(Debug, Clone, Args)]
pub struct BenchMendArgs {
    /// Test only the park with this code [default: all parks].
    #[arg(long, value_name = "CODE")]
    pub park: Option<String>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench outage`.
#[derive(Debug, Clone, Args)]
pub struct BenchOutageArgs {
    /// Outage durations of the region in seconds, comma-separated.
    #[arg(long, value_name = "SECONDS", default_value = "5,30,120,600", value_delimiter = ',',
        value_parser = positive)]
    pub seconds: Vec<f64>,
    /// Machines in each fleet.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub nodes: usize,
    /// Random seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench busy`.
#[derive(Debug, Clone, Args)]
pub struct BenchBusyArgs {
    /// Machines in each fleet; each is onboarded and then reimaged.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub nodes: usize,
    /// Random seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench people`.
#[derive(Debug, Clone, Args)]
pub struct BenchPeopleArgs {
    /// Number of active nodes; a person changes each node's machine.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub nodes: usize,
    /// Random seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench verdict`.
#[derive(Debug, Clone, Args)]
pub struct BenchVerdictArgs {
    /// Number of experiments without a difference, and with a difference for each sample size.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub trials: usize,
    /// Random seed for the samples.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench placement`.
#[derive(Debug, Clone, Copy, Args)]
pub struct BenchPlacementArgs {
    /// Number of nodes, each with a board of eight GPUs.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub nodes: usize,
    /// Requested GPU time, as a share of the available GPU time.
    #[arg(long, value_name = "X", default_value = "0.8", value_parser = positive)]
    pub load: f64,
    /// Range of seeds for the requests, including the last.
    #[arg(long, value_name = "A..B", default_value = "1..20")]
    pub seeds: Seeds,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench upload`.
#[derive(Debug, Clone, Copy, Args)]
pub struct BenchUploadArgs {
    /// Image size in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30, value_parser = clap::value_parser!(u64).range(1..=1 << 44))]
    pub size: u64,
    /// Number of pieces that are lost or whose answer is lost; the last piece is one of them.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub cuts: u32,
    /// Link speed in bytes per second.
    #[arg(long, value_name = "BYTES_PER_SECOND", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub throttle: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench claims`.
#[derive(Debug, Clone, Args)]
pub struct BenchClaimsArgs {
    /// Number of nodes, each with a board of eight GPUs.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: usize,
    /// Number of clients that claim and release concurrently.
    #[arg(long, value_name = "C", default_value_t = 8)]
    pub clients: usize,
    /// Seconds to measure.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = positive)]
    pub seconds: f64,
    /// Number of stores open on the database, each with its share of the clients.
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = at_least_one)]
    pub replicas: usize,
    /// Claim on this PostgreSQL server, `postgres://...`, in a database that is created for the run
    /// and dropped afterwards; the user needs the right to create databases [default: an SQLite file].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Kill a busy replica every this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub kill_every: Option<f64>,
    /// Random seed for the claim sizes.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench slices`.
#[derive(Debug, Clone, Args)]
pub struct BenchSlicesArgs {
    /// Number of hosts, each a folder with a board of eight GPUs.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    pub hosts: usize,
    /// Number of slices to launch and release, alternating between healthy hosts and hosts with a
    /// fault.
    #[arg(long, value_name = "N", default_value_t = 28, value_parser = at_least_one)]
    pub launches: usize,
    /// Guest disk for QEMU to boot instead of a simulated guest, with cloud-init and the kernel
    /// console on the first serial port (`cargo xtask vm --guest`). Requires qemu-system-x86,
    /// ovmf, dosfstools and mtools. The benchmark then runs one launch, on a healthy host.
    #[arg(long, value_name = "FILE", conflicts_with = "launches")]
    pub guest: Option<PathBuf>,
    /// Run the guest with this machine's own libvirt, on its Open vSwitch bridge, with an address
    /// from its dnsmasq. Requires root on a host that the slice bundle set up; the host needs no
    /// slice devices.
    #[arg(long, requires = "guest")]
    pub libvirt: bool,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("expected a whole number above 0".to_owned()),
    }
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
        let bad = || format!("invalid range {text:?}: expected A..B with A <= B");
        let (first, last) = text.split_once("..").ok_or_else(bad)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
        let seeds = Self { first: number(first)?, last: number(last)? };
        if seeds.first <= seeds.last { Ok(seeds) } else { Err(bad()) }
    }
}
