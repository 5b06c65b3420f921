//! The simulator over HTTP. One task lets happen what is due and sends the notices; each
//! connection has a task of its own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::clock::SimClock;
use crate::notice::Notice;
use crate::region::Region;
use crate::shared_region::{InProcessRegion, SharedRegion};
use crate::sim_options::{SimOptions, build_region};
use crate::wire::{ResponseDelivery, RestOfList, SimRequest};

/// How long no connection is taken after one that could not be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Memory that a request gets because of the length that it announces.
const MAX_RESERVED_BYTES: usize = 8 << 20;

/// Returns when the simulator is told to stop; a dropped handle tells it nothing.
async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|told| *told).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Lets the heap run on the clock; notices go to `out`. Returns when `stop` says so.
async fn run_schedule(
    shared: Arc<SharedRegion>,
    out: mpsc::UnboundedSender<Notice>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let now = shared.clock.now_us();
        let (notices, next) = {
            let mut region = shared.lock();
            (region.advance(now), region.next_event_at())
        };
        for notice in notices {
            // Without a listener the hosts' software simply does not run.
            out.send(notice).ok();
        }
        let sleep = async {
            match next {
                Some(at) => shared.clock.wait_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            () = shared.changed.notified() => {}
            () = wait_for_stop(&mut stop) => return,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("connection dropped on purpose")]
struct ConnectionDropped;

/// A body on its way: what was rendered, and then a long list's parts, each when the connection
/// takes it.
struct SimBody {
    first: Option<Bytes>,
    rest: Option<RestOfList>,
    shared: Arc<SharedRegion>,
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let part = match this.first.take() {
            Some(first) => first,
            None if this.rest.is_none() => return Poll::Ready(None),
            None => this.shared.lock().list_part(&mut this.rest),
        };
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().map_or(0, Bytes::len) as u64;
        if self.rest.is_none() { SizeHint::with_exact(first) } else { SizeHint::default() }
    }
}

/// Reads a body into one piece of memory: its parts and then all of it would be twice its length.
async fn read_body(mut body: Incoming) -> hyper::Result<Bytes> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(MAX_RESERVED_BYTES);
    let mut bytes = BytesMut::with_capacity(announced.min(MAX_RESERVED_BYTES));
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}

async fn handle_http(
    shared: Arc<SharedRegion>,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<SimBody>, ConnectionDropped> {
    let (head, body) = request.into_parts();
    let header =
        |name: &str| head.headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let request = SimRequest {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or("").to_owned(),
        authorization: header("authorization"),
        content_type: header("content-type"),
        body: read_body(body).await.map_err(|_| ConnectionDropped)?,
    };
    let region = InProcessRegion(shared.clone());
    let response = match shared.queue_us(&request) {
        0 => region.call_in_parts(&request).await,
        us => {
            // In a task of its own: a call in a queue is carried out also where its caller hangs up.
            let late = async move {
                region.wait_in_queue(us).await;
                region.call_in_parts(&request).await
            };
            tokio::spawn(late).await.map_err(|_| ConnectionDropped)?
        }
    };
    if response.delivery == ResponseDelivery::Reset {
        return Err(ConnectionDropped);
    }
    let mut out =
        hyper::Response::builder().status(response.status).header("Server", "TwistedWeb/24.3.0");
    if !response.content_type.is_empty() {
        out = out.header("Content-Type", response.content_type);
    }
    for (name, value) in &response.headers {
        out = out.header(*name, value);
    }
    let first = Some(response.body).filter(|body| !body.is_empty());
    out.body(SimBody { first, rest: response.rest, shared }).map_err(|_| ConnectionDropped)
}

async fn serve_connection(
    shared: Arc<SharedRegion>,
    stream: TcpStream,
    mut stop: watch::Receiver<bool>,
) {
    stream.set_nodelay(true).ok();
    let service = service_fn(move |request| handle_http(shared.clone(), request));
    let serving =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A connection that the caller closes is no error of the simulator.
        _ = serving => {}
        () = wait_for_stop(&mut stop) => {}
    }
}

/// Serves a shared region on a listener until `stop` says so. A connection that cannot be taken, since this
/// process may open no more files, is taken later.
pub async fn serve(
    listener: TcpListener,
    shared: Arc<SharedRegion>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(serve_connection(shared.clone(), stream, stop.clone()));
                }
                Err(_) => sleep_until(Instant::now() + ACCEPT_PAUSE).await,
            },
            () = wait_for_stop(&mut stop) => return,
        }
    }
}

/// Where a caller on this machine finds a listener.
fn reachable(mut addr: SocketAddr) -> SocketAddr {
    if addr.ip().is_unspecified() {
        addr.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    addr
}

/// A running simulator.
pub struct SimServer;

/// What a started simulator hands back. Dropping it does not stop the simulator.
#[derive(Debug)]
pub struct SimHandle {
    /// Where it listens.
    pub addr: SocketAddr,
    /// The administrator's API key.
    pub api_key: String,
    /// Hosts that begin and end to run.
    pub notices: mpsc::UnboundedReceiver<Notice>,
    /// The region behind it.
    pub region: Arc<SharedRegion>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl SimServer {
    /// Starts a simulator of the region that the options describe.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn start(options: SimOptions) -> Result<SimHandle, std::io::Error> {
        let (region, api_key) = build_region(&options);
        Self::start_region(region, api_key, options.listen, options.clock).await
    }

    /// Starts a simulator of a region that was set up by hand.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn start_region(
        mut region: Region,
        api_key: String,
        listen: SocketAddr,
        clock: Arc<dyn SimClock>,
    ) -> Result<SimHandle, std::io::Error> {
        let listener = TcpListener::bind(listen).await?;
        let addr = listener.local_addr()?;
        region.set_public_url(&format!("http://{}", reachable(addr)));
        let shared = SharedRegion::new(region, clock);
        let (stop, stopped) = watch::channel(false);
        let (sender, notices) = mpsc::unbounded_channel();
        let (served, ends) = (shared.clone(), stopped.clone());
        let tasks = vec![
            tokio::spawn(run_schedule(shared.clone(), sender, stopped)),
            tokio::spawn(serve(listener, served, ends)),
        ];
        Ok(SimHandle { addr, api_key, notices, region: shared, stop, tasks })
    }
}

impl SimHandle {
    /// URL of the region, `http://HOST:PORT/MAAS/`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/MAAS/", reachable(self.addr))
    }

    /// Stops listening and lets open connections go.
    pub async fn shutdown(self) {
        self.stop.send(true).ok();
        for task in self.tasks {
            task.await.ok();
        }
    }
}
