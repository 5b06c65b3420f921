//! A topology, sorted and by address: the order in which a host was read cannot matter after this.

use std::collections::BTreeMap;

use gpuaas_types::topology::{
    FabricPartition, FabricPort, GpuModule, HostTopology, NumaResources, NvmeNamespace,
    TopologyFunction,
};

/// Beginning of the class of PCI-to-PCI bridges.
const BRIDGE_CLASS: &str = "0604";

const NVIDIA: &str = "10de";
/// Class of an NVSwitch: a bridge of no other kind.
const SWITCH_CLASS: &str = "0680";

/// The devices of a host by address, group and number.
pub(super) struct HostIndex<'a> {
    functions: BTreeMap<&'a str, &'a TopologyFunction>,
    groups: BTreeMap<u32, Vec<&'a TopologyFunction>>,
    namespaces: Vec<&'a NvmeNamespace>,
    nodes: BTreeMap<u32, &'a NumaResources>,
    modules: BTreeMap<&'a str, &'a GpuModule>,
    partitions: Option<&'a [FabricPartition]>,
}

impl<'a> HostIndex<'a> {
    /// Sorts `topology`.
    pub(super) fn new(topology: &'a HostTopology) -> Self {
        let functions: BTreeMap<&str, &TopologyFunction> =
            topology.functions.iter().map(|one| (one.address.as_str(), one)).collect();
        let mut groups: BTreeMap<u32, Vec<&TopologyFunction>> = BTreeMap::new();
        for function in functions.values() {
            if let Some(group) = function.iommu_group {
                groups.entry(group).or_default().push(function);
            }
        }
        let mut namespaces: Vec<&NvmeNamespace> = topology.namespaces.iter().collect();
        // By serial number: names change with each boot.
        namespaces.sort_by_key(|one| (&one.serial, &one.address, &one.name));
        Self {
            functions,
            groups,
            namespaces,
            nodes: topology.numa_nodes.iter().map(|node| (node.id, node)).collect(),
            modules: topology.gpu_modules.iter().map(|one| (one.address.as_str(), one)).collect(),
            partitions: topology.fabric_partitions.as_deref(),
        }
    }

    /// Functions by address.
    pub(super) fn functions(&self) -> impl Iterator<Item = &'a TopologyFunction> + '_ {
        self.functions.values().copied()
    }

    /// The function at `address`.
    pub(super) fn function(&self, address: &str) -> Option<&'a TopologyFunction> {
        self.functions.get(address).copied()
    }

    /// Namespaces by serial number.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &'a NvmeNamespace> + '_ {
        self.namespaces.iter().copied()
    }

    /// NUMA nodes by number.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &'a NumaResources> + '_ {
        self.nodes.values().copied()
    }

    /// What is on record of the GPU at `address`.
    pub(super) fn gpu_module(&self, address: &str) -> Option<&'a GpuModule> {
        self.modules.get(address).copied()
    }

    /// Whether NVSwitches join the GPUs.
    pub(super) fn has_switches(&self) -> bool {
        self.functions().any(is_switch)
    }

    /// Partitions that the fabric manager lists; none: it did not answer.
    pub(super) const fn fabric_partitions(&self) -> Option<&'a [FabricPartition]> {
        self.partitions
    }

    /// The port of a virtual function's physical one.
    pub(super) fn fabric_port(&self, vf: &TopologyFunction) -> Option<&'a FabricPort> {
        self.function(vf.physical_function.as_deref()?)?.port.as_ref()
    }

    /// Other functions than bridges in the function's group.
    pub(super) fn group_peers(&self, function: &TopologyFunction) -> Vec<&'a TopologyFunction> {
        let members = function.iommu_group.and_then(|group| self.groups.get(&group));
        let other = |one: &&&TopologyFunction| {
            one.address != function.address
                && !one.class.as_deref().is_some_and(|class| class.starts_with(BRIDGE_CLASS))
        };
        members.into_iter().flatten().filter(other).copied().collect()
    }

    /// Whether two NUMA nodes are one, or of the same processor package.
    pub(super) fn is_same_package(&self, one: u32, other: u32) -> bool {
        let package = |id: u32| self.nodes.get(&id).and_then(|node| node.package);
        one == other || (package(one).is_some() && package(one) == package(other))
    }

    /// Distance of two NUMA nodes as the firmware says it; 255, which is unreachable, where it does
    /// not.
    pub(super) fn node_distance(&self, from: u32, to: u32) -> u32 {
        let told = self.nodes.get(&from).and_then(|node| {
            node.distances.get(usize::try_from(to).unwrap_or(usize::MAX)).copied()
        });
        if from == to { told.unwrap_or(10) } else { told.unwrap_or(255) }
    }
}

/// Whether a function is an NVSwitch.
fn is_switch(function: &TopologyFunction) -> bool {
    function.vendor.as_deref() == Some(NVIDIA)
        && function.class.as_deref().is_some_and(|class| class.starts_with(SWITCH_CLASS))
}
