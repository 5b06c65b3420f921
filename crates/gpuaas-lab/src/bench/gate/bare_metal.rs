//! The mutations of a ready host of bare metal, beside those that it shares with a slice host.

use gpuaas_bundle::Gate;

use super::mutations::{
    AGENT, ExpectedRed, FABRIC_ADDRESS, FABRIC_ROUTE, FOREIGN, HostChange, Mutation, active, row,
};
use HostChange::{Link, Play, Remove, Replace, Write};

/// Of bare metal's bundle, which nothing requires there.
const METAL: &str = "host setup incomplete: h200-ib@1.1.0";

const fn telemetry_of_metal(check: &'static str, seen: &'static str) -> ExpectedRed {
    ExpectedRed { gate: Gate::Telemetry, check, reason: METAL, seen }
}

/// Ways in which a ready host of bare metal breaks. What it shares with a slice host is broken there.
pub(super) const BARE_METAL: &[Mutation] = &[
    row(
        "bare metal without its agent",
        &[Play(&["lose", "active", "gpuaas-node-agent.service"])],
        &[active("unit gpuaas-node-agent.service", AGENT, "inactive")],
    ),
    row(
        "bare metal whose image's second bundle, for slices, took a GPU",
        &[
            Remove("/sys/bus/pci/drivers/nvidia/0000:13:00.0"),
            Link(
                "/sys/bus/pci/devices/0000:13:00.0/driver",
                "../../../../../../bus/pci/drivers/vfio-pci",
            ),
        ],
        &[active("nvidia-smi", METAL, "7 found, 8 wanted")],
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
        "bare metal with a link of the fabric down",
        &[Write("/sys/class/net/ibp52s0/operstate", "down\n")],
        &[active("infiniband", METAL, "7 found, 8 wanted")],
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
        &[
            active("unit docker.service", METAL, "inactive"),
            telemetry_of_metal("metrics of netdata", "no metrics of docker; there are: "),
        ],
    ),
    row(
        "bare metal whose hardware sync is down",
        &[Play(&["lose", "active", "maas_hardware_sync.timer"])],
        &[active("unit maas_hardware_sync.timer", METAL, "inactive")],
    ),
    row(
        "bare metal whose Netdata may not ask Docker",
        &[Replace("/etc/group", "docker:x:998:netdata", "docker:x:998:")],
        &[telemetry_of_metal("metrics of netdata", "no metrics of docker; there are: ")],
    ),
    row(
        "bare metal whose Netdata has no metrics of the GPUs",
        &[Replace("/etc/netdata/go.d.conf", "nvidia_smi: yes", "nvidia_smi: no")],
        &[telemetry_of_metal("metrics of netdata", "no metrics of nvidia_smi; there are: ")],
    ),
    row(
        "a foreign folder among bare metal's bundles does not silence a gate",
        &[Write(FOREIGN, "exit 1\n"), Play(&["have", "broken", "nvidia-smi"])],
        &[
            active("nvidia-smi", METAL, "exit status: 9: NVIDIA-SMI has failed"),
            telemetry_of_metal("metrics of netdata", "no metrics of nvidia_smi"),
        ],
    ),
    row(
        "bare metal whose driver does not answer",
        &[Play(&["have", "broken", "nvidia-smi"])],
        &[
            active("nvidia-smi", METAL, "exit status: 9: NVIDIA-SMI has failed"),
            telemetry_of_metal("metrics of netdata", "no metrics of nvidia_smi"),
        ],
    ),
];
