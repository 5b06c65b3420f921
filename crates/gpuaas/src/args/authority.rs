//! `gpuaas authority`.

use clap::{Args, Subcommand};

use super::shared::{ActorArgs, ListArgs};
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas authority`.
#[derive(Debug, Subcommand)]
pub enum AuthorityCommand {
    /// Show the certificate authority that signs nodes' certificates, and which nodes a change of it would
    /// leave behind.
    Show(ListArgs),
    /// Make the next certificate authority, which nodes learn to trust before it signs.
    Stage(AuthorityStageArgs),
    /// Let the staged certificate authority sign.
    Activate(AuthorityChangeArgs),
    /// End the trust in the certificate authority that signs no more, or in a staged one.
    Retire(AuthorityChangeArgs),
}

/// `gpuaas authority stage`.
#[derive(Debug, Clone, Args)]
pub struct AuthorityStageArgs {
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

/// `gpuaas authority activate` and `retire`.
#[derive(Debug, Clone, Args)]
pub struct AuthorityChangeArgs {
    /// Leave the nodes behind that are named otherwise.
    #[arg(long)]
    pub force: bool,
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
