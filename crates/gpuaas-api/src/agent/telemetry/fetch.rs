//! One bounded GET of a host: no pool, no proxy of the environment, no redirect that is followed,
//! no credential.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddrV4};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, HOST, SERVER, USER_AGENT};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::ctx::TelemetryLimits;

/// Why a host gave no response.
#[derive(Debug)]
pub(crate) enum FetchError {
    /// No connection, and nobody refused one.
    Unreachable(String),
    /// The host refuses connections to this port.
    Refused,
    /// Connected, and nothing was said in time.
    Silent(Duration),
    /// What was said is not HTTP, or broke off.
    Garbled(String),
    /// More bytes than the limit.
    TooLarge {
        /// The limit.
        limit: usize,
    },
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "no connection: {why}"),
            Self::Refused => f.write_str("connection refused"),
            Self::Silent(limit) => {
                write!(f, "no complete response in {:.1} s", limit.as_secs_f64())
            }
            Self::Garbled(why) => write!(f, "the response is not HTTP: {why}"),
            Self::TooLarge { limit } => write!(f, "the response has more than {limit} bytes"),
        }
    }
}

/// The response of a host.
#[derive(Debug)]
pub(crate) struct HostResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The address of this host that was asked from.
    pub(crate) from: Option<IpAddr>,
}

impl HostResponse {
    /// Status and server, for the evidence of a probe.
    pub(crate) fn summary(&self) -> String {
        let status = self.status.as_u16();
        match self.headers.get(SERVER).and_then(|value| value.to_str().ok()) {
            Some(server) => {
                let server: String = server.chars().take(60).collect();
                format!("HTTP {status} from {server}")
            }
            None => format!("HTTP {status}"),
        }
    }
}

/// Whether Netdata itself says so; the edge names nginx, whoever is behind it.
pub(super) fn is_netdata(headers: &HeaderMap) -> bool {
    let server = headers.get(SERVER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    server.to_ascii_lowercase().contains("netdata")
}

/// Opens a TCP connection, waiting for `limit` at most.
pub(crate) async fn connect(at: SocketAddrV4, limit: Duration) -> Result<TcpStream, FetchError> {
    match timeout(limit, TcpStream::connect(at)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => Err(FetchError::Refused),
        Ok(Err(error)) => Err(FetchError::Unreachable(error.to_string())),
        Err(_) => {
            let text = format!("no answer within {:.1} s", limit.as_secs_f64());
            Err(FetchError::Unreachable(text))
        }
    }
}

/// Asks for a path, within `limit` and for at most `bytes` of a body.
pub(crate) async fn get(
    at: SocketAddrV4,
    path: &str,
    accept: Option<&HeaderValue>,
    limits: TelemetryLimits,
    limit: Duration,
    bytes: usize,
) -> Result<HostResponse, FetchError> {
    let stream = connect(at, limits.connect).await?;
    let from = stream.local_addr().ok().map(|address| address.ip());
    let mut request = Request::get(path)
        .header(HOST, at.to_string())
        .header(USER_AGENT, concat!("gpuaas/", env!("CARGO_PKG_VERSION")));
    if let Some(accept) = accept {
        request = request.header(ACCEPT, accept);
    }
    let request =
        request.body(Body::empty()).map_err(|error| FetchError::Garbled(error.to_string()))?;
    let asked = timeout(limit, exchange(stream, request, bytes)).await;
    let response = asked.map_err(|_| FetchError::Silent(limit))??;
    Ok(HostResponse { from, ..response })
}

async fn exchange(
    stream: TcpStream,
    request: Request<Body>,
    bytes: usize,
) -> Result<HostResponse, FetchError> {
    let garbled = |error: hyper::Error| {
        let cause = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<io::Error>());
        FetchError::Garbled(cause.map_or_else(|| error.to_string(), ToString::to_string))
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(garbled)?;
    // Ends with this set, whatever becomes of the request.
    let mut driver = JoinSet::new();
    driver.spawn(async move { connection.await.ok() });
    let (head, mut body) = sender.send_request(request).await.map_err(garbled)?.into_parts();
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(garbled)?.into_data() else { continue };
        if whole.len() + data.len() > bytes {
            return Err(FetchError::TooLarge { limit: bytes });
        }
        whole.extend_from_slice(&data);
    }
    Ok(HostResponse { status: head.status, headers: head.headers, body: whole.into(), from: None })
}
