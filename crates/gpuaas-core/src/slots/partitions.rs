//! Sets of slots that may be claimed together.
//!
//! GPUs on an HGX board are joined by NVSwitches, and guests are kept apart by partitions of these,
//! which the fabric manager names by the GPUs' module ids. Which partitions there are is the fabric
//! manager's own table (NVIDIA, Fabric Manager user guide, "Shared NVSwitch"): of a board with eight
//! GPUs one of 8, two of 4, four of 2 and eight of 1. Where the fabric manager answers, its list
//! counts, and that table does not. GPUs that no switch joins are claimed one by one.

use std::collections::BTreeMap;

use gpuaas_types::codes::SlotBlockerCode;
use gpuaas_types::slot::SlotBlocker;
use gpuaas_types::topology::TopologyFunction;

use super::blockers::blocker;
use super::host_index::HostIndex;

/// Partitions of an HGX board with eight GPUs, by module id, without those of one GPU.
const HGX_PARTITIONS: [&[u32]; 7] =
    [&[1, 2, 3, 4, 5, 6, 7, 8], &[1, 2, 3, 4], &[5, 6, 7, 8], &[1, 3], &[2, 4], &[5, 7], &[6, 8]];
/// Mode of the fabric manager in which partitions are kept apart (`FABRIC_MODE`, shared NVSwitch).
const SHARED_MODE: u32 = 1;

/// The partitions as sets of slots, the largest first; `None` where switches join the GPUs and not
/// each has a module id of its own on record.
pub(super) fn partitions(
    host: &HostIndex<'_>,
    gpus: &[&TopologyFunction],
) -> Option<Vec<Vec<u32>>> {
    let mut sets: Vec<Vec<u32>> = Vec::new();
    let joined = host.has_switches();
    if joined {
        let mut slot_of: BTreeMap<u32, u32> = BTreeMap::new();
        for (slot, gpu) in (0u32..).zip(gpus) {
            let module = host.gpu_module(&gpu.address)?;
            if slot_of.insert(module.module_id, slot).is_some() {
                return None;
            }
        }
        let set = |modules: &[u32]| {
            let slots: Option<Vec<u32>> =
                modules.iter().map(|module| slot_of.get(module).copied()).collect();
            slots.map(|mut slots| {
                slots.sort_unstable();
                slots
            })
        };
        match host.fabric_partitions() {
            Some(listed) => {
                sets.extend(listed.iter().filter_map(|one| set(&one.modules)));
                sets.retain(|slots| !slots.is_empty());
            }
            None => sets.extend(HGX_PARTITIONS.iter().filter_map(|modules| set(modules))),
        }
    }
    if !joined || host.fabric_partitions().is_none() {
        sets.extend((0u32..).zip(gpus).map(|(slot, _)| vec![slot]));
    }
    sets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    sets.dedup();
    Some(sets)
}

/// What keeps NVSwitches from keeping guests apart.
pub(super) fn fabric_manager_blocker(
    host: &HostIndex<'_>,
    mode: Option<u32>,
) -> Option<SlotBlocker> {
    if !host.has_switches() {
        return None;
    }
    if let Some(mode) = mode.filter(|mode| *mode != SHARED_MODE) {
        let (expected, seen) =
            (format!("FABRIC_MODE={SHARED_MODE}"), format!("FABRIC_MODE={mode}"));
        return Some(blocker(SlotBlockerCode::FabricManagerMode, expected, seen));
    }
    if host.fabric_partitions().is_some() {
        return None;
    }
    let (expected, seen) = ("a list of partitions", "no answer");
    Some(blocker(SlotBlockerCode::FabricManagerSilent, expected, seen))
}
