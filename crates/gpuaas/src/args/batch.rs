//! `gpuaas batch`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::shared::{ActorArgs, WatchedShowArgs, filter_of};
use gpuaas_client::arguments::ApiArgs;
use gpuaas_types::filter::{FilterList, ListFilter};

/// `gpuaas batch`.
#[derive(Debug, Subcommand)]
pub enum BatchCommand {
    /// Onboard the machines of a manifest, canaries first.
    Start(BatchStartArgs),
    /// List batches.
    List(BatchListArgs),
    /// Show how far one batch is, machine by machine.
    Show(WatchedShowArgs),
    /// Let a stopped batch go on, with the latest revision of its profile.
    Resume(BatchOrderArgs),
    /// Begin no further machine; those under way go on.
    Stop(BatchOrderArgs),
}

/// `gpuaas batch list`.
#[derive(Debug, Clone, Args)]
pub struct BatchListArgs {
    /// Only batches of this site; a role for some sites wants one.
    #[arg(long)]
    pub site: Option<String>,
    /// Only what this lets pass, such as `name~rack stopped=true`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Batches))]
    pub filter: Option<ListFilter>,
    /// Look again whenever something happens, and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas batch start`.
#[derive(Debug, Clone, Args)]
pub struct BatchStartArgs {
    /// Manifest, JSON or YAML; `-` reads stdin.
    pub file: PathBuf,
    /// Check the whole manifest and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Take the machines that are deployed or that other users of MAAS own, with everything on them;
    /// each is shown first.
    #[arg(long, requires = "reason")]
    pub take_over: bool,
    /// Why machines in use are taken; kept in the history.
    #[arg(long, value_name = "TEXT", requires = "take_over")]
    pub reason: Option<String>,
    /// Do not ask before machines in use are taken.
    #[arg(long, requires = "take_over")]
    pub yes: bool,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// The request may be repeated under this key and takes effect once.
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Follow the batch until it is done, or until nothing moves without a person.
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Seconds to wait at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, requires = "wait")]
    pub timeout: u64,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas batch resume` and `gpuaas batch stop`.
#[derive(Debug, Clone, Args)]
pub struct BatchOrderArgs {
    /// Name or id.
    pub name: String,
    /// Why; kept in the history.
    #[arg(long)]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Follow the batch until it is done, or until nothing moves without a person.
    #[arg(long)]
    pub wait: bool,
    /// Seconds to wait at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, requires = "wait")]
    pub timeout: u64,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}
