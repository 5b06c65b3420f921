//! SHA-256 of what a reader gives.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

/// Bytes read at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// SHA-256 of everything that `input` gives, in hex digits.
///
/// # Errors
/// It cannot be read.
pub(crate) fn stream_digest(mut input: impl Read) -> io::Result<String> {
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; BUFFER_BYTES]);
    loop {
        match input.read(&mut buffer)? {
            0 => return Ok(hex::encode(hasher.finalize())),
            count => hasher.update(&buffer[..count]),
        }
    }
}
