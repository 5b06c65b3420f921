//! The devices of a host that slices are made of, from sysfs and procfs.
//!
//! [`HostRoot::topology`] reads files alone and changes nothing. What a drive or a driver has to be
//! queried for is parsed in [`queries`] from what the caller got. Unlike the facts of a host, a
//! topology tells a list that is empty from one that could not be read: a slot may be made of a GPU
//! that no process holds, and not of one of which nobody knows.

mod disks;
mod functions;
mod holders;
mod identities;
mod numa;
pub mod queries;

pub use identities::ASSIGNED_IDENTITIES;

use std::fmt;

use gpuaas_types::topology::{GpuModule, HostTopology, TopologyFunction};

use crate::root::HostRoot;

/// Settings of NVIDIA's fabric manager.
pub const FABRIC_MANAGER_SETTINGS: &str = "/usr/share/nvidia/nvswitch/fabricmanager.cfg";
/// File with what `nvidia-smi -q -x` printed while NVIDIA's driver had the GPUs, and a line that names
/// the hardware. The bundle of slice hosts writes it before it binds the GPUs to `vfio-pci`.
pub const GPU_MODULES_RECORD: &str = "/var/lib/gpuaas/slices/nvidia-smi.xml";
/// What that line begins with; the identity of the hardware and `-->` follow.
pub const RECORDED_HARDWARE: &str = "<!-- gpuaas hardware: ";
/// Files of `/sys/class/dmi/id` that tell one chassis from another, as the record names them.
const HARDWARE_IDENTITY: [&str; 3] = ["product_uuid", "product_serial", "board_serial"];

/// Why the record of module IDs says nothing of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModulesRecordError {
    /// There is none.
    Missing,
    /// It does not name its hardware, or the host does not.
    Unidentified,
    /// A disk that was moved, or another board in the chassis.
    OtherHardware,
}

impl fmt::Display for ModulesRecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "the record {GPU_MODULES_RECORD} does not exist"),
            Self::Unidentified => write!(f, "{GPU_MODULES_RECORD} does not identify the hardware"),
            Self::OtherHardware => write!(f, "{GPU_MODULES_RECORD} describes other hardware"),
        }
    }
}

impl std::error::Error for ModulesRecordError {}

/// Whether a function is an NVSwitch: a bridge of NVIDIA's of no other kind.
#[must_use]
pub fn is_switch(function: &TopologyFunction) -> bool {
    function.vendor.as_deref() == Some("10de")
        && function.class.as_deref().is_some_and(|class| class.starts_with("0680"))
}

/// A host with one NUMA node has every function there. The kernel says -1 where the firmware has no table.
fn place_on_only_node(topology: &mut HostTopology) {
    let [only] = topology.numa_nodes.as_slice() else { return };
    for function in &mut topology.functions {
        function.numa_node = function.numa_node.or(Some(only.id));
    }
}

impl HostRoot {
    /// The devices of the host that slices are made of, as far as files tell.
    #[must_use]
    pub fn topology(&self) -> HostTopology {
        let open_files = self.open_device_files();
        let mut topology = HostTopology {
            functions: self.topology_functions(open_files.as_deref()),
            namespaces: self.nvme_namespaces(open_files.as_deref()),
            numa_nodes: self.numa_resources(),
            gpu_modules: self.recorded_gpu_modules().unwrap_or_default(),
            fabric_partitions: None,
            fabric_mode: self.fabric_mode(),
        };
        self.apply_assigned_identities(&mut topology);
        place_on_only_node(&mut topology);
        topology
    }

    /// Mode of the fabric manager as its settings have it.
    fn fabric_mode(&self) -> Option<u32> {
        let text = self.text(FABRIC_MANAGER_SETTINGS)?;
        let mut lines = text.lines();
        lines.find_map(|line| line.trim().strip_prefix("FABRIC_MODE=")?.trim().parse().ok())
    }

    /// Module IDs of GPUs as [`GPU_MODULES_RECORD`] has them.
    ///
    /// # Errors
    /// [`ModulesRecordError`]: the record is no evidence for this host.
    pub fn recorded_gpu_modules(&self) -> Result<Vec<GpuModule>, ModulesRecordError> {
        let text = self.text(GPU_MODULES_RECORD).ok_or(ModulesRecordError::Missing)?;
        let named = text.lines().find_map(|line| {
            line.trim().strip_prefix(RECORDED_HARDWARE)?.strip_suffix("-->").map(str::trim)
        });
        match (named, self.hardware_identity()) {
            (Some(named), Some(own)) if named == own => Ok(queries::gpu_modules(&text)),
            (Some(_), Some(_)) => Err(ModulesRecordError::OtherHardware),
            _ => Err(ModulesRecordError::Unidentified),
        }
    }

    /// What tells this host's chassis and board from others; none: its firmware names neither.
    #[must_use]
    pub fn hardware_identity(&self) -> Option<String> {
        let named: Vec<String> = HARDWARE_IDENTITY
            .iter()
            .filter_map(|file| {
                let value = self.line(format!("sys/class/dmi/id/{file}"))?;
                let plain = |c: char| c.is_ascii_alphanumeric() || "._:/-".contains(c);
                let value: String = value.chars().filter(|c| plain(*c)).collect();
                (!value.is_empty()).then(|| format!("{file}={value}"))
            })
            .collect();
        (!named.is_empty()).then(|| named.join(" "))
    }
}
