//! Requests that were answered, by the pattern of their path: no label holds what a caller made up.

use axum::http::Method;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// Upper bounds of the time that an answer takes, in seconds.
const BOUNDS: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    method: &'static str,
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AnswerLabels {
    method: &'static str,
    route: String,
    status: u16,
}

/// How an agent said that it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeartbeatForm {
    /// A heartbeat.
    Request,
    /// A poll that stood for one.
    Poll,
}

/// Counts of one process.
#[derive(Debug, Clone)]
pub(crate) struct RequestMetrics {
    pub(crate) answers: Family<AnswerLabels, Counter>,
    pub(crate) durations: Family<RequestLabels, Histogram, fn() -> Histogram>,
    heartbeat_requests: Counter,
    heartbeat_polls: Counter,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BOUNDS);
        Self {
            answers: Family::default(),
            durations: Family::new_with_constructor(histogram),
            heartbeat_requests: Counter::default(),
            heartbeat_polls: Counter::default(),
        }
    }
}

impl RequestMetrics {
    /// Counts a heartbeat that was taken.
    pub(crate) fn note_heartbeat(&self, form: HeartbeatForm) {
        match form {
            HeartbeatForm::Request => self.heartbeat_requests.inc(),
            HeartbeatForm::Poll => self.heartbeat_polls.inc(),
        };
    }

    /// Heartbeats that were taken, by the name of their form.
    pub(crate) fn heartbeats(&self) -> [(&'static str, u64); 2] {
        [("request", self.heartbeat_requests.get()), ("poll", self.heartbeat_polls.get())]
    }

    /// Counts a request that was answered; no route: there is none at its path.
    pub(crate) fn note(&self, method: &Method, route: Option<&str>, status: u16, seconds: f64) {
        let (method, route) = (method_label(method), route.unwrap_or("other").to_owned());
        let labels = RequestLabels { method, route: route.clone() };
        self.durations.get_or_create(&labels).observe(seconds.max(0.0));
        self.answers.get_or_create(&AnswerLabels { method, route, status }).inc();
    }
}

/// A caller may send any word as a method.
fn method_label(method: &Method) -> &'static str {
    const KNOWN: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
    KNOWN.iter().find(|known| **known == method.as_str()).copied().unwrap_or("other")
}
