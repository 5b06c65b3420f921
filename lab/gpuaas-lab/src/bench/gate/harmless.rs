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
    fine("bare metal: unchanged, with the slice bundle embedded too", &[]),
    fine("bare metal: after another boot and bundle run", &[Play(&["boot"]), Bootstrap]),
    fine(
        "bare metal: with Docker's network",
        &[Play(&["have", "addresses", "docker0 172.17.0.1/16"])],
    ),
    fine(
        "bare metal: with an address on a second fabric link",
        &[Play(&["have", "addresses", "ibp36s0 192.168.37.100/24"])],
    ),
    fine("bare metal: with the vfio-pci module loaded", &[Play(&["have", "modules", "vfio-pci"])]),
    fine("bare metal: with a folder that is not a bundle", &[Write(FOREIGN, "exit 1\n")]),
];

/// What a ready host may look like as well.
pub(super) const HARMLESS: &[Mutation] = &[
    fine("unchanged after the bundles ran", &[]),
    fine("after another boot", &[Play(&["boot"])]),
    fine("with a folder that is not a bundle", &[Write(FOREIGN, "exit 1\n")]),
    fine("after the bundles ran again", &[Play(&["boot"]), Bootstrap]),
    fine("after the bundles ran again twice", &[Bootstrap, Bootstrap]),
    fine("with a route to another site", &[Play(&["have", "routes", "eno1 172.20.0.0/16"])]),
    fine(
        "with an address on a second fabric link",
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
        "with more kernel arguments",
        &[Replace("/proc/cmdline", " iommu=pt", " iommu=pt hugepages=64 nokaslr")],
    ),
    fine(
        "with nftables rules from another program",
        &[Write("/run/fixture/rules/other.nft", "table ip other { }\n")],
    ),
    fine(
        "with another program's accept rule, which overrides no drop",
        &[Write("/run/fixture/rules/other.nft", OTHER_ACCEPT)],
    ),
    fine(
        "with a single host allowed to read telemetry",
        &[Replace(EDGE, "allow 127.0.0.0/8;", "allow 127.0.0.0/8;\n    allow 10.177.36.9/32;")],
    ),
    fine(
        "with a comment in the dnsmasq settings",
        &[Replace(
            "/etc/dnsmasq.d/gpu_subnet.conf",
            "interface=ovsbr0\n",
            "# guests\n interface=ovsbr0 \n",
        )],
    ),
    fine(
        "with a site-specific netplan file",
        &[Write("/etc/netplan/70-site.yaml", "network: {version: 2}\n")],
    ),
    fine(
        "with a marker from another run",
        &[Write(
            "/var/lib/gpuaas/site-bootstrap/h200-ib.done",
            concat!(gpuaas_types::built_in_version!("h200-ib"), " 0193d4b2-run\n"),
        )],
    ),
    fine(
        "with a switch port in a GPU's IOMMU group",
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
        "with extra ACS bits that isolate nothing",
        &[Byte("/sys/bus/pci/devices/0000:10:01.0/config", ACS_CONTROL, 0x5d)],
    ),
    fine(
        "with a site tag in addition to the profile's tag",
        &[Tags(&["rack-7", "gpuaas-profile-slice-vm"])],
    ),
    fine("with an Ethernet link down", &[Write("/sys/class/net/enp0s1/operstate", "down\n")]),
    fine("without the nvidia driver", &[Remove("/sys/bus/pci/drivers/nvidia/unbind")]),
    fine("with another kernel setting", &[Write("/proc/sys/net/ipv4/tcp_syncookies", "0\n")]),
];
