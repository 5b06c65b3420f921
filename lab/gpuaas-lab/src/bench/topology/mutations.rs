//! Ways to break a slice host, each with what the slot map has to say.

use std::io;

use gpuaas_types::codes::SlotBlockerCode::{self as Code};

use crate::slice_host::HostTree;

/// A change of a host's files.
#[derive(Clone, Copy)]
pub(super) struct Mutation {
    /// Name for people.
    pub(super) name: &'static str,
    /// Number of the layout in [`crate::slice_host::LAYOUTS`].
    pub(super) layout: usize,
    /// Blockers that it turns on.
    pub(super) codes: &'static [Code],
    /// Slots that it blocks.
    pub(super) slots: usize,
    /// Changes the host.
    pub(super) change: fn(&HostTree) -> io::Result<()>,
}

/// Eight GPUs on four switches; sub-NUMA clusters; one NIC for two GPUs; a missing NVMe.
const HGX: usize = 0;
const CLUSTERS: usize = 1;
const SHARED_NIC: usize = 2;
const MISSING: usize = 3;

const fn row(
    name: &'static str,
    layout: usize,
    codes: &'static [Code],
    slots: usize,
    change: fn(&HostTree) -> io::Result<()>,
) -> Mutation {
    Mutation { name, layout, codes, slots, change }
}

/// Every way, by the part that it breaks.
pub(super) const MUTATIONS: &[Mutation] = &[
    row("a GPU is bound to another driver", HGX, &[Code::GpuDriver], 1, |host| {
        let folder = &host.gpus[0].folder;
        host.link(&format!("{folder}/driver"), "../../bus/pci/drivers/nvidia")
    }),
    row("a GPU has no driver", CLUSTERS, &[Code::GpuDriver], 1, |host| {
        host.remove(&format!("{}/driver", host.gpus[7].folder))
    }),
    row("a GPU shares its IOMMU group with an adapter", HGX, &[Code::GpuGroupShared], 1, |host| {
        join_group(host, &host.nics[3].folder, host.gpus[3].group)
    }),
    row("two GPUs share an IOMMU group", MISSING, &[Code::GpuGroupShared], 2, |host| {
        join_group(host, &host.gpus[1].folder, host.gpus[0].group)
    }),
    row("the IOMMU is off", HGX, &[Code::IommuOff], 0, |host| {
        for entry in std::fs::read_dir(host.path().join("sys/bus/pci/devices"))? {
            let address = entry?.file_name().to_string_lossy().into_owned();
            host.remove(&format!("sys/bus/pci/devices/{address}/iommu_group"))?;
        }
        Ok(())
    }),
    row("a GPU's NUMA node is -1", HGX, &[Code::GpuNumaUnknown], 1, |host| {
        host.put(&format!("{}/numa_node", host.gpus[5].folder), "-1\n")
    }),
    row("a GPU has no NUMA node", SHARED_NIC, &[Code::GpuNumaUnknown], 1, |host| {
        host.remove(&format!("{}/numa_node", host.gpus[2].folder))
    }),
    row("ACS is off above a GPU", HGX, &[Code::GpuAcsOff], 1, |host| {
        host.set_acs(&host.gpus[0].port, 0)
    }),
    row("ACS request redirect is off above a GPU", CLUSTERS, &[Code::GpuAcsOff], 1, |host| {
        host.set_acs(&host.gpus[6].port, 0x19)
    }),
    row("ACS is off on a root port", SHARED_NIC, &[Code::GpuAcsOff, Code::VfAcsOff], 2, |host| {
        host.set_acs(&host.gpus[0].root_port, 0)
    }),
    row("a port above a GPU has no ACS", HGX, &[Code::GpuAcsOff], 1, |host| {
        let config = format!("sys/bus/pci/devices/{}/config", host.gpus[4].port);
        let bytes = std::fs::read(host.path().join(&config))?;
        host.put(&config, &bytes[..256])
    }),
    row("a port's configuration cannot be read", HGX, &[Code::GpuAcsOff], 1, |host| {
        host.remove(&format!("sys/bus/pci/devices/{}/config", host.gpus[4].port))
    }),
    row("a guest holds a GPU's IOMMU group", HGX, &[Code::GpuHeld], 1, |host| {
        host.open_in_guest(17, &format!("/dev/vfio/{}", host.gpus[1].group))
    }),
    row("a guest holds a GPU's device", CLUSTERS, &[Code::GpuHeld], 1, |host| {
        host.put(&format!("{}/vfio-dev/vfio3/dev", host.gpus[3].folder), "511:3\n")?;
        host.open_in_guest(18, "/dev/vfio/devices/vfio3")
    }),
    row("a process holds a GPU", HGX, &[Code::GpuDriver, Code::GpuHeld], 1, |host| {
        let gpu = &host.gpus[2];
        host.link(&format!("{}/driver", gpu.folder), "../../bus/pci/drivers/nvidia")?;
        let information = format!("proc/driver/nvidia/gpus/{}/information", gpu.address);
        host.put(&information, "Model: \t\t NVIDIA H200\nDevice Minor: \t 2\n")?;
        host.open_in_guest(19, "/dev/nvidia2")
    }),
    row("a GPU has no reset method", HGX, &[Code::GpuResetMissing], 1, |host| {
        host.remove(&format!("{}/reset_method", host.gpus[6].folder))
    }),
    row("a GPU's only reset method is pm", MISSING, &[Code::GpuResetMissing], 1, |host| {
        host.put(&format!("{}/reset_method", host.gpus[0].folder), "pm\n")
    }),
    row("a GPU has no memory window", HGX, &[Code::GpuBarMissing], 1, |host| {
        let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n".repeat(6);
        host.put(&format!("{}/resource", host.gpus[7].folder), none)
    }),
    row("a GPU is missing", SHARED_NIC, &[Code::GpuCount], 0, |host| host.unplug(&host.gpus[4])),
    row("the GPU module IDs are not recorded", HGX, &[Code::ModuleIdsUnknown], 0, |host| {
        host.remove("var/lib/gpuaas/slices/nvidia-smi.xml")
    }),
    row("a GPU has no module ID", CLUSTERS, &[Code::ModuleIdsUnknown], 0, |host| {
        host.record_modules(&host.modules[1..])
    }),
    row("two GPUs have the same module ID", HGX, &[Code::ModuleIdsUnknown], 0, |host| {
        let mut modules = host.modules.clone();
        modules[5].module_id = modules[2].module_id;
        host.record_modules(&modules)
    }),
    row("the fabric manager does not answer", HGX, &[Code::FabricManagerSilent], 0, |host| {
        host.remove("queries/fabric-partitions.json")
    }),
    row("the fabric manager joins all GPUs", CLUSTERS, &[Code::FabricManagerMode], 0, |host| {
        host.put("usr/share/nvidia/nvswitch/fabricmanager.cfg", "# as installed\nFABRIC_MODE=0\n")
    }),
    row("a virtual function is bound to another driver", HGX, &[Code::VfDriver], 1, |host| {
        let folder = &host.virtual_functions[4].folder;
        host.link(&format!("{folder}/driver"), "../../bus/pci/drivers/mlx5_core")
    }),
    row("a virtual function is missing", HGX, &[Code::VfMissing], 1, |host| {
        host.unplug(&host.virtual_functions[2])
    }),
    row("an adapter is missing", SHARED_NIC, &[Code::VfMissing], 2, |host| {
        host.unplug(&host.virtual_functions[6])?;
        host.unplug(&host.virtual_functions[7])?;
        host.unplug(&host.nics[3])
    }),
    row("a virtual function shares its IOMMU group", HGX, &[Code::VfGroupShared], 1, |host| {
        join_group(host, &host.nics[0].folder, host.virtual_functions[0].group)
    }),
    row("ACS is off above an adapter", HGX, &[Code::VfAcsOff], 1, |host| {
        host.set_acs(&host.nics[5].port, 0x01)
    }),
    row("a guest holds a virtual function", SHARED_NIC, &[Code::VfHeld], 1, |host| {
        host.open_in_guest(20, &format!("/dev/vfio/{}", host.virtual_functions[1].group))
    }),
    row("a virtual function's GUID is zero", HGX, &[Code::VfIdentityMissing], 1, |host| {
        let setting = format!("{}/sriov/0/node", host.nics[1].folder);
        host.put(&setting, "00:00:00:00:00:00:00:00\n")
    }),
    row("a virtual function has no GUID", MISSING, &[Code::VfIdentityMissing], 1, |host| {
        host.remove(&format!("{}/sriov/0/node", host.nics[0].folder))
    }),
    row("a virtual function's MAC is zero", SHARED_NIC, &[Code::VfIdentityMissing], 1, |host| {
        host.put(&format!("{}/sriov/1/mac", host.nics[2].folder), "00:00:00:00:00:00\n")
    }),
    row("a fabric port is down", SHARED_NIC, &[Code::FabricPortDown], 2, |host| {
        host.put(&format!("{}/infiniband/mlx5_1/ports/1/state", host.nics[1].folder), "1: DOWN\n")
    }),
    row("the subnet manager has not configured a port", HGX, &[Code::FabricPortDown], 1, |host| {
        host.put(&format!("{}/infiniband/mlx5_6/ports/1/state", host.nics[6].folder), "2: INIT\n")
    }),
    row("an adapter has no RDMA port", HGX, &[Code::FabricPortDown], 1, |host| {
        host.remove(&format!("{}/infiniband", host.nics[6].folder))
    }),
    row("an adapter is on the other CPU package", HGX, &[Code::VfFar], 1, |host| {
        host.put(&format!("{}/numa_node", host.virtual_functions[0].folder), "1\n")
    }),
    row("a second drive is missing", MISSING, &[Code::NvmeMissing], 1, |host| {
        host.remove("sys/class/nvme/nvme0")?;
        host.unplug(&host.drives[0].device)
    }),
    row("a drive is missing", HGX, &[Code::NvmeMissing], 1, |host| {
        host.remove("sys/class/nvme/nvme5")?;
        host.unplug(&host.drives[5].device)
    }),
    row("the operating system is on a slot's drive", HGX, &[Code::NvmeBootDisk], 1, |host| {
        let drive = &host.drives[2];
        let part = host.partition(drive, 7)?;
        host.mount("259:207", &format!("/dev/{part}"), "/")
    }),
    row("a drive is mounted", HGX, &[Code::NvmeMounted], 1, |host| {
        host.mount("259:3", "/dev/nvme3n1", "/mnt/data")
    }),
    row("a partition is mounted under another name", CLUSTERS, &[Code::NvmeMounted], 1, |host| {
        host.partition(&host.drives[0], 5)?;
        host.mount("259:205", "/dev/disk/by-label/data", "/var/lib/docker")
    }),
    row("the system uses a drive for swap", SHARED_NIC, &[Code::NvmeSwap], 1, |host| {
        let part = host.partition(&host.drives[6], 3)?;
        host.put("proc/swaps", format!("Filename Type Size Used\n/dev/{part} partition 8 0\n"))
    }),
    row("LVM uses a drive", HGX, &[Code::NvmeHeld], 1, |host| {
        host.put("sys/block/dm-0/dm/name", "data-scratch\n")?;
        host.put("sys/block/nvme1n1/holders/dm-0/dev", "253:0\n")
    }),
    row(
        "an LVM file system on a drive is mounted",
        HGX,
        &[Code::NvmeHeld, Code::NvmeMounted],
        1,
        |host| {
            host.partition(&host.drives[4], 5)?;
            host.put("sys/block/nvme4n1/nvme4n1p5/holders/dm-0/dev", "253:0\n")?;
            host.put("sys/block/dm-0/dm/name", "data-scratch\n")?;
            host.put("sys/block/dm-0/dev", "253:0\n")?;
            host.mount("253:0", "/dev/mapper/data-scratch", "/mnt/scratch")
        },
    ),
    row("MD RAID uses two drives", SHARED_NIC, &[Code::NvmeHeld], 2, |host| {
        for drive in &host.drives[2..4] {
            host.put(&format!("sys/block/{}/holders/md127/dev", drive.name), "9:127\n")?;
        }
        Ok(())
    }),
    row("a process has a drive open", HGX, &[Code::NvmeOpen], 1, |host| {
        host.open_in_guest(21, "/dev/nvme7n1")
    }),
    row("a drive has an old partition table", MISSING, &[Code::NvmePartitioned], 1, |host| {
        host.partition(&host.drives[1], 6).map(drop)
    }),
    row("a drive has no serial number", HGX, &[Code::NvmeSerialMissing], 1, |host| {
        host.remove("sys/class/nvme/nvme6/serial")
    }),
    row("two drives have the same serial number", HGX, &[Code::NvmeSerialMissing], 2, |host| {
        host.put("sys/class/nvme/nvme6/serial", format!("{}\n", host.drives[0].serial))
    }),
    row(
        "a drive supports neither sanitize nor format",
        HGX,
        &[Code::NvmeEraseMissing],
        1,
        |host| host.put("queries/nvme-id-ctrl/nvme0n1.json", "{\"oacs\": 4, \"sanicap\": 0}"),
    ),
    row("a drive does not answer", CLUSTERS, &[Code::NvmeEraseMissing], 1, |host| {
        host.put("queries/nvme-id-ctrl/nvme3n1.json", "identify controller: No such device\n")
    }),
    row("a drive is on the other CPU package", HGX, &[Code::NvmeFar], 1, |host| {
        host.put(&format!("{}/numa_node", host.drives[0].device.folder), "1\n")
    }),
    row(
        "open files of processes cannot be read",
        HGX,
        &[Code::GpuHeld, Code::VfHeld, Code::NvmeOpen],
        8,
        |host| host.remove("proc/1/fd").and_then(|()| host.put("proc/1/fd", "")),
    ),
    row("mounts cannot be read", SHARED_NIC, &[Code::NvmeOpen], 8, |host| {
        host.remove("proc/1/mountinfo")
    }),
    row("a NUMA node has no 1 GiB pages", HGX, &[Code::HugepagesShort], 4, |host| {
        host.put(&pages(1), "0\n")
    }),
    row("a NUMA node has pages for only three slots", HGX, &[Code::HugepagesShort], 1, |host| {
        host.put(&pages(0), "255\n")
    }),
    row("the kernel has no 1 GiB page pool", SHARED_NIC, &[Code::HugepagesShort], 4, |host| {
        host.remove("sys/devices/system/node/node0/hugepages")
    }),
    row("a cluster has no pages", CLUSTERS, &[Code::HugepagesShort], 2, |host| {
        host.put(&pages(3), "0\n")
    }),
    row("cores of a NUMA node are offline", HGX, &[Code::CpusShort], 3, |host| {
        host.put("sys/devices/system/node/node0/cpulist", "0-15,112-127\n")
    }),
];

/// Puts a function into another group.
fn join_group(host: &HostTree, folder: &str, group: u32) -> io::Result<()> {
    host.link(&format!("{folder}/iommu_group"), &format!("../../kernel/iommu_groups/{group}"))
}

fn pages(node: u32) -> String {
    format!("sys/devices/system/node/node{node}/hugepages/hugepages-1048576kB/nr_hugepages")
}
