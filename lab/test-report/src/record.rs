//! Records of a test, in a file that the runner reads.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Names the folder for the records of a run.
pub(crate) const REPORT_FOLDER: &str = "GPUAAS_TEST_REPORT";

/// Whether a test of this process skipped, so that no pass of it is stored.
pub(crate) static HAS_SKIPPED: AtomicBool = AtomicBool::new(false);

/// Appends a line `KIND<TAB>TEST<TAB>SUBJECT<TAB>TEXT` to the run's report.
pub(crate) fn record(kind: &str, subject: &str, text: &str) {
    let Some(folder) = variable(REPORT_FOLDER).map(PathBuf::from) else { return };
    let plain = |text: &str| text.replace(['\t', '\n', '\r'], " ");
    let line = format!("{kind}\t{}\t{}\t{}\n", test_name(), plain(subject), plain(text));
    // A file per process: lines of tests that run at the same time never mix.
    let path = folder.join(std::process::id().to_string());
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        // A record that is lost would count as a pass.
        #[expect(clippy::panic, reason = "a test fails by panicking")]
        {
            panic!("cannot record `{}` in {}: {error}", line.trim_end(), path.display());
        }
    }
}

/// `BINARY::TEST` as cargo-nextest names it, otherwise the name that the harness gave the thread.
pub(crate) fn test_name() -> String {
    let named = |name| variable(name).and_then(|value| value.into_string().ok());
    match (named("NEXTEST_BINARY_ID"), named("NEXTEST_TEST_NAME")) {
        (Some(binary), Some(test)) => format!("{binary} {test}"),
        _ => std::thread::current().name().unwrap_or("unnamed test").to_owned(),
    }
}

pub(crate) fn variable(name: &str) -> Option<OsString> {
    #[expect(clippy::disallowed_methods, reason = "tests are configured by the environment")]
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[expect(clippy::print_stdout, reason = "the line is shown with the test's own output")]
pub(crate) fn print_line(line: &str) {
    println!("{line}");
}
