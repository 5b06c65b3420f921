//! From a claim's slots and the host to what its machine is made of.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_types::ClaimId;
use gpuaas_types::claim::ClaimedSlot;
use gpuaas_types::slice::slice_folder;
use gpuaas_types::topology::{HostTopology, NumaResources, NvmeNamespace, TopologyFunction};

use super::cpu_list;
use super::fault::DomainFault;
use super::mmio;
use super::policy::{DomainPolicy, NvmeAttachment};

/// Number of the first expander bus; the buses below are those of emulated devices.
const FIRST_EXPANDER_BUS: u32 = 64;
/// Buses that an expander bus gets are a multiple of this.
const EXPANDER_BUSES: u32 = 8;
/// Buses of a machine; libvirt takes no expander bus beyond 254.
const MOST_BUSES: u32 = 255;
/// Expander buses that there are slots for, beside the emulated devices.
const MOST_EXPANDERS: usize = 28;

/// What a domain is made from.
#[derive(Debug, Clone, Copy)]
pub struct DomainRequest<'a> {
    /// Identifier of the claim, and of the domain.
    pub claim_id: ClaimId,
    /// Slots of the claim.
    pub slots: &'a [ClaimedSlot],
    /// The host as its agent last read it.
    pub topology: &'a HostTopology,
}

/// A NUMA node of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestCell {
    /// The host's node that its memory and CPUs are of.
    pub host_node: u32,
    /// CPUs of the host, one for each virtual CPU in turn; threads of a core side by side.
    pub cpus: Vec<u32>,
    /// Memory in GiB, which is pages of 1 GiB.
    pub memory_gib: u32,
    /// Distances to the cells by number, as the host's firmware says them; empty: it does not.
    pub distances: Vec<u32>,
}

/// A function that the guest gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFunction {
    /// PCI domain, bus, device and function on the host.
    pub address: [u16; 4],
    /// Whether the guest boots from it.
    pub boots: bool,
}

/// A root complex of the guest: those of its functions that are below one root complex of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestRootComplex {
    /// The host's root complex: `pci0000:15`.
    pub host_path: String,
    /// Number of the cell that it is near to.
    pub cell: usize,
    /// Number of its bus.
    pub bus_number: u32,
    /// Functions below it, each at a root port of its own.
    pub functions: Vec<GuestFunction>,
}

/// A drive that the guest gets as a raw block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestDrive {
    /// Number of the slot, by which the guest names the drive.
    pub slot: u32,
    /// Path on the host that stays the same.
    pub path: String,
}

/// What a domain is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainPlan {
    /// Identifier of the claim, and of the domain.
    pub claim_id: ClaimId,
    /// Folder on the host with the seed and the firmware's variables.
    pub folder: String,
    /// NUMA nodes of the guest.
    pub cells: Vec<GuestCell>,
    /// Threads of each core that the guest sees.
    pub threads_per_core: u32,
    /// CPUs that the emulator runs on.
    pub emulator_cpus: Vec<u32>,
    /// Root complexes of the guest, by the host's.
    pub root_complexes: Vec<GuestRootComplex>,
    /// Drives, the first one with the system; empty: they are functions.
    pub drives: Vec<GuestDrive>,
    /// MAC address in the slice network.
    pub mac: String,
    /// Size in GiB of the window that the firmware maps registers into.
    pub mmio_window_gib: u64,
}

impl DomainPlan {
    /// The domain of a claim.
    ///
    /// # Errors
    /// [`DomainFault`]: the claim does not fit the host as it was last read, or the policy.
    pub fn new(request: &DomainRequest<'_>, policy: &DomainPolicy) -> Result<Self, DomainFault> {
        let DomainRequest { claim_id, slots, topology } = *request;
        let first = slots.first().ok_or(DomainFault::NoSlots)?;
        let host = Host { topology };
        let (cells, threads_per_core) = cells(&host, slots)?;
        let mut functions = Vec::new();
        let mut drives = Vec::new();
        let mut boot_function = None;
        for slot in slots {
            let mut addresses = vec![slot.gpu.clone()];
            addresses.extend(slot.fabric_vf.clone());
            let drive = host.drive(slot)?;
            match policy.nvme {
                NvmeAttachment::BlockDevice => {
                    drives.push(GuestDrive { slot: slot.index, path: drive.path.clone() });
                }
                NvmeAttachment::PciFunction => {
                    let unknown = || DomainFault::DeviceUnknown {
                        slot: slot.index,
                        device: drive.path.clone(),
                    };
                    let address = drive.address.clone().ok_or_else(unknown)?;
                    boot_function = boot_function.or_else(|| Some(address.clone()));
                    addresses.push(address);
                }
            }
            for address in addresses {
                functions.push((slot, host.function(slot, &address)?));
            }
        }
        let memory_gib = cells.iter().map(|cell| u64::from(cell.memory_gib)).sum();
        let registers: Vec<&TopologyFunction> = functions.iter().map(|(_, one)| *one).collect();
        let mmio_window_gib = window(&registers, memory_gib, policy)?;
        Ok(Self {
            claim_id,
            folder: slice_folder(claim_id),
            emulator_cpus: emulator_cpus(&host, &cells, policy),
            root_complexes: root_complexes(&host, &cells, &functions, boot_function.as_deref())?,
            cells,
            threads_per_core,
            drives,
            mac: first.mac.clone(),
            mmio_window_gib,
        })
    }

    /// Number of virtual CPUs.
    #[must_use]
    pub fn vcpus(&self) -> usize {
        self.cells.iter().map(|cell| cell.cpus.len()).sum()
    }

    /// Memory in GiB.
    #[must_use]
    pub fn memory_gib(&self) -> u64 {
        self.cells.iter().map(|cell| u64::from(cell.memory_gib)).sum()
    }
}

/// The host by address, serial number and node.
struct Host<'a> {
    topology: &'a HostTopology,
}

impl<'a> Host<'a> {
    fn function(
        &self,
        slot: &ClaimedSlot,
        address: &str,
    ) -> Result<&'a TopologyFunction, DomainFault> {
        self.topology.functions.iter().find(|one| one.address == address).ok_or_else(|| {
            DomainFault::DeviceUnknown { slot: slot.index, device: address.to_owned() }
        })
    }

    /// A claim names a drive by its serial number, or by its path where it says none.
    fn drive(&self, slot: &ClaimedSlot) -> Result<&'a NvmeNamespace, DomainFault> {
        let name = slot.nvme.as_deref().ok_or(DomainFault::DriveMissing { slot: slot.index })?;
        self.topology
            .namespaces
            .iter()
            .find(|drive| drive.serial.as_deref().unwrap_or(&drive.path) == name)
            .ok_or_else(|| DomainFault::DeviceUnknown { slot: slot.index, device: name.to_owned() })
    }

    fn node(&self, id: u32) -> Option<&'a NumaResources> {
        self.topology.numa_nodes.iter().find(|node| node.id == id)
    }

    fn node_distance(&self, from: u32, to: u32) -> Option<u32> {
        self.node(from)?.distances.get(usize::try_from(to).ok()?).copied()
    }
}

/// A cell for each node that slots have their pages at, and the threads of each core.
fn cells(host: &Host<'_>, slots: &[ClaimedSlot]) -> Result<(Vec<GuestCell>, u32), DomainFault> {
    let mut nodes: BTreeMap<u32, (BTreeSet<u32>, u32)> = BTreeMap::new();
    for slot in slots {
        let node = slot.numa_node.ok_or(DomainFault::NumaUnknown { slot: slot.index })?;
        let cpus = cpu_list::parse(&slot.cpus).ok_or_else(|| DomainFault::CpusUnreadable {
            slot: slot.index,
            cpus: slot.cpus.clone(),
        })?;
        let (all, memory_gib) = nodes.entry(node).or_default();
        all.extend(cpus);
        *memory_gib += slot.hugepages;
    }
    let cores: Vec<Option<Vec<&Vec<u32>>>> =
        nodes.iter().map(|(id, (cpus, _))| whole_cores(host.node(*id)?, cpus)).collect();
    let mut threads = cores.iter().flatten().flatten().map(|core| core.len());
    let first = threads.next().filter(|_| cores.iter().all(Option::is_some));
    let threads_per_core = first.filter(|first| threads.all(|one| one == *first)).unwrap_or(1);
    let ids: Vec<u32> = nodes.keys().copied().collect();
    let distances = |from: u32| {
        let all: Option<Vec<u32>> = ids.iter().map(|to| host.node_distance(from, *to)).collect();
        all.unwrap_or_default()
    };
    let cells = nodes.iter().zip(cores).map(|((id, (cpus, memory_gib)), cores)| GuestCell {
        host_node: *id,
        cpus: match cores {
            Some(cores) if threads_per_core > 1 => cores.into_iter().flatten().copied().collect(),
            _ => cpus.iter().copied().collect(),
        },
        memory_gib: *memory_gib,
        distances: distances(*id),
    });
    let cells = cells.collect();
    Ok((cells, u32::try_from(threads_per_core).unwrap_or(1)))
}

/// The cores of `node` that `cpus` are; none: they are not whole cores of it.
fn whole_cores<'a>(node: &'a NumaResources, cpus: &BTreeSet<u32>) -> Option<Vec<&'a Vec<u32>>> {
    let mut cores: Vec<&Vec<u32>> = node
        .cores
        .iter()
        .filter(|core| !core.is_empty() && core.iter().all(|cpu| cpus.contains(cpu)))
        .collect();
    cores.sort();
    (cores.iter().map(|core| core.len()).sum::<usize>() == cpus.len()).then_some(cores)
}

/// The cores that the host keeps of the cells' nodes; the guest's own where it keeps none.
fn emulator_cpus(host: &Host<'_>, cells: &[GuestCell], policy: &DomainPolicy) -> Vec<u32> {
    let mut cpus = BTreeSet::new();
    for cell in cells {
        let mut cores: Vec<&Vec<u32>> =
            host.node(cell.host_node).map(|node| node.cores.iter().collect()).unwrap_or_default();
        cores.sort();
        cpus.extend(cores.into_iter().take(policy.host_cores_per_node as usize).flatten());
    }
    if cpus.is_empty() {
        cpus.extend(cells.iter().flat_map(|cell| &cell.cpus));
    }
    cpus.into_iter().collect()
}

fn window(
    functions: &[&TopologyFunction],
    memory_gib: u64,
    policy: &DomainPolicy,
) -> Result<u64, DomainFault> {
    let needed_gib = mmio::window_gib(functions)?;
    let window_gib = policy.mmio_window_gib.unwrap_or(needed_gib);
    if window_gib < needed_gib {
        return Err(DomainFault::WindowTooSmall { needed_gib, window_gib });
    }
    let (needed_bits, bits) =
        (mmio::address_bits(memory_gib, window_gib), policy.physical_address_bits);
    if needed_bits > bits {
        return Err(DomainFault::AddressesTooFew { needed_bits, bits });
    }
    Ok(window_gib)
}

fn root_complexes(
    host: &Host<'_>,
    cells: &[GuestCell],
    functions: &[(&ClaimedSlot, &TopologyFunction)],
    boot_function: Option<&str>,
) -> Result<Vec<GuestRootComplex>, DomainFault> {
    let mut complexes: BTreeMap<&str, GuestRootComplex> = BTreeMap::new();
    for (slot, function) in functions {
        let unknown =
            || DomainFault::DeviceUnknown { slot: slot.index, device: function.address.clone() };
        let path = function.path.first().ok_or_else(unknown)?;
        let address = pci_address(&function.address).ok_or_else(unknown)?;
        let complex = complexes.entry(path).or_insert_with(|| GuestRootComplex {
            host_path: path.clone(),
            cell: nearest_cell(host, cells, function.numa_node.or(slot.numa_node)),
            bus_number: 0,
            functions: Vec::new(),
        });
        let boots = boot_function == Some(function.address.as_str());
        complex.functions.push(GuestFunction { address, boots });
    }
    let mut complexes: Vec<GuestRootComplex> = complexes.into_values().collect();
    let mut next = FIRST_EXPANDER_BUS;
    for complex in &mut complexes {
        complex.bus_number = next;
        let ports = u32::try_from(complex.functions.len()).unwrap_or(MOST_BUSES);
        // Its own bus, and one behind each port.
        next += (1 + ports).next_multiple_of(EXPANDER_BUSES);
    }
    if next > MOST_BUSES + 1 || complexes.len() > MOST_EXPANDERS {
        return Err(DomainFault::TooManyBuses);
    }
    Ok(complexes)
}

/// The cell of this node, or the nearest; the first one where nobody says.
fn nearest_cell(host: &Host<'_>, cells: &[GuestCell], node: Option<u32>) -> usize {
    let distance = |cell: &GuestCell| match node {
        Some(node) if node == cell.host_node => 0,
        Some(node) => host.node_distance(node, cell.host_node).unwrap_or(u32::MAX),
        None => u32::MAX,
    };
    let nearest = cells.iter().enumerate().min_by_key(|(at, cell)| (distance(cell), *at));
    nearest.map_or(0, |(at, _)| at)
}

/// Domain, bus, device and function of `0000:19:00.0`.
fn pci_address(text: &str) -> Option<[u16; 4]> {
    let (front, function) = text.split_once('.')?;
    let mut parts = front.split(':');
    let (domain, bus, device) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let number =
        |text: &str, most: u16| u16::from_str_radix(text, 16).ok().filter(|number| *number <= most);
    Some([
        number(domain, u16::MAX)?,
        number(bus, 0xff)?,
        number(device, 0x1f)?,
        number(function, 7)?,
    ])
}
