//! Changes of a slice host that do not matter.

use std::io;

use gpuaas_types::topology::GpuModule;

use super::mutations::Mutation;
use crate::slice_host::HostTree;

const HGX: usize = 0;
const CLUSTERS: usize = 1;
const SHARED_NIC: usize = 2;
const MISSING: usize = 3;

const fn row(
    name: &'static str,
    layout: usize,
    change: fn(&HostTree) -> io::Result<()>,
) -> Mutation {
    Mutation { name, layout, codes: &[], slots: 0, change }
}

/// Each a host as it should be.
pub(super) const HARMLESS: &[Mutation] = &[
    row("unchanged", HGX, |_| Ok(())),
    row("unchanged", CLUSTERS, |_| Ok(())),
    row("unchanged", SHARED_NIC, |_| Ok(())),
    row("unchanged", MISSING, |_| Ok(())),
    row("the boot disk is mounted a second time", HGX, |host| {
        host.mount("259:202", "/dev/nvme40n1p2", "/var/snap")
    }),
    row("a network file system is mounted", CLUSTERS, |host| {
        host.mount("0:61", "10.0.0.9:/images", "/mnt/images")
    }),
    row("libvirt has the VFIO container open", HGX, |host| host.open_in_guest(9, "/dev/vfio/vfio")),
    row("a process has the NVIDIA control device open", HGX, |host| {
        host.open_in_guest(9, "/dev/nvidiactl")
    }),
    row("a process has the boot disk open", SHARED_NIC, |host| {
        host.open_in_guest(9, "/dev/nvme40n1")
    }),
    row("a process ended while it was being read", HGX, |host| host.put("proc/999/comm", "gone\n")),
    row("a process has no open files", MISSING, |host| {
        host.link("proc/2/fd/0", "/dev/null")?;
        host.remove("proc/2/fd/0")
    }),
    row("a GPU's port is in the GPU's IOMMU group", HGX, |host| {
        let port = format!("sys/bus/pci/devices/{}/iommu_group", host.gpus[0].port);
        host.link(&port, &format!("../../kernel/iommu_groups/{}", host.gpus[0].group))
    }),
    row("a GPU has a second function in its IOMMU group", SHARED_NIC, |host| {
        let gpu = &host.gpus[0];
        let sound = gpu.address.replace(".0", ".1");
        let folder = format!("sys/bus/pci/devices/{sound}");
        host.put(&format!("{folder}/vendor"), "0x10de\n")?;
        host.put(&format!("{folder}/class"), "0x040300\n")?;
        host.link(&format!("{folder}/iommu_group"), &format!("../../x/{}", gpu.group))
    }),
    row("ports have more ACS bits on than needed", CLUSTERS, |host| {
        host.gpus.iter().try_for_each(|gpu| host.set_acs(&gpu.port, 0x5f))
    }),
    row("a GPU can be reset through its bus", HGX, |host| {
        host.put(&format!("{}/reset_method", host.gpus[0].folder), "bus\n")
    }),
    row("module IDs are recorded in another order", HGX, |host| {
        let modules: Vec<_> = host.modules.iter().rev().cloned().collect();
        host.record_modules(&modules)
    }),
    row("the record lists a GPU that was replaced", HGX, |host| {
        let mut modules = host.modules.clone();
        modules.push(GpuModule { address: "0000:ff:00.0".to_owned(), module_id: 1, serial: None });
        host.record_modules(&modules)
    }),
    row("a management adapter has virtual functions", HGX, |host| {
        let folder = "sys/bus/pci/devices/0000:f9:00.1";
        host.put(&format!("{folder}/vendor"), "0x14e4\n")?;
        host.put(&format!("{folder}/class"), "0x020000\n")?;
        host.link(&format!("{folder}/physfn"), "../0000:f9:00.0")
    }),
    row("two drives swapped kernel names", HGX, |host| {
        let (one, other) = (&host.drives[0], &host.drives[1]);
        host.put("sys/class/nvme/nvme0/serial", format!("{}\n", other.serial))?;
        host.put("sys/class/nvme/nvme1/serial", format!("{}\n", one.serial))?;
        host.put("sys/class/nvme/nvme0/address", format!("{}\n", other.device.address))?;
        host.put("sys/class/nvme/nvme1/address", format!("{}\n", one.device.address))
    }),
    row("the kernel has several paths to a drive", HGX, |host| {
        host.remove("sys/class/nvme/nvme4/nvme4n1")?;
        host.put("sys/class/nvme/nvme4/nvme4c4n1/nsid", "1\n")
    }),
    row("a drive has no link by its serial number", SHARED_NIC, |host| {
        let serial = &host.drives[3].serial;
        host.remove(&format!("dev/disk/by-id/nvme-KIOXIA_KCD8XPUG3T84_{serial}"))
    }),
    row("NUMA nodes have more 1 GiB pages than needed", CLUSTERS, |host| {
        let pages = "sys/devices/system/node/node2/hugepages/hugepages-1048576kB/nr_hugepages";
        host.put(pages, "200\n")
    }),
    row("the firmware reports no NUMA distances", HGX, |host| {
        host.remove("sys/devices/system/node/node0/distance")
    }),
    row("a disk that is not NVMe is mounted", MISSING, |host| {
        host.put("sys/block/sda/dev", "8:0\n")?;
        host.mount("8:0", "/dev/sda", "/mnt/backup")
    }),
];
