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
    /// Have the agent of a node read what slices can be made of; it changes nothing.
    Discover(SliceDiscoverArgs),
    /// Show the candidate slots of a node, and what keeps each from being used.
    Map(SliceMapArgs),
    /// Let slots of the map with this digest be leased.
    Approve(SliceApproveArgs),
    /// List slots, and how many wait for an approval and how many are free.
    List(SliceListArgs),
    /// Reserve slots of one node for an owner, a set of GPUs that the fabric can join; or a whole node.
    Claim(SliceClaimArgs),
    /// Show a claim with its devices; without one, the claims that are not over.
    Show(SliceShowArgs),
    /// Start the guest of a reserved claim.
    Launch(SliceLaunchArgs),
    /// End a claim; what was launched is taken back, and free again once it is proven clean.
    Release(SliceReleaseArgs),
    /// Answer for a slot whose release is unproven, or that failed: it is free again at your word.
    Recover(SliceRecoverArgs),
}

/// `gpuaas slice discover`.
#[derive(Debug, Clone, Args)]
pub struct SliceDiscoverArgs {
    /// Hostname, node id, MAAS system id or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Why; kept in the history.
    #[arg(long, value_name = "TEXT", default_value = "asked on the command line")]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Seconds within which the agent has to begin.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub within: u32,
    /// Wait for the result; exit code 5 where the host was not read.
    #[arg(long)]
    pub wait: bool,
    /// Seconds to wait at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, requires = "wait")]
    pub timeout: u64,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice map`.
#[derive(Debug, Clone, Args)]
pub struct SliceMapArgs {
    /// Hostname, node id, MAAS system id or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Show what is otherwise than in the map of the discovery before.
    #[arg(long)]
    pub diff: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice approve`.
#[derive(Debug, Clone, Args)]
pub struct SliceApproveArgs {
    /// Hostname, node id, MAAS system id or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Digest of the map that was looked at, as `gpuaas slice map` shows it.
    #[arg(long)]
    pub digest: String,
    /// Number of a slot; repeat for more. None: each that has no blocker.
    #[arg(long = "slot", value_name = "NUMBER")]
    pub slots: Vec<u32>,
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

/// `gpuaas slice list`.
#[derive(Debug, Clone, Args)]
pub struct SliceListArgs {
    /// Only of this site.
    #[arg(long)]
    pub site: Option<String>,
    /// Only what this lets pass, such as `state=free,candidate`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Slots))]
    pub filter: Option<ListFilter>,
    /// Look again whenever something happens, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice claim`.
#[derive(Debug, Clone, Args)]
pub struct SliceClaimArgs {
    /// GPUs, all of one node: 1, 2, 4 or 8 where the fabric has such partitions.
    #[arg(long, value_name = "N", required_unless_present = "whole_node")]
    pub gpus: Option<u32>,
    /// A bare-metal host as a whole, which the owner has at once, until the claim is released.
    #[arg(long, conflicts_with_all = ["gpus", "numa", "reserved_seconds"])]
    pub whole_node: bool,
    /// Only at this site.
    #[arg(long)]
    pub site: Option<String>,
    /// Whether the GPUs have to be of as few NUMA nodes as their number allows.
    #[arg(long, default_value = "required", value_parser = numa)]
    pub numa: NumaPreference,
    /// Who has the slots from then on.
    #[arg(long, value_name = "NAME")]
    pub owner: String,
    /// Seconds after which the claim expires, unless it was launched.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 900)]
    pub reserved_seconds: u32,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT", default_value = "asked on the command line")]
    pub reason: String,
    /// Claims with the same key are one: a repeated command answers the first one's claim.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice show`.
#[derive(Debug, Clone, Args)]
pub struct SliceShowArgs {
    /// Identifier of a claim, or the begin of one.
    pub claim: Option<String>,
    /// Only of this site.
    #[arg(long, conflicts_with = "claim")]
    pub site: Option<String>,
    /// Show claims that ended, too.
    #[arg(long, conflicts_with = "claim")]
    pub ended: bool,
    /// Only what this lets pass, such as `owner=team-a state=reserved`: docs/reference/filters.md.
    #[arg(long, conflicts_with = "claim", value_name = "FILTER", value_parser = filter_of(FilterList::Claims))]
    pub filter: Option<ListFilter>,
    /// Look again whenever something happens, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice release`.
#[derive(Debug, Clone, Args)]
pub struct SliceReleaseArgs {
    /// Identifier of the claim, or the begin of it.
    pub claim: String,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Only while this is the claim's fencing token.
    #[arg(long, value_name = "NUMBER")]
    pub fence: Option<u64>,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice launch`.
#[derive(Debug, Clone, Args)]
pub struct SliceLaunchArgs {
    /// Identifier of the claim, or the begin of it.
    pub claim: String,
    /// Name of the guest's image, a file in /var/lib/gpuaas/guest-images of the host.
    #[arg(long, value_name = "NAME")]
    pub image: String,
    /// File with user-data for the guest's cloud-init; stored sealed until the launch ends.
    #[arg(long, value_name = "FILE")]
    pub user_data: Option<PathBuf>,
    /// Longest time until the guest's first call, which cloud-init makes once all of the user-data has run; a
    /// silent guest is waited for once more that long [default: 800].
    #[arg(long = "guest-timeout", value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(60..=86_400))]
    pub guest_timeout_seconds: Option<u32>,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT", default_value = "asked on the command line")]
    pub reason: String,
    /// Only while this is the claim's fencing token.
    #[arg(long, value_name = "NUMBER")]
    pub fence: Option<u64>,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas slice recover`.
#[derive(Debug, Clone, Args)]
pub struct SliceRecoverArgs {
    /// The slot as NODE/NUMBER.
    #[arg(value_name = "SLOT", value_parser = slot)]
    pub slot: SlotArgument,
    /// Why it may be used again; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// A slot of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotArgument {
    /// Hostname, node id, MAAS system id or MAC.
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
        _ => Err("a slot is NODE/NUMBER, such as j22u11/3".to_owned()),
    }
}

fn numa(text: &str) -> Result<NumaPreference, String> {
    text.parse().map_err(|_| "it is required or preferred".to_owned())
}
