//! How far two PCI functions are from each other.

use gpuaas_types::topology::TopologyFunction;

use super::host_index::HostIndex;

/// Added where the way goes through the processor, from one root complex to another.
const ROOT_COMPLEX: u32 = 100;
/// Times the distance of NUMA nodes, where the way goes from one to another (10 is the own one).
const NODE_FACTOR: u32 = 10;
/// Distance of NUMA nodes where one is unknown: the firmware's word for unreachable.
const UNKNOWN_NODE: u32 = 255;

/// Links between two functions, and the cost of leaving the root complex and the NUMA node.
pub(super) fn distance(
    host: &HostIndex<'_>,
    one: &TopologyFunction,
    other: &TopologyFunction,
) -> u32 {
    let common = one.path.iter().zip(&other.path).take_while(|(a, b)| a == b).count();
    let links = (one.path.len() - common) + (other.path.len() - common);
    let links = u32::try_from(links).unwrap_or(u32::MAX / 2);
    if common > 0 {
        return links;
    }
    let nodes = match (one.numa_node, other.numa_node) {
        (Some(one), Some(other)) if one == other => 0,
        (Some(one), Some(other)) => host.node_distance(one, other),
        _ => UNKNOWN_NODE,
    };
    links.saturating_add(ROOT_COMPLEX).saturating_add(nodes * NODE_FACTOR)
}
