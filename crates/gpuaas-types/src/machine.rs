//! What MAAS says of a machine, reduced to what decisions need. MAAS says it; we only remember
//! when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Machine status numbers of MAAS (docs/maas.md#statuses).
pub mod maas_status {
    /// Enlisted, never commissioned.
    pub const NEW: i64 = 0;
    /// Number of the status that MAAS labels `Commissioning`.
    pub const COMMISSIONING: i64 = 1;
    /// Number of the status that MAAS labels `Failed commissioning`.
    pub const FAILED_COMMISSIONING: i64 = 2;
    /// Number of the status that MAAS labels `Missing`.
    pub const MISSING: i64 = 3;
    /// Number of the status that MAAS labels `Ready`.
    pub const READY: i64 = 4;
    /// Number of the status that MAAS labels `Reserved`.
    pub const RESERVED: i64 = 5;
    /// Number of the status that MAAS labels `Deployed`.
    pub const DEPLOYED: i64 = 6;
    /// Number of the status that MAAS labels `Retired`.
    pub const RETIRED: i64 = 7;
    /// Number of the status that MAAS labels `Broken`.
    pub const BROKEN: i64 = 8;
    /// Number of the status that MAAS labels `Deploying`.
    pub const DEPLOYING: i64 = 9;
    /// Number of the status that MAAS labels `Allocated`.
    pub const ALLOCATED: i64 = 10;
    /// Number of the status that MAAS labels `Failed deployment`.
    pub const FAILED_DEPLOYMENT: i64 = 11;
    /// Number of the status that MAAS labels `Releasing`.
    pub const RELEASING: i64 = 12;
    /// Number of the status that MAAS labels `Releasing failed`.
    pub const RELEASING_FAILED: i64 = 13;
    /// Number of the status that MAAS labels `Disk erasing`.
    pub const DISK_ERASING: i64 = 14;
    /// Number of the status that MAAS labels `Failed disk erasing`.
    pub const FAILED_DISK_ERASING: i64 = 15;
    /// Number of the status that MAAS labels `Rescue mode`.
    pub const RESCUE_MODE: i64 = 16;
    /// Number of the status that MAAS labels `Entering rescue mode`.
    pub const ENTERING_RESCUE_MODE: i64 = 17;
    /// Number of the status that MAAS labels `Failed to enter rescue mode`.
    pub const FAILED_ENTERING_RESCUE_MODE: i64 = 18;
    /// Number of the status that MAAS labels `Exiting rescue mode`.
    pub const EXITING_RESCUE_MODE: i64 = 19;
    /// Number of the status that MAAS labels `Failed to exit rescue mode`.
    pub const FAILED_EXITING_RESCUE_MODE: i64 = 20;
    /// Number of the status that MAAS labels `Testing`.
    pub const TESTING: i64 = 21;
    /// Number of the status that MAAS labels `Failed testing`.
    pub const FAILED_TESTING: i64 = 22;

    /// Numbers with MAAS' labels, as they stand in events (docs/maas.md#statuses).
    pub const LABELS: &[(i64, &str)] = &[
        (NEW, "New"),
        (COMMISSIONING, "Commissioning"),
        (FAILED_COMMISSIONING, "Failed commissioning"),
        (MISSING, "Missing"),
        (READY, "Ready"),
        (RESERVED, "Reserved"),
        (DEPLOYED, "Deployed"),
        (RETIRED, "Retired"),
        (BROKEN, "Broken"),
        (DEPLOYING, "Deploying"),
        (ALLOCATED, "Allocated"),
        (FAILED_DEPLOYMENT, "Failed deployment"),
        (RELEASING, "Releasing"),
        (RELEASING_FAILED, "Releasing failed"),
        (DISK_ERASING, "Disk erasing"),
        (FAILED_DISK_ERASING, "Failed disk erasing"),
        (RESCUE_MODE, "Rescue mode"),
        (ENTERING_RESCUE_MODE, "Entering rescue mode"),
        (FAILED_ENTERING_RESCUE_MODE, "Failed to enter rescue mode"),
        (EXITING_RESCUE_MODE, "Exiting rescue mode"),
        (FAILED_EXITING_RESCUE_MODE, "Failed to exit rescue mode"),
        (TESTING, "Testing"),
        (FAILED_TESTING, "Failed testing"),
    ];

    /// MAAS' label of a status number; `Unknown` for a number this list lacks.
    #[must_use]
    pub fn label(status: i64) -> &'static str {
        LABELS.iter().find(|(n, _)| *n == status).map_or("Unknown", |(_, l)| l)
    }

    /// The status number of one of MAAS' labels.
    #[must_use]
    pub fn from_label(label: &str) -> Option<i64> {
        LABELS.iter().find(|(_, l)| *l == label).map(|(n, _)| *n)
    }
}

/// A filesystem on a whole disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskFilesystem {
    /// Type, such as `ext4`.
    pub fstype: String,
    /// Where it is mounted; none: nowhere.
    pub mount_point: Option<String>,
}

/// A physical disk as MAAS lists it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disk {
    /// Block device id in MAAS.
    pub id: i64,
    /// Kernel name, such as `nvme0n1`.
    pub name: String,
    /// Model string from the device.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Capacity in bytes.
    pub size_bytes: u64,
    /// MAAS tags, such as `ssd`, `nvme`, `sata`.
    pub tags: Vec<String>,
    /// Mount points of filesystems on the disk itself or its partitions.
    pub mounts: Vec<String>,
    /// Number of partitions.
    pub partitions: u32,
    /// Filesystem on the disk itself, without partitions.
    #[serde(default)]
    pub filesystem: Option<DiskFilesystem>,
}

/// An address given to an interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NicLink {
    /// Link id in MAAS.
    pub id: i64,
    /// `auto`, `dhcp`, `static` or `link_up`.
    pub mode: String,
    /// Subnet id, when linked to one.
    pub subnet_id: Option<i64>,
    /// CIDR of that subnet.
    pub subnet_cidr: Option<String>,
    /// Address, when one is assigned.
    pub ip_address: Option<String>,
}

/// A network interface as MAAS lists it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Nic {
    /// Interface id in MAAS.
    pub id: i64,
    /// Name, such as `eno1`.
    pub name: String,
    /// Lower-case MAC address.
    pub mac_address: String,
    /// `physical`, `bond`, `bridge` or `vlan`.
    pub kind: String,
    /// VLAN tag number, when MAAS knows the VLAN.
    pub vid: Option<i64>,
    /// Id of that VLAN in MAAS.
    pub vlan_id: Option<i64>,
    /// Fabric name of that VLAN.
    pub fabric: Option<String>,
    /// Whether MAAS or a relay serves DHCP on it.
    pub dhcp_on: bool,
    /// Whether the cable is seen connected.
    pub link_connected: bool,
    /// Addresses that the interface has, one link each.
    pub links: Vec<NicLink>,
}

/// A machine as MAAS shows it in `GET machines/ID/` (docs/maas.md#machine-object).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineView {
    /// MAAS' identifier.
    pub system_id: String,
    /// Short hostname.
    pub hostname: String,
    /// Status number, see [`maas_status`].
    pub status: i64,
    /// Owner's user name.
    pub owner: Option<String>,
    /// `on`, `off`, `unknown` or `error`.
    pub power_state: String,
    /// Power driver; empty when none.
    pub power_type: String,
    /// Architecture, such as `amd64/generic`.
    pub architecture: String,
    /// Operating system; empty before a deployment.
    pub osystem: String,
    /// Series or image name; empty before a deployment.
    pub distro_series: String,
    /// Locked in MAAS.
    pub locked: bool,
    /// Whether the next boot goes over the network.
    pub netboot: bool,
    /// MAAS' error text; sticky, so only meaningful in failed states.
    pub error_description: String,
    /// Description of the latest event.
    pub status_message: Option<String>,
    /// Hardware sync asked for at deploy.
    pub enable_hw_sync: bool,
    /// Its interval in seconds.
    pub sync_interval_seconds: Option<i64>,
    /// Id of the boot interface in MAAS.
    pub boot_interface_id: Option<i64>,
    /// Block device id of the boot disk.
    pub boot_disk_id: Option<i64>,
    /// Physical disks in MAAS' order.
    pub disks: Vec<Disk>,
    /// Volume groups, RAIDs and bcaches: anything that flat storage has none of.
    pub complex_storage: u32,
    /// Volume groups among them.
    #[serde(default)]
    pub volume_groups: u32,
    /// Bcaches among them.
    #[serde(default)]
    pub bcaches: u32,
    /// Network interfaces.
    pub nics: Vec<Nic>,
    /// Tag names.
    pub tags: Vec<String>,
    /// System vendor and product, `Unknown` when absent.
    pub hardware: String,
    /// Serial number of the chassis; empty while MAAS does not know it.
    #[serde(default)]
    pub serial: String,
    /// The system UUID of its SMBIOS; empty while MAAS does not know it.
    #[serde(default)]
    pub hardware_uuid: String,
    /// Name of its resource pool; empty: remembered from before that was.
    #[serde(default)]
    pub pool: String,
    /// Name of its availability zone; empty: remembered from before that was.
    #[serde(default)]
    pub zone: String,
    /// Whether an installation result set exists.
    pub has_installation_result: bool,
    /// Number of the current installation; another one is another deployment.
    #[serde(default)]
    pub installation_id: Option<i64>,
    /// When the deployed system last reported its hardware.
    #[serde(default)]
    pub last_sync: Option<Timestamp>,
}

impl MachineView {
    /// The boot interface, when MAAS names one that it also lists.
    #[must_use]
    pub fn boot_nic(&self) -> Option<&Nic> {
        self.boot_interface_id.and_then(|id| self.nics.iter().find(|nic| nic.id == id))
    }
}

/// The latest that is known of a machine in MAAS.
///
/// `status` may be newer than `machine.status`: status changes arrive through the event feed,
/// details only through reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// Status number, from the latest read or event.
    pub status: i64,
    /// When that was asked of MAAS.
    pub status_at: Timestamp,
    /// Highest event id applied.
    pub event_id: i64,
    /// Details of the latest full read.
    pub machine: Option<MachineView>,
    /// When that read was asked.
    pub read_at: Timestamp,
    /// MAAS answered 404 for the machine.
    pub vanished: bool,
    /// When curtin's reboot of the current deployment was seen in the event feed.
    pub rebooted_at: Option<Timestamp>,
    /// Latest warning or error in the event feed.
    #[serde(default)]
    pub alarm: Option<MaasAlarm>,
}

/// A warning or an error of MAAS' event feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MaasAlarm {
    /// When it was read.
    pub at: Timestamp,
    /// Type and description of the event.
    pub text: String,
}

impl Observation {
    /// What a full read, asked at `asked_at`, says.
    #[must_use]
    pub fn from_read(machine: MachineView, asked_at: Timestamp) -> Self {
        Self {
            status: machine.status,
            status_at: asked_at,
            event_id: 0,
            machine: Some(machine),
            read_at: asked_at,
            vanished: false,
            rebooted_at: None,
            alarm: None,
        }
    }
}
/// By what the machine of a node is known and switched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HardwareView {
    /// MAC addresses of its boot interfaces, lower case with colons.
    #[serde(default)]
    pub mac_addresses: Vec<String>,
    /// Address of its BMC.
    #[serde(default)]
    pub bmc_address: Option<String>,
    /// Power driver of MAAS, such as `ipmi`.
    #[serde(default)]
    pub power_type: String,
    /// Architecture, such as `amd64/generic`.
    #[serde(default)]
    pub architecture: String,
}
