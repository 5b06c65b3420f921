//! Files that are complete or absent, whatever interrupts the writing.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whether a write failed for lack of space: on the disk, or within a quota.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether only the owner of a file has any permission on it.
pub(crate) fn is_private(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 == 0)
}

/// Replaces `path` by `content` with mode 0600.
///
/// # Errors
/// See [`replace_with_mode`].
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_with_mode(path, content, 0o600)
}

/// Replaces `path` by `content` with `mode`: temporary file, sync, rename, sync of the folder.
///
/// The temporary file has a name of its own for each path and no random one, so a process that is
/// killed amid this leaves at most one behind, and the next call removes it.
///
/// # Errors
/// The folder cannot be written. The file that was there is still there then.
pub(crate) fn replace_with_mode(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    remove_if_there(&folder.join(&name))?;
    let mut file = tempfile::Builder::new()
        .prefix(&name)
        .rand_bytes(0)
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

/// Removes a file that may be absent.
///
/// # Errors
/// The file is there and cannot be removed.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/identity.json");
        replace(&path, b"one").unwrap();
        fs::write(path.with_file_name(".identity.json.new"), "half").unwrap();
        replace_with_mode(&path, b"two", 0o644).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(!is_private(&path));
        replace(&path, b"three").unwrap();
        assert!(is_private(&path));
        // What cannot be replaced leaves no temporary file behind.
        let folder = dir.path().join("folder");
        fs::create_dir_all(folder.join("inside")).unwrap();
        replace(&folder, b"x").unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
