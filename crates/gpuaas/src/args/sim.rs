//! `gpuaas maas-sim`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{ClockChoice, positive};
use crate::hosts::Lost;

/// What machines are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum MachineClass {
    /// 8-GPU server with InfiniBand; the hardware takes about half an hour.
    #[default]
    H200,
    /// The same with Ethernet only.
    Ethernet,
    /// Takes no time.
    Zero,
}

/// What runs on a simulated host once it is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HostMode {
    /// The rendered bootstrap scripts and the agent's executable, for real, in a folder per host.
    Process,
    /// The agent's protocol code inside this process.
    Fleet,
    /// Nothing.
    None,
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
    /// API key of the administrator, CONSUMER:TOKEN:SECRET [default: made from the seed].
    #[arg(long, value_name = "K")]
    pub api_key: Option<String>,
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
    /// What hosts lose before their agents are installed: NAME=fabric, NAME=gpu.
    #[arg(long, value_name = "NAME=WHAT", value_delimiter = ',')]
    pub lose: Vec<Lost>,
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
