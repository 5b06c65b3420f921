//! Serves a router on a socket, for clients that nobody knows yet.
//!
//! A server that gives each connection a task, a buffer and all the time it wants is stopped by
//! anybody who connects often enough and sends nothing, or slowly. So each phase of a connection has
//! a limit here ([`ListenerLimits`]): the first byte, the handshake, the head of a request, the time
//! between two requests, and a body or an answer on which nothing moves. How many connections there
//! may be, and which one goes when there are too many, is in `connections`. The accept loop itself
//! waits for no client.

mod activity;
mod connections;
mod held;
mod stall;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use gpuaas_types::limits::{Limit, ListenerLimits};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::activity::Activity;
use self::connections::{Capacity, Connections, Entry, NoPlace};
use self::held::HeldRequest;
pub use self::held::{Held, LaterResponse, MayHold};
use self::stall::{OpenRequest, RequestBody, ResponseBody, WatchedStream};
use crate::peer::{Peer, PeerReader};

/// How long no connection is accepted after the system had no files or memory for one.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);
/// How often a listener says that it refuses connections.
const REFUSALS_PAUSE: Duration = Duration::from_secs(60);
/// Why a connection ended.
type ConnectionError = Box<dyn std::error::Error + Send + Sync>;
/// Largest buffer of a connection, in bytes, each way.
const BUFFER_BYTES: usize = 64 * 1024;

/// What a listener speaks.
#[derive(Debug, Clone)]
pub enum Security {
    /// HTTP in plain text.
    Plain,
    /// HTTP over TLS.
    Tls {
        /// Certificate, versions and ciphers.
        config: Arc<ServerConfig>,
        /// Reads the certificates of clients; none: no client is asked for one.
        reader: Option<PeerReader>,
    },
}

/// A socket that listens, and how it is served.
#[derive(Debug)]
pub struct HttpServer {
    socket: TcpListener,
    shared: Arc<Shared>,
}

/// What the connections of a listener share.
#[derive(Debug)]
struct Shared {
    security: Security,
    limits: ListenerLimits,
    connections: Arc<Connections>,
    stop: CancellationToken,
    /// When it was last said that connections are refused.
    refusal_logged: Mutex<Option<Instant>>,
}

impl HttpServer {
    /// A server that ends when `stop` is cancelled.
    #[must_use]
    pub fn new(
        socket: TcpListener,
        security: Security,
        limits: ListenerLimits,
        stop: CancellationToken,
    ) -> Self {
        let connections = Connections::new(Capacity::new(&limits));
        let refusal_logged = Mutex::default();
        let shared = Arc::new(Shared { security, limits, connections, stop, refusal_logged });
        Self { socket, shared }
    }

    /// Answers requests until it is stopped, and then those that are under way. Handlers find the
    /// [`Peer`] as connect info. Connections end with this future where it is dropped.
    ///
    /// # Errors
    /// When the socket has no address.
    pub async fn run(self, router: Router) -> io::Result<()> {
        let Self { socket, shared } = self;
        socket.local_addr()?;
        let mut tasks = JoinSet::new();
        loop {
            let next = async {
                let permit = shared.connections.socket().await;
                (permit, accept(&socket, &shared.connections).await)
            };
            tokio::select! {
                () = shared.stop.cancelled() => break,
                Some(ended) = tasks.join_next() => log_panic(ended),
                (permit, (stream, address)) = next => {
                    let Some(permit) = permit else { break };
                    let entry = shared.connections.add(address.ip(), permit);
                    let (shared, router) = (Arc::clone(&shared), router.clone());
                    tasks.spawn(answer(shared, router, stream, address, entry));
                }
            }
        }
        drop(socket);
        while let Some(ended) = tasks.join_next().await {
            log_panic(ended);
        }
        Ok(())
    }
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection task failed");
    }
}

async fn accept(socket: &TcpListener, connections: &Connections) -> (TcpStream, SocketAddr) {
    loop {
        match socket.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_client(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept connections");
                connections.close_one_silent();
                sleep_until(Instant::now() + EXHAUSTED_PAUSE).await;
            }
        }
    }
}

/// Whether the client went away while it was accepted: accept(2) reports that as an error.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// One connection, from its first byte to its end.
async fn answer(
    shared: Arc<Shared>,
    router: Router,
    stream: TcpStream,
    address: SocketAddr,
    entry: Entry,
) {
    let first_byte = shared.limits.time(Limit::FirstByteSeconds);
    let mut byte = [0];
    let has_bytes = tokio::select! {
        () = entry.closed() => false,
        () = shared.stop.cancelled() => false,
        peeked = timeout(first_byte, stream.peek(&mut byte)) => matches!(peeked, Ok(Ok(1..))),
    };
    if !has_bytes {
        return tracing::debug!(%address, "a connection closed without sending data");
    }
    let now = Instant::now();
    let activity = Arc::new(Activity::new(now));
    if let Err(reason) = entry.take_place(&activity, now) {
        return shared.log_refusal(address, reason);
    }
    // In a box of its own, so that a silent connection costs little.
    let ended = Box::pin(shared.answer_requests(router, stream, address, &activity, &entry)).await;
    if let Err(error) = ended {
        tracing::debug!(%address, %error, "a connection ended");
    }
}

impl Shared {
    fn log_refusal(&self, address: SocketAddr, reason: NoPlace) {
        let now = Instant::now();
        let mut logged = self.refusal_logged.lock();
        let is_due = logged.is_none_or(|at| now.duration_since(at) >= REFUSALS_PAUSE);
        if is_due {
            *logged = Some(now);
        }
        drop(logged);
        if is_due && reason != NoPlace::Closed {
            tracing::warn!(%address, ?reason, "refusing connections; --limits sets how many may be open");
        } else {
            tracing::debug!(%address, ?reason, "refusing a connection");
        }
    }

    async fn answer_requests(
        &self,
        router: Router,
        stream: TcpStream,
        address: SocketAddr,
        activity: &Arc<Activity>,
        entry: &Entry,
    ) -> Result<(), ConnectionError> {
        stream.set_nodelay(true)?;
        match &self.security {
            Security::Plain => {
                let peer = Peer { address, certificate: None };
                self.answer_http(router, stream, peer, activity, entry).await
            }
            Security::Tls { config, reader } => {
                let limit = self.limits.time(Limit::HandshakeSeconds);
                // In boxes, which are given back, and moved as pointers.
                let handshake = Box::pin(TlsAcceptor::from(Arc::clone(config)).accept(stream));
                let stream = tokio::select! {
                    () = entry.closed() => return Ok(()),
                    () = self.stop.cancelled() => return Ok(()),
                    done = timeout(limit, handshake) => Box::new(done??),
                };
                let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let certificate = reader
                    .as_ref()
                    .filter(|_| !chain.is_empty())
                    .map(|reader| Arc::new(reader.read(chain)));
                let peer = Peer { address, certificate };
                self.answer_http(router, stream, peer, activity, entry).await
            }
        }
    }

    async fn answer_http<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        router: Router,
        stream: S,
        peer: Peer,
        activity: &Arc<Activity>,
        entry: &Entry,
    ) -> Result<(), ConnectionError> {
        let stall = self.limits.time(Limit::StallSeconds);
        let service = TowerToHyperService::new(router);
        let mut stream = WatchedStream::new(stream, Arc::clone(activity), stall);
        let mut answer = None;
        loop {
            // In a box of its own, which a request that is held does without.
            let serving = self.serve(&service, stream, &peer, activity, entry, answer.take());
            let Some((back, held)) = Box::pin(serving).await? else { return Ok(()) };
            stream = back;
            let response = tokio::select! {
                response = held.answer(&mut stream) => response,
                () = entry.closed() => None,
            };
            let Some(response) = response else { return Ok(()) };
            stream.read_first(held::STAND_IN);
            answer = Some(response);
        }
    }

    /// Answers requests until the connection ends, or until one is held: then the stream comes back.
    /// `answer` is that to the first request.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        service: &TowerToHyperService<Router>,
        stream: WatchedStream<S>,
        peer: &Peer,
        activity: &Arc<Activity>,
        entry: &Entry,
        answer: Option<Response<Body>>,
    ) -> Result<Option<(WatchedStream<S>, HeldRequest)>, ConnectionError> {
        let stall = self.limits.time(Limit::StallSeconds);
        let (header, idle) =
            (self.limits.time(Limit::HeaderSeconds), self.limits.time(Limit::IdleSeconds));
        let (answer, taken) = (Mutex::new(answer), Mutex::new(None));
        let service = service_fn(|request: Request<Incoming>| {
            let open = OpenRequest::new(activity);
            let answered = answer.lock().take();
            // What is not written yet is in the buffers that are given back.
            let may_hold = held::may_hold(&request) && !activity.is_writing();
            let mut request = request.map(|body| Body::new(RequestBody::new(body, stall)));
            request.extensions_mut().insert(ConnectInfo(peer.clone()));
            if may_hold {
                request.extensions_mut().insert(MayHold);
            }
            let response = answered.is_none().then(|| service.call(request));
            let taken = &taken;
            async move {
                let mut response: Response<Body> = match (answered, response) {
                    (None, Some(response)) => response.await?,
                    (answered, _) => answered.unwrap_or_default(),
                };
                if let Some(later) = Held::take_from(&mut response) {
                    *taken.lock() = Some(HeldRequest::new(later, &response, open));
                    return std::future::pending().await;
                }
                Ok::<_, Infallible>(response.map(|body| ResponseBody::new(body, open)))
            }
        });
        let io = TokioIo::new(stream);
        let mut connection = self.http1().serve_connection(io, service);
        let mut is_stopping = false;
        let held = loop {
            let now = Instant::now();
            let next_check =
                activity.deadline(header, idle).map_or(now + header, |at| at.min(now + header));
            let progress = poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
                Poll::Ready(ended) => Poll::Ready(ended.map(|()| None)),
                Poll::Pending => {
                    taken.lock().take().map_or(Poll::Pending, |it| Poll::Ready(Ok(Some(it))))
                }
            });
            tokio::select! {
                ended = progress => match ended? {
                    Some(held) => break held,
                    None => return Ok(None),
                },
                () = entry.closed() => return Ok(None),
                () = self.stop.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    Pin::new(&mut connection).graceful_shutdown();
                }
                () = sleep_until(next_check) => {
                    let deadline = activity.deadline(header, idle);
                    if deadline.is_some_and(|at| at <= Instant::now()) {
                        return Ok(None);
                    }
                }
            }
        };
        let parts = connection.into_parts();
        let mut stream = parts.io.into_inner();
        stream.add_ahead(&parts.read_buf);
        Ok(Some((stream, held)))
    }

    fn http1(&self) -> http1::Builder {
        let mut builder = http1::Builder::new();
        builder
            // The limits of this module take its place.
            .header_read_timeout(None)
            .max_header_size(self.limits.count(Limit::HeaderBytes))
            .max_headers(self.limits.count(Limit::HeaderFields))
            .max_buf_size(BUFFER_BYTES);
        builder
    }
}
