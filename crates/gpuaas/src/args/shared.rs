//! Arguments that several operator commands share.

use clap::Args;
use gpuaas_client::arguments::ApiArgs;

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

/// A command that removes something: it shows its plan first.
#[derive(Debug, Clone, Args)]
pub struct RemoveArgs {
    /// Name of the site or the profile.
    pub name: String,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Only show what would be deleted.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
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
