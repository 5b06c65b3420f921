//! A request that a control plane refuses as one too many is sent again after the time that it names:
//! nothing was done, and the next moment has room for it (docs/reference/limits.md). A read whose connection
//! broke is sent once more.

use std::ops::Deref;
use std::time::Duration;

use gpuaas_types::Problem;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{RequestBuilder, StatusCode};

use crate::server_time;

/// What is left of the waits of one request.
#[derive(Debug)]
struct Patience {
    times: u32,
    seconds: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { times: 10, seconds: 30 }
    }
}

impl Patience {
    /// The wait that the control plane asks for; none where it is longer than what is left.
    fn spend(&mut self, seconds: u64) -> Option<Duration> {
        self.times = self.times.checked_sub(1)?;
        self.seconds = self.seconds.checked_sub(seconds)?;
        Some(Duration::from_secs(seconds))
    }
}

/// Sends a request, again where it was one too many; answers status and body.
///
/// # Errors
/// That of the connection.
#[expect(clippy::disallowed_methods, reason = "a command waits on the wall, as it is told to")]
pub(super) async fn send(
    mut request: RequestBuilder,
) -> reqwest::Result<(StatusCode, impl Deref<Target = [u8]>)> {
    let mut patience = Patience::default();
    let mut is_first = true;
    loop {
        let again = request.try_clone();
        let response =
            match (request.send().await, again.as_ref().and_then(RequestBuilder::try_clone)) {
                (Err(error), Some(repeated))
                    if is_first && is_broken(&error) && is_read(&repeated) =>
                {
                    (request, is_first) = (repeated, false);
                    continue;
                }
                (answered, _) => answered?,
            };
        server_time::note(response.headers());
        let status = response.status();
        let asked_seconds = retry_after_seconds(response.headers());
        let body = response.bytes().await?;
        let one_too_many = status == StatusCode::TOO_MANY_REQUESTS && is_one_too_many(&body);
        let wait = asked_seconds.filter(|_| one_too_many).and_then(|s| patience.spend(s));
        match (wait, again) {
            (Some(wait), Some(again)) => {
                tokio::time::sleep(wait).await;
                request = again;
            }
            _ => return Ok((status, body)),
        }
    }
}

/// Whether a connection that there was broke before an answer came: where a control plane has to make room,
/// it closes those that are between two requests, and cannot know that one is on its way.
fn is_broken(error: &reqwest::Error) -> bool {
    error.is_request() && !error.is_connect() && !error.is_timeout()
}

/// Whether the request changes nothing, so that it may be sent twice.
fn is_read(request: &RequestBuilder) -> bool {
    let built = request.try_clone().and_then(|request| request.build().ok());
    built.is_some_and(|request| request.method().is_safe())
}

/// Whether the control plane says so, and not a proxy before it that may have passed it on.
fn is_one_too_many(body: &[u8]) -> bool {
    serde_json::from_slice::<Problem>(body).is_ok_and(|said| said.code == "too_many_requests")
}

/// The seconds of `Retry-After`; none where it is missing or a date.
fn retry_after_seconds(headers: &HeaderMap) -> Option<u64> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::Router;
    use serde_json::json;

    use super::*;
    use crate::client::ApiClient;

    /// Answers `too_many_requests` so often, each time with this `Retry-After`, then a list; and
    /// counts the requests.
    async fn busy(times: u32, after: &'static str) -> (ApiClient, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let answer = move || {
            let asked = count.fetch_add(1, Ordering::SeqCst);
            async move {
                let problem = Problem::new(429, "too_many_requests", "too fast");
                let body = if asked < times { json!(problem) } else { json!({ "items": [] }) };
                let status =
                    if asked < times { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
                (status, [("retry-after", after)], body.to_string())
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (ApiClient::new(&url, "t").unwrap(), asked)
    }

    /// Answers the first request of each connection with a list, and closes the connection where a second
    /// one comes; counts the requests.
    async fn closing() -> (ApiClient, Arc<AtomicU32>) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let mut bytes = [0; 4096];
                for answer in
                    [&b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{\"items\":[]}"[..], b""]
                {
                    if connection.read(&mut bytes).await.is_ok_and(|length| length > 0) {
                        count.fetch_add(1, Ordering::SeqCst);
                        connection.write_all(answer).await.unwrap();
                    }
                }
            }
        });
        (ApiClient::new(&url, "t").unwrap(), asked)
    }

    #[tokio::test]
    async fn a_read_whose_connection_broke_is_sent_once_more_and_a_change_is_not() {
        let (client, asked) = closing().await;
        for _ in 0..2 {
            assert!(client.drift(None, None).await.unwrap().items.is_empty());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        // The connection that the repeated read was answered on.
        let failure = client.resume("a", "ann", "why").await.unwrap_err();
        assert_eq!((failure.code(), asked.load(Ordering::SeqCst)), ("server_silent", 4));
    }

    #[tokio::test]
    async fn a_request_too_many_waits_as_it_is_told_and_not_for_ever() {
        let (client, asked) = busy(3, "0").await;
        assert!(client.drift(None, None).await.unwrap().items.is_empty());
        assert_eq!(asked.load(Ordering::SeqCst), 4);
        let (client, asked) = busy(u32::MAX, "0").await;
        let failure = client.drift(None, None).await.unwrap_err();
        assert_eq!((failure.code(), asked.load(Ordering::SeqCst)), ("too_many_requests", 11));
        for after in ["3600", "Fri, 31 Dec 1999 23:59:59 GMT"] {
            let (client, asked) = busy(u32::MAX, after).await;
            assert_eq!(client.drift(None, None).await.unwrap_err().code(), "too_many_requests");
            assert_eq!(asked.load(Ordering::SeqCst), 1, "{after}");
        }
        let mut patience = Patience::default();
        let waits = std::iter::from_fn(|| patience.spend(2)).count();
        assert_eq!(waits, 10, "and seconds end it too: {:?}", Patience::default().spend(31));
    }
}
