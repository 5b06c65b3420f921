//! Bodies and sockets on which nothing moves.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::activity::Activity;

/// Fails what stays pending for too long.
#[derive(Debug)]
struct StallTimer {
    limit: Duration,
    pending: Option<Pin<Box<Sleep>>>,
}

impl StallTimer {
    const fn new(limit: Duration) -> Self {
        Self { limit, pending: None }
    }

    /// Whether the last result that was handed on was a pending one.
    const fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Hands a result on; a pending one becomes an error after the limit.
    fn check<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.pending = None;
            return poll;
        }
        let limit = self.limit;
        let pending =
            self.pending.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        ready!(pending.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nothing moved")))
    }
}

/// A socket that fails where its other end takes nothing of what is written.
#[derive(Debug)]
pub(super) struct WatchedStream<S> {
    inner: S,
    activity: Arc<Activity>,
    writes: StallTimer,
    /// What is read before anything else.
    ahead: Vec<u8>,
}

impl<S> WatchedStream<S> {
    pub(super) const fn new(inner: S, activity: Arc<Activity>, stall: Duration) -> Self {
        Self { inner, activity, writes: StallTimer::new(stall), ahead: Vec::new() }
    }

    fn check_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let checked = self.writes.check(cx, poll);
        self.activity.set_writing(self.writes.is_pending());
        checked
    }

    /// Has `bytes` be read before anything else that is left.
    pub(super) fn read_first(&mut self, bytes: &[u8]) {
        self.ahead.splice(0..0, bytes.iter().copied());
    }

    /// Has `bytes` be read after what else was kept; answers how many are kept.
    pub(super) fn add_ahead(&mut self, bytes: &[u8]) -> usize {
        self.ahead.extend_from_slice(bytes);
        self.ahead.len()
    }
}

impl<S: AsyncRead + Unpin> WatchedStream<S> {
    /// Reads from the socket, whatever was kept.
    pub(super) fn poll_read_more(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.ahead.is_empty() {
            let taken = this.ahead.len().min(buf.remaining());
            buf.put_slice(&this.ahead[..taken]);
            this.ahead.drain(..taken);
            this.ahead.shrink_to_fit();
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            this.activity.record_bytes(Instant::now());
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(cx, buf);
        this.check_write(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        this.check_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(cx);
        this.check_write(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.inner).poll_shutdown(cx);
        this.check_write(cx, shut)
    }
}

/// The body of a request; fails where nothing of it comes for too long.
#[derive(Debug)]
pub(super) struct RequestBody {
    inner: Incoming,
    timer: StallTimer,
}

impl RequestBody {
    pub(super) const fn new(inner: Incoming, stall: Duration) -> Self {
        Self { inner, timer: StallTimer::new(stall) }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.inner).poll_frame(cx);
        let frame = frame.map(|frame| frame.transpose().map_err(io::Error::other));
        this.timer.check(cx, frame).map(Result::transpose)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of an answer. The request is over when it is dropped: it is written, or given up.
#[derive(Debug)]
pub(super) struct ResponseBody {
    inner: Body,
    _request: OpenRequest,
}

impl ResponseBody {
    pub(super) const fn new(inner: Body, request: OpenRequest) -> Self {
        Self { inner, _request: request }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A request that is being answered, for as long as this is there.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<Activity>);

impl OpenRequest {
    pub(super) fn new(activity: &Arc<Activity>) -> Self {
        activity.begin_request();
        Self(Arc::clone(activity))
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.end_request(Instant::now());
    }
}
