//! A tree as a `tgz`: walked, archived, compressed and hashed in one pass.
//!
//! Nothing is written in between, and memory does not grow with the tree: some 20 MiB with two
//! threads, 64 MiB with the most. The same tree gives the same bytes for any number of threads.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::entry::EntryKind;
use crate::gzip::{DEFAULT_LEVEL, ParallelGzip};
use crate::tar_writer::{TarWriteError, TarWriter};
use crate::tree_walk::{TreeError, TreeWalk};

/// How a tree is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackOptions {
    /// Threads that compress. They change how long it takes, and no byte.
    pub threads: usize,
    /// libdeflate's level, 0 to 12. Another one gives other bytes.
    pub level: i32,
    /// Files that were changed later than this, in seconds since 1970, get this time; so that two
    /// builds of the same inputs are equal.
    pub newest_mtime_seconds: Option<i64>,
}

impl PackOptions {
    /// As many threads as this machine has cores, gzip's own level, times as they are.
    #[must_use]
    pub fn for_this_machine() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads, level: DEFAULT_LEVEL, newest_mtime_seconds: None }
    }
}

/// What was packed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackSummary {
    /// Names of the tree, its root among them.
    pub entries: u64,
    /// Sockets that were left out.
    pub sockets: u64,
    /// Content of all files in bytes, one with several names counted once.
    pub tree_bytes: u64,
    /// Length of the archive before it was compressed, in bytes.
    pub tar_bytes: u64,
    /// Length of the `tgz` in bytes.
    pub tgz_bytes: u64,
    /// SHA-256 of the `tgz`, in hex digits.
    pub sha256: String,
}

/// Why a tree was not packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The tree cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A name of the tree could not be archived.
    #[error("{}: {error}", path.display())]
    Entry {
        /// The name that was at hand.
        path: PathBuf,
        /// Why the entry could not be written.
        error: TarWriteError,
    },
    /// The archive could not be written.
    #[error("cannot write the archive: {0}")]
    Output(#[from] io::Error),
}

impl PackError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Tree(error) => error.code(),
            Self::Entry { error: TarWriteError::Output(_), .. } | Self::Output(_) => {
                "image_unwritable"
            }
            Self::Entry { error: TarWriteError::Changed, .. } => "image_tree_changed",
            Self::Entry { error: TarWriteError::Unrepresentable(_), .. } => "image_entry_unfit",
            Self::Entry { error: TarWriteError::Content(_), .. } => "image_tree_unreadable",
        }
    }

    /// What the reader does next.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Tree(TreeError::MountPoint(_)) => "unmount it, or pack a tree without mounts",
            Self::Tree(_) | Self::Entry { error: TarWriteError::Content(_), .. } => {
                "pack as root, and check the disk of the tree for errors"
            }
            Self::Entry { error: TarWriteError::Changed, .. } => {
                "stop everything that runs in the tree, then pack it again"
            }
            Self::Entry { error: TarWriteError::Unrepresentable(_), .. } => {
                "rename it, or remove it from the tree"
            }
            Self::Entry { .. } | Self::Output(_) => "free up space, or choose another folder",
        }
    }
}

/// Writes the tree below `root` to `output`.
///
/// # Errors
/// [`PackError`]; what was written is of no use then.
pub fn pack<W: Write>(
    root: &Path,
    output: W,
    options: &PackOptions,
) -> Result<(W, PackSummary), PackError> {
    let gzip = ParallelGzip::new(output, options.threads, options.level)?;
    let mut tar = TarWriter::new(gzip);
    let mut walk = TreeWalk::new(root);
    let mut summary = PackSummary::default();
    while let Some(mut walked) = walk.advance()? {
        if let Some(newest) = options.newest_mtime_seconds {
            walked.entry.mtime_seconds = walked.entry.mtime_seconds.min(newest);
        }
        summary.entries += 1;
        if let EntryKind::File { size_bytes } = walked.entry.kind {
            summary.tree_bytes += size_bytes;
        }
        let appended = match &mut walked.content {
            Some(file) => tar.append(&walked.entry, file),
            None => tar.append(&walked.entry, &mut io::empty()),
        };
        appended.map_err(|error| PackError::Entry { path: walked.path, error })?;
    }
    summary.sockets = walk.sockets();
    let end = |error| PackError::Entry { path: root.to_owned(), error };
    let tar_bytes = tar.written_bytes();
    let (output, written) = tar.finish().map_err(end)?.finish()?;
    summary.tar_bytes = tar_bytes + 1024;
    summary.tgz_bytes = written.written_bytes;
    summary.sha256 = written.sha256;
    Ok((output, summary))
}

/// Writes the tree below `root` to the file `target`, which is complete or not there: it gets its
/// name when all of it is on the disk.
///
/// # Errors
/// [`PackError`]; `target` is as it was then.
pub fn pack_to_file(
    root: &Path,
    target: &Path,
    options: &PackOptions,
) -> Result<PackSummary, PackError> {
    let (file, summary) = pack(root, staged(target)?, options)?;
    file.as_file().sync_all()?;
    file.persist(target).map_err(|error| error.error)?;
    Ok(summary)
}

/// A file beside `target`, which gets its name when it is complete.
pub(crate) fn staged(target: &Path) -> io::Result<NamedTempFile> {
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let permissions = Permissions::from_mode(0o644);
    tempfile::Builder::new().prefix(".image-").permissions(permissions).tempfile_in(folder)
}
