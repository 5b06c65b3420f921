//! A disk with the image on it: an EFI system partition, and a root.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::error::BootTestError;
use crate::command::{Isolation, Tool};

const MIB: u64 = 1 << 20;
/// First byte of the EFI system partition.
const ESP_BEGIN: u64 = MIB;
/// Length of the EFI system partition: the least that FAT32 is made for.
const ESP_BYTES: u64 = 64 * MIB;
/// First byte of the root.
const ROOT_BEGIN: u64 = ESP_BEGIN + ESP_BYTES;
/// Room of the root beside what was unpacked.
const SPARE_BYTES: u64 = 768 * MIB;
/// Room behind the root for the second copy of the partition table.
const TABLE_BYTES: u64 = MIB;
const SECTOR: u64 = 512;
/// Seconds that making the initial file system may take.
const PREPARE_SECONDS: u64 = 900;
/// Seconds that making a file system may take.
const MAKE_SECONDS: u64 = 1800;

/// A disk that a machine boots from.
pub(super) struct MachineDisk {
    /// The disk's file.
    pub(super) path: PathBuf,
    /// Identifier of the root's file system.
    pub(super) root_uuid: String,
    /// The image's kernel.
    pub(super) kernel: PathBuf,
    /// Its initial file system.
    pub(super) initrd: PathBuf,
}

impl MachineDisk {
    /// Puts a tree on a new disk.
    pub(super) fn make(scratch: &Path, tree: &Path) -> Result<Self, BootTestError> {
        let path = scratch.join("disk");
        let (kernel, initrd) = kernel_of(tree)?;
        let root_uuid = fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned();
        let esp_uuid = esp_uuid(&root_uuid);
        let prepare = Tool::isolated(
            "make the initial file system",
            "sh",
            Isolation::WithoutNetwork,
            PREPARE_SECONDS,
        );
        let script = include_str!("../../assets/boot-test-prepare.sh");
        let prepare = prepare.arg("-c").arg(script).arg("prepare").arg(tree);
        prepare.arg(&root_uuid).arg(&esp_uuid).run()?;
        let root_bytes = root_bytes(&usage(tree)?);
        let file = fs::File::create(&path)?;
        file.set_len(ROOT_BEGIN + root_bytes + TABLE_BYTES)?;
        drop(file);
        let table = scratch.join("table");
        fs::write(&table, partition_table(root_bytes))?;
        partition(&path, &table)?;
        // Firmware tells FAT32 by the number of clusters, of which large ones would be too few.
        let esp = Tool::plain("make the EFI system partition", "mkfs.vfat", MAKE_SECONDS);
        let esp = esp
            .arg("-F")
            .arg("32")
            .arg("-s")
            .arg("1")
            .arg("-n")
            .arg("EFI")
            .arg("-i")
            .arg(esp_uuid.replace('-', ""));
        let esp = esp.arg("--offset").arg((ESP_BEGIN / SECTOR).to_string()).arg(&path);
        esp.arg((ESP_BYTES / 1024).to_string()).run()?;
        let root = Tool::plain("make the root file system", "mkfs.ext4", MAKE_SECONDS);
        let root = root.arg("-q").arg("-F").arg("-L").arg("root").arg("-U").arg(&root_uuid);
        let root = root.arg("-E").arg(format!("offset={ROOT_BEGIN},lazy_itable_init=1"));
        let root = root.arg("-d").arg(tree).arg(&path);
        root.arg(format!("{}k", root_bytes / 1024)).run()?;
        Ok(Self { path, root_uuid, kernel, initrd })
    }
}

/// The one kernel with its initial file system.
fn kernel_of(tree: &Path) -> Result<(PathBuf, PathBuf), BootTestError> {
    let boot = tree.join("boot");
    let mut found = Vec::new();
    for entry in fs::read_dir(&boot)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(version) = name.strip_prefix("vmlinuz-") {
            let initrd = boot.join(format!("initrd.img-{version}"));
            if initrd.is_file() {
                found.push((boot.join(&name), initrd));
            }
        }
    }
    match (found.pop(), found.len()) {
        (Some(pair), 0) => Ok(pair),
        (Some(_), others) => Err(BootTestError::Kernels(others + 1)),
        (None, _) => Err(BootTestError::Kernels(0)),
    }
}

/// What a tree takes on a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TreeUsage {
    bytes: u64,
    names: u64,
}

fn usage(folder: &Path) -> Result<TreeUsage, BootTestError> {
    let mut usage = TreeUsage::default();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.metadata()?;
        usage.bytes += found.blocks() * SECTOR;
        usage.names += 1;
        if found.is_dir() {
            let below = self::usage(&entry.path())?;
            usage.bytes += below.bytes;
            usage.names += below.names;
        }
    }
    Ok(usage)
}

/// Length of a root: the tree, an inode for each name with as many again, a twentieth that ext4 keeps, and
/// room to work in.
fn root_bytes(usage: &TreeUsage) -> u64 {
    let content = usage.bytes + usage.bytes / 10 + usage.names * 512;
    (content + SPARE_BYTES).next_multiple_of(MIB)
}

/// The partition table, in the words of sfdisk(8).
fn partition_table(root_bytes: u64) -> String {
    let sectors = |bytes: u64| bytes / SECTOR;
    format!(
        "label: gpt\nstart={}, size={}, type=uefi\nstart={}, size={}, type=linux\n",
        sectors(ESP_BEGIN),
        sectors(ESP_BYTES),
        sectors(ROOT_BEGIN),
        sectors(root_bytes),
    )
}

fn partition(disk: &Path, table: &Path) -> Result<(), BootTestError> {
    let tool = Tool::plain("write the partition table", "sh", MAKE_SECONDS).arg("-c");
    let tool =
        tool.arg("exec sfdisk --quiet --no-reread --no-tell-kernel \"$1\" <\"$2\"").arg("sh");
    tool.arg(disk).arg(table).run()?;
    Ok(())
}

/// Identifier of a FAT, as `/dev/disk/by-uuid` has it, from the first digits of another.
fn esp_uuid(uuid: &str) -> String {
    let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    let digits = digits.to_ascii_uppercase();
    format!("{}-{}", &digits[..4], &digits[4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_lie_behind_each_other_within_the_disk() {
        let table = partition_table(1024 * MIB);
        assert_eq!(
            table,
            "label: gpt\nstart=2048, size=131072, type=uefi\nstart=133120, size=2097152, type=linux\n"
        );
        assert_eq!(esp_uuid("0a1b2c3d-4e5f-6789-0000-000000000000"), "0A1B-2C3D");
        let small = root_bytes(&TreeUsage { bytes: 1, names: 1 });
        assert_eq!(small % MIB, 0);
        assert!(small >= SPARE_BYTES);
        let large = TreeUsage { bytes: 10 * SPARE_BYTES, names: 1_000_000 };
        assert!(root_bytes(&large) > large.bytes + large.names * 256 + SPARE_BYTES);
    }

    #[test]
    fn one_kernel_with_its_initial_file_system_is_wanted() {
        let tree = tempfile::tempdir().unwrap();
        let boot = tree.path().join("boot");
        fs::create_dir(&boot).unwrap();
        let write = |name: &str| fs::write(boot.join(name), "x").unwrap();
        write("vmlinuz-1");
        let error = kernel_of(tree.path()).unwrap_err();
        assert!(error.to_string().contains("0 kernels") && error.hint().contains("image lint"));
        write("initrd.img-1");
        assert_eq!(kernel_of(tree.path()).unwrap().1, boot.join("initrd.img-1"));
        write("vmlinuz-2");
        write("initrd.img-2");
        assert!(kernel_of(tree.path()).unwrap_err().to_string().contains("2 kernels"));
        assert!(usage(tree.path()).unwrap().names == 5);
    }
}
