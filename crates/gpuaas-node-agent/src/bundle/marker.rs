//! The marker `NAME.done`: the scripts of a bundle ended well on this host. It is one line of
//! version, run id and the digest of the archive that the bundle's folder was unpacked from.
//!
//! The digest is computed from the folder as it lies there. Whoever installed it, and whatever was
//! changed in it since, the marker names the bytes that ran. A folder that is no unpacked archive
//! has no digest, nor has the marker of an older launcher; there the version decides alone.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use gpuaas_bundle::archive::MAX_ARCHIVE_BYTES;
use gpuaas_bundle::manifest::ARCHIVED_NAME;
use gpuaas_bundle::{Archive, Digest, Entry, Manifest};

/// The marker's line for a bundle that ended well.
pub(super) fn line(manifest: &Manifest, run_id: &str, digest: Option<Digest>) -> String {
    let digest = digest.map(|digest| digest.to_string()).unwrap_or_default();
    let words = [manifest.version.as_str(), run_id, digest.as_str()];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    format!("{}\n", words.join(" "))
}

/// Whether a marker's line is of this version, and of these bytes where both digests are known.
pub(super) fn matches(line: &str, manifest: &Manifest, folder: &Path) -> bool {
    let mut words = line.split_whitespace();
    if words.next() != Some(manifest.version.as_str()) {
        return false;
    }
    // A run id is shorter than a digest.
    let Some(ran) = words.find_map(|word| word.parse::<Digest>().ok()) else { return true };
    digest(folder, manifest).is_none_or(|there| there == ran)
}

/// The digest of the archive that was unpacked into `folder`; `None` where it is no archive.
pub(super) fn digest(folder: &Path, manifest: &Manifest) -> Option<Digest> {
    let mut files = BTreeMap::new();
    let (mut left, mut folders) = (MAX_ARCHIVE_BYTES, vec![PathBuf::new()]);
    while let Some(inside) = folders.pop() {
        for entry in fs::read_dir(folder.join(&inside)).ok()? {
            let entry = entry.ok()?;
            let path = inside.join(entry.file_name());
            let metadata = entry.metadata().ok()?;
            if metadata.is_dir() {
                folders.push(path);
            } else if !metadata.is_file() {
                return None;
            } else if path != Path::new(ARCHIVED_NAME) {
                left = left.checked_sub(metadata.len())?;
                let executable = metadata.permissions().mode() & 0o100 != 0;
                let bytes = fs::read(entry.path()).ok()?;
                files.insert(path.to_str()?.to_owned(), Entry { bytes, executable });
            }
        }
    }
    Archive { manifest: manifest.clone(), files }.digest().ok()
}
