//! The command line. The environment is read here and nowhere else, through clap.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::failure::EXIT_CODES;

mod batch;
mod bench;
mod bundle;
mod node;
mod node_task;
mod profile;
mod run;
mod secret;
mod serve;
mod sim;
mod site;
mod task_key;
mod telemetry;

pub use batch::{BatchCommand, BatchOrderArgs, BatchStartArgs};
pub use bench::{
    BenchAgentArgs, BenchChaosArgs, BenchClientsArgs, BenchCommand, BenchGateArgs,
    BenchOnboardArgs, BenchRegionArgs, Hardware, Seeds,
};
pub use bundle::{
    BundleApproveArgs, BundleBuildArgs, BundleCommand, BundleDiffArgs, BundleKeyArgs, BundleKind,
    BundleLintArgs, BundleNewArgs, BundlePublishArgs, BundlePullArgs, BundleRenderArgs,
    BundleShowArgs, BundleTrustArgs, RegistryArgs,
};
pub use node::{LeaveArgs, NodeCommand, NodeListArgs, OnboardArgs, RevokeCertificateArgs};
pub use node_task::{NodeTaskArgs, NodeTaskKind, TaskOptions};
pub use profile::{
    Assignment, ProfileAddArgs, ProfileCommand, ProfileSetArgs, RoceAddArgs, RoceCommand,
};
pub use run::{CancelArgs, ResumeArgs, RunCommand, SkipCheckArgs};
pub use secret::{SecretCommand, SecretDeleteArgs, SecretSetArgs};
use serve::positive;
pub use serve::{ClockChoice, ServeArgs};
pub use sim::{HostMode, MaasSimArgs, MachineClass};
pub use site::{DriftCommand, DriftListArgs, SiteAddArgs, SiteCommand};
pub use task_key::{TaskKeyActivateArgs, TaskKeyCommand, TaskKeyRetireArgs};
pub use telemetry::ConvergeTelemetryArgs;

/// Turns racked GPU servers into active nodes, through MAAS.
#[derive(Debug, Parser)]
#[command(name = "gpuaas", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Draw with plain ASCII characters.
    #[arg(long, global = true, env = "GPUAAS_ASCII", hide_env_values = true)]
    pub ascii: bool,
    /// What to log on stderr, such as `info` or `gpuaas_engine=debug`.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "GPUAAS_LOG",
        hide_env_values = true,
        default_value = "warn"
    )]
    pub log: String,
}

/// Every command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the control plane: the admin API, the agents' API and the engine.
    Serve(ServeArgs),
    /// Run a simulated MAAS region with machines, until stopped.
    MaasSim(MaasSimArgs),
    /// MAAS regions.
    #[command(subcommand)]
    Site(SiteCommand),
    /// Provisioning profiles.
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Fabric addresses of hosts.
    #[command(subcommand)]
    Roce(RoceCommand),
    /// GPU servers.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Batches: many machines as one piece of work, canaries first.
    #[command(subcommand)]
    Batch(BatchCommand),
    /// Runs: the durable work on nodes.
    #[command(subcommand)]
    Run(RunCommand),
    /// Differences between nodes and their machines in MAAS.
    #[command(subcommand)]
    Drift(DriftCommand),
    /// Bundles: what gives nodes their personality.
    #[command(subcommand)]
    Bundle(BundleCommand),
    /// Keys that sign tasks for agents.
    #[command(subcommand)]
    TaskKey(TaskKeyCommand),
    /// Say what a node waits for, from whom, and what to do next.
    Explain(ExplainArgs),
    /// Onboard simulated machines end to end, with nothing installed.
    Lab(LabArgs),
    /// Measure.
    #[command(subcommand)]
    Bench(BenchCommand),
}

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Where the control plane is, who asks, and how the answer is printed.
#[derive(Debug, Clone, Args)]
pub struct ApiArgs {
    /// How to print the answer on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
    /// Where, and who.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Where the control plane is, and who asks.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// The control plane.
    #[arg(
        long,
        value_name = "URL",
        env = "GPUAAS_SERVER",
        hide_env_values = true,
        default_value = "http://127.0.0.1:8080",
        help_heading = "Connection"
    )]
    pub server: String,
    /// Admin token.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "GPUAAS_TOKEN",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub token: Option<String>,
    /// File that holds the admin token [default: gpuaas-data/admin-token, where it exists].
    #[arg(
        long,
        value_name = "FILE",
        env = "GPUAAS_TOKEN_FILE",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub token_file: Option<PathBuf>,
}

/// Who asks for a change.
#[derive(Debug, Clone, Args)]
pub struct ActorArgs {
    /// Who says so; kept in the history.
    #[arg(
        long,
        value_name = "NAME",
        env = "USER",
        hide_env_values = true,
        default_value = "operator"
    )]
    pub actor: String,
}

/// A command that lists everything.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// A command that shows one thing.
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// Name or id.
    pub name: String,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// Hostname, node id, MAAS system id or MAC.
    pub node: String,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas lab`.
#[derive(Debug, Clone, Args)]
pub struct LabArgs {
    /// How many machines to onboard.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub nodes: usize,
    /// Time runs this many times as fast, or `max`: hardware takes no time.
    #[arg(long, value_name = "X|max", default_value = "30")]
    pub speed: Speed,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// What happens: plain, two-candidates, datasource-retry, accepted-then-504, roce,
    /// adopt-deployed, kill-9, reimage, decommission, detach, handoff, stuck-releasing or
    /// human-release.
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<String>,
    /// Boot a whole Debian on the hosts of the first N machines, with systemd and cloud-init; as
    /// root on Debian, after `cargo xtask real-host`.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = real_hosts)]
    pub real_hosts: usize,
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

#[cfg(test)]
mod tests;
