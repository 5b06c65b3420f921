//! Answers that are not there yet.
//!
//! A long poll waits for half a minute and is answered with a line. While hyper and a router's layers
//! wait for it, they keep what they need to work on a request: buffers of 8 KiB each way, and the
//! state of every layer. Agents wait nearly always, so for 5,000 of them that is most of the memory of
//! a control plane. So where a request may be held ([`MayHold`]) its handler answers with a [`Held`]
//! future. The connection then gives all that back, and keeps its socket and the future alone. When
//! the answer is there, a new hyper connection on the same socket writes it, as that to a request of
//! our own, and goes on with the requests that follow.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::{HeaderName, HeaderValue, Method, Version};
use axum::response::Response;
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};

use super::stall::{OpenRequest, WatchedStream};

/// What stands for a request that was held, when its answer is written.
pub(super) const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: held\r\n\r\n";
/// Most bytes that a client may send ahead while its request is held.
const MOST_AHEAD: usize = 16 * 1024;

/// Extension of a request whose answer may be [`Held`]. Where it is missing, a handler waits itself.
#[derive(Debug, Clone, Copy)]
pub struct MayHold;

/// An answer that comes later; an extension of the response that stands for it until then.
#[derive(Clone)]
pub struct Held(Arc<Mutex<Option<LaterResponse>>>);

/// A response that comes later.
pub type LaterResponse = Pin<Box<dyn Future<Output = Response> + Send>>;

impl Held {
    /// What a handler answers whose answer is that of `later`. Layers see an empty answer with status
    /// 200; what headers they add to it are added to the later one.
    pub fn response(later: impl Future<Output = Response> + Send + 'static) -> Response {
        let mut response = Response::new(Body::empty());
        let later: LaterResponse = Box::pin(later);
        response.extensions_mut().insert(Self(Arc::new(Mutex::new(Some(later)))));
        response
    }

    /// Whether this response stands for one that comes later.
    #[must_use]
    pub fn is_in(response: &Response) -> bool {
        response.extensions().get::<Self>().is_some()
    }

    /// Has a layer do with the later response what `wrap` does.
    pub fn wrap<F>(response: &mut Response, wrap: impl FnOnce(LaterResponse) -> F)
    where
        F: Future<Output = Response> + Send + 'static,
    {
        if let Some(held) = response.extensions_mut().get_mut::<Self>() {
            let mut later = held.0.lock();
            *later = later.take().map(|later| Box::pin(wrap(later)) as LaterResponse);
        }
    }

    /// What comes later in place of a response; none where that is the answer itself.
    pub(super) fn take_from(response: &mut Response) -> Option<LaterResponse> {
        let held = response.extensions_mut().remove::<Self>()?;
        held.0.lock().take()
    }
}

/// Whether a request may be held: it has no body, and its connection goes on after it.
pub(super) fn may_hold(request: &Request<Incoming>) -> bool {
    request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && request.body().is_end_stream()
        && !request.headers().contains_key(CONNECTION)
}

/// A request that is held.
pub(super) struct HeldRequest {
    later: LaterResponse,
    /// Headers that layers gave the answer that stands for it. A map of them, and the rest of that
    /// answer, would be kept for as long.
    headers: Box<[(HeaderName, HeaderValue)]>,
    _open: OpenRequest,
}

impl HeldRequest {
    pub(super) fn new(later: LaterResponse, stand_in: &Response, open: OpenRequest) -> Self {
        let of_body = |name: &HeaderName| [CONTENT_LENGTH, TRANSFER_ENCODING].contains(name);
        let headers = stand_in.headers().iter().filter(|(name, _)| !of_body(name));
        let headers = headers.map(|(name, value)| (name.clone(), value.clone())).collect();
        Self { later, headers, _open: open }
    }

    /// Waits for the answer; none where the client is gone before.
    pub(super) async fn answer<S: AsyncRead + Unpin>(
        mut self,
        stream: &mut WatchedStream<S>,
    ) -> Option<Response> {
        let mut response = tokio::select! {
            response = self.later.as_mut() => response,
            () = client_gone(stream) => return None,
        };
        for (name, value) in self.headers {
            if !response.headers().contains_key(&name) {
                response.headers_mut().insert(name, value);
            }
        }
        Some(response)
    }
}

/// Keeps what the client sends ahead, and returns when it sends no more.
async fn client_gone<S: AsyncRead + Unpin>(stream: &mut WatchedStream<S>) {
    poll_fn(|cx| {
        loop {
            let mut bytes = [0; 256];
            let mut buf = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut *stream).poll_read_more(cx, &mut buf));
            if read.is_err() || buf.filled().is_empty() {
                return Poll::Ready(());
            }
            let filled = buf.filled().to_vec();
            if stream.add_ahead(&filled) > MOST_AHEAD {
                return Poll::Ready(());
            }
        }
    })
    .await
}
