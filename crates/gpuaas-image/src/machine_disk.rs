//! A disk that firmware boots, from a tree: an EFI system partition, and a root.
//!
//! The tree gets its fstab and its initial file system (`assets/machine-disk-prepare.sh`), and is put on a
//! disk. That is booted with the tree's own kernel in an emulated machine (TCG: no processor feature of this
//! one is needed), whose first process installs the boot loader there (`assets/machine-disk-install.sh`).

mod disk;
mod machine;

pub(crate) use disk::{MachineDisk, MachineDiskRequest, TOOLS, kernels_of};
pub(crate) use machine::{Firmware, tail};
