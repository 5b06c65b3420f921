//! What an upload keeps beside its file.
//!
//! The file has one length and is written in place by one call, so that a process which is killed
//! leaves the old content or the new. Its lock is the upload's: two processes that send pieces of one
//! file would mix them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::UploadError;

/// Length of the file in bytes; what is not JSON is blanks.
const FILE_BYTES: usize = 4096;

/// What is known of an upload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadState {
    /// URL of the region.
    pub region_url: String,
    /// The region's address that gets all pieces, with its port; none: not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Name of the image, without `custom/`.
    pub name: String,
    /// SHA-256 of the file, in hex digits.
    pub sha256: String,
    /// Length of the file in bytes.
    pub size_bytes: u64,
    /// Id of the image in MAAS; none: announced, and not known whether MAAS took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<u64>,
    /// Bytes that the region acknowledged.
    #[serde(default)]
    pub acknowledged_bytes: u64,
    /// Length of the piece that was sent and not acknowledged; 0: none.
    #[serde(default)]
    pub in_flight_bytes: u64,
    /// Region controllers over which progress is spread; none: not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controllers: Option<u32>,
    /// Who uploads.
    #[serde(default)]
    pub actor: String,
    /// When the region had it whole, in seconds since 1970; none: not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uploaded_at_seconds: Option<i64>,
}

/// The locked file of an upload's state. Dropping it lets another process in.
#[derive(Debug)]
pub struct StateFile {
    file: File,
    path: PathBuf,
}

impl StateFile {
    /// Opens and locks the state of the upload of `image` to `site`; makes it where there is none.
    ///
    /// # Errors
    /// [`UploadError::Running`] where another process has it; [`UploadError::State`] where it
    /// cannot be opened.
    pub fn open(image: &Path, site: &str) -> Result<Self, UploadError> {
        let mut name = image.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{site}.upload.json"));
        let path = image.with_file_name(name);
        let unusable = |error: io::Error| UploadError::State { path: path.clone(), error };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(unusable)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { file, path }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(UploadError::Running(path)),
            Err(error) => Err(unusable(error.into())),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was written last; none where nothing was.
    ///
    /// # Errors
    /// [`UploadError::State`] where it cannot be read or is damaged.
    pub fn read(&self) -> Result<Option<UploadState>, UploadError> {
        let mut text = String::new();
        let mut file = &self.file;
        let begin = io::Seek::seek(&mut file, io::SeekFrom::Start(0));
        begin.and_then(|_| file.read_to_string(&mut text)).map_err(|error| self.unusable(error))?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let parsed = serde_json::from_str(&text);
        parsed.map(Some).map_err(|error| self.unusable(io::Error::other(error)))
    }

    /// Writes. Survives the end of this process; see [`StateFile::sync`] for that of the machine.
    ///
    /// # Errors
    /// [`UploadError::State`] where the disk takes no more.
    pub fn write(&self, state: &UploadState) -> Result<(), UploadError> {
        let text = serde_json::to_string(state).map_err(io::Error::other);
        let mut bytes = text.map_err(|error| self.unusable(error))?.into_bytes();
        if bytes.len() > FILE_BYTES {
            return Err(self.unusable(io::Error::other("a name is too long")));
        }
        bytes.resize(FILE_BYTES, b' ');
        self.file.write_all_at(&bytes, 0).map_err(|error| self.unusable(error))
    }

    /// Writes, and waits until the disk has it.
    ///
    /// # Errors
    /// As [`StateFile::write`].
    pub fn sync(&self, state: &UploadState) -> Result<(), UploadError> {
        self.write(state)?;
        self.file.sync_data().map_err(|error| self.unusable(error))
    }

    fn unusable(&self, error: io::Error) -> UploadError {
        UploadError::State { path: self.path.clone(), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_locked() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image.tar.gz");
        let file = StateFile::open(&image, "lab").unwrap();
        assert_eq!(file.path(), folder.path().join("image.tar.gz.lab.upload.json"));
        assert_eq!(file.read().unwrap(), None);
        let long = UploadState { name: "x".repeat(200), size_bytes: 7, ..UploadState::default() };
        file.write(&long).unwrap();
        let short = UploadState { name: "x".to_owned(), ..UploadState::default() };
        file.sync(&short).unwrap();
        assert_eq!(file.read().unwrap(), Some(short));
        let error = StateFile::open(&image, "lab").unwrap_err();
        assert_eq!(error.code(), "image_upload_running");
        assert!(StateFile::open(&image, "other").is_ok(), "another site has another state");
        drop(file);
        assert!(StateFile::open(&image, "lab").is_ok());
    }

    #[test]
    fn a_damaged_state_is_no_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("i");
        std::fs::write(folder.path().join("i.s.upload.json"), "{\"name\": 7}").unwrap();
        let file = StateFile::open(&image, "s").unwrap();
        assert_eq!(file.read().unwrap_err().code(), "image_upload_state_unusable");
        let nowhere = StateFile::open(Path::new("/nowhere/at/all/i"), "s").unwrap_err();
        assert_eq!(nowhere.code(), "image_upload_state_unusable");
    }
}
