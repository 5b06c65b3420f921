//! Rules about the archive itself: names, owners, modes and attributes that a host has to get back,
//! and its size.

use super::rule::{
    LintRule,
    LintSeverity::{Error, Warning},
    absolute, path_if,
};
use super::subject::LintSubject;
use crate::archive_index::{IndexedEntry, IndexedKind, NameFault};
use crate::entry::DeviceNumber;

/// Names that are root's on every system; the empty one is the root itself.
const ROOTS_OWN: [&str; 11] = [
    "",
    "boot",
    "etc",
    "etc/passwd",
    "etc/shadow",
    "root",
    "usr",
    "usr/bin",
    "usr/lib",
    "usr/sbin",
    "var",
];
/// Programs that are setuid root, with the packages that have them so.
const SETUID: [(&str, &str); 4] = [
    ("usr/bin/sudo", "sudo"),
    ("usr/bin/passwd", "passwd"),
    ("usr/bin/su", "util-linux"),
    ("usr/bin/mount", "mount"),
];
/// Programs with a file capability, and the script of their package that sets it. Releases differ in
/// whether it does, so the script in the image is asked.
const CAPABLE: [(&str, &str); 3] = [
    ("usr/bin/ping", "var/lib/dpkg/info/iputils-ping.postinst"),
    ("bin/ping", "var/lib/dpkg/info/iputils-ping.postinst"),
    ("usr/bin/mtr-packet", "var/lib/dpkg/info/mtr-tiny.postinst"),
];
/// Of a boot disk, hundredths that a root may fill: the file system's own blocks, logs and packages
/// of the first boot want room.
const FILLABLE_HUNDREDTHS: u64 = 80;

pub(super) const RULES: &[LintRule] = &[
    LintRule {
        code: "entry_outside",
        severity: Error,
        reason: "a path in the archive is absolute or points outside the root",
        breaks: "curtin, extract: tar strips or rejects such paths and fails",
        fix: "pack the tree with `gpuaas image pack DIR --to FILE`",
        check: |image| faults(image, NameFault::Outside),
    },
    LintRule {
        code: "entry_twice",
        severity: Warning,
        reason: "the archive contains a path twice",
        breaks: "curtin, extract: the later entry wins, which may not be the one that was tested",
        fix: "pack the tree with `gpuaas image pack DIR --to FILE` instead of adding to an archive",
        check: |image| faults(image, NameFault::Twice),
    },
    LintRule {
        code: "hard_link_broken",
        severity: Error,
        reason: "a hard link comes before its file, or its file is missing",
        breaks: "curtin, extract: tar cannot create the link and fails",
        fix: "pack the whole tree at once with `gpuaas image pack DIR --to FILE`",
        check: |image| faults(image, NameFault::LinkWithoutFile),
    },
    LintRule {
        code: "owner_shifted",
        severity: Error,
        reason: "a file that root must own has another owner",
        breaks: "first boot: sshd, sudo and systemd reject files that root does not own",
        fix: "build and pack as root, outside a user namespace",
        check: |image| {
            let is_other =
                |path: &&&str| image.index.entry(path).is_some_and(|entry| entry.uid != 0);
            absolute(ROOTS_OWN.iter().filter(is_other))
        },
    },
    LintRule {
        code: "setuid_lost",
        severity: Error,
        reason: "a program has lost its setuid bit",
        breaks: "first boot: only root can use sudo, su or passwd",
        fix: "keep the modes when packing (tar -p, or `gpuaas image pack DIR --to FILE`), and do not pack from a file system mounted nosuid",
        check: |image| {
            let is_lost = |(path, package): &&(&str, &str)| {
                let entry = image.index.entry(path).filter(|entry| entry.kind == IndexedKind::File);
                image.has_package(package) && entry.is_some_and(|entry| entry.mode & 0o4000 == 0)
            };
            absolute(SETUID.iter().filter(is_lost).map(|(path, _)| path))
        },
    },
    LintRule {
        code: "capability_lost",
        severity: Error,
        reason: "a program has lost its file capability",
        breaks: "first boot: programs such as ping fail for every user but root, and so do fabric checks",
        fix: "keep extended attributes when packing (tar --xattrs --xattrs-include=*, or `gpuaas image pack DIR --to FILE`)",
        check: |image| {
            let is_lost = |(path, script): &&(&str, &str)| {
                let sets = image.index.text(script).is_some_and(|text| text.contains("setcap"));
                let entry = image.index.entry(path).filter(|entry| entry.kind == IndexedKind::File);
                sets && entry.is_some_and(|entry| {
                    let has = entry.xattrs.iter().any(|name| name == "security.capability");
                    !has && entry.mode & 0o4000 == 0
                })
            };
            absolute(CAPABLE.iter().filter(is_lost).map(|(path, _)| path))
        },
    },
    LintRule {
        code: "device_as_file",
        severity: Error,
        reason: "a device node has become a regular file",
        breaks: "first boot: programs that run before devtmpfs is mounted write into a file",
        fix: "do not unpack the tree with a program that cannot create devices; leave /dev empty",
        check: |image| {
            let files = image.leaves("dev/").filter(|(_, entry)| entry.kind == IndexedKind::File);
            absolute(files.map(|(path, _)| path))
        },
    },
    LintRule {
        code: "sticky_bit_lost",
        severity: Error,
        reason: "a world-writable folder has lost its sticky bit",
        breaks: "first boot: users can delete each other's files, and programs refuse to use it",
        fix: "give /tmp and /var/tmp mode 1777",
        check: |image| {
            let is_lost = |path: &&&str| {
                let entry = image.index.entry(path);
                let entry = entry.filter(|entry| entry.kind == IndexedKind::Directory);
                entry.is_some_and(|entry| entry.mode != 0o1777)
            };
            absolute(["tmp", "var/tmp"].iter().filter(is_lost))
        },
    },
    LintRule {
        code: "overlay_left",
        severity: Error,
        reason: "the tree is the upper layer of an overlay, not the merged tree",
        breaks: "curtin, extract: files deleted in the build become devices, and files of the lower layers are missing",
        fix: "pack the merged mount, not its upper folder",
        check: |image| {
            let zero = IndexedKind::CharacterDevice(DeviceNumber { major: 0, minor: 0 });
            let is_layer = |entry: &IndexedEntry| {
                entry.kind == zero
                    || entry.xattrs.iter().any(|name| name.starts_with("trusted.overlay."))
            };
            absolute(image.index.all().filter(|(_, entry)| is_layer(entry)).map(|(path, _)| path))
        },
    },
    LintRule {
        code: "virtual_files_left",
        severity: Error,
        reason: "the image contains files of the build machine's kernel",
        breaks: "curtin, extract: they are written to the disk and stay hidden below the mounts",
        fix: "unmount /proc and /sys in the tree before packing it",
        check: |image| {
            let below = |folder: &&str| image.index.below(folder).next().is_some();
            let folders = ["proc/", "sys/"];
            absolute(
                folders
                    .iter()
                    .filter(|folder| below(folder))
                    .map(|folder| folder.trim_end_matches('/')),
            )
        },
    },
    LintRule {
        code: "usr_merge_broken",
        severity: Error,
        reason: "some of /bin, /sbin and /lib are links into /usr, and others are folders",
        breaks: "curtin, extract: programs are stored in one place and looked up in the other",
        fix: "pack links as links; do not copy files over a merged tree",
        check: |image| {
            let kinds = |is_wanted: fn(&IndexedKind) -> bool| {
                let names = ["bin", "sbin", "lib"].into_iter();
                let of_kind = |name: &&str| {
                    image.index.entry(name).is_some_and(|entry| is_wanted(&entry.kind))
                };
                names.filter(of_kind).collect::<Vec<_>>()
            };
            let folders = kinds(|kind| *kind == IndexedKind::Directory);
            let links = kinds(|kind| matches!(kind, IndexedKind::Symlink(_)));
            if links.is_empty() { Vec::new() } else { absolute(folders) }
        },
    },
    LintRule {
        code: "too_large_for_disk",
        severity: Error,
        reason: "the image is too large for the site's boot disk",
        breaks: "curtin, extract: no space left on device",
        fix: "remove packages from the recipe, or deploy to machines with larger disks",
        check: |image| {
            let room = image.options.boot_disk_bytes.map(|disk| disk / 100 * FILLABLE_HUNDREDTHS);
            path_if(room.is_some_and(|room| image.index.tree_bytes() > room), "/")
        },
    },
    LintRule {
        code: "too_large_for_rack_cache",
        severity: Error,
        reason: "the archive is too large for the storage of the rack controllers",
        breaks: "MAAS, deploying: a rack controller cannot store the image, so machines cannot download it",
        fix: "remove packages from the recipe, or free up space on the rack controllers",
        check: |image| {
            let room = image.options.rack_cache_bytes;
            path_if(room.is_some_and(|room| image.archive_bytes > room), "/")
        },
    },
];

fn faults(image: &LintSubject<'_>, wanted: NameFault) -> Vec<String> {
    let faults = image.index.faults().iter().filter(|(fault, _)| *fault == wanted);
    let path = |path: &str| format!("/{}", path.trim_start_matches('/'));
    faults.map(|(_, name)| path(name)).collect()
}
