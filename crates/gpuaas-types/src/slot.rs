//! Slots: what of a host one slice gets, and the map of them that an operator reviews.

use serde::{Deserialize, Serialize};

use crate::string_enum::string_enum;

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// What one slice of one GPU would get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotGpu {
    /// PCI address.
    pub address: String,
    /// Serial number of the board, where one was read before the GPU went to `vfio-pci`.
    pub serial: Option<String>,
    /// Module id on the board, read as the serial was; never derived from the order of addresses.
    pub module_id: Option<u32>,
}

/// The fabric's virtual function of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotNvme {
    /// Serial number; empty where the drive says none.
    pub serial: String,
    /// Path on the host.
    pub path: String,
}

/// Distances of a slot's devices from its GPU. Below one root complex: links between them. Across:
/// these and 100, and ten times the distance of the NUMA nodes where these differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotDistance {
    /// Of the virtual function; none: there is none.
    pub vf: Option<u32>,
    /// Of the disk; none: there is none.
    pub nvme: Option<u32>,
}

/// Why a slot, or a host, cannot be used for slices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
