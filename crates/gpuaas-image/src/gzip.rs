//! Gzip on all cores: one member for each mebibyte of input.
//!
//! A gzip file may have several members (RFC 1952, 2.2), and every reader takes them as one stream:
//! gzip, pigz, zlib, Python. The input is cut at fixed places, so what a member holds does not
//! depend on who compresses it, and the bytes are the same for any number of threads. pigz, which
//! makes one member, ends its blocks with the last 32 KiB as a dictionary for the next one; that is
//! what it costs to have no dictionary here, and libdeflate's better matches pay for it.
//!
//! Members are written and hashed in order by the thread that reads. It waits for the oldest one
//! only when as many are under way as may be, so memory is bounded whatever the output's speed.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use libdeflater::{CompressionLvl, Compressor};
use sha2::{Digest as _, Sha256};

/// Input of a member, in bytes. Larger ones win a thousandth of the size and cost memory.
pub const MEMBER_BYTES: usize = 1 << 20;
/// Threads at most: at some 2 MiB each, 64 MiB are kept.
pub const MAX_THREADS: usize = 16;
/// Members under way beyond one for each thread, so that no thread waits for the reader.
const SPARE_MEMBERS: usize = 4;
/// What libdeflate is asked for; gzip's own default.
pub const DEFAULT_LEVEL: i32 = 6;

/// What a finished [`ParallelGzip`] wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GzipSummary {
    /// Length of the output in bytes.
    pub written_bytes: u64,
    /// SHA-256 of the output, in hex digits.
    pub sha256: String,
}

struct Job {
    buffers: Buffers,
    done: SyncSender<Member>,
}

/// What a member is read from and written to; used again and again, so that memory does not depend
/// on what an allocator does with a mebibyte that is freed.
#[derive(Debug, Default)]
struct Buffers {
    input: Vec<u8>,
    output: Vec<u8>,
}

/// A compressed member: as many bytes of the output.
struct Member {
    buffers: Buffers,
    length: usize,
}

/// Compresses what is written to it, and writes it to `W`.
#[derive(Debug)]
pub struct ParallelGzip<W> {
    output: W,
    /// Of the next member, whose input is gathered.
    next: Buffers,
    free: Vec<Buffers>,
    under_way: VecDeque<Receiver<Member>>,
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    hash: Sha256,
    written_bytes: u64,
}

impl<W: Write> ParallelGzip<W> {
    /// Starts as many `threads`, at least one and [`MAX_THREADS`] at most; `level` is libdeflate's,
    /// from 0 to 12.
    ///
    /// # Errors
    /// The system starts no thread; a level that libdeflate does not have.
    pub fn new(output: W, threads: usize, level: i32) -> io::Result<Self> {
        let level = CompressionLvl::new(level).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, "expected a compression level of 0 to 12")
        })?;
        let (jobs, waiting) = channel::<Job>();
        let waiting = Arc::new(Mutex::new(waiting));
        let count = threads.clamp(1, MAX_THREADS);
        let start = |number: usize| {
            let waiting = Arc::clone(&waiting);
            let builder = std::thread::Builder::new().name(format!("gzip-{number}"));
            builder.spawn(move || compress_members(&waiting, level))
        };
        let threads = (0..count).map(start).collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            output,
            next: Buffers::default(),
            free: Vec::new(),
            under_way: VecDeque::new(),
            jobs: Some(jobs),
            threads,
            hash: Sha256::new(),
            written_bytes: 0,
        })
    }

    /// Writes what is left, and hands the output back.
    ///
    /// # Errors
    /// What the output says; a thread that ended early.
    pub fn finish(mut self) -> io::Result<(W, GzipSummary)> {
        if !self.next.input.is_empty() || self.written_bytes == 0 && self.under_way.is_empty() {
            self.send()?;
        }
        while !self.under_way.is_empty() {
            self.write_oldest()?;
        }
        self.jobs = None;
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| ended())?;
        }
        self.output.flush()?;
        let sha256 = hex::encode(self.hash.finalize());
        Ok((self.output, GzipSummary { written_bytes: self.written_bytes, sha256 }))
    }

    /// Has a thread compress what was gathered.
    fn send(&mut self) -> io::Result<()> {
        while self.under_way.len() >= self.threads.len() + SPARE_MEMBERS {
            self.write_oldest()?;
        }
        let next = self.free.pop().unwrap_or_default();
        let buffers = std::mem::replace(&mut self.next, next);
        let (done, finished) = sync_channel(1);
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send(Job { buffers, done }).map_err(|_| ended())?;
        self.under_way.push_back(finished);
        Ok(())
    }

    fn write_oldest(&mut self) -> io::Result<()> {
        let Some(finished) = self.under_way.pop_front() else { return Ok(()) };
        let Member { mut buffers, length } = finished.recv().map_err(|_| ended())?;
        let bytes = &buffers.output[..length];
        self.hash.update(bytes);
        self.output.write_all(bytes)?;
        self.written_bytes += length as u64;
        buffers.input.clear();
        self.free.push(buffers);
        Ok(())
    }
}

impl<W: Write> Write for ParallelGzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(MEMBER_BYTES - self.next.input.len());
        self.next.input.reserve_exact(MEMBER_BYTES - self.next.input.len());
        self.next.input.extend_from_slice(&bytes[..count]);
        if self.next.input.len() == MEMBER_BYTES {
            self.send()?;
        }
        Ok(count)
    }

    /// Members are cut at fixed places alone, so there is nothing to do before the end.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ended() -> io::Error {
    io::Error::other("a compression thread ended early")
}

/// What a thread does until there are no jobs any more.
fn compress_members(waiting: &Mutex<Receiver<Job>>, level: CompressionLvl) {
    let mut compressor = Compressor::new(level);
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { mut buffers, done }) = job else { return };
        let Buffers { input, output } = &mut buffers;
        output.resize(compressor.gzip_compress_bound(MEMBER_BYTES), 0);
        // The bound is the largest that there can be. Where it were not, the reader hears that this
        // thread ended.
        let Ok(length) = compressor.gzip_compress(input, output) else { return };
        // Nobody waits any more where the writing ended with an error.
        if done.send(Member { buffers, length }).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::*;

    fn compressed(input: &[u8], threads: usize) -> (Vec<u8>, GzipSummary) {
        let mut gzip = ParallelGzip::new(Vec::new(), threads, DEFAULT_LEVEL).unwrap();
        gzip.write_all(input).unwrap();
        gzip.finish().unwrap()
    }

    /// As another implementation reads it.
    fn expanded(bytes: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut all).unwrap();
        all
    }

    #[test]
    fn the_bytes_do_not_depend_on_the_threads() {
        let input: Vec<u8> = (0..3_500_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let (one, summary) = compressed(&input, 1);
        for threads in [2, 3, 16, 99] {
            assert_eq!(compressed(&input, threads), (one.clone(), summary.clone()));
        }
        assert_eq!(summary.written_bytes, one.len() as u64);
        assert_eq!(summary.sha256, hex::encode(Sha256::digest(&one)));
        assert!(expanded(&one) == input, "the content comes back");
    }

    #[test]
    fn nothing_is_a_member_too() {
        let (bytes, _) = compressed(b"", 2);
        assert_eq!(expanded(&bytes), b"");
        assert!(!bytes.is_empty());
    }

    #[test]
    fn an_output_that_is_full_ends_the_work() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut gzip = ParallelGzip::new(Full, 2, DEFAULT_LEVEL).unwrap();
        let written = gzip.write_all(&vec![1; 20 * MEMBER_BYTES]);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(ParallelGzip::new(Vec::new(), 1, 13).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn what_was_written_in_any_parts_comes_back(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..20)
        ) {
            let mut gzip = ParallelGzip::new(Vec::new(), 2, DEFAULT_LEVEL).unwrap();
            for part in &parts {
                gzip.write_all(part).unwrap();
            }
            let whole = parts.concat();
            prop_assert_eq!(&gzip.finish().unwrap().0, &compressed(&whole, 1).0);
        }
    }
}
