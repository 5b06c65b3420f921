//! `gpuaas bench lint`: faults planted one at a time in a good image.

use std::fmt::Write as _;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_image::lint_benchmark::{LintBenchmark, measure};
use gpuaas_lab::bench::report::json;
use gpuaas_types::codes::CommandCode;
use serde::Serialize;

use crate::args::BenchLintArgs;

/// What `gpuaas bench lint --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct LintBenchReport {
    /// Faults that were planted.
    pub(super) mutations: usize,
    /// Those whose code was reported.
    pub(super) caught: usize,
    /// Those that another code was reported for, instead or as well.
    pub(super) wrong_code: usize,
    /// Findings about good images.
    pub(super) false_alarms: usize,
    /// Good images.
    pub(super) good_images: usize,
}

/// Runs the benchmark.
///
/// # Errors
/// A temporary file cannot be written; stdout cannot.
pub(super) fn run(args: BenchLintArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let benchmark = measure()
        .map_err(|error| Failure::local(CommandCode::BenchmarkUnusable, error.to_string()))?;
    let LintBenchmark { mutations, caught, missed, wrong_code, false_alarms, good_images } =
        benchmark;
    for code in missed {
        terminal.message(&format!("not caught: {code}"));
    }
    for code in &false_alarms {
        terminal.message(&format!("false alarm on a good image: {code}"));
    }
    let false_alarms = false_alarms.len();
    let report = LintBenchReport { mutations, caught, wrong_code, false_alarms, good_images };
    terminal.data(&if args.json { json(&report)? } else { report.table() })
}

impl LintBenchReport {
    fn table(&self) -> String {
        let mut text = String::new();
        for (name, count) in [
            ("faults planted", self.mutations),
            ("caught", self.caught),
            ("with another code", self.wrong_code),
            ("false alarms", self.false_alarms),
            ("good images", self.good_images),
        ] {
            // Writing to a String cannot fail.
            writeln!(text, "{name:<18} {count:>4}").unwrap_or_default();
        }
        text
    }
}
