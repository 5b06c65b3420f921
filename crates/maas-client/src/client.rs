//! The client: one region, one key, one transport.
//!
//! Every call goes through [`Client::exchange`]: it signs each attempt afresh, counts bytes, and
//! classifies failures. A read is repeated once where the connection broke, because the server may
//! just have closed an idle one. A mutation is never repeated.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use secrecy::zeroize::Zeroizing;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;

use crate::classify::{self, RequestContext};
use crate::config::{Config, Timeouts};
use crate::encode::{FileForm, Params, escape};
use crate::error::Error;
use crate::http::HttpTransport;
use crate::oauth::{ApiKey, fresh_nonce};
use crate::transport::{Method, Request, Response, Transport, TransportError};

/// The clock that signs requests: seconds since 1970 UTC.
pub type UnixClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Calls and bytes of one endpoint since the client was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallStats {
    /// Attempts, failed ones and repeated reads included.
    pub calls: u64,
    /// Bytes of request bodies and paths; headers not counted.
    pub request_bytes: u64,
    /// Bytes of answer bodies.
    pub response_bytes: u64,
}

/// Typed access to one MAAS region. Cheap to clone; clones share connections and counters.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    transport: Arc<dyn Transport>,
    root: String,
    key: ApiKey,
    timeouts: Timeouts,
    now: UnixClock,
    stats: Mutex<BTreeMap<&'static str, CallStats>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("root", &self.inner.root).finish_non_exhaustive()
    }
}

/// Which of the [`Timeouts`] bounds a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TimeoutClass {
    Read,
    Write,
    Power,
    Upload,
}

pub(crate) enum Body {
    None,
    Form(Params),
    File(FileForm),
    /// Bytes as they are.
    Raw(Bytes),
}

/// One call, before signing.
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Relative to the API root, already escaped.
    pub(crate) path: String,
    pub(crate) label: &'static str,
    pub(crate) query: Params,
    pub(crate) body: Body,
    pub(crate) timeout_class: TimeoutClass,
    pub(crate) anonymous: bool,
    /// Values to mask in error texts.
    pub(crate) secrets: Vec<Zeroizing<String>>,
}

impl Call {
    fn new(method: Method, path: String, label: &'static str, timeout_class: TimeoutClass) -> Self {
        let (query, secrets) = (Params::default(), Vec::new());
        let (body, anonymous) = (Body::None, false);
        Self { method, path, label, query, body, timeout_class, anonymous, secrets }
    }

    /// A GET that reads.
    pub(crate) fn get(path: impl Into<String>, label: &'static str) -> Self {
        Self::new(Method::Get, path.into(), label, TimeoutClass::Read)
    }

    /// A POST that creates.
    pub(crate) fn post(path: impl Into<String>, label: &'static str, form: Params) -> Self {
        Self {
            body: Body::Form(form),
            ..Self::new(Method::Post, path.into(), label, TimeoutClass::Write)
        }
    }

    /// A POST of a named operation. The op goes into the form, so the body is never empty.
    pub(crate) fn op(path: impl Into<String>, label: &'static str, op: &str, form: Params) -> Self {
        let mut all = Params::default();
        all.add("op", op);
        all.extend(form);
        Self::post(path, label, all)
    }

    /// A PUT that updates.
    pub(crate) fn put(path: impl Into<String>, label: &'static str, form: Params) -> Self {
        Self {
            body: Body::Form(form),
            ..Self::new(Method::Put, path.into(), label, TimeoutClass::Write)
        }
    }

    /// A PUT of bytes as they are, within the time that a slow link needs for them.
    pub(crate) fn put_bytes(path: impl Into<String>, label: &'static str, bytes: Bytes) -> Self {
        Self {
            body: Body::Raw(bytes),
            ..Self::new(Method::Put, path.into(), label, TimeoutClass::Upload)
        }
    }

    /// A DELETE.
    pub(crate) fn delete(path: impl Into<String>, label: &'static str) -> Self {
        Self::new(Method::Delete, path.into(), label, TimeoutClass::Write)
    }

    /// Sets the query.
    pub(crate) fn query(mut self, query: Params) -> Self {
        self.query = query;
        self
    }

    /// Allows for the time of the BMC (docs/maas.md#unknown-outcomes).
    pub(crate) fn waiting_for_bmc(mut self) -> Self {
        self.timeout_class = TimeoutClass::Power;
        self
    }
}

impl Client {
    /// Makes a client over HTTP. Nothing is sent before the first call.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use maas_client::{Client, Config};
    ///
    /// let key = "CONSUMER:TOKEN:SECRET".parse()?;
    /// let client = Client::new(&Config::new("http://127.0.0.1:5240", key), Arc::new(|| 0))?;
    /// assert!(client.stats().is_empty());
    /// assert!("CONSUMER:TOKEN".parse::<maas_client::ApiKey>().is_err());
    /// # Ok::<(), maas_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL or CA that makes no sense; nothing is sent.
    pub fn new(config: &Config, now: UnixClock) -> Result<Self, Error> {
        let transport = Arc::new(HttpTransport::new(config)?);
        Self::with_transport(config, transport, now)
    }

    /// Makes a client over any transport; of the URL only the path matters.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL that makes no sense.
    pub fn with_transport(
        config: &Config,
        transport: Arc<dyn Transport>,
        now: UnixClock,
    ) -> Result<Self, Error> {
        let root = config.api_root()?;
        let (key, timeouts) = (config.api_key.clone(), config.timeouts);
        let inner = Inner { transport, root, key, timeouts, now, stats: Mutex::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The clock that signs requests, in seconds since 1970 UTC.
    pub(crate) fn unix_seconds(&self) -> i64 {
        (self.inner.now)()
    }

    /// Counters by endpoint, keyed by labels such as `GET machines/{id}/` and
    /// `POST machines/{id}/ op=deploy`.
    pub fn stats(&self) -> BTreeMap<&'static str, CallStats> {
        self.inner.stats.lock().clone()
    }

    /// Sends a call and parses the JSON of its answer.
    ///
    /// # Errors
    /// [`Error::Malformed`] where a 2xx answer has another shape; else see [`Client::exchange`].
    pub(crate) async fn send_for_json<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let label = call.label;
        let response = self.exchange(call).await?;
        serde_json::from_slice(&response.body)
            .map_err(|error| malformed_answer(label, &response, &error))
    }

    /// Sends a call and drops the body of its 2xx answer.
    ///
    /// # Errors
    /// As [`Client::exchange`].
    pub(crate) async fn send(&self, call: Call) -> Result<(), Error> {
        self.exchange(call).await.map(|_| ())
    }

    /// Sends a call, a read up to twice, and answers with the 2xx answer.
    ///
    /// # Errors
    /// [`Error`] by what the caller does next: refused, unavailable, unknown outcome.
    pub(crate) async fn exchange(&self, call: Call) -> Result<Response, Error> {
        let (content_type, body) = match &call.body {
            Body::None => (None, Bytes::new()),
            Body::Form(form) => {
                (Some("application/x-www-form-urlencoded".to_owned()), form.encode().into())
            }
            Body::File(file) => {
                let (content_type, body) = file.encode(&fresh_nonce());
                (Some(content_type), body.into())
            }
            Body::Raw(bytes) => (Some("application/octet-stream".to_owned()), bytes.clone()),
        };
        let mut path = format!("{}{}", self.inner.root, call.path);
        if !call.query.0.is_empty() {
            path.push('?');
            path.push_str(&call.query.encode());
        }
        let mut tries_left = if call.method.is_mutation() { 1 } else { 2 };
        loop {
            tries_left -= 1;
            let (request, timestamp) =
                self.signed(&call, &path, content_type.as_deref(), body.clone());
            match self.attempt(&call, request).await {
                Ok(response) if (200..300).contains(&response.status) => return Ok(response),
                Ok(response) => return Err(self.classify(&call, &response, timestamp)),
                Err(TransportError::Reset(_)) if tries_left > 0 => {}
                Err(error) => return Err(classify::from_transport_error(&error)),
            }
        }
    }

    fn signed(
        &self,
        call: &Call,
        path: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> (Request, i64) {
        let timestamp = (self.inner.now)();
        let mut headers = vec![("accept", "application/json".to_owned())];
        if !call.anonymous {
            headers
                .push(("authorization", self.inner.key.authorization(&fresh_nonce(), timestamp)));
        }
        if let Some(content_type) = content_type {
            headers.push(("content-type", content_type.to_owned()));
        }
        (Request { method: call.method, path_and_query: path.to_owned(), headers, body }, timestamp)
    }

    async fn attempt(&self, call: &Call, request: Request) -> Result<Response, TransportError> {
        let sent = request.path_and_query.len() + request.body.len();
        let span =
            tracing::info_span!("maas_call", call = call.label, status = tracing::field::Empty);
        let sending = self.inner.transport.send(request, self.timeout(call.timeout_class));
        let result = sending.instrument(span.clone()).await;
        if let Ok(response) = &result {
            span.record("status", response.status);
        }
        drop(span);
        let received = result.as_ref().map_or(0, |response| response.body.len());
        let mut stats = self.inner.stats.lock();
        let row = stats.entry(call.label).or_default();
        row.calls += 1;
        row.request_bytes += sent as u64;
        row.response_bytes += received as u64;
        drop(stats);
        match &result {
            Ok(response) => {
                tracing::debug!(call = call.label, status = response.status, sent, received, "MAAS")
            }
            Err(error) => tracing::debug!(call = call.label, %error, sent, "MAAS"),
        }
        result
    }

    fn classify(&self, call: &Call, response: &Response, timestamp: i64) -> Error {
        let mut secrets: Vec<&str> = call.secrets.iter().map(|secret| secret.as_str()).collect();
        secrets.push(self.inner.key.token_secret());
        let context =
            RequestContext { mutation: call.method.is_mutation(), timestamp, secrets: &secrets };
        classify::from_response(response, &context)
    }

    fn timeout(&self, timeout_class: TimeoutClass) -> Duration {
        match timeout_class {
            TimeoutClass::Read => self.inner.timeouts.total_read,
            TimeoutClass::Write => self.inner.timeouts.total_write,
            TimeoutClass::Power => self.inner.timeouts.total_power,
            TimeoutClass::Upload => self.inner.timeouts.total_upload,
        }
    }
}

/// Names where parsing stopped, never the text there, which may hold a password.
fn malformed_answer(label: &str, response: &Response, error: &serde_json::Error) -> Error {
    let kind = match error.classify() {
        serde_json::error::Category::Eof => "is truncated",
        serde_json::error::Category::Data => "does not have the structure of this call's response",
        _ => "is not JSON",
    };
    let text = format!(
        "{label}: {} of {} bytes {kind} (line {}, column {})",
        match classify::media_type(response) {
            "" => "a response without a content type",
            known => known,
        },
        response.body.len(),
        error.line(),
        error.column()
    );
    Error::Malformed { status: response.status, text }
}

/// Escapes an id or name for one segment of a path.
///
/// # Errors
/// [`Error::Invalid`] for an empty name and one of dots alone, which would change the path.
pub(crate) fn path_segment(name: &str) -> Result<String, Error> {
    if name.is_empty() || name.chars().all(|c| c == '.') {
        return Err(Error::invalid("an ID or name in a MAAS path is empty or has only dots"));
    }
    Ok(escape(name))
}
