//! Arguments that several operator commands share.

use clap::Args;
use gpuaas_client::arguments::ApiArgs;
use gpuaas_types::coded_error::CodedError as _;
use gpuaas_types::filter::{FilterList, ListFilter, parse_filter};

/// Options that name the actor of a change.
#[derive(Debug, Clone, Args)]
pub struct ActorArgs {
    /// Name of the person who makes the change, recorded in the history.
    #[arg(
        long,
        value_name = "NAME",
        env = "USER",
        hide_env_values = true,
        default_value = "operator"
    )]
    pub actor: String,
}

/// Options of commands that show their plan before they change anything.
#[derive(Debug, Clone, Args)]
pub struct PlannedArgs {
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Show the plan and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Skip the confirmation.
    #[arg(long)]
    pub yes: bool,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
}

/// Options of changes to a site or profile that show their plan first.
#[derive(Debug, Clone, Args)]
pub struct PlannedChangeArgs {
    /// Name of the site or profile.
    pub name: String,
    /// Reason and confirmation options.
    #[command(flatten)]
    pub planned: PlannedArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// Parser for `--filter` expressions of this list.
pub(super) fn filter_of(
    list: FilterList,
) -> impl Fn(&str) -> Result<ListFilter, String> + Clone + Send + Sync + 'static {
    move |text| {
        let read = parse_filter(list, text);
        read.map_err(|error| format!("{error}; {}", error.hint()))
    }
}

/// Options of commands that show one item and can watch it.
#[derive(Debug, Clone, Args)]
pub struct WatchedShowArgs {
    /// Name, connection and output options.
    #[command(flatten)]
    pub show: ShowArgs,
    /// Refresh on every event, until interrupted.
    #[arg(long)]
    pub watch: bool,
}

/// Options of commands that list everything.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// Options of commands that show one item.
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// Name or ID.
    pub name: String,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
