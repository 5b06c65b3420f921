//! Files that appear whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Whether there is no room for what was to be written: on the disk, or in what may be used of it.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether nobody but its owner may do anything with a file.
pub(crate) fn is_private(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 == 0)
}

/// Replaces `path` by `content` with mode 0600: temporary file, sync, rename, sync of the folder.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_with_mode(path, content, 0o600)
}

/// The same with another mode. What is in the way of it leaves nothing behind.
pub(crate) fn replace_with_mode(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let temporary = path.with_extension("new");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // It was not there before, and on a full disk it would be in the way.
        fs::remove_file(&temporary).ok();
    }
    written?;
    File::open(folder)?.sync_all()
}
