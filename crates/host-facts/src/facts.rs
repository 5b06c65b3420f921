//! All facts of a host, read at once.

use serde::{Deserialize, Serialize};

use crate::gpu::NvidiaGpu;
use crate::image::ImageBuild;
use crate::infiniband::InfinibandPort;
use crate::login::Login;
use crate::network::{LinkAddress, Listener, NetworkLink, Route};
use crate::parse;
use crate::pci::PciFunction;
use crate::root::HostRoot;
use crate::software::{Package, Unit};
use crate::storage::{BlockDevice, Mount};
use crate::system::{NumaNode, OsRelease};

/// The facts of a host at one time. Absent facts are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// `/proc/sys/kernel/hostname`, else `/etc/hostname`.
    pub hostname: Option<String>,
    /// The kernel's release, from `/proc/sys/kernel/osrelease`.
    pub kernel_release: Option<String>,
    /// The kernel's arguments, from `/proc/cmdline`.
    pub kernel_cmdline: Option<String>,
    /// The distribution, from `/etc/os-release`.
    pub os: Option<OsRelease>,
    /// `/proc/sys/kernel/random/boot_id`; changes at every boot.
    pub boot_id: Option<String>,
    /// System UUID of the SMBIOS, `/sys/class/dmi/id/product_uuid`; only root may read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_uuid: Option<String>,
    /// Seconds since boot, `/proc/uptime`.
    pub uptime_seconds: Option<f64>,
    /// `MemTotal` of `/proc/meminfo`, in bytes.
    pub memory_total_bytes: Option<u64>,
    /// `MemAvailable` of `/proc/meminfo`, in bytes.
    pub memory_available_bytes: Option<u64>,
    /// Logical CPUs that are online.
    pub cpu_count: Option<u32>,
    /// `model name` of the first CPU in `/proc/cpuinfo`.
    pub cpu_model: Option<String>,
    /// NUMA nodes, by number.
    pub numa_nodes: Vec<NumaNode>,
    /// PCI functions, by address.
    pub pci: Vec<PciFunction>,
    /// Network links, by name.
    pub links: Vec<NetworkLink>,
    /// Ports of RDMA adapters, by adapter and number.
    pub infiniband_ports: Vec<InfinibandPort>,
    /// Disks without loop and memory devices, by name.
    pub block_devices: Vec<BlockDevice>,
    /// Mounted file systems, in the order of `/proc/mounts`.
    pub mounts: Vec<Mount>,
    /// IPv4 addresses of links.
    pub addresses: Vec<LinkAddress>,
    /// IPv4 routes of the main table.
    pub routes: Vec<Route>,
    /// TCP sockets that listen.
    pub listeners: Vec<Listener>,
    /// Installed packages that make a GPU host what it is, by name.
    pub packages: Vec<Package>,
    /// The record of the image that the host was deployed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_build: Option<ImageBuild>,
    /// Accounts of people and of root.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logins: Vec<Login>,
    /// GPUs that NVIDIA's driver has, by PCI address; the caller fills it ([`crate::gpu`]).
    pub nvidia_gpus: Vec<NvidiaGpu>,
    /// Units of systemd, by name; the caller fills it ([`crate::software`]).
    pub units: Vec<Unit>,
}

impl HostRoot {
    /// Reads all facts that are in files. Blocking; some 1,000 small files on a large host.
    #[must_use]
    pub fn read(&self) -> HostFacts {
        let meminfo = self.text("proc/meminfo").unwrap_or_default();
        let routes = self.routes();
        HostFacts {
            hostname: self.line("proc/sys/kernel/hostname").or_else(|| self.line("etc/hostname")),
            kernel_release: self.line("proc/sys/kernel/osrelease"),
            kernel_cmdline: self.line("proc/cmdline"),
            os: self.os_release(),
            boot_id: self.line("proc/sys/kernel/random/boot_id"),
            system_uuid: self.line("sys/class/dmi/id/product_uuid"),
            uptime_seconds: self.uptime_seconds(),
            memory_total_bytes: parse::meminfo_bytes(&meminfo, "MemTotal"),
            memory_available_bytes: parse::meminfo_bytes(&meminfo, "MemAvailable"),
            cpu_count: self.cpu_count(),
            cpu_model: self.cpu_model(),
            numa_nodes: self.numa_nodes(),
            pci: self.pci(),
            links: self.links(),
            infiniband_ports: self.infiniband_ports(),
            block_devices: self.block_devices(),
            mounts: self.mounts(),
            addresses: self.addresses(&routes),
            routes,
            listeners: self.listeners(),
            packages: self.packages(),
            image_build: self.image_build(),
            logins: self.logins(),
            nvidia_gpus: Vec::new(),
            units: Vec::new(),
        }
    }
}
