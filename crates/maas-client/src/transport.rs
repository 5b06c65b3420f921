//! The seam between building a MAAS call and carrying it.
//!
//! A [`Transport`] carries one request and says, when it fails, how far the request came. A call
//! that never left may be repeated; a call that may have arrived must be probed. Everything else
//! (signing, forms, typed answers) is above it. So a simulator can stand in for a region without a
//! socket and still see exact bytes.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// The methods that MAAS uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// A read; no op of MAAS 2.0 changes a machine through GET.
    Get,
    /// A creation or a named operation.
    Post,
    /// An update.
    Put,
    /// A deletion.
    Delete,
}

impl Method {
    /// Name of the method in a request line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    /// True where the call may change something in MAAS.
    pub fn is_mutation(self) -> bool {
        self != Self::Get
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One HTTP request, complete but for the host.
#[derive(Clone)]
pub struct Request {
    /// HTTP method of the request.
    pub method: Method,
    /// Absolute path with its query, e.g. `/MAAS/api/2.0/machines/?hostname=n1`.
    pub path_and_query: String,
    /// Header names (lower case) and values, `authorization` among them.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty for none.
    pub body: Bytes,
}

impl Request {
    /// The value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for Request {
    /// Shows neither headers nor body: both may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path_and_query", &self.path_and_query)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// One HTTP answer, reduced to what the client reads.
#[derive(Clone, Default)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type` as sent.
    pub content_type: Option<String>,
    /// `Retry-After` where it is a number of seconds.
    pub retry_after: Option<Duration>,
    /// `Date` as sent; the server's clock.
    pub date: Option<String>,
    /// The whole body.
    pub body: Bytes,
}

impl fmt::Debug for Response {
    /// Leaves the body out: a 401 body holds the token secret (docs/maas.md#authentication).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("content_type", &self.content_type)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// How far a request without an answer came. Texts name hosts and system errors, never secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// Never sent: name resolution, refused, unreachable, TLS.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// Sent, and no answer within the timeout.
    #[error("timed out without a response")]
    Timeout,
    /// Sent in part or whole; the connection broke before the answer was complete.
    #[error("connection broken: {0}")]
    Reset(String),
    /// An answer came whose body is over the limit, in bytes.
    #[error("response larger than {limit_bytes} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit_bytes: usize,
    },
}

/// Carries one request to a region and brings its answer back.
#[async_trait::async_trait]
pub trait Transport: Send + Sync {
    /// Sends `request` and waits at most `timeout` for the complete answer. Must not follow
    /// redirects and must not send the request twice.
    ///
    /// # Errors
    /// [`TransportError`]; any HTTP status is an answer, not an error.
    async fn send(&self, request: Request, timeout: Duration) -> Result<Response, TransportError>;
}
