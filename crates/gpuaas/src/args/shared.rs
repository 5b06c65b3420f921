//! Arguments that several operator commands share.

use clap::Args;
use gpuaas_client::arguments::ApiArgs;
use gpuaas_types::coded_error::CodedError as _;
use gpuaas_types::filter::{FilterList, ListFilter, parse_filter};

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

/// What a command wants to know that shows its plan before it changes anything.
#[derive(Debug, Clone, Args)]
pub struct PlannedArgs {
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Only show what would follow.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
}

/// A change of a site or a profile that shows its plan first.
#[derive(Debug, Clone, Args)]
pub struct PlannedChangeArgs {
    /// Name of the site or the profile.
    pub name: String,
    /// Why, and whether to ask.
    #[command(flatten)]
    pub planned: PlannedArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// Reads a filter of this list: what a `--filter` takes.
pub(super) fn filter_of(
    list: FilterList,
) -> impl Fn(&str) -> Result<ListFilter, String> + Clone + Send + Sync + 'static {
    move |text| {
        let read = parse_filter(list, text);
        read.map_err(|error| format!("{error}; {}", error.hint()))
    }
}

/// A command that shows one thing, and may follow it.
#[derive(Debug, Clone, Args)]
pub struct WatchedShowArgs {
    /// Which one, and how to print.
    #[command(flatten)]
    pub show: ShowArgs,
    /// Look again whenever something happens, until interrupted.
    #[arg(long)]
    pub watch: bool,
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
