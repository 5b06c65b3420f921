//! What keeps a GPU or a virtual function from a guest.

use gpuaas_types::codes::SlotBlockerCode;
use gpuaas_types::slot::SlotBlocker;
use gpuaas_types::topology::TopologyFunction;

use super::blockers::blocker;
use super::host_index::HostIndex;

/// The driver that hands functions to guests.
const VFIO: &str = "vfio-pci";
/// Beginning of the class of PCI-to-PCI bridges.
const BRIDGE_CLASS: &str = "0604";
/// Ways to reset that clear a device. The kernel offers `bus` only where nothing else is below the
/// bridge; `pm` alone (D3hot and back) leaves memory as it was.
const OWN_RESETS: [&str; 5] = ["device_specific", "acpi", "flr", "af_flr", "bus"];

/// What keeps a GPU from a guest.
pub(super) fn gpu_blockers(host: &HostIndex<'_>, gpu: &TopologyFunction) -> Vec<SlotBlocker> {
    let mut blockers = Vec::new();
    if gpu.numa_node.is_none() {
        let seen = format!("{} reports -1", gpu.address);
        blockers.push(blocker(SlotBlockerCode::GpuNumaUnknown, "a NUMA node", seen));
    }
    blockers.extend(driver_blocker(SlotBlockerCode::GpuDriver, gpu));
    blockers.extend(group_blocker(host, SlotBlockerCode::GpuGroupShared, gpu));
    blockers.extend(acs_blocker(host, SlotBlockerCode::GpuAcsOff, gpu));
    blockers.extend(holder_blocker(SlotBlockerCode::GpuHeld, gpu));
    let resets = gpu.reset_methods.as_deref();
    let own_reset = |method: &String| OWN_RESETS.contains(&method.as_str());
    if !resets.unwrap_or_default().iter().any(own_reset) {
        let seen = match resets {
            None => format!("{} lists no reset method", gpu.address),
            Some(methods) => format!("{}: {:?}", gpu.address, methods.join(" ")),
        };
        blockers.push(blocker(SlotBlockerCode::GpuResetMissing, OWN_RESETS.join(" or "), seen));
    }
    if !gpu.bars.iter().flatten().any(|bar| bar.prefetchable && bar.size_bytes > 0) {
        let expected = "a prefetchable base address register with a nonzero size";
        let seen = format!("{} has none", gpu.address);
        blockers.push(blocker(SlotBlockerCode::GpuBarMissing, expected, seen));
    }
    blockers
}

/// What keeps a virtual function of the fabric from the guest of `gpu`.
pub(super) fn vf_blockers(
    host: &HostIndex<'_>,
    gpu: &TopologyFunction,
    vf: &TopologyFunction,
) -> Vec<SlotBlocker> {
    let mut blockers = Vec::new();
    blockers.extend(driver_blocker(SlotBlockerCode::VfDriver, vf));
    blockers.extend(group_blocker(host, SlotBlockerCode::VfGroupShared, vf));
    blockers.extend(acs_blocker(host, SlotBlockerCode::VfAcsOff, vf));
    blockers.extend(holder_blocker(SlotBlockerCode::VfHeld, vf));
    let pf = vf.physical_function.as_deref().unwrap_or_default();
    let port = host.fabric_port(vf);
    if port.is_none_or(|port| port.state != "ACTIVE") {
        let state = port.map_or("no port", |port| port.state.as_str());
        let seen = format!("{pf}: {state}");
        blockers.push(blocker(SlotBlockerCode::FabricPortDown, "ACTIVE", seen));
    }
    let identity = match port.map(|port| port.link_layer.as_str()) {
        Some("InfiniBand") => Some(("GUID", vf.guid.as_deref())),
        Some("Ethernet") => Some(("MAC address", vf.mac.as_deref())),
        _ => None,
    };
    if let Some((name, value)) = identity
        && !value.is_some_and(is_not_zero)
    {
        let seen = format!("{}: {}", vf.address, value.unwrap_or("none"));
        blockers.push(blocker(SlotBlockerCode::VfIdentityMissing, format!("a {name}"), seen));
    }
    if let (Some(own), Some(other)) = (gpu.numa_node, vf.numa_node)
        && !host.is_same_package(own, other)
    {
        let expected = format!("the CPU package of NUMA node {own}");
        let seen = format!("{} is on NUMA node {other}", vf.address);
        blockers.push(blocker(SlotBlockerCode::VfFar, expected, seen));
    }
    blockers
}

/// Whether an address has another digit than 0.
fn is_not_zero(text: &str) -> bool {
    text.chars().any(|c| c.is_ascii_hexdigit() && c != '0')
}

fn driver_blocker(code: SlotBlockerCode, function: &TopologyFunction) -> Option<SlotBlocker> {
    if function.driver.as_deref() == Some(VFIO) {
        return None;
    }
    let driver = function.driver.as_deref().unwrap_or("no driver");
    Some(blocker(code, VFIO, format!("{} has {driver}", function.address)))
}

/// Functions of the same device, such as the sound of a display adapter, go to the guest as well, if
/// no driver of the host has them.
fn group_blocker(
    host: &HostIndex<'_>,
    code: SlotBlockerCode,
    function: &TopologyFunction,
) -> Option<SlotBlocker> {
    // Where no function has a group, that is a matter of the host.
    let group = function.iommu_group?;
    let device = |address: &str| address.rsplit_once('.').map(|(device, _)| device.to_owned());
    let goes_along = |other: &TopologyFunction| {
        function.physical_function.is_none()
            && device(&other.address) == device(&function.address)
            && other.driver.as_deref().is_none_or(|driver| driver == VFIO)
    };
    let others: Vec<&str> = host
        .group_peers(function)
        .into_iter()
        .filter(|other| !goes_along(other))
        .map(|other| other.address.as_str())
        .collect();
    if others.is_empty() {
        return None;
    }
    let expected = format!("only {} in group {group}", function.address);
    Some(blocker(code, expected, format!("also {}", others.join(", "))))
}

/// Every root port and downstream port above the function has to isolate. An upstream port has no
/// Access Control Services and needs none.
fn acs_blocker(
    host: &HostIndex<'_>,
    code: SlotBlockerCode,
    function: &TopologyFunction,
) -> Option<SlotBlocker> {
    let bridges = function.path.iter().skip(1);
    let judge = |address: &String| {
        let Some(bridge) = host.function(address) else {
            return Some(format!("{address} cannot be read"));
        };
        let is_bridge =
            bridge.class.as_deref().is_some_and(|class| class.starts_with(BRIDGE_CLASS));
        match bridge.acs {
            Some(acs) if acs.isolates() => None,
            Some(acs) => Some(format!(
                "{address} supports {:#06x} and has {:#06x} enabled",
                acs.capability, acs.control
            )),
            None if is_bridge && bridge.downstream_port == Some(false) => None,
            None => Some(format!("{address} has no ACS")),
        }
    };
    let wrong: Vec<String> = bridges.filter_map(judge).collect();
    if wrong.is_empty() {
        return None;
    }
    let expected = "Access Control Services enabled on each port above";
    Some(blocker(code, expected, wrong.join("; ")))
}

fn holder_blocker(code: SlotBlockerCode, function: &TopologyFunction) -> Option<SlotBlocker> {
    let seen = match function.holders.as_deref() {
        None => "the processes that have it open could not be read".to_owned(),
        Some([]) => return None,
        Some(holders) => holders
            .iter()
            .map(|one| format!("{} (process {}) has {} open", one.program, one.pid, one.path))
            .collect::<Vec<_>>()
            .join("; "),
    };
    Some(blocker(code, "no process", seen))
}
