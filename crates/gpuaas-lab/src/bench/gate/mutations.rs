//! The mutations of a ready slice host, and the checks that have to fail for each.
//!
//! A row breaks one effect and turns one check red. Where the host cannot lose one thing alone (a
//! virtual function that is gone is neither there nor bound), the row names both.
//!
//! Names of the host (`bundles/fixture/make-host.sh`): below switch N are a GPU `0000:N3:00.0`, an
//! HCA `0000:N4:00.0` with the link `ibp..s0` and one virtual function `0000:N4:00.1`; the root port
//! is `0000:N0:01.0`, the switch's downstream ports are `0000:N2:00.0` and `0000:N2:04.0`.

use gpuaas_bundle::Gate;

use super::mutation::{AGENT, ExpectedRed, HostChange, Mutation, active, row};
use HostChange::{Byte, Cut, Link, Play, Remove, Replace, Restart, Restore, Tags, Write};

/// Of the bundle that the others require.
const BASELINE: &str = "host baseline incomplete: h200-ib@1.2.0";
/// Of the slice host's own bundle.
const SETUP: &str = "host setup incomplete: h200-slice-vm@1.5.0";
/// Of a marker: the slice host asks for it, and it is the baseline's.
const MARKER: &str = "host baseline incomplete: h200-slice-vm@1.5.0";

const fn slice(check: &'static str, reason: &'static str, seen: &'static str) -> ExpectedRed {
    ExpectedRed { gate: Gate::SliceReady, check, reason, seen }
}

const fn telemetry(check: &'static str, seen: &'static str) -> ExpectedRed {
    ExpectedRed { gate: Gate::Telemetry, check, reason: BASELINE, seen }
}

/// Check of the fabric's address.
pub(super) const FABRIC_ADDRESS: &str = "address 192.168.0.0/16 on any InfiniBand link";
/// Check of the route to the fabric.
pub(super) const FABRIC_ROUTE: &str = "route 192.168.0.0/16 on any InfiniBand link";
const GATEWAY: &str = "address 10.100.0.1/24 on ovsbr0";
const GPUS: &str = "driver vfio-pci of 10de:any";
const FUNCTIONS: &str = "driver vfio-pci of virtual functions of 15b3";
const COUNTS: &str = "virtual functions of 15b3";
const GROUPS: &str = "iommu groups of vfio-pci";
const ACS: &str = "acs above vfio-pci";
const GUESTS_INPUT: &str = "nft input from ovsbr0";
const GUESTS_FORWARD: &str = "nft forward from ovsbr0";
/// The rules that nftables has.
const RULES: &str = "/run/fixture/rules/slice.nft";
/// The one of them that lets guests call the agent.
const CALL_RULE: &str = "iifname \"ovsbr0\" ip daddr 10.100.0.1 tcp dport 18775 accept";
/// The flows that the switch has.
const FLOWS: &str = "/run/fixture/flows/ovsbr0";
/// The site of the telemetry edge.
pub(super) const EDGE: &str = "/etc/nginx/sites-available/gpuaas-netdata-edge";
/// A script that an image brought, beside the bundles.
pub(super) const FOREIGN: &str = "/usr/local/share/gpuaas/site-bootstrap/raw-scripts/bootstrap.sh";
const MANIFEST: &str = "manifest of h200-slice-vm";
const UNKNOWN: &str = "host setup incomplete: nobody knows what h200-slice-vm promises";
const BROKEN_MANIFEST: &str = "has none, or a broken one";
const BROKEN_TELEMETRY: ExpectedRed =
    ExpectedRed { gate: Gate::Telemetry, check: MANIFEST, reason: UNKNOWN, seen: BROKEN_MANIFEST };
/// Low byte of the ACS control register in a port's configuration space.
pub(super) const ACS_CONTROL: usize = 0x106;

const ADAPTERS: &str = "seat missing adapters and turn SR-IOV on in their firmware";
const ARGUMENTS: &str = "boot the host into its kernel arguments";
const GPU_HELD: &str = "stop the programs that hold a GPU open";
const RECORD: &str = "so that their module ids are recorded";
const ACS_ON: &str = "boot the host, whose kernel turns ACS on";
/// What is said of an agent that is down.
pub(super) const START_AGENT: &str = "systemctl restart gpuaas-node-agent.service";
/// That, done.
pub(super) const RESTART_AGENT: &[HostChange] =
    &[Play(&["run", "systemctl", "restart", "--", "gpuaas-node-agent.service"])];

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
    )
    .otherwise(
        "gpuaas-node-agent bundle boot",
        &[Restore("/usr/local/share/gpuaas/site-bootstrap/h200-slice-vm/manifest.json")],
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
    )
    .otherwise(
        ADAPTERS,
        &[
            Restore("/sys/bus/pci/devices/0000:34:00.0/sriov_numvfs"),
            Restore("/sys/bus/pci/devices/0000:34:00.0/sriov_totalvfs"),
            Play(&["boot"]),
        ],
    ),
    row(
        "the agent is down",
        &[Play(&["lose", "active", "gpuaas-node-agent.service"])],
        &[active("unit gpuaas-node-agent.service", AGENT, "inactive")],
    )
    .otherwise(START_AGENT, RESTART_AGENT),
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
        "the kernel was started with its IOMMU off",
        &[Replace("/proc/cmdline", " intel_iommu=on", " intel_iommu=on intel_iommu=off")],
        &[slice("kernel argument intel_iommu=on", SETUP, "with intel_iommu=on intel_iommu=off")],
    )
    .otherwise(ARGUMENTS, &[Play(&["boot"])]),
    row(
        "the kernel was started without iommu=pt",
        &[Replace("/proc/cmdline", " iommu=pt", "")],
        &[slice("kernel argument iommu=pt", SETUP, "started without it")],
    )
    .otherwise(ARGUMENTS, &[Play(&["boot"])]),
    row(
        "a later argument turns the IOMMU off again",
        &[Replace("/proc/cmdline", " iommu=pt", " iommu=pt intel_iommu=off")],
        &[slice("kernel argument intel_iommu=on", SETUP, "intel_iommu=on intel_iommu=off")],
    )
    .otherwise(ARGUMENTS, &[Play(&["boot"])]),
    row(
        "a processor has no pages of 1 GiB",
        &[Write(
            "/sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages",
            "0\n",
        )],
        &[slice("pages of 1 GiB", SETUP, "package 1 has enough for 0 of 4 GPUs")],
    )
    .otherwise(ARGUMENTS, &[Play(&["boot"])]),
    row(
        "the module ids of the GPUs are not on record",
        &[Remove("/var/lib/gpuaas/slices/nvidia-smi.xml")],
        &[slice("module ids of GPUs", SETUP, "there is no record")],
    )
    .otherwise(RECORD, &[Restore("/var/lib/gpuaas/slices/nvidia-smi.xml")]),
    row(
        "the disk came from another chassis",
        &[Write("/sys/class/dmi/id/board_serial", ".OTHER.\n")],
        &[slice("module ids of GPUs", SETUP, "is of other hardware")],
    )
    .otherwise(RECORD, &[Restore("/sys/class/dmi/id/board_serial")]),
    row(
        "a person took the profile's tag from the machine",
        &[Tags(&["virtual"])],
        &[slice("machine tag gpuaas-profile-slice-vm", "machine untagged: the next", "virtual")],
    )
    .otherwise(
        "give the machine the tag in MAAS again",
        &[Tags(&["virtual", "gpuaas-profile-slice-vm"])],
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
        &[
            slice("infiniband", BASELINE, "7 found, 8 wanted"),
            slice(COUNTS, SETUP, "7 found, 8 wanted"),
            slice(FUNCTIONS, SETUP, "7 found, 8 wanted"),
        ],
    )
    .otherwise(ADAPTERS, &[Play(&["plug", "0000:44:00.0"]), Play(&["boot"])]),
    row(
        "a GPU is gone",
        &[Play(&["unplug", "0000:53:00.0"])],
        &[slice(GPUS, SETUP, "7 found, 8 wanted")],
    )
    .otherwise(GPU_HELD, &[Play(&["plug", "0000:53:00.0"]), Play(&["boot"])]),
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
        "a program held a GPU at boot",
        &[
            Write("/proc/4242/comm", "netdata\n"),
            Link("/proc/4242/fd/7", "/dev/nvidia3"),
            Play(&["boot"]),
        ],
        &[
            slice("unit gpuaas-slice-vfio-devices.service", SETUP, "inactive"),
            slice(GPUS, SETUP, "held open by 4242 (netdata)"),
            slice(FUNCTIONS, SETUP, "0000:14:00.1 has none"),
            slice(GROUPS, SETUP, "nothing is bound to vfio-pci"),
            slice(ACS, SETUP, "nothing is bound to vfio-pci"),
        ],
    )
    .otherwise(GPU_HELD, &[Remove("/proc/4242/fd/7")]),
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
    )
    .otherwise(
        "move what shares a group",
        &[Restore("/sys/bus/pci/devices/0000:00:01.0/iommu_group")],
    ),
    row(
        "a GPU has no IOMMU group",
        &[Remove("/sys/bus/pci/devices/0000:33:00.0/iommu_group")],
        &[slice(GROUPS, SETUP, "0000:33:00.0 has no group: the IOMMU is off")],
    )
    .otherwise(
        "turn the IOMMU and ACS on in the firmware",
        &[Restore("/sys/bus/pci/devices/0000:33:00.0/iommu_group")],
    ),
    row(
        "ACS is off on a root port",
        &[Byte("/sys/bus/pci/devices/0000:10:01.0/config", ACS_CONTROL, 0)],
        &[slice(ACS, SETUP, "0000:10:01.0 can 0x001f and has only 0x0000 on")],
    )
    .otherwise(ACS_ON, &[Play(&["boot"])]),
    row(
        "ACS is off on a switch's port above a GPU",
        &[Byte("/sys/bus/pci/devices/0000:12:00.0/config", ACS_CONTROL, 0)],
        &[slice(ACS, SETUP, "0000:12:00.0 can 0x001f and has only 0x0000 on")],
    )
    .otherwise(ACS_ON, &[Play(&["boot"])]),
    row(
        "ACS redirects no requests above an HCA",
        &[Byte("/sys/bus/pci/devices/0000:82:04.0/config", ACS_CONTROL, 0x19)],
        &[slice(ACS, SETUP, "0000:82:04.0 can 0x001f and has only 0x0019 on")],
    )
    .otherwise(ACS_ON, &[Play(&["boot"])]),
    row(
        "the ACS bits of a port cannot be read",
        &[Cut("/sys/bus/pci/devices/0000:22:00.0/config", 256)],
        &[slice(ACS, SETUP, "0000:22:00.0 shows no ACS")],
    )
    .otherwise(ACS_ON, &[Restore("/sys/bus/pci/devices/0000:22:00.0/config")]),
    row(
        "a link of the fabric is down",
        &[Write("/sys/class/net/ibp52s0/operstate", "down\n")],
        &[slice("infiniband", BASELINE, "7 found, 8 wanted")],
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
    )
    .otherwise(
        "service restart openvswitch-switch.service",
        &[Restart("openvswitch-switch.service")],
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
        &[
            slice("line of /etc/dnsmasq.d/gpu_subnet.conf", SETUP, "no such file"),
            slice("upstream of /etc/dnsmasq.d/gpu_subnet.conf", SETUP, "no such file"),
        ],
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
        &[Replace(
            RULES,
            "ip daddr != 10.100.0.0/24 masquerade",
            "ip daddr != 10.100.0.0/24 accept",
        )],
        &[slice("masquerade of 10.100.0.0/24", SETUP, "no rule masquerades 10.100.0.0/24")],
    ),
    row(
        "nobody loaded the guests' rules",
        &[Remove(RULES)],
        &[
            slice("masquerade of 10.100.0.0/24", SETUP, "no rule masquerades 10.100.0.0/24"),
            slice(GUESTS_INPUT, SETUP, "icmp 10.100.0.1 is open to ovsbr0"),
            slice(GUESTS_FORWARD, SETUP, "icmp 10.0.0.0 is open to ovsbr0"),
        ],
    ),
    row(
        "a guest reaches the host",
        &[Replace(RULES, "tcp dport 53 accept", "tcp dport { 22, 53 } accept")],
        &[slice(GUESTS_INPUT, SETUP, "tcp 10.100.0.1:22 is open to ovsbr0")],
    ),
    row(
        "no guest can say that it booted",
        &[Replace(RULES, CALL_RULE, "")],
        &[slice(GUESTS_INPUT, SETUP, "tcp 10.100.0.1:18775 is shut to ovsbr0")],
    ),
    row(
        "guests reach the port for their calls at any address of the host",
        &[Replace(RULES, CALL_RULE, "iifname \"ovsbr0\" tcp dport 18775 accept")],
        &[slice(GUESTS_INPUT, SETUP, ":18775 is open to ovsbr0")],
    ),
    row(
        "guests reach more ports than the one for their calls",
        &[Replace(RULES, "tcp dport 18775 accept", "tcp dport { 18775, 18776 } accept")],
        &[slice(GUESTS_INPUT, SETUP, "tcp 10.100.0.1:18776 is open to ovsbr0")],
    ),
    row(
        "a guest reaches a BMC",
        &[Replace(
            RULES,
            "iifname \"ovsbr0\" ip daddr 10.0.0.0/8 drop",
            "iifname \"ovsbr0\" ip daddr 10.177.36.50 accept\niifname \"ovsbr0\" ip daddr 10.0.0.0/8 drop",
        )],
        &[slice(GUESTS_FORWARD, SETUP, "icmp 10.177.36.50 is open to ovsbr0")],
    ),
    row(
        "a guest reaches the fabric",
        &[Replace(RULES, "iifname \"ovsbr0\" ip daddr 192.168.0.0/16 drop", "")],
        &[slice(GUESTS_FORWARD, SETUP, "icmp 192.168.0.0 is open to ovsbr0")],
    ),
    row(
        "guests reach each other on the bridge",
        &[Write(FLOWS, "table=0,priority=0,actions=NORMAL\n")],
        &[slice("flows of ovsbr0", SETUP, "priority=0 actions=NORMAL")],
    ),
    row(
        "guests may send with a neighbour's MAC",
        &[Write(
            FLOWS,
            "table=0,priority=9,in_port=7,ip,nw_src=10.100.0.11,actions=output:LOCAL\n",
        )],
        &[slice("flows of ovsbr0", SETUP, "a flow lets ports send with any address")],
    ),
    row(
        "guests may send with a neighbour's IPv4 address",
        &[Write(
            FLOWS,
            "table=0,priority=9,in_port=7,dl_src=02:00:00:00:00:11,actions=output:LOCAL\n",
        )],
        &[slice("flows of ovsbr0", SETUP, "a flow lets ports send with any address")],
    ),
    row(
        "what no flow of a guest names is passed",
        &[Replace(FLOWS, "table=0,priority=0,actions=drop\n", "")],
        &[slice("flows of ovsbr0", SETUP, "no flow drops what no other names")],
    ),
    row(
        "a port's flow passes by the checks of its addresses",
        &[Write(FLOWS, "table=0,priority=300,in_port=7,actions=output:LOCAL\n")],
        &[slice("flows of ovsbr0", SETUP, "a flow lets ports send with any address")],
    ),
    row(
        "the switch lost the flows of the bridge",
        &[Remove(FLOWS)],
        &[slice("flows of ovsbr0", SETUP, "ovsbr0 is not a bridge or a socket")],
    ),
    row(
        "dnsmasq has no upstream",
        &[Write("/run/systemd/resolve/resolv.conf", "# no network\n")],
        &[slice(
            "upstream of /etc/dnsmasq.d/gpu_subnet.conf",
            SETUP,
            "/run/systemd/resolve/resolv.conf names no server",
        )],
    )
    .otherwise("give the host a name server", &[Restore("/run/systemd/resolve/resolv.conf")]),
    row(
        "the next boot lets NVIDIA's driver take the GPUs",
        &[Remove("/etc/modprobe.d/gpuaas-slice.conf")],
        &[slice("line of /etc/modprobe.d/gpuaas-slice.conf", SETUP, "no such file")],
    ),
    row(
        "a neighbour reads the host's telemetry",
        &[Replace(EDGE, "allow 127.0.0.0/8;", "allow 127.0.0.0/8;\n    allow 10.177.36.0/24;")],
        &[telemetry(
            "readers of /etc/nginx/sites-available/gpuaas-netdata-edge",
            "it lets in 10.177.36.0/24",
        )],
    ),
    row(
        "another subnet is masqueraded",
        &[Replace(RULES, "ip saddr 10.100.0.0/24", "ip saddr 10.100.0.0/25")],
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
        &[slice("bundle h200-ib", MARKER, "is of 0.9.0, and 1.2.0 is installed")],
    ),
    row(
        "Netdata is down",
        &[Play(&["lose", "active", "netdata.service"])],
        &[
            telemetry("unit netdata.service", "inactive"),
            telemetry("http :19998/api/v1/info", "curl ended with exit status: 7"),
            telemetry("metrics of netdata", "curl ended with exit status: 7"),
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
        "Netdata has no go.d.plugin",
        &[Play(&["have", "broken", "go.d"])],
        &[telemetry(
            "metrics of netdata",
            "no metrics of systemd, docker; there are: disk, mem, net, system",
        )],
    )
    .otherwise("install a Netdata with go.d.plugin", &[Play(&["lose", "broken", "go.d"])]),
    row(
        "Netdata may not ask Docker",
        &[Replace("/etc/group", "docker:x:998:netdata", "docker:x:998:")],
        &[telemetry("metrics of netdata", "no metrics of docker; there are: ")],
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
