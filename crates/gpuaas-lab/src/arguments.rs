//! Arguments of `gpuaas lab`, of `gpuaas maas-sim` and of the benchmarks that run in the laboratory.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use gpuaas_client::arguments::positive;
use gpuaas_engine::ClockChoice;

use crate::hosts::options::{HostLoss, HostMode};
pub use crate::machine_class::MachineClass;
use crate::scenario::{HAS_SIMULATION, IMAGE_EXPERIMENT, listed_scenarios};

/// `gpuaas lab`.
#[derive(Debug, Clone, Args)]
pub struct LabArgs {
    /// How many machines to onboard.
    #[arg(long, value_name = "N", help = nodes_help())]
    pub nodes: Option<usize>,
    /// Time runs this many times as fast, or `max`: hardware takes no time.
    #[arg(long, value_name = "X|max", default_value = "30")]
    pub speed: Speed,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// What happens.
    #[arg(long, value_name = "NAME", help = scenario_help())]
    pub scenario: Option<String>,
    /// Boot a whole Debian on the hosts of the first N machines, with systemd and cloud-init; as
    /// root on Debian, after `cargo xtask real-host`.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = real_hosts)]
    pub real_hosts: usize,
    /// The system that those boot, such as another release's [default: this machine's release, from
    /// `cargo xtask real-host`]. An older one wants the agent of `cargo xtask agent` beside this
    /// executable: one that was built here wants this machine's C library.
    #[arg(long, value_name = "DIR")]
    pub rootfs: Option<PathBuf>,
    /// Leave everything running afterwards and print the URLs.
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    /// Folder for the store and the hosts [default: gpuaas-lab].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// `postgres://...` instead of the embedded store.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
}

impl LabArgs {
    /// How many machines to onboard.
    #[must_use]
    pub fn machines(&self) -> usize {
        self.nodes.unwrap_or(3)
    }
}

/// Machines of a scenario, as far as this executable has it.
fn nodes_help() -> String {
    let more =
        if HAS_SIMULATION { format!(", and 40 in {IMAGE_EXPERIMENT}") } else { String::new() };
    format!("How many machines to onboard [default: 3{more}]")
}

/// Every scenario of this executable by its name.
fn scenario_help() -> String {
    let names: Vec<&str> = listed_scenarios(HAS_SIMULATION).map(|(name, _)| name).collect();
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    format!("What happens: {} or {last}", others.join(", "))
}

/// Those that have a name of their own.
fn real_hosts(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number <= 3 => Ok(number),
        _ => Err(format!("{text:?} is not a number from 0 to 3")),
    }
}

/// How fast a lab runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// Time runs this many times as fast as the wall.
    Times(f64),
    /// Hardware takes no time.
    Max,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" { Ok(Self::Max) } else { positive(text).map(Self::Times) }
    }
}

/// `gpuaas maas-sim`.
#[derive(Debug, Clone, Args)]
pub struct MaasSimArgs {
    /// Address to listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5240")]
    pub listen: SocketAddr,
    /// How many machines are racked.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub machines: usize,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Hardware is this many times as fast.
    #[arg(long, value_name = "X", default_value = "1", value_parser = positive)]
    pub speed: f64,
    /// API key of the administrator, CONSUMER:TOKEN:SECRET [default: a new one, which is printed].
    #[arg(long, value_name = "K")]
    pub api_key: Option<String>,
    /// Write the administrator's API key to this file, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    pub write_api_key: Option<PathBuf>,
    /// Write names, MAC and BMC addresses of the machines to this file, as `gpuaas node onboard
    /// --machines` reads them.
    #[arg(long, value_name = "FILE")]
    pub write_hosts: Option<PathBuf>,
    /// Faults to inject, a JSON file.
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    /// What the machines are.
    #[arg(long, value_enum, default_value_t)]
    pub class: MachineClass,
    /// Names of the machines, comma-separated [default: j22u11, j22u15, j27u15, then node0001 on].
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub names: Vec<String>,
    /// What runs on deployed hosts [default: process up to 8 machines, fleet above].
    #[arg(long, value_enum)]
    pub hosts: Option<HostMode>,
    /// What hosts lose before their agents are installed: NAME=fabric, NAME=gpu, NAME=kernel-options.
    #[arg(long, value_name = "NAME=WHAT", value_delimiter = ',')]
    pub lose: Vec<HostLoss>,
    /// Run the scripts of any user-data on this machine [default: those of this version only].
    #[arg(long)]
    pub run_any_scripts: bool,
    /// Folder of the hosts' root folders [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    pub hosts_dir: Option<PathBuf>,
    /// Boot a whole system on the hosts of the first N named machines (root, Debian).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub real_hosts: usize,
    /// The system that those boot [default: that of `cargo xtask real-host`].
    #[arg(long, value_name = "DIR")]
    pub rootfs: Option<PathBuf>,
    /// Run on a clock shared with a control plane.
    #[arg(long, value_name = "CLOCK", default_value = "real", hide = true)]
    pub clock: ClockChoice,
    /// Stop after so many seconds without a request.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub idle_exit: Option<u64>,
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
    /// How many control planes share the database; those beside the first one are processes of their own.
    #[arg(long, value_name = "R", default_value_t = 1, requires_if("2", "database"))]
    pub replicas: usize,
    /// Simulated seconds per second of the wall, with hardware that takes time.
    #[arg(long, value_name = "X", value_parser = positive)]
    pub factor: Option<f64>,
    /// Say how often each statement was sent to the database, too.
    #[arg(long)]
    pub statements: bool,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}

/// `gpuaas bench api`.
#[derive(Debug, Clone, Args)]
pub struct BenchApiArgs {
    /// How many nodes there are.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: usize,
    /// How many clients ask at once.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub clients: usize,
    /// `postgres://...` instead of the embedded store.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench idle`.
#[derive(Debug, Clone, Args)]
pub struct BenchIdleArgs {
    /// How many nodes are active.
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub nodes: usize,
    /// How long to measure.
    #[arg(long, value_name = "S", default_value = "60", value_parser = positive)]
    pub seconds: f64,
    /// `postgres://...` instead of the embedded store.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// How many regions there are, each a site and a process with its part of the machines and their agents.
    #[arg(long, value_name = "R", default_value_t = 1)]
    pub regions: usize,
    /// How many control planes share the database, each with its part of the agents.
    #[arg(long, value_name = "R", default_value_t = 1, requires_if("2", "database"))]
    pub replicas: usize,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
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

/// `gpuaas bench repair`.
#[derive(Debug, Clone, Args)]
pub struct BenchRepairArgs {
    /// Folder with the bundles and their fixture, as in the repository.
    #[arg(long, value_name = "DIR", default_value = "bundles")]
    pub bundles: PathBuf,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench handover`.
#[derive(Debug, Clone, Args)]
pub struct BenchHandoverArgs {
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench topology`.
#[derive(Debug, Clone, Copy, Args)]
pub struct BenchTopologyArgs {
    /// Random hosts to make maps of.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub random_hosts: usize,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
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

/// `gpuaas bench attack`.
#[derive(Debug, Clone, Args)]
pub struct BenchAttackArgs {
    /// Connections that send nothing.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub silent_sockets: usize,
    /// Requests whose head does not end.
    #[arg(long, value_name = "N", default_value_t = 600)]
    pub unfinished_headers: usize,
    /// Requests whose body comes a byte a second.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub slow_bodies: usize,
    /// Downloads that nobody reads.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub unread_downloads: usize,
    /// Streams of events, with one token.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub event_streams: usize,
    /// Bodies of 1 MB that do not end, with one token.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub open_bodies: usize,
    /// Changes on connections that are reset 0 to 30 ms later.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub hang_ups: usize,
    /// Files that the control plane may open.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(200..))]
    pub open_files: u64,
    /// Seconds over which others are answered.
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = positive)]
    pub seconds: f64,
    /// The agent's executable, which is what is downloaded [default: beside this one].
    #[arg(long, value_name = "FILE")]
    pub agent_binary: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench failover`.
#[derive(Debug, Clone, Args)]
pub struct BenchFailoverArgs {
    /// How many machines.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub nodes: usize,
    /// How many control planes.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = at_least_one)]
    pub replicas: usize,
    /// PostgreSQL server to make a database on [default: one of its own, which is taken away and
    /// comes back twice].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// NATS server with JetStream [default: one of its own, which is taken away and comes back
    /// twice].
    #[arg(long, value_name = "URL", env = "GPUAAS_NATS", hide_env_values = true)]
    pub nats: Option<String>,
    /// Seconds over which the machines are named.
    #[arg(long, value_name = "SECONDS", default_value = "50", value_parser = positive)]
    pub seconds: f64,
    /// Seconds from one kill to the next.
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = positive)]
    pub kill_seconds: f64,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err(format!("{text:?} is not a number above 0")),
    }
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err(format!("{text:?} is not a number from 0 to 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_factors_or_max() {
        assert_eq!("max".parse::<Speed>().unwrap(), Speed::Max);
        assert_eq!("60".parse::<Speed>().unwrap(), Speed::Times(60.0));
        assert!("-1".parse::<Speed>().is_err());
    }
}
