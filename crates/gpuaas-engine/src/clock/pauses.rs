//! Pauses of a paced clock: a file of which one process writes when the clock stands still, and from
//! which every process that shares the clock reads it.
//!
//! A simulated host whose scripts and agent are real processes needs this machine's processor. On a
//! clock that runs on meanwhile those seconds would be multiplied by its factor, and a slow machine
//! would look like a slow server. So the clock stands still while hosts compute, and what they take
//! on it is what was drawn for them.
//!
//! The record is three numbers of eight bytes: microseconds of the wall in pauses that are over, when
//! the present pause began (0: the clock runs), and a sum of both, because a reader may come amid a
//! write. A pause is not believed for longer than a minute of the wall: a host that waits for
//! something that only the clock brings goes on then.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gpuaas_types::Timestamp;
use parking_lot::Mutex;

use crate::clock::time::sleep_wall;
use crate::clock::{Clock, wall_micros};

/// Seconds of the wall after which a clock that stands still goes on by itself.
const LONGEST_PAUSE_SECONDS: i64 = 60;
const LONGEST_MICROS: i64 = LONGEST_PAUSE_SECONDS * 1_000_000;
const BYTES: usize = 24;
/// Told from a file of zeros.
const SALT: i64 = 0x6770_7561_6173_0001;
/// Reads of a record that is being written.
const READS: u32 = 1000;
/// Shortest wait on a clock that may stand still.
const SHORTEST_WAIT: Duration = Duration::from_millis(2);

/// The file of a clock's pauses. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pauses {
    path: PathBuf,
    file: Arc<File>,
}

impl PartialEq for Pauses {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Record {
    past_micros: i64,
    since_micros: i64,
}

impl Record {
    /// Microseconds of the wall up to `wall_micros` in which the clock stood still.
    fn paused_micros(self, wall_micros: i64) -> i64 {
        let present = match self.since_micros {
            0 => 0,
            since => wall_micros.saturating_sub(since).clamp(0, LONGEST_MICROS),
        };
        self.past_micros.saturating_add(present)
    }

    fn bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let words = [self.past_micros, self.since_micros, self.sum()];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// None: the bytes are of two writes.
    fn parse(bytes: [u8; BYTES]) -> Option<Self> {
        let mut words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok());
        let mut next = || words.next().map(i64::from_le_bytes);
        let record = Self { past_micros: next()?, since_micros: next()? };
        (next()? == record.sum()).then_some(record)
    }

    const fn sum(self) -> i64 {
        self.past_micros ^ self.since_micros.rotate_left(17) ^ SALT
    }
}

impl Pauses {
    /// The pauses in the file at `path`, which is made where it is missing.
    ///
    /// # Errors
    /// The system's, for a file that cannot be made, read or written.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() == 0 {
            file.write_all_at(&Record::default().bytes(), 0)?;
        }
        Ok(Self { path: path.to_owned(), file: Arc::new(file) })
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self) -> Option<Record> {
        (0..READS).find_map(|_| {
            let mut bytes = [0; BYTES];
            self.file.read_exact_at(&mut bytes, 0).ok()?;
            Record::parse(bytes)
        })
    }
}

/// A paced clock with pauses: see [`crate::PacedClock`].
#[derive(Debug)]
pub struct PausableClock {
    epoch: Timestamp,
    factor: f64,
    pauses: Pauses,
    /// It never goes back, also where a pause becomes known after it has begun.
    latest_micros: AtomicI64,
}

impl PausableClock {
    /// A clock that agreed with the wall at `epoch` and runs `factor` times as fast since, but for
    /// `pauses`.
    #[must_use]
    pub fn new(epoch: Timestamp, factor: f64, pauses: Pauses) -> Self {
        Self { epoch, factor: factor.max(1e-3), pauses, latest_micros: AtomicI64::new(i64::MIN) }
    }
}

#[async_trait]
impl Clock for PausableClock {
    fn now(&self) -> Timestamp {
        // Without a readable record it stands where it was last read.
        let Some(record) = self.pauses.read() else {
            let latest = self.latest_micros.load(Ordering::Acquire);
            return self.epoch.max(Timestamp::from_micros(latest));
        };
        let wall = wall_micros();
        let running = Timestamp::from_micros(wall.saturating_sub(record.paused_micros(wall)));
        let now = self.epoch.plus_seconds(running.seconds_since(self.epoch) * self.factor);
        let before = self.latest_micros.fetch_max(now.as_micros(), Ordering::AcqRel);
        now.max(Timestamp::from_micros(before))
    }

    async fn sleep_until(&self, at: Timestamp) {
        loop {
            let seconds = at.seconds_since(self.now()) / self.factor;
            if seconds <= 0.0 {
                return;
            }
            sleep_wall(Duration::from_secs_f64(seconds.min(1e9)).max(SHORTEST_WAIT)).await;
        }
    }

    fn factor(&self) -> f64 {
        self.factor
    }
}

/// Makes a clock stand still. Of one file of pauses there is one at a time, in one process.
#[derive(Debug)]
pub struct ClockPauser {
    pauses: Pauses,
    state: Mutex<PauserState>,
}

#[derive(Debug)]
struct PauserState {
    record: Record,
    holders: u32,
}

impl ClockPauser {
    /// The one of `pauses`. A pause that another process left is over.
    ///
    /// # Errors
    /// The system's, for a file that cannot be written.
    pub fn new(pauses: Pauses) -> io::Result<Arc<Self>> {
        let left = pauses.read().unwrap_or_default();
        let record = Record { past_micros: left.paused_micros(wall_micros()), since_micros: 0 };
        pauses.file.write_all_at(&record.bytes(), 0)?;
        Ok(Arc::new(Self { pauses, state: Mutex::new(PauserState { record, holders: 0 }) }))
    }

    /// The clock stands still until the last of these is dropped.
    #[must_use]
    pub fn pause(self: &Arc<Self>) -> ClockPause {
        let mut state = self.state.lock();
        if state.holders == 0 {
            state.record.since_micros = wall_micros();
            self.write(state.record);
        }
        state.holders = state.holders.saturating_add(1);
        ClockPause { pauser: Arc::clone(self) }
    }

    fn resume(&self) {
        let mut state = self.state.lock();
        state.holders = state.holders.saturating_sub(1);
        if state.holders == 0 {
            let past_micros = state.record.paused_micros(wall_micros());
            state.record = Record { past_micros, since_micros: 0 };
            self.write(state.record);
        }
    }

    fn write(&self, record: Record) {
        if let Err(error) = self.pauses.file.write_all_at(&record.bytes(), 0) {
            let path = self.pauses.path.display();
            tracing::warn!(%path, %error, "cannot write the pause of the clock for its hosts");
        }
    }
}

/// A clock that stands still; it goes on when the last one of these is dropped.
#[derive(Debug)]
pub struct ClockPause {
    pauser: Arc<ClockPauser>,
}

impl Drop for ClockPause {
    fn drop(&mut self) {
        self.pauser.resume();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_a_torn_one_is_not() {
        let record = Record { past_micros: 5, since_micros: 1_795_190_400_000_000 };
        assert_eq!(Record::parse(record.bytes()), Some(record));
        let mut torn = record.bytes();
        torn[..8].copy_from_slice(&6_i64.to_le_bytes());
        assert_eq!(Record::parse(torn), None);
        assert_eq!(Record::parse([0; BYTES]), None);
    }

    #[test]
    fn a_pause_is_not_believed_for_ever() {
        let record = Record { past_micros: 7, since_micros: 1_000_000 };
        assert_eq!(record.paused_micros(1_500_000), 500_007);
        assert_eq!(record.paused_micros(1_000_000 + 10 * LONGEST_MICROS), LONGEST_MICROS + 7);
        assert_eq!(record.paused_micros(0), 7, "a wall clock that was set back");
    }

    /// Two processes have two clocks: each opens the file for itself.
    #[tokio::test]
    async fn a_clock_stands_still_for_all_while_one_of_them_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pauses");
        let epoch = Timestamp::from_micros(wall_micros());
        let clock = || PausableClock::new(epoch, 1000.0, Pauses::open(&file).unwrap());
        let (one, other) = (clock(), clock());
        let pauser = ClockPauser::new(Pauses::open(&file).unwrap()).unwrap();
        let (first, second) = (pauser.pause(), pauser.pause());
        let (at, at_other) = (one.now(), other.now());
        assert!(at_other.seconds_since(at).abs() < 1e-6, "{at} and {at_other}");
        // Whoever waits on it waits: ten of its seconds are ten milliseconds of the wall.
        let waiting = tokio::spawn(async move {
            other.sleep_until(at.plus_seconds(10.0)).await;
            other.now()
        });
        crate::RealClock.sleep_until(Timestamp::from_micros(wall_micros() + 50_000)).await;
        drop(first);
        assert_eq!(one.now(), at);
        assert!(!waiting.is_finished());
        drop(second);
        let awake = waiting.await.unwrap();
        assert!(awake >= at.plus_seconds(10.0));
        assert!(one.now() >= awake);
    }
}
