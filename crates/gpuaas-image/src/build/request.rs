//! What a build is asked for, and what it says.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::disk_type::DiskType;
use crate::signed_repository::SignedRepository;

/// A file of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedFile {
    /// Absolute path in the image.
    pub path: String,
    /// Its content.
    pub content: Vec<u8>,
    /// Permissions, such as `0o644`.
    pub mode: u32,
}

/// What to build.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// Name in MAAS, to which an upload adds the day and the digest.
    pub name: String,
    /// Digest over recipe, overrides, bundles and this program's version
    /// ([`crate::plan::ImagePlan::input_digest`]).
    pub plan_digest: String,
    /// Packages without which there is no image.
    pub required: Vec<String>,
    /// Packages that are recorded where they are missing.
    pub optional: Vec<String>,
    /// Archives of packages beside the base's own.
    pub repositories: Vec<SignedRepository>,
    /// Files that are written, with their values in them.
    pub files: Vec<EmbeddedFile>,
    /// Units that packages enable and that no host starts before a bundle enables them.
    pub disabled_units: Vec<String>,
    /// Files and links of packages that are removed, by absolute path.
    pub removed: Vec<String>,
    /// Bundles, `name@version`.
    pub bundles: Vec<String>,
    /// Arguments of the kernel.
    pub kernel_arguments: Vec<String>,
    /// Hosts of apt sources that a deploy may ask, beside the distribution's own.
    pub allowed_sources: Vec<String>,
    /// The whole disk that is wanted; none: an archive of the root file system.
    pub disk_type: Option<DiskType>,
    /// Largest size of the root file system, in bytes; none: not judged.
    pub most_bytes: Option<u64>,
    /// Folder of layers that are kept.
    pub cache: PathBuf,
    /// The archive or disk to write.
    pub target: PathBuf,
}

/// What was built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildOutcome {
    /// Name in MAAS, to which an upload adds the day and the digest.
    pub name: String,
    /// SHA-256 of the archive or disk, in hex digits.
    pub digest: String,
    /// SHA-256 over what the archive was made of, in hex digits.
    pub input_digest: String,
    /// Length of the archive or disk in bytes.
    pub size_bytes: u64,
    /// Content of all files in bytes.
    pub tree_bytes: u64,
    /// Packages that are installed.
    pub packages: usize,
    /// Optional packages that were not to be had.
    pub optional_missing: Vec<String>,
    /// Version of its kernel; empty where it has none.
    pub kernel: String,
    /// Layers that were there.
    pub reused_layers: u32,
    /// Layers that were made.
    pub built_layers: u32,
}
