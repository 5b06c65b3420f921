//! How many streams of events callers may hold open: a stream takes a connection of the operators'
//! listener for as long as it lasts, so one caller could take all of them.

use std::collections::HashMap;
use std::sync::Arc;

use gpuaas_types::Problem;
use gpuaas_types::codes::ProblemCode;
use parking_lot::Mutex;

use crate::http::problem::problem;

/// Streams of one caller. The console and the command line hold one for each window.
const MOST_PER_CALLER: usize = 8;
/// Streams of all callers: half of the connections that the listener admits by default.
const MOST: usize = 256;

/// Streams that are open, by caller.
#[derive(Debug, Default)]
pub(crate) struct EventStreams(Arc<Mutex<HashMap<String, usize>>>);

/// One open stream; dropping it frees its place.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    streams: Arc<Mutex<HashMap<String, usize>>>,
    caller: String,
}

impl EventStreams {
    /// Counts a stream of a caller.
    ///
    /// # Errors
    /// `too_many_requests`: the caller, or all callers together, hold as many streams as they may.
    pub(crate) fn take(&self, caller: &str) -> Result<StreamPlace, Problem> {
        let mut streams = self.0.lock();
        let own = streams.get(caller).copied().unwrap_or_default();
        let all: usize = streams.values().sum();
        if own >= MOST_PER_CALLER || all >= MOST {
            let detail = format!(
                "too many event streams: this caller has {own} open (limit {MOST_PER_CALLER}), all \
                 callers have {all} (limit {MOST})"
            );
            return Err(problem(ProblemCode::TooManyRequests).with_detail(detail));
        }
        streams.insert(caller.to_owned(), own + 1);
        Ok(StreamPlace { streams: Arc::clone(&self.0), caller: caller.to_owned() })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut streams = self.streams.lock();
        if let Some(own) = streams.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                streams.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_a_limit_of_its_own_and_a_closed_stream_frees_its_place() {
        let streams = EventStreams::default();
        let mut own: Vec<_> = (0..MOST_PER_CALLER).map(|_| streams.take("eve").unwrap()).collect();
        assert_eq!(streams.take("eve").unwrap_err().code, "too_many_requests");
        streams.take("ann").unwrap();
        own.pop();
        streams.take("eve").unwrap();
        let others: Vec<_> = (0..MOST).map_while(|n| streams.take(&n.to_string()).ok()).collect();
        assert_eq!(others.len() + own.len(), MOST);
    }
}
