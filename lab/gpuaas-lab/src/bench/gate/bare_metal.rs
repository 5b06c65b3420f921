//! The mutations of a ready host of bare metal, beside those that it shares with a slice host.

use gpuaas_bundle::Gate;

use super::mutation::{AGENT, ExpectedRed, HostChange, Mutation, active, row};
use super::mutations::{FABRIC_ADDRESS, FABRIC_ROUTE, FOREIGN, RESTART_AGENT, START_AGENT};
use HostChange::{Link, Play, Remove, Replace, Write};

/// Of bare metal's bundle, which nothing requires there.
const METAL: &str = concat!("host setup incomplete: ", gpuaas_types::built_in_bundle!("h200-ib"));

const fn telemetry_of_metal(check: &'static str, seen: &'static str) -> ExpectedRed {
    ExpectedRed { gate: Gate::Telemetry, check, reason: METAL, seen }
}

const FABRIC: &str = "nvidia fabric";
const BOOT_FOR_GPUS: &str = "reboot the host so that the driver finds every GPU";
const SSHD: &str = "/etc/ssh/sshd_config";

/// Ways in which a ready host of bare metal breaks. What it shares with a slice host is broken there.
pub(super) const BARE_METAL: &[Mutation] = &[
    row(
        "bare metal: the agent is down",
        &[Play(&["lose", "active", "gpuaas-node-agent.service"])],
        &[active("unit gpuaas-node-agent.service", AGENT, "inactive")],
    )
    .otherwise(START_AGENT, RESTART_AGENT),
    row(
        "bare metal: the image's slice bundle took a GPU",
        &[
            Remove("/sys/bus/pci/drivers/nvidia/0000:13:00.0"),
            Link(
                "/sys/bus/pci/devices/0000:13:00.0/driver",
                "../../../../../../bus/pci/drivers/vfio-pci",
            ),
        ],
        &[active("nvidia-smi", METAL, "found 7, expected at least 8")],
    )
    .otherwise(BOOT_FOR_GPUS, &[Play(&["boot"])]),
    row(
        "bare metal: a GPU is missing",
        &[Play(&["unplug", "0000:53:00.0"])],
        &[active("nvidia-smi", METAL, "found 7, expected at least 8")],
    )
    .otherwise(BOOT_FOR_GPUS, &[Play(&["plug", "0000:53:00.0"]), Play(&["boot"])]),
    row(
        "bare metal: the driver lost a GPU",
        &[Remove("/sys/bus/pci/drivers/nvidia/0000:13:00.0")],
        &[active("nvidia-smi", METAL, "found 7, expected at least 8")],
    )
    .otherwise(BOOT_FOR_GPUS, &[Play(&["boot"])]),
    row(
        "bare metal: a GPU is another model",
        &[Play(&["have", "other-model", "0000:13:00.0"])],
        &[active(
            "nvidia-smi",
            METAL,
            "found 7, expected at least 8; other models: NVIDIA H100 80GB HBM3",
        )],
    )
    .otherwise("reseat or replace it", &[Play(&["lose", "other-model", "0000:13:00.0"])]),
    row(
        "bare metal: a fabric link is down",
        &[Write("/sys/class/net/ibp52s0/operstate", "down\n")],
        &[active("infiniband", METAL, "found 7, expected at least 8")],
    ),
    row(
        "bare metal: the fabric address is missing",
        &[Play(&["lose", "addresses", "ibp20s0 192.168.36.100/24"])],
        &[active(FABRIC_ADDRESS, METAL, "its addresses: none")],
    ),
    row(
        "bare metal: the fabric route is missing",
        &[Play(&["lose", "routes", "ibp20s0 192.168.0.0/16"])],
        &[active(FABRIC_ROUTE, METAL, "its routes: 192.168.36.0/24 dev ibp20s0")],
    ),
    row(
        "bare metal: Docker is down",
        &[Play(&["lose", "active", "docker.service"])],
        &[
            active("unit docker.service", METAL, "inactive"),
            telemetry_of_metal("metrics of netdata", "missing metrics: docker; present: "),
        ],
    ),
    row(
        "bare metal: hardware sync is down",
        &[Play(&["lose", "active", "maas_hardware_sync.timer"])],
        &[active("unit maas_hardware_sync.timer", METAL, "inactive")],
    ),
    row(
        "bare metal: Netdata is not allowed to query Docker",
        &[Replace("/etc/group", "docker:x:998:netdata", "docker:x:998:")],
        &[telemetry_of_metal("metrics of netdata", "missing metrics: docker; present: ")],
    ),
    row(
        "bare metal: Netdata has no GPU metrics",
        &[Replace("/etc/netdata/go.d.conf", "nvidia_smi: yes", "nvidia_smi: no")],
        &[telemetry_of_metal("metrics of netdata", "missing metrics: nvidia_smi; present: ")],
    ),
    row(
        "bare metal: an extra folder next to the bundles does not silence a gate",
        &[Write(FOREIGN, "exit 1\n"), Play(&["have", "broken", "nvidia-smi"])],
        &[
            active("nvidia-smi", METAL, "exit status: 9: NVIDIA-SMI has failed"),
            active(FABRIC, METAL, "exit status: 9: NVIDIA-SMI has failed"),
            telemetry_of_metal("metrics of netdata", "missing metrics: nvidia_smi"),
        ],
    )
    .otherwise(BOOT_FOR_GPUS, &[Play(&["boot"])]),
    row(
        "bare metal: the driver does not answer",
        &[Play(&["have", "broken", "nvidia-smi"])],
        &[
            active("nvidia-smi", METAL, "exit status: 9: NVIDIA-SMI has failed"),
            active(FABRIC, METAL, "exit status: 9: NVIDIA-SMI has failed"),
            telemetry_of_metal("metrics of netdata", "missing metrics: nvidia_smi"),
        ],
    )
    .otherwise(BOOT_FOR_GPUS, &[Play(&["boot"])]),
    row(
        "bare metal: the fabric manager is down",
        &[Play(&["lose", "active", "nvidia-fabricmanager.service"])],
        &[active(FABRIC, METAL, "nvidia-fabricmanager.service is inactive; 8 of 8 GPUs")],
    ),
    row(
        "bare metal: the GPUs did not join the fabric",
        &[Play(&["have", "broken", "fabric"])],
        &[active(FABRIC, METAL, "8 of 8 GPUs are not ready: fabric state \"In Progress\"")],
    ),
    row(
        "bare metal: sshd ignores the drop-in files",
        &[Write(SSHD, "PasswordAuthentication yes\nPermitRootLogin yes\n")],
        &[
            active("sshd passwordauthentication", METAL, "it is yes"),
            active("sshd permitrootlogin", METAL, "it is yes"),
            active("sshd authorizedkeysfile", METAL, "it is .ssh/authorized_keys"),
        ],
    ),
    row(
        "bare metal: a Match block overrides the sshd settings",
        &[Write(
            SSHD,
            "Match User root\nPasswordAuthentication yes\nMatch all\n\
             Include /etc/ssh/sshd_config.d/*.conf\n",
        )],
        &[active("sshd passwordauthentication", METAL, "it is yes")],
    ),
    row(
        "bare metal: a fabric link is down and a partition child of another is up",
        &[
            Write("/sys/class/net/ibp52s0/operstate", "down\n"),
            Write("/sys/class/net/ibp36s0.8001/type", "32\n"),
            Write("/sys/class/net/ibp36s0.8001/operstate", "up\n"),
            Write("/sys/class/net/ibp36s0.8001/parent", "ibp36s0\n"),
            Link("/sys/class/net/ibp36s0.8001/device", "../../../../0000:24:00.0"),
        ],
        &[active("infiniband", METAL, "found 7, expected at least 8; ibp52s0 is down")],
    ),
    row(
        "bare metal: a fabric link has no cable",
        &[Play(&["have", "cut", "ibp52s0"])],
        &[active("infiniband", METAL, "found 7, expected at least 8; ibp52s0 is down")],
    )
    .otherwise("plug in the cables", &[Play(&["lose", "cut", "ibp52s0"])]),
];
