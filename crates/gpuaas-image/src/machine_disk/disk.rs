//! What a disk is made of, before it has a boot loader.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::command::{Isolation, Tool, ToolError};
use crate::tree_path::below;

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

/// Where the program that installs the boot loader is until it has.
pub(super) const INSTALLER: &str = "/usr/local/sbin/gpuaas-install-boot-loader";
/// Programs that make a disk.
pub(crate) const TOOLS: [&str; 5] =
    ["unshare", "sfdisk", "mkfs.ext4", "mkfs.vfat", "qemu-system-x86_64"];

/// A kernel in `/boot` that has its initial file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BootKernel {
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
}

/// What a disk is made of.
pub(crate) struct MachineDiskRequest<'a> {
    /// Folder for the disk and for what its machines write.
    pub(crate) scratch: &'a Path,
    /// The tree, which is changed as its deployment would.
    pub(crate) tree: &'a Path,
    /// Its one kernel.
    pub(crate) kernel: BootKernel,
    /// Lines for grub's defaults, in the place of the kernel arguments that the tree has there; none: its
    /// own.
    pub(crate) grub_defaults: Option<&'a str>,
}

/// A disk that a machine boots from.
pub(crate) struct MachineDisk {
    /// The disk's file.
    pub(super) path: PathBuf,
    /// Folder for what its machines write.
    pub(super) scratch: PathBuf,
    /// Identifier of the root's file system.
    pub(super) root_uuid: String,
    pub(super) kernel: BootKernel,
}

impl MachineDisk {
    /// The disk's file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a tree on a new disk, which has no boot loader yet.
    ///
    /// # Errors
    /// [`ToolError`]
    pub(crate) fn make(request: MachineDiskRequest<'_>) -> Result<Self, ToolError> {
        let MachineDiskRequest { scratch, tree, kernel, grub_defaults } = request;
        let path = scratch.join("disk");
        let installer = below(tree, INSTALLER)?;
        if let Some(folder) = installer.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&installer, include_str!("../../assets/machine-disk-install.sh"))?;
        fs::set_permissions(&installer, Permissions::from_mode(0o755))?;
        let root_uuid = fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned();
        let esp_uuid = esp_uuid(&root_uuid);
        let prepare =
            Tool::isolated("create the initrd", "sh", Isolation::WithoutNetwork, PREPARE_SECONDS);
        let script = include_str!("../../assets/machine-disk-prepare.sh");
        let prepare = prepare.arg("-c").arg(script).arg("prepare").arg(tree);
        prepare.arg(&root_uuid).arg(&esp_uuid).arg(grub_defaults.unwrap_or_default()).run()?;
        let root_bytes = root_bytes(&usage(tree)?);
        let file = fs::File::create(&path)?;
        file.set_len(ROOT_BEGIN + root_bytes + TABLE_BYTES)?;
        drop(file);
        let table = scratch.join("table");
        fs::write(&table, partition_table(root_bytes))?;
        partition(&path, &table)?;
        // Firmware tells FAT32 by the number of clusters, of which large ones would be too few.
        let esp = Tool::plain("create the EFI system partition", "mkfs.vfat", MAKE_SECONDS);
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
        let root = Tool::plain("create the root file system", "mkfs.ext4", MAKE_SECONDS);
        let root = root.arg("-q").arg("-F").arg("-L").arg("root").arg("-U").arg(&root_uuid);
        let root = root.arg("-E").arg(format!("offset={ROOT_BEGIN},lazy_itable_init=1"));
        let root = root.arg("-d").arg(tree).arg(&path);
        root.arg(format!("{}k", root_bytes / 1024)).run()?;
        Ok(Self { path, scratch: scratch.to_owned(), root_uuid, kernel })
    }
}

/// The kernels of a tree that have an initial file system.
///
/// # Errors
/// `/boot` cannot be read.
pub(crate) fn kernels_of(tree: &Path) -> Result<Vec<BootKernel>, ToolError> {
    let boot = tree.join("boot");
    let mut found = Vec::new();
    for entry in fs::read_dir(&boot)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(version) = name.strip_prefix("vmlinuz-") {
            let initrd = boot.join(format!("initrd.img-{version}"));
            if initrd.is_file() {
                found.push(BootKernel { kernel: boot.join(&name), initrd });
            }
        }
    }
    Ok(found)
}

/// What a tree takes on a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TreeUsage {
    bytes: u64,
    names: u64,
}

fn usage(folder: &Path) -> Result<TreeUsage, ToolError> {
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

fn partition(disk: &Path, table: &Path) -> Result<(), ToolError> {
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
    fn a_kernel_counts_with_its_initial_file_system() {
        let tree = tempfile::tempdir().unwrap();
        let boot = tree.path().join("boot");
        fs::create_dir(&boot).unwrap();
        let write = |name: &str| fs::write(boot.join(name), "x").unwrap();
        write("vmlinuz-1");
        assert_eq!(kernels_of(tree.path()).unwrap(), []);
        write("initrd.img-1");
        let found = kernels_of(tree.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].initrd, boot.join("initrd.img-1"));
        write("vmlinuz-2");
        write("initrd.img-2");
        assert_eq!(kernels_of(tree.path()).unwrap().len(), 2);
        assert!(usage(tree.path()).unwrap().names == 5);
    }
}
