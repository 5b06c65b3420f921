//! NATS JetStream: one message an event, with its identifier, so that the stream takes each once.
//!
//! The stream is made where it is missing, and left as it is where it is there. Its window for
//! duplicates is an hour: so long may lie between a message and its repetition by a control plane that
//! took over.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::stream::Config;
use async_nats::jetstream::{self, Context};
use async_nats::{ConnectErrorKind, ConnectOptions, HeaderMap, ServerAddr};
use async_trait::async_trait;
use bytes::Bytes;
use gpuaas_types::Timestamp;
use gpuaas_types::event::{DeliveryFault, NodeEvent};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::target::{Delivered, DeliveryFailure, Target};

/// Name of the stream.
pub const STREAM: &str = "GPUAAS_EVENTS";
/// Subjects of the stream: `gpuaas.events.SITE.CODE`.
pub const SUBJECTS: &str = "gpuaas.events.>";

/// Time until a connection is there, and the stream.
const CONNECT: Duration = Duration::from_secs(10);
/// Time until messages are acknowledged.
const ACKNOWLEDGE: Duration = Duration::from_secs(10);
/// Time within which the stream takes a message with one identifier once.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(3_600);
/// Messages of one delivery.
const BATCH: usize = 128;

/// What was said of NATS cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NatsUnusable(String);

/// Where events are published.
#[derive(Clone)]
pub struct NatsOptions {
    address: ServerAddr,
    shown: String,
    credentials: Option<PathBuf>,
}

impl std::fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NatsOptions({})", self.shown)
    }
}

impl NatsOptions {
    /// A server at `nats://[USER:PASSWORD@]HOST[:PORT]`, or `tls://` for TLS, with a file of
    /// credentials where it wants one.
    ///
    /// # Errors
    /// What is wrong with the URL; never a password that is in it.
    pub fn new(url: &str, credentials: Option<PathBuf>) -> Result<Self, NatsUnusable> {
        let unusable = |text: &str| NatsUnusable(text.to_owned());
        let address: ServerAddr =
            url.parse().map_err(|_| unusable("expected the URL of a NATS server"))?;
        let scheme = address.scheme();
        if !matches!(scheme, "nats" | "tls") {
            return Err(unusable("expected the scheme nats or tls"));
        }
        if address.host().is_empty() {
            return Err(unusable("the URL names no host"));
        }
        let shown = format!("{scheme}://{}:{}", address.host(), address.port());
        Ok(Self { address, shown, credentials })
    }

    /// The URL, without a user or a password.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.shown
    }

    async fn connect(&self) -> Result<Context, DeliveryFailure> {
        let failed = |fault, text: String| Err(DeliveryFailure::new(fault, text));
        let mut options = ConnectOptions::new()
            .name("gpuaas")
            .connection_timeout(CONNECT)
            .request_timeout(Some(ACKNOWLEDGE))
            .require_tls(self.address.scheme() == "tls");
        if let Some(file) = &self.credentials {
            options = match options.credentials_file(file).await {
                Ok(options) => options,
                Err(error) => {
                    return failed(DeliveryFault::Denied, format!("{}: {error}", file.display()));
                }
            };
        }
        let client = match options.connect(self.address.clone()).await {
            Ok(client) => client,
            Err(error) => return failed(fault_of_connect(error.kind()), error.to_string()),
        };
        let context = jetstream::new(client);
        let stream = Config {
            name: STREAM.to_owned(),
            subjects: vec![SUBJECTS.to_owned()],
            duplicate_window: DUPLICATE_WINDOW,
            description: Some("Events of GPUaaS".to_owned()),
            ..Config::default()
        };
        match context.get_or_create_stream(stream).await {
            Ok(_) => Ok(context),
            Err(error) => {
                failed(DeliveryFault::Unavailable, format!("the stream {STREAM}: {error}"))
            }
        }
    }
}

const fn fault_of_connect(kind: ConnectErrorKind) -> DeliveryFault {
    match kind {
        ConnectErrorKind::TimedOut => DeliveryFault::Timeout,
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            DeliveryFault::Denied
        }
        _ => DeliveryFault::Unreachable,
    }
}

/// The stream, connected where it was used before.
pub(crate) struct NatsTarget {
    options: NatsOptions,
    context: Mutex<Option<Context>>,
}

impl NatsTarget {
    pub(crate) fn new(options: NatsOptions) -> Self {
        Self { options, context: Mutex::default() }
    }

    async fn publish(&self, context: &Context, events: &[&NodeEvent]) -> Delivered {
        let mut acknowledgements = Vec::with_capacity(events.len());
        for event in events {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", event.id.to_string());
            let body = Bytes::from(serde_json::to_vec(event).unwrap_or_default());
            match context.publish_with_headers(subject(event), headers, body).await {
                Ok(acknowledgement) => acknowledgements.push(acknowledgement),
                Err(error) => {
                    // What was sent before may have arrived: it is told by its identifier.
                    return Delivered { count: 0, failure: Some(unpublished(&error)) };
                }
            }
        }
        for (count, acknowledgement) in acknowledgements.into_iter().enumerate() {
            if let Err(error) = acknowledgement.await {
                return Delivered { count, failure: Some(unpublished(&error)) };
            }
        }
        Delivered { count: events.len(), failure: None }
    }
}

fn unpublished(error: &PublishError) -> DeliveryFailure {
    let fault = match error.kind() {
        PublishErrorKind::TimedOut => DeliveryFault::Timeout,
        PublishErrorKind::BrokenPipe => DeliveryFault::Unreachable,
        _ => DeliveryFault::Unavailable,
    };
    DeliveryFailure::new(fault, error.to_string())
}

/// `gpuaas.events.SITE.CODE`; what a subject may not have becomes an underscore.
fn subject(event: &NodeEvent) -> String {
    let token = |text: &str| -> String {
        let kept = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        if text.is_empty() { "_".to_owned() } else { text.chars().map(kept).collect() }
    };
    format!("gpuaas.events.{}.{}", token(&event.site), token(&event.line.code))
}

#[async_trait]
impl Target for NatsTarget {
    fn batch(&self) -> usize {
        BATCH
    }

    async fn deliver(&self, _: Timestamp, events: &[&NodeEvent]) -> Delivered {
        let silent = |text: &str| Delivered {
            count: 0,
            failure: Some(DeliveryFailure::new(DeliveryFault::Timeout, text)),
        };
        let mut known = self.context.lock().await;
        let context = match &*known {
            Some(context) => context.clone(),
            None => match timeout(CONNECT, self.options.connect()).await {
                Ok(Ok(context)) => known.insert(context).clone(),
                Ok(Err(failure)) => return Delivered { count: 0, failure: Some(failure) },
                Err(_) => return silent("timeout while connecting"),
            },
        };
        let delivered = timeout(ACKNOWLEDGE, self.publish(&context, events)).await;
        let delivered =
            delivered.unwrap_or_else(|_| silent("timeout while waiting for the acknowledgement"));
        if delivered.failure.is_some() {
            // The stream may be gone, or the server be another one: looked at anew.
            *known = None;
        }
        delivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        let options = NatsOptions::new("nats://ann:hush@bus.example:4333", None).unwrap();
        assert_eq!(options.url(), "nats://bus.example:4333");
        assert_eq!(format!("{options:?}"), "NatsOptions(nats://bus.example:4333)");
        assert_eq!(NatsOptions::new("tls://bus", None).unwrap().url(), "tls://bus:4222");
        for bad in ["", "http://bus.example", "ws://bus.example", "nats://ann:hush@"] {
            let error = NatsOptions::new(bad, None).unwrap_err().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
