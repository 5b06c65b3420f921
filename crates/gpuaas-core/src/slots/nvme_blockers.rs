//! What keeps a drive from a guest.

use gpuaas_types::codes::SlotBlockerCode;
use gpuaas_types::slot::SlotBlocker;
use gpuaas_types::topology::{DiskUse, DiskUseKind, NvmeNamespace, TopologyFunction};

use super::blockers::blocker;
use super::host_index::HostIndex;

/// Mount points of the host's own system.
const SYSTEM_MOUNTS: [&str; 3] = ["/", "/boot", "/boot/efi"];

/// Whether the host's own system is on the drive.
pub(super) fn is_boot_disk(drive: &NvmeNamespace) -> bool {
    let system =
        |one: &DiskUse| one.kind == DiskUseKind::Mount && SYSTEM_MOUNTS.contains(&one.by.as_str());
    drive.uses.iter().flatten().any(system)
}

/// What keeps a drive from a guest.
pub(super) fn nvme_blockers(host: &HostIndex<'_>, drive: &NvmeNamespace) -> Vec<SlotBlocker> {
    let mut blockers = Vec::new();
    let serial = drive.serial.as_deref();
    let same = host.namespaces().filter(|other| other.serial == drive.serial).count();
    if serial.is_none() || same > 1 {
        let seen = match serial {
            None => format!("{} has none", drive.name),
            Some(serial) => format!("{same} namespaces report {serial}"),
        };
        blockers.push(blocker(SlotBlockerCode::NvmeSerialMissing, "a unique serial number", seen));
    }
    blockers.extend(use_blockers(drive));
    if drive.erase_methods.as_ref().is_none_or(Vec::is_empty) {
        let seen = match &drive.erase_methods {
            None => "unknown",
            Some(_) => "neither",
        };
        let seen = format!("{}: {seen}", drive.name);
        blockers.push(blocker(SlotBlockerCode::NvmeEraseMissing, "sanitize or format", seen));
    }
    blockers
}

fn use_blockers(drive: &NvmeNamespace) -> Vec<SlotBlocker> {
    let Some(uses) = &drive.uses else {
        let seen = format!("the users of {} could not be read", drive.name);
        return vec![blocker(SlotBlockerCode::NvmeOpen, "no use", seen)];
    };
    let boots = is_boot_disk(drive);
    let code = |kind: DiskUseKind| match kind {
        DiskUseKind::Mount if boots => SlotBlockerCode::NvmeBootDisk,
        DiskUseKind::Mount => SlotBlockerCode::NvmeMounted,
        DiskUseKind::Swap => SlotBlockerCode::NvmeSwap,
        DiskUseKind::BlockDevice => SlotBlockerCode::NvmeHeld,
        DiskUseKind::Process => SlotBlockerCode::NvmeOpen,
        DiskUseKind::Partition => SlotBlockerCode::NvmePartitioned,
        DiskUseKind::Signature => SlotBlockerCode::NvmeSignature,
    };
    // What lies on a drive is worth a word of its own only where nothing uses the drive.
    let lies = |kind: DiskUseKind| matches!(kind, DiskUseKind::Partition | DiskUseKind::Signature);
    let in_use = uses.iter().any(|one| !lies(one.kind));
    let of_kind = |kind: &DiskUseKind| {
        let seen: Vec<String> = uses
            .iter()
            .filter(|one| one.kind == *kind && (!lies(*kind) || !in_use))
            .map(|one| format!("{}: {}", one.part, one.by))
            .collect();
        (!seen.is_empty()).then(|| blocker(code(*kind), "no use", seen.join("; ")))
    };
    DiskUseKind::ALL.iter().filter_map(of_kind).collect()
}

/// The drive's controller is at another processor package than the GPU.
pub(super) fn far_drive(
    host: &HostIndex<'_>,
    gpu: &TopologyFunction,
    drive: &NvmeNamespace,
) -> Option<SlotBlocker> {
    let controller = host.function(drive.address.as_deref()?)?;
    let (own, other) = (gpu.numa_node?, controller.numa_node?);
    if host.is_same_package(own, other) {
        return None;
    }
    let expected = format!("the CPU package of NUMA node {own}");
    let seen = format!("{} is on NUMA node {other}", controller.address);
    Some(blocker(SlotBlockerCode::NvmeFar, expected, seen))
}
