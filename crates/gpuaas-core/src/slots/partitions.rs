//! Sets of slots that may be claimed together.
//!
//! GPUs on an HGX board are joined by NVSwitches, and guests are kept apart by partitions of these,
//! which the fabric manager names by the GPUs' module ids. Which partitions there are is the fabric
//! manager's own table (NVIDIA, Fabric Manager user guide, "Shared NVSwitch"): of a board with eight
//! GPUs one of 8, two of 4, four of 2 and eight of 1. GPUs that no switch joins are claimed one by one.

use std::collections::BTreeMap;

use gpuaas_types::topology::TopologyFunction;

use super::host_index::HostIndex;

/// Partitions of an HGX board with eight GPUs, by module id, without those of one GPU.
const HGX_PARTITIONS: [&[u32]; 7] =
    [&[1, 2, 3, 4, 5, 6, 7, 8], &[1, 2, 3, 4], &[5, 6, 7, 8], &[1, 3], &[2, 4], &[5, 7], &[6, 8]];
const NVIDIA: &str = "10de";
/// Class of an NVSwitch: a bridge of no other kind.
const SWITCH_CLASS: &str = "0680";

/// The partitions as sets of slots, the largest first; `None` where switches join the GPUs and not
/// each has a module id of its own on record.
pub(super) fn partitions(
    host: &HostIndex<'_>,
    gpus: &[&TopologyFunction],
) -> Option<Vec<Vec<u32>>> {
    let mut sets: Vec<Vec<u32>> = Vec::new();
    if host.functions().any(is_switch) {
        let mut slot_of: BTreeMap<u32, u32> = BTreeMap::new();
        for (slot, gpu) in (0u32..).zip(gpus) {
            let module = host.gpu_module(&gpu.address)?;
            if slot_of.insert(module.module_id, slot).is_some() {
                return None;
            }
        }
        for modules in HGX_PARTITIONS {
            let slots: Option<Vec<u32>> =
                modules.iter().map(|module| slot_of.get(module).copied()).collect();
            sets.extend(slots.map(|mut slots| {
                slots.sort_unstable();
                slots
            }));
        }
    }
    sets.extend((0u32..).zip(gpus).map(|(slot, _)| vec![slot]));
    sets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    Some(sets)
}

fn is_switch(function: &TopologyFunction) -> bool {
    function.vendor.as_deref() == Some(NVIDIA)
        && function.class.as_deref().is_some_and(|class| class.starts_with(SWITCH_CLASS))
}
