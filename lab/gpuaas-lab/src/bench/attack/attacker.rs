//! The attacker of `gpuaas bench attack`: a process that holds connections and does nothing good
//! with them, from one address. Whenever the server closes one, it opens another a second later.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::codes::CommandCode;
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, interval, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The word that says that every connection was tried; [`Taken`] comes after it.
pub(super) const READY: &str = "ready";
/// How long a connection that was closed is left alone.
const AGAIN: Duration = Duration::from_secs(1);
/// Longest time of a connection or a handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// Length of a head that never ends, in bytes: what a server without a limit would buffer.
const HEAD_BYTES: usize = 500 * 1024;
/// Attempts that may be under way at once.
const ATTEMPTS: usize = 128;
/// Length of a body that never ends, in bytes.
const BODY_BYTES: usize = 1_000_000;
/// Time within which a body that is refused is answered.
const REFUSAL: Duration = Duration::from_secs(3);

/// What to attack, and how. It comes as one line of JSON on standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct AttackPlan {
    /// Where the attacker's connections come from.
    pub(super) source: IpAddr,
    /// The listener of operators, which speaks plain HTTP.
    pub(super) operators: SocketAddr,
    /// The listener of nodes, which speaks TLS.
    pub(super) nodes: SocketAddr,
    /// What clients of that one trust, PEM.
    pub(super) anchor_pem: String,
    /// Path of a large file on that one.
    pub(super) download_path: String,
    /// What opens that file.
    pub(super) download_token: String,
    /// An operator's token.
    pub(super) token: String,
    /// Connections that send nothing.
    pub(super) silent_sockets: usize,
    /// Requests whose head does not end.
    pub(super) unfinished_headers: usize,
    /// Requests whose body comes a byte a second.
    pub(super) slow_bodies: usize,
    /// Downloads that nobody reads.
    pub(super) unread_downloads: usize,
    /// Streams of events, with one token.
    pub(super) event_streams: usize,
    /// Bodies that never end, with the same token.
    pub(super) open_bodies: usize,
}

/// What the server let the attacker have, when each connection was tried once.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Taken {
    /// Streams of events that are open.
    pub(super) event_streams: usize,
    /// Streams of events that were refused with 429.
    pub(super) refused_streams: usize,
    /// Bodies that the server waits for.
    pub(super) open_bodies: usize,
    /// Bodies that were refused with 429.
    pub(super) refused_bodies: usize,
}

/// Runs the attack until standard input ends.
///
/// # Errors
/// `attack_failed`.
pub async fn run(terminal: &mut Terminal) -> Result<(), Failure> {
    let line = input_line().await?;
    let plan: AttackPlan = serde_json::from_str(&line).map_err(|error| failed(&error))?;
    let attack = Arc::new(Attack::new(plan)?);
    let first = Arc::new(Semaphore::new(0));
    // What has a limit of its own goes first: later, connections are lost to the rest of the attack.
    for spawn in [Attack::spawn_streams, Attack::spawn_bodies, Attack::spawn_strangers] {
        let count = spawn(&attack, &first);
        let tried = first.acquire_many(u32::try_from(count).unwrap_or(u32::MAX)).await;
        tried.map_err(|error| failed(&error))?.forget();
    }
    let taken = attack.taken.lock().map_or_else(|_| Taken::default(), |taken| *taken);
    let taken = serde_json::to_string(&taken).map_err(|error| failed(&error))?;
    terminal.data(&format!("{READY} {taken}"))?;
    // The end of the input is the end of the attack.
    input_line().await.map(drop)
}

/// A line of standard input, or what is left of it.
async fn input_line() -> Result<String, Failure> {
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    });
    let line = read.await.map_err(|error| failed(&error))?;
    line.map_err(|error| failed(&error))
}

pub(super) fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::local(CommandCode::AttackFailed, error.to_string())
}

struct Attack {
    plan: AttackPlan,
    tls: TlsConnector,
    attempts: Semaphore,
    taken: Mutex<Taken>,
}

impl Attack {
    fn new(plan: AttackPlan) -> Result<Self, Failure> {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject as _;
        let mut roots = rustls::RootCertStore::empty();
        for anchor in CertificateDer::pem_slice_iter(plan.anchor_pem.as_bytes()) {
            let anchor = anchor.map_err(|error| failed(&error))?;
            roots.add(anchor).map_err(|error| failed(&error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = TlsConnector::from(Arc::new(config));
        let (attempts, taken) = (Semaphore::new(ATTEMPTS), Mutex::default());
        Ok(Self { plan, tls, attempts, taken })
    }

    /// Starts the streams of events; each adds to `first` when it was tried once. Answers how many there
    /// are.
    fn spawn_streams(self: &Arc<Self>, first: &Arc<Semaphore>) -> usize {
        for _ in 0..self.plan.event_streams {
            self.repeat(first, |attack, tried| attack.stream_events(tried));
        }
        self.plan.event_streams
    }

    /// The same for bodies that never end.
    fn spawn_bodies(self: &Arc<Self>, first: &Arc<Semaphore>) -> usize {
        for _ in 0..self.plan.open_bodies {
            self.repeat(first, |attack, tried| attack.leave_body_open(tried));
        }
        self.plan.open_bodies
    }

    /// The same for what nobody knows the sender of. Each sort attacks both listeners in turn, but for the
    /// downloads.
    fn spawn_strangers(self: &Arc<Self>, first: &Arc<Semaphore>) -> usize {
        let AttackPlan { silent_sockets, unfinished_headers, slow_bodies, .. } = self.plan;
        for number in 0..silent_sockets {
            self.repeat(first, move |attack, tried| attack.stay_silent(number, tried));
        }
        for number in 0..unfinished_headers {
            self.repeat(first, move |attack, tried| attack.send_head(number, tried));
        }
        for number in 0..slow_bodies {
            self.repeat(first, move |attack, tried| attack.send_body(number, tried));
        }
        for _ in 0..self.plan.unread_downloads {
            self.repeat(first, |attack, tried| attack.download(tried));
        }
        silent_sockets + unfinished_headers + slow_bodies + self.plan.unread_downloads
    }

    fn repeat<F: Future<Output = Option<()>> + Send>(
        self: &Arc<Self>,
        first: &Arc<Semaphore>,
        attempt: impl Fn(Arc<Self>, Tried) -> F + Send + Sync + 'static,
    ) {
        let (attack, first) = (Arc::clone(self), Arc::clone(first));
        tokio::spawn(async move {
            let mut tried = Tried(Some(first));
            loop {
                // Whether the server let it in, or closed it, makes no difference to an attacker.
                attempt(Arc::clone(&attack), tried).await.unwrap_or_default();
                tried = Tried(None);
                sleep_until(Instant::now() + AGAIN).await;
            }
        });
    }

    async fn connect(&self, to: SocketAddr) -> Option<TcpStream> {
        let _attempt = self.attempts.acquire().await.ok()?;
        let socket = TcpSocket::new_v4().ok()?;
        socket.bind((self.plan.source, 0).into()).ok()?;
        timeout(CONNECT, socket.connect(to)).await.ok()?.ok()
    }

    async fn connect_tls(&self) -> Option<TlsStream<TcpStream>> {
        let stream = self.connect(self.plan.nodes).await?;
        let name = ServerName::IpAddress(self.plan.nodes.ip().into());
        timeout(CONNECT, self.tls.connect(name, stream)).await.ok()?.ok()
    }

    async fn stay_silent(self: Arc<Self>, number: usize, tried: Tried) -> Option<()> {
        let to = if number.is_multiple_of(2) { self.plan.operators } else { self.plan.nodes };
        let mut stream = self.connect(to).await?;
        drop(tried);
        read_to_end(&mut stream).await
    }

    async fn send_head(self: Arc<Self>, number: usize, tried: Tried) -> Option<()> {
        if number.is_multiple_of(2) {
            endless_head(self.connect(self.plan.operators).await?, tried).await
        } else {
            endless_head(self.connect_tls().await?, tried).await
        }
    }

    async fn send_body(self: Arc<Self>, number: usize, tried: Tried) -> Option<()> {
        if number.is_multiple_of(2) {
            slow_body(self.connect(self.plan.operators).await?, "/api/v1/sites", tried).await
        } else {
            slow_body(self.connect_tls().await?, "/agent/v1/enroll", tried).await
        }
    }

    async fn download(self: Arc<Self>, tried: Tried) -> Option<()> {
        let mut stream = self.connect_tls().await?;
        let AttackPlan { download_path, download_token, .. } = &self.plan;
        let request = format!(
            "GET {download_path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {download_token}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        drop(tried);
        // Nothing is read, so that this end never learns that the other has closed: it is asked.
        let mut looks = interval(AGAIN);
        while stream.get_ref().0.take_error().ok()?.is_none() {
            looks.tick().await;
        }
        Some(())
    }
}

impl Attack {
    /// Adds to what the server lets the attacker have, at the first attempt of a connection.
    fn count(&self, tried: &Tried, add: impl FnOnce(&mut Taken)) {
        if tried.0.is_some()
            && let Ok(mut taken) = self.taken.lock()
        {
            add(&mut taken);
        }
    }

    async fn stream_events(self: Arc<Self>, tried: Tried) -> Option<()> {
        let mut stream = self.connect(self.plan.operators).await?;
        let request = format!(
            "GET /api/v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
            self.plan.token
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.ok()?;
        if status.ends_with(b" 200") {
            self.count(&tried, |taken| taken.event_streams += 1);
        } else if status.ends_with(b" 429") {
            self.count(&tried, |taken| taken.refused_streams += 1);
        }
        drop(tried);
        read_to_end(&mut stream).await
    }

    async fn leave_body_open(self: Arc<Self>, tried: Tried) -> Option<()> {
        let mut stream = self.connect(self.plan.operators).await?;
        let head = format!(
            "POST /api/v1/nodes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {BODY_BYTES}\r\n\r\n",
            self.plan.token
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        // What is refused is answered before a byte of it is read.
        let mut status = [0; 12];
        let answered = timeout(REFUSAL, stream.read_exact(&mut status)).await;
        if answered.is_err() {
            self.count(&tried, |taken| taken.open_bodies += 1);
            // All but the last bytes.
            let piece = [b' '; 10_000];
            for _ in 0..BODY_BYTES / piece.len() - 1 {
                stream.write_all(&piece).await.ok()?;
            }
        } else if status.ends_with(b" 429") {
            self.count(&tried, |taken| taken.refused_bodies += 1);
        }
        drop(tried);
        read_to_end(&mut stream).await
    }
}

/// Says, when it is dropped, that a connection was tried for the first time.
struct Tried(Option<Arc<Semaphore>>);

impl Drop for Tried {
    fn drop(&mut self) {
        if let Some(first) = &self.0 {
            first.add_permits(1);
        }
    }
}

async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> Option<()> {
    let mut buffer = [0; 512];
    while stream.read(&mut buffer).await.ok()? > 0 {}
    Some(())
}

async fn endless_head(mut stream: impl AsyncRead + AsyncWrite + Unpin, tried: Tried) -> Option<()> {
    stream.write_all(b"GET /api/v1/nodes HTTP/1.1\r\nx-endless: ").await.ok()?;
    let piece = [b'x'; 4_096];
    for _ in 0..HEAD_BYTES / piece.len() {
        stream.write_all(&piece).await.ok()?;
    }
    stream.flush().await.ok()?;
    drop(tried);
    read_to_end(&mut stream).await
}

async fn slow_body(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    tried: Tried,
) -> Option<()> {
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.flush().await.ok()?;
    drop(tried);
    let mut ticks = interval(AGAIN);
    loop {
        ticks.tick().await;
        stream.write_all(b" ").await.ok()?;
        stream.flush().await.ok()?;
    }
}
