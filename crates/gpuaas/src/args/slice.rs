//! `gpuaas slice`.

use clap::{Args, Subcommand};

use super::shared::ActorArgs;
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas slice`.
#[derive(Debug, Subcommand)]
pub enum SliceCommand {
    /// Have the agent of a node read what slices can be made of; it changes nothing.
    Discover(SliceDiscoverArgs),
    /// Show the candidate slots of a node, and what keeps each from being used.
    Map(SliceMapArgs),
    /// Let slots of the map with this digest be leased.
    Approve(SliceApproveArgs),
    /// List slots, and how many wait for an approval and how many are free.
    List(SliceListArgs),
}

/// `gpuaas slice discover`.
#[derive(Debug, Clone, Args)]
pub struct SliceDiscoverArgs {
    /// Hostname, node id, MAAS system id or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Why; kept in the history.
    #[arg(long, value_name = "TEXT", default_value = "asked on the command line")]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Seconds within which the agent has to begin.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub within: u32,
    /// Wait for the result; exit code 5 where the host was not read.
    #[arg(long)]
    pub wait: bool,
    /// Seconds to wait at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, requires = "wait")]
    pub timeout: u64,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice map`.
#[derive(Debug, Clone, Args)]
pub struct SliceMapArgs {
    /// Hostname, node id, MAAS system id or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Show what is otherwise than in the map of the discovery before.
    #[arg(long)]
    pub diff: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice approve`.
#[derive(Debug, Clone, Args)]
pub struct SliceApproveArgs {
    /// Hostname, node id, MAAS system id or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Digest of the map that was looked at, as `gpuaas slice map` shows it.
    #[arg(long)]
    pub digest: String,
    /// Number of a slot; repeat for more. None: each that has no blocker.
    #[arg(long = "slot", value_name = "NUMBER")]
    pub slots: Vec<u32>,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice list`.
#[derive(Debug, Clone, Args)]
pub struct SliceListArgs {
    /// Only of this site.
    #[arg(long)]
    pub site: Option<String>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}
