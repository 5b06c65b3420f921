//! What a host says of the devices that slices are made of: PCI functions, disks, NUMA nodes.
//!
//! An agent reads it and the control plane makes the slot map of it. A fact that could not be read
//! is `None`, which is not the same as none of it: a list that is there and empty was read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::string_enum::string_enum;

/// Devices of a host that slices are made of, as they were at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostTopology {
    /// PCI functions that a slot may have, the bridges above them, and what shares a group with them.
    pub functions: Vec<TopologyFunction>,
    /// NVMe namespaces.
    pub namespaces: Vec<NvmeNamespace>,
    /// NUMA nodes.
    pub numa_nodes: Vec<NumaResources>,
    /// Module ids of GPUs, read while NVIDIA's driver had them.
    pub gpu_modules: Vec<GpuModule>,
    /// Partitions of the NVSwitches as the fabric manager lists them; none: there are no NVSwitches, or
    /// it did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric_partitions: Option<Vec<FabricPartition>>,
    /// Mode of the fabric manager (`FABRIC_MODE`): 0 is one system with all GPUs, 1 keeps partitions
    /// apart; none: the host has no settings of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric_mode: Option<u32>,
}

/// GPUs that NVSwitches join with each other and with no other one, while it is active.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct FabricPartition {
    /// Number by which the fabric manager knows it.
    pub id: u32,
    /// Module ids of its GPUs, in order.
    pub modules: Vec<u32>,
    /// Whether it is active.
    pub active: bool,
}

/// What the agent of a host answers to a `discover_slices` task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopologyReport {
    /// How long it took the agent to read the host, in seconds.
    pub discovery_seconds: f64,
    /// What it read.
    pub topology: HostTopology,
}

/// A PCI function, `/sys/bus/pci/devices/ADDRESS`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TopologyFunction {
    /// Domain, bus, device and function: `0000:19:00.0`.
    pub address: String,
    /// Vendor, four hexadecimal digits: `10de`.
    pub vendor: Option<String>,
    /// Device, four hexadecimal digits.
    pub device: Option<String>,
    /// Class, six hexadecimal digits: `030200` is a 3D controller.
    pub class: Option<String>,
    /// Name of the driver that is bound; none: no driver.
    pub driver: Option<String>,
    /// IOMMU group; none: the IOMMU is off.
    pub iommu_group: Option<u32>,
    /// NUMA node; none: the firmware does not say, which sysfs shows as -1.
    pub numa_node: Option<u32>,
    /// From the root complex (`pci0000:15`) down: the bridges above the function.
    pub path: Vec<String>,
    /// Access Control Services; none: no such capability, or it could not be read.
    pub acs: Option<AcsRegisters>,
    /// Whether a bridge is a root port or a downstream port; none: that could not be read.
    pub downstream_port: Option<bool>,
    /// The physical function that a virtual one belongs to.
    pub physical_function: Option<String>,
    /// Number of a virtual function, from 0.
    pub virtual_index: Option<u32>,
    /// Ways to reset it that the kernel knows, best first; none: the kernel does not say.
    pub reset_methods: Option<Vec<String>>,
    /// Base address registers that have a size.
    pub bars: Option<Vec<BarSize>>,
    /// Processes that hold it; none: the processes could not be read.
    pub holders: Option<Vec<DeviceHolder>>,
    /// RDMA port of a physical function.
    pub port: Option<FabricPort>,
    /// Node GUID of a virtual function: `96:6d:ae:f0:00:12:34:01`.
    pub guid: Option<String>,
    /// MAC address of a virtual function.
    pub mac: Option<String>,
}

/// Registers of Access Control Services (PCI Express Base Specification, 7.7.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcsRegisters {
    /// What the function is able to do.
    pub capability: u16,
    /// What is on.
    pub control: u16,
}

impl AcsRegisters {
    /// Source validation, request redirect, completion redirect, upstream forwarding: the four that
    /// Linux asks for (`REQ_ACS_FLAGS`).
    pub const ISOLATING: u16 = 0x1d;

    /// Whether all that isolates, as far as the function is able to, is on.
    ///
    /// ```
    /// let on = gpuaas_types::topology::AcsRegisters { capability: 0x5f, control: 0x1d };
    /// assert!(on.isolates());
    /// assert!(!gpuaas_types::topology::AcsRegisters { control: 0x1c, ..on }.isolates());
    /// ```
    #[must_use]
    pub const fn isolates(self) -> bool {
        let able = self.capability & Self::ISOLATING;
        able != 0 && self.control & able == able
    }
}

/// A base address register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BarSize {
    /// Line of `resource`, from 0; a register of 64 bits takes two of six.
    pub index: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Whether it may be prefetched, that is, lies in the 64-bit window.
    pub prefetchable: bool,
}

/// A process that has a device open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct DeviceHolder {
    /// Process id.
    pub pid: u32,
    /// Name of the program, `/proc/PID/comm`.
    pub program: String,
    /// The file that it has open: `/dev/vfio/42`.
    pub path: String,
}

/// Port 1 of an RDMA adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FabricPort {
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// `ACTIVE`, `INIT`, `DOWN`.
    pub state: String,
}

/// An NVMe namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NvmeNamespace {
    /// Kernel name, `nvme0n1`; another one after each boot.
    pub name: String,
    /// Serial number of the drive.
    pub serial: Option<String>,
    /// Path that stays the same, `/dev/disk/by-id/nvme-...`; else `/dev/NAME`.
    pub path: String,
    /// PCI address of its controller.
    pub address: Option<String>,
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// Everything that uses it; none: that could not be read.
    pub uses: Option<Vec<DiskUse>>,
    /// Ways to erase it that the drive says it has; none: it was not asked, or did not answer.
    pub erase_methods: Option<Vec<EraseMethod>>,
}

string_enum! {
/// How a disk is in use.
DiskUseKind {
    /// A file system of it is mounted.
    Mount = "mount",
    /// The system swaps to it.
    Swap = "swap",
    /// A device of the device mapper, of MD or of bcache is made of it.
    BlockDevice = "block_device",
    /// A process has it open.
    Process = "process",
    /// It has a partition.
    Partition = "partition",
    /// It has a file system, or is a member of an array or a pool, which nothing uses.
    Signature = "signature",
}
}

/// One use of a disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct DiskUse {
    /// How it is used.
    pub kind: DiskUseKind,
    /// The disk or the partition: `nvme0n1p2`.
    pub part: String,
    /// The mount point, the block device, or the process.
    pub by: String,
}

string_enum! {
/// How a drive can erase all of itself (NVM Express Base Specification 2.0, 5.24 and 5.14).
EraseMethod {
    /// Sanitize with a change of the media encryption key.
    SanitizeCrypto = "sanitize_crypto",
    /// Sanitize with a block erase.
    SanitizeBlock = "sanitize_block",
    /// Sanitize with an overwrite.
    SanitizeOverwrite = "sanitize_overwrite",
    /// Format NVM with a secure erase.
    Format = "format",
}
}

/// A NUMA node, `/sys/devices/system/node/nodeN`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NumaResources {
    /// The node's number, from 0.
    pub id: u32,
    /// Its cores, each with the CPUs that are its threads.
    pub cores: Vec<Vec<u32>>,
    /// Number of the processor package that its cores are in.
    pub package: Option<u32>,
    /// Distance to each node by number, as the firmware says it (10: itself).
    pub distances: Vec<u32>,
    /// Pages of 1 GiB in its pool; none: the kernel has no such pool.
    pub gigabyte_pages: Option<u32>,
}

/// A GPU's place on its board.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct GpuModule {
    /// PCI address.
    pub address: String,
    /// Module id, which is how the fabric manager names the GPU.
    pub module_id: u32,
    /// Serial number of the board; none: it has none.
    #[serde(default)]
    pub serial: Option<String>,
}
