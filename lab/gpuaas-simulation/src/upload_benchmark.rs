//! `gpuaas bench upload`: an image into a simulated region, over a link that breaks.
//!
//! The region is a process of its own (`gpuaas maas-sim`), so that its memory does not count. Time is
//! virtual, and a file that both share: each request takes what the throttled link would need for its
//! bytes, between its signature and its arrival, so that the region's rule about old signatures applies.
//! Cuts are the region's faults: pieces that arrive and whose answer is lost or replaced by a gateway's
//! 504, and pieces that do not arrive. What the region took is asked of the region and not of the uploader.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, ClockChoice, FileClock, RealClock};
use gpuaas_lab::arguments::MachineClass;
use gpuaas_lab::bench::{report::json, usage};
use gpuaas_lab::hosts::options::HostMode;
use gpuaas_lab::simulator::{Simulator, SimulatorPlan};
use gpuaas_types::Timestamp;
use gpuaas_types::codes::CommandCode;
use maas_client::{
    Client, Config, HttpTransport, Method, Request, Response, Transport, TransportError,
};
use maas_sim::{Fault, FaultKind};
use maas_upload::{
    CHUNK_BYTES, ImageSource, StateFile, UploadClock, UploadError, UploadReport, UploadRequest,
    build_name, digest_of, upload,
};
use serde::Serialize;

use crate::arguments::BenchUploadArgs;

/// Microseconds that a request travels, besides its bytes.
const TRAVEL_MICROS: i64 = 4_000;
/// Bytes of an image that differ from one another by their number alone.
const BLOCK_BYTES: usize = 4096;

/// What `gpuaas bench upload --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UploadBenchReport {
    /// Length of the image in bytes.
    pub size_bytes: u64,
    /// Bytes of all pieces that were sent.
    pub sent_bytes: u64,
    /// Pieces without an answer.
    pub cuts: u64,
    /// How often the upload went on from what the region had.
    pub resumes: u64,
    /// How often it began anew.
    pub restarts: u64,
    /// Pieces that the region appended twice.
    pub duplicated_chunks: u64,
    /// Seconds that the link would have needed.
    pub simulated_seconds: f64,
    /// Largest resident memory of this process; the region's is not in it.
    pub peak_rss_bytes: u64,
    /// Whether the region's image is complete and has the image's digest.
    pub sha256_matches: bool,
}

/// Runs the benchmark.
///
/// # Errors
/// The region cannot be started, the upload fails, or stdout cannot be written.
pub async fn run(args: BenchUploadArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let report = measure(args).await?;
    terminal.data(&if args.json { json(&report)? } else { report.table() })
}

/// Uploads once and counts.
///
/// # Errors
/// As [`run`].
pub async fn measure(args: BenchUploadArgs) -> Result<UploadBenchReport, Failure> {
    let chunks = args.size.div_ceil(CHUNK_BYTES);
    if u64::from(args.cuts) >= chunks {
        let detail = format!("{} cuts are too many for {chunks} pieces", args.cuts);
        return Err(Failure::usage(CommandCode::BenchmarkUnusable, detail)
            .hint("use a larger --size or fewer --cuts; a piece has 4 MiB"));
    }
    let pid = std::process::id();
    usage::reset_peak_rss(pid)?;
    let folder = tempfile::tempdir().map_err(|error| unusable(error.to_string()))?;
    // The region's server dates its answers by the wall clock, with which the upload compares its own.
    let begun = RealClock.now();
    let clock = FileClock::create(&folder.path().join("clock"), begun);
    let clock = LinkClock(clock.map_err(|error| unusable(error.to_string()))?);
    let simulator = Simulator::start(&SimulatorPlan {
        machines: 1,
        names: &[],
        seed: 1,
        class: MachineClass::Zero,
        hosts: HostMode::None,
        real_hosts: 0,
        rootfs: None,
        lost: Vec::new(),
        hosts_dir: folder.path().join("hosts"),
        clock: ClockChoice::File(clock.0.clone()),
        faults: None,
        log: folder.path().join("simulator.log"),
    })
    .await?;
    let simulator = Arc::new(simulator);
    let measured = match simulator.inject(&cut_faults(args.cuts, chunks)).await {
        Ok(()) => upload_to(&simulator, &clock, folder.path(), &args).await,
        Err(failure) => Err(failure),
    };
    if let Some(simulator) = Arc::into_inner(simulator) {
        simulator.stop().await;
    }
    let (report, duplicated_chunks, sha256_matches) = measured?;
    let simulated = clock.0.now().seconds_since(begun);
    Ok(UploadBenchReport {
        size_bytes: report.size_bytes,
        sent_bytes: report.sent_bytes,
        cuts: report.cuts,
        resumes: report.resumes,
        restarts: report.restarts,
        duplicated_chunks,
        simulated_seconds: simulated,
        peak_rss_bytes: usage::peak_rss_bytes(pid)?,
        sha256_matches,
    })
}

async fn upload_to(
    simulator: &Arc<Simulator>,
    clock: &LinkClock,
    folder: &Path,
    args: &BenchUploadArgs,
) -> Result<(UploadReport, u64, bool), Failure> {
    let url = simulator.maas_url();
    let image = GeneratedImage { size_bytes: args.size };
    let digest = digest_of(&image).map_err(|error| unusable(error.to_string()))?;
    let key = simulator
        .api_key()
        .parse()
        .map_err(|error: maas_client::Error| unusable(error.to_string()))?;
    let config = Config::new(url.as_str(), key);
    let failed = |error: maas_client::Error| unusable(error.to_string());
    let link = Arc::new(ThrottledLink {
        http: HttpTransport::new(&config).map_err(failed)?,
        clock: clock.clone(),
        simulator: simulator.clone(),
        bytes_per_second: args.throttle,
        first_bytes: Mutex::default(),
        duplicates: AtomicU64::new(0),
    });
    let signing = clock.clone();
    let now = Arc::new(move || signing.0.now().as_seconds());
    let client = Client::with_transport(&config, link.clone(), now).map_err(failed)?;
    let request = UploadRequest {
        name: build_name("bench", "20261120", &digest.sha256),
        architecture: "amd64/generic".to_owned(),
        filetype: "tgz".to_owned(),
        base_image: "ubuntu/noble".to_owned(),
        region_url: url,
        actor: "bench".to_owned(),
        ..UploadRequest::default()
    };
    let stopped = |error: UploadError| unusable(error.to_string()).hint(error.hint());
    let state = StateFile::open(&folder.join("image"), "bench").map_err(stopped)?;
    let report =
        upload(&client, &image, &state, clock, &request, &mut |_| {}).await.map_err(stopped)?;
    let shown = client.boot_resource(report.resource_id).await.map_err(failed)?;
    let mut files = shown.sets.values().flat_map(|set| set.files.values());
    let matches = files.any(|file| {
        file.complete && file.sha256 == digest.sha256 && file.size == digest.size_bytes
    });
    Ok((report, link.duplicates.load(Ordering::SeqCst), matches))
}

/// The faults that cut a number of pieces, the last piece among them. A fault counts the calls that
/// reach it, which those do not that an earlier one of its sort met.
fn cut_faults(cuts: u32, chunks: u64) -> Vec<Fault> {
    // The last two kinds are those in which nothing was done.
    const KINDS: [FaultKind; 4] = [
        FaultKind::Accepted504,
        FaultKind::ResetBefore,
        FaultKind::ResetAfterAccept,
        FaultKind::Refused504,
    ];
    let is_absent = |kind| matches!(kind, FaultKind::ResetBefore | FaultKind::Refused504);
    let (mut faults, mut absent, mut taken) = (Vec::new(), 0_u64, 0_u64);
    for (number, kind) in (0..cuts).zip(KINDS.into_iter().cycle()) {
        let is_last = number + 1 == cuts;
        let kind = if is_last { FaultKind::Accepted504 } else { kind };
        let chunk = match is_last {
            true => chunks - 1,
            false => (u64::from(number) + 1) * chunks / (u64::from(cuts) + 1),
        };
        // A piece that did not arrive is sent once more.
        let calls_before = chunk + absent;
        let unseen = if is_absent(kind) { absent } else { absent + taken };
        let mut fault = Fault::new(kind).at("image.upload").times(1);
        fault.skip = u32::try_from(calls_before.saturating_sub(unseen)).unwrap_or(u32::MAX);
        faults.push(fault);
        if is_absent(kind) { absent += 1 } else { taken += 1 }
    }
    faults
}

/// Time that goes on when somebody waits for it, or sends something.
#[derive(Clone)]
struct LinkClock(FileClock);

#[async_trait]
impl UploadClock for LinkClock {
    fn unix_seconds(&self) -> f64 {
        self.0.now().seconds_since(Timestamp::EPOCH)
    }

    async fn wait(&self, time: Duration) {
        self.0.pass(i64::try_from(time.as_micros()).unwrap_or(i64::MAX));
    }
}

/// A link of so many bytes for each second, which counts what arrives twice.
struct ThrottledLink {
    http: HttpTransport,
    clock: LinkClock,
    simulator: Arc<Simulator>,
    bytes_per_second: u64,
    /// The first bytes of each piece that the region appended; no two of an image begin alike.
    first_bytes: Mutex<HashSet<Vec<u8>>>,
    duplicates: AtomicU64,
}

impl ThrottledLink {
    async fn appended_bytes(&self) -> Result<u64, TransportError> {
        let asked = self.simulator.appended_bytes().await;
        asked.map_err(|failure| TransportError::Reset(failure.to_string()))
    }

    fn count(&self, body: &[u8]) {
        let begin = body.iter().take(16).copied().collect();
        let mut known = self.first_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.insert(begin) {
            self.duplicates.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[async_trait]
impl Transport for ThrottledLink {
    async fn send(&self, request: Request, timeout: Duration) -> Result<Response, TransportError> {
        let bytes = i64::try_from(request.body.len()).unwrap_or(i64::MAX);
        let rate = i64::try_from(self.bytes_per_second.max(1)).unwrap_or(i64::MAX);
        self.clock.0.pass(TRAVEL_MICROS + bytes.saturating_mul(1_000_000) / rate);
        let piece = (request.method == Method::Put).then(|| request.body.clone());
        let Some(piece) = piece else { return self.http.send(request, timeout).await };
        let before = self.appended_bytes().await?;
        let answer = self.http.send(request, timeout).await;
        if self.appended_bytes().await? > before {
            self.count(&piece);
        }
        answer
    }
}

/// An image that is made as it is read: a file of its size would measure the disk.
struct GeneratedImage {
    size_bytes: u64,
}

impl ImageSource for GeneratedImage {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.size_bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        // Pieces begin at multiples of a block, so that each part of the buffer is one.
        let first = offset / BLOCK_BYTES as u64;
        for (number, block) in (first..).zip(buffer.chunks_mut(BLOCK_BYTES)) {
            let name = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
            block.fill(name[7]);
            let begin = block.len().min(name.len());
            block[..begin].copy_from_slice(&name[..begin]);
        }
        Ok(())
    }
}

fn unusable(detail: String) -> Failure {
    Failure::local(CommandCode::BenchmarkUnusable, detail)
}

impl UploadBenchReport {
    fn table(&self) -> String {
        let sent = format!("{} of {} bytes", self.sent_bytes, self.size_bytes);
        gpuaas_client::output::fields(&[
            ("sent", sent),
            ("cuts", self.cuts.to_string()),
            ("resumes", self.resumes.to_string()),
            ("restarts", self.restarts.to_string()),
            ("duplicates", self.duplicated_chunks.to_string()),
            ("link time", format!("{:.0} s", self.simulated_seconds)),
            ("memory", format!("{} bytes", self.peak_rss_bytes)),
            ("digest", if self.sha256_matches { "matches" } else { "differs" }.to_owned()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[tokio::test]
    async fn more_cuts_than_pieces_are_refused() {
        let failure =
            measure(BenchUploadArgs { size: 8 * MIB, cuts: 2, throttle: 1 << 20, json: true })
                .await
                .unwrap_err();
        assert_eq!(failure.code(), "benchmark_unusable");
        assert!(failure.problem.hint.contains("--cuts"), "{failure}");
    }

    #[test]
    fn no_two_blocks_are_alike() {
        let image = GeneratedImage { size_bytes: 10 * MIB };
        let (mut all, mut part) = (vec![0; 3 * BLOCK_BYTES], vec![0; BLOCK_BYTES]);
        image.read_at(0, &mut all).unwrap();
        image.read_at(2 * BLOCK_BYTES as u64, &mut part).unwrap();
        assert_eq!(&all[2 * BLOCK_BYTES..], part);
        assert_ne!(&all[..BLOCK_BYTES], &all[BLOCK_BYTES..2 * BLOCK_BYTES]);
    }
}
