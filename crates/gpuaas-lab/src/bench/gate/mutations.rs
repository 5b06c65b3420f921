//! The mutations of a ready slice host, and the checks that have to fail for each.
//!
//! A row breaks one effect and turns one check red. Where the host cannot lose one thing alone (a
//! virtual function that is gone is neither there nor bound), the row names both.
//!
//! Names of the host (`bundles/fixture/make-host.sh`): below switch N are a GPU `0000:N3:00.0`, an
//! HCA `0000:N4:00.0` with the link `ibp..s0` and one virtual function `0000:N4:00.1`; the root port
//! is `0000:N0:01.0`, the switch's downstream ports are `0000:N2:00.0` and `0000:N2:04.0`.

use gpuaas_bundle::Gate;

/// One change of the host. Paths are the host's.
#[derive(Debug)]
pub(super) enum HostChange {
    /// A file or link is gone.
    Remove(&'static str),
    /// A file has this text.
    Write(&'static str, &'static str),
    /// In a file, one text stands for another.
    Replace(&'static str, &'static str, &'static str),
    /// A link points there.
    Link(&'static str, &'static str),
    /// One byte of a file.
    Byte(&'static str, usize, u8),
    /// A file ends so early.
    Cut(&'static str, usize),
    /// The program that plays the host does this.
    Play(&'static [&'static str]),
    /// The bundles run again.
    Bootstrap,
}

/// A check that has to be red.
#[derive(Debug)]
pub(super) struct ExpectedRed {
    /// Its gate.
    pub(super) gate: Gate,
    /// Its name.
    pub(super) check: &'static str,
    /// Begin of its reason.
    pub(super) reason: &'static str,
    /// Part of what was seen.
    pub(super) seen: &'static str,
}

/// A row.
#[derive(Debug)]
pub(super) struct Mutation {
    /// What happened to the host.
    pub(super) name: &'static str,
    /// How that is done.
    pub(super) changes: &'static [HostChange],
    /// What has to be red, and nothing else.
    pub(super) red: &'static [ExpectedRed],
}

use HostChange::{Bootstrap, Byte, Cut, Link, Play, Remove, Replace, Write};

/// Of the bundle that the others require.
const BASELINE: &str = "host baseline incomplete: h200-ib@1.0.0";
/// Of the slice host's own bundle.
const SETUP: &str = "host setup incomplete: h200-slice-vm@1.0.0";
/// Of bare metal's bundle, which nothing requires there.
const METAL: &str = "host setup incomplete: h200-ib@1.0.0";
/// Of the agent itself.
const AGENT: &str = "agent fault";
/// Of a marker: the slice host asks for it, and it is the baseline's.
const MARKER: &str = "host baseline incomplete: h200-slice-vm@1.0.0";

const fn slice(check: &'static str, reason: &'static str, seen: &'static str) -> ExpectedRed {
    ExpectedRed { gate: Gate::SliceReady, check, reason, seen }
}

const fn active(check: &'static str, reason: &'static str, seen: &'static str) -> ExpectedRed {
    ExpectedRed { gate: Gate::Active, check, reason, seen }
}

const fn telemetry(check: &'static str, seen: &'static str) -> ExpectedRed {
    ExpectedRed { gate: Gate::Telemetry, check, reason: BASELINE, seen }
}

const fn row(
    name: &'static str,
    changes: &'static [HostChange],
    red: &'static [ExpectedRed],
) -> Mutation {
    Mutation { name, changes, red }
}

const fn fine(name: &'static str, changes: &'static [HostChange]) -> Mutation {
    Mutation { name, changes, red: &[] }
}

const FABRIC_ADDRESS: &str = "address 192.168.0.0/16 on ibp*";
const FABRIC_ROUTE: &str = "route 192.168.0.0/16 on ibp*";
const GATEWAY: &str = "address 10.100.0.1/24 on ovsbr0";
const GPUS: &str = "driver vfio-pci of 10de:any";
const FUNCTIONS: &str = "driver vfio-pci of virtual functions of 15b3";
const COUNTS: &str = "virtual functions of 15b3";
const GROUPS: &str = "iommu groups of vfio-pci";
const ACS: &str = "acs above vfio-pci";
/// A script that an image brought, beside the bundles.
const FOREIGN: &str = "/usr/local/share/gpuaas/site-bootstrap/raw-scripts/bootstrap.sh";
const MANIFEST: &str = "manifest of h200-slice-vm";
const UNKNOWN: &str = "host setup incomplete: nobody knows what h200-slice-vm promises";
const BROKEN_MANIFEST: &str = "has none, or a broken one";
const BROKEN_TELEMETRY: ExpectedRed =
    ExpectedRed { gate: Gate::Telemetry, check: MANIFEST, reason: UNKNOWN, seen: BROKEN_MANIFEST };
/// Low byte of the ACS control register in a port's configuration space.
const ACS_CONTROL: usize = 0x106;

/// Ways in which a ready host breaks.
pub(super) const BROKEN: &[Mutation] = &[
    row(
        "a foreign folder among the bundles does not silence a gate",
        &[Write(FOREIGN, "exit 1\n"), Play(&["lose", "active", "dnsmasq.service"])],
        &[slice("unit dnsmasq.service", SETUP, "inactive")],
    ),
    row(
        "the bundle of the host is half written",
        &[Write("/usr/local/share/gpuaas/site-bootstrap/h200-slice-vm/manifest.json", "{")],
        &[
            active(MANIFEST, UNKNOWN, BROKEN_MANIFEST),
            slice(MANIFEST, UNKNOWN, BROKEN_MANIFEST),
            BROKEN_TELEMETRY,
        ],
    ),
    row(
        "SR-IOV is off in an HCA's firmware",
        &[
            Play(&["unplug", "0000:34:00.1"]),
            Remove("/sys/bus/pci/devices/0000:34:00.0/sriov_numvfs"),
            Remove("/sys/bus/pci/devices/0000:34:00.0/sriov_totalvfs"),
        ],
        &[
            slice(COUNTS, SETUP, "SR-IOV is off in the firmware of 0000:34:00.0"),
            slice(FUNCTIONS, SETUP, "7 found, 8 wanted"),
        ],
    ),
    row(
        "the agent is down",
        &[Play(&["lose", "active", "gpuaas-node-agent.service"])],
        &[active("unit gpuaas-node-agent.service", AGENT, "inactive")],
    ),
    row(
        "the unit of the virtual functions is down",
        &[Play(&["lose", "active", "gpuaas-slice-fabric-vfs.service"])],
        &[slice("unit gpuaas-slice-fabric-vfs.service", SETUP, "inactive")],
    ),
    row(
        "the unit of vfio-pci is down",
        &[Play(&["lose", "active", "gpuaas-slice-vfio-devices.service"])],
        &[slice("unit gpuaas-slice-vfio-devices.service", SETUP, "inactive")],
    ),
    row(
        "the unit of the network baseline is down",
        &[Play(&["lose", "active", "gpuaas-slice-network-baseline.service"])],
        &[slice("unit gpuaas-slice-network-baseline.service", SETUP, "inactive")],
    ),
    row(
        "the unit of the bridge is down",
        &[Play(&["lose", "active", "gpuaas-slice-ovs-bridge.service"])],
        &[slice("unit gpuaas-slice-ovs-bridge.service", SETUP, "inactive")],
    ),
    row(
        "dnsmasq is down",
        &[Play(&["lose", "active", "dnsmasq.service"])],
        &[slice("unit dnsmasq.service", SETUP, "inactive")],
    ),
    row(
        "libvirtd is down",
        &[Play(&["lose", "active", "libvirtd.service"])],
        &[slice("unit libvirtd.service", SETUP, "inactive")],
    ),
    row(
        "the kernel was started without its IOMMU",
        &[Replace("/proc/cmdline", " intel_iommu=on", "")],
        &[slice("kernel argument intel_iommu=on", SETUP, "started without it")],
    ),
    row(
        "the kernel was started without iommu=pt",
        &[Replace("/proc/cmdline", " iommu=pt", "")],
        &[slice("kernel argument iommu=pt", SETUP, "started without it")],
    ),
    row(
        "the next boot would lose the kernel's arguments",
        &[Remove("/etc/default/grub.d/60-gpuaas-slice.cfg")],
        &[slice("file /etc/default/grub.d/60-gpuaas-slice.cfg", SETUP, "not there")],
    ),
    row(
        "a virtual function is gone",
        &[Play(&["unplug", "0000:24:00.1"])],
        &[
            slice(COUNTS, SETUP, "0000:24:00.0 says 1 and 0 are there, 1 wanted"),
            slice(FUNCTIONS, SETUP, "7 found, 8 wanted"),
        ],
    ),
    row(
        "an HCA says that it has no virtual functions",
        &[Write("/sys/bus/pci/devices/0000:34:00.0/sriov_numvfs", "0\n")],
        &[slice(COUNTS, SETUP, "0000:34:00.0 says 0 and 1 are there, 1 wanted")],
    ),
    row(
        "an HCA is gone",
        &[Play(&["unplug", "0000:44:00.0"]), Play(&["unplug", "0000:44:00.1"])],
        &[slice(COUNTS, SETUP, "7 found, 8 wanted"), slice(FUNCTIONS, SETUP, "7 found, 8 wanted")],
    ),
    row(
        "a GPU is gone",
        &[Play(&["unplug", "0000:53:00.0"])],
        &[slice(GPUS, SETUP, "7 found, 8 wanted")],
    ),
    row(
        "a GPU is bound to nvidia",
        &[Link(
            "/sys/bus/pci/devices/0000:13:00.0/driver",
            "../../../../../../bus/pci/drivers/nvidia",
        )],
        &[slice(GPUS, SETUP, "0000:13:00.0 has nvidia")],
    ),
    row(
        "a GPU has no driver",
        &[Remove("/sys/bus/pci/devices/0000:23:00.0/driver")],
        &[slice(GPUS, SETUP, "0000:23:00.0 has none")],
    ),
    row(
        "a virtual function is bound to mlx5_core",
        &[Link(
            "/sys/bus/pci/devices/0000:14:00.1/driver",
            "../../../../../../bus/pci/drivers/mlx5_core",
        )],
        &[slice(FUNCTIONS, SETUP, "0000:14:00.1 has mlx5_core")],
    ),
    row(
        "a GPU shares its IOMMU group with a network card",
        &[Link("/sys/bus/pci/devices/0000:00:01.0/iommu_group", "../../../kernel/iommu_groups/3")],
        &[slice(GROUPS, SETUP, "group 3 of 0000:13:00.0 holds 0000:00:01.0, which has mlx5_core")],
    ),
    row(
        "a GPU has no IOMMU group",
        &[Remove("/sys/bus/pci/devices/0000:33:00.0/iommu_group")],
        &[slice(GROUPS, SETUP, "0000:33:00.0 has no group: the IOMMU is off")],
    ),
    row(
        "ACS is off on a root port",
        &[Byte("/sys/bus/pci/devices/0000:10:01.0/config", ACS_CONTROL, 0)],
        &[slice(ACS, SETUP, "0000:10:01.0 can 0x001f and has only 0x0000 on")],
    ),
    row(
        "ACS is off on a switch's port above a GPU",
        &[Byte("/sys/bus/pci/devices/0000:12:00.0/config", ACS_CONTROL, 0)],
        &[slice(ACS, SETUP, "0000:12:00.0 can 0x001f and has only 0x0000 on")],
    ),
    row(
        "ACS redirects no requests above an HCA",
        &[Byte("/sys/bus/pci/devices/0000:82:04.0/config", ACS_CONTROL, 0x19)],
        &[slice(ACS, SETUP, "0000:82:04.0 can 0x001f and has only 0x0019 on")],
    ),
    row(
        "the ACS bits of a port cannot be read",
        &[Cut("/sys/bus/pci/devices/0000:22:00.0/config", 256)],
        &[slice(ACS, SETUP, "0000:22:00.0 shows no ACS")],
    ),
    row(
        "the fabric's netplan is gone",
        &[Remove("/etc/netplan/60-ipoib.yaml")],
        &[slice("file /etc/netplan/60-ipoib.yaml", BASELINE, "not there")],
    ),
    row(
        "the fabric's address is gone",
        &[Play(&["lose", "addresses", "ibp20s0 192.168.36.100/24"])],
        &[slice(FABRIC_ADDRESS, BASELINE, "addresses there: none")],
    ),
    row(
        "the fabric's link has an address of another network",
        &[
            Play(&["lose", "addresses", "ibp20s0 192.168.36.100/24"]),
            Play(&["have", "addresses", "ibp20s0 172.16.36.100/24"]),
        ],
        &[slice(FABRIC_ADDRESS, BASELINE, "ibp20s0 has 172.16.36.100/24")],
    ),
    row(
        "the fabric's route is gone",
        &[Play(&["lose", "routes", "ibp20s0 192.168.0.0/16"])],
        &[slice(FABRIC_ROUTE, BASELINE, "routes there: 192.168.36.0/24 dev ibp20s0")],
    ),
    row(
        "the fabric's route takes the management link",
        &[
            Play(&["lose", "routes", "ibp20s0 192.168.0.0/16"]),
            Play(&["have", "routes", "eno1 192.168.0.0/16"]),
        ],
        &[slice(FABRIC_ROUTE, BASELINE, "routes there: 192.168.36.0/24 dev ibp20s0")],
    ),
    row(
        "the guests' bridge is gone",
        &[Play(&["lose", "bridges", "ovsbr0"])],
        &[slice("ovs bridge ovsbr0", SETUP, "ovsbr0 is not a bridge or a socket")],
    ),
    row(
        "the bridge's datapath does not answer",
        &[Play(&["have", "broken", "datapath"])],
        &[slice("ovs bridge ovsbr0", SETUP, "gives no features")],
    ),
    row(
        "the bridge has no address",
        &[Play(&["lose", "addresses", "ovsbr0 10.100.0.1/24"])],
        &[slice(GATEWAY, SETUP, "addresses there: none")],
    ),
    row(
        "the bridge has another gateway's address",
        &[
            Play(&["lose", "addresses", "ovsbr0 10.100.0.1/24"]),
            Play(&["have", "addresses", "ovsbr0 10.100.0.254/24"]),
        ],
        &[slice(GATEWAY, SETUP, "ovsbr0 has 10.100.0.254/24")],
    ),
    row(
        "the gateway's prefix is another",
        &[
            Play(&["lose", "addresses", "ovsbr0 10.100.0.1/24"]),
            Play(&["have", "addresses", "ovsbr0 10.100.0.1/16"]),
        ],
        &[slice(GATEWAY, SETUP, "ovsbr0 has 10.100.0.1/16")],
    ),
    row(
        "dnsmasq's settings are gone",
        &[Remove("/etc/dnsmasq.d/gpu_subnet.conf")],
        &[slice("line of /etc/dnsmasq.d/gpu_subnet.conf", SETUP, "no such file")],
    ),
    row(
        "dnsmasq serves another bridge",
        &[Replace("/etc/dnsmasq.d/gpu_subnet.conf", "interface=ovsbr0\n", "interface=virbr0\n")],
        &[slice("line of /etc/dnsmasq.d/gpu_subnet.conf", SETUP, "has no line")],
    ),
    row(
        "nothing is forwarded",
        &[Write("/proc/sys/net/ipv4/ip_forward", "0\n")],
        &[slice("sysctl net.ipv4.ip_forward", SETUP, "it is 0")],
    ),
    row(
        "guests are not masqueraded",
        &[Remove("/run/fixture/rules/slice.nft")],
        &[slice("masquerade of 10.100.0.0/24", SETUP, "no rule masquerades 10.100.0.0/24")],
    ),
    row(
        "another subnet is masqueraded",
        &[Replace(
            "/run/fixture/rules/slice.nft",
            "ip saddr 10.100.0.0/24",
            "ip saddr 10.100.0.0/25",
        )],
        &[slice("masquerade of 10.100.0.0/24", SETUP, "no rule masquerades 10.100.0.0/24")],
    ),
    row(
        "the baseline has no marker",
        &[Remove("/var/lib/gpuaas/site-bootstrap/h200-ib.done")],
        &[slice(
            "bundle h200-ib",
            MARKER,
            "there is no /var/lib/gpuaas/site-bootstrap/h200-ib.done",
        )],
    ),
    row(
        "the baseline's marker is of an older version",
        &[Write("/var/lib/gpuaas/site-bootstrap/h200-ib.done", "0.9.0 run-of-the-image\n")],
        &[slice("bundle h200-ib", MARKER, "is of 0.9.0, and 1.0.0 is installed")],
    ),
    row(
        "Netdata is down",
        &[Play(&["lose", "active", "netdata.service"])],
        &[
            telemetry("unit netdata.service", "inactive"),
            telemetry("http :19998/api/v1/info", "curl ended with exit status: 7"),
            telemetry("http :19999/gpuaas/telemetry/health", "curl ended with exit status: 7"),
        ],
    ),
    row(
        "nginx is down",
        &[Play(&["lose", "active", "nginx.service"])],
        &[
            telemetry("unit nginx.service", "inactive"),
            telemetry("http :19999/gpuaas/telemetry/health", "curl ended with exit status: 7"),
        ],
    ),
    row(
        "Netdata's listener is lost",
        &[Play(&["lose", "listeners", "netdata 127.0.0.1:19998"])],
        &[telemetry("listener 127.0.0.1:19998", "nothing listens on port 19998")],
    ),
    row(
        "Netdata listens for everybody",
        &[
            Play(&["lose", "listeners", "netdata 127.0.0.1:19998"]),
            Play(&["have", "listeners", "netdata 0.0.0.0:19998"]),
        ],
        &[telemetry("listener 127.0.0.1:19998", "it listens on 0.0.0.0, not only on 127.0.0.1")],
    ),
    row(
        "the telemetry edge listens elsewhere",
        &[Replace(
            "/etc/nginx/sites-available/gpuaas-netdata-edge",
            "listen 0.0.0.0:19999;",
            "listen 0.0.0.0:8080;",
        )],
        &[telemetry("line of /etc/nginx/sites-available/gpuaas-netdata-edge", "has no line")],
    ),
];

/// Ways in which a ready host of bare metal breaks. What it shares with a slice host is broken there.
pub(super) const BARE_METAL: &[Mutation] = &[
    row(
        "bare metal without its agent",
        &[Play(&["lose", "active", "gpuaas-node-agent.service"])],
        &[active("unit gpuaas-node-agent.service", AGENT, "inactive")],
    ),
    row(
        "bare metal that lost a GPU",
        &[Play(&["unplug", "0000:53:00.0"])],
        &[active("nvidia-smi", METAL, "7 found, 8 wanted")],
    ),
    row(
        "bare metal whose driver lost a GPU",
        &[Remove("/sys/bus/pci/drivers/nvidia/0000:13:00.0")],
        &[active("nvidia-smi", METAL, "7 found, 8 wanted")],
    ),
    row(
        "bare metal with a GPU of another model",
        &[Play(&["have", "other-model", "0000:13:00.0"])],
        &[active(
            "nvidia-smi",
            METAL,
            "7 found, 8 wanted; of another model: NVIDIA H100 80GB HBM3",
        )],
    ),
    row(
        "bare metal without its fabric's address",
        &[Play(&["lose", "addresses", "ibp20s0 192.168.36.100/24"])],
        &[active(FABRIC_ADDRESS, METAL, "addresses there: none")],
    ),
    row(
        "bare metal without its fabric's route",
        &[Play(&["lose", "routes", "ibp20s0 192.168.0.0/16"])],
        &[active(FABRIC_ROUTE, METAL, "routes there: 192.168.36.0/24 dev ibp20s0")],
    ),
    row(
        "bare metal whose Docker is down",
        &[Play(&["lose", "active", "docker.service"])],
        &[active("unit docker.service", METAL, "inactive")],
    ),
    row(
        "bare metal whose hardware sync is down",
        &[Play(&["lose", "active", "maas_hardware_sync.timer"])],
        &[active("unit maas_hardware_sync.timer", METAL, "inactive")],
    ),
    row(
        "a foreign folder among bare metal's bundles does not silence a gate",
        &[Write(FOREIGN, "exit 1\n"), Play(&["have", "broken", "nvidia-smi"])],
        &[active("nvidia-smi", METAL, "exit status: 9: NVIDIA-SMI has failed")],
    ),
    row(
        "bare metal whose driver does not answer",
        &[Play(&["have", "broken", "nvidia-smi"])],
        &[active("nvidia-smi", METAL, "exit status: 9: NVIDIA-SMI has failed")],
    ),
];

/// What a ready host of bare metal may look like as well.
pub(super) const HARMLESS_BARE_METAL: &[Mutation] = &[
    fine("bare metal as its bundle left it", &[]),
    fine("bare metal after another boot and run", &[Play(&["boot"]), Bootstrap]),
    fine("bare metal with a folder that is no bundle", &[Write(FOREIGN, "exit 1\n")]),
];

/// What a ready host may look like as well.
pub(super) const HARMLESS: &[Mutation] = &[
    fine("as the bundles left it", &[]),
    fine("after another boot", &[Play(&["boot"])]),
    fine("with a folder that is no bundle", &[Write(FOREIGN, "exit 1\n")]),
    fine("after the bundles ran again", &[Play(&["boot"]), Bootstrap]),
    fine("after they ran again twice", &[Bootstrap, Bootstrap]),
    fine("with a route to another site", &[Play(&["have", "routes", "eno1 172.20.0.0/16"])]),
    fine(
        "with an address on a second link of the fabric",
        &[Play(&["have", "addresses", "ibp36s0 192.168.37.100/24"])],
    ),
    fine(
        "with a second address on the bridge",
        &[Play(&["have", "addresses", "ovsbr0 10.101.0.1/24"])],
    ),
    fine("with Docker's network", &[Play(&["have", "addresses", "docker0 172.17.0.1/16"])]),
    fine("with another daemon's listener", &[Play(&["have", "listeners", "sshd 0.0.0.0:22"])]),
    fine("with a bridge that guests do not use", &[Play(&["have", "bridges", "br-int"])]),
    fine(
        "with more arguments of the kernel",
        &[Replace("/proc/cmdline", " iommu=pt", " iommu=pt hugepages=64 nokaslr")],
    ),
    fine(
        "with nftables rules of somebody else",
        &[Write("/run/fixture/rules/other.nft", "table ip other { }\n")],
    ),
    fine(
        "with a comment in dnsmasq's settings",
        &[Replace(
            "/etc/dnsmasq.d/gpu_subnet.conf",
            "interface=ovsbr0\n",
            "# guests\n interface=ovsbr0 \n",
        )],
    ),
    fine(
        "with a netplan of the site",
        &[Write("/etc/netplan/70-site.yaml", "network: {version: 2}\n")],
    ),
    fine(
        "with a marker of another run",
        &[Write("/var/lib/gpuaas/site-bootstrap/h200-ib.done", "1.0.0 0193d4b2-run\n")],
    ),
    fine(
        "with a switch's port in a GPU's IOMMU group",
        &[Link(
            "/sys/bus/pci/devices/0000:12:00.0/iommu_group",
            "../../../../../kernel/iommu_groups/3",
        )],
    ),
    fine(
        "with the Ethernet adapter bound to no driver",
        &[Remove("/sys/bus/pci/devices/0000:00:01.0/driver")],
    ),
    fine(
        "with ACS bits on that isolate nothing",
        &[Byte("/sys/bus/pci/devices/0000:10:01.0/config", ACS_CONTROL, 0x5d)],
    ),
    fine("with a link of the fabric down", &[Write("/sys/class/net/ibp52s0/operstate", "down\n")]),
    fine("without a driver for the displays", &[Remove("/sys/bus/pci/drivers/nvidia/unbind")]),
    fine(
        "with another setting of the kernel",
        &[Write("/proc/sys/net/ipv4/tcp_syncookies", "0\n")],
    ),
];
