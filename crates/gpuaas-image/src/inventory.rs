//! What a finished archive holds, for people and for other images: packages, kernel, files by digest.
//!
//! One pass reads, hashes and lists, so that what is said of an archive is of those very bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::gzip_stream::GzipStream;
use crate::lint::shell_text::assignments;
use crate::plan::BUILD_RECORD;
use crate::stream_digest::stream_digest;

/// Where dpkg lists packages.
const STATUS: &str = "/var/lib/dpkg/status";
/// Files whose content is read, beside the record of the build.
const TEXTS: [&str; 3] = [STATUS, "/etc/os-release", "/usr/lib/os-release"];
/// Longest file whose content is read, in bytes: dpkg's status and the record of the build.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// A package of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InventoryPackage {
    /// Name of the binary package.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its architecture.
    pub architecture: String,
    /// Name of the source package.
    pub source: String,
    /// Version of the source package.
    pub source_version: String,
}

/// What an archive holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageInventory {
    /// SHA-256 of the archive, in hex digits.
    pub sha256: String,
    /// Length of the archive in bytes.
    pub size_bytes: u64,
    /// Content of all files in bytes.
    pub tree_bytes: u64,
    /// Installed packages, by name and architecture.
    pub packages: Vec<InventoryPackage>,
    /// Versions of its kernels.
    pub kernels: Vec<String>,
    /// Fields of its `/etc/os-release`, such as `ID`.
    pub os_release: BTreeMap<String, String>,
    /// The record of its build; `Null` where it has none.
    pub record: Value,
    /// Each name with what is there: kind, mode, owner, and the digest or the target.
    pub files: BTreeMap<String, String>,
}

impl ImageInventory {
    /// Reads an archive from its first byte to its last.
    ///
    /// # Errors
    /// It cannot be read, or is no `tgz`.
    pub fn read(input: impl Read) -> io::Result<Self> {
        let mut hashed = HashedReader { input, hasher: Sha256::new(), bytes: 0 };
        let mut inventory = Self::default();
        {
            let mut archive = tar::Archive::new(GzipStream::new(&mut hashed));
            for entry in archive.entries()? {
                inventory.add(entry?)?;
            }
        }
        // What is behind the archive's end is of the file's digest too.
        io::copy(&mut hashed, &mut io::sink())?;
        inventory.sha256 = hex::encode(hashed.hasher.finalize());
        inventory.size_bytes = hashed.bytes;
        Ok(inventory)
    }

    /// Arguments of the kernel, as the record has them.
    #[must_use]
    pub fn kernel_arguments(&self) -> &str {
        self.record["kernel_arguments"].as_str().unwrap_or_default()
    }

    fn add(&mut self, mut entry: tar::Entry<'_, impl Read>) -> io::Result<()> {
        let raw = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let path = format!("/{}", raw.trim_start_matches("./").trim_matches('/'));
        let header = entry.header();
        let kind = header.entry_type();
        let owner = format!("{:o} {}:{}", header.mode()? & 0o7777, header.uid()?, header.gid()?);
        let target =
            entry.link_name_bytes().map(|name| String::from_utf8_lossy(&name).into_owned());
        let what = if kind.is_file() {
            let size = entry.size();
            self.tree_bytes += size;
            let is_text = TEXTS.contains(&path.as_str()) || path == BUILD_RECORD;
            let digest = if is_text && size <= MAX_TEXT_BYTES {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                self.read_text(&path, &String::from_utf8_lossy(&bytes));
                hex::encode(Sha256::digest(&bytes))
            } else {
                stream_digest(&mut entry)?
            };
            format!("file sha256:{digest}")
        } else {
            let name = match kind {
                tar::EntryType::Directory => "folder",
                tar::EntryType::Symlink => "link",
                tar::EntryType::Link => "hard link",
                tar::EntryType::Char => "character device",
                tar::EntryType::Block => "block device",
                tar::EntryType::Fifo => "pipe",
                _ => "other",
            };
            target.map_or_else(|| name.to_owned(), |target| format!("{name} {target}"))
        };
        if let Some(version) = path.strip_prefix("/boot/vmlinuz-") {
            self.kernels.push(version.to_owned());
        }
        self.files.insert(path, format!("{owner} {what}"));
        Ok(())
    }

    fn read_text(&mut self, path: &str, text: &str) {
        if path == BUILD_RECORD {
            self.record = serde_json::from_str(text).unwrap_or_default();
            return;
        }
        if path != STATUS {
            for one in assignments(text) {
                // What is in /etc counts.
                match path.starts_with("/etc/") {
                    true => drop(self.os_release.insert(one.name, one.value)),
                    false => drop(self.os_release.entry(one.name).or_insert(one.value)),
                }
            }
            return;
        }
        self.packages = text.split("\n\n").filter_map(package).collect();
        self.packages.sort_by(|a, b| (&a.name, &a.architecture).cmp(&(&b.name, &b.architecture)));
    }
}

/// An installed package of dpkg's status.
fn package(paragraph: &str) -> Option<InventoryPackage> {
    let field = |name: &str| {
        let found = paragraph.lines().find_map(|line| line.strip_prefix(name));
        found.and_then(|rest| rest.strip_prefix(':')).map(|value| value.trim().to_owned())
    };
    if !field("Status")?.ends_with(" installed") {
        return None;
    }
    let (name, version) = (field("Package")?, field("Version").unwrap_or_default());
    // `Source: glibc (2.36-9)`, where name or version differ from the binary's.
    let source = field("Source").unwrap_or_else(|| name.clone());
    let (source, source_version) = match source.split_once(" (") {
        Some((source, rest)) => (source.to_owned(), rest.trim_end_matches(')').to_owned()),
        None => (source, version.clone()),
    };
    let architecture = field("Architecture").unwrap_or_default();
    Some(InventoryPackage { name, version, architecture, source, source_version })
}

/// A reader that hashes what passes.
struct HashedReader<R> {
    input: R,
    hasher: Sha256,
    bytes: u64,
}

impl<R: Read> Read for HashedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

/// A package with another version in another image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedPackage {
    /// Name of the package.
    pub name: String,
    /// Version in the first image.
    pub from: String,
    /// Version in the second.
    pub to: String,
}

/// What differs between two images.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImageDiff {
    /// Whether both are the same bytes.
    pub identical: bool,
    /// Packages of the second alone, `name=version`.
    pub added_packages: Vec<String>,
    /// Packages of the first alone, `name=version`.
    pub removed_packages: Vec<String>,
    /// Packages with another version.
    pub changed_packages: Vec<ChangedPackage>,
    /// Kernels of both, where they differ.
    pub kernel: Option<[String; 2]>,
    /// Kernel arguments of both, where they differ.
    pub kernel_arguments: Option<[String; 2]>,
    /// Names of the second alone.
    pub added_files: Vec<String>,
    /// Names of the first alone.
    pub removed_files: Vec<String>,
    /// Names whose content, owner, mode or kind differs.
    pub changed_files: Vec<String>,
    /// Bytes that the second archive is longer; negative where it is shorter.
    pub size_bytes: i64,
    /// Bytes that the second one's files are longer.
    pub tree_bytes: i64,
}

impl ImageDiff {
    /// Compares two images.
    #[must_use]
    pub fn new(first: &ImageInventory, second: &ImageInventory) -> Self {
        let versions = |inventory: &ImageInventory| -> BTreeMap<String, String> {
            let packages = inventory.packages.iter();
            packages
                .map(|one| (format!("{}:{}", one.name, one.architecture), one.version.clone()))
                .collect()
        };
        let (old, new) = (versions(first), versions(second));
        let only = |these: &BTreeMap<String, String>, others: &BTreeMap<String, String>| {
            let missing = these.iter().filter(|(name, _)| !others.contains_key(*name));
            missing.map(|(name, version)| format!("{name}={version}")).collect()
        };
        let changed_packages = old.iter().filter_map(|(name, from)| {
            let to = new.get(name).filter(|to| *to != from)?;
            Some(ChangedPackage { name: name.clone(), from: from.clone(), to: to.clone() })
        });
        let names = |inventory: &ImageInventory| -> BTreeSet<String> {
            inventory.files.keys().cloned().collect()
        };
        let (old_names, new_names) = (names(first), names(second));
        let changed_files = first
            .files
            .iter()
            .filter(|(path, what)| second.files.get(*path).is_some_and(|other| other != *what));
        let both = |a: String, b: String| if a == b { None } else { Some([a, b]) };
        Self {
            identical: first.sha256 == second.sha256,
            added_packages: only(&new, &old),
            removed_packages: only(&old, &new),
            changed_packages: changed_packages.collect(),
            kernel: both(first.kernels.join(" "), second.kernels.join(" ")),
            kernel_arguments: both(
                first.kernel_arguments().to_owned(),
                second.kernel_arguments().to_owned(),
            ),
            added_files: new_names.difference(&old_names).cloned().collect(),
            removed_files: old_names.difference(&new_names).cloned().collect(),
            changed_files: changed_files.map(|(path, _)| path.clone()).collect(),
            size_bytes: difference(first.size_bytes, second.size_bytes),
            tree_bytes: difference(first.tree_bytes, second.tree_bytes),
        }
    }
}

fn difference(from: u64, to: u64) -> i64 {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    signed(to) - signed(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint_benchmark::good_debian_archive;

    #[test]
    fn an_archive_is_listed_with_its_own_digest() {
        let archive = good_debian_archive().unwrap();
        let inventory = ImageInventory::read(archive.as_slice()).unwrap();
        assert_eq!(inventory.sha256, hex::encode(Sha256::digest(&archive)));
        assert_eq!(inventory.size_bytes, archive.len() as u64);
        assert!(inventory.packages.iter().any(|package| package.name == "cloud-init"));
        assert_eq!(inventory.kernels.len(), 1, "{:?}", inventory.kernels);
        assert!(inventory.files["/tmp"].starts_with("1777 0:0 folder"));
        assert!(ImageInventory::read(&b"no archive"[..]).is_err());
        let longer = [archive.as_slice(), &[0; 8]].concat();
        let read = ImageInventory::read(longer.as_slice());
        assert!(read.is_err() || read.unwrap().size_bytes == longer.len() as u64);
    }

    #[test]
    fn sources_of_packages_are_named() {
        let of = |text: &str| package(text).map(|one| (one.source, one.source_version));
        let head = "Package: libc6\nStatus: install ok installed\nVersion: 2\n";
        assert_eq!(of(head), Some(("libc6".to_owned(), "2".to_owned())));
        let glibc = Some(("glibc".to_owned(), "2".to_owned()));
        assert_eq!(of(&format!("{head}Source: glibc\n")), glibc);
        let versioned = Some(("glibc".to_owned(), "2-9".to_owned()));
        assert_eq!(of(&format!("{head}Source: glibc (2-9)\n")), versioned);
        assert_eq!(of("Package: x\nStatus: deinstall ok config-files\nVersion: 1\n"), None);
    }

    #[test]
    fn what_differs_is_named_once() {
        let mut first = ImageInventory::read(good_debian_archive().unwrap().as_slice()).unwrap();
        let mut second = first.clone();
        assert_eq!(
            ImageDiff::new(&first, &second),
            ImageDiff { identical: true, ..ImageDiff::default() }
        );
        second.sha256 = "other".to_owned();
        second.packages[0].version = "99".to_owned();
        second.packages.remove(1);
        second.kernels = vec!["6.1.0-99-amd64".to_owned()];
        second.record = serde_json::json!({"kernel_arguments": "iommu=pt"});
        second.files.insert("/new".to_owned(), "644 0:0 file x".to_owned());
        second.files.insert("/tmp".to_owned(), "755 0:0 folder".to_owned());
        second.size_bytes -= 10;
        first.files.insert("/old".to_owned(), String::new());
        let diff = ImageDiff::new(&first, &second);
        assert_eq!((diff.identical, diff.size_bytes), (false, -10));
        assert_eq!((diff.changed_packages.len(), diff.removed_packages.len()), (1, 1));
        assert_eq!(diff.changed_packages[0].to, "99");
        assert_eq!(
            (diff.added_files, diff.removed_files),
            (vec!["/new".into()], vec!["/old".into()])
        );
        assert_eq!(diff.changed_files, ["/tmp"]);
        assert_eq!(diff.kernel_arguments, Some([String::new(), "iommu=pt".to_owned()]));
        assert!(diff.kernel.is_some());
    }
}
