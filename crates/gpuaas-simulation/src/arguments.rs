//! Arguments of the benchmarks that run on a virtual clock.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use gpuaas_client::arguments::positive;

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
    /// Keep the state of each fleet on this PostgreSQL server, `postgres://...`, in a database that
    /// is made for it and dropped afterwards; the user needs the right to create databases.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench mend`.
#[derive(Debug, Clone, Args)]
pub struct BenchMendArgs {
    /// Code of one park; every park otherwise.
    #[arg(long, value_name = "CODE")]
    pub park: Option<String>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench outage`.
#[derive(Debug, Clone, Args)]
pub struct BenchOutageArgs {
    /// How long the region is away, in seconds; several, joined by commas.
    #[arg(long, value_name = "SECONDS", default_value = "5,30,120,600", value_delimiter = ',',
        value_parser = positive)]
    pub seconds: Vec<f64>,
    /// Machines of each fleet.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub nodes: usize,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench busy`.
#[derive(Debug, Clone, Args)]
pub struct BenchBusyArgs {
    /// Machines of each fleet; each is onboarded and then reimaged.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub nodes: usize,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench people`.
#[derive(Debug, Clone, Args)]
pub struct BenchPeopleArgs {
    /// Active nodes; a person changes the machine of each.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub nodes: usize,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench verdict`.
#[derive(Debug, Clone, Args)]
pub struct BenchVerdictArgs {
    /// Experiments without a difference, and experiments of each size with one.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub trials: usize,
    /// Seed of the samples.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench placement`.
#[derive(Debug, Clone, Copy, Args)]
pub struct BenchPlacementArgs {
    /// Nodes, each with a board of eight GPUs.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub nodes: usize,
    /// GPU time that is asked for, as a share of what there is.
    #[arg(long, value_name = "X", default_value = "0.8", value_parser = positive)]
    pub load: f64,
    /// Seeds of the requests, the last one included.
    #[arg(long, value_name = "A..B", default_value = "1..20")]
    pub seeds: Seeds,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench upload`.
#[derive(Debug, Clone, Copy, Args)]
pub struct BenchUploadArgs {
    /// Length of the image in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30, value_parser = clap::value_parser!(u64).range(1..=1 << 44))]
    pub size: u64,
    /// Pieces whose answer is lost, or that are lost themselves; the last piece is one of them.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub cuts: u32,
    /// Bytes that the link carries for each second.
    #[arg(long, value_name = "BYTES_PER_SECOND", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub throttle: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench claims`.
#[derive(Debug, Clone, Args)]
pub struct BenchClaimsArgs {
    /// Nodes, each with a board of eight GPUs.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: usize,
    /// Clients that claim and release at once.
    #[arg(long, value_name = "C", default_value_t = 8)]
    pub clients: usize,
    /// Seconds to measure.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = positive)]
    pub seconds: f64,
    /// Stores that are open on the database at once, each with its share of the clients.
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = at_least_one)]
    pub replicas: usize,
    /// Claim on this PostgreSQL server, `postgres://...`, in a database that is made for it and
    /// dropped afterwards; the user needs the right to create databases. None: in an SQLite file.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Kill a replica in the middle of its work every so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub kill_every: Option<f64>,
    /// Seed of the sizes of claims.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench slices`.
#[derive(Debug, Clone, Args)]
pub struct BenchSlicesArgs {
    /// Hosts, each a folder with a board of eight GPUs.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    pub hosts: usize,
    /// Slices that are launched and released, by turns on hosts where nothing is wrong and on hosts
    /// with a fault.
    #[arg(long, value_name = "N", default_value_t = 28, value_parser = at_least_one)]
    pub launches: usize,
    /// Disk of a guest that QEMU boots in place of those that are played, with cloud-init and its kernel's
    /// console at the first serial port (`cargo xtask vm --guest`). It wants qemu-system-x86, ovmf, dosfstools
    /// and mtools. There is one launch, and nothing is wrong with its host.
    #[arg(long, value_name = "FILE", conflicts_with = "launches")]
    pub guest: Option<PathBuf>,
    /// Have this machine's own libvirt run the guest, at its bridge of Open vSwitch, with an address of its
    /// dnsmasq: this machine is a host that the slice bundle made, and this is root. It need have no device
    /// of a slice.
    #[arg(long, requires = "guest")]
    pub libvirt: bool,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("{text:?} is not a number from 1 on")),
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
        let bad = || format!("{text:?} is not A..B with A not above B");
        let (first, last) = text.split_once("..").ok_or_else(bad)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
        let seeds = Self { first: number(first)?, last: number(last)? };
        if seeds.first <= seeds.last { Ok(seeds) } else { Err(bad()) }
    }
}
