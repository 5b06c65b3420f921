//! The mutations of a ready host of bare metal, beside those that it shares with a slice host.

use gpuaas_bundle::Gate;

use super::mutation::{AGENT, ExpectedRed, HostChange, Mutation, active, row};
use super::mutations::{FABRIC_ADDRESS, FABRIC_ROUTE, FOREIGN, RESTART_AGENT, START_AGENT};
use HostChange::{Link, Play, Remove, Replace, Write};

/// Of bare metal's bundle, which nothing requires there.
const METAL: &str = "host setup incomplete: h200-ib@1.2.0";

const fn telemetry_of_metal(check: &'static str, seen: &'static str) -> ExpectedRed {
    ExpectedRed { gate: Gate::Telemetry, check, reason: METAL, seen }
}

const FABRIC: &str = "nvidia fabric";
const BOOT_FOR_GPUS: &str = "boot the host, so that its driver finds every GPU";
const SSHD: &str = "/etc/ssh/sshd_config";

/// Ways in which a ready host of bare metal breaks. What it shares with a slice host is broken there.
pub(super) const BARE_METAL: &[Mutation] = &[
    row(
        "bare metal without its agent",
        &[Play(&["lose", "active", "gpuaas-node-agent.service"])],
        &[active("unit gpuaas-node-agent.service", AGENT, "inactive")],
    )
    .otherwise(START_AGENT, RESTART_AGENT),
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
    )
    .otherwise(BOOT_FOR_GPUS, &[Play(&["boot"])]),
    row(
        "bare metal that lost a GPU",
        &[Play(&["unplug", "0000:53:00.0"])],
        &[active("nvidia-smi", METAL, "7 found, 8 wanted")],
    )
    .otherwise(BOOT_FOR_GPUS, &[Play(&["plug", "0000:53:00.0"]), Play(&["boot"])]),
    row(
        "bare metal whose driver lost a GPU",
        &[Remove("/sys/bus/pci/drivers/nvidia/0000:13:00.0")],
        &[active("nvidia-smi", METAL, "7 found, 8 wanted")],
    )
    .otherwise(BOOT_FOR_GPUS, &[Play(&["boot"])]),
    row(
        "bare metal with a GPU of another model",
        &[Play(&["have", "other-model", "0000:13:00.0"])],
        &[active(
            "nvidia-smi",
            METAL,
            "7 found, 8 wanted; of another model: NVIDIA H100 80GB HBM3",
        )],
    )
    .otherwise("seat or replace a GPU", &[Play(&["lose", "other-model", "0000:13:00.0"])]),
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
            active(FABRIC, METAL, "exit status: 9: NVIDIA-SMI has failed"),
            telemetry_of_metal("metrics of netdata", "no metrics of nvidia_smi"),
        ],
    )
    .otherwise(BOOT_FOR_GPUS, &[Play(&["boot"])]),
    row(
        "bare metal whose driver does not answer",
        &[Play(&["have", "broken", "nvidia-smi"])],
        &[
            active("nvidia-smi", METAL, "exit status: 9: NVIDIA-SMI has failed"),
            active(FABRIC, METAL, "exit status: 9: NVIDIA-SMI has failed"),
            telemetry_of_metal("metrics of netdata", "no metrics of nvidia_smi"),
        ],
    )
    .otherwise(BOOT_FOR_GPUS, &[Play(&["boot"])]),
    row(
        "bare metal whose fabric manager is down",
        &[Play(&["lose", "active", "nvidia-fabricmanager.service"])],
        &[active(FABRIC, METAL, "nvidia-fabricmanager.service is inactive; 8 of 8 GPUs")],
    ),
    row(
        "bare metal whose GPUs did not join their fabric",
        &[Play(&["have", "broken", "fabric"])],
        &[active(FABRIC, METAL, "8 of 8 GPUs are not ready: fabric state \"In Progress\"")],
    ),
    row(
        "bare metal whose sshd reads no drop-in",
        &[Write(SSHD, "PasswordAuthentication yes\nPermitRootLogin yes\n")],
        &[
            active("sshd passwordauthentication", METAL, "it is yes"),
            active("sshd permitrootlogin", METAL, "it is yes"),
            active("sshd authorizedkeysfile", METAL, "it is .ssh/authorized_keys"),
        ],
    ),
    row(
        "bare metal whose sshd follows a Match block",
        &[Write(
            SSHD,
            "Match User root\nPasswordAuthentication yes\nMatch all\n\
             Include /etc/ssh/sshd_config.d/*.conf\n",
        )],
        &[active("sshd passwordauthentication", METAL, "it is yes")],
    ),
    row(
        "bare metal with a dead link and a partition's child that is up",
        &[
            Write("/sys/class/net/ibp52s0/operstate", "down\n"),
            Write("/sys/class/net/ibp36s0.8001/type", "32\n"),
            Write("/sys/class/net/ibp36s0.8001/operstate", "up\n"),
            Write("/sys/class/net/ibp36s0.8001/parent", "ibp36s0\n"),
            Link("/sys/class/net/ibp36s0.8001/device", "../../../../0000:24:00.0"),
        ],
        &[active("infiniband", METAL, "7 found, 8 wanted; ibp52s0 is down")],
    ),
    row(
        "bare metal with a link of the fabric without its cable",
        &[Play(&["have", "cut", "ibp52s0"])],
        &[active("infiniband", METAL, "7 found, 8 wanted; ibp52s0 is down")],
    )
    .otherwise("plug in the cables", &[Play(&["lose", "cut", "ibp52s0"])]),
];
