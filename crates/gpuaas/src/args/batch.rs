//! `gpuaas batch`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::shared::{ActorArgs, WatchedShowArgs, filter_of};
use gpuaas_client::arguments::ApiArgs;
use gpuaas_types::filter::{FilterList, ListFilter};

/// `gpuaas batch`.
#[derive(Debug, Subcommand)]
pub enum BatchCommand {
    /// Onboard the machines in a manifest, canaries first.
    Start(BatchStartArgs),
    /// List batches.
    List(BatchListArgs),
    /// Show the progress of a batch, machine by machine.
    Show(WatchedShowArgs),
    /// Resume a stopped batch with the latest revision of its profile.
    Resume(BatchOrderArgs),
    /// Start no further machines; machines in progress continue.
    Stop(BatchOrderArgs),
}

/// `gpuaas batch list`.
#[derive(Debug, Clone, Args)]
pub struct BatchListArgs {
    /// Only batches of this site; required if your role is limited to some sites.
    #[arg(long)]
    pub site: Option<String>,
    /// Filter expression, such as `name~rack stopped=true`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Batches))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas batch start`.
#[derive(Debug, Clone, Args)]
pub struct BatchStartArgs {
    /// Manifest in JSON or YAML; `-` reads stdin.
    pub file: PathBuf,
    /// Check the manifest and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Take over machines that are deployed or owned by other MAAS users, and erase their data;
    /// shows each one first.
    #[arg(long, requires = "reason")]
    pub take_over: bool,
    /// Reason for taking over machines in use, recorded in the history.
    #[arg(long, value_name = "TEXT", requires = "take_over")]
    pub reason: Option<String>,
    /// Take over machines in use without confirmation.
    #[arg(long, requires = "take_over")]
    pub yes: bool,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Idempotency key: repeated requests with this key take effect once.
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Follow the batch until it is done or needs an operator.
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Maximum wait in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, requires = "wait")]
    pub timeout: u64,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas batch resume` and `gpuaas batch stop`.
#[derive(Debug, Clone, Args)]
pub struct BatchOrderArgs {
    /// Name or ID.
    pub name: String,
    /// Reason, recorded in the history.
    #[arg(long)]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Follow the batch until it is done or needs an operator.
    #[arg(long)]
    pub wait: bool,
    /// Maximum wait in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, requires = "wait")]
    pub timeout: u64,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
