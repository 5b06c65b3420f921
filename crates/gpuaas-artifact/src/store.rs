//! Content-addressed files: `DIR/sha256/DIGEST`.
//!
//! A file appears under its name only whole and synced: bytes go to a temporary file in the same
//! folder, are synced, renamed, and the folder is synced. A crash leaves at worst a temporary
//! file, never a digest that names other bytes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use gpuaas_bundle::{Artifact, Digest};

/// Digest and length of the bytes that a put stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredArtifact {
    /// SHA-256 of the bytes, their name in the store.
    pub digest: Digest,
    /// Length in bytes.
    pub size_bytes: u64,
}

/// A folder of artifacts. Blocking; cheap to clone; safe to share between processes.
#[derive(Debug, Clone)]
pub struct ArtifactStore {
    folder: PathBuf,
}

impl ArtifactStore {
    /// Opens the store below `dir` and makes its folder.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let folder = dir.join("sha256");
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// Where the bytes of `digest` are, whether they exist or not.
    #[must_use]
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(digest.to_string())
    }

    /// Path part of the URL under which the control plane serves `digest`
    /// (see `gpuaas_types::agent`).
    #[must_use]
    pub fn url_path(digest: &Digest) -> String {
        format!("/bootstrap/v1/artifacts/sha256/{digest}")
    }

    /// An artifact that the store holds, as a node is told of it.
    #[must_use]
    pub fn artifact(name: &str, version: &str, stored: StoredArtifact) -> Artifact {
        Artifact {
            name: name.to_owned(),
            version: version.to_owned(),
            digest: stored.digest,
            size_bytes: stored.size_bytes,
            url: Self::url_path(&stored.digest),
        }
    }

    /// Stores `bytes`.
    ///
    /// # Errors
    /// The file system refused.
    pub fn put_bytes(&self, bytes: &[u8]) -> io::Result<StoredArtifact> {
        self.put_reader(bytes)
    }

    /// Stores the content of the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read or the store cannot be written.
    pub fn put_file(&self, path: &Path) -> io::Result<StoredArtifact> {
        self.put_reader(File::open(path)?)
    }

    /// Stores what `reader` yields, in constant memory. Storing the same bytes again is a no-op.
    ///
    /// # Errors
    /// Reading or writing failed; nothing is stored then.
    pub fn put_reader(&self, mut reader: impl Read) -> io::Result<StoredArtifact> {
        let mut temporary = tempfile::Builder::new().prefix(".put-").tempfile_in(&self.folder)?;
        let mut hasher = Sha256::new();
        let mut size_bytes = 0u64;
        let mut buffer = vec![0u8; 128 * 1024];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let chunk = buffer.get(..count).unwrap_or_default();
            hasher.update(chunk);
            temporary.write_all(chunk)?;
            size_bytes += count as u64;
        }
        let stored =
            StoredArtifact { digest: Digest::from_bytes(hasher.finalize().into()), size_bytes };
        let path = self.path(&stored.digest);
        if path.exists() {
            return Ok(stored);
        }
        temporary.as_file().sync_all()?;
        temporary.persist(&path).map_err(|error| error.error)?;
        File::open(&self.folder)?.sync_all()?;
        Ok(stored)
    }

    /// The bytes of `digest` and their length; `None` when the store does not have them.
    ///
    /// # Errors
    /// The file exists and cannot be opened.
    pub fn get(&self, digest: &Digest) -> io::Result<Option<(File, u64)>> {
        match File::open(self.path(digest)) {
            Ok(file) => {
                let size_bytes = file.metadata()?.len();
                Ok(Some((file, size_bytes)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn put_twice_get_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = ArtifactStore::open(dir.path()).unwrap();
        let stored = store.put_bytes(b"hello").unwrap();
        assert_eq!(store.put_bytes(b"hello").unwrap(), stored);
        let (mut file, size) = store.get(&stored.digest).unwrap().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), size, stored.size_bytes), ("hello", 5, 5));
        assert_eq!(fs::read_dir(dir.path().join("sha256")).unwrap().count(), 1);
        assert!(store.get(&Digest::sha256(b"other")).unwrap().is_none());
    }

    #[test]
    fn a_failed_read_stores_nothing() {
        struct Broken(u8);
        impl Read for Broken {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 += 1;
                match self.0 {
                    1 => {
                        buffer[0] = b'x';
                        Ok(1)
                    }
                    2 => Err(io::ErrorKind::Interrupted.into()),
                    _ => Err(io::ErrorKind::BrokenPipe.into()),
                }
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let store = ArtifactStore::open(dir.path()).unwrap();
        assert!(store.put_reader(Broken(0)).is_err());
        assert_eq!(fs::read_dir(dir.path().join("sha256")).unwrap().count(), 0);
    }

    #[test]
    fn a_file_larger_than_the_buffer_keeps_its_digest() {
        let dir = tempfile::tempdir().unwrap();
        let store = ArtifactStore::open(dir.path()).unwrap();
        let bytes: Vec<u8> = (0..400_000u32).map(|n| (n % 251) as u8).collect();
        let source = dir.path().join("source");
        fs::write(&source, &bytes).unwrap();
        let stored = store.put_file(&source).unwrap();
        assert_eq!(stored.digest, Digest::sha256(&bytes));
        assert_eq!(fs::read(store.path(&stored.digest)).unwrap(), bytes);
    }
}
