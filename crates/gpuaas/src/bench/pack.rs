//! `gpuaas bench pack`: a tree packed by GPUaaS, and by GNU tar with pigz, in the same run.
//!
//! All of the tree is read once before anything is measured, so that nobody pays for the disk. Both
//! write a file in the same folder. Speed and ratio are of the content of the tree's files.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_image::pack::{PackOptions, PackSummary, pack};
use gpuaas_image::tree_walk::TreeWalk;
use gpuaas_lab::bench::{report::json, usage};
use gpuaas_types::codes::CommandCode;
use serde::Serialize;
use tokio::process::Command;
use tokio::time::timeout;

use crate::args::BenchPackArgs;
use crate::image::report::pack_failure;

/// How long the other tools may take.
const BASELINE_LIMIT: Duration = Duration::from_secs(3600);
/// How long a program may take to say its version.
const VERSION_LIMIT: Duration = Duration::from_secs(10);

/// What `gpuaas bench pack --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PackBenchReport {
    /// Content of all files in bytes, one with several names counted once.
    pub(super) tree_bytes: u64,
    /// Length of the archive in bytes.
    pub(super) tgz_bytes: u64,
    /// Length of the archive for each byte of the tree.
    pub(super) ratio: f64,
    /// Millions of bytes of the tree for each second of the wall clock.
    pub(super) mb_per_second: f64,
    /// Threads that compressed.
    pub(super) threads: usize,
    /// Largest resident memory of this process while it packed.
    pub(super) peak_rss_bytes: u64,
    /// The same by other tools; without those that this machine does not have.
    pub(super) baselines: Vec<PackBaseline>,
}

/// How another tool did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PackBaseline {
    /// Its command line, in short.
    pub(super) tool: String,
    /// What it says its version is.
    pub(super) version: String,
    /// As [`PackBenchReport::mb_per_second`].
    pub(super) mb_per_second: f64,
    /// As [`PackBenchReport::ratio`].
    pub(super) ratio: f64,
}

/// Runs the benchmark.
///
/// # Errors
/// The tree cannot be packed, another tool fails or hangs, or stdout cannot be written.
pub(super) async fn run(args: BenchPackArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let report = measure(&args, terminal).await?;
    terminal.data(&if args.json { json(&report)? } else { report.table() })
}

async fn measure(
    args: &BenchPackArgs,
    terminal: &mut Terminal,
) -> Result<PackBenchReport, Failure> {
    let here = PackOptions::for_this_machine();
    let options = PackOptions { threads: args.threads.unwrap_or(here.threads), ..here };
    read_all(&args.tree)?;
    let pid = std::process::id();
    usage::reset_peak_rss(pid)?;
    let mut fastest: Option<(f64, PackSummary)> = None;
    for _ in 0..args.rounds {
        let output = scratch_file(args)?;
        let began = RealClock.now();
        let packed = pack(&args.tree, output, &options);
        let (_, summary) = packed.map_err(|error| pack_failure(&error))?;
        let seconds = RealClock.now().seconds_since(began);
        if fastest.as_ref().is_none_or(|(known, _)| seconds < *known) {
            fastest = Some((seconds, summary));
        }
    }
    let peak_rss_bytes = usage::peak_rss_bytes(pid)?;
    let (seconds, summary) =
        fastest.ok_or_else(|| unusable("no rounds to run: expected --rounds of at least 1"))?;
    let mut baselines = Vec::new();
    match version("pigz").await {
        None => terminal.message("no baseline: pigz is not installed (apt-get install pigz)"),
        Some(version) => {
            let mut fastest = f64::MAX;
            let mut bytes = 0;
            for _ in 0..args.rounds {
                let seconds;
                (seconds, bytes) = tar_and_pigz(args, options.threads).await?;
                fastest = fastest.min(seconds);
            }
            baselines.push(PackBaseline {
                tool: "tar | pigz -6".to_owned(),
                version,
                mb_per_second: megabytes_per_second(summary.tree_bytes, fastest),
                ratio: ratio(bytes, summary.tree_bytes),
            });
        }
    }
    Ok(PackBenchReport {
        tree_bytes: summary.tree_bytes,
        tgz_bytes: summary.tgz_bytes,
        ratio: ratio(summary.tgz_bytes, summary.tree_bytes),
        mb_per_second: megabytes_per_second(summary.tree_bytes, seconds),
        threads: options.threads,
        peak_rss_bytes,
        baselines,
    })
}

/// Reads every file, so that both tools find it in memory where it has room there.
fn read_all(tree: &Path) -> Result<(), Failure> {
    let mut walk = TreeWalk::new(tree);
    let failed = |error| pack_failure(&gpuaas_image::pack::PackError::Tree(error));
    while let Some(walked) = walk.advance().map_err(failed)? {
        if let Some(mut file) = walked.content {
            io::copy(&mut file, &mut io::sink()).map_err(|error| unusable(&error.to_string()))?;
        }
    }
    Ok(())
}

/// A file without a name in the folder for what is packed.
fn scratch_file(args: &BenchPackArgs) -> Result<File, Failure> {
    let file = match &args.scratch {
        Some(folder) => tempfile::tempfile_in(folder),
        None => tempfile::tempfile(),
    };
    file.map_err(|error| {
        unusable(&format!("cannot create a scratch file: {error}"))
            .hint("choose a writable folder with --scratch")
    })
}

/// What a program says of its version; `None` where it is not there or does not answer.
async fn version(program: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(VERSION_LIMIT, command.output()).await.ok()?.ok()?;
    // Older ones say it on stderr.
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    text.lines().next().map(|line| line.trim().to_owned())
}

/// Seconds that GNU tar and pigz take, and the length of what they write.
async fn tar_and_pigz(args: &BenchPackArgs, threads: usize) -> Result<(f64, u64), Failure> {
    let failed = |error: io::Error| unusable(&format!("tar | pigz: {error}"));
    let output = scratch_file(args)?;
    let target = output.try_clone().map_err(failed)?;
    let began = RealClock.now();
    let mut tar = Command::new("tar");
    tar.args(["--xattrs", "--xattrs-include=*", "--numeric-owner", "-C"]).arg(&args.tree);
    tar.args(["-cf", "-", "."]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut tar = tar.stderr(Stdio::null()).kill_on_drop(true).spawn().map_err(failed)?;
    let archive = tar.stdout.take().ok_or_else(|| unusable("tar has no output pipe"))?;
    let archive: Stdio = archive.try_into().map_err(failed)?;
    let mut pigz = Command::new("pigz");
    pigz.args(["-6", "-p", &threads.to_string()]).stdin(archive).stdout(target);
    let mut pigz = pigz.stderr(Stdio::null()).kill_on_drop(true).spawn().map_err(failed)?;
    let both = async { Ok((tar.wait().await?, pigz.wait().await?)) };
    let ended = timeout(BASELINE_LIMIT, both).await;
    let (tar, pigz) = ended.map_err(|_| unusable("tar | pigz timed out"))?.map_err(failed)?;
    if !tar.success() || !pigz.success() {
        return Err(unusable(&format!("tar exited with {tar}, pigz with {pigz}")));
    }
    let seconds = RealClock.now().seconds_since(began);
    Ok((seconds, output.metadata().map_err(failed)?.len()))
}

fn unusable(detail: &str) -> Failure {
    Failure::local(CommandCode::BenchmarkUnusable, detail)
}

#[expect(clippy::cast_precision_loss, reason = "a figure with three digits")]
fn megabytes_per_second(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds.max(1e-6)
}

#[expect(clippy::cast_precision_loss, reason = "a figure with four digits")]
fn ratio(packed: u64, tree: u64) -> f64 {
    packed as f64 / (tree as f64).max(1.0)
}

impl PackBenchReport {
    #[expect(clippy::cast_precision_loss, reason = "one digit behind the point")]
    fn table(&self) -> String {
        let own = PackBaseline {
            tool: "this program".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mb_per_second: self.mb_per_second,
            ratio: self.ratio,
        };
        let mut text = format!(
            "{:.1} MB in files, {} threads, peak memory {:.1} MiB\n",
            self.tree_bytes as f64 / 1e6,
            self.threads,
            self.peak_rss_bytes as f64 / 1_048_576.0
        );
        for PackBaseline { tool, version, mb_per_second, ratio } in
            std::iter::once(&own).chain(&self.baselines)
        {
            // Writing to a String cannot fail.
            writeln!(text, "{tool:<20} {version:<12} {mb_per_second:>8.1} MB/s  ratio {ratio:.4}")
                .unwrap_or_default();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::*;

    #[tokio::test]
    async fn a_tree_is_packed_by_both() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..40 {
            let line = format!("line of file {number}\n");
            fs::write(folder.path().join(format!("file-{number}")), line.repeat(5000)).unwrap();
        }
        let args = BenchPackArgs {
            tree: folder.path().to_owned(),
            threads: Some(2),
            rounds: 1,
            scratch: None,
            json: true,
        };
        let (mut terminal, captured) = Terminal::captured();
        run(args, &mut terminal).await.unwrap();
        let report: Value = serde_json::from_str(&captured.stdout()).unwrap();
        let number = |value: &Value, name: &str| value[name].as_f64().unwrap();
        assert!(number(&report, "tree_bytes") > 3e6, "{report}");
        assert!((0.0001..0.2).contains(&number(&report, "ratio")), "{report}");
        assert!(number(&report, "mb_per_second") > 0.0, "{report}");
        assert!(number(&report, "peak_rss_bytes") > 1e5, "{report}");
        let baselines = report["baselines"].as_array().unwrap();
        let Some(pigz) = baselines.first() else {
            return test_report::skip("pigz", "pigz is not there");
        };
        assert_eq!((&pigz["tool"], baselines.len()), (&"tar | pigz -6".into(), 1), "{report}");
        assert!((0.0001..0.2).contains(&number(pigz, "ratio")), "{report}");
    }
}
