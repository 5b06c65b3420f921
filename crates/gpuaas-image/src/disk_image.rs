//! Disks and what the roots of their file systems hold; and what curtin looks for in a whole-disk image: a
//! root with a folder that marks it.
//!
//! After it wrote such an image, curtin mounts each file system of the disk and takes the one that
//! has `curtin`, `system-data/var/lib/snapd` or `snaps` for the root (docs/hosts.md#host-images). So
//! the partition table is read, MBR or GPT, and of each ext file system the names of its root.
//! The image is a compressed stream: what is wanted stands near the begin of a partition, and is
//! reached by reading the stream anew.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::disk_type::disk_stream;

/// Unit of a partition table, in bytes.
const SECTOR: u64 = 512;
/// Names of a root that mark it.
const MARKERS: [&str; 2] = ["curtin", "snaps"];
/// Partitions that are looked at.
const MAX_PARTITIONS: usize = 128;
/// Blocks of a root folder that are read.
const MAX_FOLDER_BLOCKS: usize = 64;
/// Where the superblock of an ext file system begins, in bytes.
const SUPERBLOCK: u64 = 1024;
/// What it has at offset 56.
const EXT_MAGIC: u64 = 0xEF53;
/// `EXT4_EXTENTS_FL` of an inode's flags.
const EXTENTS: u64 = 0x8_0000;

/// Whether the first sectors of a disk are these: the signature of a boot sector, and no archive.
#[must_use]
pub(crate) fn is_disk(begin: &[u8]) -> bool {
    begin.len() >= 512 && begin[510..512] == [0x55, 0xAA] && begin.get(257..262) != Some(b"ustar")
}

/// Whether a file system of the compressed disk at `path` has a root that curtin finds.
///
/// # Errors
/// The file cannot be read, or is cut off.
pub(crate) fn has_root_marker(path: &Path) -> io::Result<bool> {
    let mut disk = CompressedDisk { path };
    for begin in partitions(&mut disk)? {
        // A partition that holds no ext file system, or is behind what was packed, marks nothing.
        let names = match root_names(&mut disk, begin) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            names => names?,
        };
        if names.iter().any(|name| MARKERS.contains(&name.as_str())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A file system of the ext family on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiskFileSystem {
    /// Its first byte on the disk.
    pub(crate) begin: u64,
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// Names in its root.
    pub(crate) names: Vec<String>,
}

/// The file systems of the ext family of a disk that is not compressed, in their order.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn file_systems(path: &Path) -> io::Result<Vec<DiskFileSystem>> {
    let mut disk = PlainDisk { file: File::open(path)? };
    let mut found = Vec::new();
    for begin in partitions(&mut disk)? {
        let superblock = match disk.read(begin + SUPERBLOCK, 1024) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            superblock => superblock?,
        };
        if number(&superblock, 56, 2) != EXT_MAGIC {
            continue;
        }
        let block_bytes = 1024_u64 << number(&superblock, 24, 4).min(6);
        let blocks = number(&superblock, 4, 4);
        let names = root_names(&mut disk, begin)?;
        found.push(DiskFileSystem { begin, bytes: blocks.saturating_mul(block_bytes), names });
    }
    Ok(found)
}

/// Bytes of a disk.
trait DiskBytes {
    /// `length` bytes from `offset` on.
    fn read(&mut self, offset: u64, length: usize) -> io::Result<Vec<u8>>;
}

/// A disk as it is.
struct PlainDisk {
    file: File,
}

impl DiskBytes for PlainDisk {
    fn read(&mut self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// A disk that is compressed.
struct CompressedDisk<'a> {
    path: &'a Path,
}

impl DiskBytes for CompressedDisk<'_> {
    fn read(&mut self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut stream = disk_stream(self.path)?;
        if io::copy(&mut stream.by_ref().take(offset), &mut io::sink())? < offset {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// A number of `length` bytes, the lowest first; zero beyond the end.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let part = bytes.get(at..at + length).unwrap_or_default();
    part.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Where the partitions begin, in bytes; the disk itself where it has no table.
fn partitions(disk: &mut impl DiskBytes) -> io::Result<Vec<u64>> {
    let begin = disk.read(0, 1024)?;
    let starts: Vec<u64> = if begin[512..520] == *b"EFI PART" {
        let (table, count) = (number(&begin, 512 + 72, 8), index(number(&begin, 512 + 80, 4)));
        let size = index(number(&begin, 512 + 84, 4)).clamp(128, 4096);
        let entries = disk.read(table.saturating_mul(SECTOR), size * count.min(MAX_PARTITIONS))?;
        entries.chunks(size).map(|entry| number(entry, 32, 8)).collect()
    } else {
        (0..4).map(|at| number(&begin, 446 + at * 16 + 8, 4)).collect()
    };
    let mut offsets: Vec<u64> = starts
        .into_iter()
        .filter(|start| *start > 0)
        .map(|start| start.saturating_mul(SECTOR))
        .collect();
    offsets.sort_unstable();
    if offsets.is_empty() {
        offsets.push(0);
    }
    Ok(offsets)
}

/// Names in the root of the ext file system at `begin`; none where there is no such file system.
fn root_names(disk: &mut impl DiskBytes, begin: u64) -> io::Result<Vec<String>> {
    let superblock = disk.read(begin + SUPERBLOCK, 1024)?;
    if number(&superblock, 56, 2) != EXT_MAGIC {
        return Ok(Vec::new());
    }
    let block_bytes = 1024_u64 << number(&superblock, 24, 4).min(6);
    let inode_bytes = match number(&superblock, 76, 4) {
        0 => 128,
        _ => number(&superblock, 88, 2).clamp(128, 4096),
    };
    // The table of group descriptors is in the block behind the superblock's.
    let table = begin + (number(&superblock, 20, 4) + 1) * block_bytes;
    let group = disk.read(table, 64)?;
    let is_wide = number(&superblock, 96, 4) & 0x80 != 0;
    let high = if is_wide { number(&group, 40, 4) << 32 } else { 0 };
    let inodes = begin + (number(&group, 8, 4) | high).saturating_mul(block_bytes);
    // The root is inode 2, and the first one is 1.
    let inode = disk.read(inodes + inode_bytes, index(inode_bytes))?;
    let mut names = Vec::new();
    for block in folder_blocks(&inode).into_iter().take(MAX_FOLDER_BLOCKS) {
        let bytes = disk.read(begin + block.saturating_mul(block_bytes), index(block_bytes))?;
        names.extend(folder_names(&bytes));
    }
    Ok(names)
}

/// Blocks of a folder: of its extents where they are in the inode itself, else its direct blocks.
fn folder_blocks(inode: &[u8]) -> Vec<u64> {
    let map = inode.get(40..100).unwrap_or_default();
    if number(inode, 32, 4) & EXTENTS == 0 {
        return (0..12).map(|at| number(map, at * 4, 4)).filter(|block| *block > 0).collect();
    }
    // A root with so many names that its extents need a tree has been seen nowhere.
    if number(map, 6, 2) != 0 {
        return Vec::new();
    }
    let extents = map[12..].chunks(12).take(index(number(map, 2, 2)));
    extents
        .flat_map(|extent| {
            let first = number(extent, 6, 2) << 32 | number(extent, 8, 4);
            first..first + number(extent, 4, 2).min(MAX_FOLDER_BLOCKS as u64)
        })
        .collect()
}

/// Names of a block of a folder: inode, length of the entry, length of the name, type, name.
fn folder_names(block: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let mut at = 0;
    while at + 8 <= block.len() {
        let length = index(number(block, at + 4, 2));
        if length < 8 {
            break;
        }
        let name = block.get(at + 8..at + 8 + index(number(block, at + 6, 1))).unwrap_or_default();
        if number(block, at, 4) > 0 {
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        at += length;
    }
    names
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;
    use crate::gzip::{DEFAULT_LEVEL, ParallelGzip};

    /// A file system that mke2fs made of a folder, at one mebibyte of a disk with a table.
    fn disk_image(options: &[&str], folders: &[&str]) -> Option<tempfile::TempPath> {
        let folder = tempfile::tempdir().unwrap();
        for name in folders {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let image = tempfile::NamedTempFile::new().unwrap();
        let mut mke2fs = Command::new("/sbin/mke2fs");
        mke2fs.args(["-q", "-F", "-E", "root_owner=0:0"]).args(options);
        mke2fs.arg("-d").arg(folder.path()).arg(image.path()).arg("20M");
        if !mke2fs.status().is_ok_and(|status| status.success()) {
            test_report::skip("mke2fs", "mke2fs is not installed");
            return None;
        }
        let mut disk = vec![0; 1 << 20];
        disk[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
        disk[510..512].copy_from_slice(&[0x55, 0xAA]);
        disk.extend(fs::read(image.path()).unwrap());
        assert!(is_disk(&disk));
        let target = tempfile::NamedTempFile::new().unwrap();
        let mut gzip = ParallelGzip::new(target.reopen().unwrap(), 2, DEFAULT_LEVEL).unwrap();
        io::Write::write_all(&mut gzip, &disk).unwrap();
        gzip.finish().unwrap();
        Some(target.into_temp_path())
    }

    #[test]
    fn the_marker_is_found_in_file_systems_of_mke2fs() {
        for options in [
            vec!["-t", "ext4"],
            vec!["-t", "ext4", "-b", "4096", "-O", "64bit"],
            vec!["-t", "ext2"],
            vec!["-t", "ext4", "-I", "128", "-O", "^64bit"],
        ] {
            let Some(with) = disk_image(&options, &["etc", "curtin", "usr"]) else { return };
            assert!(has_root_marker(&with).unwrap(), "{options:?}");
            let Some(without) = disk_image(&options, &["etc", "curtin-old", "usr"]) else { return };
            assert!(!has_root_marker(&without).unwrap(), "{options:?}");
        }
    }

    #[test]
    fn what_is_no_disk_marks_nothing() {
        assert!(!is_disk(b"short"));
        assert!(!is_disk(&[0; 1024]));
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut gzip = ParallelGzip::new(file.reopen().unwrap(), 1, DEFAULT_LEVEL).unwrap();
        io::Write::write_all(&mut gzip, &[0x55; 4096]).unwrap();
        gzip.finish().unwrap();
        assert!(!has_root_marker(file.path()).unwrap());
    }
}
