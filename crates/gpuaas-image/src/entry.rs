//! What an archive holds: one entry for each name of a tree.

/// A name of a tree with everything that a deployed host has to get back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveEntry {
    /// Path below the root without `./` before it; empty for the root itself. Bytes, because Linux
    /// asks for no encoding.
    pub path: Vec<u8>,
    /// What is there.
    pub kind: EntryKind,
    /// Permissions with setuid, setgid and the sticky bit (`0o7777`).
    pub mode: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Seconds since 1970 that the content was changed; dpkg and tar keep no fractions.
    pub mtime_seconds: i64,
    /// Extended attributes by name, file capabilities (`security.capability`) among them.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What an [`ArchiveEntry`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A folder.
    Directory,
    /// A file with its content behind the entry.
    File {
        /// Length of the content in bytes.
        size_bytes: u64,
    },
    /// A symbolic link.
    Symlink {
        /// What the link says, as it is.
        target: Vec<u8>,
    },
    /// A further name of a file that the archive has before.
    HardLink {
        /// Path of the first name, as [`ArchiveEntry::path`].
        target: Vec<u8>,
    },
    /// A character device.
    CharacterDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
}

/// Number of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Number of its driver.
    pub major: u32,
    /// Number within its driver.
    pub minor: u32,
}

impl EntryKind {
    /// Length of the content behind the entry, in bytes.
    #[must_use]
    pub const fn content_bytes(&self) -> u64 {
        match self {
            Self::File { size_bytes } => *size_bytes,
            _ => 0,
        }
    }
}
