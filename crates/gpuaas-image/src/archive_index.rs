//! What a finished archive holds, read once from its first byte to its last.
//!
//! The names with their owners and modes are held, and the contents of the few files that rules
//! read; nothing else, so an image of any size takes some tens of MiB. The archive is read by the
//! tar crate and miniz, which share no code with what packs an image.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};

use crate::entry::DeviceNumber;
use crate::gzip_stream::GzipStream;

/// Longest content of a file that is kept, in bytes; dpkg's status is the longest, 4 MiB of a host
/// with 3,000 packages.
const MAX_CONTENT_BYTES: u64 = 16 << 20;
/// Longest file that is searched for a private key, in bytes.
const MAX_KEY_FILE_BYTES: u64 = 64 << 10;

/// Files whose content rules read; a folder ends with a slash.
const CONTENTS: &[&str] = &[
    "boot/grub/device.map",
    "boot/loader/entries/",
    "curtin/",
    "etc/apt/",
    "etc/cloud/",
    "etc/crypttab",
    "etc/default/grub",
    "etc/default/grub.d/",
    "etc/dracut.conf",
    "etc/dracut.conf.d/",
    "etc/environment",
    "etc/fstab",
    "etc/gpuaas/",
    "etc/hostname",
    "etc/initramfs-tools/conf.d/",
    "etc/initramfs-tools/initramfs.conf",
    "etc/iscsi/initiatorname.iscsi",
    "etc/kernel/",
    "etc/lvm/",
    "etc/machine-id",
    "etc/mdadm.conf",
    "etc/mdadm.conf.d/",
    "etc/mdadm/",
    "etc/modprobe.d/",
    "etc/multipath/",
    "etc/network/",
    "etc/nvme/",
    "etc/os-release",
    "etc/profile.d/",
    "etc/resolv.conf",
    "etc/shadow",
    "etc/ssh/sshd_config",
    "etc/systemd/",
    "etc/wireguard/",
    "usr/lib/os-release",
    "usr/local/lib/systemd/system/",
    "var/cache/debconf/",
    "var/lib/dbus/machine-id",
    "var/lib/dpkg/diversions",
    "var/lib/dpkg/info/cloud-init.postinst",
    "var/lib/dpkg/info/iputils-ping.postinst",
    "var/lib/dpkg/info/mtr-tiny.postinst",
    "var/lib/dpkg/status",
];

/// Folders whose small files are searched for private keys.
const KEY_FOLDERS: &[&str] = &["etc/", "home/", "opt/", "root/", "srv/", "usr/local/", "var/lib/"];

/// A name of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedEntry {
    /// What is there.
    pub kind: IndexedKind,
    /// Permissions with setuid, setgid and the sticky bit.
    pub mode: u32,
    /// Numeric owner.
    pub uid: u64,
    /// Length of the content in bytes.
    pub size_bytes: u64,
    /// Names of its extended attributes.
    pub xattrs: Vec<String>,
    /// Its content, where rules read it.
    pub content: Option<String>,
    /// Whether its content has a private key in PEM.
    pub has_private_key: bool,
}

/// What an [`IndexedEntry`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexedKind {
    /// A folder.
    Directory,
    /// A file.
    File,
    /// A symbolic link with what it says.
    Symlink(String),
    /// A further name of the file at a path.
    HardLink(String),
    /// A character device.
    CharacterDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A kind of entry that a root file system does not have.
    Other,
}

/// What is wrong with a name of an archive by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameFault {
    /// It is absolute, or leaves the root.
    Outside,
    /// The archive has had it before.
    Twice,
    /// A hard link to a name that the archive has not had before.
    LinkWithoutFile,
}

/// Why an archive cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveReadError {
    /// It is no gzip, it is no tar, it is cut off, or its checksum is wrong.
    #[error("{0}")]
    Damaged(String),
    /// The file itself cannot be read.
    #[error("{0}")]
    Unreadable(io::Error),
}

impl From<io::Error> for ArchiveReadError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
        match error.kind() {
            // What gzip's and tar's readers say of bytes that they do not understand.
            InvalidData | InvalidInput | Other | UnexpectedEof => Self::Damaged(error.to_string()),
            _ => Self::Unreadable(error),
        }
    }
}

/// The names of an archive.
#[derive(Debug, Default)]
pub struct ArchiveIndex {
    entries: BTreeMap<String, IndexedEntry>,
    faults: Vec<(NameFault, String)>,
    tree_bytes: u64,
}

impl ArchiveIndex {
    /// Reads a `tgz`.
    ///
    /// # Errors
    /// [`ArchiveReadError`].
    pub fn read(input: impl Read) -> Result<Self, ArchiveReadError> {
        let gzip = GzipStream::new(input);
        let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 18, gzip));
        let mut index = Self::default();
        for entry in archive.entries()? {
            index.add(entry?)?;
        }
        // To the last member, whose checksum nobody has looked at yet.
        io::copy(&mut archive.into_inner(), &mut io::sink())?;
        if index.entries.is_empty() {
            return Err(ArchiveReadError::Damaged("the archive has no entries".to_owned()));
        }
        Ok(index)
    }

    /// The entry at `path`, which has no `./` before it; the root's is empty.
    #[must_use]
    pub fn entry(&self, path: &str) -> Option<&IndexedEntry> {
        self.entries.get(path)
    }

    /// Every entry below `folder`, which ends with a slash, by path.
    pub fn below<'a>(
        &'a self,
        folder: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a IndexedEntry)> {
        self.entries
            .range(folder.to_owned()..)
            .take_while(move |(path, _)| path.starts_with(folder))
            .filter(move |(path, _)| path.len() > folder.len())
            .map(|(path, entry)| (path.as_str(), entry))
    }

    /// Every entry, by path.
    pub fn all(&self) -> impl Iterator<Item = (&str, &IndexedEntry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// The content of the file at `path`, where rules read it.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.entry(path)?.content.as_deref()
    }

    /// Names that are wrong by themselves, with their paths.
    #[must_use]
    pub fn faults(&self) -> &[(NameFault, String)] {
        &self.faults
    }

    /// Content of all files in bytes, one with several names counted once.
    #[must_use]
    pub const fn tree_bytes(&self) -> u64 {
        self.tree_bytes
    }

    fn add(&mut self, mut entry: tar::Entry<'_, impl Read>) -> io::Result<()> {
        let raw = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let mut path = cleaned(&raw);
        if raw.starts_with('/') || path.split('/').any(|part| part == "..") {
            self.faults.push((NameFault::Outside, raw));
            return Ok(());
        }
        let mut indexed = IndexedEntry {
            kind: kind(&entry)?,
            mode: entry.header().mode()? & 0o7777,
            uid: entry.header().uid()?,
            size_bytes: entry.size(),
            xattrs: Vec::new(),
            content: None,
            has_private_key: false,
        };
        for extension in entry.pax_extensions()?.into_iter().flatten() {
            let extension = extension?;
            let key = String::from_utf8_lossy(extension.key_bytes()).into_owned();
            if let Some(name) = key.strip_prefix("SCHILY.xattr.") {
                indexed.xattrs.push(name.to_owned());
            } else if key == "uid" {
                let value = String::from_utf8_lossy(extension.value_bytes()).into_owned();
                indexed.uid =
                    value.parse().map_err(|_| io::Error::other("an owner is not a number"))?;
            } else if key == "GNU.sparse.name" {
                // A file with holes, as GNU tar writes it: its header has another name.
                path = cleaned(&String::from_utf8_lossy(extension.value_bytes()));
            } else if ["GNU.sparse.realsize", "GNU.sparse.size"].contains(&key.as_str()) {
                let value = String::from_utf8_lossy(extension.value_bytes()).into_owned();
                indexed.size_bytes =
                    value.parse().map_err(|_| io::Error::other("a size is not a number"))?;
            }
        }
        match &indexed.kind {
            IndexedKind::HardLink(target) if !self.entries.contains_key(target) => {
                self.faults.push((NameFault::LinkWithoutFile, path.clone()));
            }
            IndexedKind::File => {
                self.tree_bytes += indexed.size_bytes;
                read_content(&path, &mut entry, &mut indexed)?;
            }
            _ => {}
        }
        if self.entries.insert(path.clone(), indexed).is_some() {
            self.faults.push((NameFault::Twice, path));
        }
        Ok(())
    }
}

/// The path without `./` before it, double slashes and a slash behind it.
fn cleaned(raw: &str) -> String {
    let parts: Vec<&str> = raw.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    parts.join("/")
}

fn kind(entry: &tar::Entry<'_, impl Read>) -> io::Result<IndexedKind> {
    let link = || {
        let bytes = entry.link_name_bytes().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let device = || -> io::Result<DeviceNumber> {
        let header = entry.header();
        Ok(DeviceNumber {
            major: header.device_major()?.unwrap_or_default(),
            minor: header.device_minor()?.unwrap_or_default(),
        })
    };
    use tar::EntryType::{
        Block, Char, Continuous, Directory, Fifo, GNUSparse, Link, Regular, Symlink,
    };
    Ok(match entry.header().entry_type() {
        Directory => IndexedKind::Directory,
        Regular | Continuous | GNUSparse => IndexedKind::File,
        Symlink => IndexedKind::Symlink(link()),
        Link => IndexedKind::HardLink(cleaned(&link())),
        Char => IndexedKind::CharacterDevice(device()?),
        Block => IndexedKind::BlockDevice(device()?),
        Fifo => IndexedKind::Fifo,
        _ => IndexedKind::Other,
    })
}

/// Reads the content of a file as far as rules want it.
fn read_content(path: &str, content: &mut impl Read, indexed: &mut IndexedEntry) -> io::Result<()> {
    let is_wanted = is_listed(CONTENTS, path) && indexed.size_bytes <= MAX_CONTENT_BYTES;
    let may_be_key = is_listed(KEY_FOLDERS, path) && indexed.size_bytes <= MAX_KEY_FILE_BYTES;
    if !is_wanted && !may_be_key {
        return Ok(());
    }
    let mut bytes = Vec::new();
    content.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let is_key = |line: &str| line.starts_with("-----BEGIN ") && line.ends_with("PRIVATE KEY-----");
    indexed.has_private_key = may_be_key && text.lines().any(|line| is_key(line.trim()));
    indexed.content = is_wanted.then(|| text.into_owned());
    Ok(())
}

fn is_listed(list: &[&str], path: &str) -> bool {
    let listed = |name: &&str| path == *name || name.ends_with('/') && path.starts_with(*name);
    list.iter().any(listed)
}
