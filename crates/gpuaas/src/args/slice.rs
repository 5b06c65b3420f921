//! `gpuaas slice`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::shared::{ActorArgs, filter_of};
use gpuaas_client::arguments::ApiArgs;
use gpuaas_types::claim::NumaPreference;
use gpuaas_types::filter::{FilterList, ListFilter};

/// `gpuaas slice`.
#[derive(Debug, Subcommand)]
pub enum SliceCommand {
    /// Discover the devices of a node for slices, through its agent; changes nothing.
    Discover(SliceDiscoverArgs),
    /// Show the candidate slots of a node and their blockers.
    Map(SliceMapArgs),
    /// Approve slots of a slot map for leasing.
    Approve(SliceApproveArgs),
    /// List slots, with counts of slots to review and free slots.
    List(SliceListArgs),
    /// Reserve slots of one node whose GPUs the fabric can connect, or a whole node, for an owner.
    Claim(SliceClaimArgs),
    /// Show a claim with its devices, or list open claims.
    Show(SliceShowArgs),
    /// Launch the guest of a reserved claim.
    Launch(SliceLaunchArgs),
    /// Release a claim; launched slots become free again once they are proven clean.
    Release(SliceReleaseArgs),
    /// Confirm that a slot is clean after an unproven or failed release, and free it.
    Recover(SliceRecoverArgs),
}

/// `gpuaas slice discover`.
#[derive(Debug, Clone, Args)]
pub struct SliceDiscoverArgs {
    /// Hostname, node ID, MAAS system ID or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Reason, recorded in the history.
    #[arg(long, value_name = "TEXT", default_value = "requested on the command line")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Seconds within which the agent must start.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub within: u32,
    /// Wait for the result; exit with code 5 if discovery failed.
    #[arg(long)]
    pub wait: bool,
    /// Maximum wait in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, requires = "wait")]
    pub timeout: u64,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice map`.
#[derive(Debug, Clone, Args)]
pub struct SliceMapArgs {
    /// Hostname, node ID, MAAS system ID or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Show differences from the map of the previous discovery.
    #[arg(long)]
    pub diff: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice approve`.
#[derive(Debug, Clone, Args)]
pub struct SliceApproveArgs {
    /// Hostname, node ID, MAAS system ID or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Digest of the map that you reviewed, as shown by `gpuaas slice map HOST`.
    #[arg(long)]
    pub digest: String,
    /// Slot number; repeat for more [default: all slots without a blocker].
    #[arg(long = "slot", value_name = "NUMBER")]
    pub slots: Vec<u32>,
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

/// `gpuaas slice list`.
#[derive(Debug, Clone, Args)]
pub struct SliceListArgs {
    /// Only for this site.
    #[arg(long)]
    pub site: Option<String>,
    /// Filter expression, such as `state=free,candidate`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Slots))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice claim`.
#[derive(Debug, Clone, Args)]
pub struct SliceClaimArgs {
    /// Number of GPUs on one node: 1, 2, 4 or 8, if the fabric has such partitions.
    #[arg(long, value_name = "N", required_unless_present = "whole_node")]
    pub gpus: Option<u32>,
    /// Lease a whole bare-metal host, immediately and until the claim is released.
    #[arg(long, conflicts_with_all = ["gpus", "numa", "reserved_seconds"])]
    pub whole_node: bool,
    /// Only nodes of this site.
    #[arg(long)]
    pub site: Option<String>,
    /// Whether the GPUs must span as few NUMA nodes as possible: required or preferred.
    #[arg(long, default_value = "required", value_parser = numa)]
    pub numa: NumaPreference,
    /// Owner of the slots.
    #[arg(long, value_name = "NAME")]
    pub owner: String,
    /// Seconds until the claim expires unless it is launched.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 900)]
    pub reserved_seconds: u32,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT", default_value = "requested on the command line")]
    pub reason: String,
    /// Idempotency key: a repeated command with this key returns the first claim.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice show`.
#[derive(Debug, Clone, Args)]
pub struct SliceShowArgs {
    /// Claim ID or unique prefix.
    pub claim: Option<String>,
    /// Only for this site.
    #[arg(long, conflicts_with = "claim")]
    pub site: Option<String>,
    /// Include claims that have ended.
    #[arg(long, conflicts_with = "claim")]
    pub ended: bool,
    /// Filter expression, such as `owner=team-a state=reserved`: docs/reference/filters.md.
    #[arg(long, conflicts_with = "claim", value_name = "FILTER", value_parser = filter_of(FilterList::Claims))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice release`.
#[derive(Debug, Clone, Args)]
pub struct SliceReleaseArgs {
    /// Claim ID or unique prefix.
    pub claim: String,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Proceed only if this is the claim's current fencing token.
    #[arg(long, value_name = "NUMBER")]
    pub fence: Option<u64>,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice launch`.
#[derive(Debug, Clone, Args)]
pub struct SliceLaunchArgs {
    /// Claim ID or unique prefix.
    pub claim: String,
    /// Guest image, the name of a file in /var/lib/gpuaas/guest-images on the host.
    #[arg(long, value_name = "NAME")]
    pub image: String,
    /// File with cloud-init user-data for the guest; stored sealed until the launch ends.
    #[arg(long, value_name = "FILE")]
    pub user_data: Option<PathBuf>,
    /// Seconds until the guest's first call, which cloud-init makes after all user-data has run; a
    /// silent guest gets this time once more [default: 800].
    #[arg(long = "guest-timeout", value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(60..=86_400))]
    pub guest_timeout_seconds: Option<u32>,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT", default_value = "requested on the command line")]
    pub reason: String,
    /// Proceed only if this is the claim's current fencing token.
    #[arg(long, value_name = "NUMBER")]
    pub fence: Option<u64>,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice recover`.
#[derive(Debug, Clone, Args)]
pub struct SliceRecoverArgs {
    /// Slot, as NODE/NUMBER.
    #[arg(value_name = "SLOT", value_parser = slot)]
    pub slot: SlotArgument,
    /// Reason why the slot can be used again, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// A slot of a node, NODE/NUMBER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotArgument {
    /// Hostname, node ID, MAAS system ID or MAC.
    pub node: String,
    /// Number of the slot.
    pub index: u32,
}

fn slot(text: &str) -> Result<SlotArgument, String> {
    let parts = text.rsplit_once('/');
    let index = parts.and_then(|(_, index)| index.parse().ok());
    match (parts, index) {
        (Some((node, _)), Some(index)) if !node.is_empty() => {
            Ok(SlotArgument { node: node.to_owned(), index })
        }
        _ => Err("expected NODE/NUMBER, such as j22u11/3".to_owned()),
    }
}

fn numa(text: &str) -> Result<NumaPreference, String> {
    text.parse().map_err(|_| "expected required or preferred".to_owned())
}
