//! Listens for the first calls of guests, as long as one is expected.
//!
//! Guests are strangers, and this is the one thing of the host beside DHCP and DNS that they reach. So
//! it listens on the bridge alone, knows one method and one path, and reads so many bytes for so many
//! seconds of so many connections. What it understands is little enough to be read here; a server of
//! HTTP would bring more than it saves.
//!
//! It is level-triggered: [`GuestCallListener::update`] compares what listens with what is expected.
//! The folders of the claims say what is, so a new process of the agent goes on where the last ended.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use host_facts::HostRoot;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use super::guest_call::{self, CallAnswer, GuestCallSettings};
use super::host::SliceHostError;
use crate::atomic_file;
use crate::clock::{AgentClock as _, HostClock};
use crate::host::Host;

/// Most bytes of a request's line and headers.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// Most bytes of a request's body, which is read and dropped.
const MAX_BODY_BYTES: usize = 16 << 10;
/// Longest time of a connection, in seconds.
const CONNECTION_SECONDS: u64 = 5;
/// Most connections at once, and most of one guest.
const MAX_CONNECTIONS: usize = 32;
const MAX_CONNECTIONS_OF_GUEST: usize = 2;
/// Connections that the kernel holds until they are taken.
const BACKLOG: u32 = 64;
/// Seconds to wait after a connection could not be taken.
const ACCEPT_PAUSE_SECONDS: f64 = 1.0;
/// Where an emulated host, which has no bridge, says on which port of 127.0.0.1 it listens.
pub const EMULATED_PORT_FILE: &str = "run/gpuaas/guest-call.port";

/// Listens for the first calls of guests. Copies are the same listener.
#[derive(Debug, Clone, Default)]
pub struct GuestCallListener {
    running: Arc<tokio::sync::Mutex<Option<Running>>>,
}

/// A socket that is listened on until this is dropped.
#[derive(Debug)]
struct Running {
    settings: GuestCallSettings,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl GuestCallListener {
    /// Listens where a guest of `host` is expected to call, and stops where none is.
    ///
    /// # Errors
    /// `guest_call_unbound` where the address cannot be listened on; `guest_call_settings`.
    pub(crate) async fn update(&self, host: &Host) -> Result<(), SliceHostError> {
        let Some(root) = host.root() else { return Ok(()) };
        let mut running = self.running.lock().await;
        let settings = GuestCallSettings::read(root)?;
        let Some(settings) = settings.filter(|_| guest_call::awaits_calls(root)) else {
            *running = None;
            return Ok(());
        };
        if running.as_ref().is_some_and(|it| it.settings == settings && !it.task.is_finished()) {
            return Ok(());
        }
        // The socket of other settings may have the same port.
        *running = None;
        let listener = bind(host, root, &settings).map_err(|error| {
            let GuestCallSettings { bridge, address, port } = &settings;
            let message = format!("cannot listen on {address}:{port} ({bridge}): {error}");
            SliceHostError::new("guest_call_unbound", message)
        })?;
        let task = tokio::spawn(accept_calls(listener, root.clone()));
        *running = Some(Running { settings, task });
        Ok(())
    }
}

fn bind(host: &Host, root: &HostRoot, settings: &GuestCallSettings) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    if !matches!(host, Host::Emulated(..)) {
        // By its address alone other links would reach it, too.
        socket.bind_device(Some(settings.bridge.as_bytes()))?;
        socket.bind(SocketAddrV4::new(settings.address, settings.port).into())?;
        return socket.listen(BACKLOG);
    }
    socket.bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into())?;
    let listener = socket.listen(BACKLOG)?;
    let file = root.join(EMULATED_PORT_FILE);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    atomic_file::replace(&file, listener.local_addr()?.port().to_string().as_bytes())?;
    Ok(listener)
}

/// Connections at hand, by guest.
type Connections = Arc<Mutex<BTreeMap<IpAddr, usize>>>;

/// A connection that is counted until this is dropped.
struct CountedConnection(Connections, IpAddr);

impl CountedConnection {
    /// None: there are too many.
    fn new(connections: &Connections, guest: IpAddr) -> Option<Self> {
        let mut counts = connections.lock();
        let of_guest = counts.get(&guest).copied().unwrap_or_default();
        if of_guest >= MAX_CONNECTIONS_OF_GUEST || counts.values().sum::<usize>() >= MAX_CONNECTIONS
        {
            return None;
        }
        counts.insert(guest, of_guest + 1);
        Some(Self(Arc::clone(connections), guest))
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut counts = self.0.lock();
        match counts.get_mut(&self.1) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.1)),
        }
    }
}

async fn accept_calls(listener: TcpListener, root: HostRoot) {
    let connections = Connections::default();
    // Of two calls with one token the first one is taken.
    let one_at_a_time = Arc::new(Mutex::new(()));
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Some(counted) = CountedConnection::new(&connections, peer.ip()) else {
                    continue;
                };
                let (root, turn) = (root.clone(), Arc::clone(&one_at_a_time));
                tokio::spawn(async move {
                    let limit = Duration::from_secs(CONNECTION_SECONDS);
                    let answered = tokio::time::timeout(limit, answer(stream, peer, root, turn));
                    if let Ok(Err(error)) = answered.await {
                        tracing::debug!(%error, %peer, "a guest's connection failed");
                    }
                    drop(counted);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a guest's connection");
                HostClock.sleep(ACCEPT_PAUSE_SECONDS).await;
            }
        }
    }
}

async fn answer(
    mut stream: TcpStream,
    peer: SocketAddr,
    root: HostRoot,
    turn: Arc<Mutex<()>>,
) -> io::Result<()> {
    let status = match read_request(&mut stream).await? {
        Ok(path) => {
            let received = tokio::task::spawn_blocking(move || {
                let _turn = turn.lock();
                guest_call::receive_call(&root, &path, peer.ip(), HostClock.now())
            });
            match received.await.map_err(io::Error::other)? {
                CallAnswer::Accepted => {
                    tracing::info!(%peer, "a guest called for the first time");
                    "204 No Content"
                }
                CallAnswer::Used => "410 Gone",
                CallAnswer::Unknown => "404 Not Found",
                CallAnswer::Unwritten => "503 Service Unavailable",
            }
        }
        Err(status) => status,
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.shutdown().await
}

/// Path of a request whose body was read; or the status that it is refused with.
async fn read_request(stream: &mut TcpStream) -> io::Result<Result<String, &'static str>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if bytes.len() >= MAX_HEAD_BYTES {
            return Ok(Err("431 Request Header Fields Too Large"));
        }
        if read_some(stream, &mut bytes).await? == 0 {
            return Ok(Err("400 Bad Request"));
        }
    };
    let (path, body_bytes) = match parse_head(&bytes[..end]) {
        Ok(parsed) => parsed,
        Err(status) => return Ok(Err(status)),
    };
    while bytes.len() < end + 4 + body_bytes {
        if read_some(stream, &mut bytes).await? == 0 {
            return Ok(Err("400 Bad Request"));
        }
    }
    Ok(Ok(path))
}

async fn read_some(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let mut part = [0; 1024];
    let count = stream.read(&mut part).await?;
    bytes.extend_from_slice(&part[..count]);
    Ok(count)
}

/// Path and length of the body, of a request's line and headers.
fn parse_head(head: &[u8]) -> Result<(String, usize), &'static str> {
    let bad = "400 Bad Request";
    let mut lines = std::str::from_utf8(head).map_err(|_| bad)?.split("\r\n");
    let line: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, path, "HTTP/1.0" | "HTTP/1.1"] = line[..] else { return Err(bad) };
    if method != "POST" {
        return Err("405 Method Not Allowed");
    }
    let mut body_bytes = 0;
    for header in lines {
        let (name, value) = header.split_once(':').ok_or(bad)?;
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("411 Length Required");
        }
        if name.eq_ignore_ascii_case("content-length") {
            body_bytes = value.trim().parse().map_err(|_| bad)?;
        }
    }
    if body_bytes > MAX_BODY_BYTES {
        return Err("413 Content Too Large");
    }
    Ok((path.to_owned(), body_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_cloud_init_sends_it_and_no_other_is() {
        let sent = "POST /guest-calls/C/T HTTP/1.1\r\nHost: 10.100.0.1:18775\r\nUser-Agent: Cloud-Init/25.1\r\n\
                    Accept-Encoding: gzip, deflate\r\nContent-Length: 48\r\n\
                    Content-Type: application/x-www-form-urlencoded";
        assert_eq!(parse_head(sent.as_bytes()), Ok(("/guest-calls/C/T".to_owned(), 48)));
        for (sent, status) in [
            (&b"GET / HTTP/1.1"[..], "405 Method Not Allowed"),
            (b"POST /", "400 Bad Request"),
            (b"POST / HTTP/2", "400 Bad Request"),
            (b"POST /a b HTTP/1.1", "400 Bad Request"),
            (b"POST / HTTP/1.1\r\nno header", "400 Bad Request"),
            (b"POST / HTTP/1.1\r\nContent-Length: many", "400 Bad Request"),
            (b"POST / HTTP/1.1\r\nContent-Length: 16385", "413 Content Too Large"),
            (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked", "411 Length Required"),
            (b"\xff\xfe", "400 Bad Request"),
        ] {
            assert_eq!(parse_head(sent), Err(status), "{}", String::from_utf8_lossy(sent));
        }
    }

    #[test]
    fn one_guest_leaves_room_for_the_others() {
        let connections = Connections::default();
        let address = |last| IpAddr::from([10, 100, 0, last]);
        let first: Vec<_> =
            (0..3).map(|_| CountedConnection::new(&connections, address(10))).collect();
        assert_eq!(first.iter().flatten().count(), MAX_CONNECTIONS_OF_GUEST);
        let others: Vec<_> =
            (11..80).map(|last| CountedConnection::new(&connections, address(last))).collect();
        assert_eq!(others.iter().flatten().count(), MAX_CONNECTIONS - MAX_CONNECTIONS_OF_GUEST);
        drop((first, others));
        assert!(connections.lock().is_empty());
    }
}
