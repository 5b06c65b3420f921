//! The command line. The environment is read here and nowhere else, through clap.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use gpuaas_types::{DriftAction, DriftKind, NodeState, Timestamp};

use crate::failure::EXIT_CODES;

mod batch;
mod bench;
mod bundle;

pub use batch::{BatchCommand, BatchOrderArgs, BatchStartArgs};
pub use bench::{
    BenchChaosArgs, BenchClientsArgs, BenchCommand, BenchOnboardArgs, BenchRegionArgs, Hardware,
    Seeds,
};
pub use bundle::{
    BundleBuildArgs, BundleCommand, BundleDiffArgs, BundleKeyArgs, BundleKind, BundleLintArgs,
    BundleNewArgs, BundleRenderArgs, BundleShowArgs,
};

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

/// `gpuaas serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Address to listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Folder of the embedded store, the artifacts, the master key and the admin token.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub data: PathBuf,
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE` or `sqlite:PATH` [default: DATA/gpuaas.db].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// URL under which nodes reach this control plane [default: http://LISTEN].
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// The node agent's executable [default: gpuaas-node-agent beside this executable].
    #[arg(long, value_name = "PATH")]
    pub agent_binary: Option<PathBuf>,
    /// Run on a clock shared with a simulator.
    #[arg(long, value_name = "CLOCK", default_value = "real", hide = true)]
    pub clock: ClockChoice,
}

/// `real`, or `paced:FACTOR:EPOCH_US`: FACTOR times as fast as the wall since EPOCH_US.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClockChoice {
    /// The wall clock.
    Real,
    /// A faster one.
    Paced {
        /// Seconds of the clock per second of the wall.
        factor: f64,
        /// When both agreed.
        epoch: Timestamp,
    },
}

impl FromStr for ClockChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "real" {
            return Ok(Self::Real);
        }
        let mut parts = text.splitn(3, ':');
        let (Some("paced"), Some(factor), Some(epoch)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err("write real, or paced:FACTOR:EPOCH_US".to_owned());
        };
        let epoch = epoch.parse().map_err(|_| format!("{epoch:?} is no number of microseconds"))?;
        Ok(Self::Paced { factor: positive(factor)?, epoch: Timestamp::from_micros(epoch) })
    }
}

impl std::fmt::Display for ClockChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Real => f.write_str("real"),
            Self::Paced { factor, epoch } => write!(f, "paced:{factor}:{}", epoch.as_micros()),
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err(format!("{text:?} is not a number above 0")),
    }
}

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
    /// Folder of the hosts' root folders [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    pub hosts_dir: Option<PathBuf>,
    /// Run on a clock shared with a control plane.
    #[arg(long, value_name = "CLOCK", default_value = "real", hide = true)]
    pub clock: ClockChoice,
    /// Stop after so many seconds without a request.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub idle_exit: Option<u64>,
}

/// `gpuaas site`.
#[derive(Debug, Subcommand)]
pub enum SiteCommand {
    /// Add a MAAS region; it is asked for its version before anything is stored.
    Add(SiteAddArgs),
    /// List regions.
    List(ListArgs),
    /// Show one region.
    Show(ShowArgs),
}

/// `gpuaas site add`.
#[derive(Debug, Clone, Args)]
pub struct SiteAddArgs {
    /// Unique name, `[a-z0-9-]`.
    pub name: String,
    /// MAAS base URL, such as http://maas.example:5240/MAAS.
    #[arg(long, value_name = "MAAS_URL")]
    pub url: String,
    /// File that holds CONSUMER:TOKEN:SECRET of a MAAS administrator; `-` reads stdin.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: PathBuf,
    /// VLAN tag that boot interfaces must be on.
    #[arg(long, value_name = "N")]
    pub pxe_vlan: Option<i64>,
    /// Image that may be deployed here; repeat for more [default: any that MAAS has].
    #[arg(long = "approve-image", value_name = "IMAGE")]
    pub approve_images: Vec<String>,
    /// What to do about a kind of drift: report, quarantine or adopt; repeat for more.
    #[arg(long, value_name = "KIND=ACTION", value_parser = drift_rule)]
    pub drift: Vec<(DriftKind, DriftAction)>,
    /// Nodes of the site that deploy at once; 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub batch_max_parallel: u32,
    /// What the links carry over which images travel, in Mbit/s; 0: unknown. With the profile's
    /// image_size_megabytes it limits how many nodes deploy at once.
    #[arg(long, value_name = "MBIT", default_value_t = 0)]
    pub image_bandwidth: u32,
    /// Certificate authority of an https region, PEM.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Certificates that nodes of the site shall trust, PEM.
    #[arg(long, value_name = "FILE")]
    pub node_ca_file: Option<PathBuf>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
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

/// `gpuaas profile`.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Add a profile; fields that are not set have their defaults.
    Add(ProfileAddArgs),
    /// List profiles.
    List(ListArgs),
    /// Show one profile at its latest revision.
    Show(ShowArgs),
    /// List the profiles to begin with, one per class of hardware.
    Presets(ListArgs),
    /// Change fields: makes a new revision, which runs begun later use.
    Set(ProfileSetArgs),
}

/// `FIELD=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Field name, as the API writes it.
    pub field: String,
    /// Value as text.
    pub value: String,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (field, value) = text.split_once('=').ok_or("write FIELD=VALUE")?;
        if field.is_empty() {
            return Err("write FIELD=VALUE".to_owned());
        }
        Ok(Self { field: field.to_owned(), value: value.to_owned() })
    }
}

/// `gpuaas profile add`.
#[derive(Debug, Clone, Args)]
pub struct ProfileAddArgs {
    /// Unique name, `[a-z0-9-]`.
    pub name: String,
    /// Field that differs from the default; repeat for more.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    pub set: Vec<Assignment>,
    /// Begin with a preset; `gpuaas profile presets` lists them.
    #[arg(long)]
    pub preset: Option<String>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas profile set`.
#[derive(Debug, Clone, Args)]
pub struct ProfileSetArgs {
    /// Name.
    pub name: String,
    /// What to change.
    #[arg(value_name = "FIELD=VALUE", required = true)]
    pub set: Vec<Assignment>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas roce`.
#[derive(Debug, Subcommand)]
pub enum RoceCommand {
    /// Give one fabric interface of one host its address.
    Add(RoceAddArgs),
    /// List addresses.
    List(ListArgs),
}

/// `gpuaas roce add`.
#[derive(Debug, Clone, Args)]
pub struct RoceAddArgs {
    /// Site name.
    #[arg(long)]
    pub site: String,
    /// Short hostname.
    #[arg(long)]
    pub host: String,
    /// Interface name, or its MAC address.
    #[arg(long, value_name = "NAME")]
    pub interface: String,
    /// Subnet in MAAS.
    #[arg(long, value_name = "CIDR")]
    pub subnet: String,
    /// Static address inside it.
    #[arg(long, value_name = "ADDRESS")]
    pub ip: String,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas node`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Bring machines to active.
    Onboard(Box<OnboardArgs>),
    /// List nodes.
    List(NodeListArgs),
    /// Show one node with its history.
    Show(ShowArgs),
    /// Take a node out of service: drain, release in MAAS, power off.
    Decommission(LeaveArgs),
    /// Release, deploy and enroll a node again, through the same gates.
    Reimage(LeaveArgs),
    /// Have the agent remove what a tenant left; MAAS is not asked.
    SoftReset(LeaveArgs),
    /// Have the agent empty the scratch storage; MAAS is not asked.
    StorageCleanup(LeaveArgs),
    /// Give a machine up without touching it in MAAS.
    Detach(LeaveArgs),
    /// Put away the record of a retired or detached node.
    Remove(LeaveArgs),
}

/// A command that takes something away from a node: it shows its plan first.
#[derive(Debug, Clone, Args)]
pub struct LeaveArgs {
    /// Hostname, node id, MAAS system id or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Only show what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    /// Why; kept in the history.
    #[arg(long, value_name = "TEXT", default_value = "asked on the command line")]
    pub reason: String,
    /// Who says so; kept in the history.
    #[arg(
        long,
        value_name = "NAME",
        env = "USER",
        hide_env_values = true,
        default_value = "operator"
    )]
    pub actor: String,
    /// Follow the work until it ends.
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Seconds to wait at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, requires = "wait")]
    pub timeout: u64,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas node onboard`.
#[derive(Debug, Clone, Args)]
pub struct OnboardArgs {
    /// Short hostname; several share everything but BMC and MAC.
    #[arg(required = true, value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Site name.
    #[arg(long)]
    pub site: String,
    /// Profile name.
    #[arg(long)]
    pub profile: String,
    /// Address of the machine's BMC.
    #[arg(long, value_name = "ADDRESS")]
    pub bmc_address: Option<String>,
    /// BMC user.
    #[arg(long, value_name = "USER", requires = "bmc_address")]
    pub bmc_user: Option<String>,
    /// File that holds the BMC password; `-` reads stdin.
    #[arg(long, value_name = "FILE", requires = "bmc_address")]
    pub bmc_pass_file: Option<PathBuf>,
    /// Power driver of MAAS [default: ipmi with a BMC address, else manual].
    #[arg(long, value_name = "DRIVER")]
    pub power_type: Option<String>,
    /// MAC address of a boot interface; repeat for more.
    #[arg(long = "mac", value_name = "MAC")]
    pub macs: Vec<String>,
    /// Architecture [default: amd64/generic].
    #[arg(long, value_name = "ARCH")]
    pub architecture: Option<String>,
    /// Follow the work until it ends; then print where every second went.
    #[arg(long)]
    pub wait: bool,
    /// Seconds to wait at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, requires = "wait")]
    pub timeout: u64,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas node list`.
#[derive(Debug, Clone, Args)]
pub struct NodeListArgs {
    /// Only nodes of this site.
    #[arg(long)]
    pub site: Option<String>,
    /// Only nodes in this state.
    #[arg(long, value_name = "STATE", value_parser = node_state)]
    pub state: Option<NodeState>,
    /// Only nodes whose run stopped or takes longer than expected, and why.
    #[arg(long, conflicts_with = "state")]
    pub stuck: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas drift`.
#[derive(Debug, Subcommand)]
pub enum DriftCommand {
    /// List how machines in MAAS differ from what their nodes remember.
    List(DriftListArgs),
}

/// `gpuaas drift list`.
#[derive(Debug, Clone, Args)]
pub struct DriftListArgs {
    /// Only nodes of this site.
    #[arg(long)]
    pub site: Option<String>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

fn drift_rule(text: &str) -> Result<(DriftKind, DriftAction), String> {
    let (kind, action) = text.split_once('=').ok_or("write KIND=ACTION")?;
    let kind = kind.parse().map_err(|_| {
        let all: Vec<&str> = DriftKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("use one of {}", all.join(", "))
    })?;
    let action = action.parse().map_err(|_| "use one of report, quarantine, adopt".to_owned())?;
    Ok((kind, action))
}

fn node_state(text: &str) -> Result<NodeState, String> {
    text.parse().map_err(|_| {
        let all: Vec<&str> = NodeState::ALL.iter().map(|state| state.as_str()).collect();
        format!("use one of {}", all.join(", "))
    })
}

/// `gpuaas run`.
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Show a run: where every second went, what was tried, what was checked.
    Show(ShowArgs),
    /// Let a parked run go on, once its cause is gone.
    Resume(ResumeArgs),
    /// Let a parked run try again: what was tried in its step does not count any more.
    Retry(ResumeArgs),
    /// End a run. A machine that it is deploying is released first.
    Cancel(CancelArgs),
    /// Answer for a check that does not pass; the run goes on, and your word expires.
    SkipCheck(SkipCheckArgs),
}

/// `gpuaas run cancel`.
#[derive(Debug, Clone, Args)]
pub struct CancelArgs {
    /// Leave the machine in MAAS as it is, whatever it is doing, and do not ask MAAS.
    #[arg(long)]
    pub leave_machine: bool,
    /// The run, who and why.
    #[command(flatten)]
    pub said: ResumeArgs,
}

/// `gpuaas run skip-check`.
#[derive(Debug, Clone, Args)]
pub struct SkipCheckArgs {
    /// Name of the check, as gpuaas run show prints it.
    #[arg(long, value_name = "NAME")]
    pub check: String,
    /// Seconds for which your word holds, at most a week.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 86_400)]
    pub seconds: u32,
    /// The run, who and why.
    #[command(flatten)]
    pub said: ResumeArgs,
}

/// `gpuaas run resume` and `gpuaas run retry`.
#[derive(Debug, Clone, Args)]
pub struct ResumeArgs {
    /// Run id.
    pub id: String,
    /// Why; kept in the history.
    #[arg(long)]
    pub reason: String,
    /// Who says so; kept in the history.
    #[arg(
        long,
        value_name = "NAME",
        env = "USER",
        hide_env_values = true,
        default_value = "operator"
    )]
    pub actor: String,
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
