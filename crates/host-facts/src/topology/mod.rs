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

use gpuaas_types::topology::{GpuModule, HostTopology, TopologyFunction};

use crate::root::HostRoot;

/// Settings of NVIDIA's fabric manager.
pub const FABRIC_MANAGER_SETTINGS: &str = "/usr/share/nvidia/nvswitch/fabricmanager.cfg";
/// File with what `nvidia-smi -q -x` printed while NVIDIA's driver had the GPUs.
pub const GPU_MODULES_RECORD: &str = "/var/lib/gpuaas/slices/nvidia-smi.xml";

/// Whether a function is an NVSwitch: a bridge of NVIDIA's of no other kind.
#[must_use]
pub fn is_switch(function: &TopologyFunction) -> bool {
    function.vendor.as_deref() == Some("10de")
        && function.class.as_deref().is_some_and(|class| class.starts_with("0680"))
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
            gpu_modules: self.recorded_gpu_modules(),
            fabric_partitions: None,
            fabric_mode: self.fabric_mode(),
        };
        self.apply_assigned_identities(&mut topology);
        topology
    }

    /// Mode of the fabric manager as its settings have it.
    fn fabric_mode(&self) -> Option<u32> {
        let text = self.text(FABRIC_MANAGER_SETTINGS)?;
        let mut lines = text.lines();
        lines.find_map(|line| line.trim().strip_prefix("FABRIC_MODE=")?.trim().parse().ok())
    }

    /// Module ids of GPUs as [`GPU_MODULES_RECORD`] has them; empty where there is no record.
    #[must_use]
    pub fn recorded_gpu_modules(&self) -> Vec<GpuModule> {
        self.text(GPU_MODULES_RECORD).map(|text| queries::gpu_modules(&text)).unwrap_or_default()
    }
}
