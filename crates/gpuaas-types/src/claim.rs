//! What is asked of slots: how many GPUs, and how near to each other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::ClaimId;
use crate::slice::{RecordedProof, SliceRun};
use crate::string_enum::string_enum;
use crate::text;
use crate::time::Timestamp;

string_enum! {
/// Whether the GPUs of a claim have to be of as few NUMA nodes as their number allows.
NumaPreference {
    /// They have to; a set that is split further is refused.
    Required = "required",
    /// They should.
    Preferred = "preferred",
}
}

string_enum! {
/// Why a claim got no slots.
ClaimRefusal {
    /// The site has fewer free slots than are asked for.
    NoneInSite = "none_in_site",
    /// The site has enough free slots, and no node has a free set of them.
    NoSingleNodeFits = "no_single_node_fits",
    /// A node would have a free set, and is not ready for slices.
    NotReady = "not_ready",
}
}

string_enum! {
/// How a claim stands.
ClaimState {
    /// It has its slots until it expires; its launch has not begun.
    Reserved = "reserved",
    /// A launch has taken it.
    Preparing = "preparing",
    /// Its guest runs.
    InUse = "in_use",
    /// Its slots are being taken back.
    Releasing = "releasing",
    /// Something of its release is unproven.
    CleanupBlocked = "cleanup_blocked",
    /// It was given back.
    Released = "released",
    /// Nothing took it in time.
    Expired = "expired",
    /// The system of its node was released from under it.
    Lost = "lost",
}
}

impl ClaimState {
    /// Whether the claim has its slots.
    #[must_use]
    pub const fn is_live(self) -> bool {
        !matches!(self, Self::Released | Self::Expired | Self::Lost)
    }
}

string_enum! {
/// What a device of a claim is.
ClaimDeviceKind {
    /// A GPU, by its PCI address.
    Gpu = "gpu",
    /// A virtual function of the fabric, by its PCI address.
    FabricVf = "fabric_vf",
    /// A raw NVMe drive, by its serial number, or its path where it says none.
    Nvme = "nvme",
    /// The whole node, by its identifier.
    Node = "node",
}
}

/// Body of `POST /api/v1/admin/slice-claims`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// GPUs, all of one node.
    #[schemars(range(min = 1, max = 8))]
    pub gpus: u32,
    /// Name of the site; none: any site.
    #[serde(default)]
    pub site: Option<String>,
    /// How near to each other the GPUs have to be.
    #[serde(default = "required")]
    pub numa: NumaPreference,
    /// Who has the slots from then on: a tenant, or what speaks for one.
    #[schemars(with = "text::WordsText")]
    pub owner: String,
    /// Seconds for which the claim is reserved; nothing having launched it by then, it expires.
    #[serde(default = "reserved_seconds")]
    #[schemars(range(min = 10, max = 86_400))]
    pub reserved_seconds: u32,
    /// Who asks; kept in the audit.
    pub actor: String,
    /// Reason, recorded in the audit log.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

const fn required() -> NumaPreference {
    NumaPreference::Required
}

const fn reserved_seconds() -> u32 {
    900
}

/// Body of `POST /api/v1/admin/node-claims`: a bare-metal host as a whole. The owner has it at once, and
/// until the claim is released: there is nothing to launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeClaimRequest {
    /// Name of the site; none: any site.
    #[serde(default)]
    pub site: Option<String>,
    /// Who has the host from then on: a tenant, or what speaks for one.
    #[schemars(with = "text::WordsText")]
    pub owner: String,
    /// Who asks; kept in the audit.
    pub actor: String,
    /// Reason, recorded in the audit log.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// Query of `DELETE /api/v1/admin/slice-claims/CLAIM`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimReleaseQuery {
    /// Who asks; kept in the audit.
    pub actor: String,
    /// Reason, recorded in the audit log.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
    /// The claim's fencing token, where the release is of one holder alone; none: whoever has it.
    #[serde(default)]
    pub fence: Option<u64>,
}

/// A slot of a claim, with the devices that the approval pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimedSlot {
    /// Number of the slot on its node.
    pub index: u32,
    /// PCI address of the GPU.
    pub gpu: String,
    /// PCI address of the virtual function; none: the slot has none.
    pub fabric_vf: Option<String>,
    /// Serial number of the drive, or its path where it says none; none: the slot has none.
    pub nvme: Option<String>,
    /// NUMA node of cores and pages; none: unknown.
    pub numa_node: Option<u32>,
    /// CPUs as the kernel lists them.
    pub cpus: String,
    /// Pages of 1 GiB.
    pub hugepages: u32,
    /// MAC address of the guest.
    pub mac: String,
    /// Address of the guest in the slice network.
    pub private_ip: Option<String>,
}

/// Slots of one node that somebody has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimView {
    /// Identifier of the claim.
    pub id: ClaimId,
    /// Who has it.
    pub owner: String,
    /// How it stands.
    pub state: ClaimState,
    /// Hostname of the node.
    pub node: String,
    /// Name of the node's site.
    pub site: String,
    /// It has the node as a whole, with all that is in it: a bare-metal host.
    #[serde(default)]
    pub whole_node: bool,
    /// Number of GPUs; 0: that of the whole node.
    pub gpus: u32,
    /// What was asked of their places.
    pub numa: NumaPreference,
    /// Grows with each holder of the claim, and with each claim of a slot: who names an older one is
    /// refused.
    pub fence: u64,
    /// Its slots, by number.
    pub slots: Vec<ClaimedSlot>,
    /// Moment at which it was made.
    pub created_at: Timestamp,
    /// Moment at which it expires while it is reserved; none: it does not.
    pub expires_at: Option<Timestamp>,
    /// Moment at which it ended; none: it is live.
    pub ended_at: Option<Timestamp>,
    /// Why it ended; empty: it is live.
    pub reason: String,
    /// Its launch or its release; none: it was not launched, or this is a list of claims.
    #[serde(default)]
    pub run: Option<SliceRun>,
    /// What was proven of its release, oldest first; empty in a list of claims.
    #[serde(default)]
    pub proofs: Vec<RecordedProof>,
}
