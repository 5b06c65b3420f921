//! The entry of requests: the control API, the log-in page, and the API.

use crate::control_api;
use crate::ops::{self, API_ROOT};
use crate::region::Region;
use crate::wire::{SimRequest, SimResponse};

impl Region {
    /// Answers one request. `now_us` is simulated time, microseconds since the Unix epoch;
    /// `wall_seconds` the clock that OAuth timestamps are compared with.
    pub fn handle(&mut self, now_us: i64, wall_seconds: i64, request: &SimRequest) -> SimResponse {
        self.advance_clock(now_us);
        self.wall = wall_seconds;
        dispatch(self, request)
    }
}

/// Collapses runs of slashes, as the region's server does.
fn collapse_slashes(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !out.ends_with('/') {
            out.push(c);
        }
    }
    out
}

/// Answers any request.
fn dispatch(region: &mut Region, request: &SimRequest) -> SimResponse {
    let path = collapse_slashes(&request.path);
    if path.starts_with("/sim/") {
        return control_api::handle(region, request, &path);
    }
    if path == "/MAAS/accounts/authenticate/" {
        return ops::authenticate(region, request);
    }
    let Some(rest) = path.strip_prefix(API_ROOT) else {
        return SimResponse::new(
            404,
            "text/html",
            "<html><head><title>404 - No Such Resource</title></head></html>",
        );
    };
    ops::route(region, request, &path, rest)
}
