//! A whole disk in the place of an archive, which is made on request alone.
//!
//! What MAAS gives up with it is in the plan. The tree was judged as an archive; on the disk it has its own
//! fstab and boot loader, and an empty folder `/curtin`, by which curtin finds the root: our hook there pins a
//! kernel and calls curtin's own steps, for roots that curtin has unpacked.

use std::fs;
use std::path::Path;

use super::error::BuildError;
use super::record::CURTIN_HOOK;
use crate::command::{ToolError, need_root_and};
use crate::disk_type::{DiskPackError, DiskType, PackedDisk};
use crate::lint::{ImageFileType, LintOptions, lint};
use crate::machine_disk::{self, Firmware, MachineDisk, MachineDiskRequest, kernels_of};
use crate::tree_path::below;

/// Whether this host can make one.
///
/// # Errors
/// [`BuildError::Tool`]: a program is missing, or who builds is not root.
pub(super) fn check_host(kind: DiskType) -> Result<(), BuildError> {
    need_root_and(&machine_disk::TOOLS)?;
    Firmware::find()?;
    kind.check_host()?;
    Ok(())
}

/// Makes a disk of a tree, which is of no further use, and packs it.
///
/// # Errors
/// [`BuildError`]; the target is as it was then.
pub(super) fn make_whole_disk(
    kind: DiskType,
    tree: &Path,
    scratch: &Path,
    target: &Path,
) -> Result<PackedDisk, BuildError> {
    fs::remove_file(below(tree, CURTIN_HOOK)?)?;
    let kernel = kernels_of(tree)?.pop();
    let kernel =
        kernel.ok_or_else(|| BuildError::Faulty(vec!["kernel_missing /boot".to_owned()]))?;
    let disk =
        MachineDisk::make(MachineDiskRequest { scratch, tree, kernel, grub_defaults: None })?;
    disk.install_boot_loader(&Firmware::find()?, true).map_err(|error| ToolError::Step {
        step: "install the boot loader",
        output: error.to_string(),
    })?;
    let packed = kind.pack(disk.path(), target)?;
    let options = LintOptions {
        file_type: ImageFileType::Disk(kind),
        storage_layout: "blank".to_owned(),
        ..LintOptions::default()
    };
    match lint(target, &options)?.findings.first() {
        None => Ok(packed),
        Some(found) => Err(BuildError::Faulty(vec![found.rule.code.to_owned()])),
    }
}

impl From<DiskPackError> for BuildError {
    fn from(error: DiskPackError) -> Self {
        match error {
            DiskPackError::Tool(error) => Self::Tool(error),
            DiskPackError::Pack(error) => Self::Pack(error),
        }
    }
}
