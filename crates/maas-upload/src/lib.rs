//! An image into a MAAS region, over a link that breaks.
//!
//! A region appends whatever bytes come and has no name for a piece of them, so a piece that is sent
//! twice spoils the image, and MAAS says so only when all of it is there. Hence:
//!
//! - Each piece of [`CHUNK_BYTES`] is signed when it is sent: a region refuses what was signed more
//!   than 300 s before its last byte arrived.
//! - A piece without an answer is looked up by the file's `progress` ([`judge`]) and sent again only
//!   when it is not there after a while. That is decided from the region's answer, never from the
//!   kind of failure.
//! - What was announced, acknowledged and in flight is kept beside the file ([`UploadState`]), so that
//!   another process goes on. Beside the file and not in a database, because an upload runs where the
//!   file is, which is a build host without one, and because what counts is in the region anyway: the
//!   state says which image of the region is this file's, and what was in flight.
//! - A name is announced once. Announcing a name that exists takes its files away at once, from
//!   machines that are just deploying it.
//!
//! One address of the region gets all pieces: with several region controllers each keeps the bytes
//! that came to it ([`pinned`]).

mod error;
mod image_name;
mod preflight;
mod progress;
mod request;
mod retry;
mod source;
mod state;
#[cfg(test)]
mod tests;
mod upload;

pub use error::UploadError;
pub use image_name::{bare_name, build_name};
pub use preflight::{PreflightFacts, PreflightFault, check_preflight};
pub use progress::{ChunkVerdict, judge, received_bytes, region_controllers};
pub use request::{UploadClock, UploadProgress, UploadReport, UploadRequest, pinned};
pub use source::{ImageDigest, ImageSource, digest_of};
pub use state::{StateFile, UploadState};
pub use upload::{CHUNK_BYTES, upload};
