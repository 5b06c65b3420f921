//! What a ready host may look like as well: no check of a gate may be red for it.

use super::mutation::{HostChange, Mutation};
use super::mutations::{ACS_CONTROL, EDGE, FOREIGN};

use HostChange::{Bootstrap, Byte, Link, Play, Remove, Replace, Tags, Write};

/// Rules of another program, such as a firewall's.
const OTHER_ACCEPT: &str = "table inet other {\n  chain all {\n    type filter hook input priority \
                            filter; policy accept;\n    iifname \"ovsbr0\" accept\n  }\n}\n";

const fn fine(name: &'static str, changes: &'static [HostChange]) -> Mutation {
    Mutation { name, changes, red: &[], otherwise: None }
}

/// What a ready host of bare metal may look like as well.
pub(super) const HARMLESS_BARE_METAL: &[Mutation] = &[
    fine("bare metal as its bundle left it, beside the embedded one for slices", &[]),
    fine("bare metal after another boot and run", &[Play(&["boot"]), Bootstrap]),
    fine(
        "bare metal with Docker's network",
        &[Play(&["have", "addresses", "docker0 172.17.0.1/16"])],
    ),
    fine(
        "bare metal with an address on a second link of the fabric",
        &[Play(&["have", "addresses", "ibp36s0 192.168.37.100/24"])],
    ),
    fine("bare metal with a driver of no display", &[Play(&["have", "modules", "vfio-pci"])]),
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
    fine("with an IOMMU that is on by default", &[Replace("/proc/cmdline", " intel_iommu=on", "")]),
    fine(
        "with more arguments of the kernel",
        &[Replace("/proc/cmdline", " iommu=pt", " iommu=pt hugepages=64 nokaslr")],
    ),
    fine(
        "with nftables rules of somebody else",
        &[Write("/run/fixture/rules/other.nft", "table ip other { }\n")],
    ),
    fine(
        "with an accept of somebody else, which undoes no drop",
        &[Write("/run/fixture/rules/other.nft", OTHER_ACCEPT)],
    ),
    fine(
        "with a reader of telemetry that is one host",
        &[Replace(EDGE, "allow 127.0.0.0/8;", "allow 127.0.0.0/8;\n    allow 10.177.36.9/32;")],
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
        &[Write("/var/lib/gpuaas/site-bootstrap/h200-ib.done", "1.2.0 0193d4b2-run\n")],
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
    fine(
        "with a tag of the site beside the profile's",
        &[Tags(&["rack-7", "gpuaas-profile-slice-vm"])],
    ),
    fine("with a link of Ethernet down", &[Write("/sys/class/net/enp0s1/operstate", "down\n")]),
    fine("without a driver for the displays", &[Remove("/sys/bus/pci/drivers/nvidia/unbind")]),
    fine(
        "with another setting of the kernel",
        &[Write("/proc/sys/net/ipv4/tcp_syncookies", "0\n")],
    ),
];
