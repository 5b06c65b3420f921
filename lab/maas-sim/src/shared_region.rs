//! A region that several tasks call, without a socket.
//!
//! A request holds the region's lock only while it is answered; a machine's body is rendered at
//! most once between two changes, so most answers are a copy of a pointer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::clock::SimClock;
use crate::region::Region;
use crate::wire::{SimRequest, SimResponse};

/// A region that several tasks use.
pub struct SharedRegion {
    region: Mutex<Region>,
    pub(crate) clock: Arc<dyn SimClock>,
    /// Notified when something may be due earlier than before.
    pub(crate) changed: Notify,
    in_flight: InFlight,
}

impl std::fmt::Debug for SharedRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedRegion").finish_non_exhaustive()
    }
}

impl SharedRegion {
    /// Shares a region that lives on `clock`.
    #[must_use]
    pub fn new(region: Region, clock: Arc<dyn SimClock>) -> Arc<Self> {
        Arc::new(Self {
            region: Mutex::new(region),
            clock,
            changed: Notify::new(),
            in_flight: InFlight::default(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Region> {
        // A panic in one request must not take the region away from the others.
        self.region.lock()
    }

    /// Does something with the region, e.g. injects a fault or reads the statistics.
    pub fn with<T>(&self, act: impl FnOnce(&mut Region) -> T) -> T {
        let out = act(&mut self.lock());
        self.changed.notify_one();
        out
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn SimClock> {
        &self.clock
    }

    /// The most reads (GET), and the most changes, that were being answered at one time.
    #[must_use]
    pub fn peak_in_flight(&self) -> (usize, usize) {
        let [reads, changes] = &self.in_flight.peak;
        (reads.load(Ordering::SeqCst), changes.load(Ordering::SeqCst))
    }

    /// Microseconds from now until the region carries the call out, see [`Region::queue_us`].
    pub fn queue_us(&self, request: &SimRequest) -> i64 {
        let now = self.clock.now_us();
        self.lock().queue_us(now, request)
    }

    /// Answers a request at the present time; does not wait for [`SimResponse::delay_us`]. A long
    /// list is put together part by part, and the region is free between two of them.
    pub fn call(&self, request: &SimRequest) -> SimResponse {
        let mut response = self.call_in_parts(request);
        if response.rest.is_some() {
            let mut out = bytes::BytesMut::from(&response.body[..]);
            while response.rest.is_some() {
                out.extend(self.lock().list_part(&mut response.rest));
            }
            response.body = out.freeze();
        }
        response
    }

    /// [`SharedRegion::call`] that leaves the most of a long list for [`Region::list_part`].
    pub(crate) fn call_in_parts(&self, request: &SimRequest) -> SimResponse {
        let (now, wall) = (self.clock.now_us(), self.clock.wall_seconds());
        let (response, wake) = {
            let mut region = self.lock();
            let before = region.next_event_at();
            let response = region.handle_in_parts(now, wall, request);
            let after = region.next_event_at();
            (response, after != before || region.wants_attention(now))
        };
        if wake {
            self.changed.notify_one();
        }
        response
    }
}

/// Requests that are being answered, and the most that ever were.
#[derive(Debug, Default)]
struct InFlight {
    /// Reads first, then changes.
    now: [AtomicUsize; 2],
    peak: [AtomicUsize; 2],
}

/// Counts one request for as long as its answer is on the way.
struct InFlightGuard<'a> {
    in_flight: &'a InFlight,
    kind: usize,
}

impl<'a> InFlightGuard<'a> {
    fn new(in_flight: &'a InFlight, is_read: bool) -> Self {
        let kind = usize::from(!is_read);
        let now = in_flight.now[kind].fetch_add(1, Ordering::SeqCst) + 1;
        in_flight.peak[kind].fetch_max(now, Ordering::SeqCst);
        Self { in_flight, kind }
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.in_flight.now[self.kind].fetch_sub(1, Ordering::SeqCst);
    }
}

/// Calls a region without a socket, with the waits that a socket would show.
#[derive(Debug, Clone)]
pub struct InProcessRegion(pub Arc<SharedRegion>);

impl InProcessRegion {
    /// Answers a request after the time that the real region would have taken. A connection
    /// that is lost on the way back shows as [`ResponseDelivery::Reset`].
    pub async fn call(&self, request: &SimRequest) -> SimResponse {
        let _in_flight = InFlightGuard::new(&self.0.in_flight, request.method == "GET");
        self.wait_in_queue(self.0.queue_us(request)).await;
        let response = self.0.call(request);
        self.wait_as_told(&response).await;
        response
    }

    /// [`InProcessRegion::call`] that leaves the most of a long list for [`Region::list_part`].
    pub(crate) async fn call_in_parts(&self, request: &SimRequest) -> SimResponse {
        let _in_flight = InFlightGuard::new(&self.0.in_flight, request.method == "GET");
        let response = self.0.call_in_parts(request);
        self.wait_as_told(&response).await;
        response
    }

    /// Waits until the region carries a call out that came now.
    pub(crate) async fn wait_in_queue(&self, us: i64) {
        if us > 0 {
            let at = self.0.clock.now_us() + us;
            self.0.clock.wait_until(at).await;
        }
    }

    async fn wait_as_told(&self, response: &SimResponse) {
        if response.delay_us > 0 {
            let at = self.0.clock.now_us() + response.delay_us;
            self.0.clock.wait_until(at).await;
        }
    }
}
