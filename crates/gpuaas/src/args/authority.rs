//! `gpuaas authority`.

use clap::{Args, Subcommand};

use super::shared::{ActorArgs, ListArgs};
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas authority`.
#[derive(Debug, Subcommand)]
pub enum AuthorityCommand {
    /// Show the certificate authority that signs node certificates, and which nodes a change would
    /// lock out.
    Show(ListArgs),
    /// Create the next certificate authority; nodes start to trust it before it signs.
    Stage(AuthorityStageArgs),
    /// Sign with the staged certificate authority from now on.
    Activate(AuthorityChangeArgs),
    /// Stop trusting the former certificate authority, or discard a staged one.
    Retire(AuthorityChangeArgs),
}

/// `gpuaas authority stage`.
#[derive(Debug, Clone, Args)]
pub struct AuthorityStageArgs {
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas authority activate` and `retire`.
#[derive(Debug, Clone, Args)]
pub struct AuthorityChangeArgs {
    /// Continue even if this locks out the listed nodes.
    #[arg(long)]
    pub force: bool,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
