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
    /// Number of machines to onboard.
    #[arg(long, value_name = "N", help = nodes_help())]
    pub nodes: Option<usize>,
    /// Run the clock this many times as fast as real time; `max`: hardware takes no time.
    #[arg(long, value_name = "X|max", default_value = "30")]
    pub speed: Speed,
    /// Random seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Scenario to run.
    #[arg(long, value_name = "NAME", help = scenario_help())]
    pub scenario: Option<String>,
    /// Boot a full Debian with systemd and cloud-init on the hosts of the first N machines;
    /// requires root on Debian, after `cargo xtask real-host`.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = real_hosts)]
    pub real_hosts: usize,
    /// System that real hosts boot, such as another release [default: this machine's release, from
    /// `cargo xtask real-host`]. An older release needs the agent of `cargo xtask agent` next to
    /// this executable, because an agent built here requires this machine's C library.
    #[arg(long, value_name = "DIR")]
    pub rootfs: Option<PathBuf>,
    /// Keep everything running afterwards and print the URLs.
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    /// Folder for the store and the hosts [default: gpuaas-lab].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Use this `postgres://...` database instead of the embedded store.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
}

impl LabArgs {
    /// Number of machines to onboard.
    #[must_use]
    pub fn machines(&self) -> usize {
        self.nodes.unwrap_or(3)
    }
}

/// Machines of a scenario, as far as this executable has it.
fn nodes_help() -> String {
    let more = if HAS_SIMULATION { format!(", 40 for {IMAGE_EXPERIMENT}") } else { String::new() };
    format!("Number of machines to onboard [default: 3{more}]")
}

/// Every scenario of this executable by its name.
fn scenario_help() -> String {
    let names: Vec<&str> = listed_scenarios(HAS_SIMULATION).map(|(name, _)| name).collect();
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    format!("Scenario to run: {} or {last}", others.join(", "))
}

/// Those that have a name of their own.
fn real_hosts(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number <= 3 => Ok(number),
        _ => Err("expected a whole number from 0 to 3".to_owned()),
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
    /// Number of simulated machines.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub machines: usize,
    /// Random seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Run the hardware this many times as fast.
    #[arg(long, value_name = "X", default_value = "1", value_parser = positive)]
    pub speed: f64,
    /// API key of the administrator, CONSUMER:TOKEN:SECRET [default: a new key, which is printed].
    #[arg(long, value_name = "K")]
    pub api_key: Option<String>,
    /// Write the administrator's API key to this file, readable only by its owner.
    #[arg(long, value_name = "FILE")]
    pub write_api_key: Option<PathBuf>,
    /// Write the machines' names, MAC and BMC addresses to this file, for `gpuaas node onboard
    /// --machines`.
    #[arg(long, value_name = "FILE")]
    pub write_hosts: Option<PathBuf>,
    /// JSON file with the faults to inject.
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    /// Hardware class of the machines.
    #[arg(long, value_enum, default_value_t)]
    pub class: MachineClass,
    /// Machine names, comma-separated [default: j22u11, j22u15, j27u15, then node0001 and up].
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub names: Vec<String>,
    /// How deployed hosts are simulated [default: process for up to 8 machines, fleet above].
    #[arg(long, value_enum)]
    pub hosts: Option<HostMode>,
    /// Break a host before its agent is installed: NAME=fabric, NAME=gpu or NAME=kernel-options.
    #[arg(long, value_name = "NAME=WHAT", value_delimiter = ',')]
    pub lose: Vec<HostLoss>,
    /// Run scripts from any user-data on this machine [default: only scripts of this version].
    #[arg(long)]
    pub run_any_scripts: bool,
    /// Folder for the hosts' root folders [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    pub hosts_dir: Option<PathBuf>,
    /// Boot a full system on the hosts of the first N named machines (requires root on Debian).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub real_hosts: usize,
    /// System that real hosts boot [default: the system from `cargo xtask real-host`].
    #[arg(long, value_name = "DIR")]
    pub rootfs: Option<PathBuf>,
    /// Run on a clock shared with a control plane.
    #[arg(long, value_name = "CLOCK", default_value = "real", hide = true)]
    pub clock: ClockChoice,
    /// Stop after this many seconds without a request.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub idle_exit: Option<u64>,
}

/// How long the hardware of a benchmark takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Hardware {
    /// Hardware takes no time: measures only the control plane.
    Zero,
    /// As long as 8-GPU servers: measures the time that the control plane adds.
    H200,
}

/// `gpuaas bench onboard`.
#[derive(Debug, Clone, Args)]
pub struct BenchOnboardArgs {
    /// Number of machines.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: usize,
    /// How long the hardware takes.
    #[arg(long, value_enum, default_value = "zero")]
    pub hardware: Hardware,
    /// Use this `postgres://...` database instead of the embedded store.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Number of control planes that share the database; all but the first run as separate processes.
    #[arg(long, value_name = "R", default_value_t = 1, requires_if("2", "database"))]
    pub replicas: usize,
    /// Simulated seconds per real second, if the hardware takes time.
    #[arg(long, value_name = "X", value_parser = positive)]
    pub factor: Option<f64>,
    /// Also print how often each statement was sent to the database.
    #[arg(long)]
    pub statements: bool,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    /// Random seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}

/// `gpuaas bench api`.
#[derive(Debug, Clone, Args)]
pub struct BenchApiArgs {
    /// Number of nodes.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: usize,
    /// Number of concurrent clients.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub clients: usize,
    /// Use this `postgres://...` database instead of the embedded store.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Random seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench console`.
#[derive(Debug, Clone, Args)]
pub struct BenchConsoleArgs {
    /// Number of nodes.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub nodes: usize,
    /// Number of clients that request pages at once.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub clients: usize,
    /// Number of pages that stay open while nodes change.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub watchers: usize,
    /// `postgres://...` instead of the embedded store.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Random seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench idle`.
#[derive(Debug, Clone, Args)]
pub struct BenchIdleArgs {
    /// Number of active nodes.
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub nodes: usize,
    /// Seconds to measure.
    #[arg(long, value_name = "S", default_value = "60", value_parser = positive)]
    pub seconds: f64,
    /// Use this `postgres://...` database instead of the embedded store.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Number of regions, each a site and a process with its share of the machines and agents.
    #[arg(long, value_name = "R", default_value_t = 1)]
    pub regions: usize,
    /// Number of control planes that share the database, each with its share of the agents.
    #[arg(long, value_name = "R", default_value_t = 1, requires_if("2", "database"))]
    pub replicas: usize,
    /// Random seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench clients`.
#[derive(Debug, Clone, Args)]
pub struct BenchClientsArgs {
    /// Number of machines.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub nodes: usize,
    /// Share of calls that MAAS refuses with 503 and does not execute, from 0 to 1.
    #[arg(long, value_name = "P", default_value = "0.02", value_parser = part)]
    pub refuse: f64,
    /// Share of calls that MAAS executes but answers with 504, from 0 to 1.
    #[arg(long = "accept-then-504", value_name = "P", default_value = "0.2", value_parser = part)]
    pub accept_then_504: f64,
    /// Random seed.
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
    /// Number of random hosts to map.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub random_hosts: usize,
    /// Random seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench agent`.
#[derive(Debug, Clone, Args)]
pub struct BenchAgentArgs {
    /// Agent executable [default: next to this one].
    #[arg(long, value_name = "FILE")]
    pub agent_binary: Option<PathBuf>,
    /// Seconds to watch an idle agent.
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
    /// Requests whose headers never end.
    #[arg(long, value_name = "N", default_value_t = 600)]
    pub unfinished_headers: usize,
    /// Requests whose body arrives one byte per second.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub slow_bodies: usize,
    /// Downloads whose data is never read.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub unread_downloads: usize,
    /// Event streams opened with one token.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub event_streams: usize,
    /// Unfinished 1 MB request bodies sent with one token.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub open_bodies: usize,
    /// Changes sent on connections that are reset 0 to 30 ms later.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub hang_ups: usize,
    /// Limit on open files of the control plane.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(200..))]
    pub open_files: u64,
    /// Seconds during which other clients send requests.
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = positive)]
    pub seconds: f64,
    /// Agent executable, which the attack downloads [default: next to this one].
    #[arg(long, value_name = "FILE")]
    pub agent_binary: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas bench failover`.
#[derive(Debug, Clone, Args)]
pub struct BenchFailoverArgs {
    /// Number of machines.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub nodes: usize,
    /// Number of control planes.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = at_least_one)]
    pub replicas: usize,
    /// PostgreSQL server on which to create a database [default: a private server, which is stopped
    /// and restarted twice].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// NATS server with JetStream [default: a private server, which is stopped and restarted
    /// twice].
    #[arg(long, value_name = "URL", env = "GPUAAS_NATS", hide_env_values = true)]
    pub nats: Option<String>,
    /// Seconds over which the machines are onboarded.
    #[arg(long, value_name = "SECONDS", default_value = "50", value_parser = positive)]
    pub seconds: f64,
    /// Seconds between kills.
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = positive)]
    pub kill_seconds: f64,
    /// Random seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("expected a whole number above 0".to_owned()),
    }
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("expected a number from 0 to 1".to_owned()),
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
