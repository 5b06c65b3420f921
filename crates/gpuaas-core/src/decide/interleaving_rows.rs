//! What each kind of effect changes in a machine: the table of `interleaving_tests`.

use gpuaas_types::EffectKind;
use gpuaas_types::machine::{DiskFilesystem, MachineView, NicLink, maas_status as status};

use crate::effect::{Effect, ScriptSelection};

/// A kind of effect.
pub(super) struct Row {
    pub(super) kind: EffectKind,
    pub(super) effect: fn() -> Effect,
    /// The machine before.
    pub(super) before: fn(&mut MachineView),
    /// What the effect changes in it.
    pub(super) done: fn(&mut MachineView),
    /// MAAS refuses it where it is done already.
    pub(super) refused_again: bool,
}

/// Every kind of effect, in the order of [`EffectKind::ALL`].
pub(super) const ROWS: &[Row] = &[
    row(EffectKind::CreateMachine, || Effect::CreateMachine, |_| (), |_| (), true),
    row(
        EffectKind::Release,
        || Effect::Release { erase: false },
        |m| owned(m, status::DEPLOYED),
        |m| (m.status, m.owner) = (status::RELEASING, None),
        true,
    ),
    row(
        EffectKind::RegisterScript,
        || Effect::RegisterScript { name: "s".to_owned(), digest: "d".to_owned(), replace: false },
        |_| (),
        |_| (),
        true,
    ),
    row(
        EffectKind::Commission,
        || Effect::Commission { scripts: ScriptSelection::default() },
        |m| m.status = status::NEW,
        |m| owned(m, status::COMMISSIONING),
        true,
    ),
    row(
        EffectKind::OverrideFailedTesting,
        || Effect::OverrideFailedTesting,
        |m| m.status = status::FAILED_TESTING,
        |m| m.status = status::READY,
        true,
    ),
    row(
        EffectKind::SetBootDisk,
        || Effect::SetBootDisk { block_device_id: 1 },
        |m| m.boot_disk_id = Some(2),
        |m| m.boot_disk_id = Some(1),
        false,
    ),
    row(
        EffectKind::SetStorageLayout,
        || Effect::SetStorageLayout { layout: "flat".to_owned(), root_device: 2 },
        |m| (m.disks[1].partitions, m.disks[1].mounts) = (0, Vec::new()),
        |m| (m.disks[1].partitions, m.disks[1].mounts) = (2, vec!["/".to_owned()]),
        false,
    ),
    row(
        EffectKind::FormatBlockDevice,
        || Effect::FormatBlockDevice { block_device_id: 1, fstype: "ext4".to_owned() },
        |_| (),
        |m| m.disks[0].filesystem = Some(filesystem(None)),
        false,
    ),
    row(
        EffectKind::MountBlockDevice,
        || Effect::MountBlockDevice { block_device_id: 1, mount_point: "/data".to_owned() },
        |m| m.disks[0].filesystem = Some(filesystem(None)),
        |m| m.disks[0].filesystem = Some(filesystem(Some("/data"))),
        true,
    ),
    row(
        EffectKind::UnlinkSubnet,
        || Effect::UnlinkSubnet { interface_id: 2, link_id: 12 },
        |_| (),
        |m| m.nics[1].links.clear(),
        true,
    ),
    row(
        EffectKind::LinkSubnet,
        || Effect::LinkSubnet {
            interface_id: 2,
            subnet_cidr: "10.1.0.0/24".to_owned(),
            ip_address: "10.1.0.7".to_owned(),
        },
        |m| m.nics[1].links.clear(),
        |m| m.nics[1].links = vec![link("10.1.0.7")],
        true,
    ),
    row(
        EffectKind::WriteTag,
        || Effect::WriteTag { name: "t".to_owned(), kernel_opts: "k".to_owned(), replaces: None },
        |_| (),
        |_| (),
        true,
    ),
    row(
        EffectKind::TagMachine,
        || Effect::TagMachine { name: "t".to_owned() },
        |_| (),
        |m| m.tags = vec!["t".to_owned()],
        false,
    ),
    row(
        EffectKind::UntagMachine,
        || Effect::UntagMachine { name: "t".to_owned() },
        |m| m.tags = vec!["t".to_owned()],
        |m| m.tags.clear(),
        false,
    ),
    row(
        EffectKind::Deploy,
        || Effect::Deploy { distro_series: "ubuntu/noble".to_owned(), enable_hw_sync: false },
        |m| m.status = status::READY,
        |m| owned(m, status::DEPLOYING),
        true,
    ),
    row(
        EffectKind::PowerOff,
        || Effect::PowerOff,
        |m| m.power_state = "on".to_owned(),
        |m| m.power_state = "off".to_owned(),
        false,
    ),
    row(
        EffectKind::PowerOn,
        || Effect::PowerOn,
        |m| m.power_state = "off".to_owned(),
        |m| m.power_state = "on".to_owned(),
        false,
    ),
    row(
        EffectKind::Abort,
        || Effect::Abort,
        |m| owned(m, status::DISK_ERASING),
        |m| owned(m, status::FAILED_DISK_ERASING),
        true,
    ),
    row(
        EffectKind::MarkBroken,
        || Effect::MarkBroken,
        |m| owned(m, status::RELEASING),
        |m| owned(m, status::BROKEN),
        true,
    ),
    row(
        EffectKind::MarkFixed,
        || Effect::MarkFixed,
        |m| owned(m, status::BROKEN),
        |m| m.status = status::READY,
        true,
    ),
];

const fn row(
    kind: EffectKind,
    effect: fn() -> Effect,
    before: fn(&mut MachineView),
    done: fn(&mut MachineView),
    refused_again: bool,
) -> Row {
    Row { kind, effect, before, done, refused_again }
}

fn owned(machine: &mut MachineView, number: i64) {
    (machine.status, machine.owner) = (number, Some("gpuaas".to_owned()));
}

fn filesystem(mount_point: Option<&str>) -> DiskFilesystem {
    DiskFilesystem { fstype: "ext4".to_owned(), mount_point: mount_point.map(str::to_owned) }
}

fn link(ip_address: &str) -> NicLink {
    NicLink {
        id: 40,
        mode: "static".to_owned(),
        subnet_id: Some(2),
        subnet_cidr: Some("10.1.0.0/24".to_owned()),
        ip_address: Some(ip_address.to_owned()),
    }
}
