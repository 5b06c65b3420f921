//! A tree that was packed comes back as it was: under GNU tar, with the flags that curtin uses.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use crate::entry::ArchiveEntry;
use crate::gzip::DEFAULT_LEVEL;
use crate::pack::{PackOptions, pack, pack_to_file};
use crate::tree_walk::TreeWalk;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lremovexattr, lsetxattr, makedev, mknodat};

/// `cap_net_raw=ep` as the kernel keeps it (capabilities(7), `struct vfs_cap_data`).
const CAP_NET_RAW: [u8; 20] = {
    let mut bytes = [0; 20];
    bytes[0] = 1;
    bytes[3] = 2;
    bytes[5] = 0x20;
    bytes
};

fn options(threads: usize) -> PackOptions {
    PackOptions { threads, level: DEFAULT_LEVEL, newest_mtime_seconds: None }
}

fn write(path: &Path, content: &[u8], mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    // No fractions: an archive has whole seconds.
    set_mtime(path, 1_700_000_000);
}

fn set_mtime(path: &Path, seconds: u64) {
    let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(seconds));
    File::open(path).unwrap().set_times(times).unwrap();
}

/// What every user may make.
fn plain_tree(root: &Path) {
    write(&root.join("etc/hostname"), b"host\n", 0o644);
    write(&root.join("etc/empty"), b"", 0o600);
    write(&root.join("usr/bin/tool"), &b"#!/bin/sh\n".repeat(200_000), 0o755);
    let long = "n".repeat(180);
    write(&root.join("usr/share").join(&long).join(&long).join("file"), b"deep", 0o644);
    write(&root.join("usr/share/ex\u{e4}ctly \"odd\"\nname"), b"odd", 0o640);
    // One name of exactly a hundred bytes with `./usr/share/` before it.
    write(&root.join("usr/share").join("h".repeat(88)), b"hundred", 0o644);
    fs::hard_link(root.join("usr/bin/tool"), root.join("usr/bin/also-tool")).unwrap();
    fs::hard_link(root.join("usr/bin/tool"), root.join("usr/share").join(&long).join("third"))
        .unwrap();
    symlink("../usr/bin/tool", root.join("etc/tool")).unwrap();
    symlink("t".repeat(300), root.join("etc/far")).unwrap();
    fs::create_dir(root.join("tmp")).unwrap();
    fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777)).unwrap();
    // Bytes that do not compress, over more than one member.
    let mut state = 1_u32;
    let noise: Vec<u8> = (0..2_500_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect();
    write(&root.join("boot/initrd.img"), &noise, 0o600);
}

/// What only root may make.
fn root_tree(root: &Path) {
    let ping = root.join("usr/bin/ping");
    write(&ping, b"ping", 0o755);
    lsetxattr(&ping, "security.capability", &CAP_NET_RAW, XattrFlags::empty()).unwrap();
    lsetxattr(root.join("etc"), "trusted.note", b"a folder's", XattrFlags::empty()).unwrap();
    write(&root.join("usr/bin/sudo"), b"sudo", 0o4755);
    write(&root.join("var/owned"), b"theirs", 0o2750);
    chown(root.join("var/owned"), Some(4_000_000_000), Some(2_097_152)).unwrap();
    fs::set_permissions(root.join("var/owned"), Permissions::from_mode(0o2750)).unwrap();
    symlink("nowhere", root.join("var/dangling")).unwrap();
    lchown(root.join("var/dangling"), Some(33), Some(33)).unwrap();
    fs::create_dir(root.join("dev")).unwrap();
    let mode = Mode::from_raw_mode(0o620);
    let node = |name: &str, kind, device| {
        mknodat(CWD, root.join("dev").join(name), kind, mode, device).unwrap();
    };
    node("console", FileType::CharacterDevice, makedev(5, 1));
    node("vda99", FileType::BlockDevice, makedev(259, 300_000));
    node("pipe", FileType::Fifo, 0);
}

/// What of a tree has to come back: its names with all but the content, and the contents. Times of
/// folders and links are those of the making, with fractions, which no archive has.
fn read_tree(root: &Path) -> BTreeMap<Vec<u8>, (ArchiveEntry, Vec<u8>)> {
    let mut walk = TreeWalk::new(root);
    let mut all = BTreeMap::new();
    while let Some(walked) = walk.advance().unwrap() {
        let mut content = Vec::new();
        if let Some(mut file) = walked.content {
            file.read_to_end(&mut content).unwrap();
        }
        all.insert(walked.entry.path.clone(), (walked.entry, content));
    }
    all
}

/// As curtin extracts an image (curtin, `commands/extract.py`).
fn extract(tgz: &[u8], target: &Path) {
    fs::create_dir(target).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(target);
    tar.args(["--xattrs", "--xattrs-include=*", "-Sxpzf", "-", "--numeric-owner"]);
    let mut tar = tar.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    tar.stdin.take().unwrap().write_all(tgz).unwrap();
    let output = tar.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// The first name of which two trees differ.
fn assert_equal(before: &Path, after: &Path) {
    let (before, after) = (read_tree(before), read_tree(after));
    for (path, was) in &before {
        let name = String::from_utf8_lossy(path);
        assert_eq!(Some(&was.0), after.get(path).map(|now| &now.0), "{name}");
        assert!(was.1 == after[path].1, "the content of {name}");
    }
    assert_eq!(before.len(), after.len());
}

#[test]
fn a_tree_comes_back_under_gnu_tar() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, back) = (folder.path().join("tree"), folder.path().join("back"));
    fs::create_dir(&tree).unwrap();
    plain_tree(&tree);
    UnixListener::bind(tree.join("etc/socket")).unwrap();
    set_mtime(&tree.join("etc"), 1_700_000_000);
    let (tgz, summary) = pack(&tree, Vec::new(), &options(2)).unwrap();
    assert_eq!((summary.sockets, summary.tgz_bytes), (1, tgz.len() as u64));
    fs::remove_file(tree.join("etc/socket")).unwrap();
    // Taking the socket away has written the folder's time.
    set_mtime(&tree.join("etc"), 1_700_000_000);
    extract(&tgz, &back);
    assert_equal(&tree, &back);
    assert_eq!(summary.entries, read_tree(&tree).len() as u64);
}

#[test]
fn owners_capabilities_and_devices_come_back_under_gnu_tar() {
    if !rustix::process::geteuid().is_root() {
        return test_report::skip("root", "only root makes devices and gives files away");
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, back) = (folder.path().join("tree"), folder.path().join("back"));
    fs::create_dir(&tree).unwrap();
    plain_tree(&tree);
    root_tree(&tree);
    let (tgz, _) = pack(&tree, Vec::new(), &options(2)).unwrap();
    extract(&tgz, &back);
    assert_equal(&tree, &back);
    let ping = &read_tree(&back)[b"usr/bin/ping".as_slice()].0;
    assert_eq!(ping.xattrs, [(b"security.capability".to_vec(), CAP_NET_RAW.to_vec())]);
}

#[test]
fn the_bytes_depend_on_the_tree_alone() {
    let folder = tempfile::tempdir().unwrap();
    plain_tree(folder.path());
    let (one, first) = pack(folder.path(), Vec::new(), &options(1)).unwrap();
    let (two, second) = pack(folder.path(), Vec::new(), &options(2)).unwrap();
    assert!(one == two && first == second);
    // The same names made in another order, with other inodes, and later.
    let other = tempfile::tempdir().unwrap();
    fs::create_dir(other.path().join("tmp")).unwrap();
    fs::remove_dir(other.path().join("tmp")).unwrap();
    plain_tree(other.path());
    let clamped = PackOptions { newest_mtime_seconds: Some(1_600_000_000), ..options(3) };
    let (_, first) = pack(folder.path(), Vec::new(), &clamped).unwrap();
    let (_, second) = pack(other.path(), Vec::new(), &clamped).unwrap();
    assert_eq!(first.sha256, second.sha256);
}

#[test]
fn an_archive_is_complete_or_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    plain_tree(&tree);
    let target = folder.path().join("image.tgz");
    let summary = pack_to_file(&tree, &target, &options(2)).unwrap();
    assert_eq!(fs::metadata(&target).unwrap().len(), summary.tgz_bytes);
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o644);
    let error = pack_to_file(&folder.path().join("gone"), &target, &options(2)).unwrap_err();
    assert_eq!(error.code(), "image_tree_unreadable");
    let nowhere = folder.path().join("no/image.tgz");
    let error = pack_to_file(&tree, &nowhere, &options(2)).unwrap_err();
    assert_eq!(error.code(), "image_unwritable");
    assert_eq!(fs::metadata(&target).unwrap().len(), summary.tgz_bytes, "the old one is there");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing was left behind");
}

/// An output that lets a file of the tree grow whenever it is written to.
#[derive(Debug)]
struct Growing<'a>(&'a Path);

impl std::io::Write for Growing<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        File::options().append(true).open(self.0)?.write_all(b"more")?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_tree_that_changes_is_refused_and_packed_when_nothing_runs_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("var.log");
    File::create(&log).unwrap().set_len(64 << 20).unwrap();
    let error = pack(folder.path(), Growing(&log), &options(1)).unwrap_err();
    assert_eq!(error.code(), "image_tree_changed");
    assert_eq!(error.hint(), "stop everything that runs in the tree, then pack it again");
    pack(folder.path(), Vec::new(), &options(1)).unwrap();
}

#[test]
fn what_no_archive_can_say_is_refused_until_it_has_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, b"x", 0o644);
    if let Err(error) = lsetxattr(&file, "user.a=b", b"x", XattrFlags::empty()) {
        return test_report::skip(
            "kernel",
            format!("extended attributes of users cannot be set here: {error}"),
        );
    }
    let error = pack(folder.path(), Vec::new(), &options(1)).unwrap_err();
    assert_eq!(
        (error.code(), error.hint()),
        ("image_entry_unfit", "rename it, or remove it from the tree")
    );
    assert!(error.to_string().contains("extended attribute"), "{error}");
    lremovexattr(&file, "user.a=b").unwrap();
    lsetxattr(&file, "user.a", b"x", XattrFlags::empty()).unwrap();
    pack(folder.path(), Vec::new(), &options(1)).unwrap();
}
