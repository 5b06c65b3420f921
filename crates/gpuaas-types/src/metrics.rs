//! What `GET /metrics` shows, one row a metric. Names get `gpuaas_` before them; units are seconds
//! and bytes, and no label names a node, so that a thousand nodes make no more series than ten.

use crate::string_enum::string_enum;

string_enum! {
    /// How a metric is to be read.
    MetricKind {
        /// What is so now.
        Gauge = "gauge",
        /// What only grows while a process lives.
        Counter = "counter",
        /// Counts up to each of several bounds, with a sum.
        Histogram = "histogram",
    }
}

/// A row of [`METRICS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Name without `gpuaas_`, and of a counter without `_total`.
    pub name: &'static str,
    /// How it is to be read.
    pub kind: MetricKind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Whether every control plane of one database shows the same: such series are not to be added up.
    pub shared: bool,
    /// What it says, one sentence without its full stop.
    pub help: &'static str,
}

impl Metric {
    /// The name in queries.
    #[must_use]
    pub fn series(&self) -> String {
        let end = if self.kind == MetricKind::Counter { "_total" } else { "" };
        format!("gpuaas_{}{end}", self.name)
    }

    const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Gauge, labels, shared: true, help }
    }

    const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Counter, labels, shared: false, help }
    }

    /// What is counted in the database, and only grows there.
    const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Histogram, labels, shared: true, help }
    }

    const fn of_process(self) -> Self {
        Self { shared: false, ..self }
    }
}

/// Version of the control plane and its database.
pub const CONTROL_PLANE: Metric = Metric::gauge(
    "control_plane",
    &["version", "database"],
    "1 for each scraped control plane; the labels give its version and database",
)
.of_process();
/// Nodes by state.
pub const NODES: Metric = Metric::gauge("nodes", &["site", "state"], "Managed nodes by state");
/// Open runs.
pub const RUNS: Metric = Metric::gauge(
    "runs",
    &["site", "kind", "status", "code"],
    "Open runs; the code says what a run waits for or why it is parked",
);
/// Runs that stopped or failed.
pub const FAILED_RUNS: Metric = Metric::gauge(
    "failed_runs",
    &["site", "kind", "status", "failure_class"],
    "Stored runs that are parked, failed or cancelled, by the failure class of their last stop",
);
/// Age of the oldest open run.
pub const OLDEST_RUN: Metric = Metric::gauge(
    "oldest_run_step_age_seconds",
    &["site", "status"],
    "Longest time that an open run has spent in its current step",
);
/// Times of runs that ended.
pub const RUN_DURATION: Metric = Metric {
    name: "run_duration_seconds",
    kind: MetricKind::Histogram,
    labels: &["site", "kind", "status"],
    shared: true,
    help: "Time from start to end of stored runs that have ended, whatever their result",
};
/// Time to active.
pub const TIME_TO_ACTIVE: Metric = Metric::histogram(
    "time_to_active_seconds",
    &["site", "kind"],
    "Time from the request of an onboarding or reimage until the node is active",
);
/// Time to slice-ready.
pub const TIME_TO_SLICE_READY: Metric = Metric::histogram(
    "time_to_slice_ready_seconds",
    &["site", "kind"],
    "Time from the request of an onboarding or reimage until the agent first reports that the gate \
     slice_ready is open",
);
/// Time of runs by bucket.
pub const RUN_BUCKET_DURATION: Metric = Metric::histogram(
    "run_bucket_duration_seconds",
    &["site", "kind", "bucket"],
    "Time that succeeded runs spent in each timing bucket",
);
/// Whether a region answers.
pub const SITE_REACHABLE: Metric = Metric::gauge(
    "site_reachable",
    &["site"],
    "0 while the circuit breaker for a site's region is open; only sites that this control plane uses",
)
.of_process();
/// Calls to MAAS.
pub const MAAS_CALLS: Metric = Metric::counter(
    "maas_calls",
    &["site", "operation"],
    "Calls to MAAS since the site was last connected, including failed calls and repeated reads",
);
/// Bytes sent to MAAS.
pub const MAAS_SENT: Metric =
    Metric::counter("maas_request_bytes", &["site"], "Bytes of paths and bodies sent to MAAS");
/// Bytes that MAAS sent.
pub const MAAS_RECEIVED: Metric =
    Metric::counter("maas_response_bytes", &["site"], "Bytes of response bodies from MAAS");
/// Age of the oldest event that waits.
pub const EVENTS_LAG: Metric = Metric::gauge(
    "events_lag_seconds",
    &["sink"],
    "Age of the oldest event that the sink has not accepted; 0 if no event is pending",
);
/// Dead letters.
pub const EVENTS_DEAD: Metric = Metric::gauge(
    "events_dead_letters",
    &["sink"],
    "Undeliverable events that have not been redelivered since",
);
/// Events delivered.
pub const EVENTS_DELIVERED: Metric = Metric {
    name: "events_delivered",
    kind: MetricKind::Counter,
    labels: &["sink"],
    shared: true,
    help: "Events that the sink has accepted since it was created",
};
/// Statements sent to the database.
pub const STATEMENTS: Metric =
    Metric::counter("database_statements", &[], "Statements sent to the database");
/// Transactions begun in the database.
pub const TRANSACTIONS: Metric =
    Metric::counter("database_transactions", &[], "Transactions started in the database");
/// Requests answered.
pub const HTTP_REQUESTS: Metric = Metric::counter(
    "http_requests",
    &["method", "route", "status"],
    "Answered requests of operators and nodes, by the pattern of their path",
);
/// Time of requests.
pub const HTTP_DURATION: Metric = Metric {
    name: "http_request_duration_seconds",
    kind: MetricKind::Histogram,
    labels: &["method", "route"],
    shared: false,
    help: "Time from the headers of a request to those of its response; agent polls wait on purpose",
};
/// Signs of life.
pub const HEARTBEATS: Metric = Metric::counter(
    "heartbeats",
    &["form"],
    "Accepted agent heartbeats: separate requests, and polls that count as one",
);

/// Spans of traces.
pub const TRACE_SPANS: Metric = Metric::counter(
    "trace_spans",
    &["outcome"],
    "Trace spans that the collector accepted (exported), that it did not accept (failed), and that did \
     not fit into the buffer (dropped); only if the control plane sends traces",
);

/// All metrics, in the order of the reference page.
pub const METRICS: &[Metric] = &[
    CONTROL_PLANE,
    NODES,
    RUNS,
    FAILED_RUNS,
    OLDEST_RUN,
    RUN_DURATION,
    TIME_TO_ACTIVE,
    TIME_TO_SLICE_READY,
    RUN_BUCKET_DURATION,
    SITE_REACHABLE,
    MAAS_CALLS,
    MAAS_SENT,
    MAAS_RECEIVED,
    EVENTS_LAG,
    EVENTS_DEAD,
    EVENTS_DELIVERED,
    STATEMENTS,
    TRANSACTIONS,
    HTTP_REQUESTS,
    HTTP_DURATION,
    HEARTBEATS,
    TRACE_SPANS,
];
