//! A small root file system in memory.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use crate::entry::{ArchiveEntry, EntryKind};
use crate::gzip::{DEFAULT_LEVEL, ParallelGzip};
use crate::tar_writer::TarWriter;

/// Where packages are listed.
const STATUS: &str = "var/lib/dpkg/status";

/// A root file system.
#[derive(Debug, Clone, Default)]
pub struct SampleImage {
    nodes: BTreeMap<String, (ArchiveEntry, String)>,
    packages: BTreeMap<String, (String, String)>,
    /// Entries that come behind all others, with their contents.
    appended: Vec<(ArchiveEntry, String)>,
}

impl SampleImage {
    /// A root with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        let mut image = Self::default();
        image.put("", EntryKind::Directory, 0o755, "");
        image
    }

    /// Makes a folder, with those above it.
    pub fn folder(&mut self, path: &str) -> &mut Self {
        if !self.nodes.contains_key(path) {
            self.put(path, EntryKind::Directory, 0o755, "");
        }
        self
    }

    /// Makes a file with mode 0644, with the folders above it; one that is there is replaced.
    pub fn file(&mut self, path: &str, content: &str) -> &mut Self {
        let kind = EntryKind::File { size_bytes: content.len() as u64 };
        self.put(path, kind, 0o644, content)
    }

    /// Makes a program, a file with `mode`.
    pub fn program(&mut self, path: &str, mode: u32) -> &mut Self {
        self.file(path, "ELF").mode(path, mode)
    }

    /// Makes a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> &mut Self {
        let kind = EntryKind::Symlink { target: target.as_bytes().to_vec() };
        self.put(path, kind, 0o777, "")
    }

    /// Makes something of another kind.
    pub fn node(&mut self, path: &str, kind: EntryKind) -> &mut Self {
        self.put(path, kind, 0o600, "")
    }

    /// Sets a mode.
    pub fn mode(&mut self, path: &str, mode: u32) -> &mut Self {
        self.change(path, |entry| entry.mode = mode)
    }

    /// Changes the entry at `path`; nothing where there is none.
    pub fn change(&mut self, path: &str, change: impl FnOnce(&mut ArchiveEntry)) -> &mut Self {
        if let Some((entry, _)) = self.nodes.get_mut(path) {
            change(entry);
        }
        self
    }

    /// Adds an extended attribute.
    pub fn xattr(&mut self, path: &str, name: &str, value: &[u8]) -> &mut Self {
        let xattr = (name.as_bytes().to_vec(), value.to_vec());
        self.change(path, |entry| entry.xattrs.push(xattr))
    }

    /// Takes away what is at `path` and below it.
    pub fn remove(&mut self, path: &str) -> &mut Self {
        let below = format!("{path}/");
        self.nodes.retain(|name, _| name != path && !name.starts_with(&below));
        self
    }

    /// Adds the entry at `path` once more, behind all others.
    pub fn append_again(&mut self, path: &str) -> &mut Self {
        self.appended.extend(self.nodes.get(path).cloned());
        self
    }

    /// Lists packages as installed.
    pub fn packages(&mut self, names: &[&str]) -> &mut Self {
        for name in names {
            self.package(name, "install ok installed");
        }
        self
    }

    /// Lists a package with a status.
    pub fn package(&mut self, name: &str, status: &str) -> &mut Self {
        self.packages.insert(name.to_owned(), (status.to_owned(), "amd64".to_owned()));
        self
    }

    /// Gives every package another architecture.
    pub fn architecture(&mut self, architecture: &str) -> &mut Self {
        self.packages.values_mut().for_each(|package| architecture.clone_into(&mut package.1));
        self
    }

    /// Takes a package off the list.
    pub fn forget_package(&mut self, name: &str) -> &mut Self {
        self.packages.remove(name);
        self
    }

    /// Takes all packages off the list.
    pub fn forget_packages(&mut self) -> &mut Self {
        self.packages.clear();
        self
    }

    /// The image as a `tgz`.
    ///
    /// # Errors
    /// A thread cannot be started; an entry that no archive holds.
    pub fn archive(&self) -> io::Result<Vec<u8>> {
        let mut image = self.clone();
        let mut status = String::new();
        for (name, (state, architecture)) in &self.packages {
            // Writing to a String cannot fail.
            write!(status, "Package: {name}\nStatus: {state}\nArchitecture: {architecture}\n\n")
                .unwrap_or_default();
        }
        image.file(STATUS, &status);
        let mut tar = TarWriter::new(ParallelGzip::new(Vec::new(), 1, DEFAULT_LEVEL)?);
        for (entry, content) in image.nodes.values().chain(&image.appended) {
            tar.append(entry, &mut content.as_bytes()).map_err(io::Error::other)?;
        }
        Ok(tar.finish().map_err(io::Error::other)?.finish()?.0)
    }

    fn put(&mut self, path: &str, kind: EntryKind, mode: u32, content: &str) -> &mut Self {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above);
        }
        let entry = ArchiveEntry {
            path: path.as_bytes().to_vec(),
            kind,
            mode,
            uid: 0,
            gid: 0,
            mtime_seconds: 1_700_000_000,
            xattrs: Vec::new(),
        };
        self.nodes.insert(path.to_owned(), (entry, content.to_owned()));
        self
    }
}
