//! Slots: what of a host one slice gets, and the map of them that an operator reviews.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::ClaimId;
use crate::string_enum::string_enum;
use crate::text;
use crate::time::Timestamp;

string_enum! {
/// How a slot stands.
SlotState {
    /// Discovered; an operator has not approved it.
    Candidate = "candidate",
    /// Approved and not in use.
    Free = "free",
    /// Claimed; its launch has not begun.
    Reserved = "reserved",
    /// Its slice is being launched.
    Preparing = "preparing",
    /// Its slice runs.
    InUse = "in_use",
    /// Its slice is being taken back.
    Releasing = "releasing",
    /// Something of its release is unproven.
    CleanupBlocked = "cleanup_blocked",
    /// A device of it failed.
    Faulted = "faulted",
    /// An operator keeps it out of use.
    Held = "held",
    /// The host is no longer what was approved.
    Stale = "stale",
    /// It was taken out of service.
    Retired = "retired",
}
}

impl SlotState {
    /// Whether a live claim has the slot.
    #[must_use]
    pub const fn is_claimed(self) -> bool {
        use SlotState::{CleanupBlocked, InUse, Preparing, Releasing, Reserved};
        matches!(self, Reserved | Preparing | InUse | Releasing | CleanupBlocked)
    }
}

string_enum! {
/// Who makes a blocker go away.
BlockerFixer {
    /// Whoever has hands on the machine, its firmware or its cables.
    Hardware = "hardware",
    /// Whoever answers for the fabric.
    Fabric = "fabric",
    /// The bundles of the host, by `gpuaas node task NODE repair-drift`.
    Bundle = "bundle",
    /// An operator, on the host.
    Operator = "operator",
    /// Whoever writes profile and site.
    Profile = "profile",
}
}

/// Candidate slots of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotMap {
    /// Hostname of the node.
    pub node: String,
    /// SHA-256 of what an approval pins: serials, addresses, cores, partitions. Blockers are not in it.
    pub digest: String,
    /// What keeps the whole host from having slices.
    pub host_blockers: Vec<SlotBlocker>,
    /// Sets of slots, by index, that may be claimed together.
    pub partitions: Vec<Vec<u32>>,
    /// One for each GPU, by PCI address.
    pub slots: Vec<CandidateSlot>,
}

/// Body of `POST /api/v1/admin/nodes/NODE/slice-topology/discovery`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiscoveryRequest {
    /// Who asks; kept in the history.
    pub actor: String,
    /// Reason, recorded in the history.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
    /// Seconds within which the agent has to begin.
    #[serde(default = "within_seconds")]
    #[schemars(range(min = 10, max = 86_400))]
    pub within_seconds: u32,
}

const fn within_seconds() -> u32 {
    900
}

/// Answer to `GET /api/v1/admin/nodes/NODE/slice-topology`: the map of the last discovery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceMapView {
    /// Hostname of the node.
    pub node: String,
    /// SHA-256 of what an approval pins.
    pub digest: String,
    /// How long the agent took to read the host, in seconds.
    pub discovery_seconds: f64,
    /// What keeps the whole host from having slices.
    pub host_blockers: Vec<SlotBlocker>,
    /// Sets of slots, by index, that may be claimed together.
    pub partitions: Vec<Vec<u32>>,
    /// One for each GPU, by PCI address.
    pub slots: Vec<CandidateSlot>,
}

/// Answer to `GET /api/v1/admin/nodes/NODE/slice-topology/diff`: what became of the map of one
/// discovery by the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotMapDifference {
    /// Hostname of the node.
    pub node: String,
    /// When the earlier map was made; none: the node was discovered once.
    pub before_at: Option<Timestamp>,
    /// Digest of the earlier map.
    pub before_digest: Option<String>,
    /// When the map that is there now was made.
    pub after_at: Timestamp,
    /// Its digest.
    pub after_digest: String,
    /// Each difference; empty as well where there is no earlier map.
    pub changes: Vec<SlotChange>,
}

/// A difference between two maps of one host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct SlotChange {
    /// PCI address of the slot's GPU; none: it is of the host.
    pub gpu: Option<String>,
    /// The field, such as `nvme.serial` or `blocker gpu_held`; `slot`: all of it.
    pub what: String,
    /// How it was; empty: it was not there.
    pub before: String,
    /// How it is; empty: it is not there.
    pub after: String,
}

/// Body of `POST /api/v1/admin/nodes/NODE/slice-topology/approval`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlotApprovalRequest {
    /// Digest of the map that was looked at.
    #[schemars(with = "text::Sha256Text")]
    pub digest: String,
    /// Numbers of the slots; none: each that has no blocker.
    #[serde(default)]
    pub slots: Vec<u32>,
    /// Who approves; kept in the audit.
    pub actor: String,
    /// Reason, recorded in the audit log.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// Slots of one node or of many. What a discovery found is not what an operator approved: the two
/// counts are apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotInventory {
    /// Slots that wait for an operator: candidates and stale ones.
    pub reviewable: usize,
    /// Slots that were approved and are free.
    pub schedulable: usize,
    /// Every slot, by hostname and number.
    pub slots: Vec<SlotView>,
}

impl SlotInventory {
    /// These slots, counted.
    #[must_use]
    pub fn new(slots: Vec<SlotView>) -> Self {
        let count =
            |states: &[SlotState]| slots.iter().filter(|slot| states.contains(&slot.state)).count();
        Self {
            reviewable: count(&[SlotState::Candidate, SlotState::Stale]),
            schedulable: count(&[SlotState::Free]),
            slots,
        }
    }
}

/// A slot as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotView {
    /// Hostname of the node.
    pub node: String,
    /// Name of the node's site.
    pub site: String,
    /// Number of the slot on its node, from 0.
    pub index: u32,
    /// How it stands.
    pub state: SlotState,
    /// In this state since then.
    pub since: Timestamp,
    /// Why it is in this state.
    pub reason: String,
    /// PCI address of its GPU.
    pub gpu: String,
    /// Digest of the map that it is of; of an approved slot, that which was approved.
    pub digest: String,
    /// Who approved it; none: nobody.
    pub approved_by: Option<String>,
    /// The live claim that has it; none: none.
    #[serde(default)]
    pub claim: Option<ClaimId>,
    /// Why it will not be free when its claim ends; none: nothing is wrong with it.
    #[serde(default)]
    pub flagged: Option<String>,
    /// Codes of its blockers.
    pub blockers: Vec<String>,
}

/// What one slice of one GPU would get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CandidateSlot {
    /// Number of the slot on its node, from 0.
    pub index: u32,
    /// How it stands.
    pub state: SlotState,
    /// The GPU.
    pub gpu: SlotGpu,
    /// Its virtual function of the fabric; none: there is none left for it.
    pub fabric_vf: Option<SlotVirtualFunction>,
    /// Its disk; none: there is none left for it.
    pub nvme: Option<SlotNvme>,
    /// NUMA node of cores and pages; none: no node has enough, or that of the GPU is unknown.
    pub numa_node: Option<u32>,
    /// CPUs as the kernel lists them: `2-13,98-109`.
    pub cpus: String,
    /// Pages of 1 GiB.
    pub hugepages: u32,
    /// MAC address of the guest in the slice network.
    pub mac: String,
    /// Address of the guest in the slice network; none: the subnet has none left.
    pub private_ip: Option<String>,
    /// How far its devices are from the GPU.
    pub distance: SlotDistance,
    /// What keeps it from being used.
    pub blockers: Vec<SlotBlocker>,
}

/// The GPU of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotGpu {
    /// PCI address.
    pub address: String,
    /// Serial number of the board, where one was read before the GPU went to `vfio-pci`.
    pub serial: Option<String>,
    /// Module id on the board, read as the serial was; never derived from the order of addresses.
    pub module_id: Option<u32>,
}

/// The fabric's virtual function of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotVirtualFunction {
    /// PCI address.
    pub address: String,
    /// PCI address of its physical function.
    pub pf: String,
    /// Its number below the physical function, from 0.
    pub index: u32,
    /// `InfiniBand` or `Ethernet`, as the physical function's port says.
    pub link_layer: Option<String>,
    /// Node GUID.
    pub guid: Option<String>,
    /// MAC address.
    pub mac: Option<String>,
}

/// The disk of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotNvme {
    /// Serial number; empty where the drive says none.
    pub serial: String,
    /// Path on the host.
    pub path: String,
}

/// Distances of a slot's devices from its GPU. Below one root complex: links between them. Across:
/// these and 100, and ten times the distance of the NUMA nodes where these differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotDistance {
    /// Of the virtual function; none: there is none.
    pub vf: Option<u32>,
    /// Of the disk; none: there is none.
    pub nvme: Option<u32>,
}

/// Why a slot, or a host, cannot be used for slices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct SlotBlocker {
    /// Code of [`crate::codes::SLOT_BLOCKERS`].
    pub code: String,
    /// What has to be there.
    pub expected: String,
    /// What is there.
    pub seen: String,
    /// Who makes it go away.
    pub fixed_by: BlockerFixer,
    /// Whether an operator may approve the slot all the same.
    pub overridable: bool,
}
