//! Cores and pages of each slot: of one NUMA node, near the GPU.
//!
//! With sub-NUMA clusters a package has several nodes, and firmware may put all GPUs of a package at
//! one of them. So a slot may have its cores at any node of the GPU's package, the nearest first, as
//! an assignment of least distance over all slots; never at another package.

use gpuaas_types::codes::SlotBlockerCode;
use gpuaas_types::slot::SlotBlocker;
use gpuaas_types::topology::{NumaResources, TopologyFunction};

use super::assignment::{Preference, assign};
use super::blockers::blocker;
use super::host_index::HostIndex;
use super::slot_policy::SlotPolicy;

/// Cores and pages of a slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SlotCpus {
    /// The node; none: there is none for it.
    pub(super) numa_node: Option<u32>,
    /// CPUs, sorted.
    pub(super) cpus: Vec<u32>,
    /// Pages of 1 GiB.
    pub(super) pages: u32,
    /// Why there is no node.
    pub(super) blockers: Vec<SlotBlocker>,
}

/// What a node has for slots.
struct NodeCapacity<'a> {
    node: &'a NumaResources,
    /// CPUs of whole cores for one slot each.
    cpu_sets: Vec<Vec<u32>>,
    /// Slots that its pages are enough for.
    page_sets: usize,
}

impl NodeCapacity<'_> {
    fn slots(&self) -> usize {
        self.cpu_sets.len().min(self.page_sets)
    }
}

/// Cores and pages for each GPU.
pub(super) fn assign_cpus(
    host: &HostIndex<'_>,
    gpus: &[&TopologyFunction],
    policy: &SlotPolicy,
) -> Vec<SlotCpus> {
    let nodes: Vec<NodeCapacity<'_>> = host.nodes().map(|node| capacity(node, policy)).collect();
    // One column for each slot that a node has room for.
    let rooms: Vec<usize> = nodes
        .iter()
        .enumerate()
        .flat_map(|(at, node)| std::iter::repeat_n(at, node.slots().min(gpus.len())))
        .collect();
    let chosen = assign(gpus.len(), rooms.len(), |gpu, room| {
        let (own, other) = (gpus[gpu].numa_node?, nodes[rooms[room]].node.id);
        let near = host.is_same_package(own, other);
        near.then(|| Preference { tier: 0, distance: host.node_distance(own, other) })
    });
    let mut taken = vec![0; nodes.len()];
    let mut slots = Vec::with_capacity(gpus.len());
    for (gpu, room) in gpus.iter().zip(chosen) {
        let Some(at) = room.map(|room| rooms[room]) else {
            let blockers = shortage(host, gpus, gpu, &nodes, policy);
            slots.push(SlotCpus { blockers, ..SlotCpus::default() });
            continue;
        };
        let node = &nodes[at];
        slots.push(SlotCpus {
            numa_node: Some(node.node.id),
            cpus: node.cpu_sets[taken[at]].clone(),
            pages: policy.memory_gib_per_gpu,
            blockers: Vec::new(),
        });
        taken[at] += 1;
    }
    slots
}

fn capacity<'a>(node: &'a NumaResources, policy: &SlotPolicy) -> NodeCapacity<'a> {
    let wanted = usize::try_from(policy.vcpus_per_gpu.max(1)).unwrap_or(usize::MAX);
    let mut cores: Vec<&Vec<u32>> = node.cores.iter().collect();
    cores.sort();
    let (mut cpu_sets, mut open): (Vec<Vec<u32>>, Vec<u32>) = (Vec::new(), Vec::new());
    for core in cores.into_iter().skip(policy.host_cores_per_node as usize) {
        open.extend(core);
        if open.len() >= wanted {
            open.sort_unstable();
            cpu_sets.push(std::mem::take(&mut open));
        }
    }
    let pages = node.gigabyte_pages.unwrap_or(0) / policy.memory_gib_per_gpu.max(1);
    NodeCapacity { node, cpu_sets, page_sets: pages as usize }
}

/// Why there is no node for `gpu`: cores, pages or both are too few for all GPUs of its package.
fn shortage(
    host: &HostIndex<'_>,
    gpus: &[&TopologyFunction],
    gpu: &TopologyFunction,
    nodes: &[NodeCapacity<'_>],
    policy: &SlotPolicy,
) -> Vec<SlotBlocker> {
    // An unknown node is a blocker of the GPU's own.
    let Some(own) = gpu.numa_node else { return Vec::new() };
    let near = |node: Option<u32>| node.is_some_and(|node| host.is_same_package(own, node));
    let wanted = gpus.iter().filter(|one| near(one.numa_node)).count();
    let around = || nodes.iter().filter(|node| near(Some(node.node.id)));
    let cpu_sets: usize = around().map(|node| node.cpu_sets.len()).sum();
    let page_sets: usize = around().map(|node| node.page_sets).sum();
    let mut blockers = Vec::new();
    if page_sets < wanted {
        let expected =
            format!("{} pages of 1 GiB for each of {wanted} GPUs", policy.memory_gib_per_gpu);
        let seen = format!("enough for {page_sets} near NUMA node {own}");
        blockers.push(blocker(SlotBlockerCode::HugepagesShort, expected, seen));
    }
    if cpu_sets < wanted || blockers.is_empty() {
        let expected = format!("{} CPUs for each of {wanted} GPUs", policy.vcpus_per_gpu);
        let seen = format!("enough for {cpu_sets} near NUMA node {own}");
        blockers.push(blocker(SlotBlockerCode::CpusShort, expected, seen));
    }
    blockers
}

/// Sorted numbers as the kernel lists them: `2-13,98-109`.
pub(super) fn cpu_list(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): (u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}
