use serde::Deserialize;

use super::interface::Interface;
use crate::lenient::{id_of_object, list_length, name_of_object, null_as_default};

/// A machine (docs/maas.md#machine-object), as list, read and most operations answer it.
///
/// The answer of an operation was rendered before its effects on hardware
/// (docs/maas.md#unknown-outcomes): read the machine again for what is true.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Six characters, unique in the region.
    pub system_id: String,
    /// Short host name.
    #[serde(deserialize_with = "null_as_default")]
    pub hostname: String,
    /// Host name with domain.
    #[serde(deserialize_with = "null_as_default")]
    pub fqdn: String,
    /// Free text.
    #[serde(deserialize_with = "null_as_default")]
    pub description: String,
    /// Status number; see [`super::status`].
    #[serde(deserialize_with = "null_as_default")]
    pub status: i64,
    /// Status label.
    #[serde(deserialize_with = "null_as_default")]
    pub status_name: String,
    /// Description of the latest INFO event; can lag the status.
    pub status_message: Option<String>,
    /// Sticky: only meaningful in failed and broken states.
    #[serde(deserialize_with = "null_as_default")]
    pub error_description: String,
    /// User who owns it.
    pub owner: Option<String>,
    /// `on`, `off`, `unknown` or `error`, as last stored.
    #[serde(deserialize_with = "null_as_default")]
    pub power_state: String,
    /// E.g. `ipmi`; empty for none.
    #[serde(deserialize_with = "null_as_default")]
    pub power_type: String,
    /// E.g. `amd64/generic`.
    #[serde(deserialize_with = "null_as_default")]
    pub architecture: String,
    /// `ubuntu`, `custom`, …; empty for none.
    #[serde(deserialize_with = "null_as_default")]
    pub osystem: String,
    /// `jammy` or the custom image's bare name; empty for none.
    #[serde(deserialize_with = "null_as_default")]
    pub distro_series: String,
    /// Kernel of the deployed system.
    pub hwe_kernel: Option<String>,
    /// True until the deployed system boots from its disk.
    #[serde(deserialize_with = "null_as_default")]
    pub netboot: bool,
    /// Locked against changes.
    #[serde(deserialize_with = "null_as_default")]
    pub locked: bool,
    /// Runs from memory.
    #[serde(deserialize_with = "null_as_default")]
    pub ephemeral_deploy: bool,
    /// The interface it boots from; `None` before commissioning.
    pub boot_interface: Option<BootInterface>,
    /// Block device id of the boot disk.
    #[serde(rename = "boot_disk", deserialize_with = "id_of_object")]
    pub boot_disk_id: Option<u64>,
    /// All interfaces.
    #[serde(deserialize_with = "null_as_default")]
    pub interface_set: Vec<Interface>,
    /// Physical disks.
    #[serde(deserialize_with = "null_as_default")]
    pub physicalblockdevice_set: Vec<MachineDisk>,
    /// Number of LVM volume groups.
    #[serde(rename = "volume_groups", deserialize_with = "list_length")]
    pub volume_group_count: usize,
    /// Number of software RAIDs.
    #[serde(rename = "raids", deserialize_with = "list_length")]
    pub raid_count: usize,
    /// Number of bcaches.
    #[serde(rename = "bcaches", deserialize_with = "list_length")]
    pub bcache_count: usize,
    /// Number of bcache cache sets.
    #[serde(rename = "cache_sets", deserialize_with = "list_length")]
    pub cache_set_count: usize,
    /// Tags of the machine.
    #[serde(deserialize_with = "null_as_default")]
    pub tag_names: Vec<String>,
    /// Vendor, product and serial.
    #[serde(deserialize_with = "null_as_default")]
    pub hardware_info: HardwareInfo,
    /// `uefi`, `pxe`, …
    pub bios_boot_method: Option<String>,
    /// Number of CPU threads.
    #[serde(deserialize_with = "null_as_default")]
    pub cpu_count: u64,
    /// Memory in MiB.
    #[serde(deserialize_with = "null_as_default")]
    pub memory: u64,
    /// System UUID of its SMBIOS; empty until it was commissioned.
    #[serde(deserialize_with = "null_as_default")]
    pub hardware_uuid: String,
    /// Storage in MB, decimal.
    #[serde(deserialize_with = "null_as_default")]
    pub storage: f64,
    /// Script status of the current commissioning; -1 for none.
    #[serde(deserialize_with = "null_as_default")]
    pub commissioning_status: i64,
    /// Label of `commissioning_status`.
    #[serde(deserialize_with = "null_as_default")]
    pub commissioning_status_name: String,
    /// Script status of the current testing; -1 for none.
    #[serde(deserialize_with = "null_as_default")]
    pub testing_status: i64,
    /// Label of `testing_status`.
    #[serde(deserialize_with = "null_as_default")]
    pub testing_status_name: String,
    /// Script set of the current commissioning.
    pub current_commissioning_result_id: Option<u64>,
    /// Script set of the current testing.
    pub current_testing_result_id: Option<u64>,
    /// Script set of the current installation.
    pub current_installation_result_id: Option<u64>,
    /// Whether the deployed system reports its hardware (docs/maas.md#hardware-sync).
    #[serde(deserialize_with = "null_as_default")]
    pub enable_hw_sync: bool,
    /// When it last did, ISO 8601.
    pub last_sync: Option<String>,
    /// When it is next due, ISO 8601.
    pub next_sync: Option<String>,
    /// Interval in seconds; may be set with `enable_hw_sync` false.
    pub sync_interval: Option<u64>,
    /// Name of the availability zone.
    #[serde(deserialize_with = "name_of_object")]
    pub zone: String,
    /// Name of the resource pool.
    #[serde(deserialize_with = "name_of_object")]
    pub pool: String,
    /// Name of the DNS domain.
    #[serde(deserialize_with = "name_of_object")]
    pub domain: String,
}

/// The interface a machine boots from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BootInterface {
    /// Interface id; the whole object is in `interface_set`.
    pub id: u64,
    /// MAC address, lower case.
    #[serde(deserialize_with = "null_as_default")]
    pub mac_address: String,
    /// Name of the interface.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
}

/// A disk (docs/maas.md#disks).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MachineDisk {
    /// Id; what `set_boot_disk` and `root_device` take.
    pub id: u64,
    /// Name, e.g. `nvme0n1`.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Model of the disk.
    #[serde(deserialize_with = "null_as_default")]
    pub model: String,
    /// Serial number.
    #[serde(deserialize_with = "null_as_default")]
    pub serial: String,
    /// Size in bytes.
    #[serde(deserialize_with = "null_as_default")]
    pub size: u64,
    /// E.g. `ssd`, `rotary`, `sata`.
    #[serde(deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// NUMA node.
    pub numa_node: Option<i64>,
    /// Stable path, e.g. below `/dev/disk/by-id`.
    pub id_path: Option<String>,
    /// In MAAS's words, e.g. `GPT partitioned with 1 partition`.
    #[serde(deserialize_with = "null_as_default")]
    pub used_for: String,
    /// A filesystem on the bare disk.
    pub filesystem: Option<Filesystem>,
    /// Partitions of the disk.
    #[serde(deserialize_with = "null_as_default")]
    pub partitions: Vec<Partition>,
}

/// A partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Partition {
    /// Id of the partition.
    pub id: u64,
    /// Size in bytes.
    #[serde(deserialize_with = "null_as_default")]
    pub size: u64,
    /// Whether it is flagged bootable.
    #[serde(deserialize_with = "null_as_default")]
    pub bootable: bool,
    /// In MAAS's words, e.g. `LVM volume for vgroot`.
    #[serde(deserialize_with = "null_as_default")]
    pub used_for: String,
    /// Its filesystem.
    pub filesystem: Option<Filesystem>,
}

/// A filesystem.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Filesystem {
    /// `ext4`, `fat32`, `lvm-pv`, …
    #[serde(deserialize_with = "null_as_default")]
    pub fstype: String,
    /// Label of the file system.
    pub label: Option<String>,
    /// Mount point; `None` for parts of something larger.
    pub mount_point: Option<String>,
}

/// What the firmware says of itself; `Unknown` where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HardwareInfo {
    /// Vendor of the system.
    #[serde(deserialize_with = "null_as_default")]
    pub system_vendor: String,
    /// Product of the system.
    #[serde(deserialize_with = "null_as_default")]
    pub system_product: String,
    /// Serial number.
    #[serde(deserialize_with = "null_as_default")]
    pub system_serial: String,
}

impl Machine {
    /// The boot interface with its VLAN and links, out of `interface_set`.
    pub fn boot_interface_full(&self) -> Option<&Interface> {
        let boot = self.boot_interface.as_ref()?;
        self.interface_set.iter().find(|interface| interface.id == boot.id)
    }
}
