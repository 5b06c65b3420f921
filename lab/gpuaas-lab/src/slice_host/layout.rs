//! What a slice host is made of.

use gpuaas_types::codes::SlotBlockerCode;

/// A PCIe switch and what is below it.
#[derive(Debug, Clone, Copy)]
pub struct SwitchLayout {
    /// NUMA node of its root complex.
    pub node: u32,
    /// Number of GPUs.
    pub gpus: u32,
    /// Number of fabric adapters.
    pub nics: u32,
    /// Virtual functions of each adapter.
    pub virtual_functions: u32,
    /// Number of raw NVMe drives.
    pub drives: u32,
}

/// A server.
#[derive(Debug, Clone, Copy)]
pub struct HostLayout {
    /// Name for people.
    pub name: &'static str,
    /// The switches, in the order of their root complexes.
    pub switches: &'static [SwitchLayout],
    /// NUMA nodes of each of its two processor packages.
    pub nodes_per_package: u32,
    /// Cores of a NUMA node, each of two threads.
    pub cores_per_node: u32,
    /// Pages of 1 GiB of a NUMA node.
    pub pages_per_node: u32,
    /// NVSwitches, beside the PCIe switches.
    pub nvswitches: u32,
    /// Module ids of the GPUs, in the order of their addresses; none: they are on no board.
    pub module_ids: &'static [u32],
    /// What the ports of the fabric say.
    pub link_layer: &'static str,
    /// Codes of the slots' blockers while nothing is broken, with the number of slots that have one.
    pub blocked: (&'static [SlotBlockerCode], usize),
}

const fn switch(node: u32, nics: u32, virtual_functions: u32, drives: u32) -> SwitchLayout {
    SwitchLayout { node, gpus: 2, nics, virtual_functions, drives }
}

/// Module ids of an HGX H100 or H200 board, by the PCI addresses of its GPUs.
const HGX_MODULES: [u32; 8] = [2, 4, 3, 1, 7, 5, 8, 6];

/// Servers with eight GPUs.
pub const LAYOUTS: [HostLayout; 4] = [
    HostLayout {
        name: "8 GPUs on 4 switches",
        switches: &[switch(0, 2, 1, 2), switch(0, 2, 1, 2), switch(1, 2, 1, 2), switch(1, 2, 1, 2)],
        nodes_per_package: 1,
        cores_per_node: 56,
        pages_per_node: 300,
        nvswitches: 4,
        module_ids: &HGX_MODULES,
        link_layer: "InfiniBand",
        blocked: (&[], 0),
    },
    HostLayout {
        name: "sub-NUMA clusters",
        switches: &[switch(0, 2, 1, 2), switch(0, 2, 1, 2), switch(2, 2, 1, 2), switch(2, 2, 1, 2)],
        nodes_per_package: 2,
        cores_per_node: 28,
        pages_per_node: 150,
        nvswitches: 4,
        module_ids: &HGX_MODULES,
        link_layer: "InfiniBand",
        blocked: (&[], 0),
    },
    HostLayout {
        name: "one NIC for two GPUs",
        switches: &[switch(0, 1, 2, 2), switch(0, 1, 2, 2), switch(1, 1, 2, 2), switch(1, 1, 2, 2)],
        nodes_per_package: 1,
        cores_per_node: 56,
        pages_per_node: 300,
        nvswitches: 0,
        module_ids: &[],
        link_layer: "Ethernet",
        blocked: (&[], 0),
    },
    HostLayout {
        name: "a missing NVMe",
        switches: &[switch(0, 2, 1, 2), switch(0, 2, 1, 2), switch(1, 2, 1, 2), switch(1, 2, 1, 1)],
        nodes_per_package: 1,
        cores_per_node: 56,
        pages_per_node: 300,
        nvswitches: 4,
        module_ids: &HGX_MODULES,
        link_layer: "InfiniBand",
        blocked: (&[SlotBlockerCode::NvmeMissing], 1),
    },
];
