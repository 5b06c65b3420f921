//! MAAS without a socket: the client's transport over the region, on the virtual clock.
//!
//! A request takes its time there and back, as on a network; without that, an answer would carry
//! the moment of its question and nothing could be newer than anything. Before the region sees a
//! request and after it has answered lie the two boundaries at which a control plane can die with
//! a call in hand; a [`Fuse`] ends it at the N-th of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gpuaas_engine::{Clock, Connect, VirtualClock};
use gpuaas_types::spec::SiteSpec;
use maas_client::{
    ApiKey, Client, Config, Error as MaasError, Request, Response, Transport, TransportError,
};
use maas_sim::{Delivery, Shared};

/// Seconds that a request needs to the region, and an answer back.
const TRAVEL_SECONDS: f64 = 0.004;

/// Counts boundaries down to the one at which the control plane ends.
#[derive(Debug)]
pub struct Fuse {
    left: AtomicI64,
    burnt: AtomicBool,
}

impl Default for Fuse {
    fn default() -> Self {
        Self { left: AtomicI64::new(i64::MAX), burnt: AtomicBool::new(false) }
    }
}

impl Fuse {
    /// Lets the control plane end at the `boundaries`-th boundary from here.
    pub fn light(&self, boundaries: u32) {
        self.left.store(i64::from(boundaries), Ordering::SeqCst);
    }

    /// Whether the end has come.
    #[must_use]
    pub fn is_burnt(&self) -> bool {
        self.burnt.load(Ordering::SeqCst)
    }

    /// Lets the control plane end here and now.
    pub(super) fn burn(&self) {
        self.burnt.store(true, Ordering::SeqCst);
    }

    /// A new fuse that nobody has lit.
    pub fn replace(&self) {
        self.left.store(i64::MAX, Ordering::SeqCst);
        self.burnt.store(false, Ordering::SeqCst);
    }

    async fn boundary(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 1 {
            self.burnt.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
    }
}

/// Connects the engine to a region in the same process.
pub(super) struct Within {
    line: Arc<Line>,
    signed_by: Arc<dyn Clock>,
}

struct Line {
    region: Arc<Shared>,
    clock: VirtualClock,
    fuse: Arc<Fuse>,
}

impl Within {
    pub(super) fn new(region: Arc<Shared>, clock: &VirtualClock, fuse: Arc<Fuse>) -> Self {
        let line = Arc::new(Line { region, clock: clock.clone(), fuse });
        Self { line, signed_by: Arc::new(clock.clone()) }
    }

    pub(super) fn signed_by(self, signed_by: Arc<dyn Clock>) -> Self {
        Self { signed_by, ..self }
    }
}

impl Connect for Within {
    fn connect(&self, site: &SiteSpec, key: ApiKey) -> Result<Client, MaasError> {
        let config = Config::new(site.url.clone(), key);
        let clock = Arc::clone(&self.signed_by);
        let line = Arc::clone(&self.line) as Arc<dyn Transport>;
        Client::with_transport(&config, line, Arc::new(move || clock.now().as_seconds()))
    }
}

impl Line {
    async fn wait(&self, seconds: f64) {
        self.clock.sleep_until(self.clock.now().plus_seconds(seconds)).await;
    }
}

#[async_trait]
impl Transport for Line {
    async fn send(&self, request: Request, timeout: Duration) -> Result<Response, TransportError> {
        self.wait(TRAVEL_SECONDS).await;
        self.fuse.boundary().await;
        let answer = self.region.call(&as_seen(request));
        #[expect(clippy::cast_precision_loss, reason = "a wait of minutes")]
        let seconds = answer.delay_us as f64 / 1e6 + TRAVEL_SECONDS;
        self.wait(seconds.min(timeout.as_secs_f64())).await;
        self.fuse.boundary().await;
        if seconds > timeout.as_secs_f64() {
            return Err(TransportError::Timeout);
        }
        if answer.delivery == Delivery::Reset {
            return Err(TransportError::Reset("connection closed".to_owned()));
        }
        let retry_after = answer
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("retry-after"))
            .and_then(|(_, value)| value.parse().ok())
            .map(Duration::from_secs);
        Ok(Response {
            status: answer.status,
            content_type: Some(answer.content_type.to_owned()),
            retry_after,
            date: None,
            body: answer.body,
        })
    }
}

fn as_seen(request: Request) -> maas_sim::Request {
    let header = |name: &str| request.header(name).map(str::to_owned);
    let (authorization, content_type) = (header("authorization"), header("content-type"));
    let (path, query) =
        request.path_and_query.split_once('?').unwrap_or((&request.path_and_query, ""));
    maas_sim::Request {
        method: request.method.as_str().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        authorization,
        content_type,
        body: request.body,
    }
}
