//! Waiting for a level of the outside world.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use test_report::patience;

/// Time between two checks of a level.
const INTERVAL: Duration = Duration::from_millis(50);

/// Waits until `reached`, for at most `seconds` on the reference machine and longer on a slower one.
/// Returns the seconds that it took.
///
/// # Panics
/// The level is not reached in time; the message is `what`.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the outside world is what a test waits by"
)]
pub fn wait_at_most(seconds: f64, what: &str, mut reached: impl FnMut() -> bool) -> f64 {
    let (_open, pause) = mpsc::channel::<()>();
    let (started, limit) = (Instant::now(), patience(seconds));
    while !reached() {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        // Nothing is ever sent: this is the pause.
        pause.recv_timeout(INTERVAL).ok();
    }
    started.elapsed().as_secs_f64()
}
