//! The protocol between a node and the control plane: bootstrap progress, enrollment, heartbeat,
//! typed tasks.
//!
//! | request | credential |
//! |---|---|
//! | `GET  /bootstrap/v1/health` | none |
//! | `GET  /bootstrap/v1/artifacts/sha256/DIGEST` | none: the digest is the secret-free name |
//! | `POST /bootstrap/v1/runs/RUN/progress` | bootstrap token |
//! | `POST /bootstrap/v1/runs/RUN/phases` | bootstrap token |
//! | `POST /agent/v1/enroll` | enrollment token, once |
//! | `POST /agent/v1/heartbeat` | agent credential |
//! | `GET  /agent/v1/tasks?wait_seconds=N` | agent credential; long poll |
//! | `POST /agent/v1/tasks/TASK/result` | agent credential |
//! | `POST /agent/v1/gates` | agent credential |
//!
//! Credentials travel as `Authorization: Bearer`. Each works on its own endpoints only.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, RunId, TaskId};
use crate::time::Timestamp;

/// Which part of the bootstrap reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The infra-owned site bootstrap.
    SiteBootstrap,
    /// The GPUaaS node bootstrap.
    NodeBootstrap,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressStatus {
    /// Begun.
    Started,
    /// Ended well.
    Succeeded,
    /// Ended badly; `message` says how.
    Failed,
}

/// Body of a progress callback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Which part.
    pub phase: Phase,
    /// How far.
    pub status: ProgressStatus,
    /// Free text, at most 2,000 characters are kept.
    #[serde(default)]
    pub message: String,
}

/// How a phase of a bundle ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseOutcome {
    /// It ran and ended well.
    Ran,
    /// It did not have to run.
    Skipped,
    /// It ended badly, or did not end in time.
    Failed,
}

/// Body of a phase callback: one phase of a site bundle has ended. For the history; no decision
/// rests on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundlePhase {
    /// `name@version`.
    pub bundle: String,
    /// The phase's name.
    pub phase: String,
    /// How it ended.
    pub outcome: PhaseOutcome,
    /// Seconds that it took, by the host's monotonic clock.
    pub seconds: f64,
    /// Things that it says it changed.
    pub changed: usize,
    /// Why it was skipped, or its last words.
    #[serde(default)]
    pub text: String,
}

/// What a check of a bundle may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// The node becomes `active`.
    Active,
    /// Slices may be handed out.
    SliceReady,
    /// Its telemetry can be reached.
    Telemetry,
}

impl Gate {
    /// Every gate.
    pub const ALL: [Self; 3] = [Self::Active, Self::SliceReady, Self::Telemetry];

    /// Its written form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::SliceReady => "slice_ready",
            Self::Telemetry => "telemetry",
        }
    }
}

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|gate| gate.as_str() == text);
        known.ok_or_else(|| format!("one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

/// Whose matter it is that a gate is shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateClass {
    /// What other bundles build upon is not in effect: the fabric, packages, the login.
    HostBaselineIncomplete,
    /// The baseline is there; what the role of the host adds to it is not in effect.
    HostSetupIncomplete,
    /// The agent does not say, or has not said for long.
    AgentFault,
}

impl GateClass {
    /// Its written form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HostBaselineIncomplete => "host_baseline_incomplete",
            Self::HostSetupIncomplete => "host_setup_incomplete",
            Self::AgentFault => "agent_fault",
        }
    }
}

/// A gate's verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateReport {
    /// The gate.
    pub gate: Gate,
    /// Whether nothing blocks it. A gate without checks is shut: nobody looked.
    pub passed: bool,
    /// Whose matter it is; none: it passed, or nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<GateClass>,
    /// Every check.
    pub checks: Vec<GateCheck>,
}

/// A check of a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateCheck {
    /// Its name.
    pub name: String,
    /// Whether it passes.
    pub passed: bool,
    /// What has to be seen.
    pub expected: String,
    /// What was seen.
    pub seen: String,
    /// What it means when it does not pass; empty when it does.
    pub reason: String,
    /// Gates that it blocks now.
    pub blocks: Vec<Gate>,
}

/// Body of a gate callback: what the bundles on the host ask of it, and what is so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gates {
    /// The run that deployed this system.
    pub run_id: RunId,
    /// One verdict for each gate that a bundle on the host has a check for.
    pub gates: Vec<GateReport>,
}

/// Body of an enrollment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrollRequest {
    /// The run whose deployment started this agent.
    pub run_id: RunId,
    /// Short hostname that the host believes it has.
    pub hostname: String,
    /// Version of the agent.
    pub agent_version: String,
    /// When the agent process started, by the host's clock.
    pub started_at: Timestamp,
    /// First look at the host.
    pub facts: serde_json::Value,
}

/// Answer to an enrollment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnrollResponse {
    /// Who the agent is from now on.
    pub node_id: NodeId,
    /// Bearer credential of the agent, shown once.
    pub credential: String,
    /// How often to send a heartbeat, in seconds.
    pub heartbeat_interval_seconds: u32,
    /// Longest task poll, in seconds; 0: the agent asks once after each heartbeat instead.
    pub poll_seconds: u32,
    /// Whose tasks to carry out.
    pub task_keys: TaskKeys,
}

/// Body of a heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// The run that deployed this system.
    pub run_id: RunId,
    /// Version of the agent.
    pub agent_version: String,
    /// Seconds since the host booted.
    pub uptime_seconds: f64,
    /// Revision of the [`TaskKeys`] that it has.
    #[serde(default)]
    pub task_keys_revision: i64,
}

/// What a task asks for. Each kind has its own parameters; there is no shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskSpec {
    /// Collect host facts and service states.
    Diagnostics {
        /// systemd units whose state is wanted.
        units: Vec<String>,
    },
    /// The same, and whether the host is what its profile says.
    Validate {
        /// systemd units whose state is wanted.
        units: Vec<String>,
        /// What has to be true. Each gives one finding of its own name.
        checks: Vec<HostCheck>,
    },
    /// Remove what a tenant left. What that is, the agent knows: a task names no paths.
    SoftReset {},
    /// Empty the scratch storage.
    StorageCleanup {},
}

/// Something that has to be true of a host after its deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "check", rename_all = "snake_case", deny_unknown_fields)]
pub enum HostCheck {
    /// There is a file or folder.
    FileExists {
        /// Absolute path.
        path: String,
    },
    /// Something is mounted.
    MountPresent {
        /// Where.
        target: String,
    },
    /// At least so many PCI functions.
    PciPresent {
        /// Vendor, four hexadecimal digits.
        vendor: String,
        /// Device, four hexadecimal digits; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        /// How many.
        count: u32,
    },
    /// A network link is up.
    LinkUp {
        /// Its name, or its hardware address.
        interface: String,
    },
    /// At least so many InfiniBand links are up.
    InfinibandUp {
        /// How many.
        count: u32,
    },
    /// A Debian package is installed.
    PackageInstalled {
        /// Its name.
        package: String,
    },
    /// A systemd unit is active.
    UnitActive {
        /// Its name.
        unit: String,
    },
    /// At least so many PCI functions, and all of them bound to one driver.
    DriverBound {
        /// Vendor, four hexadecimal digits.
        vendor: String,
        /// Device, four hexadecimal digits; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        /// Begin of the class, such as `03` for displays; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        /// The driver.
        driver: String,
        /// How many.
        count: u32,
    },
    /// Every PCI function of a driver has an IOMMU group, and shares it with bridges and functions
    /// of the same driver only.
    IommuGroupsWhole {
        /// The driver, such as `vfio-pci`.
        driver: String,
    },
    /// At least so many functions that can have virtual functions, each with exactly as many as
    /// asked.
    VirtualFunctions {
        /// Vendor of the physical functions, four hexadecimal digits.
        vendor: String,
        /// Begin of their class, such as `0207` for InfiniBand; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        /// Virtual functions of each.
        each: u32,
        /// Physical functions.
        count: u32,
    },
    /// No bridge above a function of this driver lets functions below it talk past the IOMMU: the
    /// Access Control Services that isolate are on.
    AcsIsolates {
        /// The driver, such as `vfio-pci`.
        driver: String,
    },
    /// A link has an address of a subnet.
    AddressOn {
        /// Its name; a trailing `*` stands for the rest.
        interface: String,
        /// The subnet; with a host part, exactly this address and prefix.
        subnet: String,
    },
    /// There is a route that covers a destination through a link.
    RoutePresent {
        /// The destination, with the length of its prefix.
        destination: String,
        /// The link's name; a trailing `*` stands for the rest.
        interface: String,
    },
    /// Something listens on exactly this TCP address and port, and on no other address of it.
    Listens {
        /// The address; `0.0.0.0`: all.
        address: String,
        /// The port.
        port: u16,
    },
    /// An HTTP GET on this host answers with 2xx.
    HttpAnswers {
        /// The port on 127.0.0.1.
        port: u16,
        /// The path.
        path: String,
    },
    /// Open vSwitch has a bridge, and its datapath answers.
    OvsBridge {
        /// Its name.
        bridge: String,
    },
    /// The kernel was started with an argument.
    KernelArgument {
        /// As in /proc/cmdline.
        argument: String,
    },
    /// A kernel setting has a value.
    Sysctl {
        /// With dots, such as `net.ipv4.ip_forward`.
        name: String,
        /// The value.
        value: String,
    },
    /// A file holds a line.
    FileHasLine {
        /// Absolute path.
        path: String,
        /// The line, without space around it.
        line: String,
    },
    /// nftables masquerades what comes from a subnet.
    Masquerades {
        /// The subnet.
        subnet: String,
    },
    /// A bundle ran to its end, and left its marker.
    BundleDone {
        /// The bundle's name.
        bundle: String,
    },
    /// nvidia-smi lists so many GPUs. Never for a slice host, whose GPUs are bound for passthrough.
    NvidiaGpus {
        /// How many.
        count: u32,
    },
}

impl HostCheck {
    /// Name of its finding.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::FileExists { path } => format!("file {path}"),
            Self::MountPresent { target } => format!("mount {target}"),
            Self::PciPresent { vendor, device, .. } => {
                format!("pci {vendor}:{}", device.as_deref().unwrap_or("any"))
            }
            Self::LinkUp { interface } => format!("link {interface}"),
            Self::InfinibandUp { .. } => "infiniband".to_owned(),
            Self::PackageInstalled { package } => format!("package {package}"),
            Self::UnitActive { unit } => format!("unit {unit}"),
            Self::DriverBound { vendor, device, driver, .. } => {
                format!("driver {driver} of {vendor}:{}", device.as_deref().unwrap_or("any"))
            }
            Self::IommuGroupsWhole { driver } => format!("iommu groups of {driver}"),
            Self::VirtualFunctions { vendor, .. } => format!("virtual functions of {vendor}"),
            Self::AcsIsolates { driver } => format!("acs above {driver}"),
            Self::AddressOn { interface, subnet } => format!("address {subnet} on {interface}"),
            Self::RoutePresent { destination, interface } => {
                format!("route {destination} on {interface}")
            }
            Self::Listens { address, port } => format!("listener {address}:{port}"),
            Self::HttpAnswers { port, path } => format!("http :{port}{path}"),
            Self::OvsBridge { bridge } => format!("ovs bridge {bridge}"),
            Self::KernelArgument { argument } => format!("kernel argument {argument}"),
            Self::Sysctl { name, .. } => format!("sysctl {name}"),
            Self::FileHasLine { path, .. } => format!("line of {path}"),
            Self::Masquerades { subnet } => format!("masquerade of {subnet}"),
            Self::BundleDone { bundle } => format!("bundle {bundle}"),
            Self::NvidiaGpus { .. } => "nvidia-smi".to_owned(),
        }
    }
}

impl HostCheck {
    /// What has to be seen, as the end of a sentence.
    #[must_use]
    pub fn expected(&self) -> String {
        let at_least = |count: &u32| format!("at least {count}");
        match self {
            Self::FileExists { .. } | Self::BundleDone { .. } => "that it exists".to_owned(),
            Self::MountPresent { .. } => "that something is mounted there".to_owned(),
            Self::PciPresent { count, .. }
            | Self::InfinibandUp { count }
            | Self::NvidiaGpus { count } => at_least(count),
            Self::LinkUp { .. } => "that it is up".to_owned(),
            Self::PackageInstalled { .. } => "that it is installed".to_owned(),
            Self::UnitActive { .. } => "that it is active".to_owned(),
            Self::DriverBound { driver, count, .. } => {
                format!("{}, all bound to {driver}", at_least(count))
            }
            Self::IommuGroupsWhole { .. } => "groups that hold nothing else".to_owned(),
            Self::VirtualFunctions { each, count, .. } => {
                format!("{} with {each} virtual functions each", at_least(count))
            }
            Self::AcsIsolates { .. } => "the isolating ACS bits on".to_owned(),
            Self::AddressOn { subnet, .. } => format!("an address of {subnet}"),
            Self::RoutePresent { .. } => "a route that covers it".to_owned(),
            Self::Listens { .. } => "this address and no other".to_owned(),
            Self::HttpAnswers { .. } => "an answer of 2xx".to_owned(),
            Self::OvsBridge { .. } => "that its datapath answers".to_owned(),
            Self::KernelArgument { .. } => "that the kernel was started with it".to_owned(),
            Self::Sysctl { value, .. } => value.clone(),
            Self::FileHasLine { line, .. } => line.clone(),
            Self::Masquerades { .. } => "a rule that masquerades it".to_owned(),
        }
    }
}

/// A task for an agent. It travels in an [`Order`], signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Identifier, to answer with.
    pub id: TaskId,
    /// What to do.
    pub spec: TaskSpec,
    /// Do not start it later than this.
    pub expires_at: Timestamp,
}

/// What a control plane signs: a task, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The node that is to do it.
    pub node_id: NodeId,
    /// What it is to do.
    pub task: Task,
}

/// A signed task as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedTask<E> {
    /// Identifier, to answer with even where the envelope cannot be trusted.
    pub id: TaskId,
    /// The envelope around an [`Order`].
    pub order: E,
}

/// Answer to a task poll. `E` is the envelope of a signature; this crate knows no signatures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskBatch<E> {
    /// Zero or more tasks.
    pub tasks: Vec<SignedTask<E>>,
}

/// What a key that signs tasks is for at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKeyState {
    /// Known to agents before it is used.
    Staged,
    /// Signs.
    Active,
    /// Signs no more; what it signed counts for a while.
    Grace,
    /// Counts no more.
    Retired,
}

impl TaskKeyState {
    /// Stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Active => "active",
            Self::Grace => "grace",
            Self::Retired => "retired",
        }
    }
}

/// A key whose tasks an agent carries out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskKey {
    /// What it is for.
    pub state: TaskKeyState,
    /// Ed25519, 32 bytes in base64.
    pub public_key: String,
    /// From when on it does not count; none: not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// The keys that count. An agent has its first set from its enrollment; a later one it takes only
/// with a signature of a key that counts, and with a greater revision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskKeys {
    /// Grows with every change.
    pub revision: i64,
    /// Staged, active and grace.
    pub keys: Vec<TaskKey>,
}

/// Answer to a heartbeat. `E` as in [`TaskBatch`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatAnswer<E> {
    /// False where it was not the first.
    pub new: bool,
    /// The envelope around newer [`TaskKeys`].
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub task_keys: Option<E>,
}

const fn none<E>() -> Option<E> {
    None
}

/// One finding of a diagnostics task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at.
    pub name: String,
    /// Whether it is as it should be; `None`: an observation without a verdict.
    pub passed: Option<bool>,
    /// What was seen.
    pub seen: String,
}

/// Body of a task result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskResult {
    /// Whether the task itself was carried out.
    pub succeeded: bool,
    /// Why not, when it was not.
    #[serde(default)]
    pub message: String,
    /// What was found.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Host facts, as the `host-facts` crate writes them.
    #[serde(default)]
    pub facts: serde_json::Value,
}
