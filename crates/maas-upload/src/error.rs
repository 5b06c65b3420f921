//! Why an upload ended without an image.

use std::io;
use std::path::PathBuf;

use crate::preflight::PreflightFault;

/// Why an upload ended. What the region has by then stays there, and the next call goes on from it,
/// unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The image cannot be read.
    #[error("cannot read the image: {0}")]
    Source(io::Error),
    /// The image has no bytes.
    #[error("the image is empty")]
    Empty,
    /// The state beside the file cannot be used.
    #[error("{}: {error}", path.display())]
    State {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Another process uploads this file to this site.
    #[error("another process holds the lock on {}", .0.display())]
    Running(PathBuf),
    /// The file is another than the one whose upload was begun.
    #[error("the file changed after the upload started: its sha256 was {begun} and is now {found}")]
    FileChanged {
        /// Digest of the file that was begun.
        begun: String,
        /// Digest of the file that is there.
        found: String,
    },
    /// Something has to be put right first.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Preflight(Vec<PreflightFault>),
    /// MAAS refused a call.
    #[error("{what}: {error}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// What MAAS said.
        error: maas_client::Error,
    },
    /// The region did not answer for as long as was waited.
    #[error("{what}: no usable response within {seconds} s: {error}")]
    Silent {
        /// What was asked.
        what: &'static str,
        /// How long was waited, in seconds.
        seconds: u64,
        /// The last failure.
        error: String,
    },
    /// The region has other bytes than the file's beginning.
    #[error("image {id} has {received} bytes, but {expected} were sent")]
    Diverged {
        /// Id of the image.
        id: u64,
        /// What the region has.
        received: u64,
        /// What it should have.
        expected: u64,
    },
    /// The region got every byte and computed another digest.
    #[error("image {0} arrived with a different sha256")]
    DigestDiffers(u64),
    /// The region controllers did not all copy the file in time.
    #[error(
        "image {id} is on one region controller, but its copies are still incomplete after {seconds} s"
    )]
    NotCopied {
        /// Id of the image.
        id: u64,
        /// How long was waited, in seconds.
        seconds: u64,
    },
    /// What is read back is not what was sent.
    #[error("MAAS shows image {id} with {what}")]
    ReadBack {
        /// Id of the image.
        id: u64,
        /// What differs.
        what: String,
    },
}

impl UploadError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Source(_) | Self::Empty => "image_unreadable",
            Self::State { .. } => "image_upload_state_unusable",
            Self::Running(_) => "image_upload_running",
            Self::FileChanged { .. } => "image_upload_file_changed",
            Self::Preflight(faults) => faults.first().map_or("image_upload_refused", |f| f.code()),
            Self::Refused { .. } => "image_upload_refused",
            Self::Silent { .. } => "image_upload_no_answer",
            Self::Diverged { .. } | Self::DigestDiffers(_) | Self::ReadBack { .. } => {
                "image_upload_damaged"
            }
            Self::NotCopied { .. } => "image_upload_not_copied",
        }
    }

    /// What the reader does next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Source(_) | Self::Empty => {
                "name an existing archive, such as one from `gpuaas image pack DIR --to FILE`".to_owned()
            }
            Self::State { path, .. } => format!(
                "free up space and make the folder writable; if the state is damaged, delete it: rm {}",
                path.display()
            ),
            Self::Running(_) => "wait for the other upload, or stop it; what it sent is kept".to_owned(),
            Self::FileChanged { .. } => {
                "restore the first file, or use --start-over, which deletes the unfinished upload and starts again".to_owned()
            }
            Self::Preflight(faults) => {
                faults.iter().map(PreflightFault::hint).collect::<Vec<_>>().join("; ")
            }
            Self::Refused { .. } => {
                "fix what MAAS reports, then run the same command again; it continues from what the region has".to_owned()
            }
            Self::Silent { .. } => {
                "when the region answers again, run the same command again; it continues from what the region has".to_owned()
            }
            Self::Diverged { .. } | Self::DigestDiffers(_) | Self::ReadBack { .. } => {
                "use --start-over, which deletes this image and starts again; it was never complete and no machine has it".to_owned()
            }
            Self::NotCopied { id, .. } => format!(
                "check the region controllers that lack it (`maas PROFILE boot-resource read {id}`), then run the same command again; it continues to wait"
            ),
        }
    }
}
