//! What time it is for the control plane that was asked.
//!
//! `3 min ago` is told by the clock that wrote the moment down: the clock of this machine may be
//! minutes off, and that of a laboratory runs ahead of the wall. Each answer says what time it was
//! (`gpuaas-time`), and a command asks one control plane, so the last answer's is kept for the whole
//! process: the client and what draws its answers meet in each command, and would hand it on there.

use std::sync::atomic::{AtomicI64, Ordering};

use gpuaas_types::Timestamp;
use gpuaas_types::health::TIME_HEADER;
use reqwest::header::HeaderMap;

/// Before the first answer.
const UNKNOWN: i64 = i64::MIN;
static LAST: AtomicI64 = AtomicI64::new(UNKNOWN);

/// Keeps what an answer says.
pub(crate) fn note(headers: &HeaderMap) {
    let said = headers.get(TIME_HEADER).and_then(|value| value.to_str().ok());
    if let Some(at) = said.and_then(Timestamp::from_rfc3339) {
        LAST.store(at.as_micros(), Ordering::Relaxed);
    }
}

/// The time of the last answer; none before the first, and of a server that does not say it.
pub(crate) fn last() -> Option<Timestamp> {
    Some(LAST.load(Ordering::Relaxed)).filter(|at| *at != UNKNOWN).map(Timestamp::from_micros)
}
