//! Arguments of the commands of `gpuaas image` that are about images of sites.

use clap::Args;
use gpuaas_client::arguments::ApiArgs;

use super::shared::{ActorArgs, PlannedArgs};

/// `gpuaas image list`.
#[derive(Debug, Clone, Args)]
pub struct ImageListArgs {
    /// Only of this site; a role for some sites wants one.
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas image approve`.
#[derive(Debug, Clone, Args)]
pub struct ImageApproveArgs {
    /// Name in MAAS; one that nobody recorded is looked for in the site's region.
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// The site.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// As a canary: for so many nodes alone.
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub canary: Option<u32>,
    /// Approve although the site has no verdict of the lint on its file, or one with errors, for this
    /// reason; kept in the history.
    #[arg(long, value_name = "TEXT")]
    pub lint_waiver: Option<String>,
    /// Days after which it may not be deployed any more [default: it has no end].
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub expires_days: Option<u32>,
    /// Why; kept in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas image deprecate` and `image revoke`.
#[derive(Debug, Clone, Args)]
pub struct ImageStateArgs {
    /// Name in MAAS.
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// The site.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Why; kept in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas image rollback`.
#[derive(Debug, Clone, Args)]
pub struct ImageRollbackArgs {
    /// Profile that is to name another image.
    #[arg(long, value_name = "NAME")]
    pub profile: String,
    /// Site whose approvals count.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Image to go back to [default: the one that the profile named before and that the site still
    /// approves, else ubuntu/noble].
    #[arg(long, value_name = "IMAGE")]
    pub to: Option<String>,
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

/// `gpuaas image delete`.
#[derive(Debug, Clone, Args)]
pub struct ImageDeleteArgs {
    /// Name in MAAS.
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// The site.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Why, and whether to ask.
    #[command(flatten)]
    pub planned: PlannedArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}
