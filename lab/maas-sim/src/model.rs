//! What the region stores about a machine.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::hardware_class::HardwareClass;
use crate::rng::SimRng;
use crate::status::Status;

/// MAAS aligns partitions to this.
pub(crate) const ALIGN: u64 = 4 * 1024 * 1024;
/// What a partition table itself counts as used.
const TABLE_BYTES: u64 = 6 * 1024 * 1024;

/// Power as MAAS knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    On,
    Off,
    Unknown,
    Error,
}

impl Power {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Power::On => "on",
            Power::Off => "off",
            Power::Unknown => "unknown",
            Power::Error => "error",
        }
    }
}

/// A host of the inventory, known to MAAS or not.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) class: &'static HardwareClass,
    pub(crate) macs: Vec<String>,
    pub(crate) bmc_address: String,
    pub(crate) serial: String,
    pub(crate) rng: SimRng,
    pub(crate) on: bool,
    /// Database id of the machine that MAAS knows it by.
    pub(crate) machine: Option<u32>,
}

#[derive(Debug, Clone)]
pub(crate) struct Filesystem {
    pub(crate) fstype: &'static str,
    pub(crate) label: Option<&'static str>,
    pub(crate) uuid: String,
    pub(crate) mount: Option<String>,
    /// Known once somebody mounted it by hand.
    pub(crate) options: Option<String>,
}

impl Filesystem {
    /// What it makes of the disk or the partition that it lies on.
    pub(crate) fn used_for(&self) -> String {
        match &self.mount {
            Some(mount) => format!("{} formatted filesystem mounted at {mount}", self.fstype),
            None => format!("Unmounted {} formatted filesystem", self.fstype),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Partition {
    pub(crate) id: i64,
    pub(crate) uuid: String,
    pub(crate) size: u64,
    pub(crate) bootable: bool,
    pub(crate) used_for: String,
    pub(crate) fs: Option<Filesystem>,
}

#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) model: &'static str,
    pub(crate) serial: String,
    pub(crate) size: u64,
    pub(crate) block_size: i64,
    pub(crate) tags: Vec<String>,
    pub(crate) numa: i64,
    pub(crate) partitions: Vec<Partition>,
    /// Physical disks only: the filesystem that lies directly on it.
    pub(crate) fs: Option<Filesystem>,
    /// Virtual disks only: UUID, and the filesystem that lies directly on it.
    pub(crate) logical: Option<(String, Filesystem)>,
}

impl Disk {
    /// The filesystem that lies directly on it.
    pub(crate) fn direct(&self) -> Option<&Filesystem> {
        self.logical.as_ref().map(|(_, fs)| fs).or(self.fs.as_ref())
    }

    pub(crate) fn usable(&self) -> u64 {
        (self.size / ALIGN * ALIGN).saturating_sub(ALIGN)
    }

    pub(crate) fn used(&self) -> u64 {
        if self.direct().is_some() {
            return self.size;
        }
        let parts: u64 = self.partitions.iter().map(|p| p.size).sum();
        if self.partitions.is_empty() { 0 } else { parts + TABLE_BYTES }
    }

    pub(crate) fn available(&self) -> u64 {
        if self.direct().is_some() {
            return 0;
        }
        self.usable().saturating_sub(self.partitions.iter().map(|p| p.size).sum())
    }

    pub(crate) fn used_for(&self) -> String {
        if let Some(fs) = self.direct() {
            return fs.used_for();
        }
        match self.partitions.len() {
            0 => "Unused".to_owned(),
            1 => "GPT partitioned with 1 partition".to_owned(),
            n => format!("GPT partitioned with {n} partitions"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkMode {
    Auto,
    Dhcp,
    Static,
    LinkUp,
}

impl LinkMode {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            LinkMode::Auto => "auto",
            LinkMode::Dhcp => "dhcp",
            LinkMode::Static => "static",
            LinkMode::LinkUp => "link_up",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) id: i64,
    pub(crate) mode: LinkMode,
    pub(crate) subnet: Option<i64>,
    pub(crate) address: Option<u32>,
}

#[derive(Debug, Clone)]
pub(crate) struct Nic {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) mac: String,
    pub(crate) vlan: Option<i64>,
    pub(crate) links: Vec<Link>,
    pub(crate) tags: Vec<String>,
    pub(crate) mtu: Option<i64>,
    pub(crate) params: BTreeMap<String, String>,
    pub(crate) parents: Vec<String>,
    pub(crate) children: Vec<String>,
    pub(crate) discovered: Option<(i64, u32)>,
    /// Known once commissioned.
    pub(crate) hardware: Option<NicHardware>,
    pub(crate) link_connected: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct NicHardware {
    pub(crate) vendor: &'static str,
    pub(crate) product: &'static str,
    pub(crate) speed_mbps: i64,
    pub(crate) numa: i64,
}

impl Nic {
    pub(crate) fn bare(id: i64, name: String, mac: String) -> Self {
        Self {
            id,
            name,
            kind: "physical",
            mac,
            vlan: None,
            links: Vec::new(),
            tags: Vec::new(),
            mtu: None,
            params: BTreeMap::new(),
            parents: Vec::new(),
            children: Vec::new(),
            discovered: None,
            hardware: None,
            link_connected: true,
        }
    }
}

/// What a script set is about, with MAAS's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetKind {
    Commissioning = 0,
    Installation = 1,
    Testing = 2,
    Release = 3,
}

impl SetKind {
    pub(crate) fn label(self) -> &'static str {
        match self {
            SetKind::Commissioning => "Commissioning",
            SetKind::Installation => "Installation",
            SetKind::Testing => "Testing",
            SetKind::Release => "Release",
        }
    }
}

/// Script states, with MAAS's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptState {
    Unknown = -1,
    Pending = 0,
    Running = 1,
    Passed = 2,
    Failed = 3,
    TimedOut = 4,
    Aborted = 5,
}

impl ScriptState {
    pub(crate) fn label(self) -> &'static str {
        match self {
            ScriptState::Unknown => "Unknown",
            ScriptState::Pending => "Pending",
            ScriptState::Running => "Running",
            ScriptState::Passed => "Passed",
            ScriptState::Failed => "Failed",
            ScriptState::TimedOut => "Timed out",
            ScriptState::Aborted => "Aborted",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ScriptSet {
    pub(crate) id: i64,
    pub(crate) kind: SetKind,
    pub(crate) state: ScriptState,
    pub(crate) first_result: i64,
    pub(crate) scripts: Vec<String>,
    /// Those of a failed set that failed; the others passed.
    pub(crate) failed: Vec<String>,
    pub(crate) created_us: i64,
    pub(crate) started_us: Option<i64>,
    pub(crate) ended_us: Option<i64>,
}

/// How long the current activity's parts take, drawn when it began (microseconds).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ActivityTimes {
    pub(crate) bmc: i64,
    pub(crate) post: i64,
    pub(crate) ephemeral: i64,
    pub(crate) work: i64,
    pub(crate) reboot: i64,
    pub(crate) first_boot: i64,
}

#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) key: u32,
    pub(crate) host: usize,
    pub(crate) system_id: String,
    pub(crate) hostname: String,
    pub(crate) description: String,
    pub(crate) zone: String,
    pub(crate) pool: String,
    pub(crate) architecture: String,
    pub(crate) min_hwe_kernel: String,
    pub(crate) power_type: String,
    pub(crate) power_parameters: Map<String, Value>,
    pub(crate) status: Status,
    pub(crate) previous: Status,
    pub(crate) owner: Option<String>,
    pub(crate) locked: bool,
    pub(crate) netboot: bool,
    pub(crate) power: Power,
    pub(crate) osystem: String,
    pub(crate) distro_series: String,
    pub(crate) hwe_kernel: Option<String>,
    pub(crate) ephemeral_deploy: bool,
    pub(crate) hw_sync: bool,
    pub(crate) crash_dump: bool,
    pub(crate) is_dpu: bool,
    pub(crate) sync_interval: Option<i64>,
    pub(crate) last_sync_us: Option<i64>,
    pub(crate) error_description: String,
    pub(crate) status_action: Option<&'static str>,
    pub(crate) status_message: Option<String>,
    pub(crate) agent_name: String,
    pub(crate) swap_size: Option<i64>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// Hardware facts are known.
    pub(crate) hardware_known: bool,
    pub(crate) cpu_count: i64,
    pub(crate) memory: i64,
    pub(crate) disks: Vec<Disk>,
    pub(crate) nics: Vec<Nic>,
    pub(crate) boot_nic: Option<i64>,
    pub(crate) boot_disk: Option<i64>,
    pub(crate) volume_groups: Vec<i64>,
    pub(crate) bcaches: Vec<i64>,
    pub(crate) cache_sets: Vec<i64>,
    pub(crate) gateway: Option<i64>,
    pub(crate) gateway_link: Option<i64>,
    pub(crate) sets: Vec<ScriptSet>,
    pub(crate) current_commissioning: Option<i64>,
    pub(crate) current_testing: Option<i64>,
    pub(crate) current_installation: Option<i64>,
    pub(crate) commissioning_state: ScriptState,
    pub(crate) testing_state: ScriptState,
    pub(crate) storage_test_state: ScriptState,
    pub(crate) tags: Vec<String>,
    /// Changes whenever what was under way is no longer wanted: older entries of the heap die.
    pub(crate) work: u64,
    /// Counts accepted deployments of this machine.
    pub(crate) deployment: u64,
    pub(crate) user_data: Vec<u8>,
    pub(crate) activity_times: ActivityTimes,
    pub(crate) options: CommissionOptions,
    pub(crate) was_deployed: bool,
    /// The tests under way were asked for by themselves, not with a commissioning.
    pub(crate) only_tests: bool,
    /// Rendered body at nesting depth 0 and 1, if it was asked for lately.
    pub(crate) body: [Option<Bytes>; 2],
}

#[derive(Debug, Clone, Default)]
pub(crate) struct CommissionOptions {
    pub(crate) skip_networking: bool,
    pub(crate) skip_storage: bool,
    /// Beside those that come with MAAS.
    pub(crate) scripts: Vec<String>,
    pub(crate) tests: Vec<String>,
}

impl Machine {
    pub(crate) fn nic(&self, id: i64) -> Option<&Nic> {
        self.nics.iter().find(|n| n.id == id)
    }

    pub(crate) fn has_mac(&self, mac: &str) -> bool {
        self.nics.iter().any(|n| n.mac == mac)
    }

    pub(crate) fn boot_interface(&self) -> Option<&Nic> {
        self.boot_nic.and_then(|id| self.nic(id))
    }

    /// The power type answers questions.
    pub(crate) fn has_bmc(&self) -> bool {
        !matches!(self.power_type.as_str(), "" | "manual")
    }

    /// Where tests lead that pass or are given up.
    pub(crate) fn status_after_tests(&self) -> Status {
        let back = self.previous;
        if self.only_tests && Status::Testing.may_become(back) { back } else { Status::Ready }
    }

    pub(crate) fn invalidate_body(&mut self) {
        self.body = [None, None];
    }

    pub(crate) fn set(&self, id: Option<i64>) -> Option<&ScriptSet> {
        self.sets.iter().find(|s| Some(s.id) == id)
    }
}
