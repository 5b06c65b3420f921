//! Sends spans to a collector: in the order in which they ended, some at a time, and each once. What is
//! not taken is counted and gone; the work that it tells of waits for nobody here.

use std::sync::Arc;
use std::time::Duration;

use gpuaas_api::TraceCounters;
use gpuaas_client::failure::Failure;
use gpuaas_client::{chain, direct_to_loopback, install_cryptography};
use gpuaas_types::codes::CommandCode;
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::otlp::{self, Resource};
use super::span_layer::{EndedSpan, SpanLayer};

/// Spans that wait to be sent at most.
const QUEUED: usize = 4096;
/// Spans of one request at most.
const TOGETHER: usize = 512;
/// How long the first span of a request waits for others.
const GATHERED: Duration = Duration::from_secs(2);
/// How long a collector may take.
const CALL: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(5);
/// How long the last spans of a process may take.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Where a control plane's spans go: its two ends.
pub(crate) struct TracePipe {
    /// Takes what ends; a part of the log.
    pub(crate) layer: SpanLayer,
    /// Sends it, once started.
    pub(crate) exporter: TraceExporter,
}

/// What sends spans.
pub(crate) struct TraceExporter {
    url: Url,
    client: Client,
    resource: Resource,
    queue: Receiver<EndedSpan>,
    counters: Arc<TraceCounters>,
}

/// An exporter at work.
pub(crate) struct RunningExporter {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Makes a pipe to the collector at `endpoint`, the base address of OTLP over HTTP.
///
/// # Errors
/// `command_line_invalid` where it is not an http or https URL; `http_unavailable`.
pub(crate) fn pipe(endpoint: &str, resource: Resource) -> Result<TracePipe, Failure> {
    let url = traces_url(endpoint).ok_or_else(|| {
        let detail = format!("{endpoint:?} is not an http or https URL");
        Failure::usage(CommandCode::CommandLineInvalid, detail)
            .hint("use a URL such as http://127.0.0.1:4318 with --otlp-endpoint")
    })?;
    install_cryptography();
    let client = Client::builder()
        .connect_timeout(CONNECT)
        .timeout(CALL)
        .redirect(Policy::none())
        .user_agent(concat!("gpuaas/", env!("CARGO_PKG_VERSION")));
    let client = direct_to_loopback(client, &url);
    // A plain http collector needs no certificate authorities, and a bare host may have none.
    let client = if url.scheme() == "http" { client.tls_certs_only([]) } else { client };
    let client = client
        .build()
        .map_err(|error| Failure::local(CommandCode::HttpUnavailable, chain(&error)))?;
    let (sender, queue) = mpsc::channel(QUEUED);
    let counters = Arc::new(TraceCounters::default());
    let layer = SpanLayer::new(sender, Arc::clone(&counters));
    Ok(TracePipe { layer, exporter: TraceExporter { url, client, resource, queue, counters } })
}

/// The address of traces below a base address; one that ends so is taken as it is.
fn traces_url(endpoint: &str) -> Option<Url> {
    let mut url = Url::parse(endpoint.trim()).ok()?;
    let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
    if !is_http || url.query().is_some() || url.fragment().is_some() {
        return None;
    }
    if !url.path().ends_with("/v1/traces") {
        url.path_segments_mut().ok()?.pop_if_empty().extend(["v1", "traces"]);
    }
    Some(url)
}

impl TraceExporter {
    /// What it counts.
    pub(crate) fn counters(&self) -> Arc<TraceCounters> {
        Arc::clone(&self.counters)
    }

    /// Sends from now on. Needs a runtime.
    pub(crate) fn start(self) -> RunningExporter {
        let stop = CancellationToken::new();
        let task = tokio::spawn(self.run(stop.clone()));
        RunningExporter { stop, task }
    }

    async fn run(mut self, stop: CancellationToken) {
        let mut gathered = Vec::new();
        loop {
            let first = tokio::select! {
                first = self.queue.recv() => first,
                () = stop.cancelled() => None,
            };
            let Some(first) = first else { break };
            gathered.push(first);
            let until = Instant::now() + GATHERED;
            while gathered.len() < TOGETHER && !stop.is_cancelled() {
                let next = tokio::select! {
                    next = timeout_at(until, self.queue.recv()) => next,
                    () = stop.cancelled() => break,
                };
                let Ok(Some(next)) = next else { break };
                gathered.push(next);
            }
            self.send(&mut gathered).await;
        }
        self.queue.close();
        while let Ok(last) = self.queue.try_recv() {
            gathered.push(last);
        }
        self.send(&mut gathered).await;
    }

    async fn send(&self, spans: &mut Vec<EndedSpan>) {
        if spans.is_empty() {
            return;
        }
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        let body = otlp::body(&self.resource, spans);
        spans.clear();
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        let refused = match request.body(body).send().await {
            Ok(answer) if answer.status().is_success() => {
                return self.counters.note_exported(count);
            }
            Ok(answer) => format!("HTTP {}", answer.status().as_u16()),
            Err(error) => chain(&error.without_url()),
        };
        if self.counters.note_failed(count) {
            tracing::warn!(why = refused, "the trace collector does not accept traces");
        }
    }
}

impl RunningExporter {
    /// Sends what is left, for a few seconds at most.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        timeout(LAST_WORDS, self.task).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_has_one_address() {
        let url = |endpoint: &str| traces_url(endpoint).map(|url| url.to_string());
        for endpoint in ["http://127.0.0.1:4318", "http://127.0.0.1:4318/"] {
            assert_eq!(url(endpoint).as_deref(), Some("http://127.0.0.1:4318/v1/traces"));
        }
        let whole = "https://otel.example/tenant/v1/traces";
        assert_eq!(url(whole).as_deref(), Some(whole));
        assert_eq!(url("https://otel.example/tenant").as_deref(), Some(whole));
        for text in ["", "otel:4318", "ftp://otel", "http://otel?x=1", "grpc://otel:4317"] {
            assert_eq!(url(text), None, "{text}");
        }
    }
}
