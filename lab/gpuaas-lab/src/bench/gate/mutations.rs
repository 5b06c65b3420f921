//! The mutations of a ready slice host, and the checks that have to fail for each.
//!
//! A row breaks one effect and turns one check red. Where the host cannot lose one thing alone (a
//! virtual function that is gone is neither there nor bound), the row names both.
//!
//! Names of the host (`bundles/fixture/make-host.sh`): below switch N are a GPU `0000:N3:00.0`, an
//! HCA `0000:N4:00.0` with the link `ibp..s0` and one virtual function `0000:N4:00.1`; the root port
//! is `0000:N0:01.0`, the switch's downstream ports are `0000:N2:00.0` and `0000:N2:04.0`.

use gpuaas_bundle::Gate;

use super::mutation::{
    AGENT, BASELINE, ExpectedRed, HostChange, MARKER, Mutation, SETUP, active, row,
};
use HostChange::{Byte, Cut, Link, Play, Remove, Replace, Restart, Restore, Tags, Write};

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
const IDENTITIES: &str = "identities of virtual functions of 15b3";
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
const UNKNOWN: &str = "host setup incomplete: the checks of h200-slice-vm are unknown";
const BROKEN_MANIFEST: &str = "has no valid manifest";
const BROKEN_TELEMETRY: ExpectedRed =
    ExpectedRed { gate: Gate::Telemetry, check: MANIFEST, reason: UNKNOWN, seen: BROKEN_MANIFEST };
/// Low byte of the ACS control register in a port's configuration space.
pub(super) const ACS_CONTROL: usize = 0x106;

const ADAPTERS: &str = "reseat missing adapters and turn on SR-IOV in their firmware";
const ARGUMENTS: &str = "reboot the host so that its kernel arguments take effect";
const GPU_HELD: &str = "stop the programs that hold a GPU open";
const RECORD: &str = "so that their module IDs are recorded";
const ACS_ON: &str = "reboot the host so that the kernel turns on ACS";
/// What is said of an agent that is down.
pub(super) const START_AGENT: &str = "systemctl restart gpuaas-node-agent.service";
/// That, done.
pub(super) const RESTART_AGENT: &[HostChange] =
    &[Play(&["run", "systemctl", "restart", "--", "gpuaas-node-agent.service"])];

/// Ways in which a ready host breaks.
pub(super) const BROKEN: &[Mutation] = &[
    row(
        "an extra folder next to the bundles does not silence a gate",
        &[Write(FOREIGN, "exit 1\n"), Play(&["lose", "active", "dnsmasq.service"])],
        &[slice("unit dnsmasq.service", SETUP, "inactive")],
    ),
    row(
        "the manifest of the host's bundle is truncated",
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
        "SR-IOV is disabled in an HCA's firmware",
        &[
            Play(&["unplug", "0000:34:00.1"]),
            Remove("/sys/bus/pci/devices/0000:34:00.0/sriov_numvfs"),
            Remove("/sys/bus/pci/devices/0000:34:00.0/sriov_totalvfs"),
        ],
        &[
            slice(COUNTS, SETUP, "SR-IOV is off in the firmware of 0000:34:00.0"),
            slice(FUNCTIONS, SETUP, "found 7, expected at least 8"),
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
        "the virtual function unit is down",
        &[Play(&["lose", "active", "gpuaas-slice-fabric-vfs.service"])],
        &[slice("unit gpuaas-slice-fabric-vfs.service", SETUP, "inactive")],
    ),
    row(
        "the vfio-pci unit is down",
        &[Play(&["lose", "active", "gpuaas-slice-vfio-devices.service"])],
        &[slice("unit gpuaas-slice-vfio-devices.service", SETUP, "inactive")],
    ),
    row(
        "the network baseline unit is down",
        &[Play(&["lose", "active", "gpuaas-slice-network-baseline.service"])],
        &[slice("unit gpuaas-slice-network-baseline.service", SETUP, "inactive")],
    ),
    row(
        "the bridge unit is down",
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
        "the kernel booted with the IOMMU off",
        &[Replace("/proc/cmdline", " intel_iommu=on", " intel_iommu=on intel_iommu=off")],
        &[slice("kernel argument intel_iommu=on", SETUP, "with intel_iommu=on intel_iommu=off")],
    )
    .otherwise(ARGUMENTS, &[Play(&["boot"])]),
    row(
        "the kernel booted without iommu=pt",
        &[Replace("/proc/cmdline", " iommu=pt", "")],
        &[slice("kernel argument iommu=pt", SETUP, "started without this argument")],
    )
    .otherwise(ARGUMENTS, &[Play(&["boot"])]),
    row(
        "a later kernel argument turns the IOMMU off",
        &[Replace("/proc/cmdline", " iommu=pt", " iommu=pt intel_iommu=off")],
        &[slice("kernel argument intel_iommu=on", SETUP, "intel_iommu=on intel_iommu=off")],
    )
    .otherwise(ARGUMENTS, &[Play(&["boot"])]),
    row(
        "a processor has no 1 GiB pages",
        &[Write(
            "/sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages",
            "0\n",
        )],
        &[slice("pages of 1 GiB", SETUP, "package 1 has enough pages for 0 of 4 GPUs")],
    )
    .otherwise(ARGUMENTS, &[Play(&["boot"])]),
    row(
        "the GPU module IDs are not recorded",
        &[Remove("/var/lib/gpuaas/slices/nvidia-smi.xml")],
        &[slice("module ids of GPUs", SETUP, "does not exist")],
    )
    .otherwise(RECORD, &[Restore("/var/lib/gpuaas/slices/nvidia-smi.xml")]),
    row(
        "the disk was moved from another chassis",
        &[Write("/sys/class/dmi/id/board_serial", ".OTHER.\n")],
        &[slice("module ids of GPUs", SETUP, "describes other hardware")],
    )
    .otherwise(RECORD, &[Restore("/sys/class/dmi/id/board_serial")]),
    row(
        "someone removed the profile's tag from the machine",
        &[Tags(&["virtual"])],
        &[slice("machine tag gpuaas-profile-slice-vm", "machine untagged: the next", "virtual")],
    )
    .otherwise(
        "give the machine the tag in MAAS again",
        &[Tags(&["virtual", "gpuaas-profile-slice-vm"])],
    ),
    row(
        "the next boot would lose the kernel arguments",
        &[Remove("/etc/default/grub.d/60-gpuaas-slice.cfg")],
        &[slice("file /etc/default/grub.d/60-gpuaas-slice.cfg", SETUP, "does not exist")],
    ),
    row(
        "a virtual function is missing",
        &[Play(&["unplug", "0000:24:00.1"])],
        &[
            slice(COUNTS, SETUP, "0000:24:00.0: numvfs 1, 0 present, expected 1"),
            slice(FUNCTIONS, SETUP, "found 7, expected at least 8"),
        ],
    ),
    row(
        "an HCA reports zero virtual functions",
        &[Write("/sys/bus/pci/devices/0000:34:00.0/sriov_numvfs", "0\n")],
        &[slice(COUNTS, SETUP, "0000:34:00.0: numvfs 0, 1 present, expected 1")],
    ),
    row(
        "a virtual function has no node GUID",
        &[Write("/run/fixture/vfs/ibp36s0/0/node_guid", "00:00:00:00:00:00:00:00\n")],
        &[slice(IDENTITIES, SETUP, "0000:24:00.1 has no node GUID")],
    ),
    row(
        "a virtual function has no port GUID",
        &[Write("/run/fixture/vfs/ibp52s0/0/port_guid", "00:00:00:00:00:00:00:00\n")],
        &[slice(IDENTITIES, SETUP, "0000:34:00.1 has no port GUID")],
    ),
    row(
        "an HCA is missing",
        &[Play(&["unplug", "0000:44:00.0"]), Play(&["unplug", "0000:44:00.1"])],
        &[
            slice("infiniband", BASELINE, "found 7, expected at least 8"),
            slice(COUNTS, SETUP, "found 7, expected at least 8"),
            slice(FUNCTIONS, SETUP, "found 7, expected at least 8"),
        ],
    )
    .otherwise(ADAPTERS, &[Play(&["plug", "0000:44:00.0"]), Play(&["boot"])]),
    row(
        "a GPU is missing",
        &[Play(&["unplug", "0000:53:00.0"])],
        &[slice(GPUS, SETUP, "found 7, expected at least 8")],
    )
    .otherwise(GPU_HELD, &[Play(&["plug", "0000:53:00.0"]), Play(&["boot"])]),
    row(
        "a GPU is bound to the nvidia driver",
        &[Link(
            "/sys/bus/pci/devices/0000:13:00.0/driver",
            "../../../../../../bus/pci/drivers/nvidia",
        )],
        &[slice(GPUS, SETUP, "0000:13:00.0: driver nvidia")],
    ),
    row(
        "a GPU has no driver",
        &[Remove("/sys/bus/pci/devices/0000:23:00.0/driver")],
        &[slice(GPUS, SETUP, "0000:23:00.0: driver none")],
    ),
    row(
        "a process held a GPU open at boot",
        &[
            Write("/proc/4242/comm", "netdata\n"),
            Link("/proc/4242/fd/7", "/dev/nvidia3"),
            Play(&["boot"]),
        ],
        &[
            slice("unit gpuaas-slice-vfio-devices.service", SETUP, "inactive"),
            slice(GPUS, SETUP, "held open by 4242 (netdata)"),
            slice(FUNCTIONS, SETUP, "0000:14:00.1: driver none"),
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
        &[slice(FUNCTIONS, SETUP, "0000:14:00.1: driver mlx5_core")],
    ),
    row(
        "a GPU shares its IOMMU group with a network card",
        &[Link("/sys/bus/pci/devices/0000:00:01.0/iommu_group", "../../../kernel/iommu_groups/3")],
        &[slice(GROUPS, SETUP, "0000:13:00.0 also contains 0000:00:01.0, driver mlx5_core")],
    )
    .otherwise(
        "move the device that shares the IOMMU group",
        &[Restore("/sys/bus/pci/devices/0000:00:01.0/iommu_group")],
    ),
    row(
        "a GPU has no IOMMU group",
        &[Remove("/sys/bus/pci/devices/0000:33:00.0/iommu_group")],
        &[slice(GROUPS, SETUP, "0000:33:00.0 has no IOMMU group: the IOMMU is off")],
    )
    .otherwise(
        "turn the IOMMU and ACS on in the firmware",
        &[Restore("/sys/bus/pci/devices/0000:33:00.0/iommu_group")],
    ),
    row(
        "ACS is off on a root port",
        &[Byte("/sys/bus/pci/devices/0000:10:01.0/config", ACS_CONTROL, 0)],
        &[slice(ACS, SETUP, "0000:10:01.0 supports ACS 0x001f, but only 0x0000 is enabled")],
    )
    .otherwise(ACS_ON, &[Play(&["boot"])]),
    row(
        "ACS is off on a switch port above a GPU",
        &[Byte("/sys/bus/pci/devices/0000:12:00.0/config", ACS_CONTROL, 0)],
        &[slice(ACS, SETUP, "0000:12:00.0 supports ACS 0x001f, but only 0x0000 is enabled")],
    )
    .otherwise(ACS_ON, &[Play(&["boot"])]),
    row(
        "ACS request redirect is off above an HCA",
        &[Byte("/sys/bus/pci/devices/0000:82:04.0/config", ACS_CONTROL, 0x19)],
        &[slice(ACS, SETUP, "0000:82:04.0 supports ACS 0x001f, but only 0x0019 is enabled")],
    )
    .otherwise(ACS_ON, &[Play(&["boot"])]),
    row(
        "a port's ACS bits cannot be read",
        &[Cut("/sys/bus/pci/devices/0000:22:00.0/config", 256)],
        &[slice(ACS, SETUP, "0000:22:00.0 has no ACS")],
    )
    .otherwise(ACS_ON, &[Restore("/sys/bus/pci/devices/0000:22:00.0/config")]),
    row(
        "a fabric link is down",
        &[Write("/sys/class/net/ibp52s0/operstate", "down\n")],
        &[slice("infiniband", BASELINE, "found 7, expected at least 8")],
    ),
    row(
        "the fabric's netplan file is missing",
        &[Remove("/etc/netplan/60-ipoib.yaml")],
        &[slice("file /etc/netplan/60-ipoib.yaml", BASELINE, "does not exist")],
    ),
    row(
        "the fabric address is missing",
        &[Play(&["lose", "addresses", "ibp20s0 192.168.36.100/24"])],
        &[slice(FABRIC_ADDRESS, BASELINE, "its addresses: none")],
    ),
    row(
        "the fabric link has an address in another network",
        &[
            Play(&["lose", "addresses", "ibp20s0 192.168.36.100/24"]),
            Play(&["have", "addresses", "ibp20s0 172.16.36.100/24"]),
        ],
        &[slice(FABRIC_ADDRESS, BASELINE, "ibp20s0 has 172.16.36.100/24")],
    ),
    row(
        "the fabric route is missing",
        &[Play(&["lose", "routes", "ibp20s0 192.168.0.0/16"])],
        &[slice(FABRIC_ROUTE, BASELINE, "its routes: 192.168.36.0/24 dev ibp20s0")],
    ),
    row(
        "the fabric route uses the management link",
        &[
            Play(&["lose", "routes", "ibp20s0 192.168.0.0/16"]),
            Play(&["have", "routes", "eno1 192.168.0.0/16"]),
        ],
        &[slice(FABRIC_ROUTE, BASELINE, "its routes: 192.168.36.0/24 dev ibp20s0")],
    ),
    row(
        "the guest bridge is missing",
        &[Play(&["lose", "bridges", "ovsbr0"])],
        &[slice("ovs bridge ovsbr0", SETUP, "ovsbr0 is not a bridge or a socket")],
    ),
    row(
        "the bridge's datapath does not answer",
        &[Play(&["have", "broken", "datapath"])],
        &[slice("ovs bridge ovsbr0", SETUP, "reports no features")],
    )
    .otherwise(
        "service restart openvswitch-switch.service",
        &[Restart("openvswitch-switch.service")],
    ),
    row(
        "the bridge has no address",
        &[Play(&["lose", "addresses", "ovsbr0 10.100.0.1/24"])],
        &[slice(GATEWAY, SETUP, "its addresses: none")],
    ),
    row(
        "the bridge has the wrong gateway address",
        &[
            Play(&["lose", "addresses", "ovsbr0 10.100.0.1/24"]),
            Play(&["have", "addresses", "ovsbr0 10.100.0.254/24"]),
        ],
        &[slice(GATEWAY, SETUP, "ovsbr0 has 10.100.0.254/24")],
    ),
    row(
        "the gateway address has the wrong prefix length",
        &[
            Play(&["lose", "addresses", "ovsbr0 10.100.0.1/24"]),
            Play(&["have", "addresses", "ovsbr0 10.100.0.1/16"]),
        ],
        &[slice(GATEWAY, SETUP, "ovsbr0 has 10.100.0.1/16")],
    ),
    row(
        "the dnsmasq settings are missing",
        &[Remove("/etc/dnsmasq.d/gpu_subnet.conf")],
        &[
            slice("line of /etc/dnsmasq.d/gpu_subnet.conf", SETUP, "does not exist"),
            slice("upstream of /etc/dnsmasq.d/gpu_subnet.conf", SETUP, "does not exist"),
        ],
    ),
    row(
        "dnsmasq serves another bridge",
        &[Replace("/etc/dnsmasq.d/gpu_subnet.conf", "interface=ovsbr0\n", "interface=virbr0\n")],
        &[slice("line of /etc/dnsmasq.d/gpu_subnet.conf", SETUP, "does not contain the line")],
    ),
    row(
        "IP forwarding is off",
        &[Write("/proc/sys/net/ipv4/ip_forward", "0\n")],
        &[slice("sysctl net.ipv4.ip_forward", SETUP, "it is 0")],
    ),
    row(
        "guest traffic is not masqueraded",
        &[Replace(
            RULES,
            "ip daddr != 10.100.0.0/24 masquerade",
            "ip daddr != 10.100.0.0/24 accept",
        )],
        &[slice("masquerade of 10.100.0.0/24", SETUP, "no rule masquerades 10.100.0.0/24")],
    ),
    row(
        "the nftables rules for guests are not loaded",
        &[Remove(RULES)],
        &[
            slice("masquerade of 10.100.0.0/24", SETUP, "no rule masquerades 10.100.0.0/24"),
            slice(GUESTS_INPUT, SETUP, "icmp 10.100.0.1 is open to ovsbr0"),
            slice(GUESTS_FORWARD, SETUP, "icmp 10.0.0.0 is open to ovsbr0"),
        ],
    ),
    row(
        "guests can reach the host's SSH port",
        &[Replace(RULES, "tcp dport 53 accept", "tcp dport { 22, 53 } accept")],
        &[slice(GUESTS_INPUT, SETUP, "tcp 10.100.0.1:22 is open to ovsbr0")],
    ),
    row(
        "guests cannot report that they booted",
        &[Replace(RULES, CALL_RULE, "")],
        &[slice(GUESTS_INPUT, SETUP, "tcp 10.100.0.1:18775 is blocked for ovsbr0")],
    ),
    row(
        "guests can reach the callback port on any host address",
        &[Replace(RULES, CALL_RULE, "iifname \"ovsbr0\" tcp dport 18775 accept")],
        &[slice(GUESTS_INPUT, SETUP, ":18775 is open to ovsbr0")],
    ),
    row(
        "guests can reach a port next to the callback port",
        &[Replace(RULES, "tcp dport 18775 accept", "tcp dport { 18775, 18776 } accept")],
        &[slice(GUESTS_INPUT, SETUP, "tcp 10.100.0.1:18776 is open to ovsbr0")],
    ),
    row(
        "guests can reach a BMC",
        &[Replace(
            RULES,
            "iifname \"ovsbr0\" ip daddr 10.0.0.0/8 drop",
            "iifname \"ovsbr0\" ip daddr 10.177.36.50 accept\niifname \"ovsbr0\" ip daddr 10.0.0.0/8 drop",
        )],
        &[slice(GUESTS_FORWARD, SETUP, "icmp 10.177.36.50 is open to ovsbr0")],
    ),
    row(
        "guests can reach the fabric",
        &[Replace(RULES, "iifname \"ovsbr0\" ip daddr 192.168.0.0/16 drop", "")],
        &[slice(GUESTS_FORWARD, SETUP, "icmp 192.168.0.0 is open to ovsbr0")],
    ),
    row(
        "guests can reach each other on the bridge",
        &[Write(FLOWS, "table=0,priority=0,actions=NORMAL\n")],
        &[slice("flows of ovsbr0", SETUP, "priority=0 actions=NORMAL")],
    ),
    row(
        "guests can send with a neighbour's MAC address",
        &[Write(
            FLOWS,
            "table=0,priority=9,in_port=7,ip,nw_src=10.100.0.11,actions=output:LOCAL\n",
        )],
        &[slice("flows of ovsbr0", SETUP, "a flow lets ports send from any address")],
    ),
    row(
        "guests can send with a neighbour's IPv4 address",
        &[Write(
            FLOWS,
            "table=0,priority=9,in_port=7,dl_src=02:00:00:00:00:11,actions=output:LOCAL\n",
        )],
        &[slice("flows of ovsbr0", SETUP, "a flow lets ports send from any address")],
    ),
    row(
        "the bridge has no default drop flow",
        &[Replace(FLOWS, "table=0,priority=0,actions=drop\n", "")],
        &[slice("flows of ovsbr0", SETUP, "the lowest-priority flow of table 0 does not drop")],
    ),
    row(
        "a port's flow bypasses the address checks",
        &[Write(FLOWS, "table=0,priority=300,in_port=7,actions=output:LOCAL\n")],
        &[slice("flows of ovsbr0", SETUP, "a flow lets ports send from any address")],
    ),
    row(
        "the switch lost the bridge's flows",
        &[Remove(FLOWS)],
        &[slice("flows of ovsbr0", SETUP, "ovsbr0 is not a bridge or a socket")],
    ),
    row(
        "dnsmasq has no upstream server",
        &[Write("/run/systemd/resolve/resolv.conf", "# no network\n")],
        &[slice(
            "upstream of /etc/dnsmasq.d/gpu_subnet.conf",
            SETUP,
            "/run/systemd/resolve/resolv.conf lists no name server",
        )],
    )
    .otherwise("add a DNS server to the host", &[Restore("/run/systemd/resolve/resolv.conf")]),
    row(
        "the next boot would bind the GPUs to the nvidia driver",
        &[Remove("/etc/modprobe.d/gpuaas-slice.conf")],
        &[slice("line of /etc/modprobe.d/gpuaas-slice.conf", SETUP, "does not exist")],
    ),
    row(
        "a neighbouring subnet can read the host's telemetry",
        &[Replace(EDGE, "allow 127.0.0.0/8;", "allow 127.0.0.0/8;\n    allow 10.177.36.0/24;")],
        &[telemetry(
            "readers of /etc/nginx/sites-available/gpuaas-netdata-edge",
            "it lets in 10.177.36.0/24",
        )],
    ),
    row(
        "the wrong subnet is masqueraded",
        &[Replace(RULES, "ip saddr 10.100.0.0/24", "ip saddr 10.100.0.0/25")],
        &[slice("masquerade of 10.100.0.0/24", SETUP, "no rule masquerades 10.100.0.0/24")],
    ),
    row(
        "the baseline bundle has no marker",
        &[Remove("/var/lib/gpuaas/site-bootstrap/h200-ib.done")],
        &[slice(
            "bundle h200-ib",
            MARKER,
            "there is no /var/lib/gpuaas/site-bootstrap/h200-ib.done",
        )],
    ),
    row(
        "the baseline bundle's marker names an older version",
        &[Write("/var/lib/gpuaas/site-bootstrap/h200-ib.done", "0.9.0 run-of-the-image\n")],
        &[slice(
            "bundle h200-ib",
            MARKER,
            concat!(
                "is of 0.9.0, and ",
                gpuaas_types::built_in_version!("h200-ib"),
                " is installed"
            ),
        )],
    ),
    row(
        "Netdata is down",
        &[Play(&["lose", "active", "netdata.service"])],
        &[
            telemetry("unit netdata.service", "inactive"),
            telemetry("http :19998/api/v1/info", "curl failed with exit status: 7"),
            telemetry("metrics of netdata", "curl failed with exit status: 7"),
            telemetry("http :19999/gpuaas/telemetry/health", "curl failed with exit status: 7"),
        ],
    ),
    row(
        "nginx is down",
        &[Play(&["lose", "active", "nginx.service"])],
        &[
            telemetry("unit nginx.service", "inactive"),
            telemetry("http :19999/gpuaas/telemetry/health", "curl failed with exit status: 7"),
        ],
    ),
    row(
        "Netdata has no go.d.plugin",
        &[Play(&["have", "broken", "go.d"])],
        &[telemetry(
            "metrics of netdata",
            "missing metrics: systemd, docker; present: disk, mem, net, system",
        )],
    )
    .otherwise(
        "set netdata_repo_url to a repository whose Netdata has go.d.plugin",
        &[Play(&["lose", "broken", "go.d"])],
    ),
    row(
        "Netdata is not allowed to query Docker",
        &[Replace("/etc/group", "docker:x:998:netdata", "docker:x:998:")],
        &[telemetry("metrics of netdata", "missing metrics: docker; present: ")],
    ),
    row(
        "Netdata does not listen on its port",
        &[Play(&["lose", "listeners", "netdata 127.0.0.1:19998"])],
        &[telemetry("listener 127.0.0.1:19998", "nothing listens on port 19998")],
    ),
    row(
        "Netdata listens on all addresses",
        &[
            Play(&["lose", "listeners", "netdata 127.0.0.1:19998"]),
            Play(&["have", "listeners", "netdata 0.0.0.0:19998"]),
        ],
        &[telemetry("listener 127.0.0.1:19998", "it listens on 0.0.0.0, not only on 127.0.0.1")],
    ),
    row(
        "the telemetry edge listens on the wrong port",
        &[Replace(
            "/etc/nginx/sites-available/gpuaas-netdata-edge",
            "listen 0.0.0.0:19999;",
            "listen 0.0.0.0:8080;",
        )],
        &[telemetry("line of /etc/nginx/sites-available/gpuaas-netdata-edge", "does not contain")],
    ),
];
