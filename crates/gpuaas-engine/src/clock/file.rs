//! A clock that stands in a file: processes that are simulated together share it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_types::Timestamp;

use crate::clock::Clock;

/// Time that goes on where somebody says so, or waits: microseconds since 1970 in the eight bytes of a file,
/// the lowest first. Of processes that share it one at a time lets time pass.
#[derive(Debug, Clone)]
pub struct FileClock {
    path: PathBuf,
    file: Arc<File>,
}

impl FileClock {
    /// A new one, which stands at `now`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, now: Timestamp) -> io::Result<Self> {
        std::fs::write(path, now.as_micros().to_le_bytes())?;
        Self::open(path)
    }

    /// The one that stands in that file.
    ///
    /// # Errors
    /// The file is not there, or has no time.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        file.read_exact_at(&mut [0; 8], 0)?;
        Ok(Self { path: path.to_owned(), file: Arc::new(file) })
    }

    /// Where it stands.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets time pass.
    pub fn pass(&self, micros: i64) {
        self.set(self.now().as_micros().saturating_add(micros));
    }

    fn set(&self, micros: i64) {
        // Eight bytes that were read at the beginning; a clock that cannot be written stands still.
        self.file.write_all_at(&micros.to_le_bytes(), 0).ok();
    }
}

impl PartialEq for FileClock {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

#[async_trait]
impl Clock for FileClock {
    fn now(&self) -> Timestamp {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0).ok();
        Timestamp::from_micros(i64::from_le_bytes(bytes))
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.set(self.now().max(at).as_micros());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_shares_it_sees_the_time_that_another_let_pass() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock");
        assert!(FileClock::open(&path).is_err());
        let one = FileClock::create(&path, Timestamp::from_micros(1_000)).unwrap();
        let other = FileClock::open(&path).unwrap();
        assert_eq!(one, other);
        one.pass(500);
        assert_eq!(other.now(), Timestamp::from_micros(1_500));
        other.sleep_until(Timestamp::from_micros(3_000)).await;
        other.sleep_until(Timestamp::from_micros(2_000)).await;
        assert_eq!(one.now(), Timestamp::from_micros(3_000));
    }
}
