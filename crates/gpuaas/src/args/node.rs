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
    /// Onboard machines until they are active.
    Onboard(Box<OnboardArgs>),
    /// List nodes.
    List(NodeListArgs),
    /// Show a node with its history.
    Show(WatchedShowArgs),
    /// Show the history of a node, oldest entry first.
    Timeline(NodeTimelineArgs),
    /// Correct a node's machine data or site; a parked run uses the new values when resumed.
    Set(Box<NodeSetArgs>),
    /// Take a node out of service: drain it, release it in MAAS, power it off.
    Decommission(OffboardArgs),
    /// Release, redeploy and re-enroll a node, with the same gates.
    Reimage(ReimageArgs),
    /// Stop the tenant's processes and empty its folders through the agent, without MAAS.
    SoftReset(OffboardArgs),
    /// Empty the scratch storage through the agent, without MAAS.
    StorageCleanup(OffboardArgs),
    /// Stop managing a machine without changing it in MAAS.
    Detach(OffboardArgs),
    /// Remove the record of a retired or detached node.
    Remove(OffboardArgs),
    /// Run a task on a node's agent: change a service, repair drift, update packages ...
    Task(Box<NodeTaskArgs>),
    /// List tasks of a node's agent.
    Tasks(NodeTasksArgs),
    /// Revoke a node's certificates; its agent's next call is rejected.
    RevokeCertificate(RevokeCertificateArgs),
    /// Show the certificates issued to a node.
    Certificates(ShowArgs),
    /// Check a node's telemetry from the control plane, and locate faults.
    Telemetry(ShowArgs),
    /// Repair a host's telemetry setup in place, over ssh.
    ConvergeTelemetry(ConvergeTelemetryArgs),
}

/// `gpuaas node revoke-certificate`.
#[derive(Debug, Clone, Args)]
pub struct RevokeCertificateArgs {
    /// Hostname, node ID, MAAS system ID or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Reason and confirmation options.
    #[command(flatten)]
    pub planned: PlannedArgs,
    /// Connection and output options.
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
    /// Hostname, node ID, MAAS system ID or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// MAC address of a boot interface, which replaces all earlier ones; repeat for more.
    #[arg(long = "mac", value_name = "MAC")]
    pub macs: Vec<String>,
    /// BMC address of the machine.
    #[arg(long, value_name = "ADDRESS")]
    pub bmc_address: Option<String>,
    /// BMC user.
    #[arg(long, value_name = "USER")]
    pub bmc_user: Option<String>,
    /// File with the BMC password; `-` reads stdin.
    #[arg(long, value_name = "FILE")]
    pub bmc_pass_file: Option<PathBuf>,
    /// MAAS power driver.
    #[arg(long, value_name = "DRIVER")]
    pub power_type: Option<String>,
    /// Architecture, such as amd64/generic.
    #[arg(long, value_name = "ARCH")]
    pub architecture: Option<String>,
    /// Site of the host; only possible while no machine is bound to the node.
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// MAAS system ID that the parked run must find; "" skips this comparison.
    #[arg(long, value_name = "ID")]
    pub system_id: Option<String>,
    /// Chassis serial number that the parked run must find; "" skips this comparison.
    #[arg(long, value_name = "SERIAL")]
    pub serial: Option<String>,
    /// Reason, recorded in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// Options of disruptive commands on a node, which show their plan first.
#[derive(Debug, Clone, Args)]
pub struct OffboardArgs {
    /// Hostname, node ID, MAAS system ID or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Show the plan and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Skip the confirmation.
    #[arg(long)]
    pub yes: bool,
    /// Reason, recorded in the history.
    #[arg(long, value_name = "TEXT", default_value = "requested on the command line")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Follow the work until it ends.
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Maximum wait in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, requires = "wait")]
    pub timeout: u64,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas node reimage`.
#[derive(Debug, Clone, Args)]
pub struct ReimageArgs {
    /// Profile to deploy, which becomes the node's profile [default: the node's profile, at its
    /// latest revision].
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Options of every disruptive command on a node.
    #[command(flatten)]
    pub common: OffboardArgs,
}

/// `gpuaas node onboard`.
#[derive(Debug, Clone, Args)]
pub struct OnboardArgs {
    /// Short hostname; several hosts share all options except BMC and MAC.
    #[arg(required = true, value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Site name.
    #[arg(long)]
    pub site: String,
    /// Profile name.
    #[arg(long)]
    pub profile: String,
    /// File with BMC and MAC addresses of the hosts: a batch manifest, or a file written by `gpuaas
    /// maas-sim --write-hosts`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bmc_address", "macs"])]
    pub machines: Option<PathBuf>,
    /// BMC address of the machine.
    #[arg(long, value_name = "ADDRESS")]
    pub bmc_address: Option<String>,
    /// BMC user.
    #[arg(long, value_name = "USER", requires = "bmc_address")]
    pub bmc_user: Option<String>,
    /// File with the BMC password; `-` reads stdin.
    #[arg(long, value_name = "FILE", requires = "bmc_address")]
    pub bmc_pass_file: Option<PathBuf>,
    /// MAAS power driver [default: ipmi with a BMC address, or else manual].
    #[arg(long, value_name = "DRIVER")]
    pub power_type: Option<String>,
    /// MAC address of a boot interface; repeat for more.
    #[arg(long = "mac", value_name = "MAC")]
    pub macs: Vec<String>,
    /// Architecture [default: amd64/generic].
    #[arg(long, value_name = "ARCH")]
    pub architecture: Option<String>,
    /// MAAS system ID of the machine.
    #[arg(long, value_name = "ID")]
    pub system_id: Option<String>,
    /// Chassis serial number of the machine.
    #[arg(long, value_name = "SERIAL")]
    pub serial: Option<String>,
    /// Take over a machine that is deployed or owned by another MAAS user, and erase its data.
    #[arg(long, requires = "reason")]
    pub take_over: bool,
    /// Reason for taking over a machine in use, recorded in the history.
    #[arg(long, value_name = "TEXT", requires = "take_over")]
    pub reason: Option<String>,
    /// Show the plan and change nothing.
    #[arg(long, conflicts_with = "wait")]
    pub dry_run: bool,
    /// Take over a machine in use without confirmation.
    #[arg(long, requires = "take_over")]
    pub yes: bool,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Follow the work until it ends, then show how long each step took.
    #[arg(long)]
    pub wait: bool,
    /// Maximum wait in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, requires = "wait")]
    pub timeout: u64,
    /// Connection and output options.
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
    /// Include deleted nodes.
    #[arg(long, conflicts_with_all = ["state", "stuck"])]
    pub all: bool,
    /// Only nodes whose run is stopped or slower than expected, with the reason.
    #[arg(long, conflicts_with = "state")]
    pub stuck: bool,
    /// Filter expression, such as `state=active site=lab hostname~gpu-`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Nodes))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

fn node_state(text: &str) -> Result<NodeState, String> {
    text.parse().map_err(|_| {
        let all: Vec<&str> = NodeState::ALL.iter().map(|state| state.as_str()).collect();
        format!("expected one of {}", all.join(", "))
    })
}
