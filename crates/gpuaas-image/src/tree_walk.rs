//! A folder as the entries of an archive, in an order that does not depend on the file system.
//!
//! Names within a folder come in the order of their bytes, a folder before what is in it. The first
//! name of a file is the file, further ones are hard links to it. What a folder's names are is held
//! for the folders above the current one alone; of files with several names an inode is remembered
//! until all its names were seen, so memory does not grow with the tree.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, lgetxattr, llistxattr, major, minor};
use rustix::io::Errno;

use crate::entry::{ArchiveEntry, DeviceNumber, EntryKind};

/// Why a tree cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A name of the tree cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// What cannot be read.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Something else is mounted within the tree.
    #[error("{}: another file system is mounted there", .0.display())]
    MountPoint(PathBuf),
}

impl TreeError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "image_tree_unreadable",
            Self::MountPoint(_) => "image_tree_mounted",
        }
    }

    fn unreadable(path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Unreadable { path: path.to_owned(), error: error.into() }
    }
}

/// A name of the tree.
#[derive(Debug)]
pub struct WalkedEntry {
    /// What the archive has of it.
    pub entry: ArchiveEntry,
    /// Where it is here.
    pub path: PathBuf,
    /// Its content, where it is a file; open, so that it is the one whose size the entry has.
    pub content: Option<File>,
}

/// Names of a folder that are still to come.
struct Folder {
    path: PathBuf,
    archived: Vec<u8>,
    names: std::vec::IntoIter<OsString>,
}

/// The first name of a file, and how many more it has.
struct FirstName {
    archived: Vec<u8>,
    left: u64,
}

/// Reads a tree.
pub struct TreeWalk {
    root: Option<PathBuf>,
    device: u64,
    folders: Vec<Folder>,
    first_names: HashMap<u64, FirstName>,
    sockets: u64,
}

impl TreeWalk {
    /// Begins with `root` itself.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: Some(root.to_owned()),
            device: 0,
            folders: Vec::new(),
            first_names: HashMap::new(),
            sockets: 0,
        }
    }

    /// Sockets that were passed over so far: an archive cannot hold them, and a program makes its
    /// own at its start.
    #[must_use]
    pub const fn sockets(&self) -> u64 {
        self.sockets
    }

    /// The next name; `None` at the end.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn advance(&mut self) -> Result<Option<WalkedEntry>, TreeError> {
        if let Some(root) = self.root.take() {
            // The root may be given as a link; what it points to is the tree.
            let error = |error| TreeError::unreadable(&root, error);
            let root = fs::canonicalize(&root).map_err(error)?;
            let metadata = fs::metadata(&root).map_err(error)?;
            self.device = metadata.dev();
            return self.entry(root, Vec::new(), &metadata);
        }
        while let Some(folder) = self.folders.last_mut() {
            let Some(name) = folder.names.next() else {
                self.folders.pop();
                continue;
            };
            let path = folder.path.join(&name);
            let archived = join(&folder.archived, name.as_bytes());
            let metadata =
                fs::symlink_metadata(&path).map_err(|error| TreeError::unreadable(&path, error))?;
            if metadata.dev() != self.device {
                return Err(TreeError::MountPoint(path));
            }
            if metadata.file_type().is_socket() {
                self.sockets += 1;
                continue;
            }
            return self.entry(path, archived, &metadata);
        }
        Ok(None)
    }

    fn entry(
        &mut self,
        path: PathBuf,
        archived: Vec<u8>,
        metadata: &Metadata,
    ) -> Result<Option<WalkedEntry>, TreeError> {
        let unreadable = |error| TreeError::unreadable(&path, error);
        let mut content = None;
        let mut metadata = metadata.clone();
        if metadata.is_dir() {
            let mut names = fs::read_dir(&path)
                .and_then(|read| {
                    read.map(|name| Ok(name?.file_name())).collect::<Result<Vec<_>, _>>()
                })
                .map_err(unreadable)?;
            names.sort();
            let names = names.into_iter();
            self.folders.push(Folder { path: path.clone(), archived: archived.clone(), names });
        }
        let first_name = self.first_name(&metadata, &archived);
        if metadata.is_file() && first_name.is_none() {
            let mut options = OpenOptions::new();
            // A name that became a link or a pipe meanwhile is neither followed nor waited for.
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
            options.read(true).custom_flags(flags.bits().cast_signed());
            let file = options.open(&path).map_err(unreadable)?;
            metadata = file.metadata().map_err(unreadable)?;
            content = Some(file);
        }
        let kind = match first_name {
            Some(target) => EntryKind::HardLink { target },
            None => kind(&path, &metadata)?,
        };
        let is_link = matches!(kind, EntryKind::HardLink { .. });
        let xattrs = if is_link { Vec::new() } else { xattrs(&path).map_err(unreadable)? };
        let entry = ArchiveEntry {
            path: archived,
            kind,
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            mtime_seconds: metadata.mtime(),
            xattrs,
        };
        Ok(Some(WalkedEntry { entry, path, content }))
    }

    /// The first name of what `metadata` is about, where this is a further one.
    fn first_name(&mut self, metadata: &Metadata, archived: &[u8]) -> Option<Vec<u8>> {
        if metadata.is_dir() || metadata.nlink() < 2 {
            return None;
        }
        let inode = metadata.ino();
        match self.first_names.get_mut(&inode) {
            None => {
                let left = metadata.nlink() - 1;
                self.first_names.insert(inode, FirstName { archived: archived.to_vec(), left });
                None
            }
            Some(first) => {
                first.left = first.left.saturating_sub(1);
                let name = first.archived.clone();
                if first.left == 0 {
                    self.first_names.remove(&inode);
                }
                Some(name)
            }
        }
    }
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() {
        return name.to_vec();
    }
    [folder, b"/".as_slice(), name].concat()
}

fn kind(path: &Path, metadata: &Metadata) -> Result<EntryKind, TreeError> {
    let file_type = metadata.file_type();
    let device = || {
        let number = metadata.rdev();
        DeviceNumber { major: major(number), minor: minor(number) }
    };
    Ok(if file_type.is_dir() {
        EntryKind::Directory
    } else if file_type.is_symlink() {
        let target = fs::read_link(path).map_err(|error| TreeError::unreadable(path, error))?;
        EntryKind::Symlink { target: target.into_os_string().into_vec() }
    } else if file_type.is_char_device() {
        EntryKind::CharacterDevice(device())
    } else if file_type.is_block_device() {
        EntryKind::BlockDevice(device())
    } else if file_type.is_fifo() {
        EntryKind::Fifo
    } else if file_type.is_file() {
        EntryKind::File { size_bytes: metadata.len() }
    } else {
        let error = io::Error::other("an archive cannot store a file of this type");
        return Err(TreeError::unreadable(path, error));
    })
}

/// Extended attributes by name; none where the file system has none.
fn xattrs(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let names = match grown(|buffer| llistxattr(path, buffer)) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut all = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        match grown(|buffer| lgetxattr(path, OsStr::from_bytes(name), buffer)) {
            Ok(value) => all.push((name.to_vec(), value)),
            // It was taken away between the two calls.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    all.sort();
    Ok(all)
}

/// What `read` writes into a buffer that is large enough; the kernel's limit is 64 KiB.
fn grown(read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 256];
    loop {
        match read(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < 1 << 17 => buffer.resize(buffer.len() * 4, 0),
            Err(error) => return Err(error),
        }
    }
}
