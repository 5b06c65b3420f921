//! Named storage layouts: what a profile's `storage_layout_profile` may say.
//!
//! One table. Each layout says what MAAS is asked for and how to see, in what MAAS shows
//! afterwards, that the machine has it. The same function decides whether anything is to be done,
//! whether a lost answer took effect, and whether MAAS kept its word. The root disk is chosen
//! elsewhere ([`crate::policy::choose_boot_disk`]) and is the same for every layout.
//!
//! MAAS' `blank`, `custom` and the layouts of VMware are left out: what they leave cannot carry
//! the deployed system that a node needs.

use gpuaas_types::machine::{Disk, MachineView};

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Name in a profile.
    pub name: &'static str,
    /// MAAS' name of it (contract section 10).
    pub maas: &'static str,
    /// Disks that it takes.
    pub disks: usize,
    /// What it is, one sentence.
    pub text: &'static str,
    /// Whether the machine has it, with the root on this disk.
    pub matches: fn(&MachineView, i64) -> bool,
}

/// Every layout.
#[rustfmt::skip]
pub const LAYOUTS: &[Layout] = &[
    Layout { name: "flat", maas: "flat", disks: 1, matches: is_flat,
        text: "the root is one partition of the boot disk, other disks stay empty" },
    Layout { name: "lvm", maas: "lvm", disks: 1, matches: is_lvm,
        text: "the root is a logical volume on the boot disk, other disks stay empty" },
    Layout { name: "bcache", maas: "bcache", disks: 2, matches: is_bcache,
        text: "the root is on the boot disk behind a cache on another disk" },
];

/// The layout that a profile names.
#[must_use]
pub fn named(name: &str) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|layout| layout.name == name)
}

/// The layout that MAAS knows by this name.
#[must_use]
pub fn of_maas(maas: &str) -> Option<&'static Layout> {
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

/// A root filesystem on the disk, nothing of volume groups, RAIDs or bcaches, and no filesystem on
/// another disk.
fn is_flat(machine: &MachineView, root: i64) -> bool {
    let (on_root, mut others) = split(machine, root);
    machine.complex_storage == 0
        && machine.boot_disk_id == Some(root)
        && on_root.is_some_and(|disk| disk.mounts.iter().any(|mount| mount == "/"))
        && others.all(|disk| disk.mounts.is_empty())
}

/// One volume group and nothing else that is composed; its volume is a partition of the disk, so
/// no physical disk carries the root itself.
fn is_lvm(machine: &MachineView, root: i64) -> bool {
    let (on_root, mut others) = split(machine, root);
    machine.complex_storage == 1
        && machine.volume_groups == 1
        && machine.boot_disk_id == Some(root)
        && on_root.is_some_and(|disk| disk.partitions > 0 && !has_root(disk))
        && others.all(|disk| disk.partitions == 0 && disk.mounts.is_empty())
}

/// One bcache and nothing else that is composed, backed by the disk and cached by one other.
fn is_bcache(machine: &MachineView, root: i64) -> bool {
    let (on_root, others) = split(machine, root);
    let mut caches = 0;
    let mut foreign = false;
    for disk in others {
        caches += usize::from(disk.partitions > 0);
        foreign |= !disk.mounts.is_empty();
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
    fn laid_out(name: &str) -> MachineView {
        let mut machine = fixture::machine(status::READY);
        if name == "flat" {
            return machine;
        }
        machine.complex_storage = 1;
        machine.disks[1].mounts.clear();
        match name {
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
            let machine = laid_out(has.name);
            for asked in LAYOUTS {
                let found = (asked.matches)(&machine, 2);
                assert_eq!(found, asked.name == has.name, "{} on {}", asked.name, has.name);
                assert!(!(asked.matches)(&machine, 1), "{} on the wrong disk", asked.name);
            }
        }
    }

    #[test]
    fn names_lead_back() {
        for layout in LAYOUTS {
            assert_eq!(named(layout.name).map(|l| l.maas), Some(layout.maas));
            assert_eq!(of_maas(layout.maas).map(|l| l.name), Some(layout.name));
        }
        assert!(named("blank").is_none());
    }
}
