//! A host's root folder, and how its files are read: bounded, and without errors.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::parse;

/// Largest part of a file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Longest list of facts.
pub(crate) const MAX_ENTRIES: usize = 4096;

/// The folder that is a host's `/`.
#[derive(Debug, Clone)]
pub struct HostRoot {
    root: PathBuf,
    sysfs: Option<PathBuf>,
}

impl HostRoot {
    /// The host whose `/` is the folder `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), sysfs: None }
    }

    /// The same host with its sysfs elsewhere: a host that is real but for its hardware.
    #[must_use]
    pub fn with_sysfs(self, sysfs: impl Into<PathBuf>) -> Self {
        Self { sysfs: Some(sysfs.into()), ..self }
    }

    /// The folder that is the host's `/`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// `path`, an absolute path of the host, as a path of this process.
    ///
    /// ```
    /// let root = host_facts::HostRoot::new("/srv/host").with_sysfs("/sys");
    /// assert_eq!(root.join("/etc/hostname"), std::path::Path::new("/srv/host/etc/hostname"));
    /// assert_eq!(root.join("/sys/class/net"), std::path::Path::new("/sys/class/net"));
    /// ```
    #[must_use]
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        let path = path.strip_prefix("/").unwrap_or(path);
        match (&self.sysfs, path.strip_prefix("sys")) {
            (Some(sysfs), Ok(inside)) => sysfs.join(inside),
            _ => self.root.join(path),
        }
    }

    /// Whether there is a file or folder at `path`, an absolute path of the host.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        !path.split('/').any(|part| part == "..") && self.join(path).exists()
    }

    /// A kernel setting by its dotted name, such as `net.ipv4.ip_forward`.
    #[must_use]
    pub fn sysctl(&self, name: &str) -> Option<String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_/".contains(c);
        if name.contains("..") || name.starts_with('/') || !name.chars().all(plain) {
            return None;
        }
        self.line(format!("proc/sys/{}", name.replace('.', "/")))
    }

    /// The text of a small file at `path`, an absolute path of the host, on one line; `None` where
    /// there is no such file, or it is empty.
    #[must_use]
    pub fn line_of(&self, path: &str) -> Option<String> {
        if path.split('/').any(|part| part == "..") { None } else { self.line(path) }
    }

    /// Whether the file at `path`, an absolute path of the host, has `line`; `None` where there is
    /// no such file.
    ///
    /// ```
    /// let folder = tempfile::tempdir()?;
    /// std::fs::write(folder.path().join("hosts"), "127.0.0.1 localhost\n")?;
    /// let root = host_facts::HostRoot::new(folder.path());
    /// assert_eq!(root.has_line("/hosts", "127.0.0.1 localhost"), Some(true));
    /// assert_eq!(root.has_line("/../hosts", "127.0.0.1 localhost"), None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn has_line(&self, path: &str, line: &str) -> Option<bool> {
        if path.split('/').any(|part| part == "..") {
            return None;
        }
        let text = self.text(path)?;
        Some(text.lines().any(|other| other.trim() == line.trim()))
    }

    /// Content of a regular file, at most 1 MiB of it; bytes that are not UTF-8 are replaced.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let path = self.join(path);
        if !fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Content of a file on one line, cleaned ([`parse::clean`]).
    pub(crate) fn line(&self, path: impl AsRef<Path>) -> Option<String> {
        parse::clean(&self.text(path)?)
    }

    /// Content of a file as a number.
    pub(crate) fn number<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.line(path)?.parse().ok()
    }

    /// Last part of what a symbolic link points to; the target need not exist.
    pub(crate) fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.join(path)).ok()?;
        parse::clean(&target.file_name()?.to_string_lossy())
    }

    /// Sorted names in a folder that are printable text.
    pub(crate) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.join(path)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| !name.chars().any(char::is_control))
            .take(MAX_ENTRIES)
            .collect();
        names.sort();
        names
    }
}
