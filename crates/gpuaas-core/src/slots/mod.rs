//! From what an agent sees of a host to the slots that an operator reviews.
//!
//! A slot is all that a slice of one GPU gets: the GPU, a virtual function of the fabric, a raw NVMe
//! drive, cores, pages, a MAC address and an IP address. Cores and pages belong to the slot and not
//! to the claim, so whoever claims slots of one NUMA node need add up nothing. Which function and
//! which drive go to which GPU is a problem of assignment, solved exactly ([`assignment`]): taking
//! the nearest for each GPU in turn leaves the last ones with what is far away. The map is a function
//! of what is there, not of the order in which it was read: everything is sorted by address first.
//!
//! What does not fit is a blocker of its slot, and the map is whole all the same: an operator sees
//! eight slots of which one is blocked, not seven. The digest is over what an approval pins; blockers
//! come and go, and are not in it.

mod approval;
mod assignment;
mod blockers;
mod difference;
mod digest;
mod distance;
mod host_index;
mod numa;
mod nvme_blockers;
mod partitions;
mod pci_blockers;
mod slot_policy;

#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use gpuaas_types::codes::SlotBlockerCode;
use gpuaas_types::slot::{
    CandidateSlot, SlotBlocker, SlotDistance, SlotGpu, SlotMap, SlotNvme, SlotState,
    SlotVirtualFunction,
};
use gpuaas_types::topology::{HostTopology, NvmeNamespace, TopologyFunction};
use sha2::{Digest as _, Sha256};

pub use self::approval::{ApprovalFault, approvable, stale_reason};
pub use self::difference::map_difference;
pub(crate) use self::slot_policy::host_cores_per_node;
pub use self::slot_policy::{FunctionFilter, SliceSubnet, SlotPolicy};

use self::assignment::{Preference, assign};
use self::blockers::blocker;
use self::distance::distance;
use self::host_index::HostIndex;
use self::numa::SlotCpus;

/// The candidate slots of node `node` with what keeps each of them from being used.
#[must_use]
pub fn slot_map(node: &str, topology: &HostTopology, policy: &SlotPolicy) -> SlotMap {
    let host = HostIndex::new(topology);
    let gpus: Vec<&TopologyFunction> = host
        .functions()
        .filter(|function| function.physical_function.is_none() && policy.gpu.matches(function))
        .collect();
    let functions = assign_functions(&host, &gpus, policy);
    let drives = assign_drives(&host, &gpus);
    let cpus = numa::assign_cpus(&host, &gpus, policy);
    let partitions = partitions::partitions(&host, &gpus);
    let mut slots = Vec::with_capacity(gpus.len());
    for (at, gpu) in gpus.iter().enumerate() {
        let parts = SlotParts { gpu, vf: functions[at], nvme: drives[at], cpus: &cpus[at] };
        slots.push(candidate(node, at, &parts, &host, policy));
    }
    let mut host_blockers = host_blockers(&gpus, partitions.is_none(), policy);
    host_blockers.extend(partitions::fabric_manager_blocker(&host, topology.fabric_mode));
    let partitions = partitions.unwrap_or_default();
    let digest = digest::digest(node, &partitions, &slots);
    SlotMap { node: node.to_owned(), digest, host_blockers, partitions, slots }
}

/// What was chosen for a slot.
struct SlotParts<'a> {
    gpu: &'a TopologyFunction,
    vf: Option<&'a TopologyFunction>,
    nvme: Option<&'a NvmeNamespace>,
    cpus: &'a SlotCpus,
}

fn assign_functions<'a>(
    host: &HostIndex<'a>,
    gpus: &[&'a TopologyFunction],
    policy: &SlotPolicy,
) -> Vec<Option<&'a TopologyFunction>> {
    let virtual_functions: Vec<&TopologyFunction> = host
        .functions()
        .filter(|function| function.physical_function.is_some() && policy.fabric.matches(function))
        .collect();
    let chosen = assign(gpus.len(), virtual_functions.len(), |gpu, vf| {
        Some(Preference { tier: 0, distance: distance(host, gpus[gpu], virtual_functions[vf]) })
    });
    chosen.into_iter().map(|vf| vf.map(|vf| virtual_functions[vf])).collect()
}

/// Drives that nothing uses come first. The host's own boot disk is a slot's last resort, and only
/// below the GPU's own root complex: a boot card elsewhere was never meant for slices.
fn assign_drives<'a>(
    host: &HostIndex<'a>,
    gpus: &[&'a TopologyFunction],
) -> Vec<Option<&'a NvmeNamespace>> {
    let drives: Vec<(&NvmeNamespace, &TopologyFunction)> = host
        .namespaces()
        .filter_map(|drive| Some((drive, host.function(drive.address.as_deref()?)?)))
        .collect();
    let chosen = assign(gpus.len(), drives.len(), |gpu, drive| {
        let (namespace, controller) = drives[drive];
        let gpu = gpus[gpu];
        let tier = if !nvme_blockers::is_boot_disk(namespace) {
            u8::from(!nvme_blockers::nvme_blockers(host, namespace).is_empty())
        } else if gpu.path.first() == controller.path.first() {
            2
        } else {
            return None;
        };
        Some(Preference { tier, distance: distance(host, gpu, controller) })
    });
    chosen.into_iter().map(|drive| drive.map(|drive| drives[drive].0)).collect()
}

fn candidate(
    node: &str,
    at: usize,
    parts: &SlotParts<'_>,
    host: &HostIndex<'_>,
    policy: &SlotPolicy,
) -> CandidateSlot {
    let SlotParts { gpu, vf, nvme, cpus } = *parts;
    let index = u32::try_from(at).unwrap_or(u32::MAX);
    let private_ip = policy.subnet.address(index);
    let module = host.gpu_module(&gpu.address);
    let controller = nvme.and_then(|drive| host.function(drive.address.as_deref()?));
    CandidateSlot {
        index,
        state: SlotState::Candidate,
        gpu: SlotGpu {
            address: gpu.address.clone(),
            serial: module.and_then(|module| module.serial.clone()),
            module_id: module.map(|module| module.module_id),
        },
        fabric_vf: vf.map(|vf| virtual_function(host, vf)),
        nvme: nvme.map(|drive| SlotNvme {
            serial: drive.serial.clone().unwrap_or_default(),
            path: drive.path.clone(),
        }),
        numa_node: cpus.numa_node,
        cpus: numa::cpu_list(&cpus.cpus),
        hugepages: cpus.pages,
        mac: guest_mac(node, index),
        private_ip: private_ip.map(|address| address.to_string()),
        distance: SlotDistance {
            vf: vf.map(|vf| distance(host, gpu, vf)),
            nvme: controller.map(|controller| distance(host, gpu, controller)),
        },
        blockers: slot_blockers(host, parts, private_ip, policy),
    }
}

fn virtual_function(host: &HostIndex<'_>, vf: &TopologyFunction) -> SlotVirtualFunction {
    let pf = vf.physical_function.clone().unwrap_or_default();
    SlotVirtualFunction {
        address: vf.address.clone(),
        link_layer: host.fabric_port(vf).map(|port| port.link_layer.clone()),
        pf,
        index: vf.virtual_index.unwrap_or_default(),
        guid: vf.guid.clone(),
        mac: vf.mac.clone(),
    }
}

fn slot_blockers(
    host: &HostIndex<'_>,
    parts: &SlotParts<'_>,
    private_ip: Option<Ipv4Addr>,
    policy: &SlotPolicy,
) -> Vec<SlotBlocker> {
    let mut blockers = pci_blockers::gpu_blockers(host, parts.gpu);
    match parts.vf {
        Some(vf) => blockers.extend(pci_blockers::vf_blockers(host, parts.gpu, vf)),
        None => {
            let there = host
                .functions()
                .filter(|one| one.physical_function.is_some() && policy.fabric.matches(one));
            let seen = format!("{} virtual functions", there.count());
            let expected = "a virtual function of the fabric for each GPU";
            blockers.push(blocker(SlotBlockerCode::VfMissing, expected, seen));
        }
    }
    match parts.nvme {
        Some(drive) => {
            blockers.extend(nvme_blockers::nvme_blockers(host, drive));
            blockers.extend(nvme_blockers::far_drive(host, parts.gpu, drive));
        }
        None => {
            let raw = host.namespaces().filter(|drive| !nvme_blockers::is_boot_disk(drive)).count();
            let expected = "a raw NVMe drive for each GPU";
            let seen = format!("{raw} drives besides the boot disk");
            blockers.push(blocker(SlotBlockerCode::NvmeMissing, expected, seen));
        }
    }
    blockers.extend(parts.cpus.blockers.iter().cloned());
    if private_ip.is_none() {
        let expected = "an address for each slot";
        let seen = policy.subnet.to_string();
        blockers.push(blocker(SlotBlockerCode::SubnetFull, expected, seen));
    }
    blockers.sort();
    blockers
}

fn host_blockers(
    gpus: &[&TopologyFunction],
    partitions_unknown: bool,
    policy: &SlotPolicy,
) -> Vec<SlotBlocker> {
    let mut blockers = Vec::new();
    let wanted = policy.gpus.map(|gpus| gpus as usize);
    if wanted.is_some_and(|wanted| wanted != gpus.len()) || gpus.is_empty() {
        let expected = wanted.map_or("GPUs".to_owned(), |wanted| format!("{wanted} GPUs"));
        let seen = gpus.len().to_string();
        blockers.push(blocker(SlotBlockerCode::GpuCount, expected, seen));
    }
    if !gpus.is_empty() && gpus.iter().all(|gpu| gpu.iommu_group.is_none()) {
        let seen = "no GPU has a group";
        blockers.push(blocker(SlotBlockerCode::IommuOff, "an IOMMU group for each GPU", seen));
    }
    if partitions_unknown {
        let expected = "a different module ID for each GPU";
        let seen = "module IDs missing or duplicated in the inventory";
        blockers.push(blocker(SlotBlockerCode::ModuleIdsUnknown, expected, seen));
    }
    blockers
}

/// A locally administered address of the node's name and the slot's number: the same after each
/// discovery, and another one on another node.
fn guest_mac(node: &str, index: u32) -> String {
    let hash = Sha256::digest(node.as_bytes());
    format!(
        "02:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}",
        hash[0],
        hash[1],
        hash[2],
        hash[3],
        index & 0xff
    )
}
