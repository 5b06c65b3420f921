//! Rules about modes: what has to be open to everybody, and what must not be.
//!
//! curtin extracts with the archive's modes. A build below `umask 077`, or a root that `mktemp -d` made,
//! shuts services out that run as their own user: dbus, resolved, sshd's separation, apt, chrony.

use super::rule::{LintRule, LintSeverity::Error};
use super::subject::LintSubject;
use crate::archive_index::{IndexedEntry, IndexedKind};

/// Folders that every service has to get through; the empty one is the root itself. What is mounted over
/// (`/dev`, `/proc`, `/run`, `/sys`) may have any mode.
const FOLDERS: [&str; 34] = [
    "",
    "bin",
    "etc",
    "etc/apt",
    "etc/apt/apt.conf.d",
    "etc/apt/sources.list.d",
    "etc/default",
    "etc/pam.d",
    "etc/ssh",
    "etc/ssl",
    "etc/ssl/certs",
    "etc/systemd",
    "etc/systemd/system",
    "home",
    "lib",
    "lib64",
    "mnt",
    "opt",
    "sbin",
    "srv",
    "usr",
    "usr/bin",
    "usr/lib",
    "usr/lib/systemd",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/local",
    "usr/local/bin",
    "usr/sbin",
    "usr/share",
    "var",
    "var/cache",
    "var/lib",
    "var/lib/dpkg",
];
/// Files that every user's programs read.
const FILES: [&str; 9] = [
    "etc/passwd",
    "etc/group",
    "etc/hosts",
    "etc/nsswitch.conf",
    "etc/ld.so.cache",
    "etc/ssl/certs/ca-certificates.crt",
    "usr/lib/os-release",
    "etc/os-release",
    "etc/services",
];
/// Programs that every user runs.
const PROGRAMS: [&str; 8] = [
    "usr/bin/bash",
    "usr/bin/dash",
    "usr/bin/sh",
    "usr/bin/env",
    "usr/bin/dbus-daemon",
    "usr/bin/python3",
    "usr/lib/systemd/systemd",
    "usr/lib64/ld-linux-x86-64.so.2",
];
/// Files with secrets, and the bits that they must not have.
const SECRETS: [(&str, u32); 5] = [
    ("etc/shadow", 0o037),
    ("etc/gshadow", 0o037),
    ("etc/sudoers", 0o022),
    ("etc/passwd", 0o022),
    ("root", 0o022),
];

pub(super) const RULES: &[LintRule] = &[
    LintRule {
        code: "system_mode_wrong",
        severity: Error,
        reason: "only root can access a folder or file that every user needs",
        breaks: "first boot: services that run as their own user (dbus, resolved, sshd's privilege separation, apt, chrony) cannot access their files, and the machine never becomes Deployed",
        fix: "before packing, set folders to 755 and files to 644, including the root of the tree; mktemp -d creates it with 0700, and umask 077 affects the whole tree",
        check: |image| {
            let folders = FOLDERS.iter().map(|path| (*path, 0o555));
            let files = FILES.iter().map(|path| (*path, 0o444));
            let programs = PROGRAMS.iter().map(|path| (*path, 0o555));
            let wanted = folders.chain(files).chain(programs);
            found(image, wanted, |mode, bits| mode & bits != bits)
        },
    },
    LintRule {
        code: "system_mode_open",
        severity: Error,
        reason: "other users can write a folder or file of root, or read a secret",
        breaks: "first boot: any user can take over the host; sshd, sudo and systemd reject such files",
        fix: "before packing, run chmod go-w on the folders and chmod 0640 on files with passwords",
        check: |image| {
            // A folder for everybody has the sticky bit, and a rule of its own.
            let folders = FOLDERS.iter().map(|path| (*path, 0o002));
            let wanted = folders.chain(SECRETS.iter().copied());
            found(image, wanted, |mode, bits| mode & bits != 0 && mode & 0o1000 == 0)
        },
    },
];

/// Paths whose mode is wrong, with the mode.
fn found<'p>(
    image: &LintSubject<'_>,
    wanted: impl Iterator<Item = (&'p str, u32)>,
    is_wrong: fn(u32, u32) -> bool,
) -> Vec<String> {
    let judged =
        |entry: &&IndexedEntry| matches!(entry.kind, IndexedKind::Directory | IndexedKind::File);
    let wrong = wanted.filter_map(|(path, bits)| {
        let entry = image.index.entry(path).filter(judged)?;
        is_wrong(entry.mode, bits).then(|| format!("/{path} (mode {:04o})", entry.mode))
    });
    wrong.collect()
}
