//! The archive of a bundle: an uncompressed tar (POSIX ustar) that is the same everywhere.
//!
//! Entries are sorted by name behind the manifest; owner, group and time are zero; a mode is 0755
//! or 0644. No compression: a bundle is some 100 KiB of text, the digest must not depend on the
//! version of a compressor, and nothing can unfold to more than its size.
//!
//! A reader accepts only what [`Archive::write`] could have written: plain files with a clean
//! relative path. Links, devices, folders, absolute names, `..`, names that differ only in case,
//! and anything above the limits are refused with the reason, before a file is written.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

use crate::digest::Digest;
use crate::manifest::{ARCHIVED_NAME, Manifest};

/// Largest number of entries of an archive.
const MAX_ENTRIES: usize = 1000;
/// Largest entry, in bytes.
const MAX_ENTRY_BYTES: u64 = 16 << 20;
/// Largest archive, in bytes.
pub const MAX_ARCHIVE_BYTES: u64 = 64 << 20;

/// One file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The file's content.
    pub bytes: Vec<u8>,
    /// Whether its mode is 0755, not 0644.
    pub executable: bool,
}

/// A bundle as its manifest and its files.
#[derive(Debug, Clone, PartialEq)]
pub struct Archive {
    /// The manifest.
    pub manifest: Manifest,
    /// Its files but the manifest, by path relative to the bundle's folder.
    pub files: BTreeMap<String, Entry>,
}

/// Why bytes are not the archive of a bundle.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Not a tar, or cut off.
    #[error("not a bundle archive: {0}")]
    Malformed(String),
    /// An entry that is not allowed in a bundle.
    #[error("entry {path:?} is not allowed: {reason}")]
    Entry {
        /// Name of the entry.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The archive is above a limit.
    #[error("too large: {0}")]
    TooLarge(String),
    /// The manifest does not fit the files.
    #[error("invalid manifest: {0}")]
    Manifest(String),
}

impl ArchiveError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "bundle_malformed",
            Self::Entry { .. } => "bundle_entry_refused",
            Self::TooLarge(_) => "bundle_too_large",
            Self::Manifest(_) => "bundle_manifest_invalid",
        }
    }
}

/// Whether `path` may be the name of a file in a bundle: relative, of plain parts.
///
/// # Errors
/// What is wrong with it.
pub fn check_path(path: &str) -> Result<(), &'static str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-+@/".contains(&b);
    if path.is_empty() || path.len() > 99 {
        return Err("expected a path of 1 to 99 bytes");
    }
    if path.starts_with('/') {
        return Err("the path is absolute");
    }
    if path.split('/').any(|part| part == "..") {
        return Err("the path points outside the bundle");
    }
    if path.split('/').any(|part| part.is_empty() || part == ".") {
        return Err("the path has an empty component");
    }
    if !path.bytes().all(plain) {
        return Err("only letters, digits and . _ - + @ are allowed");
    }
    Ok(())
}

impl Archive {
    /// The bytes, which depend on nothing but the manifest and the files.
    ///
    /// # Errors
    /// [`ArchiveError::Manifest`] with the first fault, or an entry that a reader would refuse.
    pub fn write(&self) -> Result<Vec<u8>, ArchiveError> {
        self.check()?;
        let manifest = self.manifest_json()?;
        let mut builder = tar::Builder::new(Vec::new());
        let failed = |error: io::Error| ArchiveError::Malformed(error.to_string());
        append(&mut builder, ARCHIVED_NAME, &manifest, false).map_err(failed)?;
        for (path, entry) in &self.files {
            append(&mut builder, path, &entry.bytes, entry.executable).map_err(failed)?;
        }
        let bytes = builder.into_inner().map_err(failed)?;
        if bytes.len() as u64 > MAX_ARCHIVE_BYTES {
            return Err(ArchiveError::TooLarge(format!("{} bytes", bytes.len())));
        }
        Ok(bytes)
    }

    /// Parses an archive.
    ///
    /// # Errors
    /// Anything in it that [`Archive::write`] would not have written.
    pub fn read(bytes: &[u8]) -> Result<Self, ArchiveError> {
        if bytes.len() as u64 > MAX_ARCHIVE_BYTES {
            return Err(ArchiveError::TooLarge(format!("{} bytes", bytes.len())));
        }
        let mut tar = tar::Archive::new(bytes);
        let mut manifest = None;
        let mut files = BTreeMap::new();
        for entry in tar.entries().map_err(malformed)? {
            let (path, entry) = read_entry(entry.map_err(malformed)?)?;
            if files.len() >= MAX_ENTRIES {
                return Err(ArchiveError::TooLarge(format!("more than {MAX_ENTRIES} files")));
            }
            if manifest.is_none() {
                if path != ARCHIVED_NAME {
                    return Err(ArchiveError::Malformed(format!(
                        "the first entry is not {ARCHIVED_NAME}"
                    )));
                }
                let parsed: Manifest = crate::format::manifest_from_json(&entry.bytes)
                    .map_err(ArchiveError::Manifest)?;
                manifest = Some(parsed);
            } else if files.insert(path.clone(), entry).is_some() {
                return Err(ArchiveError::Entry { path, reason: "the archive contains it twice" });
            }
        }
        let manifest =
            manifest.ok_or_else(|| ArchiveError::Malformed("the archive is empty".to_owned()))?;
        let archive = Self { manifest, files };
        archive.check()?;
        Ok(archive)
    }

    /// Writes the files below `folder`, which must be empty or not yet exist. An archive that was
    /// [parsed](Self::read) has no path that leads elsewhere.
    ///
    /// # Errors
    /// The file system refused; the files that were written stay.
    pub fn unpack(&self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        if std::fs::read_dir(folder)?.next().is_some() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the folder is not empty"));
        }
        let manifest = self.manifest_json().map_err(io::Error::other)?;
        write_file(&folder.join(ARCHIVED_NAME), &manifest, false)?;
        for (path, entry) in &self.files {
            let path = folder.join(path);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            write_file(&path, &entry.bytes, entry.executable)?;
        }
        Ok(())
    }

    /// Digest of the bytes that [`Self::write`] gives.
    ///
    /// # Errors
    /// See [`Self::write`].
    pub fn digest(&self) -> Result<Digest, ArchiveError> {
        Ok(Digest::sha256(&self.write()?))
    }

    fn manifest_json(&self) -> Result<Vec<u8>, ArchiveError> {
        let mut text = serde_json::to_vec_pretty(&self.manifest)
            .map_err(|error| ArchiveError::Manifest(error.to_string()))?;
        text.push(b'\n');
        Ok(text)
    }

    fn check(&self) -> Result<(), ArchiveError> {
        let mut folded = std::collections::BTreeSet::new();
        for (path, entry) in &self.files {
            let refuse = |reason| ArchiveError::Entry { path: path.clone(), reason };
            check_path(path).map_err(refuse)?;
            if path == ARCHIVED_NAME {
                return Err(refuse("this name is reserved for the manifest"));
            }
            if !folded.insert(path.to_ascii_lowercase()) {
                return Err(refuse("another entry differs from it only in case"));
            }
            if entry.bytes.len() as u64 > MAX_ENTRY_BYTES {
                return Err(ArchiveError::TooLarge(format!(
                    "{path} has {} bytes",
                    entry.bytes.len()
                )));
            }
        }
        let names = self.files.keys().cloned().collect();
        match self.manifest.faults(&names).first() {
            Some(fault) => Err(ArchiveError::Manifest(fault.to_string())),
            None => Ok(()),
        }
    }
}

fn append(
    builder: &mut tar::Builder<Vec<u8>>,
    path: &str,
    bytes: &[u8],
    executable: bool,
) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_path(path)?;
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(bytes.len() as u64);
    header.set_mode(if executable { 0o755 } else { 0o644 });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    builder.append(&header, bytes)
}

fn read_entry<R: Read>(mut entry: tar::Entry<'_, R>) -> Result<(String, Entry), ArchiveError> {
    let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
    let refuse = |reason| ArchiveError::Entry { path: path.clone(), reason };
    match entry.header().entry_type() {
        tar::EntryType::Regular => {}
        tar::EntryType::Symlink | tar::EntryType::Link => return Err(refuse("it is a link")),
        _ => return Err(refuse("it is not a plain file")),
    }
    check_path(&path).map_err(refuse)?;
    let mode = entry.header().mode().map_err(|_| refuse("cannot read its mode"))?;
    let executable = match mode {
        0o755 => true,
        0o644 => false,
        _ => return Err(refuse("expected mode 0755 or 0644")),
    };
    if entry.size() > MAX_ENTRY_BYTES {
        return Err(ArchiveError::TooLarge(format!("{path} has {} bytes", entry.size())));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(malformed)?;
    Ok((path, Entry { bytes, executable }))
}

/// The first line of what the reader of tars says: it repeats bytes that nobody vouches for.
#[expect(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn malformed(error: io::Error) -> ArchiveError {
    let text = error.to_string();
    ArchiveError::Malformed(text.lines().next().unwrap_or_default().chars().take(200).collect())
}

fn write_file(path: &Path, bytes: &[u8], executable: bool) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mode = if executable { 0o755 } else { 0o644 };
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive() -> Archive {
        let manifest = serde_json::from_value(serde_json::json!({
            "name": "a", "version": "1", "kind": "site_bootstrap", "about": "x",
            "phases": [{"name": "p", "run": "phases/p.sh", "timeout_seconds": 1}],
        }))
        .unwrap();
        let entry = |text: &str, executable| Entry { bytes: text.into(), executable };
        let files = [
            ("phases/p.sh".to_owned(), entry("true\n", true)),
            ("files/unit".to_owned(), entry("[Unit]\n", false)),
        ];
        Archive { manifest, files: files.into() }
    }

    #[test]
    fn the_same_folder_gives_the_same_bytes_and_comes_back() {
        let bytes = archive().write().unwrap();
        assert_eq!(bytes, archive().write().unwrap());
        assert_eq!(Archive::read(&bytes).unwrap(), archive());
        // The bytes must never change for a bundle that exists: nodes hold their digest.
        insta::assert_snapshot!(Digest::sha256(&bytes).to_string());
    }

    #[test]
    fn unpacked_files_have_their_modes() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("bundle");
        archive().unpack(&folder).unwrap();
        let mode =
            |path: &str| std::fs::metadata(folder.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("phases/p.sh"), mode("files/unit")), (0o755, 0o644));
        assert!(folder.join("manifest.json").is_file());
        assert!(archive().unpack(&folder).is_err(), "a folder that holds something");
    }

    /// An archive with the good manifest and one more entry, as somebody else would write it.
    fn hostile(change: impl FnOnce(&mut tar::Header), name: &[u8]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let good = archive();
        append(&mut builder, ARCHIVED_NAME, &good.manifest_json().unwrap(), false).unwrap();
        append(&mut builder, "phases/p.sh", b"true\n", true).unwrap();
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(0);
        change(&mut header);
        header.set_cksum();
        builder.append(&header, io::empty()).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn hostile_archives_are_refused_with_the_reason() {
        let link = |header: &mut tar::Header| {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_link_name("/etc/shadow").unwrap();
        };
        let kind =
            |kind: tar::EntryType| move |header: &mut tar::Header| header.set_entry_type(kind);
        let cases: Vec<(&str, Vec<u8>)> = vec![
            ("up", hostile(|_| {}, b"../../etc/cron.d/x")),
            ("inside", hostile(|_| {}, b"files/../../x")),
            ("absolute", hostile(|_| {}, b"/etc/passwd")),
            ("not text", hostile(|_| {}, b"a\xff")),
            ("space", hostile(|_| {}, b"a b")),
            ("dot", hostile(|_| {}, b"./a")),
            ("symlink", hostile(link, b"files/link")),
            ("hard link", hostile(kind(tar::EntryType::Link), b"files/link")),
            ("device", hostile(kind(tar::EntryType::Block), b"files/sda")),
            ("folder", hostile(kind(tar::EntryType::Directory), b"files")),
            ("setuid", hostile(|header| header.set_mode(0o4755), b"files/su")),
            ("twice", hostile(|_| {}, b"phases/p.sh")),
            ("case", hostile(|_| {}, b"phases/P.sh")),
            ("manifest again", hostile(|_| {}, b"manifest.json")),
            ("bomb", hostile(|header| header.set_size(1 << 40), b"files/big")),
            ("empty", Vec::new()),
            ("text", b"#!/bin/sh\n".repeat(100)),
            ("cut", archive().write().unwrap()[..1200].to_vec()),
        ];
        let mut said = Vec::new();
        for (name, bytes) in cases {
            let error = Archive::read(&bytes).expect_err(name);
            said.push(format!("{name}: {} ({})", error, error.code()));
        }
        insta::assert_snapshot!(said.join("\n"));
    }

    #[test]
    fn a_manifest_that_does_not_fit_its_files_is_refused() {
        let mut broken = archive();
        broken.files.remove("phases/p.sh");
        assert_eq!(broken.write().unwrap_err().code(), "bundle_manifest_invalid");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..2000)) {
            assert!(Archive::read(&bytes).is_err());
        }

        #[test]
        fn a_flipped_byte_is_refused_or_read_as_a_clean_archive(at in 0usize..3000, to in proptest::num::u8::ANY) {
            let mut bytes = archive().write().unwrap();
            let at = at % bytes.len();
            bytes[at] = to;
            if let Ok(read) = Archive::read(&bytes) {
                assert!(read.files.keys().all(|path| check_path(path).is_ok()));
            }
        }
    }
}
