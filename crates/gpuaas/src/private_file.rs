//! A file for a secret that is shown once: made before the secret is, for its owner alone.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;

/// An empty file that did not exist before.
pub(crate) struct PrivateFile {
    path: PathBuf,
    file: fs::File,
}

impl PrivateFile {
    /// Makes it.
    ///
    /// # Errors
    /// `token_file_unwritable`.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| unwritable(path, &error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes the secret.
    ///
    /// # Errors
    /// `token_file_unwritable`.
    pub(crate) fn write_secret(mut self, secret: &str) -> Result<(), Failure> {
        let kept = writeln!(self.file, "{secret}").and_then(|()| self.file.sync_all());
        kept.map_err(|error| unwritable(&self.path, &error))
    }

    /// Removes it: there is no secret.
    pub(crate) fn discard(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, file = %self.path.display(), "cannot remove an empty file");
        }
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::local(CommandCode::TokenFileUnwritable, format!("{}: {error}", path.display())).hint(
        "choose a file that does not exist yet, in a folder that this user can write to: `--to \
         FILE`",
    )
}

/// A new file for this user alone, on the disk when this returns.
///
/// # Errors
/// It is there, or cannot be written.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
