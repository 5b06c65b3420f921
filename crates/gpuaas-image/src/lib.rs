//! Host images for MAAS: what a root file system becomes before a region is given it.
//!
//! - [`pack`]: a tree as a `tgz`, in one pass, the same bytes for any number of threads.
//! - [`lint`]: a finished archive against what curtin and MAAS do with it; [`lint_benchmark`] plants
//!   faults to see whether that is noticed.
//! - [`plan`]: what a pipeline would do, from a [`recipe`] and the [`overrides`] of an operator.
//! - [`build`]: that, done: packages, files, bundles, one archive.
//! - [`boot_test`]: a finished archive, booted as a container and as a machine.
//!
//! The crate knows no control plane, no MAAS client and no runtime: an image is files and bytes.
//! Modules from the bottom up: [`entry`] is what an archive holds, [`tar_writer`] writes it as a
//! PAX archive, [`gzip`] compresses on all cores, [`tree_walk`] reads a folder.

pub mod archive_index;
pub mod boot_test;
pub mod build;
mod command;
mod disk_image;
pub mod disk_type;
pub mod entry;
pub mod gzip;
mod gzip_stream;
pub mod inventory;
pub mod lineage;
pub mod lint;
pub mod lint_benchmark;
mod machine_disk;
pub mod overrides;
pub mod pack;
pub mod package_archives;
pub mod plan;
pub mod recipe;
pub mod signed_repository;
pub mod size;
mod stream_digest;
pub mod tar_writer;
#[cfg(test)]
mod tests;
mod tree_path;
pub mod tree_walk;

pub use command::ToolError;
