//! Where the bytes of an image come from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use sha2::{Digest as _, Sha256};

/// Bytes read at a time for a digest.
const READ_BYTES: usize = 1 << 20;

/// Bytes that can be read again from any place, as an upload has to after a cut.
pub trait ImageSource: Send + Sync {
    /// Length in bytes.
    ///
    /// # Errors
    /// The source cannot be asked.
    fn size_bytes(&self) -> io::Result<u64>;

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// The source cannot be read, or ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl ImageSource for File {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

/// What a region is given to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageDigest {
    /// SHA-256, 64 hex digits.
    pub sha256: String,
    /// Length in bytes.
    pub size_bytes: u64,
}

/// Reads a source whole, one mebibyte at a time.
///
/// # Errors
/// The source cannot be read.
pub fn digest_of(source: &dyn ImageSource) -> io::Result<ImageDigest> {
    let size_bytes = source.size_bytes()?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; READ_BYTES]);
    let mut offset = 0;
    while offset < size_bytes {
        let left = usize::try_from(size_bytes - offset).unwrap_or(READ_BYTES);
        let part = &mut buffer[..left.min(READ_BYTES)];
        source.read_at(offset, part)?;
        hasher.update(&*part);
        offset += part.len() as u64;
    }
    Ok(ImageDigest { sha256: hex::encode(hasher.finalize()), size_bytes })
}
