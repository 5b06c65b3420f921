//! The entry of requests: the control API, the log-in page, and the API.

use crate::control_api;
use crate::ops::{self, API_ROOT};
use crate::region::Region;
use crate::wire::{HTML, SimRequest, SimResponse, TEXT_BARE};

/// The page of the web server itself, outside of MAAS.
const NO_RESOURCE: &str = "\n<html>\n  <head><title>404 - No Such Resource</title></head>\n  <body>\n    <h1>No Such Resource</h1>\n    <p>Sorry. No luck finding that resource.</p>\n  </body>\n</html>\n";

impl Region {
    /// Answers one request. `now_us` is simulated time, microseconds since the Unix epoch;
    /// `wall_seconds` the clock that OAuth timestamps are compared with.
    pub fn handle(&mut self, now_us: i64, wall_seconds: i64, request: &SimRequest) -> SimResponse {
        let response = self.handle_in_parts(now_us, wall_seconds, request);
        self.complete(response)
    }

    /// [`Region::handle`] that leaves the most of a long list for [`Region::list_part`].
    pub(crate) fn handle_in_parts(
        &mut self,
        now_us: i64,
        wall_seconds: i64,
        request: &SimRequest,
    ) -> SimResponse {
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
    if let Some(rest) = path.strip_prefix(API_ROOT) {
        return ops::route(region, request, &path, rest);
    }
    if path.starts_with("/MAAS/api/1.0/") {
        let text = "The 1.0 API is no longer available. Please use API version 2.0.";
        return SimResponse::new(410, TEXT_BARE, text);
    }
    if path.starts_with("/MAAS/") {
        // Everything else below it is the web interface, which decides by itself what there is.
        let page =
            "<html>\n  <body>\n    <a href=\"/MAAS/r/\">click here</a>\n  </body>\n</html>\n";
        return SimResponse::new(302, HTML, page).header("Location", "/MAAS/r/");
    }
    SimResponse::new(404, HTML, NO_RESOURCE)
}
