//! Slices: how a claim becomes a virtual machine, and how its slots come back with proof.
//!
//! A launch and a release are made of parts, and a part of at most one action that the agent of the
//! host carries out. What an agent says of a release is a list of proofs, one for each thing that has
//! to be true before anybody else gets a device.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SecretText;
use crate::ids::{ClaimId, TaskId};
use crate::string_enum::string_enum;
use crate::text;
use crate::time::Timestamp;
use crate::topology::EraseMethod;

/// Folder on a host with a folder for each claim that was launched there.
pub const SLICES_FOLDER: &str = "/var/lib/gpuaas/slices";
/// Folder on a host with the images of guests.
pub const GUEST_IMAGES_FOLDER: &str = "/var/lib/gpuaas/guest-images";
/// Largest user-data of a guest, in bytes.
pub const MOST_USER_DATA_BYTES: usize = 256 << 10;

/// Folder on a host with the seed of a claim's guest and the variables of its firmware.
#[must_use]
pub fn slice_folder(claim_id: ClaimId) -> String {
    format!("{SLICES_FOLDER}/{claim_id}")
}

/// Whether `name` may be that of a guest's image: a file name of letters, digits, `.`, `_` and `-`.
#[must_use]
pub fn is_image_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=100).contains(&name.len()) && !name.starts_with(['.', '-']) && name.chars().all(allowed)
}

string_enum! {
/// What is done with a claim.
SliceRunKind {
    /// Its guest is started.
    Launch = "launch",
    /// Its slots are taken back.
    Release = "release",
}
}

string_enum! {
/// A part of a launch or of a release.
SlicePart {
    /// The launch has taken the claim.
    Claim = "claim",
    /// Launch: the devices are as the claim has them, and nobody uses them. Release: what was reset
    /// and erased is read again.
    Verify = "verify",
    /// Image and seed are written.
    Prepare = "prepare",
    /// The domain is defined.
    Define = "define",
    /// The domain is started.
    Start = "start",
    /// The guest is heard for the first time.
    GuestReady = "guest_ready",
    /// The domain is stopped and forgotten.
    Stop = "stop",
    /// GPUs and virtual functions are reset.
    Reset = "reset",
    /// Drives are erased.
    Erase = "erase",
    /// The slots are free again.
    Return = "return",
}
}

string_enum! {
/// What an agent is to do for a part.
SliceAction {
    /// Look at the devices before a launch; changes nothing.
    Verify = "verify",
    /// Write the image to the first drive, and the seed.
    Prepare = "prepare",
    /// Define the domain.
    Define = "define",
    /// Start the domain.
    Start = "start",
    /// Wait until the guest is heard; changes nothing.
    AwaitGuest = "await_guest",
    /// Stop the domain and forget it.
    Stop = "stop",
    /// Reset GPUs and virtual functions.
    Reset = "reset",
    /// Write canaries to the drives and erase them.
    Erase = "erase",
    /// Read what was reset and erased; removes the claim's files.
    ReadBack = "read_back",
    /// Say how far an action came whose outcome is unknown; changes nothing.
    Probe = "probe",
}
}

impl SliceAction {
    /// Whether it may be done twice without a difference, since it changes nothing.
    #[must_use]
    pub const fn may_repeat(self) -> bool {
        matches!(self, Self::Verify | Self::AwaitGuest | Self::Probe)
    }
}

string_enum! {
/// How a launch or a release stands.
SliceRunStatus {
    /// It goes on by itself.
    Running = "running",
    /// Something of a release is unproven; it goes on when an operator says so.
    Blocked = "blocked",
    /// It ended as it should.
    Succeeded = "succeeded",
    /// The launch was refused before anything was changed.
    Failed = "failed",
}
}

string_enum! {
/// How a domain stands.
DomainState {
    /// libvirt does not know it.
    Absent = "absent",
    /// It is defined and does not run.
    Defined = "defined",
    /// It runs.
    Running = "running",
}
}

string_enum! {
/// What a proof is about.
ProofSubject {
    /// libvirt does not know the domain.
    DomainGone = "domain_gone",
    /// Seed and firmware variables are removed.
    FilesRemoved = "files_removed",
    /// No process has the GPU or the virtual function open.
    DevicesUnheld = "devices_unheld",
    /// The GPU was reset.
    GpuReset = "gpu_reset",
    /// What became of the GPU's memory.
    GpuMemory = "gpu_memory",
    /// The virtual function was reset.
    VfReset = "vf_reset",
    /// The partition of the NVSwitches is not active any more.
    PartitionInactive = "partition_inactive",
    /// The virtual function has no GUID and no MAC address any more.
    VfIdentityCleared = "vf_identity_cleared",
    /// The drive says that it erased itself.
    DriveErased = "drive_erased",
    /// What was written before the erase is not on the drive any more.
    DriveReadBack = "drive_read_back",
    /// The host was wiped after its claim as a whole; the method says what and how.
    HostWiped = "host_wiped",
}
}

string_enum! {
/// What a proof shows.
ProofResult {
    /// It is so, as its reader saw.
    Proven = "proven",
    /// The GPU was reset; nobody looked at its memory.
    ResetOnly = "reset_only",
    /// The GPU's memory was written over.
    Scrubbed = "scrubbed",
    /// It is not so, or could not be seen.
    Unproven = "unproven",
}
}

/// Something that was seen of a device after a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceProof {
    /// Number of the slot; that of the claim's first slot for what is of the whole claim.
    pub slot: u32,
    /// What it is about.
    pub subject: ProofSubject,
    /// PCI address, serial number or path of the device; the domain's identifier.
    pub device: String,
    /// How it was brought about: `sysfs reset (flr)`, `nvme sanitize (block erase)`.
    pub method: String,
    /// What was seen.
    pub result: ProofResult,
    /// What it was seen with: `sysfs`, `virsh`, `16 blocks`.
    pub reader: String,
    /// What the reader said, where it is not proven.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A proof as it was kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedProof {
    /// Moment at which it came.
    pub at: Timestamp,
    /// The proof.
    #[serde(flatten)]
    pub proof: SliceProof,
}

/// Devices of a slot, for the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceDevices {
    /// Number of the slot.
    pub slot: u32,
    /// PCI address of the GPU.
    pub gpu: String,
    /// PCI address of the virtual function; none: the slot has none.
    pub fabric_vf: Option<String>,
    /// What the virtual function is on the fabric; none: nothing that a physical function could set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<FabricIdentity>,
    /// The drive; none: the slot has none.
    pub drive: Option<SliceDrive>,
}

string_enum! {
/// What a virtual function is known by on the fabric.
FabricIdentityKind {
    /// Node GUID and port GUID of InfiniBand, which are the same.
    Guid = "guid",
    /// MAC address of Ethernet.
    Mac = "mac",
}
}

impl FabricIdentityKind {
    /// The value of a virtual function that has none.
    #[must_use]
    pub const fn none(self) -> &'static str {
        match self {
            Self::Guid => "00:00:00:00:00:00:00:00",
            Self::Mac => "00:00:00:00:00:00",
        }
    }
}

/// What a virtual function is on the fabric, which is set through its physical function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FabricIdentity {
    /// PCI address of the physical function.
    pub physical_function: String,
    /// Number of the virtual function, from 0.
    pub index: u32,
    /// What the value is.
    pub kind: FabricIdentityKind,
    /// The value: `96:6d:ae:f0:00:12:34:01`.
    pub value: String,
}

/// The drive of a slot, for the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceDrive {
    /// Serial number, which the drive has to say before anything is written; none: it says none.
    pub serial: Option<String>,
    /// Path on the host that stays the same.
    pub path: String,
    /// How it erases itself; the first one that there is.
    pub erase_methods: Vec<EraseMethod>,
    /// PCI address of its controller, where the guest gets that; none: it gets a block device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
}

/// What cloud-init reads in a guest, as its data source NoCloud has it, and the address that is kept for it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceSeed {
    /// Content of the file `meta-data`.
    pub meta_data: String,
    /// Content of the file `user-data`.
    #[schemars(with = "String")]
    pub user_data: SecretText,
    /// Content of the file `network-config`.
    pub network_config: String,
    /// MAC address and IPv4 address of the guest in the slice network, as dnsmasq's option `dhcp-host` has
    /// them: `02:00:00:00:00:03,10.100.0.13`; empty: it takes any address that is free.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dhcp_host: String,
}

impl fmt::Debug for SliceSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The user-data may hold a tenant's secrets.
        f.debug_struct("SliceSeed").field("dhcp_host", &self.dhcp_host).finish_non_exhaustive()
    }
}

/// A part of a launch or a release, for the agent of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceTask {
    /// The claim, whose identifier is the domain's.
    pub claim_id: ClaimId,
    /// The claim's fencing token.
    pub fence: u64,
    /// What to do.
    pub action: SliceAction,
    /// Devices of the claim, by slot.
    pub devices: Vec<SliceDevices>,
    /// The domain, where it is to be defined.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain_xml: String,
    /// Name of the guest's image in [`GUEST_IMAGES_FOLDER`], where it is to be written.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The guest's seed, where it is to be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<SliceSeed>,
    /// MAC address of the guest in the slice network.
    pub mac: String,
    /// Partition of the NVSwitches that the GPUs are; none: no fabric manager keeps them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<SlicePartition>,
    /// Seconds that the guest may take to call, where it is waited for; none:
    /// [`GUEST_TIMEOUT_SECONDS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_timeout_seconds: Option<u32>,
}

/// Seconds that a guest may take from its start to its first call, unless its launch says otherwise.
pub const GUEST_TIMEOUT_SECONDS: u32 = 800;

/// The partition of the NVSwitches that a claim's GPUs are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlicePartition {
    /// Number by which the fabric manager knew it when the host was read.
    pub id: u32,
    /// Module ids of its GPUs, in order, which say which one it is.
    pub modules: Vec<u32>,
}

/// What an agent saw while it carried out a [`SliceTask`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceReport {
    /// How the domain stands.
    pub domain: DomainState,
    /// Whether image and seed are written, to the end.
    pub prepared: bool,
    /// Whether a drive is erasing itself.
    pub erasing: bool,
    /// What was proven, and what was not.
    #[serde(default)]
    pub proofs: Vec<SliceProof>,
}

/// A part with its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PartSpan {
    /// What it is a part of.
    pub kind: SliceRunKind,
    /// The part.
    pub part: SlicePart,
    /// Moment at which it began.
    pub began_at: Timestamp,
    /// Moment at which it ended; none: it goes on.
    pub ended_at: Option<Timestamp>,
}

/// An action that an agent was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SliceAttempt {
    /// The agent's task.
    pub task_id: TaskId,
    /// What it is to do.
    pub action: SliceAction,
    /// Of a probe: the action whose outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probed: Option<SliceAction>,
    /// How often the part's own action was given, this time counted.
    pub tries: u32,
    /// Times that its outcome was asked for since.
    #[serde(default)]
    pub probes: u32,
    /// Moment from which on no result is expected any more.
    pub deadline_at: Timestamp,
}

/// How a launch or a release stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SliceRun {
    /// Which of the two.
    pub kind: SliceRunKind,
    /// The part it is in.
    pub part: SlicePart,
    /// How it stands.
    pub status: SliceRunStatus,
    /// Moment at which the launch, or the release, began; proofs that are older do not count.
    pub began_at: Timestamp,
    /// Parts by time, those of the launch as well.
    pub parts: Vec<PartSpan>,
    /// What the agent was given last in this part; none: nothing.
    pub attempt: Option<SliceAttempt>,
    /// Why it is released, was refused or is blocked; empty: none of these.
    #[serde(default)]
    pub reason: String,
}

/// Body of `POST /api/v1/admin/slice-claims/CLAIM/launch`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceLaunchRequest {
    /// Name of the guest's image on the host.
    #[schemars(with = "text::ImageNameText")]
    pub image: String,
    /// User-data for the guest's cloud-init; empty: none. It is stored sealed until the launch ends, and
    /// then deleted; the host keeps it in the guest's seed until the claim is released.
    #[serde(default)]
    #[schemars(with = "String")]
    pub user_data: SecretText,
    /// Seconds that the guest may take to call, which cloud-init does once all of the user-data has run; a
    /// silent one is waited for once more that long. None: 800.
    #[serde(default)]
    #[schemars(range(min = 60, max = 86400))]
    pub guest_timeout_seconds: Option<u32>,
    /// The claim's fencing token, where the launch is of one holder alone; none: whoever has it.
    #[serde(default)]
    pub fence: Option<u64>,
    /// Who asks; kept in the audit.
    pub actor: String,
    /// Reason, recorded in the audit log.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

impl fmt::Debug for SliceLaunchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SliceLaunchRequest").field("image", &self.image).finish_non_exhaustive()
    }
}

/// Body of `POST /api/v1/admin/nodes/NODE/slots/INDEX/recovery`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlotRecoveryRequest {
    /// Who says that the slot is clean; kept in the audit.
    pub actor: String,
    /// Reason, recorded in the audit log.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}
