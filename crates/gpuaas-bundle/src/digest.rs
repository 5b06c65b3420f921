//! SHA-256 digests as a type: 64 lowercase hexadecimal digits, nothing else.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io;
use std::str::FromStr;

/// A SHA-256 digest (FIPS 180-4). Text form: 64 lowercase hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Bytes of a reader that are digested at once.
const READ_BYTES: usize = 65_536;

/// The text is not 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid SHA-256 digest ({length} characters): expected 64 hexadecimal digits")]
pub struct DigestError {
    /// Length of the refused text, in characters.
    pub length: usize,
}

impl Digest {
    /// SHA-256 of `bytes`.
    #[must_use]
    pub fn sha256(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// SHA-256 of what a reader has left.
    ///
    /// # Errors
    /// The reader's.
    pub fn sha256_of_reader(reader: &mut impl io::Read) -> io::Result<Self> {
        let (mut hasher, mut part) = (Sha256::new(), vec![0; READ_BYTES]);
        loop {
            match reader.read(&mut part) {
                Ok(0) => return Ok(Self(hasher.finalize().into())),
                Ok(length) => hasher.update(part.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    /// Accepts upper and lower case; always prints lower case.
    fn from_str(text: &str) -> Result<Self, DigestError> {
        let mut bytes = [0u8; 32];
        hex::decode_to_slice(text, &mut bytes)
            .map_err(|_| DigestError { length: text.chars().count() })?;
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answer_of_fips_180_4() {
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::sha256(b"abc").to_string(), text);
        assert_eq!(Digest::sha256_of_reader(&mut &b"abc"[..]).unwrap().to_string(), text);
        assert_eq!(text.to_uppercase().parse::<Digest>().unwrap(), Digest::sha256(b"abc"));
    }

    #[test]
    fn anything_but_64_hex_digits_is_refused() {
        for bad in ["", "abc", "../../etc/passwd", &"g".repeat(64), &"é".repeat(32)] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
        assert!("+".repeat(64).parse::<Digest>().is_err());
    }
}
