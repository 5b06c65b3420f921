//! What a run may do to MAAS, and how to find out whether it happened.
//!
//! A mutation is never repeated because its answer was lost. Its intent is written first; if the
//! call times out, or the process dies, the intent stands without an outcome and is *probed*: the
//! machine is read again and compared with what was asked. Repeating blindly would deploy twice;
//! giving up blindly would lose a machine that MAAS did take (docs/hosts.md#mutation-timeouts;
//! docs/maas.md#unknown-outcomes).

use gpuaas_types::machine::{DiskFilesystem, MachineView, Observation, maas_status as status};
use gpuaas_types::{AttemptId, EffectKind, Step, Timestamp};
use serde::{Deserialize, Serialize};

use crate::layout;

/// Seconds after a call was given up in which the region, or a proxy before it, may still carry it
/// out.
///
/// A busy region answers late and carries out all the same: a call stands in its queue, or in that of a
/// proxy, whether or not its caller still waits. What ends that is the signature: a call is
/// authenticated when its turn comes, and MAAS refuses one that was signed more than 300 s ago
/// (docs/maas.md#authentication). The rest is for clocks that differ and for the call's own work.
pub const LATE_EXECUTION_SECONDS: f64 = 6.0 * 60.0;

/// A mutation of MAAS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum Effect {
    /// `POST machines/` with `commission=false`.
    CreateMachine,
    /// Releases the machine: `op=release`.
    Release {
        /// Wipe the disks.
        erase: bool,
    },
    /// `POST scripts/`, or `PUT scripts/NAME` where it is there with another text.
    RegisterScript {
        /// Name in MAAS.
        name: String,
        /// SHA-256 of the text.
        digest: String,
        /// It is there with another text.
        replace: bool,
    },
    /// Commissions the machine: `op=commission`.
    Commission {
        /// What is selected.
        #[serde(default, skip_serializing_if = "ScriptSelection::is_default")]
        scripts: ScriptSelection,
    },
    /// Takes a machine in Failed testing as Ready: `op=override_failed_testing`.
    OverrideFailedTesting,
    /// Chooses the disk to boot from: `op=set_boot_disk`.
    SetBootDisk {
        /// Id of the block device in MAAS.
        block_device_id: i64,
    },
    /// Lays out the storage: `op=set_storage_layout`.
    SetStorageLayout {
        /// MAAS' name of the layout.
        layout: String,
        /// Block device id of the root disk.
        root_device: i64,
    },
    /// `op=format` of a whole disk.
    FormatBlockDevice {
        /// Id of the block device in MAAS.
        block_device_id: i64,
        /// Type of the filesystem, such as `ext4`.
        fstype: String,
    },
    /// `op=mount` of a whole disk.
    MountBlockDevice {
        /// Id of the block device in MAAS.
        block_device_id: i64,
        /// Absolute path at which the filesystem is mounted.
        mount_point: String,
    },
    /// `op=unlink_subnet`: a link in the way of a fabric address.
    UnlinkSubnet {
        /// Id of the interface in MAAS.
        interface_id: i64,
        /// Id of the link in MAAS.
        link_id: i64,
    },
    /// `op=link_subnet` with a static address.
    LinkSubnet {
        /// Id of the interface in MAAS.
        interface_id: i64,
        /// Subnet in CIDR notation.
        subnet_cidr: String,
        /// Static IP address inside the subnet.
        ip_address: String,
    },
    /// `POST tags/`, or `PUT tags/NAME/` where it is there with other kernel options.
    WriteTag {
        /// Name of the tag.
        name: String,
        /// Its kernel options.
        kernel_opts: String,
        /// The kernel options that it has; none: it is not there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaces: Option<String>,
    },
    /// `tags/NAME/ op=update_nodes` with the machine's system id.
    TagMachine {
        /// Name of the tag.
        name: String,
    },
    /// `tags/NAME/ op=update_nodes`, which removes the machine's system id.
    UntagMachine {
        /// Name of the tag.
        name: String,
    },
    /// `op=deploy` with rendered user-data.
    Deploy {
        /// Normalised image.
        distro_series: String,
        /// Ask for hardware sync.
        enable_hw_sync: bool,
    },
    /// Switches the machine off: `op=power_off`.
    PowerOff,
    /// Switches the machine on: `op=power_on`.
    PowerOn,
    /// `op=abort` of an erasing.
    Abort,
    /// Marks the machine broken: `op=mark_broken`.
    MarkBroken,
    /// Takes that mark away: `op=mark_fixed`.
    MarkFixed,
}

/// Scripts for a commissioning, by name or tag; an empty list leaves the choice to MAAS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScriptSelection {
    /// The request's `commissioning_scripts`: names or tags.
    pub commissioning: Vec<String>,
    /// The request's `testing_scripts`: names or tags.
    pub testing: Vec<String>,
}

impl ScriptSelection {
    /// Whether all is left to MAAS.
    #[must_use]
    pub const fn is_default(&self) -> bool {
        self.commissioning.is_empty() && self.testing.is_empty()
    }
}

/// Where an effect shows: what has to be read to find out whether it took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeTarget {
    /// Among the machines that match the node.
    Candidates,
    /// Among the region's scripts.
    Scripts,
    /// In the profile's tag.
    Tag,
    /// In the machine.
    Machine,
}

impl Effect {
    /// What has to be read to find out whether the effect took place.
    #[must_use]
    pub const fn probe_target(&self) -> ProbeTarget {
        match self {
            Self::CreateMachine => ProbeTarget::Candidates,
            Self::RegisterScript { .. } => ProbeTarget::Scripts,
            Self::WriteTag { .. } => ProbeTarget::Tag,
            _ => ProbeTarget::Machine,
        }
    }

    /// Whether it only sets what a read shows, so that asking for it again does no harm where it
    /// does not show.
    #[must_use]
    pub const fn is_setting(&self) -> bool {
        matches!(
            self,
            Self::RegisterScript { .. }
                | Self::SetBootDisk { .. }
                | Self::SetStorageLayout { .. }
                | Self::FormatBlockDevice { .. }
                | Self::MountBlockDevice { .. }
                | Self::UnlinkSubnet { .. }
                | Self::LinkSubnet { .. }
                | Self::WriteTag { .. }
                | Self::TagMachine { .. }
                | Self::UntagMachine { .. }
        )
    }

    /// Its kind, without the parameters.
    #[must_use]
    pub const fn kind(&self) -> EffectKind {
        match self {
            Self::CreateMachine => EffectKind::CreateMachine,
            Self::Release { .. } => EffectKind::Release,
            Self::RegisterScript { .. } => EffectKind::RegisterScript,
            Self::Commission { .. } => EffectKind::Commission,
            Self::OverrideFailedTesting => EffectKind::OverrideFailedTesting,
            Self::SetBootDisk { .. } => EffectKind::SetBootDisk,
            Self::SetStorageLayout { .. } => EffectKind::SetStorageLayout,
            Self::FormatBlockDevice { .. } => EffectKind::FormatBlockDevice,
            Self::MountBlockDevice { .. } => EffectKind::MountBlockDevice,
            Self::UnlinkSubnet { .. } => EffectKind::UnlinkSubnet,
            Self::LinkSubnet { .. } => EffectKind::LinkSubnet,
            Self::WriteTag { .. } => EffectKind::WriteTag,
            Self::TagMachine { .. } => EffectKind::TagMachine,
            Self::UntagMachine { .. } => EffectKind::UntagMachine,
            Self::Deploy { .. } => EffectKind::Deploy,
            Self::PowerOff => EffectKind::PowerOff,
            Self::PowerOn => EffectKind::PowerOn,
            Self::Abort => EffectKind::Abort,
            Self::MarkBroken => EffectKind::MarkBroken,
            Self::MarkFixed => EffectKind::MarkFixed,
        }
    }

    /// Seconds after MAAS itself answered with an error before an unchanged machine counts as "it did
    /// not happen". A call without any answer is in doubt for longer, see
    /// [`LATE_EXECUTION_SECONDS`].
    ///
    /// MAAS commits first and answers later (docs/maas.md#unknown-outcomes), so a change shows
    /// within seconds; a create may be held for 26 s by a duplicate BMC
    /// (docs/maas.md#duplicate-bmc).
    #[must_use]
    pub const fn settle_seconds(&self) -> f64 {
        match self {
            Self::CreateMachine => 45.0,
            // A BMC may take a minute, and MAAS waits for it (docs/maas.md#power).
            Self::PowerOff | Self::PowerOn | Self::Abort => 75.0,
            _ => 20.0,
        }
    }

    /// Compares the machine as it is now with what was asked, where the effect shows in it.
    ///
    /// `before` is the machine's status when the intent was written; `now` must have been read
    /// after the intent.
    #[must_use]
    pub fn probe(&self, before: Option<i64>, now: &Observation) -> Probe {
        let Some(machine) = &now.machine else {
            return Probe::NotYet;
        };
        let done = match self {
            Self::CreateMachine | Self::RegisterScript { .. } | Self::WriteTag { .. } => false,
            Self::TagMachine { name } => machine.tags.contains(name),
            Self::UntagMachine { name } => !machine.tags.contains(name),
            Self::SetBootDisk { block_device_id } => machine.boot_disk_id == Some(*block_device_id),
            Self::SetStorageLayout { layout, root_device } => layout::find_by_maas_name(layout)
                .is_some_and(|l| (l.matches)(machine, *root_device)),
            Self::FormatBlockDevice { block_device_id, fstype } => {
                has_filesystem(machine, *block_device_id, |on| on.fstype == *fstype)
            }
            Self::MountBlockDevice { block_device_id, mount_point } => {
                has_filesystem(machine, *block_device_id, |on| {
                    on.mount_point.as_ref() == Some(mount_point)
                })
            }
            Self::UnlinkSubnet { interface_id, link_id } => {
                !has_link(machine, *interface_id, |link| link.id == *link_id)
            }
            Self::LinkSubnet { interface_id, ip_address, .. } => {
                has_link(machine, *interface_id, |link| {
                    link.ip_address.as_deref() == Some(ip_address)
                })
            }
            Self::Release { .. } => {
                before != Some(machine.status)
                    && !matches!(
                        machine.status,
                        status::DEPLOYED
                            | status::ALLOCATED
                            | status::DEPLOYING
                            | status::FAILED_DEPLOYMENT
                            | status::BROKEN
                            | status::RESERVED
                    )
            }
            Self::PowerOff => machine.power_state == "off",
            Self::PowerOn => machine.power_state == "on",
            Self::MarkBroken => machine.status == status::BROKEN,
            Self::MarkFixed => machine.status != status::BROKEN,
            Self::Abort
            | Self::Commission { .. }
            | Self::OverrideFailedTesting
            | Self::Deploy { .. } => before != Some(machine.status),
        };
        if done { Probe::Happened } else { Probe::NotYet }
    }

    /// Whether the machine is where this brings it, whatever it was before: what a refusal after a
    /// try of unknown outcome is compared with.
    #[must_use]
    pub fn is_shown_by(&self, machine: &MachineView, seen: &Observation) -> bool {
        match self {
            Self::Deploy { .. } => matches!(
                machine.status,
                status::DEPLOYING | status::DEPLOYED | status::FAILED_DEPLOYMENT
            ),
            Self::Commission { .. } => matches!(
                machine.status,
                status::COMMISSIONING | status::TESTING | status::FAILED_TESTING
            ),
            Self::Release { .. } => matches!(
                machine.status,
                status::RELEASING
                    | status::DISK_ERASING
                    | status::RELEASING_FAILED
                    | status::FAILED_DISK_ERASING
                    | status::READY
                    | status::NEW
            ),
            Self::OverrideFailedTesting => machine.status == status::READY,
            Self::Abort => machine.status != status::DISK_ERASING,
            _ => self.probe(None, seen) == Probe::Happened,
        }
    }

    /// Whether it makes the machine ours while it is under way, so that a machine of another owner
    /// does not show it.
    #[must_use]
    pub const fn takes_machine(&self) -> bool {
        matches!(self, Self::Deploy { .. } | Self::Commission { .. })
    }
}

fn has_filesystem(
    machine: &MachineView,
    block_device_id: i64,
    wanted: impl Fn(&DiskFilesystem) -> bool,
) -> bool {
    let mut disks = machine.disks.iter().filter(|disk| disk.id == block_device_id);
    disks.any(|disk| disk.filesystem.as_ref().is_some_and(&wanted))
}

fn has_link(
    machine: &MachineView,
    interface_id: i64,
    wanted: impl Fn(&gpuaas_types::machine::NicLink) -> bool,
) -> bool {
    machine.nics.iter().any(|nic| nic.id == interface_id && nic.links.iter().any(&wanted))
}

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// The effect took place.
    Happened,
    /// No trace of it; after [`Intent::doubt_seconds`] that means it did not happen.
    NotYet,
}

/// Code of [`Outcome::did_not_happen`].
const DID_NOT_HAPPEN: &str = "did_not_happen";

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// MAAS accepted the call.
    Accepted,
    /// MAAS refused the call and nothing changed.
    Rejected {
        /// Stable code of the refusal.
        code: String,
        /// MAAS' text.
        text: String,
        /// A state conflict: reading again may explain it, and a later try may pass.
        conflict: bool,
    },
    /// The call never left: trying again is safe.
    NotSent {
        /// Stable code.
        code: String,
        /// What happened.
        text: String,
    },
    /// No answer came: whether MAAS took it has to be probed.
    Unknown {
        /// Stable code.
        code: String,
        /// What happened.
        text: String,
    },
}

impl Outcome {
    /// What the call came to where nothing was heard of it and nothing shows it.
    #[must_use]
    pub fn did_not_happen(text: String) -> Self {
        Self::NotSent { code: DID_NOT_HAPPEN.to_owned(), text }
    }

    /// Whether it was asked for and nothing came of it; what never left was not asked for.
    #[must_use]
    pub fn was_without_effect(&self) -> bool {
        matches!(self, Self::NotSent { code, .. } if code == DID_NOT_HAPPEN)
    }

    /// Whether it is known that MAAS did nothing: it refused, or the call never left.
    #[must_use]
    pub const fn was_not_done(&self) -> bool {
        matches!(self, Self::Rejected { .. } | Self::NotSent { .. })
    }

    /// `accepted`, `rejected`, `not_sent` or `unknown`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected { .. } => "rejected",
            Self::NotSent { .. } => "not_sent",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// Codes of an unknown outcome in which MAAS itself answered: nothing of the call is under way any more.
const ANSWERED: [&str; 2] = [MAAS_SERVER_ERROR, "maas_unavailable"];

/// Code of a call that MAAS answered with 500.
pub const MAAS_SERVER_ERROR: &str = "maas_server_error";

/// Why a call of unknown outcome has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// When the answer was given up, or came and said nothing of the outcome. From then on counts how long
    /// the call may still be carried out.
    pub at: Timestamp,
    /// What happened.
    pub text: String,
}

/// The journal entry of one attempt: written before the call, completed after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Identifier of the attempt.
    pub id: AttemptId,
    /// The step that asked.
    pub step: Step,
    /// What is asked.
    pub effect: Effect,
    /// Which try of this effect in this visit of the step, from 1.
    pub number: u32,
    /// When it was written.
    pub at: Timestamp,
    /// The machine's status then.
    pub before: Option<i64>,
    /// How the call ended; none while in flight or after a crash.
    pub outcome: Option<Outcome>,
    /// When that was known.
    pub ended_at: Option<Timestamp>,
    /// Why its outcome was unknown, also once it is settled; none: it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<GivenUp>,
    /// The outcome of an earlier try of the same effect was unknown for a while.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_unknown: bool,
}

impl Intent {
    /// When its answer was given up. What is read after that shows what became of it.
    #[must_use]
    pub fn given_up_at(&self) -> Timestamp {
        self.given_up.as_ref().map_or(self.ended_at.unwrap_or(self.at), |given_up| given_up.at)
    }

    /// Seconds after it was given up before an unchanged machine counts as "it did not happen".
    #[must_use]
    pub fn doubt_seconds(&self) -> f64 {
        match &self.outcome {
            Some(Outcome::Unknown { code, .. }) if ANSWERED.contains(&code.as_str()) => {
                self.effect.settle_seconds()
            }
            _ => LATE_EXECUTION_SECONDS,
        }
    }

    /// Whether the outcome of this try, or of one before it, was unknown for a while.
    #[must_use]
    pub const fn is_doubtful(&self) -> bool {
        self.after_unknown || self.given_up.is_some()
    }

    /// Whether it is known that MAAS did nothing at this try.
    #[must_use]
    pub fn was_not_done(&self) -> bool {
        self.outcome.as_ref().is_some_and(Outcome::was_not_done)
    }

    /// Whether MAAS refused it after a try whose outcome was unknown: that try may be the reason.
    #[must_use]
    pub const fn may_have_been_done_before(&self) -> bool {
        self.after_unknown && matches!(self.outcome, Some(Outcome::Rejected { .. }))
    }

    /// Whether nobody knows what became of it: it has no outcome yet, or an unknown one.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.outcome, None | Some(Outcome::Unknown { .. }))
    }

    /// Whether the call did not leave this process, so that nothing was tried.
    #[must_use]
    pub fn never_left(&self) -> bool {
        let outcome = self.outcome.as_ref();
        outcome.is_some_and(|o| matches!(o, Outcome::NotSent { .. }) && !o.was_without_effect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The journal keeps an effect as JSON with its name as tag; that name is the kind's.
    #[test]
    fn an_effect_is_stored_under_the_name_of_its_kind() {
        let (name, digest) = (String::new(), String::new());
        let effects = [
            Effect::CreateMachine,
            Effect::Release { erase: false },
            Effect::RegisterScript { name, digest, replace: false },
            Effect::Commission { scripts: ScriptSelection::default() },
            Effect::OverrideFailedTesting,
            Effect::SetBootDisk { block_device_id: 1 },
            Effect::SetStorageLayout { layout: String::new(), root_device: 1 },
            Effect::FormatBlockDevice { block_device_id: 1, fstype: String::new() },
            Effect::MountBlockDevice { block_device_id: 1, mount_point: String::new() },
            Effect::UnlinkSubnet { interface_id: 1, link_id: 1 },
            Effect::LinkSubnet {
                interface_id: 1,
                subnet_cidr: String::new(),
                ip_address: String::new(),
            },
            Effect::WriteTag { name: String::new(), kernel_opts: String::new(), replaces: None },
            Effect::TagMachine { name: String::new() },
            Effect::UntagMachine { name: String::new() },
            Effect::Deploy { distro_series: String::new(), enable_hw_sync: false },
            Effect::PowerOff,
            Effect::PowerOn,
            Effect::Abort,
            Effect::MarkBroken,
            Effect::MarkFixed,
        ];
        let kinds: Vec<EffectKind> = effects.iter().map(Effect::kind).collect();
        assert_eq!(kinds, EffectKind::ALL);
        for effect in effects {
            let stored = serde_json::to_value(&effect).unwrap();
            assert_eq!(stored["effect"], effect.kind().as_str());
        }
    }
}
