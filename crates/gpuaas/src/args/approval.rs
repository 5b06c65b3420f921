//! `gpuaas approval`.

use clap::{Args, Subcommand};
use gpuaas_client::arguments::ApiArgs;

use super::shared::{ActorArgs, PlannedArgs, ShowArgs};

/// `gpuaas approval`.
#[derive(Debug, Subcommand)]
pub enum ApprovalCommand {
    /// List what waits for another person, the newest first.
    List(ApprovalListArgs),
    /// Show what was asked, by whom, and what became of it.
    Show(ShowArgs),
    /// Let what another person asked go on; it is shown first, and carried out once.
    Approve(ApprovalApproveArgs),
    /// Say no to what was asked; who asked may take it back so.
    Deny(ApprovalDenyArgs),
}

/// `gpuaas approval list`.
#[derive(Debug, Clone, Args)]
pub struct ApprovalListArgs {
    /// Only what concerns this site; a role for some sites wants one.
    #[arg(long)]
    pub site: Option<String>,
    /// What was decided or has expired, too.
    #[arg(long)]
    pub all: bool,
    /// Look again whenever something happens, and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas approval approve`.
#[derive(Debug, Clone, Args)]
pub struct ApprovalApproveArgs {
    /// Identifier of the approval, or the begin of one.
    #[arg(value_name = "ID")]
    pub id: String,
    /// Why, and whether to ask.
    #[command(flatten)]
    pub planned: PlannedArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas approval deny`.
#[derive(Debug, Clone, Args)]
pub struct ApprovalDenyArgs {
    /// Identifier of the approval, or the begin of one.
    #[arg(value_name = "ID")]
    pub id: String,
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
