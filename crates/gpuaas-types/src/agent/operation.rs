//! What an operator may have the agent of a node do, beside the tasks of runs.
//!
//! Each kind has its own parameters and nothing else; there is no shell among them. A control
//! plane calls [`Operation::check`] before it signs one, and an agent again before it touches
//! anything, so neither rests on the other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::gate::Gate;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Changes what a service does.
    Service {
        /// What is done with the service.
        action: ServiceAction,
        /// Its systemd unit, one of [`SERVICE_UNITS`].
        unit: String,
    },
    /// Has the bundles on the host bring back what the checks of its gates miss.
    RepairDrift {
        /// The gates; none: all of them.
        #[serde(default)]
        gates: Vec<Gate>,
    },
    /// Writes which certificates and mirrors containerd and Docker use for registries.
    RefreshTrust {
        /// The registries, each by its host.
        registries: Vec<Registry>,
    },
    /// Brings installed Debian packages to the wanted versions, and no others.
    UpdatePackages {
        /// Which ones.
        packages: Vec<PackageTarget>,
        /// Packages that may change or be installed along with them.
        #[serde(default)]
        along: Vec<String>,
        /// Packages that must stay as they are.
        #[serde(default)]
        hold: Vec<String>,
        /// Fetch the lists of packages first.
        #[serde(default)]
        refresh_lists: bool,
        /// How long to wait for another one that installs packages, in seconds.
        #[serde(default = "lock_seconds")]
        lock_seconds: u32,
    },
    /// Collects what a person needs to see what is wrong with the host.
    CollectDiagnostics {
        /// systemd units whose state and journal are wanted, beside what is always collected.
        #[serde(default)]
        units: Vec<String>,
        /// Last lines of each journal.
        #[serde(default = "journal_lines")]
        journal_lines: u32,
        /// Largest archive unpacked, in bytes; sections are cut to fit.
        #[serde(default = "archive_bytes")]
        most_bytes: u32,
    },
    /// Reads the devices that slices are made of, and changes nothing.
    DiscoverSlices {},
    /// Puts another version of the agent in its place, once it has proven that it lives.
    AgentUpdate {
        /// The bundle of kind `node_agent` that holds it, as it was published and approved:
        /// `name@version` or its digest; empty: the agent that came with the control plane.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        bundle: String,
        /// Version that the new executable says it is.
        #[serde(default)]
        version: String,
        /// SHA-256 of the new executable, 64 hexadecimal digits.
        #[serde(default)]
        digest: String,
        /// Its length in bytes.
        #[serde(default)]
        size_bytes: u64,
        /// Where it is: the path of its digest in the control plane's artifact store.
        #[serde(default)]
        url: String,
        /// The lowest version that the agent may take: the one that it last said it is.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        floor: String,
        /// How long it may take to get a heartbeat through, in seconds.
        #[serde(default = "confirm_seconds")]
        confirm_seconds: u32,
    },
}

/// What may be done with a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceAction {
    /// Start it.
    Start,
    /// Stop it.
    Stop,
    /// Stop and start it.
    Restart,
    /// Have it started at every boot.
    Enable,
    /// Have it not started at boot.
    Disable,
}

impl ServiceAction {
    /// Every action.
    pub const ALL: [Self; 5] =
        [Self::Start, Self::Stop, Self::Restart, Self::Enable, Self::Disable];

    /// Its written form, which is systemctl's too.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Enable => "enable",
            Self::Disable => "disable",
        }
    }
}

/// A registry of container images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// `HOST` or `HOST:PORT`.
    pub host: String,
    /// Certificate authorities that it is trusted by, PEM; empty: the system's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca_pem: String,
    /// Where containerd asks before the registry itself: http or https URLs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<String>,
}

/// A Debian package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackageTarget {
    /// Its name.
    pub name: String,
    /// Exactly this version; none: the newest that the host's sources have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Units that may be started, stopped and so on. What an operator or a control plane reaches a host
/// by is not among them: ssh, the network, the agent.
pub const SERVICE_UNITS: [&str; 23] = [
    "chrony.service",
    "containerd.service",
    "dnsmasq.service",
    "docker.service",
    "docker.socket",
    "gpuaas-slice-fabric-vfs.service",
    "gpuaas-slice-network-baseline.service",
    "gpuaas-slice-ovs-bridge.service",
    "gpuaas-slice-vfio-devices.service",
    "libvirtd.service",
    "libvirtd.socket",
    "netdata.service",
    "nginx.service",
    "nvidia-dcgm.service",
    "nvidia-fabricmanager.service",
    "nvidia-persistenced.service",
    "openibd.service",
    "openvswitch-switch.service",
    "ovs-vswitchd.service",
    "ovsdb-server.service",
    "rasdaemon.service",
    "systemd-timesyncd.service",
    "virtqemud.service",
];
/// Those of them that no tenant notices.
const QUIET_UNITS: [&str; 6] = [
    "chrony.service",
    "netdata.service",
    "nginx.service",
    "nvidia-dcgm.service",
    "rasdaemon.service",
    "systemd-timesyncd.service",
];

const fn lock_seconds() -> u32 {
    300
}

const fn journal_lines() -> u32 {
    500
}

const fn archive_bytes() -> u32 {
    4 << 20
}

const fn confirm_seconds() -> u32 {
    120
}

/// A parameter that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationFault {
    /// Which, such as `registries.0.host`.
    pub field: String,
    /// Why, as a sentence.
    pub reason: String,
}

impl Operation {
    /// Every kind there is, in the order of their declaration.
    pub const KINDS: [&str; 7] = [
        "service",
        "repair_drift",
        "refresh_trust",
        "update_packages",
        "collect_diagnostics",
        "discover_slices",
        "agent_update",
    ];

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Service { .. } => "service",
            Self::RepairDrift { .. } => "repair_drift",
            Self::RefreshTrust { .. } => "refresh_trust",
            Self::UpdatePackages { .. } => "update_packages",
            Self::CollectDiagnostics { .. } => "collect_diagnostics",
            Self::DiscoverSlices {} => "discover_slices",
            Self::AgentUpdate { .. } => "agent_update",
        }
    }

    /// Longest time that it may take once begun, in seconds.
    #[must_use]
    pub const fn limit_seconds(&self) -> u32 {
        match self {
            Self::Service { .. } => 300,
            Self::RepairDrift { .. } => 4 * 3600,
            Self::RefreshTrust { .. } => 60,
            Self::UpdatePackages { lock_seconds, .. } => 3600 + 2 * *lock_seconds,
            Self::CollectDiagnostics { .. } | Self::DiscoverSlices {} => 600,
            Self::AgentUpdate { confirm_seconds, .. } => 1200 + 2 * *confirm_seconds,
        }
    }

    /// Whether it may be done twice without a difference, so that an agent that was killed amid it
    /// may just do it again.
    #[must_use]
    pub const fn may_repeat(&self) -> bool {
        match self {
            Self::Service { action, .. } => !matches!(action, ServiceAction::Restart),
            Self::RefreshTrust { .. }
            | Self::CollectDiagnostics { .. }
            | Self::DiscoverSlices {} => true,
            Self::RepairDrift { .. } | Self::UpdatePackages { .. } | Self::AgentUpdate { .. } => {
                false
            }
        }
    }

    /// Whether a tenant on the host may notice it.
    #[must_use]
    pub fn disturbs(&self) -> bool {
        match self {
            Self::Service { action, unit } => match action {
                ServiceAction::Start | ServiceAction::Enable | ServiceAction::Disable => false,
                ServiceAction::Stop | ServiceAction::Restart => {
                    !QUIET_UNITS.contains(&unit.as_str())
                }
            },
            Self::RepairDrift { .. } | Self::UpdatePackages { .. } => true,
            Self::RefreshTrust { .. }
            | Self::CollectDiagnostics { .. }
            | Self::DiscoverSlices {}
            | Self::AgentUpdate { .. } => false,
        }
    }
}
