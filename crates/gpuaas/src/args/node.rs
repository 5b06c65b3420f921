//! `gpuaas node`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gpuaas_types::NodeState;
use gpuaas_types::filter::{FilterList, ListFilter};

use super::audit::NodeTimelineArgs;
use super::node_task::{NodeTaskArgs, NodeTasksArgs};
use super::shared::{ActorArgs, PlannedArgs, ShowArgs, WatchedShowArgs, filter_of};
use super::telemetry::ConvergeTelemetryArgs;
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas node`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Bring machines to active.
    Onboard(Box<OnboardArgs>),
    /// List nodes.
    List(NodeListArgs),
    /// Show one node with its history.
    Show(WatchedShowArgs),
    /// Show the history of a node, the oldest line first.
    Timeline(NodeTimelineArgs),
    /// Correct what is known of a node's machine and its site; a parked run reads it when resumed.
    Set(Box<NodeSetArgs>),
    /// Take a node out of service: drain, release in MAAS, power off.
    Decommission(OffboardArgs),
    /// Release, deploy and enroll a node again, through the same gates.
    Reimage(ReimageArgs),
    /// Have the agent stop the tenant's processes and empty its folders; MAAS is not asked.
    SoftReset(OffboardArgs),
    /// Have the agent empty the scratch storage; MAAS is not asked.
    StorageCleanup(OffboardArgs),
    /// Give a machine up without touching it in MAAS.
    Detach(OffboardArgs),
    /// Put away the record of a retired or detached node.
    Remove(OffboardArgs),
    /// Have the agent of a node do something: change a service, repair drift, update packages ...
    Task(Box<NodeTaskArgs>),
    /// List what the agent of a node was told to do.
    Tasks(NodeTasksArgs),
    /// Withdraw a node's certificates: its agent is refused from the next call on.
    RevokeCertificate(RevokeCertificateArgs),
    /// Show the certificates that a node was given.
    Certificates(ShowArgs),
    /// Look at a node's telemetry from the control plane, and say where a fault of it is.
    Telemetry(ShowArgs),
    /// Repair a host's telemetry edge in place, over ssh.
    ConvergeTelemetry(ConvergeTelemetryArgs),
}

/// `gpuaas node revoke-certificate`.
#[derive(Debug, Clone, Args)]
pub struct RevokeCertificateArgs {
    /// Hostname, node id, MAAS system id or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Why, and whether to ask.
    #[command(flatten)]
    pub planned: PlannedArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas node set`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("correction").required(true).multiple(true).args(
    ["macs", "bmc_address", "bmc_user", "bmc_pass_file", "power_type", "architecture", "site",
        "system_id", "serial"]
))]
pub struct NodeSetArgs {
    /// Hostname, node id, MAAS system id or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// MAC address of a boot interface, in the place of all that were given; repeat for more.
    #[arg(long = "mac", value_name = "MAC")]
    pub macs: Vec<String>,
    /// Address of the machine's BMC.
    #[arg(long, value_name = "ADDRESS")]
    pub bmc_address: Option<String>,
    /// BMC user.
    #[arg(long, value_name = "USER")]
    pub bmc_user: Option<String>,
    /// File that holds the BMC password; `-` reads stdin.
    #[arg(long, value_name = "FILE")]
    pub bmc_pass_file: Option<PathBuf>,
    /// Power driver of MAAS.
    #[arg(long, value_name = "DRIVER")]
    pub power_type: Option<String>,
    /// Architecture, such as amd64/generic.
    #[arg(long, value_name = "ARCH")]
    pub architecture: Option<String>,
    /// Site that the host is at, while no machine is bound to the node.
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// MAAS' identifier of the machine that the parked run is to take; "" compares none.
    #[arg(long, value_name = "ID")]
    pub system_id: Option<String>,
    /// Serial number that the chassis has to have, for the parked run; "" compares none.
    #[arg(long, value_name = "SERIAL")]
    pub serial: Option<String>,
    /// Why; kept in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// A command that takes something away from a node: it shows its plan first.
#[derive(Debug, Clone, Args)]
pub struct OffboardArgs {
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
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
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

/// `gpuaas node reimage`.
#[derive(Debug, Clone, Args)]
pub struct ReimageArgs {
    /// Profile to deploy the node with, which is its own from then on; without it the node's own, at
    /// its newest revision.
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// What every change of a node has.
    #[command(flatten)]
    pub common: OffboardArgs,
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
    /// File that has the hosts' BMC and MAC addresses: a batch's manifest, or what `gpuaas maas-sim
    /// --write-hosts` wrote.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bmc_address", "macs"])]
    pub machines: Option<PathBuf>,
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
    /// MAAS' identifier of the machine.
    #[arg(long, value_name = "ID")]
    pub system_id: Option<String>,
    /// Serial number of the machine's chassis.
    #[arg(long, value_name = "SERIAL")]
    pub serial: Option<String>,
    /// Take a machine that is deployed or that another user of MAAS owns, with everything on it.
    #[arg(long, requires = "reason")]
    pub take_over: bool,
    /// Why a machine in use is taken; kept in the history.
    #[arg(long, value_name = "TEXT", requires = "take_over")]
    pub reason: Option<String>,
    /// Only show what would be done.
    #[arg(long, conflicts_with = "wait")]
    pub dry_run: bool,
    /// Do not ask before a machine in use is taken.
    #[arg(long, requires = "take_over")]
    pub yes: bool,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
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
    /// Deleted nodes, too.
    #[arg(long, conflicts_with_all = ["state", "stuck"])]
    pub all: bool,
    /// Only nodes whose run stopped or takes longer than expected, and why.
    #[arg(long, conflicts_with = "state")]
    pub stuck: bool,
    /// Only what this lets pass, such as `state=active site=lab hostname~gpu-`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Nodes))]
    pub filter: Option<ListFilter>,
    /// Look again whenever something happens, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

fn node_state(text: &str) -> Result<NodeState, String> {
    text.parse().map_err(|_| {
        let all: Vec<&str> = NodeState::ALL.iter().map(|state| state.as_str()).collect();
        format!("use one of {}", all.join(", "))
    })
}
