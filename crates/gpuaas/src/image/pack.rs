//! `gpuaas image pack`: a tree as a `tgz`.

use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;
use gpuaas_image::pack::{PackOptions, PackSummary, pack_to_file};
use serde::Serialize;

use super::report::{json, pack_failure};
use crate::args::ImagePackArgs;

/// What `gpuaas image pack --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct PackReport {
    /// SHA-256 of the archive, in hex digits; MAAS compares it with what arrived.
    pub sha256: String,
    /// Length of the archive in bytes.
    pub(super) tgz_bytes: u64,
    /// Content of all files in bytes, one with several names counted once.
    pub(super) tree_bytes: u64,
    /// Names of the tree.
    pub(super) entries: u64,
    /// Sockets that were left out.
    pub(super) sockets: u64,
}

impl From<PackSummary> for PackReport {
    fn from(summary: PackSummary) -> Self {
        let PackSummary { sha256, tgz_bytes, tree_bytes, entries, sockets, .. } = summary;
        Self { sha256, tgz_bytes, tree_bytes, entries, sockets }
    }
}

/// Packs a tree.
///
/// # Errors
/// The tree cannot be read or changes; the archive cannot be written.
pub(super) fn run(args: &ImagePackArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let here = PackOptions::for_this_machine();
    let options = PackOptions {
        threads: args.threads.unwrap_or(here.threads),
        level: args.level,
        newest_mtime_seconds: args.newest_mtime,
    };
    let summary = pack_to_file(&args.tree, &args.to, &options);
    let report = PackReport::from(summary.map_err(|error| pack_failure(&error))?);
    if report.sockets > 0 {
        terminal
            .message(&format!("skipped {} sockets: archives cannot contain them", report.sockets));
    }
    if args.json {
        return terminal.data(&json(&report)?);
    }
    terminal.data(&output::fields(&[
        ("file", args.to.display().to_string()),
        ("sha256", report.sha256),
        ("size", mebibytes(report.tgz_bytes)),
        (
            "tree",
            format!("{} in {} files and folders", mebibytes(report.tree_bytes), report.entries),
        ),
    ]))
}

/// A length for people.
#[expect(clippy::cast_precision_loss, reason = "one digit behind the point")]
fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}
