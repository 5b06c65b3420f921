//! What a test tells its runner beyond *passed* and *failed*.
//!
//! Rust's test harness knows two results, so a test that could not run looks like one that passed.
//! Here a test says which it was: [`skip`] records a skip with the need that was not met, and
//! [`SystemTest`] records that the same test already passed with the same bytes. The runner
//! (`cargo xtask test`) names a folder in `GPUAAS_TEST_REPORT`, reads the records at the end, lists and
//! counts them, and compares the skips with `xtask/skips.txt`.
//!
//! Time limits of tests come from [`patience`], which grows with the slowness of the machine that
//! the runner measured.

mod digest;
mod record;
mod system_test;

use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use system_test::{PASSES_FOLDER, SystemTest};

use record::{HAS_SKIPPED, print_line, record, variable};

/// How many times slower this machine is than the reference; at least 1.
pub const SLOWNESS: &str = "GPUAAS_TEST_SLOWNESS";
/// Set where slow tests are left out.
pub const FAST: &str = "GPUAAS_TEST_FAST";

/// Records that the calling test, or a named part of it, did not run.
///
/// `need` is what the machine lacks, in the words of `xtask/skips.txt`: a program's name, or one of
/// `root`, `postgres`, `recordings`, `gpu`, `network`, `kernel`, `system`.
pub fn skip(need: &str, reason: impl Display) {
    HAS_SKIPPED.store(true, Ordering::SeqCst);
    let reason = reason.to_string();
    print_line(&format!("skipped: {reason}"));
    record("skip", need, &reason);
}

/// Whether this run leaves out slow tests; the test is recorded as left out. Use [`slow!`].
#[must_use]
pub fn leaves_out_slow() -> bool {
    let leaves_out = variable(FAST).is_some();
    if leaves_out {
        print_line("left out: slow");
        record("slow", "", "");
    }
    leaves_out
}

/// Marks the calling test as slow: a fast run returns from it at once and counts it as left out.
#[macro_export]
macro_rules! slow {
    () => {
        if $crate::leaves_out_slow() {
            return;
        }
    };
}

/// Time limit that is `seconds` on the reference machine.
#[must_use]
pub fn patience(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds * slowness())
}

/// The same in seconds, for deadlines of an injected clock.
#[must_use]
pub fn patience_seconds(seconds: f64) -> f64 {
    seconds * slowness()
}

/// How many times slower this machine is than the reference; at least 1.
#[must_use]
pub fn slowness() -> f64 {
    let measured = variable(SLOWNESS).and_then(|value| value.to_str()?.parse::<f64>().ok());
    measured.filter(|times| times.is_finite()).map_or(1.0, |times| times.clamp(1.0, 60.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_never_shorter_than_on_the_reference_machine() {
        assert!(slowness() >= 1.0);
        assert!(patience(2.0) >= Duration::from_secs(2));
    }
}
