//! Hardware classes: what a machine is made of and how long its hardware takes.
//!
//! Durations are the machine's own time only (firmware, ephemeral boot, image write); what the
//! region itself takes is not part of a class. The times of `h200` follow an 8-GPU server whose
//! firmware needs about five minutes to reach the network boot. That makes roughly 9 minutes from
//! commission to Ready and 18 from deploy to Deployed. The split into boots is the point: a deploy
//! boots twice, and the second boot ends at the moment that cloud-init asks for its user-data.

use crate::rng::LogNormal;

/// A disk as the hardware has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskPart {
    /// Kernel name.
    pub name: &'static str,
    /// Model text.
    pub model: &'static str,
    /// Bytes of the disk.
    pub size_bytes: u64,
    /// MAAS's automatic tags.
    pub tags: &'static [&'static str],
    /// NUMA node that it hangs off.
    pub numa: u8,
}

/// A network port as the hardware has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NicPart {
    /// Kernel name.
    pub name: &'static str,
    /// Vendor text.
    pub vendor: &'static str,
    /// Product text.
    pub product: &'static str,
    /// Mbit/s of the port.
    pub speed_mbps: i64,
    /// The subnet (by name) of the VLAN that its cable leads to; `None` for an unknown network,
    /// for which MAAS makes a fabric of its own.
    pub network: Option<&'static str>,
    /// NUMA node that it hangs off.
    pub numa: u8,
}

/// How long each piece of hardware work takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HardwareTimes {
    /// One power action through the BMC; the caller of the API waits for it.
    pub bmc: LogNormal,
    /// Power on to the network boot.
    pub post: LogNormal,
    /// Network boot to a running ephemeral system.
    pub ephemeral: LogNormal,
    /// Commissioning scripts.
    pub scripts: LogNormal,
    /// One set of tests.
    pub tests: LogNormal,
    /// curtin: partitions and image write.
    pub image: LogNormal,
    /// The deployed system's kernel up to the moment that cloud-init asks for user-data.
    pub first_boot: LogNormal,
    /// Disk erase.
    pub erase: LogNormal,
}

/// A kind of machine: its parts and how long its hardware takes.
///
/// ```
/// use maas_sim::{H200, HardwareClass, HardwareTimes, LogNormal, Region, RegionConfig};
///
/// assert_eq!(HardwareClass::named("h200"), Some(&H200));
///
/// // The same server with firmware that is ready within a minute.
/// static QUICK: HardwareClass = HardwareClass {
///     name: "quick",
///     times: HardwareTimes { post: LogNormal::new(60.0, 0.1), ..H200.times },
///     ..H200
/// };
/// let mut region = Region::new(RegionConfig { class: &QUICK, ..RegionConfig::default() });
/// assert_eq!(region.add_host("j22u11", &QUICK).class, "quick");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HardwareClass {
    /// Name in options and scenarios.
    pub name: &'static str,
    /// Vendor, shown as `system_vendor`.
    pub vendor: &'static str,
    /// Product, shown as `system_product`.
    pub product: &'static str,
    /// CPU model text.
    pub cpu_model: &'static str,
    /// Threads of the machine.
    pub cpu_count: i64,
    /// MHz of the machine.
    pub cpu_speed_mhz: i64,
    /// MiB, spread over the NUMA nodes.
    pub memory_mib: i64,
    /// NUMA nodes.
    pub numa_nodes: i64,
    /// Disks in the order that the kernel finds them. Commissioning takes the first as boot disk.
    pub disks: &'static [DiskPart],
    /// Ports; the first one boots from the network.
    pub nics: &'static [NicPart],
    /// Tags that commissioning sets.
    pub tags: &'static [&'static str],
    /// How long the hardware of the machine takes.
    pub times: HardwareTimes,
}

const NVME: &[&str] = &["ssd"];
const SATA: &[&str] = &["ssd", "sata"];

const fn nvme(name: &'static str, numa: u8) -> DiskPart {
    DiskPart {
        name,
        model: "SAMSUNG MZWLO3T8HCLS-00A07",
        size_bytes: 3_840_755_982_336,
        tags: NVME,
        numa,
    }
}

const BOSS: DiskPart = DiskPart {
    name: "sda",
    model: "DELLBOSS VD",
    size_bytes: 480_036_847_616,
    tags: SATA,
    numa: 0,
};

const fn roce(name: &'static str, network: &'static str, numa: u8) -> NicPart {
    NicPart {
        name,
        vendor: "Mellanox Technologies",
        product: "MT2910 Family [ConnectX-7]",
        speed_mbps: 400_000,
        network: Some(network),
        numa,
    }
}

const PXE: NicPart = NicPart {
    name: "eno8303",
    vendor: "Broadcom Inc. and subsidiaries",
    product: "BCM57414 NetXtreme-E 10Gb/25Gb RDMA Ethernet Controller",
    speed_mbps: 25_000,
    network: Some("pxe"),
    numa: 0,
};

const SECOND: NicPart = NicPart { name: "eno8403", network: None, ..PXE };

/// Times of a real server.
const SERVER: HardwareTimes = HardwareTimes {
    bmc: LogNormal::new(2.0, 0.2),
    post: LogNormal::new(285.0, 0.08),
    ephemeral: LogNormal::new(55.0, 0.1),
    scripts: LogNormal::new(200.0, 0.1),
    tests: LogNormal::new(120.0, 0.1),
    image: LogNormal::new(350.0, 0.1),
    first_boot: LogNormal::new(45.0, 0.15),
    erase: LogNormal::new(60.0, 0.2),
};

const NONE: HardwareTimes = HardwareTimes {
    bmc: LogNormal::new(0.0, 0.0),
    post: LogNormal::new(0.0, 0.0),
    ephemeral: LogNormal::new(0.0, 0.0),
    scripts: LogNormal::new(0.0, 0.0),
    tests: LogNormal::new(0.0, 0.0),
    image: LogNormal::new(0.0, 0.0),
    first_boot: LogNormal::new(0.0, 0.0),
    erase: LogNormal::new(0.0, 0.0),
};

/// Dell XE9680 with eight H200, a BOSS card and eight RoCE ports.
pub const H200: HardwareClass = HardwareClass {
    name: "h200",
    vendor: "Dell Inc.",
    product: "PowerEdge XE9680",
    cpu_model: "Intel(R) Xeon(R) Platinum 8480+",
    cpu_count: 224,
    cpu_speed_mhz: 3800,
    memory_mib: 2_097_152,
    numa_nodes: 2,
    disks: &[
        nvme("nvme0n1", 0),
        nvme("nvme1n1", 0),
        nvme("nvme2n1", 0),
        nvme("nvme3n1", 0),
        nvme("nvme4n1", 1),
        nvme("nvme5n1", 1),
        nvme("nvme6n1", 1),
        nvme("nvme7n1", 1),
        BOSS,
    ],
    nics: &[
        PXE,
        SECOND,
        roce("ens108np0", "roce-1", 0),
        roce("ens109np0", "roce-2", 0),
        roce("ens110np0", "roce-3", 0),
        roce("ens111np0", "roce-4", 0),
        roce("ens112np0", "roce-5", 1),
        roce("ens113np0", "roce-6", 1),
        roce("ens114np0", "roce-7", 1),
        roce("ens115np0", "roce-8", 1),
    ],
    tags: &["gpu", "nvidia", "h200"],
    times: SERVER,
};

/// A small machine whose hardware takes no time: what is left is the control plane's own time.
/// Its boot disk must still be chosen: the BOSS card is not the first disk.
pub const ZERO: HardwareClass = HardwareClass {
    name: "zero",
    cpu_count: 32,
    memory_mib: 262_144,
    numa_nodes: 1,
    disks: &[nvme("nvme0n1", 0), BOSS],
    nics: &[PXE, roce("ens108np0", "roce-1", 0)],
    tags: &["gpu"],
    times: NONE,
    ..H200
};

/// A general server without a fabric.
pub const ETHERNET: HardwareClass = HardwareClass {
    name: "ethernet",
    product: "PowerEdge R760",
    cpu_count: 128,
    memory_mib: 524_288,
    disks: &[nvme("nvme0n1", 0), nvme("nvme1n1", 1), BOSS],
    nics: &[PXE, SECOND],
    tags: &[],
    times: HardwareTimes { post: LogNormal::new(150.0, 0.1), ..SERVER },
    ..H200
};

/// All classes by name.
pub const CLASSES: &[HardwareClass] = &[H200, ZERO, ETHERNET];

impl HardwareClass {
    /// Looks a class up by name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static HardwareClass> {
        CLASSES.iter().find(|class| class.name == name)
    }
}
