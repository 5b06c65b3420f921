//! Named storage layouts: what a profile's `storage_layout_profile` may say.
//!
//! One table. Each layout says what MAAS is asked for and how to see, in what MAAS shows
//! afterwards, that the machine has it. The same function decides whether anything is to be done,
//! whether a lost answer took effect, and whether MAAS kept its word. The root disk is chosen
//! elsewhere ([`crate::policy::choose_boot_disk`]) and is the same for every layout.
//!
//! A layout may go on to the data disks: every NVMe disk but those of a boot controller gets a
//! filesystem of its own and a mount point with its number. They are laid out after the root,
//! because MAAS' layouts clear all disks first. A data disk that holds something else is not
//! changed in place: the whole layout is asked for again, which leaves it empty.
//!
//! MAAS' `blank`, `custom` and the layouts of VMware are left out: what they leave cannot carry
//! the deployed system that a node needs. So are RAIDs of data disks, which nobody has measured on
//! a real region yet.

use gpuaas_types::machine::{Disk, DiskFilesystem, MachineView};

use crate::policy;

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Name in a profile.
    pub name: &'static str,
    /// MAAS' name of it (docs/maas.md#storage-layouts).
    pub maas: &'static str,
    /// Disks that it takes.
    pub disks: usize,
    /// What it is, one sentence.
    pub text: &'static str,
    /// Whether the machine has MAAS' layout, with the root on this disk and the others empty.
    pub matches: fn(&MachineView, i64) -> bool,
    /// What becomes of the data disks; none: they stay empty.
    pub data: Option<DataDisks>,
}

/// What becomes of the data disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataDisks {
    /// Filesystem on each of them.
    pub fstype: &'static str,
    /// Folder below which each is mounted, at its number: `/data/0`, `/data/1`, …
    pub below: &'static str,
}

const EXT4: Option<DataDisks> = Some(DataDisks { fstype: "ext4", below: "/data" });
const XFS: Option<DataDisks> = Some(DataDisks { fstype: "xfs", below: "/data" });

/// Every layout.
#[rustfmt::skip]
pub const LAYOUTS: &[Layout] = &[
    Layout { name: "flat", maas: "flat", disks: 1, matches: is_flat, data: None,
        text: "the root is one partition on the boot disk, other disks stay empty" },
    Layout { name: "lvm", maas: "lvm", disks: 1, matches: is_lvm, data: None,
        text: "the root is a logical volume on the boot disk, other disks stay empty" },
    Layout { name: "bcache", maas: "bcache", disks: 2, matches: is_bcache, data: None,
        text: "the root is on the boot disk, with a cache on another disk" },
    Layout { name: "flat-data", maas: "flat", disks: 2, matches: is_flat, data: EXT4,
        text: "flat, plus an ext4 filesystem on each other NVMe disk at /data/0, /data/1, …" },
    Layout { name: "flat-data-xfs", maas: "flat", disks: 2, matches: is_flat, data: XFS,
        text: "flat, plus an xfs filesystem on each other NVMe disk at /data/0, /data/1, …" },
    Layout { name: "lvm-data", maas: "lvm", disks: 2, matches: is_lvm, data: XFS,
        text: "lvm, plus an xfs filesystem on each other NVMe disk at /data/0, /data/1, …" },
];

/// A disk that a layout makes a data disk of.
#[derive(Debug, Clone, PartialEq)]
pub struct DataDisk<'a> {
    /// The disk as MAAS shows it.
    pub disk: &'a Disk,
    /// Filesystem that it shall have.
    pub fstype: &'static str,
    /// Where that shall be mounted.
    pub mount_point: String,
}

/// How far a data disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataState {
    /// The disk holds nothing.
    Blank,
    /// It has its filesystem, mounted nowhere.
    Formatted,
    /// As it shall be.
    Mounted,
    /// It holds something else.
    Foreign,
}

impl DataDisk<'_> {
    /// How far it is.
    #[must_use]
    pub fn state(&self) -> DataState {
        match &self.disk.filesystem {
            _ if self.disk.partitions > 0 => DataState::Foreign,
            None => DataState::Blank,
            Some(on) if on.fstype != self.fstype => DataState::Foreign,
            Some(DiskFilesystem { mount_point: None, .. }) => DataState::Formatted,
            Some(on) if on.mount_point.as_ref() == Some(&self.mount_point) => DataState::Mounted,
            Some(_) => DataState::Foreign,
        }
    }
}

impl Layout {
    /// The disks that it makes data disks of, in the order of their names.
    #[must_use]
    pub fn data_disks<'a>(&self, machine: &'a MachineView, root: i64) -> Vec<DataDisk<'a>> {
        let Some(data) = self.data else {
            return Vec::new();
        };
        let fit = |disk: &&Disk| disk.id != root && is_nvme(disk) && !policy::is_boss(disk);
        let mut disks: Vec<&Disk> = machine.disks.iter().filter(fit).collect();
        // nvme2n1 comes before nvme10n1.
        disks.sort_by_key(|disk| (disk.name.len(), disk.name.clone(), disk.id));
        let of = |(number, disk): (usize, &'a Disk)| DataDisk {
            disk,
            fstype: data.fstype,
            mount_point: format!("{}/{number}", data.below),
        };
        disks.into_iter().enumerate().map(of).collect()
    }

    /// Whether the root is as it shall be, and no data disk is in the way of what is to come.
    #[must_use]
    pub fn has_root(&self, machine: &MachineView, root: i64) -> bool {
        let data = self.data_disks(machine, root);
        if data.iter().any(|data| data.state() == DataState::Foreign) {
            return false;
        }
        let ids: Vec<i64> = data.iter().map(|data| data.disk.id).collect();
        let mut without = machine.clone();
        for disk in without.disks.iter_mut().filter(|disk| ids.contains(&disk.id)) {
            disk.filesystem = None;
            disk.mounts.clear();
        }
        (self.matches)(&without, root)
    }

    /// Whether the machine has all of it.
    #[must_use]
    pub fn is_complete(&self, machine: &MachineView, root: i64) -> bool {
        let data = self.data_disks(machine, root);
        self.has_root(machine, root) && data.iter().all(|data| data.state() == DataState::Mounted)
    }
}

fn is_nvme(disk: &Disk) -> bool {
    disk.name.starts_with("nvme") || disk.tags.iter().any(|tag| tag == "nvme")
}

/// The layout that a profile names.
#[must_use]
pub fn find(name: &str) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|layout| layout.name == name)
}

/// The layout that MAAS knows by this name.
#[must_use]
pub fn find_by_maas_name(maas: &str) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|layout| layout.maas == maas)
}

/// Names that a profile may use.
#[must_use]
pub fn names() -> Vec<&'static str> {
    LAYOUTS.iter().map(|layout| layout.name).collect()
}

fn split(machine: &MachineView, root: i64) -> (Option<&Disk>, impl Iterator<Item = &Disk>) {
    let on_root = machine.disks.iter().find(|disk| disk.id == root);
    (on_root, machine.disks.iter().filter(move |disk| disk.id != root))
}

fn is_bare(disk: &Disk) -> bool {
    disk.mounts.is_empty() && disk.filesystem.is_none()
}

/// A root filesystem on the disk, nothing of volume groups, RAIDs or bcaches, and no filesystem on
/// another disk.
fn is_flat(machine: &MachineView, root: i64) -> bool {
    let (on_root, mut others) = split(machine, root);
    machine.complex_storage == 0
        && machine.boot_disk_id == Some(root)
        && on_root.is_some_and(|disk| disk.mounts.iter().any(|mount| mount == "/"))
        && others.all(is_bare)
}

/// One volume group and nothing else that is composed; its volume is a partition of the disk, so
/// no physical disk carries the root itself.
fn is_lvm(machine: &MachineView, root: i64) -> bool {
    let (on_root, mut others) = split(machine, root);
    machine.complex_storage == 1
        && machine.volume_groups == 1
        && machine.boot_disk_id == Some(root)
        && on_root.is_some_and(|disk| disk.partitions > 0 && !has_root(disk))
        && others.all(|disk| disk.partitions == 0 && is_bare(disk))
}

/// One bcache and nothing else that is composed, backed by the disk and cached by one other.
fn is_bcache(machine: &MachineView, root: i64) -> bool {
    let (on_root, others) = split(machine, root);
    let mut caches = 0;
    let mut foreign = false;
    for disk in others {
        caches += usize::from(disk.partitions > 0);
        foreign |= !is_bare(disk);
    }
    machine.complex_storage == 1
        && machine.bcaches == 1
        && machine.boot_disk_id == Some(root)
        && on_root.is_some_and(|disk| disk.partitions > 0 && !has_root(disk))
        && caches == 1
        && !foreign
}

fn has_root(disk: &Disk) -> bool {
    disk.mounts.iter().any(|mount| mount == "/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixture;
    use gpuaas_types::machine::maas_status as status;

    /// The fixture's machine with disk 2 laid out as each layout leaves it.
    fn laid_out(layout: &Layout) -> MachineView {
        let mut machine = fixture::machine(status::READY);
        if let Some(data) = layout.data {
            let point = format!("{}/0", data.below);
            machine.disks[0].mounts = vec![point.clone()];
            let fstype = data.fstype.to_owned();
            machine.disks[0].filesystem = Some(DiskFilesystem { fstype, mount_point: Some(point) });
        }
        if layout.maas == "flat" {
            return machine;
        }
        machine.complex_storage = 1;
        machine.disks[1].mounts.clear();
        match layout.maas {
            "lvm" => machine.volume_groups = 1,
            _ => {
                machine.bcaches = 1;
                machine.disks[1].mounts = vec!["/boot".to_owned()];
                machine.disks[0].partitions = 1;
            }
        }
        machine
    }

    #[test]
    fn each_layout_is_told_from_every_other() {
        for has in LAYOUTS {
            let machine = laid_out(has);
            for asked in LAYOUTS {
                let found = asked.is_complete(&machine, 2);
                assert_eq!(found, asked.name == has.name, "{} on {}", asked.name, has.name);
                assert!(!asked.is_complete(&machine, 1), "{} on the wrong disk", asked.name);
            }
        }
    }

    #[test]
    fn data_disks_are_numbered_by_name_and_leave_the_boot_controller_out() {
        let mut machine = fixture::machine(status::READY);
        let disk = |id, name: &str, model: &str| fixture::disk(id, name, model, 480_000_000_000);
        machine.disks.extend([
            disk(3, "nvme10n1", "NVMe"),
            disk(4, "nvme2n1", "NVMe"),
            disk(5, "nvme3n1", "Dell BOSS-N1"),
            disk(6, "sdb", "SATA"),
        ]);
        let layout = find("flat-data").unwrap();
        let data = layout.data_disks(&machine, 2);
        let mounts: Vec<(i64, &str)> =
            data.iter().map(|d| (d.disk.id, d.mount_point.as_str())).collect();
        assert_eq!(mounts, [(1, "/data/0"), (4, "/data/1"), (3, "/data/2")]);
        assert!(find("flat").unwrap().data_disks(&machine, 2).is_empty());
    }

    #[test]
    fn what_is_on_a_data_disk_decides_how_far_it_is() {
        let layout = find("flat-data").unwrap();
        let mut machine = fixture::machine(status::READY);
        let mut state = |fstype: Option<&str>, point: Option<&str>, partitions| {
            machine.disks[0].partitions = partitions;
            machine.disks[0].filesystem = fstype.map(|fstype| DiskFilesystem {
                fstype: fstype.to_owned(),
                mount_point: point.map(str::to_owned),
            });
            (layout.data_disks(&machine, 2)[0].state(), layout.has_root(&machine, 2))
        };
        assert_eq!(state(None, None, 0), (DataState::Blank, true));
        assert_eq!(state(Some("ext4"), None, 0), (DataState::Formatted, true));
        assert_eq!(state(Some("ext4"), Some("/data/0"), 0), (DataState::Mounted, true));
        for foreign in [
            state(Some("ext4"), Some("/srv"), 0),
            state(Some("xfs"), None, 0),
            state(None, None, 1),
        ] {
            assert_eq!(foreign, (DataState::Foreign, false));
        }
    }

    #[test]
    fn names_lead_back() {
        for layout in LAYOUTS {
            assert_eq!(find(layout.name).map(|l| l.maas), Some(layout.maas));
            assert_eq!(find_by_maas_name(layout.maas).map(|l| l.maas), Some(layout.maas));
            assert!(layout.data.is_none() || layout.disks > 1, "{}", layout.name);
        }
        assert!(find("blank").is_none());
    }
}
