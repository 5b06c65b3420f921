//! `gpuaas image upload` as a process that is killed in the middle.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Stdio;

use maas_sim::{Fault, FaultKind, SimHandle, SimOptions, SimServer};
use serde_json::Value;
use tokio::process::{Child, Command};

const PIECE_BYTES: u64 = 4 << 20;
/// How long a state is waited for.
const LIMIT_SECONDS: f64 = 60.0;

struct Bench {
    folder: tempfile::TempDir,
    sim: SimHandle,
}

impl Bench {
    /// A file of `pieces` pieces and a bit, and a region that never answers to one of them.
    async fn new(pieces: u64, silent: FaultKind, piece: u32) -> Self {
        let mut fault = Fault::new(silent).at("image.upload").times(1).lasting_seconds(3600.0);
        fault.skip = piece;
        let options = SimOptions { faults: vec![fault], ..SimOptions::default() };
        let sim = SimServer::start(options).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let words = (pieces * PIECE_BYTES + 100 * 8) / 8;
        let bytes: Vec<u8> = (0..words).flat_map(u64::to_le_bytes).collect();
        std::fs::write(folder.path().join("h200.tar.gz"), bytes).unwrap();
        std::fs::write(folder.path().join("maas.key"), &sim.api_key).unwrap();
        Self { folder, sim }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn upload(&self, more: &[&str]) -> Child {
        Command::new(Path::new(env!("CARGO_BIN_EXE_gpuaas")))
            .args([
                "image",
                "upload",
                "--site",
                "lab",
                "--json",
                "--lint-waiver",
                "no image",
                "--maas-url",
            ])
            .arg(self.sim.url())
            .arg("--api-key-file")
            .arg(self.path("maas.key"))
            .args(more)
            .arg(self.path("h200.tar.gz"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// Waits until the region has so many bytes.
    async fn has_bytes(&self, bytes: u64) {
        let waited = tokio::time::timeout(test_report::patience(LIMIT_SECONDS), async {
            while self.sim.region.with(|region| region.uploaded_bytes()) < bytes {
                tokio::task::yield_now().await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("the region never had {bytes} bytes"));
    }
}

async fn json(child: Child) -> Value {
    let output =
        tokio::time::timeout(test_report::patience(LIMIT_SECONDS), child.wait_with_output())
            .await
            .unwrap()
            .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_upload_goes_on_where_it_was() {
    // The third piece is written, and its answer comes in an hour.
    let bench = Bench::new(5, FaultKind::Slow, 2).await;
    let mut first = bench.upload(&[]);
    bench.has_bytes(3 * PIECE_BYTES).await;

    // Nobody else may send pieces of this file now.
    let second = bench.upload(&[]).wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("image_upload_running"), "{said}");

    first.kill().await.unwrap();
    let report = json(bench.upload(&[])).await;
    assert_eq!(report["sent_bytes"], 2 * PIECE_BYTES + 800, "{report}");
    assert_eq!((&report["resumes"], &report["restarts"]), (&1.into(), &0.into()));
    let size = report["size_bytes"].as_u64().unwrap();
    assert_eq!(bench.sim.region.with(|region| region.uploaded_bytes()), size);
    let name = report["name"].as_str().unwrap();
    assert!(name.starts_with("h200-") && name.ends_with(&report["sha256"].as_str().unwrap()[..12]));

    // It is there: once more changes nothing.
    let again = json(bench.upload(&[])).await;
    assert_eq!((&again["sent_bytes"], &again["resource_id"]), (&0.into(), &report["resource_id"]));
    bench.sim.shutdown().await;
}

/// `gpuaas bench upload`, whose region is a process of its own.
async fn benchmark(size: u64, cuts: u32, throttle: u64) -> Value {
    let mut bench = Command::new(Path::new(env!("CARGO_BIN_EXE_gpuaas")));
    bench.args(["bench", "upload", "--json", "--size", &size.to_string()]);
    bench.args(["--cuts", &cuts.to_string(), "--throttle", &throttle.to_string()]);
    let output = bench.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn cuts_of_every_kind_double_nothing_and_lose_nothing() {
    // 13 pieces over 900 seconds: a signature of the beginning would be refused.
    let size = 50 << 20;
    let report = benchmark(size, 6, 50_000).await;
    assert_eq!(report["sha256_matches"], true, "{report}");
    let counts = ["duplicated_chunks", "restarts", "cuts", "resumes"].map(|name| &report[name]);
    assert_eq!(counts, [0, 0, 6, 6], "{report}");
    // Of six, two did not arrive and were sent once more.
    assert_eq!(report["sent_bytes"], size + 2 * PIECE_BYTES);
    assert!(report["simulated_seconds"].as_f64().unwrap() > 900.0, "{report}");
}

#[tokio::test]
async fn a_link_too_slow_for_a_whole_piece_gets_shorter_ones() {
    // 4 MiB would take 419 s, and a signature counts for 300.
    let report = benchmark(8 << 20, 1, 10_000).await;
    let clean = (&report["sha256_matches"], &report["duplicated_chunks"]);
    assert_eq!(clean, (&true.into(), &0.into()), "{report}");
    assert!(report["sent_bytes"].as_u64().unwrap() > 8 << 20, "{report}");
    assert!(report["simulated_seconds"].as_f64().unwrap() > 800.0, "{report}");
}
