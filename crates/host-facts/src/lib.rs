//! What a Linux host is, read from files below a root folder.
//!
//! Nothing here runs a program, follows a daemon or needs a privilege: `/proc`, `/sys` and `/etc`
//! are read below [`HostRoot`] (what a driver or systemd has to be asked for is read from the answer
//! that someone else got), so a fixture tree, a simulated host and a real machine are read
//! by the same code. A file that is missing, unreadable, oversized or not what it should be gives
//! `None` or an empty list, never an error: a host that is half broken is the one whose facts
//! are wanted most. Texts come back without control characters and cut at 1,024 characters, and
//! lists stop at 4,096 entries, because a node is not trusted to be well-behaved.

pub mod gpu;
pub mod infiniband;
mod isolation;
pub mod network;
mod parse;
pub mod software;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use gpu::NvidiaGpu;
pub use infiniband::InfinibandPort;
pub use isolation::Acs;
pub use network::{LinkAddress, Listener, Route};
pub use software::{Package, Unit};

const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_ENTRIES: usize = 4096;

/// Where a host's `/` is.
#[derive(Debug, Clone)]
pub struct HostRoot {
    root: PathBuf,
    sysfs: Option<PathBuf>,
}

/// One look at a host. Absent facts are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// `/proc/sys/kernel/hostname`, else `/etc/hostname`.
    pub hostname: Option<String>,
    /// `/proc/sys/kernel/osrelease`.
    pub kernel_release: Option<String>,
    /// `/proc/cmdline`.
    pub kernel_cmdline: Option<String>,
    /// `/etc/os-release`.
    pub os: Option<OsRelease>,
    /// `/proc/sys/kernel/random/boot_id`; changes at every boot.
    pub boot_id: Option<String>,
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
    /// Installed packages that say what kind of a host it is, by name.
    pub packages: Vec<Package>,
    /// What the driver says of the GPUs that it drives; filled by whoever may ask it.
    pub nvidia_gpus: Vec<NvidiaGpu>,
    /// Units of systemd, by name; filled by whoever may ask it.
    pub units: Vec<Unit>,
}

/// os-release(5).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OsRelease {
    /// `ID`, such as `ubuntu`.
    pub id: Option<String>,
    /// `VERSION_ID`, such as `24.04`.
    pub version_id: Option<String>,
    /// `VERSION_CODENAME`, such as `noble`.
    pub version_codename: Option<String>,
    /// `PRETTY_NAME`.
    pub pretty_name: Option<String>,
}

/// A NUMA node, `/sys/devices/system/node/nodeN`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// N.
    pub id: u32,
    /// CPUs as the kernel lists them, such as `0-15,32-47`.
    pub cpu_list: Option<String>,
    /// Memory of the node in bytes.
    pub memory_total_bytes: Option<u64>,
}

/// A PCI function, `/sys/bus/pci/devices/ADDRESS`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciFunction {
    /// Domain, bus, device and function: `0000:19:00.0`.
    pub address: String,
    /// Vendor, four hexadecimal digits: `10de`.
    pub vendor: Option<String>,
    /// Device, four hexadecimal digits.
    pub device: Option<String>,
    /// Class, six hexadecimal digits: `030200` is a 3D controller.
    pub class: Option<String>,
    /// Name of the driver that is bound.
    pub driver: Option<String>,
    /// IOMMU group; absent where the IOMMU is off.
    pub iommu_group: Option<u32>,
    /// NUMA node; absent where the firmware does not say.
    pub numa_node: Option<u32>,
    /// Virtual functions that exist now, `sriov_numvfs`; absent where it can have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_functions: Option<u32>,
    /// The physical function that a virtual one belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_function: Option<String>,
}

/// A network link, `/sys/class/net/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkLink {
    /// Interface name.
    pub name: String,
    /// Hardware address; InfiniBand has 20 octets.
    pub mac_address: Option<String>,
    /// `up`, `down`, `unknown` and so on.
    pub operstate: Option<String>,
    /// Speed in Mb/s; absent while the link is down.
    pub speed_mbps: Option<u64>,
    /// MTU in bytes.
    pub mtu_bytes: Option<u32>,
    /// PCI address of the device behind the link; absent for virtual links.
    pub pci_address: Option<String>,
}

/// A disk, `/sys/block/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// Kernel name, such as `nvme0n1`.
    pub name: String,
    /// Model as the device says it.
    pub model: Option<String>,
    /// Serial number as the device says it.
    pub serial: Option<String>,
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// Whether it spins.
    pub rotational: Option<bool>,
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// What is mounted.
    pub source: String,
    /// Where.
    pub target: String,
    /// Type of the file system.
    pub fs_type: String,
    /// Options, joined by commas.
    pub options: String,
}

impl HostRoot {
    /// A host whose `/` is `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), sysfs: None }
    }

    /// The same host with its sysfs elsewhere: a host that is real but for its hardware.
    #[must_use]
    pub fn with_sysfs(self, sysfs: impl Into<PathBuf>) -> Self {
        Self { sysfs: Some(sysfs.into()), ..self }
    }

    /// The folder that is the host's `/`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// `path`, an absolute path of the host, as a path of this process.
    #[must_use]
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        let path = path.strip_prefix("/").unwrap_or(path);
        match (&self.sysfs, path.strip_prefix("sys")) {
            (Some(sysfs), Ok(inside)) => sysfs.join(inside),
            _ => self.root.join(path),
        }
    }

    /// Reads everything. Blocking; some 1,000 small files on a large host.
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
            mounts: self
                .text("proc/mounts")
                .map(|text| parse::mounts(&text, MAX_ENTRIES))
                .unwrap_or_default(),
            addresses: self.addresses(&routes),
            routes,
            listeners: self.listeners(),
            packages: self.packages(),
            nvidia_gpus: Vec::new(),
            units: Vec::new(),
        }
    }

    /// Seconds since the host booted.
    #[must_use]
    pub fn uptime_seconds(&self) -> Option<f64> {
        let text = self.line("proc/uptime")?;
        let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
        (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
    }

    /// Whether systemd unit `name` has a control group, that is, a running process; `None` where
    /// the host has no control groups to look at.
    #[must_use]
    pub fn unit_has_control_group(&self, name: &str) -> Option<bool> {
        let slice = ["sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice"]
            .into_iter()
            .map(|path| self.join(path))
            .find(|path| path.is_dir())?;
        let plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        Some(plain && slice.join(name).is_dir())
    }

    /// Whether there is a file or folder at `path`, an absolute path of the host.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        !path.split('/').any(|part| part == "..") && self.join(path).exists()
    }

    /// A kernel setting by its dotted name, such as `net.ipv4.ip_forward`.
    #[must_use]
    pub fn sysctl(&self, name: &str) -> Option<String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_/".contains(c);
        if name.contains("..") || name.starts_with('/') || !name.chars().all(plain) {
            return None;
        }
        self.line(format!("proc/sys/{}", name.replace('.', "/")))
    }

    /// The text of a small file at `path`, an absolute path of the host, on one line; none: there
    /// is no such file, or it is empty.
    #[must_use]
    pub fn line_of(&self, path: &str) -> Option<String> {
        if path.split('/').any(|part| part == "..") { None } else { self.line(path) }
    }

    /// Whether the file at `path`, an absolute path of the host, holds `line`; none: there is no
    /// such file.
    #[must_use]
    pub fn has_line(&self, path: &str, line: &str) -> Option<bool> {
        if path.split('/').any(|part| part == "..") {
            return None;
        }
        let text = self.text(path)?;
        Some(text.lines().any(|other| other.trim() == line.trim()))
    }

    fn os_release(&self) -> Option<OsRelease> {
        let text = self.text("etc/os-release").or_else(|| self.text("usr/lib/os-release"))?;
        let value = |name: &str| parse::shell_value(&text, name);
        Some(OsRelease {
            id: value("ID"),
            version_id: value("VERSION_ID"),
            version_codename: value("VERSION_CODENAME"),
            pretty_name: value("PRETTY_NAME"),
        })
    }

    fn cpu_count(&self) -> Option<u32> {
        let online = self.line("sys/devices/system/cpu/online");
        online.as_deref().and_then(parse::list_length).or_else(|| {
            let text = self.text("proc/cpuinfo")?;
            let count = text.lines().filter(|line| line.starts_with("processor")).count();
            u32::try_from(count).ok().filter(|&count| count > 0)
        })
    }

    fn cpu_model(&self) -> Option<String> {
        let text = self.text("proc/cpuinfo")?;
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        parse::clean(line.split_once(':')?.1)
    }

    fn numa_nodes(&self) -> Vec<NumaNode> {
        let folder = "sys/devices/system/node";
        let node = |name: String| {
            let id = name.strip_prefix("node")?.parse().ok()?;
            let meminfo = self.text(format!("{folder}/{name}/meminfo")).unwrap_or_default();
            Some(NumaNode {
                id,
                cpu_list: self.line(format!("{folder}/{name}/cpulist")),
                memory_total_bytes: parse::meminfo_bytes(&meminfo, "MemTotal"),
            })
        };
        let mut nodes: Vec<_> = self.names(folder).into_iter().filter_map(node).collect();
        nodes.sort_by_key(|node| node.id);
        nodes
    }

    fn pci(&self) -> Vec<PciFunction> {
        let function = |address: String| {
            let at = format!("sys/bus/pci/devices/{address}");
            let hex = |name: &str| parse::hex_digits(&self.line(format!("{at}/{name}"))?);
            PciFunction {
                vendor: hex("vendor"),
                device: hex("device"),
                class: hex("class"),
                driver: self.link_name(format!("{at}/driver")),
                iommu_group: self
                    .link_name(format!("{at}/iommu_group"))
                    .and_then(|name| name.parse().ok()),
                numa_node: self.number(format!("{at}/numa_node")),
                virtual_functions: self.number(format!("{at}/sriov_numvfs")),
                physical_function: self.link_name(format!("{at}/physfn")),
                address,
            }
        };
        self.names("sys/bus/pci/devices").into_iter().map(function).collect()
    }

    fn links(&self) -> Vec<NetworkLink> {
        let link = |name: String| {
            let at = format!("sys/class/net/{name}");
            self.join(&at).is_dir().then(|| NetworkLink {
                mac_address: self.line(format!("{at}/address")),
                operstate: self.line(format!("{at}/operstate")),
                speed_mbps: self.number(format!("{at}/speed")).filter(|&speed| speed > 0),
                mtu_bytes: self.number(format!("{at}/mtu")),
                pci_address: self
                    .link_name(format!("{at}/device"))
                    .filter(|address| address.contains(':')),
                name,
            })
        };
        self.names("sys/class/net").into_iter().filter_map(link).collect()
    }

    fn block_devices(&self) -> Vec<BlockDevice> {
        let virtual_names = ["loop", "ram", "zram"];
        let device = |name: String| {
            if virtual_names.iter().any(|prefix| name.starts_with(prefix)) {
                return None;
            }
            let at = format!("sys/block/{name}");
            // One path of several to an NVMe namespace, which is there as a disk of its own.
            if self.line(format!("{at}/hidden")).as_deref() == Some("1") {
                return None;
            }
            let sectors: Option<u64> = self.number(format!("{at}/size"));
            Some(BlockDevice {
                model: self.line(format!("{at}/device/model")),
                serial: self
                    .line(format!("{at}/device/serial"))
                    .or_else(|| self.line(format!("{at}/serial"))),
                size_bytes: sectors.and_then(|sectors| sectors.checked_mul(512)),
                rotational: self
                    .number::<u8>(format!("{at}/queue/rotational"))
                    .map(|rotational| rotational == 1),
                name,
            })
        };
        self.names("sys/block").into_iter().filter_map(device).collect()
    }

    /// Content of a regular file, at most 1 MiB of it; bytes that are no UTF-8 are replaced.
    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let path = self.join(path);
        if !fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn line(&self, path: impl AsRef<Path>) -> Option<String> {
        parse::clean(&self.text(path)?)
    }

    fn number<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.line(path)?.parse().ok()
    }

    /// Last part of what a symbolic link points to; the target need not exist.
    fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.join(path)).ok()?;
        parse::clean(&target.file_name()?.to_string_lossy())
    }

    /// Sorted names in a folder that are printable text.
    fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.join(path)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| !name.chars().any(char::is_control))
            .take(MAX_ENTRIES)
            .collect();
        names.sort();
        names
    }
}
