//! `gpuaas approval`.

use clap::{Args, Subcommand};
use gpuaas_client::arguments::ApiArgs;

use super::shared::{ActorArgs, PlannedArgs, ShowArgs};

/// `gpuaas approval`.
#[derive(Debug, Subcommand)]
pub enum ApprovalCommand {
    /// List requests that need a second person, newest first.
    List(ApprovalListArgs),
    /// Show a request, its requester and its outcome.
    Show(ShowArgs),
    /// Approve another person's request; shows it first and executes it once.
    Approve(ApprovalApproveArgs),
    /// Deny a request; requesters can withdraw their own this way.
    Deny(ApprovalDenyArgs),
}

/// `gpuaas approval list`.
#[derive(Debug, Clone, Args)]
pub struct ApprovalListArgs {
    /// Only requests for this site; required if your role is limited to some sites.
    #[arg(long)]
    pub site: Option<String>,
    /// Include decided and expired requests.
    #[arg(long)]
    pub all: bool,
    /// Refresh on every event and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas approval approve`.
#[derive(Debug, Clone, Args)]
pub struct ApprovalApproveArgs {
    /// Approval ID or unique prefix.
    #[arg(value_name = "ID")]
    pub id: String,
    /// Reason and confirmation options.
    #[command(flatten)]
    pub planned: PlannedArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas approval deny`.
#[derive(Debug, Clone, Args)]
pub struct ApprovalDenyArgs {
    /// Approval ID or unique prefix.
    #[arg(value_name = "ID")]
    pub id: String,
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
