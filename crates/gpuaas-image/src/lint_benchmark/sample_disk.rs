//! A small disk in memory: a partition table, and an ext2 file system with a root.

use std::io::{self, Write as _};

use crate::gzip::{DEFAULT_LEVEL, ParallelGzip};

/// Where the partition begins, in bytes.
const PARTITION: usize = 1 << 20;
/// Block of the file system, in bytes.
const BLOCK: usize = 1024;
/// Block with the inodes, and the one with the root's names.
const INODES: usize = 5;
const ROOT: usize = 20;

/// A compressed disk whose root has folders with `names`.
///
/// # Errors
/// A thread cannot be started.
pub(super) fn compressed_disk(names: &[&str]) -> io::Result<Vec<u8>> {
    let mut disk = vec![0; PARTITION + 64 * BLOCK];
    let mut put = |at: usize, bytes: &[u8]| disk[at..at + bytes.len()].copy_from_slice(bytes);
    // One entry of the table: its first sector.
    put(446 + 8, &2048_u32.to_le_bytes());
    put(510, &[0x55, 0xAA]);
    let superblock = PARTITION + BLOCK;
    put(superblock + 20, &1_u32.to_le_bytes());
    put(superblock + 56, &0xEF53_u16.to_le_bytes());
    put(superblock + 76, &1_u32.to_le_bytes());
    put(superblock + 88, &128_u16.to_le_bytes());
    put(PARTITION + 2 * BLOCK + 8, &INODES.to_le_bytes()[..4]);
    put(PARTITION + INODES * BLOCK + 128 + 40, &ROOT.to_le_bytes()[..4]);
    let mut at = PARTITION + ROOT * BLOCK;
    for name in names {
        put(at, &11_u32.to_le_bytes());
        put(at + 4, &64_u16.to_le_bytes());
        put(at + 6, &name.len().to_le_bytes()[..1]);
        put(at + 7, &[2]);
        put(at + 8, name.as_bytes());
        at += 64;
    }
    let mut gzip = ParallelGzip::new(Vec::new(), 1, DEFAULT_LEVEL)?;
    gzip.write_all(&disk)?;
    Ok(gzip.finish()?.0)
}
