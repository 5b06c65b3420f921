//! The transport over real HTTP.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use reqwest::header::HeaderMap;
use reqwest::{Client, Url, redirect};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::config::Config;
use crate::error::Error;
use crate::transport::{Method, Request, Response, Transport, TransportError};

/// Largest answer that is read, in bytes. The unfiltered list of 2,500 machines is about this
/// size (docs/maas.md#costs), and no call of this client asks for it.
pub const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Idle connections are dropped well before nginx (75 s) or Twisted would close them. A mutation on
/// a connection that the server is just closing has an unknown outcome.
const POOL_IDLE: Duration = Duration::from_secs(15);

/// [`Transport`] over HTTP/1.1 with keep-alive; no redirects, no proxy from the environment.
pub struct HttpTransport {
    client: Client,
    origin: Url,
    read_timeout: Duration,
}

impl HttpTransport {
    /// Builds the connection pool for one region.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the extra CA is not PEM or the TLS settings do not build.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let origin = config.origin()?;
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(config.timeouts.connect)
            .pool_idle_timeout(POOL_IDLE)
            .tcp_nodelay(true)
            .user_agent(concat!("maas-client/", env!("CARGO_PKG_VERSION")));
        if let (Some(address), Some(host)) = (config.address, origin.host_str()) {
            builder = builder.resolve(host, address);
        }
        builder = builder.tls_backend_preconfigured(tls_config(config, origin.scheme())?);
        let client =
            builder.build().map_err(|error| Error::invalid(format!("HTTP client: {error}")))?;
        Ok(Self { client, origin, read_timeout: config.timeouts.read })
    }

    async fn exchange(&self, request: Request) -> Result<Response, TransportError> {
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Delete => reqwest::Method::DELETE,
        };
        let url = self
            .origin
            .join(&request.path_and_query)
            .map_err(|error| TransportError::Connect(format!("bad path: {error}")))?;
        let mut outgoing = self.client.request(method, url);
        for (name, value) in request.headers {
            outgoing = outgoing.header(name, value);
        }
        if !request.body.is_empty() || request.method == Method::Post {
            outgoing = outgoing.body(request.body);
        }
        let mut answer = outgoing.send().await.map_err(|error| classify(&error))?;
        let mut response = head_of(answer.status().as_u16(), answer.headers());
        let limit = TransportError::TooLarge { limit_bytes: MAX_BODY_BYTES };
        if answer.content_length() > Some(MAX_BODY_BYTES as u64) {
            return Err(limit);
        }
        let mut body = BytesMut::new();
        loop {
            let next = tokio::time::timeout(self.read_timeout, answer.chunk());
            let chunk = next.await.map_err(|_| TransportError::Timeout)?;
            let Some(chunk) = chunk.map_err(|error| classify(&error))? else {
                break;
            };
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(limit);
            }
            body.extend_from_slice(&chunk);
        }
        response.body = body.freeze();
        Ok(response)
    }
}

#[async_trait::async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: Request, timeout: Duration) -> Result<Response, TransportError> {
        match tokio::time::timeout(timeout, self.exchange(request)).await {
            Ok(result) => result,
            Err(_) => Err(TransportError::Timeout),
        }
    }
}

/// A connect failure wins over a timeout: a connect that timed out was never sent.
fn classify(error: &reqwest::Error) -> TransportError {
    if error.is_connect() || error.is_builder() {
        return TransportError::Connect(root_cause(error));
    }
    if error.is_timeout() {
        return TransportError::Timeout;
    }
    TransportError::Reset(root_cause(error))
}

/// The innermost cause only: outer layers repeat the URL.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn head_of(status: u16, headers: &HeaderMap) -> Response {
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Response {
        status,
        content_type: text("content-type"),
        retry_after: text("retry-after")
            .and_then(|value| value.trim().parse().ok())
            .map(Duration::from_secs),
        date: text("date"),
        body: bytes::Bytes::new(),
    }
}

fn tls_config(config: &Config, scheme: &str) -> Result<rustls::ClientConfig, Error> {
    let mut roots = rustls::RootCertStore::empty();
    if scheme == "https" {
        let native = rustls_native_certs::load_native_certs();
        let (_, ignored) = roots.add_parsable_certificates(native.certs);
        tracing::debug!(roots = roots.len(), ignored, "system certificates loaded");
    }
    if let Some(pem) = &config.extra_ca_pem {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate =
                certificate.map_err(|error| Error::invalid(format!("extra CA: {error}")))?;
            roots.add(certificate).map_err(|error| Error::invalid(format!("extra CA: {error}")))?;
        }
        if roots.len() == before {
            return Err(Error::invalid("extra CA: the PEM text contains no certificate"));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid(format!("TLS: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
