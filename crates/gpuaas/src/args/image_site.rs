//! Arguments of the commands of `gpuaas image` that are about images of sites.

use clap::Args;
use gpuaas_client::arguments::ApiArgs;

use super::shared::{ActorArgs, PlannedArgs};

/// `gpuaas image list`.
#[derive(Debug, Clone, Args)]
pub struct ImageListArgs {
    /// Only for this site; required if your role is limited to some sites.
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas image approve`.
#[derive(Debug, Clone, Args)]
pub struct ImageApproveArgs {
    /// Image name in MAAS; images without a record are looked up in the site's region.
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// The site.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Approve as a canary, for this many nodes only.
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub canary: Option<u32>,
    /// Reason to approve although the lint verdict is missing or has errors; recorded in the
    /// history.
    #[arg(long, value_name = "TEXT")]
    pub lint_waiver: Option<String>,
    /// Days after which the approval expires [default: never].
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub expires_days: Option<u32>,
    /// Reason, recorded in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas image deprecate` and `image revoke`.
#[derive(Debug, Clone, Args)]
pub struct ImageStateArgs {
    /// Image name in MAAS.
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// The site.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Reason, recorded in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas image rollback`.
#[derive(Debug, Clone, Args)]
pub struct ImageRollbackArgs {
    /// Profile to roll back.
    #[arg(long, value_name = "NAME")]
    pub profile: String,
    /// Site whose approvals apply.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Image to go back to [default: the profile's previous image if the site still approves it, or
    /// else ubuntu/noble].
    #[arg(long, value_name = "IMAGE")]
    pub to: Option<String>,
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

/// `gpuaas image delete`.
#[derive(Debug, Clone, Args)]
pub struct ImageDeleteArgs {
    /// Image name in MAAS.
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// The site.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Reason and confirmation options.
    #[command(flatten)]
    pub planned: PlannedArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
