//! Rules about what still names the disks of the build: MAAS partitions a machine's own.
//!
//! `/etc/fstab` has a rule of its own; here is what else a boot reads.

use super::kernel_arguments::kernel_settings;
use super::rule::{
    LintRule,
    LintSeverity::{Error, Warning},
    absolute,
};
use super::shell_text::assignments;
use super::subject::LintSubject;

/// Kernel arguments whose value is a disk or a file system, whatever it looks like.
const DISK_ARGUMENTS: [&str; 11] = [
    "root",
    "resume",
    "resume_offset",
    "rd.luks.uuid",
    "rd.luks.name",
    "rd.lvm.lv",
    "rd.lvm.vg",
    "rd.md.uuid",
    "rd.dm.uuid",
    "cryptdevice",
    "luks.uuid",
];
/// Names below `/dev` that disks begin with.
const DISKS: [&str; 14] = [
    "sd", "vd", "hd", "xvd", "nvme", "mmcblk", "md", "dm-", "mapper/", "disk/", "pmem", "zvol/",
    "loop", "bcache",
];
/// Names below `/dev` that begin like a disk's, or are folders, and are none.
const NO_DISKS: [&str; 16] = [
    "nvme-fabrics",
    "net",
    "infiniband",
    "vfio",
    "shm",
    "pts",
    "hugepages",
    "cpu",
    "dri",
    "input",
    "snd",
    "bus",
    "char",
    "fd",
    "mqueue",
    "serial",
];

pub(super) const RULES: &[LintRule] = &[
    LintRule {
        code: "grub_names_build_disk",
        severity: Error,
        reason: "GRUB's defaults or kernel arguments name a disk or a partition of the build machine",
        breaks: "first boot: MAAS created new partitions with new UUIDs, so the kernel panics without a root or waits for a disk that does not exist",
        fix: "delete the setting at the end of the build; update-grub finds the machine's own root",
        check: |image| {
            let named = kernel_settings(image).into_iter().filter(|one| !one.is_replaced());
            let named = named.filter(|one| {
                one.arguments().any(|argument| is_disk_argument(&argument))
                    || is_disk_setting(&one.name, &one.value)
            });
            let mut paths: Vec<&str> = named.map(|one| one.path).collect();
            paths.dedup();
            absolute(paths)
        },
    },
    LintRule {
        code: "build_disk_named",
        severity: Warning,
        reason: "a file names swap, encrypted disks, RAID, LVM or other disks of the build machine",
        breaks: "each boot: the host waits 30 to 90 seconds for disks that do not exist, or ignores disks that do",
        fix: "delete the file or its lines at the end of the build",
        check: |image| absolute(disk_files(image)),
    },
    LintRule {
        code: "debconf_names_build_disk",
        severity: Warning,
        reason: "debconf stores a disk of the build machine as an answer",
        breaks: "next GRUB update on a BIOS host: it fails or prompts, dpkg stays half-configured, and unattended upgrades stop",
        fix: "run echo 'grub-pc grub-pc/install_devices multiselect' | debconf-set-selections at the end of the build",
        check: |image| {
            let files =
                ["config.dat", "config.dat-old"].map(|name| format!("var/cache/debconf/{name}"));
            let names = |path: &String| {
                let mut lines = image.lines(path);
                lines.any(|line| {
                    let value = line.strip_prefix("Value:");
                    value.is_some_and(names_disk)
                })
            };
            absolute(files.into_iter().filter(names))
        },
    },
];

/// Whether a kernel argument stands for a disk.
fn is_disk_argument(argument: &str) -> bool {
    let Some((key, value)) = argument.split_once('=') else { return false };
    if value.is_empty() {
        return false;
    }
    DISK_ARGUMENTS.contains(&key) || names_disk(value) || has_uuid(value)
}

/// Whether a variable of GRUB's own names a disk.
fn is_disk_setting(name: &str, value: &str) -> bool {
    let Some(name) = name.strip_prefix("GRUB_") else { return false };
    if name.starts_with("CMDLINE") || value.is_empty() {
        return false;
    }
    let known = ["FORCE_PARTUUID", "DEVICE", "DEVICE_UUID", "DEVICE_PARTUUID", "DEVICE_BOOT"];
    known.contains(&name) || names_disk(value) || has_uuid(value)
}

/// Whether a text has a path of a disk.
fn names_disk(text: &str) -> bool {
    text.split("/dev/").skip(1).any(|rest| {
        let is_end = |c: char| c.is_whitespace() || "\"',;:)]|".contains(c);
        let path = rest.split(is_end).next().unwrap_or_default();
        let first = path.split('/').next().unwrap_or_default();
        let is_known = DISKS.iter().any(|name| path.starts_with(name));
        // A volume of LVM.
        let is_volume = path.contains('/') && !first.is_empty();
        !NO_DISKS.contains(&first) && (is_known || is_volume)
    })
}

/// Whether a text has a UUID of 32 digits.
fn has_uuid(text: &str) -> bool {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let words = text.split(|c: char| !c.is_ascii_hexdigit() && c != '-');
    words.into_iter().any(|word| {
        let groups: Vec<usize> = word.split('-').map(str::len).collect();
        groups.ends_with(&GROUPS)
    })
}

/// Files that a boot reads, and that name disks.
fn disk_files(image: &LintSubject<'_>) -> Vec<String> {
    let below = |folder: &'static str, end: &'static str| {
        let files = image.leaves(folder).map(|(path, _)| path.to_owned());
        files.filter(move |path| path.ends_with(end))
    };
    let one = |path: &'static str| std::iter::once(path.to_owned());
    let has_line = |path: &String, is_meant: &dyn Fn(&str) -> bool| image.lines(path).any(is_meant);
    let resume =
        below("etc/initramfs-tools/conf.d/", "").chain(one("etc/initramfs-tools/initramfs.conf"));
    let resume = resume.filter(|path| {
        let text = image.text(path).unwrap_or_default();
        assignments(text).iter().any(|set| {
            let is_disk = !matches!(set.value.as_str(), "" | "none" | "auto");
            ["RESUME", "ROOT"].contains(&set.name.as_str()) && is_disk
        })
    });
    let any_line = one("etc/crypttab")
        .chain(one("etc/multipath/wwids"))
        .chain(one("etc/multipath/bindings"))
        .chain(one("boot/grub/device.map"))
        .filter(|path| has_line(path, &|_| true));
    let arrays = one("etc/mdadm/mdadm.conf")
        .chain(one("etc/mdadm.conf"))
        .chain(below("etc/mdadm/mdadm.conf.d/", ".conf"))
        .chain(below("etc/mdadm.conf.d/", ".conf"))
        .filter(|path| {
            has_line(path, &|line| {
                line.get(..5).is_some_and(|begin| begin.eq_ignore_ascii_case("array"))
            })
        });
    let volumes = below("etc/lvm/devices/", ".devices").filter(|path| {
        has_line(path, &|line| line.contains("IDTYPE=") || line.contains("DEVNAME="))
    });
    let backups = below("etc/lvm/backup/", "").chain(below("etc/lvm/archive/", ".vg"));
    let filters = one("etc/lvm/lvm.conf").chain(one("etc/lvm/lvmlocal.conf")).filter(|path| {
        has_line(path, &|line| {
            let is_filter = line.starts_with("filter") || line.starts_with("global_filter");
            is_filter && (names_disk(line) || line.contains("dev/"))
        })
    });
    let units = below("etc/systemd/system/", ".mount")
        .chain(below("etc/systemd/system/", ".swap"))
        .chain(below("etc/systemd/system/", ".automount"))
        .filter(|path| {
            has_line(path, &|line| {
                line.starts_with("What=") && (names_disk(line) || line.contains("UUID="))
            })
        });
    let dracut =
        below("etc/dracut.conf.d/", ".conf").chain(one("etc/dracut.conf")).filter(|path| {
            let set = assignments(image.text(path).unwrap_or_default());
            set.iter().any(|one| {
                ["add_device", "add_fstab", "swap"].contains(&one.name.as_str())
                    && !one.value.is_empty()
            })
        });
    let pools = one("etc/zfs/zpool.cache").filter(|path| image.has(path));
    let sessions = below("etc/iscsi/nodes/", "").chain(below("etc/iscsi/send_targets/", ""));
    resume
        .chain(any_line)
        .chain(arrays)
        .chain(volumes)
        .chain(backups)
        .chain(filters)
        .chain(units)
        .chain(dracut)
        .chain(pools)
        .chain(sessions)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_told_from_other_devices() {
        for text in [
            "/dev/vda",
            "x /dev/nvme0n1p2,",
            "UUID /dev/mapper/vg-root",
            "/dev/ubuntu-vg/root",
            "/dev/disk/by-id/x",
        ] {
            assert!(names_disk(text), "{text}");
        }
        for text in ["/dev/null", "/dev/urandom", "/dev/ttyS0", "/dev/infiniband/rdma_cm", "/dev/"]
        {
            assert!(!names_disk(text), "{text}");
        }
    }

    #[test]
    fn arguments_that_stand_for_a_disk() {
        for text in [
            "root=UUID=1-2",
            "root=LABEL=x",
            "resume=/dev/vda3",
            "rd.luks.uuid=x",
            "rd.md.uuid=11111111:22222222",
            "x=11111111-2222-3333-4444-555555555555",
        ] {
            assert!(is_disk_argument(text), "{text}");
        }
        for text in
            ["quiet", "console=ttyS0,115200", "iommu=pt", "rootfstype=ext4", "rootwait", "resume="]
        {
            assert!(!is_disk_argument(text), "{text}");
        }
        assert!(is_disk_setting("GRUB_FORCE_PARTUUID", "x") && is_disk_setting("GRUB_DEVICE", "x"));
        assert!(is_disk_setting("GRUB_DEFAULT", "gnulinux-11111111-2222-3333-4444-555555555555"));
        assert!(
            !is_disk_setting("GRUB_FORCE_PARTUUID", "") && !is_disk_setting("GRUB_DEFAULT", "0")
        );
    }
}
